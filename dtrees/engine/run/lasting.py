"""Fits that survive the loss of shards of columns or rows: the tree is the transaction.

If shards are lost, the unfinished trees are discarded, new shards with the same columns or rows take the places of the lost ones, all are
brought to the state after the last finished tree, and the unfinished trees are grown again, in a new epoch, in which earlier messages are
stale. They are the same trees as without the loss.

Between two trees, every shard of columns has the same state of the rows: the predictions of the finished trees or, for a forest, their
out-of-bag sums. New shards receive it from one that has it. If there is none, finished trees of boosting are replayed, and those of a
forest are grown again for the sums. No state of shards of rows is sent: it follows from a shard's rows and the finished trees, which are
replayed, or applied to the rows again for out-of-bag sums.
"""

from __future__ import annotations

import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import scores_of
from dtrees.engine.plan.node_limits import constraints_of, n_sums_of
from dtrees.engine.plan.plans import BoostingPlan, Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.messages import NO_SCORES, Executor, Message, Scores, ShardsLost
from dtrees.engine.rows.all_rows import in_order
from dtrees.split.policy import FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE
from dtrees.tree.tree import Tree

T = TypeVar("T")


class TreeLog(Protocol):
    """Stores finished trees where they survive the coordinator."""

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees that an earlier run of this fit has stored, from the first one on."""

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Store the next tree."""


class _Lasting(ABC):
    """A fit over shards that continues if some are lost: they are replaced, all are restored to a common state, and the step is repeated.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan or ForestPlan
    n_side_by_side : int
        The most trees of a forest that grow at a time; 0 for boosting.
    """

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan, n_side_by_side: int = 0) -> None:
        self._executor, self._plan, self._n_side_by_side = executor, plan, n_side_by_side
        self._fit, self._epoch, self._is_open = uuid.uuid4().hex, 0, False
        self._given: NDArray[np.float64] | None = None
        self._edges: Any = None

    def _open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the initial raw prediction of boosting, by default as the loss chooses, shape (K,)."""
        self._given = initial
        found = self._lasting(self._open_shards).initial
        self._given, self._is_open = found if initial is None else initial, True
        return found

    def _open_shards(self, least: int = 0, most: int = 0) -> m.Opened:
        """Open the fit on all shards, and bring them to the same state: that of a shard of columns that has ``least`` to ``most`` trees.

        If no shard has such a state, all start from the beginning.
        """
        by_rows, n = self._executor.places_rows, self._executor.n_shards
        given = [self._given, *([None] if by_rows else [self._given]) * (n - 1)]  # may be as large as a column
        about = self._n_side_by_side, least, most, self._edges
        opened: list[m.Opened] = self._send([m.Open(self._fit, self._epoch, i, n, self._plan, one, *about) for i, one in enumerate(given)])
        self._ranges = opened[0].ranges
        self._edges = opened[0].edges if self._edges is None else self._edges
        return opened[0]

    def _grow(self, kind: type[Message], *arguments: Any) -> list[m.Grown]:
        """Have all shards grow trees; return their replies.

        Raises
        ------
        ShardsDisagree
        """
        grown = self._send_all(kind, *arguments)
        if any(one.checksum != grown[0].checksum for one in grown):
            raise m.ShardsDisagree(f"shards have each grown other trees than the others for {kind.__name__}{arguments}")
        return grown

    def _send_all(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send the same message to every shard; return the replies."""
        return self._send([kind(self._fit, self._epoch, *arguments)] * self._executor.n_shards)

    def _send(self, messages: Sequence[Message]) -> list[Any]:
        """Send each shard its message; return the replies."""
        replies = self._executor.send(dict(enumerate(messages)))
        return [replies[shard] for shard in range(len(messages))]

    def _lasting(self, act: Callable[[], T]) -> T:
        """Run a function that changes nothing in the fit unless it succeeds, and repeat it until it does."""
        while True:
            try:
                return act()
            except ShardsLost:
                self._recover()

    def _recover(self) -> None:
        """Replace lost or misplaced shards, and bring all to the state after the last finished tree; repeat until this succeeds."""
        while True:
            try:
                self._executor.repair()
                self._epoch += 1
                return self._catch_up() if self._is_open else None
            except ShardsLost:
                continue

    @abstractmethod
    def _catch_up(self) -> None:
        """Bring all shards to the state after the last finished tree."""


class LastingBoosting(_Lasting):
    """Grows the trees of boosting over shards, each on the predictions of the previous trees.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The initial raw prediction, for all rows or for each.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    _plan: BoostingPlan

    def __init__(self, executor: Executor, plan: BoostingPlan, initial: NDArray[np.float64] | None = None) -> None:
        super().__init__(executor, plan)
        self._finished: list[tuple[Tree, int]] = []
        self.initial = self._open(initial)

    def _catch_up(self) -> None:
        wanted = len(self._finished)
        least = wanted if self._plan.dropout is None else wanted + 1  # no state will do, as the node numbers of rows are not sent
        for tree, place in self._finished[self._open_shards(least, wanted).n_finished :]:
            self._send_all(m.Replay, tree, place)

    def replay_tree(self, tree: Tree, place: int) -> None:
        """Add the values of a tree grown earlier, given its place in its round, to the predictions of all rows."""
        self._lasting(lambda: self._send_all(m.Replay, tree, place))
        self._finished.append((tree, place))

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree; see :func:`dtrees.engine.shard.tree.tree_steps`. With ``score``, compute the mean losses afterwards."""
        if self._executor.wants_repair():
            self._recover()
        grown = self._lasting(lambda: self._grow(m.GrowTree, tree, output, learning_rate, score))
        self._finished.append((grown[0].trees[0], tree % self._plan.trees_per_round))
        losses = [one.losses for one in grown if one.losses is not None]
        return grown[0].trees[0], scores_of(losses) if losses else NO_SCORES


