"""The threads and buffers that grow subtrees of sparse tables on a shard.

One thread grows a tree, or several if every node is searched in all columns: they search large nodes together, each some of the columns,
and then each takes small nodes for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.grower import Grower, NodeTable
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, make_task, size_of_task
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import bind
from dtrees.split.grow.best_first import origins
from dtrees.split.grow.by_criterion import METHODS
from dtrees.split.grow.column_by_column import search_some
from dtrees.split.grow.subtree import Task, divide_shared, grow_sparse
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import limits_for_thread, most_nodes
from dtrees.split.node.partition import NOWHERE, is_pure
from dtrees.split.node.records import SPLIT, Candidates, Nodes, best_by_node, empty_candidates, empty_nodes
from dtrees.split.numbers.hashing import LEFT
from dtrees.split.policy import NODES_PER_THREAD, SHARE_ROWS, SPARSE_CHUNKS, SPARSE_SUMS_SHARE, SPARSE_THREAD_CELLS
from dtrees.split.search.sparse import CellBuffer, make_cell_buffer
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns
from dtrees.split.zones.sum_slots import SumSlots, for_thread
from dtrees.split.zones.sums import note_places

_ROOT_ORIGIN = origins(1)[0]


class SparseRunner(Runner):
    """Threads that grow subtrees of a sparse table."""

    def __init__(self, columns: SparseColumns, threads: Threads, by_turns: bool = False) -> None:
        self._table = columns
        super().__init__(columns, threads, by_turns)

    def forget(self) -> None:
        """Free all buffers."""
        super().forget()
        self._buffers: list[CellBuffer] = []

    def grow(self, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, one after the other, each by a suitable number of threads; see :meth:`Runner.grow`."""
        context, roots = assignment.context, assignment.roots
        wanted = _threads_for(self._table, self.threads, context)
        self._scratch_up_to(wanted - 1, 0)
        buffers = self._buffers_for(wanted, context)
        sum_slots = None if assignment.sum_slots is None else assignment.sum_slots()
        tasks = [self._task(context, roots, thread, buffer, sum_slots) for thread, buffer in enumerate(buffers)]
        self._budget = context.budget
        grown: list[Nodes] = []

        def grow(_: int) -> None:
            for root in zip(roots.places, roots.paths, roots.sums, roots.origins, strict=True):
                grown.append(grow_alone(self._table, tasks[0], *root))

        if wanted > 1:
            grown.append(_Growth(self._table, self.threads, tasks, self.give_up).grow(roots))
        elif assignment.is_interruptible:
            self.threads.run_interruptibly(1, grow, self.give_up)
        else:
            grow(0)
        self._end()
        return grown

    def _buffers_for(self, n: int, context: TreeContext) -> list[CellBuffer]:
        """Return each thread's buffer for finding the cells of nodes; the places of rows are shared."""
        dense = self._scratch[0].line_up is not None
        while len(self._buffers) < n:
            buffer = make_cell_buffer(self._table, dense, self._buffers[0].place_of if self._buffers else None)
            self._buffers.append(buffer)
        place_of = self._buffers[0].place_of
        if context.partition.rows.shape[0] < place_of.shape[0]:
            place_of.fill(NOWHERE)
        for buffer in self._buffers[:n]:
            buffer.n_listed.fill(-1)
            buffer.n_listed[context.pool] = 0
        return self._buffers[:n]

    def _task(self, context: TreeContext, roots: Roots, thread: int, buffer: CellBuffer, sum_slots: SumSlots | None) -> Task:
        """Return the task of a thread that grows nodes."""
        size, n_sums = size_of_task(context, roots.places), roots.sums.shape[1]
        context = context._replace(limits=limits_for_thread(context.limits))
        task = make_task(context, size, n_sums, self._scratch[thread], block=None, buffer=buffer)
        if sum_slots is not None:
            n_elements, n_cells = sum_slots.sums.starts[0, -1] // sum_slots.sums.width, max(1, self._table.rows.shape[0])
            fewest = int(n_elements) * self._table.n_rows // (SPARSE_SUMS_SHARE * n_cells)
            task = task._replace(sum_slots=for_thread(sum_slots, task.stack.path.shape[0]), block_rows=fewest)
        methods = METHODS.of(task, "limits", columns=self._table)
        methods.write(task.limits.hidden, task.limits.memory)
        return task._replace(methods=methods.addresses)


