"""The interface of runners, which grow subtrees of dense or sparse tables on a shard, and their inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import INTERRUPTIBLE_CELLS, GivenUp, Threads, in_main_thread
from dtrees.split.grow.best_first import ORIGIN, LeafBudget, give_up_tree, was_given_up
from dtrees.split.grow.block import Block
from dtrees.split.grow.subtree import Task, make_stack, of_criterion
from dtrees.split.grow.work_pool import Roots, give_up, wait_for_work_pool
from dtrees.split.node.limits import NodeLimits, SplitLimits
from dtrees.split.node.partition import RowPartition, no_rows
from dtrees.split.node.records import Nodes, empty_candidates
from dtrees.split.policy import NODES_PER_THREAD, SHARE_ROWS
from dtrees.split.search.scratch import Scratch
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.split.zones.sum_slots import SumSlots


class TreeContext(NamedTuple):
    """The common inputs of all nodes of the current tree; see :class:`~dtrees.split.grow.subtree.Task`."""

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: SplitLimits
    stops: NodeLimits
    keys: tuple[np.uint64, np.uint64]
    budget: LeafBudget
    pool: NDArray[np.int32]  # immutable; another pool is another array


class Assignment(NamedTuple):
    """Nodes that a runner grows to their ends, and how.

    Attributes
    ----------
    context : TreeContext
    roots : Roots
        The nodes to grow.
    block_rows : int
        Nodes of up to this many in-sample rows are finished in a block.
    share_rows : int
        Nodes of more rows are shared by several threads.
    sum_slots : callable or None
        If given, larger nodes are searched by the zone sums that it returns for a number of threads.
    slots : ndarray of int64 or None, default=None
        If given, the nodes of a level are only searched (:func:`~dtrees.split.grow.work_pool.begin_level`).
    keep : bool, default=True
        Whether the subtrees are needed after others are grown; otherwise their memory may be reused.
    is_plain : bool, default=False
        Whether small nodes are searched in the same way as large ones, which needs fewer kernels.
    """

    context: TreeContext
    roots: Roots
    block_rows: int
    share_rows: int
    sum_slots: Callable[[int], SumSlots] | None = None
    slots: NDArray[np.int64] | None = None
    keep: bool = True
    is_plain: bool = False

    @property
    def is_interruptible(self) -> bool:
        """Whether other threads than this one grow the nodes, so that Ctrl-C can end the growth, which takes long."""
        n_rows = sum([stop - start for start, _, stop, _ in self.roots.places])
        return n_rows * self.context.pool.shape[0] >= INTERRUPTIBLE_CELLS and in_main_thread()


def rows_to_share(most_rows: int, n_threads: int) -> int:
    """Return the largest number of rows of a node that is left to one of several threads, if the largest node has ``most_rows``."""
    return most_rows if n_threads == 1 else max(SHARE_ROWS, most_rows // (NODES_PER_THREAD * n_threads))


def size_of_task(context: TreeContext, places: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int]:
    """Return the most rows in sample and out of sample of nodes at these places, and the largest number of levels of their subtrees."""
    most_rows, first_depth = max(in_stop - start for start, in_stop, _, _ in places), min(depth for _, _, _, depth in places)
    # In best-first order, many nodes may wait at the same time.
    n_levels = most_rows if context.budget.first.shape[0] > 0 else context.stops.max_depth - first_depth
    return most_rows, max(stop - in_stop for _, in_stop, stop, _ in places), n_levels


def make_task(
    context: TreeContext,
    size: tuple[int, int, int],
    n_sums: int,
    scratch: Scratch,
    sum_slots: SumSlots,
    block: Block | None = None,
    buffer: CellBuffer | None = None,
) -> Task:
    """Allocate the buffers of a thread that grows nodes of a size; the kernels (``methods``) are set later."""
    (most_rows, outside, n_levels), limited = size, context.budget.first.shape[0] > 0
    stack = make_stack(n_levels, most_rows, n_sums)
    return Task(
        context.partition,
        context.spare,
        context.target,
        stops=context.stops,
        keys=context.keys,
        block_rows=-1,
        sum_slots=sum_slots,
        is_plain=False,
        pool=context.pool.copy(),
        scratch=scratch,
        best=empty_candidates(1, n_sums),
        bits=np.empty((most_rows + outside + 7) // 8, np.uint8),
        block=block,
        stack=stack,
        budget=context.budget._replace(waiting=np.empty(stack.path.shape[0] if limited else 1, ORIGIN)),
        buffer=buffer,
        **of_criterion(context.limits, n_sums),
    )


class Runner(ABC):
    """Threads that search nodes, grow subtrees and divide rows, and their buffers. Used by one message at a time.

    Parameters
    ----------
    columns : Columns or SparseColumns
        All columns of the table.
    threads : Threads
    by_turns : bool, default=False
        Whether it is used by several unfinished trees in turn.
    """

    def __init__(self, columns: AnyColumns, threads: Threads, by_turns: bool = False) -> None:
        self.threads, self.by_turns, self._spare = threads, by_turns, no_rows()
        self._max_distinct = int(np.diff(columns.offsets).max(initial=0))
        self._growing: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # the controls of the nodes being grown
        self.forget()

    def give_up(self) -> None:
        """Have the threads that grow nodes stop soon, from any thread; growing then raises :class:`~dtrees.engine.threads.GivenUp`."""
        if self._growing is not None:
            budget, work_pool = self._growing
            give_up_tree(budget)
            give_up(work_pool)

    def _run(self, assignment: Assignment, kernel: Callable[[int], None], n_threads: int, control: NDArray[np.int64]) -> None:
        """Have threads do the tasks of a work pool with this ``control``: ``kernel`` does those of a thread."""
        budget = assignment.context.budget.control
        self._growing = budget, control
        if assignment.is_interruptible:
            self.threads.run_interruptibly(n_threads, kernel, self.give_up)
        elif n_threads == 1:
            kernel(0)
        else:
            self.threads.together(n_threads, kernel, lambda: wait_for_work_pool(control), give_up=lambda: give_up(control))
        if was_given_up(budget):
            raise GivenUp("these nodes were given up")

    def forget(self) -> None:
        """Free scratch space, and the buffers that refer to it."""
        self._scratch: list[Scratch] = []

    def forget_nodes(self) -> None:
        """Clear what scratch space has about nodes, before another tree."""
        for scratch in self._scratch:
            if scratch.line_up is not None:
                scratch.line_up.node[:] = -1

    def scratch_for(self, thread: int, n_rows: int, categories: bool, make: Callable[[int, int], Scratch]) -> Scratch:
        """Return the scratch space of a thread for nodes of up to ``n_rows`` rows; lower-numbered threads then have scratch space, too.

        ``make`` allocates it for a number of rows, and of distinct values of a column, if that of an earlier tree is too small. The other
        properties are the same for all trees of a fit, unless the scratch space was freed meanwhile.
        """
        first = self._scratch[0] if self._scratch else None
        if first is not None and (first.keys.shape[0] <= n_rows or (first.groups.code.shape[0] > 2) != categories):
            self.forget()
        self._make = make
        self._scratch_up_to(thread, n_rows)
        return self._scratch[thread]

    def _scratch_up_to(self, thread: int, n_rows: int) -> None:
        """Allocate missing scratch space, as large as that of the first thread, whose size is checked for all."""
        while len(self._scratch) <= thread:
            self._scratch.append(self._make(self._scratch[0].keys.shape[0] - 1 if self._scratch else n_rows, self._max_distinct))

    @abstractmethod
    def grow(self, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, by ``n_threads`` threads which have scratch space already."""

    def spare_for(self, rows: RowPartition) -> RowPartition:
        """Return buffers in which a tree's rows are divided."""
        n = rows.rows.shape[0]
        if self._spare.rows.shape[0] < n or self._spare.h.shape[0] < rows.h.shape[0]:
            self._spare = rows.spare(n)
        return self._spare

    def divide_in(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
        """Take over arrays by row number, which are no longer used, as buffers in which rows are divided."""
        rows = self._spare.rows
        self._spare = no_rows()
        self._spare = RowPartition(rows if rows.shape[0] == a.shape[0] else np.empty(a.shape[0], np.uint32), a, b)
