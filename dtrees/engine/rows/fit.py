"""Fits over shards of rows that outlast their shards, as the coordinator has them: of boosting, the tree is the transaction.

When shards are lost, new ones take their places, with the same rows, and what was under way is done again, in a new epoch. Boosting has the
finished trees replayed on all: a shard's predictions follow from its rows and the trees, so that no state travels. Trees of a forest do not
depend on one another; finished ones are put through the rows again where sums of what trees say of rows out of bag are wanted.
"""

from __future__ import annotations

import math
import time
import uuid
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.lasting import Lasting, TreeByTree, TreeLog
from dtrees.engine.plan.plans import BoostingPlan, Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import Message, Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.rows.exchange import RowsDisagree, RowsExecutor
from dtrees.engine.rows.forests.tree import rows_to_send
from dtrees.engine.rows.whole_sums import scores_of_all
from dtrees.engine.rows.zone_edges import Edges, merge_sketches
from dtrees.engine.shard.targets.boosting_scales import BoostingScales
from dtrees.engine.shard.targets.forest_scales import ForestScales
from dtrees.split.zones.sums import MAX_PACKED_ROWS
from dtrees.tree.tree import Tree


class RowsSession(Lasting):
    """A fit over shards of rows, whatever becomes of these.

    Parameters
    ----------
    executor : RowsExecutor
    plan : BoostingPlan or ForestPlan

    Attributes
    ----------
    sent_rows : int
        Up to how many rows a node is grown by one shard.

    Raises
    ------
    ValueError
        If there are too many rows.
    """

    def __init__(self, executor: RowsExecutor, plan: BoostingPlan | ForestPlan) -> None:
        if executor.n_rows >= MAX_PACKED_ROWS:
            raise ValueError(
                f'placement="rows" takes fewer than {MAX_PACKED_ROWS} rows, as their numbers are packed with sums; X has {executor.n_rows}'
            )
        self._executor, self.plan, self._fit, self._epoch = executor, plan, uuid.uuid4().hex, 0
        self._edges: Edges | None = None
        self._stretches: list[NDArray[np.int64]] = []
        self._is_open = False

    def _begin(self) -> None:
        """Open the fit, as often as it takes."""
        self._lasting(self._open)
        self._is_open = True

    def _restore(self) -> None:
        self._executor.repair()
        self._epoch += 1
        if self._is_open:
            self._open()
            self._replay_finished()

    @abstractmethod
    def _open(self) -> None:
        """Open the fit on all shards, which know nothing of it yet, or are to forget it."""

    @abstractmethod
    def _replay_finished(self) -> None:
        """Tell shards of the finished trees what they need to know of them."""

    def _open_with(self, sent_rows: int, initial: NDArray[np.float64] | None = None) -> Any:
        """Have shards open an epoch of the fit, with edges of zones that are found once; return what shard 0 replies.

        Nodes of up to ``sent_rows`` rows are to be grown by one shard.
        """
        self.sent_rows, n, sketches = sent_rows, self._executor.n_shards, self._edges is None
        about = self.plan, self.sent_rows, sketches
        introduced: list[m.Introduced] = self._send([m.Introduce(self._fit, self._epoch, shard, n, *about) for shard in range(n)])
        self._stretches = [one.stretches for one in introduced]
        if self._edges is None:
            merged = merge_sketches([one.sketches for one in introduced if one.sketches is not None])
            counts = [one.n_categories for one in introduced if one.n_categories is not None]
            self._edges = merged.of_categories(np.max(counts, axis=0))
        given = [initial, *[None] * (n - 1)]  # which may be as many as there are rows
        return self._send([m.Open(self._fit, self._epoch, self._edges, self._stretches, one) for one in given])[0]

    def _say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        return self._send([kind(self._fit, self._epoch, *arguments)] * self._executor.n_shards)

    def _send(self, messages: Sequence[Message]) -> list[Any]:
        """Send each shard a message; return their replies."""
        replies = self._executor.send(dict(enumerate(messages)))
        return [replies[shard] for shard in range(len(messages))]

    def _grow_on_all(self, kind: type[Message], *arguments: Any) -> list[m.Grown]:
        """Have all shards grow trees; return what each says of them.

        Raises
        ------
        RowsDisagree
        """
        grown = self._say(kind, *arguments)
        if any(one.checksum != grown[0].checksum for one in grown):
            raise RowsDisagree(f"shards have each grown other trees than the others for {kind.__name__}{arguments}")
        return grown