class LastingForest(_Lasting):
    """Grows the trees ``first`` to ``last - 1`` of a forest over shards, several side by side.

    Payloads of different trees to the same shard in the same step are sent together.

    Parameters
    ----------
    executor : Executor
        Not closed here.
    plan : ForestPlan
    first, last : int
    n_side_by_side : int
        Largest number of trees to grow at once (:func:`trees_side_by_side`,
        :func:`~dtrees.engine.rows.tree.trees_at_once`).
    """

    _plan: ForestPlan

    def __init__(self, executor: Executor, plan: ForestPlan, first: int, last: int, n_side_by_side: int) -> None:
        super().__init__(executor, plan, max(1, min(n_side_by_side, last - first)))
        self._first, self._last = first, last
        self._trees: list[Tree] = []
        self._n_added = 0  # number of trees in the out-of-bag sums of shards

    def run(self, callback: Callback | None = None, log: TreeLog | None = None) -> ForestResult:
        """Grow all trees; return the result as :func:`dtrees.engine.run.local_executor.grow_forest` does.

        Parameters
        ----------
        callback : callable, optional
            Called after each tree, in order; returning True leaves out the trees after it.
        log : TreeLog, optional
            Stores trees in case the forest has to be grown again; not to be combined with out-of-bag sums.
        """
        began, n_trees = time.perf_counter(), self._last - self._first

        def take(tree: Tree) -> None:
            self._trees.append(tree)
            progress = Progress(len(self._trees), n_trees, time.perf_counter() - began)
            if callback is not None and callback(progress):
                self._last = self._next

        for tree, _ in [] if log is None else log.recall():
            if self._next < self._last:
                take(tree)

        def grow() -> ForestResult:
            self._add_votes()
            while self._next < self._last:
                if self._executor.wants_repair():
                    self._recover()
                for tree in self._grow(m.GrowTrees, self._next, min(self._next + self._n_side_by_side, self._last))[0].trees:
                    if self._next < self._last:
                        if log is not None:
                            log.keep(tree, NO_SCORES)
                        take(tree)
                self._add_votes()
            return ForestResult(self._trees, *(self._votes() if self._plan.out_of_bag else ()))

        if self._plan.out_of_bag or self._next < self._last:
            self._open()
        return self._lasting(grow)

    @property
    def _next(self) -> int:
        """The number of the next tree."""
        return self._first + len(self._trees)

    def _catch_up(self) -> None:
        self._n_added = self._open_shards(self._n_added, len(self._trees)).n_finished
        self._add_votes()

    def _add_votes(self) -> None:
        """Have shards add the out-of-bag predictions of finished trees to their sums."""
        if self._plan.out_of_bag and self._n_added < len(self._trees):
            self._send_all(m.AddVotes, self._first + self._n_added, self._trees[self._n_added :])
            self._n_added = len(self._trees)

    def _votes(self) -> m.Votes:
        """Return the out-of-bag sums of all rows."""
        if not self._executor.places_rows:  # all shards have the same
            return self._send([m.CountVotes(self._fit, self._epoch)])[0]
        votes, about = self._send_all(m.CountVotes), (self._ranges, self._executor.n_rows)
        return m.Votes(in_order([one.sums for one in votes], *about), in_order([one.counts for one in votes], *about), votes[0].exponent)


def trees_side_by_side(plan: ForestPlan, n_rows: int, weighted: bool, memory: float = math.inf) -> int:
    """Return the number of trees that may grow side by side over shards, limited by the memory of their rows on each shard.

    Parameters
    ----------
    plan : ForestPlan
    n_rows : int
    weighted : bool
        Whether the rows have weights.
    memory : float, default=inf
        Bytes that are free, besides those for each row.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import Rules
    >>> plan = ForestPlan(Rules("gini", max_features=5, columns_per_tree=20, max_depth=10), seed=0, n_classes=2)
    >>> [trees_side_by_side(plan, n_rows, weighted=False) for n_rows in (20_000, 10**6, 10**7)]
    [64, 11, 5]
    >>> trees_side_by_side(plan, 20_000, weighted=False, memory=0)
    3
    """
    state = FOREST_BYTES_PER_ROW * n_rows
    budget = max(state, min(FOREST_MIN_BYTES, state + memory))
    return int(min(MOST_TREES_SIDE_BY_SIDE, max(1, budget // _bytes_of_tree(plan, n_rows, weighted))))


def _bytes_of_tree(plan: ForestPlan, n_rows: int, weighted: bool) -> int:
    """Return the memory of an unfinished tree on a shard: its row partition, and its nodes."""
    n_inside = n_rows if plan.n_draws is None else math.ceil(n_rows * -math.expm1(-plan.n_draws / n_rows))
    n_in_partition = n_rows if plan.out_of_bag else n_inside
    weighted = weighted or plan.n_draws is not None or plan.class_weight is not None
    rules = plan.rules
    n_leaves = n_inside // rules.min_samples_leaf
    if rules.max_leaf_nodes is not None:
        n_leaves = min(n_leaves, 2 * rules.max_leaf_nodes)  # best-first growth creates more leaves than remain
    if rules.max_depth is not None and rules.max_depth < 40:
        n_leaves = min(n_leaves, 2**rules.max_depth)
    constraints = constraints_of(rules)
    n_sums = n_sums_of(plan) + (0 if constraints is None else constraints.n_words)
    amounts = 8 * len(plan.targets) * n_rows if plan.targets and not plan.n_classes and weighted else 0
    return n_in_partition * (20 if weighted else 12) + amounts + 2 * n_leaves * (40 + 8 * n_sums) + 1
