"""What grows subtrees on a shard, whatever the kind of table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import INTERRUPTIBLE_CELLS, GivenUp, Threads, in_main_thread
from dtrees.split.grow.best_first import LeafBudget, give_up_tree, was_given_up
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import NodeLimits, SplitLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Nodes
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.split.zones.sum_slots import SumSlots


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
    sum_slots : SumSlots or None
        Given, larger nodes are searched by zone sums.
    keep : bool, default=True
        Whether the subtrees are needed when others are grown; otherwise they may lie where those will.
    """

    context: TreeContext
    roots: Roots
    block_rows: int
    share_rows: int
    sum_slots: SumSlots | None = None
    keep: bool = True

    @property
    def is_interruptible(self) -> bool:
        """Whether they are to be grown by other threads than this one, as it takes long, and Ctrl-C is to end it."""
        n_rows = sum([stop - start for start, _, stop, _ in self.roots.places])
        return n_rows * self.context.pool.shape[0] >= INTERRUPTIBLE_CELLS and in_main_thread()


class Runner(ABC):
    """Threads that grow subtrees, and room for what they need. To be used by one message at a time, with the same threads each time.

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
        """Give up all room."""
        self._scratch: list[Scratch] = []

    def _forget_scratch(self) -> None:
        """Give up scratch space, and what was made with it."""
        self._scratch = []

    def forget_nodes(self) -> None:
        """Forget the nodes that scratch space knows something about: another tree is next."""
        for scratch in self._scratch:
            if scratch.line_up is not None:
                scratch.line_up.node[:] = -1

    def _has_scratch(self, n_rows: int, categories: bool) -> bool:
        return bool(self._scratch) and self._scratch[0].keys.shape[0] > n_rows and (self._scratch[0].groups.code.shape[0] > 2) == categories

    def scratch_at_hand(self, thread: int, n_rows: int, categories: bool) -> Scratch | None:
        """Return the scratch space of a thread for nodes of up to so many rows, None if there is none that is large enough.

        What else it is made for is the same for all trees of a fit, unless it was forgotten meanwhile.
        """
        return self._scratch[thread] if thread < len(self._scratch) and self._has_scratch(n_rows, categories) else None

    def scratch_for(
        self, thread: int, n_rows: int, n_classes: int, levels: NDArray[np.int64], categories: bool, n_sums: int = 0, several: bool = False
    ) -> Scratch:
        """Return the scratch space of a thread for nodes of up to so many rows; see :func:`~dtrees.split.search.scratch.make_scratch`.

        The threads before it have some then, too.
        """
        if not self._has_scratch(n_rows, categories):
            self._forget_scratch()
        if self._scratch:  # none is smaller than the first, which tells whether they are large enough
            n_rows = self._scratch[0].keys.shape[0] - 1
        while len(self._scratch) <= thread:
            self._scratch.append(make_scratch(n_rows, self._max_distinct, n_classes, levels, categories, n_sums, several))
        return self._scratch[thread]

    @abstractmethod
    def grow(self, threads: Threads, n_threads: int, assignment: Assignment) -> list[Nodes]:
        """Grow nodes to their ends, by ``n_threads`` threads which have scratch space already.

        Raises
        ------
        NotCompiled
            If another process is compiling the kernels that this takes.
        """
