"""The threads and buffers that grow subtrees of sparse tables on a shard.

One thread grows a tree, or several if every node is searched in all columns: they search large nodes together, each some of the columns,
and then each takes small nodes for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.nodes import join_subtrees
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, make_task, size_of_task
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import bind
from dtrees.split.criteria.constraints import divide_sums
from dtrees.split.criteria.parts import node_weights
from dtrees.split.grow.best_first import origins
from dtrees.split.grow.by_criterion import METHODS
from dtrees.split.grow.column_by_column import search_some
from dtrees.split.grow.subtree import Task, divide_shared, grow_sparse
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import limits_for_thread, may_be_split, most_nodes
from dtrees.split.node.partition import NOWHERE, is_pure
from dtrees.split.node.records import SPLIT, Nodes, best_by_node, empty_candidates, empty_nodes
from dtrees.split.numbers.hashing import LEFT, child_path
from dtrees.split.policy import NODES_PER_THREAD, SHARE_ROWS, SPARSE_CHUNKS, SPARSE_THREAD_CELLS
from dtrees.split.search.sparse import CellBuffer, make_cell_buffer
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns
from dtrees.split.zones.sums import note_places

_ROOT_ORIGIN = origins(1)[0]


@dataclass
class _Node:
    """A node to be grown: its places, depth and sums."""

    start: int
    in_stop: int
    stop: int
    depth: int
    path: np.uint64
    sums: NDArray[np.int64]
    origin: Any = _ROOT_ORIGIN

    @property
    def n_rows(self) -> int:
        """Rows in sample."""
        return self.in_stop - self.start


class SparseRunner(Runner):
    """Threads that grow subtrees of a sparse table.

    Parameters
    ----------
    columns : SparseColumns
        All columns of the table.
    """

    def __init__(self, columns: SparseColumns) -> None:
        self._table = columns
        super().__init__(columns)

    def forget(self) -> None:
        """Free all buffers."""
        super().forget()
        self._buffers: list[CellBuffer] = []

    def grow(self, threads: Threads, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, one after the other, each by a suitable number of threads; see :meth:`Runner.grow`."""
        context, roots = assignment.context, assignment.roots
        wanted = _threads_for(self._table, threads, context)
        self._scratch_up_to(wanted - 1, 0)
        buffers = self._buffers_for(wanted, context)
        tasks = [self._task(context, roots, thread, buffer) for thread, buffer in enumerate(buffers)]
        interruptible = assignment.is_interruptible
        self._budget = context.budget
        grown: list[Nodes] = []
        for place, path, sums, origin in zip(roots.places, roots.paths, roots.sums, roots.origins, strict=True):
            root = _Node(*place, path, sums, origin)
            if wanted > 1:
                grown.append(_Growth(self._table, threads, tasks, self.give_up).grow(root))
            elif interruptible:
                threads.run_interruptibly(1, lambda _, root=root: grown.append(grow_alone(self._table, tasks[0], root)), self.give_up)  # type: ignore[misc]
            else:
                grown.append(grow_alone(self._table, tasks[0], root))
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

    def _task(self, context: TreeContext, roots: Roots, thread: int, buffer: CellBuffer) -> Task:
        """Return the task of a thread that grows nodes."""
        size, n_sums = size_of_task(context, roots.places), roots.sums.shape[1]
        context = context._replace(limits=limits_for_thread(context.limits))
        task = make_task(context, size, n_sums, self._scratch[thread], block=None, buffer=buffer)
        methods = METHODS.of(task, "limits", columns=self._table)
        methods.write(task.limits.hidden, task.limits.memory)
        return task._replace(methods=methods.addresses)


