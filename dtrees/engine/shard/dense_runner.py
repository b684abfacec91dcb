"""The threads and buffers that grow subtrees of dense tables on a shard.

A small tree takes a few microseconds to grow, and far longer to allocate buffers for and to look up types for. So the buffers are reused
from tree to tree while they are large enough (except very large ones), and the kernel is bound to its types
(:func:`~dtrees.split.compile.kernels.bind`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, make_task, size_of_task
from dtrees.engine.threads import Threads
from dtrees.split.compile.helper import are_compiled_elsewhere, compile_all_elsewhere, compile_elsewhere, compile_together
from dtrees.split.compile.kernels import bind, is_compiled
from dtrees.split.compile.methods import UNKNOWN, Hidden, Methods
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.parts import kinds_of, n_class_sums
from dtrees.split.grow.best_first import LeafBudget
from dtrees.split.grow.block import make_block
from dtrees.split.grow.by_criterion import METHODS, search_tiny
from dtrees.split.grow.parallel_subtree import Wanted, grow_plain, grow_together, likely_kernels
from dtrees.split.grow.subtree import Task
from dtrees.split.grow.work_pool import Opening, WorkPool, begin, begin_level, grown, make_work_pool, opening
from dtrees.split.node.limits import RandomThreshold, limits_for_thread, most_nodes
from dtrees.split.node.partition import NOWHERE, no_rows
from dtrees.split.node.records import Candidates, Nodes
from dtrees.split.policy import MOST_NODES_KEPT, PLAIN_CELLS, TINY_RANKED_ROWS, TINY_ROWS
from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.zone_map import compile_zones, map_zones
from dtrees.split.zones.sum_slots import SumSlots, for_thread, no_sum_slots
from dtrees.split.zones.sums import note_places
from dtrees.tree.predict import compile_prediction

#: The growing kernel runs without this one while a helper compiles it.
_TINY = search_tiny.kernel
NO_SUM_SLOTS = no_sum_slots(map_zones(presort([])))
#: The first field of a task that is the same for all trees.
_FIRST_BUFFER = Task._fields.index("pool")
_Kernel = Callable[[Columns, WorkPool, Task], None]
_Ready = tuple[_Kernel, WorkPool, list[Task]]


class SubtreeRunner(Runner):
    """Threads that grow subtrees of dense tables, and their buffers."""

    def __init__(self, columns: Columns, threads: Threads, by_turns: bool = False) -> None:
        super().__init__(columns, threads, by_turns)
        self._columns = columns
        self._awaited: list[Wanted] = []  # kernels that a helper compiles
        self._kind: tuple[Any, ...] = ()
        self._pool: NDArray[np.int32] | None = None
        self._work_pool: WorkPool | None = None
        self._work_pool_size: tuple[int, ...] = ()
        self._opening: Opening
        self._task_size: tuple[int, ...] = ()
        self._methods: Methods | None = None

    def forget(self) -> None:
        """Free scratch space, and the buffers that refer to it."""
        super().forget()
        self._tasks: list[Task] = []
        self._made_for: tuple[Any, ...] = ()

    def grow(self, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends; see :meth:`Runner.grow`.

        While a helper compiles the search of large nodes, trees of small tables are grown in one block; while it compiles the search of
        tiny nodes, these are searched like others. The trees are the same.
        """
        waits = self._awaited and are_compiled_elsewhere(self._awaited)
        ready = None if waits else self._prepare(n_threads, assignment)
        if ready is None:
            most_rows = max(in_stop - start for start, in_stop, _, _ in assignment.roots.places)
            n_threads, assignment = 1, assignment._replace(block_rows=most_rows, share_rows=most_rows, sum_slots=None, is_plain=True)
            ready = self._prepare(n_threads, assignment)
        work_pool = self._do(n_threads, assignment, cast(_Ready, ready))
        reuses_buffers = work_pool.parts.records.shape[0] <= MOST_NODES_KEPT
        if not reuses_buffers:
            self._work_pool, self._made_for = None, ()
        return [grown(work_pool, i, copy=assignment.keep and reuses_buffers) for i in range(len(assignment.roots.places))]

    def search(self, n_threads: int, assignment: Assignment) -> tuple[Candidates, NDArray[np.int64]]:
        """Search the nodes of a level; return the best candidates and the slots of all nodes of the assignment."""
        n, ready = len(assignment.roots.places), self._prepare(n_threads, assignment)
        work_pool = self._do(n_threads, assignment, cast(_Ready, ready))
        return work_pool.found.take(slice(0, n)), work_pool.places["slot"][:n].copy()

    def _do(self, n_threads: int, assignment: Assignment, ready: _Ready) -> WorkPool:
        """Have threads do the tasks of a work pool."""
        kernel, work_pool, tasks = ready
        self._run(assignment, lambda thread: kernel(self._columns, work_pool, tasks[thread]), n_threads, work_pool.control)
        return work_pool

    def _prepare(self, n_threads: int, assignment: Assignment) -> _Ready | None:
        """Return the kernel that grows nodes, with its arguments; None while a helper compiles its kernels."""
        context, roots, block_rows, share_rows, find_sums, slots, _, is_plain = assignment
        self._allocate(assignment)
        for thread in range(len(self._tasks), n_threads):
            self._tasks.append(self._task(thread, context))
        assert self._work_pool is not None
        if self._methods is None:
            task = _on(context, self._tasks[0], block_rows, None, UNKNOWN, is_plain)
            self._methods = METHODS.of(task, "limits", columns=self._columns, work_pool=self._work_pool)
        methods = self._methods
        kernel = methods.kernels.get(_driver(is_plain))
        if kernel is None:
            task = _on(context, self._tasks[0], block_rows, None, methods, is_plain)
            kernel = self._kernel(methods, self._work_pool._replace(share_rows=share_rows), task, find_sums is not None)
            if kernel is None:
                return None
        if _TINY in methods.kernels and not are_compiled_elsewhere([*methods.kernels[_TINY]]):
            del methods.kernels[_TINY]
        is_plain = is_plain or _TINY in methods.kernels
        sum_slots = None if find_sums is None else find_sums(n_threads)
        if sum_slots is not None and slots is None and self._task_size[0] > min(block_rows, share_rows):  # nodes are searched by zone sums
            rows, place_of = context.partition.rows, sum_slots.sums.place_of
            if rows.shape[0] < place_of.shape[0]:  # rows outside the partition have no place
                place_of.fill(NOWHERE)
            note_places(place_of, rows, 0, rows.shape[0])
        if sum_slots is not None and self._tasks[n_threads - 1].sum_slots is NO_SUM_SLOTS:
            self._tasks = [task._replace(sum_slots=for_thread(sum_slots, task.stack.path.shape[0])) for task in self._tasks]
        work_pool = begin(self._work_pool, self._opening, roots, share_rows, n_threads)
        if slots is not None:
            work_pool = begin_level(work_pool, len(roots.places), slots)
        tasks = [_on(context, task, block_rows, sum_slots, methods, is_plain) for task in self._tasks[:n_threads]]
        return kernel, work_pool, tasks

    def _allocate(self, assignment: Assignment) -> None:
        """Allocate buffers that are large enough for the nodes to be grown."""
        context, roots, block_rows, share_rows, find_sums, slots, _, _ = assignment
        limits, stops, places, is_level = context.limits, context.stops, roots.places, slots is not None
        n_sums, weighted = roots.sums.shape[1], context.partition.h.shape[0] > 0
        kind = (n_sums, weighted, type(limits.thresholds), kinds_of(limits.criterion), find_sums is not None, limits.categories.some)
        wanted = (places, block_rows, share_rows, stops.max_depth, limits.min_samples, kind, is_level)
        if wanted == self._made_for and context.pool is self._pool:
            return
        sizes = [in_stop - start for start, in_stop, _, _ in places]
        n_nodes = [1 if is_level else most_nodes.py_func(stops, limits, in_stop - start, depth) for start, in_stop, _, depth in places]
        most_shared = last = 0
        if is_level:
            most_shared = len(places)
        elif max(sizes) > share_rows:
            most_shared = sum(sizes) // max(1, share_rows) + 1
            last = max(stop for _, _, stop, _ in places)
        pool_size = (len(places), most_shared, last, sum(n_nodes))
        if self._work_pool is None or kind != self._kind or not all(map(ge, self._work_pool_size, pool_size)):
            # If all weights are 1 and node values are measured, only the numbers of rows are needed.
            measured = not weighted and not stops.keeps_sums
            self._work_pool, self._work_pool_size = make_work_pool(*pool_size, n_sums, 0 if measured else n_sums), pool_size
        self._opening = opening(self._work_pool, places, n_nodes)
        task_size = (*size_of_task(context, places), min(max(sizes), block_rows))
        if not self._tasks or kind != self._kind or context.pool is not self._pool or not all(map(ge, self._task_size, task_size)):
            self._tasks, self._task_size, self._methods = [], task_size, None
        self._made_for, self._kind, self._pool = wanted, kind, context.pool

    def _kernel(self, methods: Methods, work_pool: WorkPool, task: Task, by_sums: bool) -> _Kernel | None:
        """Return the kernel that grows nodes, once the kernels that most nodes need are compiled; None while a helper compiles them."""
        block, others = likely_kernels(self._columns, work_pool, task, methods, self._task_size[0], by_sums)
        first, missing = ([one for one in some if not is_compiled(*one)] for some in (block, others))
        tiny = [one for one in missing if one[0] is _TINY]
        is_small = task.block_rows > 0 and self._task_size[0] * self._columns.n_columns <= PLAIN_CELLS
        if task.is_plain:
            compile_together(block)
        elif missing != tiny and is_small and self._order(first[:-1], missing, by_sums, task.limits.seen.categories.some):
            return None
        else:
            compile_together([*block[:-1], *[one for one in others if one not in tiny]])
            if tiny and compile_all_elsewhere(tiny):
                methods.kernels[_TINY] = tiny
        kernel = methods.kernels[_driver(task.is_plain)] = bind(_driver(task.is_plain), self._columns, work_pool, task)
        return kernel

    def _order(self, first: list[Wanted], others: list[Wanted], by_sums: bool, with_sets: bool) -> bool:
        """Have a helper compile the ``first`` kernels, then the prediction, then the others; return whether there is a helper."""
        if not (compile_all_elsewhere(first) and compile_elsewhere(compile_prediction, with_sets)):
            return False
        if by_sums:
            compile_elsewhere(compile_zones)
        compile_all_elsewhere(others)
        self._awaited = [one for one in others if one[0] is not _TINY]
        return True

    def _task(self, thread: int, context: TreeContext) -> Task:
        """Allocate the buffers of a thread that grows nodes of ``_task_size``."""
        n_sums, weighted, thresholds, _, _, _ = self._kind
        criterion = context.limits.criterion
        most_rows, outside, n_levels, block_rows = self._task_size
        rest = outside, weighted, context.pool, self._columns, thresholds is RandomThreshold, n_class_sums(criterion, n_sums)
        block = make_block(block_rows, *rest, TINY_RANKED_ROWS if Deviations in kinds_of(criterion) else TINY_ROWS)
        # The arrays of each tree are inserted later, and should not be referenced here.
        context = context._replace(partition=no_rows(), spare=no_rows(), target=context.target[:0].copy())
        return make_task(context, (most_rows, outside, n_levels), n_sums, self._scratch[thread], NO_SUM_SLOTS, block)


def _driver(is_plain: bool) -> Any:
    """Return the entry kernel that grows nodes."""
    return grow_plain if is_plain else grow_together


def _on(context: TreeContext, task: Task, block_rows: int, sum_slots: SumSlots | None, methods: Methods, is_plain: bool) -> Task:
    """Return a thread's task, adapted to another tree."""
    own, (seen, address, memory, _) = task.sum_slots, task.limits
    if sum_slots is not None:
        own = sum_slots._replace(slot_of=own.slot_of, bar=own.bar)
    partition, spare, target, limits, stops, keys, (first, control, _), _ = context
    limits, budget = limits_for_thread(limits), LeafBudget(first, control, task.budget.waiting)
    methods.write(limits, memory)
    hidden = Hidden(seen, address, memory, limits)
    buffers: Any = task[_FIRST_BUFFER:]
    return Task(partition, spare, target, hidden, stops, keys, block_rows, own, budget, methods.addresses, is_plain, *buffers)
