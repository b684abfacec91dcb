"""What grows subtrees on a shard, whatever the kind of table, and what else a tree is grown with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import INTERRUPTIBLE_CELLS, GivenUp, Threads, in_main_thread
from dtrees.split.grow.best_first import ORIGIN, LeafBudget, give_up_tree, was_given_up
from dtrees.split.grow.block import Block
from dtrees.split.grow.stack import make_stack
from dtrees.split.grow.subtree import Task, of_criterion
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import NodeLimits, SplitLimits
from dtrees.split.node.partition import RowPartition, no_rows
from dtrees.split.node.records import Nodes, empty_candidates
from dtrees.split.policy import NODES_PER_THREAD, SHARE_ROWS
from dtrees.split.search.scratch import Scratch
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.split.zones.sum_slots import SumSlots, no_sum_slots

NO_SUM_SLOTS = no_sum_slots()


class TreeContext(NamedTuple):
    """What the nodes of a tree under way have in common; see :class:`~dtrees.split.grow.subtree.Task`."""

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: SplitLimits
    stops: NodeLimits
    keys: tuple[np.uint64, np.uint64]
    budget: LeafBudget
    pool: NDArray[np.int32]  # never written to: another one is another array


class Assignment(NamedTuple):
    """Nodes that a runner is to grow to their ends, and how.

    Attributes
    ----------
    context : TreeContext
    roots : Roots
        The nodes.
    block_rows : int
        Nodes of up to this many in-sample rows are finished in a block.
    share_rows : int
        Nodes of more rows are shared out.
    sum_slots : callable or None
        Given, larger nodes are searched by the zone sums that it returns.
    slots : ndarray of int64 or None, default=None
        Given, nodes are only searched: those of a level (:func:`~dtrees.split.grow.work_pool.begin_level`).
    keep : bool, default=True
        Whether the subtrees are needed when others are grown; otherwise they may lie where those will.
    is_plain : bool, default=False
        Whether nodes of few rows are searched as those of more: by fewer kernels.
    """

    context: TreeContext
    roots: Roots
    block_rows: int
    share_rows: int
    sum_slots: Callable[[], SumSlots] | None = None
    slots: NDArray[np.int64] | None = None
    keep: bool = True
    is_plain: bool = False

    @property
    def is_interruptible(self) -> bool:
        """Whether they are to be grown by other threads than this one, as it takes long, and Ctrl-C is to end it."""
        n_rows = sum([stop - start for start, _, stop, _ in self.roots.places])
        return n_rows * self.context.pool.shape[0] >= INTERRUPTIBLE_CELLS and in_main_thread()


def rows_to_share(most_rows: int, n_threads: int) -> int:
    """Return up to how many rows a node is left to one of some threads, where the largest has ``most_rows``."""
    return most_rows if n_threads == 1 else max(SHARE_ROWS, most_rows // (NODES_PER_THREAD * n_threads))


def size_of_task(context: TreeContext, places: Sequence[tuple[int, int, int, int]]) -> tuple[int, int, int]:
    """Return the most rows in sample and out of it of nodes in these places, and of how many levels what grows of them may be."""
    most_rows, first_depth = max(in_stop - start for start, in_stop, _, _ in places), min(depth for _, _, _, depth in places)
    # In the order of best-first growth, many nodes may wait at the same time.
    n_levels = most_rows if context.budget.first.shape[0] > 0 else context.stops.max_depth - first_depth
    return most_rows, max(stop - in_stop for _, in_stop, stop, _ in places), n_levels


def make_task(
    context: TreeContext, size: tuple[int, int, int], n_sums: int, scratch: Scratch, block: Block | None, buffer: CellBuffer | None = None
) -> Task:
    """Allocate what a thread needs to grow nodes of a size; its methods are still to be found."""
    (most_rows, outside, n_levels), limited = size, context.budget.first.shape[0] > 0
    stack = make_stack(n_levels, most_rows, n_sums)
    return Task(
        context.partition,
        context.spare,
        context.target,
        stops=context.stops,
        keys=context.keys,
        pool=context.pool.copy(),
        scratch=scratch,
        best=empty_candidates(1, n_sums),
        bits=np.empty((most_rows + outside + 7) // 8, np.uint8),
        block=block,
        block_rows=-1,
        stack=stack,
        sum_slots=None if block is None else NO_SUM_SLOTS,
        budget=context.budget._replace(waiting=np.empty(stack.path.shape[0] if limited else 1, ORIGIN)),
        buffer=buffer,
        **of_criterion(context.limits, n_sums),
    )


class Runner(ABC):
    """Threads that grow subtrees, and buffers for what they need. To be used by one message at a time, with the same threads each time.

    Parameters
    ----------
    columns : Columns or SparseColumns
        All columns of the table.
    """

    def __init__(self, columns: AnyColumns) -> None:
        self._max_distinct = int(np.diff(columns.offsets).max(initial=0))
        self._budget: LeafBudget | None = None  # of the nodes that are grown: through it they are given up
        self.forget()

    def give_up(self) -> None:
        """Have the threads that grow nodes end soon, from any thread; growing then raises :class:`~dtrees.engine.threads.GivenUp`."""
        if self._budget is not None:
            give_up_tree(self._budget.control)

    def _end(self) -> None:
        """Raise if the nodes were given up meanwhile."""
        if self._budget is not None and was_given_up(self._budget.control):
            raise GivenUp("these nodes were given up")

    def forget(self) -> None:
        """Free all buffers."""
        self._scratch: list[Scratch] = []

    def _forget_scratch(self) -> None:
        """Give up scratch space, and what was made with it."""
        self._scratch = []

    def forget_nodes(self) -> None:
        """Forget the nodes that scratch space knows something about: another tree is next."""
        for scratch in self._scratch:
            if scratch.line_up is not None:
                scratch.line_up.node[:] = -1

    def scratch_for(self, thread: int, n_rows: int, categories: bool, make: Callable[[int, int], Scratch]) -> Scratch:
        """Return the scratch space of a thread for nodes of up to so many rows; the threads before it have some then, too.

        ``make`` makes it, for so many rows and distinct values of a column, where that of an earlier tree is not large enough. What else it
        is made for is the same for all trees of a fit, unless it was forgotten meanwhile.
        """
        first = self._scratch[0] if self._scratch else None
        if first is not None and (first.keys.shape[0] <= n_rows or (first.groups.code.shape[0] > 2) != categories):
            self._forget_scratch()
        self._make = make
        self._scratch_up_to(thread, n_rows)
        return self._scratch[thread]

    def _scratch_up_to(self, thread: int, n_rows: int) -> None:
        """Make scratch space that threads lack: no less than the first has, which tells whether they are large enough."""
        while len(self._scratch) <= thread:
            self._scratch.append(self._make(self._scratch[0].keys.shape[0] - 1 if self._scratch else n_rows, self._max_distinct))

    @abstractmethod
    def grow(self, threads: Threads, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, by ``n_threads`` threads which have scratch space already."""


@dataclass
class Workspace:
    """Threads, what they search with and grow subtrees with, and buffers to divide rows in.

    Attributes
    ----------
    threads : Threads
    runner : Runner
    by_turns : bool
        Whether messages about other trees are carried out with it before a tree is finished.
    """

    threads: Threads
    runner: Runner
    by_turns: bool = False
    _spare: RowPartition = field(default_factory=no_rows)

    def spare_for(self, rows: RowPartition) -> RowPartition:
        """Return buffers to divide a tree's rows in."""
        n = rows.rows.shape[0]
        if self._spare.rows.shape[0] < n or self._spare.h.shape[0] < rows.h.shape[0]:
            self._spare = rows.spare(n)
        return self._spare

    def divide_in(self, a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
        """Take arrays by row number, which nobody else needs any more, as buffers to divide rows in."""
        rows = self._spare.rows
        self._spare = no_rows()
        self._spare = RowPartition(rows if rows.shape[0] == a.shape[0] else np.empty(a.shape[0], np.uint32), a, b)