def _threads_for(columns: SparseColumns, threads: Threads, context: TreeContext) -> int:
    """Return the number of threads to grow a tree: one, if leaves are limited or columns are drawn for each node."""
    if context.budget.first.shape[0] or context.stops.max_features < context.pool.shape[0]:
        return 1
    return min(threads.n_threads, 1 + columns.rows.shape[0] // SPARSE_THREAD_CELLS)


def grow_alone(
    columns: SparseColumns, task: Task, place: tuple[int, int, int, int], path: np.uint64, sums: NDArray[np.int64], origin: Any
) -> Nodes:
    """Grow a node to its end in the calling thread; ``place`` has its places and its depth."""
    start, in_stop, _, depth = place
    nodes = empty_nodes(most_nodes.py_func(task.stops, task.limits.hidden, in_stop - start, depth), sums.shape[0])
    arguments = columns, task, np.array(place, np.int64), np.uint64(path), sums, origin, nodes
    n = bind(grow_sparse, *arguments)(*arguments)
    return Nodes(nodes.records[:n].copy(), nodes.sums[:n].copy())


class _Growth:
    """A tree that several threads grow together; every node is searched in all columns of the tree.

    Parameters
    ----------
    columns : SparseColumns
    threads : Threads
    tasks : list of Task
        One for each thread.
    give_up : callable
        Has all threads stop soon.
    """

    def __init__(self, columns: SparseColumns, threads: Threads, tasks: list[Task], give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self._columns, self._threads, self._tasks = columns, threads, tasks
        self._free = list(tasks)  # list.pop and append are atomic
        cells = np.cumsum(1 + np.diff(columns.starts)[tasks[0].pool])
        shares = np.linspace(0, cells[-1], SPARSE_CHUNKS * len(tasks) + 1)[1:-1]
        bounds = np.unique([0, *np.searchsorted(cells, shares), cells.shape[0]]).tolist()
        self._chunks = list(pairwise(bounds))

    def grow(self, roots: Roots) -> Nodes:
        """Grow the tree, of which there is the root; return its nodes in preorder."""
        task, (place,), (sums,) = self._tasks[0], roots.places, roots.sums
        assert task.buffer is not None
        _, n_in, n_rows, _ = place
        note_places(task.buffer.place_of, task.partition.rows, 0, n_rows)
        self._nodes = table = NodeTable(sums.shape[0])
        table.open(n_in, n_rows, roots.paths[0], sums)
        share_rows = max(SHARE_ROWS, n_in // (NODES_PER_THREAD * len(self._tasks)))
        grower = Grower(task.limits.hidden, task.stops, 0, task.pool.shape[0], share_rows, table)
        while (nodes := grower.to_search).shape[0]:
            found = self._search(nodes)
            grower.accept(nodes, found)
            if (splits := grower.choose()) is None:
                break
            self._divide(splits, found.take(np.searchsorted(nodes, splits.node)))
        small = sorted(grower.to_grow, key=lambda i: table.in_stop[i] - table.start[i], reverse=True)
        grower.attach(small, self._threads.map(self._grow_small, small, len(self._tasks), self._give_up))
        return grower.arrange()

    def _search(self, nodes: NDArray[np.int64]) -> Candidates:
        """Return the best splits of nodes, of each of which every thread searches some columns."""
        task, table, best = self._tasks[0], self._nodes, empty_candidates(nodes.shape[0], self._nodes.sums.shape[1])
        for i, node in enumerate(nodes.tolist()):
            first, last, path, sums = table.start[node], table.in_stop[node], table.path[node], table.sums[node]
            if is_pure(task.target, task.partition.rows, first, last):
                continue

            def search(chunk: tuple[int, int], about: Any = (first, last, path, sums)) -> Candidates:
                mine = self._free.pop()
                arguments = self._columns, mine._replace(limits=mine.limits.hidden), *about, *chunk
                bind(search_some, *arguments)(*arguments)
                found = Candidates(mine.best.records.copy(), mine.best.left.copy())
                self._free.append(mine)
                return found

            for found in self._threads.map(search, self._chunks, len(self._tasks)):
                if found.records["status"][0] == SPLIT:
                    best_by_node(found, np.full(1, i), best)
        return best

    def _divide(self, splits: Splits, found: Candidates) -> None:
        """Apply splits, given the candidates that they are."""
        table, middle = self._nodes, np.empty((2, splits.node.shape[0]), np.int64)
        for i, node in enumerate(splits.node.tolist()):
            start, task = table.start[node], self._tasks[0]._replace(best=found.take(slice(i, i + 1)))
            arguments = self._columns, task, start, table.in_stop[node], table.stop[node], table.depth[node]
            inside, outside = bind(divide_shared, *arguments)(*arguments)
            middle[:, i] = start + inside, start + inside + outside
        table.divide(splits.node, splits.left, (middle[0], middle[1]), by_level=self._tasks[0].stops.right_side == LEFT)

    def _grow_small(self, node: int) -> Nodes:
        task, table = self._free.pop(), self._nodes
        place = int(table.start[node]), int(table.in_stop[node]), int(table.stop[node]), int(table.depth[node])
        grown = grow_alone(self._columns, task, place, table.path[node], table.sums[node], _ROOT_ORIGIN)
        self._free.append(task)
        return grown


def make_runner(columns: AnyColumns, threads: Threads, by_turns: bool = False) -> Runner:
    """Return a runner for the kind of table."""
    return SparseRunner(columns, threads, by_turns) if isinstance(columns, SparseColumns) else SubtreeRunner(columns, threads, by_turns)