def _threads_for(columns: SparseColumns, threads: Threads, context: TreeContext) -> int:
    """Return the number of threads to grow a tree: one, if leaves are limited or columns are drawn for each node."""
    if context.budget.first.shape[0] or context.stops.max_features < context.pool.shape[0]:
        return 1
    return min(threads.n_threads, 1 + columns.rows.shape[0] // SPARSE_THREAD_CELLS)


def grow_alone(columns: SparseColumns, task: Task, root: _Node) -> Nodes:
    """Grow a node to its end in the calling thread."""
    nodes = empty_nodes(most_nodes.py_func(task.stops, task.limits.hidden, root.n_rows, root.depth), root.sums.shape[0])
    place = np.array([root.start, root.in_stop, root.stop, root.depth], np.int64)
    arguments = columns, task, place, np.uint64(root.path), root.sums, root.origin, nodes
    n = bind(grow_sparse, *arguments)(*arguments)
    return Nodes(nodes.records[:n].copy(), nodes.sums[:n].copy())


class _Growth:
    """A node that several threads grow to its end; every node is searched in all columns of the tree.

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

    def grow(self, root: _Node) -> Nodes:
        """Grow the node; return its subtree in preorder."""
        share_rows = max(SHARE_ROWS, root.n_rows // (NODES_PER_THREAD * len(self._tasks)))
        task = self._tasks[0]
        assert task.buffer is not None
        note_places(task.buffer.place_of, task.partition.rows, root.start, root.stop)
        nodes, waiting, small = [root], [0], []
        splits: dict[int, tuple[int, Any]] = {}
        while waiting:
            i = waiting.pop()
            if nodes[i].n_rows <= share_rows:
                small.append(i)
            elif (split := self._search(nodes[i])) is not None:
                splits[i] = len(nodes), split
                waiting += (len(nodes), len(nodes) + 1)
                nodes += self._divide(nodes[i], split)
        small.sort(key=lambda i: nodes[i].n_rows, reverse=True)
        grown = self._threads.map(self._grow_small, [nodes[i] for i in small], len(self._tasks), self._give_up)
        upper = empty_nodes(len(nodes), root.sums.shape[0])
        for i, node in enumerate(nodes):
            upper.records[i] = (0.0, 0.0, -1, -1, -1, node.start, node.in_stop, node.stop, False)
            upper.sums[i] = node.sums
        for i, (left, split) in splits.items():
            upper.records["left"][i], upper.records["right"][i] = left, left + 1
            for name in ("column", "threshold", "missing_left", "gain"):
                upper.records[name][i] = split.records[name][0]
        return join_subtrees(upper, dict(zip(small, grown, strict=True)))

    def _search(self, node: _Node) -> Any:
        """Return the split of a node, of which each thread searches some columns; None if there is none."""
        task = self._tasks[0]
        weight = node_weights(task.limits.hidden.criterion, node.sums)
        may_be = may_be_split(task.stops, node.n_rows, node.depth, weight)
        if not may_be or is_pure(task.target, task.partition.rows, node.start, node.in_stop):
            return None

        def search(chunk: tuple[int, int]) -> Any:
            mine = self._free.pop()
            arguments = (
                self._columns,
                mine._replace(limits=mine.limits.hidden),
                node.start,
                node.in_stop,
                np.uint64(node.path),
                node.sums,
                *chunk,
            )
            bind(search_some, *arguments)(*arguments)
            found = mine.best.records.copy(), mine.best.left.copy()
            self._free.append(mine)
            return found

        best = empty_candidates(1, node.sums.shape[0])
        for records, left in self._threads.map(search, self._chunks, len(self._tasks)):
            if records["status"][0] == SPLIT:
                best_by_node(best._replace(records=records, left=left), np.zeros(1, np.int64), best)
        return best if best.records["status"][0] == SPLIT else None

    def _divide(self, node: _Node, split: Any) -> list[_Node]:
        """Apply a split to the rows of a node; return its children."""
        task = self._tasks[0]._replace(best=split)
        arguments = self._columns, task, node.start, node.in_stop, node.stop, node.depth
        inside, outside = bind(divide_shared, *arguments)(*arguments)
        middle, depth = node.start + inside + outside, node.depth + 1
        right_in_stop = middle + node.n_rows - inside
        paths = child_path(np.uint64(node.path), LEFT), child_path(np.uint64(node.path), task.stops.right_side)
        sums = divide_sums(task.limits.hidden.criterion, split.records["column"], node.sums[np.newaxis], split.left)
        return [
            _Node(node.start, node.start + inside, middle, depth, paths[0], sums[0][0].copy()),
            _Node(middle, right_in_stop, node.stop, depth, paths[1], sums[1][0]),
        ]

    def _grow_small(self, node: _Node) -> Nodes:
        task = self._free.pop()
        grown = grow_alone(self._columns, task, node)
        self._free.append(task)
        return grown


def make_runner(columns: AnyColumns) -> Runner:
    """Return a runner for the kind of table."""
    return SparseRunner(columns) if isinstance(columns, SparseColumns) else SubtreeRunner(columns)
