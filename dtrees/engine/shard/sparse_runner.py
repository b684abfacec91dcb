"""The threads and buffers that grow subtrees of sparse tables on a shard.

One thread grows a tree, or several if every node is searched in all columns: they search large nodes together, each some of the columns,
and then each takes small nodes for itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, make_task, size_of_task
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import Grower, NodeTable
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


class SparseRunner(Runner):
    """Threads that grow subtrees of a sparse table."""

    def __init__(self, columns: SparseColumns, threads: Threads, by_turns: bool = False) -> None:
        super().__init__(columns, threads, by_turns)
        self._columns = columns

    def forget(self) -> None:
        """Free scratch space, and the buffers that refer to it."""
        super().forget()
        self._buffers: list[CellBuffer] = []

    def grow(self, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, one after the other, each by a suitable number of threads; see :meth:`Runner.grow`."""
        context, roots = assignment.context, assignment.roots
        wanted = self._threads_for(context)
        self._scratch_up_to(wanted - 1, 0)
        # Threads that grow a tree together search large nodes column by column, and have no slots of their own for small ones.
        sum_slots = None if assignment.sum_slots is None or wanted > 1 else assignment.sum_slots()
        buffers = self._buffers_for(wanted, context)
        tasks = [self._task(context, roots, thread, buffer, sum_slots) for thread, buffer in enumerate(buffers)]
        self._budget = context.budget
        grown: list[Nodes] = []

        def grow(_: int) -> None:
            for root in zip(roots.places, roots.paths, roots.sums, roots.origins, strict=True):
                grown.append(self._grow_root(tasks[0], *root))

        if wanted > 1:
            grown.append(self._grow_together(tasks, roots))
        elif assignment.is_interruptible:
            self.threads.run_interruptibly(1, grow, self.give_up)
        else:
            grow(0)
        self._end()
        return grown

    def _threads_for(self, context: TreeContext) -> int:
        """Return the number of threads to grow a tree: one, if leaves are limited or columns are drawn for each node."""
        if context.budget.first.shape[0] or context.stops.max_features < context.pool.shape[0]:
            return 1
        return min(self.threads.n_threads, 1 + self._columns.rows.shape[0] // SPARSE_THREAD_CELLS)

    def _buffers_for(self, n: int, context: TreeContext) -> list[CellBuffer]:
        """Return each thread's buffer for finding the cells of nodes; the places of rows are shared."""
        dense = self._scratch[0].line_up is not None
        while len(self._buffers) < n:
            buffer = make_cell_buffer(self._columns, dense, self._buffers[0].place_of if self._buffers else None)
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
            n_elements, n_cells = sum_slots.sums.starts[0, -1] // sum_slots.sums.width, max(1, self._columns.rows.shape[0])
            fewest = int(n_elements) * self._columns.n_rows // (SPARSE_SUMS_SHARE * n_cells)
            task = task._replace(sum_slots=for_thread(sum_slots, task.stack.path.shape[0]), block_rows=fewest)
        methods = METHODS.of(task, "limits", columns=self._columns)
        methods.write(task.limits.hidden, task.limits.memory)
        return task._replace(methods=methods.addresses)

    def _grow_root(self, task: Task, place: tuple[int, int, int, int], path: np.uint64, sums: NDArray[np.int64], origin: Any) -> Nodes:
        """Grow a node to its end in the calling thread; ``place`` has its places and its depth."""
        start, in_stop, _, depth = place
        nodes = empty_nodes(most_nodes.py_func(task.stops, task.limits.hidden, in_stop - start, depth), sums.shape[0])
        arguments = self._columns, task, np.array(place, np.int64), np.uint64(path), sums, origin, nodes
        n = bind(grow_sparse, *arguments)(*arguments)
        return Nodes(nodes.records[:n].copy(), nodes.sums[:n].copy())

    def _grow_together(self, tasks: list[Task], roots: Roots) -> Nodes:
        """Grow a tree, of which there is the root, by all threads together; return its nodes in preorder.

        Every node is searched in all columns of the tree. ``tasks`` has a task for each thread, which takes it while it works.
        """
        task, n_threads, ((_, n_in, n_rows, _),), (sums,) = tasks[0], len(tasks), roots.places, roots.sums
        assert task.buffer is not None
        note_places(task.buffer.place_of, task.partition.rows, 0, n_rows)
        cells = np.cumsum(1 + np.diff(self._columns.starts)[task.pool])
        shares = np.linspace(0, cells[-1], SPARSE_CHUNKS * n_threads + 1)[1:-1]
        chunks = list(pairwise(np.unique([0, *np.searchsorted(cells, shares), cells.shape[0]]).tolist()))
        table = NodeTable(sums.shape[0])
        table.open(n_in, n_rows, roots.paths[0], sums)
        share_rows = max(SHARE_ROWS, n_in // (NODES_PER_THREAD * n_threads))
        grower = Grower(task.limits.hidden, task.stops, 0, task.pool.shape[0], share_rows, table)
        while (nodes := grower.to_search).shape[0]:
            found = self._search(tasks, table, nodes, chunks)
            grower.accept(nodes, found)
            if (splits := grower.choose()) is None:
                break
            self._divide(task, table, splits, found.take(np.searchsorted(nodes, splits.node)))

        def grow_small(root: tuple[Any, ...]) -> Nodes:
            mine = tasks.pop()  # list.pop and append are atomic
            nodes = self._grow_root(mine, *root)
            tasks.append(mine)
            return nodes

        small = sorted(grower.to_grow, key=lambda i: table.in_stop[i] - table.start[i], reverse=True)
        subtrees = table.roots(np.array(small, np.int64), origins(len(small)))
        grower.attach(small, self.threads.map(grow_small, zip(*subtrees, strict=True), n_threads, self.give_up))
        return grower.arrange()

    def _search(self, tasks: list[Task], table: NodeTable, nodes: NDArray[np.int64], chunks: list[tuple[int, int]]) -> Candidates:
        """Return the best splits of nodes, of each of which every thread searches some columns."""
        task, n_threads, best = tasks[0], len(tasks), empty_candidates(nodes.shape[0], table.sums.shape[1])
        for i, node in enumerate(nodes.tolist()):
            first, last, path, sums = table.start[node], table.in_stop[node], table.path[node], table.sums[node]
            if is_pure(task.target, task.partition.rows, first, last):
                continue

            def search(chunk: tuple[int, int], about: Any = (first, last, path, sums)) -> Candidates:
                mine = tasks.pop()
                arguments = self._columns, mine._replace(limits=mine.limits.hidden), *about, *chunk
                bind(search_some, *arguments)(*arguments)
                found = Candidates(mine.best.records.copy(), mine.best.left.copy())
                tasks.append(mine)
                return found

            for found in self.threads.map(search, chunks, n_threads):
                if found.records["status"][0] == SPLIT:
                    best_by_node(found, np.full(1, i), best)
        return best

    def _divide(self, task: Task, table: NodeTable, splits: Splits, found: Candidates) -> None:
        """Apply splits, given the candidates that they are."""
        middle = np.empty((2, splits.node.shape[0]), np.int64)
        for i, node in enumerate(splits.node.tolist()):
            start, chosen = table.start[node], task._replace(best=found.take(slice(i, i + 1)))
            arguments = self._columns, chosen, start, table.in_stop[node], table.stop[node], table.depth[node]
            inside, outside = bind(divide_shared, *arguments)(*arguments)
            middle[:, i] = start + inside, start + inside + outside
        table.divide(splits.node, splits.left, (middle[0], middle[1]), by_level=task.stops.right_side == LEFT)


def make_runner(columns: AnyColumns, threads: Threads, by_turns: bool = False) -> Runner:
    """Return a runner for the kind of table."""
    return SparseRunner(columns, threads, by_turns) if isinstance(columns, SparseColumns) else SubtreeRunner(columns, threads, by_turns)
