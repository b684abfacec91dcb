"""Fits that outlast their shards, whatever is grown and whatever shards have, columns or rows: the tree is the transaction.

When shards are lost, the trees under way are forgotten, new ones take the places of those that are gone, with the same columns or rows, all
are brought to the state after the last finished tree, and what was under way is done again, in a new epoch. The trees grown then are those
that would have been grown without the loss.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import NO_SCORES, Executor, Scores, ShardsLost
from dtrees.engine.rows.fit import RowsFit
from dtrees.engine.shard.fit import ColumnsFit
from dtrees.tree.tree import Tree

T = TypeVar("T")


class TreeLog(Protocol):
    """Keeps finished trees where they outlast the coordinator."""

    def recall(self) -> list[tuple[Tree, Scores]]:
        """Return the trees that an earlier run of this very fit has kept, from the first one on."""

    def keep(self, tree: Tree, scores: Scores) -> None:
        """Keep the next tree."""


class _Lasting(ABC):
    """A fit that goes on when shards are lost: they are replaced, all are brought to a state to go on from, and it is tried again."""

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan, n_side_by_side: int = 0) -> None:
        self._fit = RowsFit(executor, plan) if executor.places_rows else ColumnsFit(executor, plan, n_side_by_side)
        self._is_open = False

    def _open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        found = self._lasting(lambda: self._fit.open(initial))
        self._is_open = True
        return found

    def _lasting(self, act: Callable[[], T]) -> T:
        """Do something that leaves no trace in the fit unless it ends well, as often as it takes."""
        while True:
            try:
                return act()
            except ShardsLost:
                self._recover()

    def _recover(self) -> None:
        """Replace shards that are gone, or misplaced, and bring all to the state after the last finished tree, as often as it takes."""
        while True:
            try:
                self._fit.repair()
                return self._catch_up() if self._is_open else None
            except ShardsLost:
                continue

    @abstractmethod
    def _catch_up(self) -> None:
        """Bring all shards to the state after the last finished tree."""


class LastingBoosting(_Lasting):
    """Grows trees one after the other, each on the predictions of those before, over shards.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan
    initial : ndarray of float64, shape (K,) or (K, n_rows), optional
        The raw prediction to start from, of all rows or of each.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,)
    """

    def __init__(self, executor: Executor, plan: BoostingPlan, initial: NDArray[np.float64] | None = None) -> None:
        super().__init__(executor, plan)
        self._trees_per_round = plan.trees_per_round
        self._finished: list[tuple[Tree, int]] = []
        self.initial = self._open(initial)

    def _catch_up(self) -> None:
        wanted = len(self._finished)
        for tree, place in self._finished[self._fit.catch_up(wanted, wanted) :]:
            self._fit.replay_tree(tree, place)

    def replay_tree(self, tree: Tree, place: int) -> None:
        """Take over a tree grown earlier, by its place in its round: add its values to the predictions of every row."""
        self._lasting(lambda: self._fit.replay_tree(tree, place))
        self._finished.append((tree, place))

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree; see :func:`dtrees.engine.shard.tree.tree_steps`. ``score`` asks for the mean losses afterwards."""
        if self._fit.wants_repair():
            self._recover()
        grown, scores = self._lasting(lambda: self._fit.grow_tree(tree, output, learning_rate, score))
        self._finished.append((grown, tree % self._trees_per_round))
        return grown, scores


class LastingForest(_Lasting):
    """Grows the trees of a forest that are numbered ``first`` to ``last - 1`` over shards, some at a time.

    What trees have to say to the same shard at the same time travels together.

    Parameters
    ----------
    executor : Executor
        Closing it is left to the caller.
    plan : ForestPlan
    first, last : int
    n_side_by_side : int
        Trees to grow at once at most (:func:`~dtrees.engine.shard.fit.trees_side_by_side`,
        :func:`~dtrees.engine.rows.forest_trees.trees_at_once`).
    """

    def __init__(self, executor: Executor, plan: ForestPlan, first: int, last: int, n_side_by_side: int) -> None:
        self._n_side_by_side = max(1, min(n_side_by_side, last - first))
        super().__init__(executor, plan, self._n_side_by_side)
        self._plan, self._first, self._last = plan, first, last
        self._trees: list[Tree] = []
        self._n_added = 0  # trees of which shards have added up what they say of rows out of bag

    def run(self, callback: Callback | None = None, log: TreeLog | None = None) -> ForestResult:
        """Grow all trees; return what :func:`dtrees.engine.run.local_executor.grow_forest` does.

        Parameters
        ----------
        callback : callable, optional
            Called after each tree, in their order; returning True leaves out the trees after it.
        log : TreeLog, optional
            Keeps trees, should the forest have to be grown again; not where sums of rows out of bag are wanted.
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
                if self._fit.wants_repair():
                    self._recover()
                for tree in self._fit.grow_trees(self._next, min(self._next + self._n_side_by_side, self._last)):
                    if self._next < self._last:
                        if log is not None:
                            log.keep(tree, NO_SCORES)
                        take(tree)
                self._add_votes()
            return ForestResult(self._trees, *(self._fit.votes() if self._plan.out_of_bag else ()))

        if self._plan.out_of_bag or self._next < self._last:
            self._open()
        return self._lasting(grow)

    @property
    def _next(self) -> int:
        """The number of the tree that is next."""
        return self._first + len(self._trees)

    def _catch_up(self) -> None:
        self._n_added = self._fit.catch_up(self._n_added, len(self._trees))
        self._add_votes()

    def _add_votes(self) -> None:
        """Have shards add up what finished trees say of rows out of bag."""
        if self._plan.out_of_bag and self._n_added < len(self._trees):
            self._fit.add_votes(self._first + self._n_added, self._trees[self._n_added :])
            self._n_added = len(self._trees)