class RowsFit(RowsSession, TreeByTree):
    """Grows trees of boosting one after the other over shards of rows, whatever becomes of these.

    Parameters
    ----------
    executor : RowsExecutor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(
        self,
        executor: RowsExecutor,
        plan: BoostingPlan,
        initial: NDArray[np.float64] | None = None,
    ) -> None:
        RowsSession.__init__(self, executor, plan)
        TreeByTree.__init__(self, executor)
        self._given = initial
        self._begin()
        assert self._given is not None
        self.initial: NDArray[np.float64] = self._given if self._given.ndim == 1 else np.zeros(self._given.shape[0])

    def _open(self) -> None:
        scales: BoostingScales = self._open_with(rows_tree.SENT_ROWS, self._given)
        self._given, self._weights = scales.initial, scales.weights

    def _replay(self, tree: Tree, output: int) -> None:
        self._say(m.Replay, tree, output)

    def _grow(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        grown = self._grow_on_all(m.GrowTree, tree, output, learning_rate, score)
        first, losses = grown[0], [one.losses for one in grown if one.losses is not None]
        if not losses:
            return first.trees[0], Scores(math.nan, math.nan)
        return first.trees[0], scores_of_all(self._executor.n_rows, losses, self._weights, first.undrawn, first.score)

    def _replay_finished(self) -> None:
        for tree, output in self._finished:
            self._replay(tree, output)


def grow_forest_on_rows(
    executor: RowsExecutor,
    plan: ForestPlan,
    first: int,
    last: int,
    callback: Callback | None = None,
    log: TreeLog | None = None,
    *,
    n_side_by_side: int = 1,
) -> ForestResult:
    """Grow the trees of a forest that are numbered ``first`` to ``last - 1`` over shards of rows, some at a time.

    What trees have for another shard at the same time travels in one parcel (:func:`dtrees.engine.rows.exchange.side_by_side`). But trees
    wait that would send more rows together than one tree alone.

    Parameters
    ----------
    executor : RowsExecutor
        Closing it is left to the caller.
    plan : ForestPlan
    first, last : int
    callback : callable, optional
        Called after each tree, in their order; returning True leaves out the trees after it.
    log : TreeLog, optional
        Keeps trees, should the forest have to be grown again; not where sums of rows out of bag are wanted.
    n_side_by_side : int, default=1
        Trees to grow at once at most (:func:`~dtrees.engine.rows.forests.tree.trees_at_once`).

    Returns
    -------
    ForestResult
        That of :func:`dtrees.engine.run.forest_growth.grow_forest`.
    """
    forest = _Forest(executor, plan, first, last)
    return forest.run(max(1, n_side_by_side), callback, log)


class _Forest(RowsSession):
    """The trees of a forest over shards of rows."""

    plan: ForestPlan

    def __init__(self, executor: RowsExecutor, plan: ForestPlan, first: int, last: int) -> None:
        super().__init__(executor, plan)
        self._first, self._last, self._n_trees = first, last, last - first
        self._trees: list[Tree] = []
        self._scales: ForestScales

    def run(self, n_side_by_side: int, callback: Callback | None, log: TreeLog | None) -> ForestResult:
        """Grow all trees."""
        began = time.perf_counter()

        def take(tree: Tree) -> None:
            self._trees.append(tree)
            progress = Progress(len(self._trees), self._n_trees, time.perf_counter() - began)
            if callback is not None and callback(progress):
                self._last = self._next

        for tree, _ in [] if log is None else log.recall():
            if self._next < self._last:
                take(tree)

        def grow() -> ForestResult:
            if not self._is_open and (self.plan.out_of_bag or self._next < self._last):
                self._begin()
                self._replay_finished()
            while self._next < self._last:
                if self._executor.wants_repair():
                    self._recover()
                first = self._next
                for tree in self._grow_on_all(m.GrowTrees, first, min(first + n_side_by_side, self._last))[0].trees:
                    if self._next < self._last:
                        if log is not None:
                            log.keep(tree, Scores(math.nan, math.nan))
                        take(tree)
                self._add_votes(first)
            return self._result()

        return self._lasting(grow)

    @property
    def _next(self) -> int:
        """The number of the tree that is next."""
        return self._first + len(self._trees)

    def _open(self) -> None:
        executor = self._executor  # which may have more shards than before
        self._scales = self._open_with(rows_to_send(self.plan, executor.n_rows, executor.n_shards))

    def _add_votes(self, first: int) -> None:
        """Have shards add what finished trees, from a number on, say of rows out of bag to their sums."""
        if self.plan.out_of_bag and first < self._next:
            self._say(m.AddVotes, first, self._trees[first - self._first :])

    def _replay_finished(self) -> None:
        self._add_votes(self._first)

    def _result(self) -> ForestResult:
        """Return all trees, with what they say of rows out of bag."""
        if not self.plan.out_of_bag:
            return ForestResult(self._trees)
        votes: list[m.Votes] = self._say(m.CountVotes)
        total, count = (in_order([one[i] for one in votes], self._stretches, self._executor.n_rows) for i in range(2))
        return ForestResult(self._trees, total, count, self._scales.vote_exponent)
