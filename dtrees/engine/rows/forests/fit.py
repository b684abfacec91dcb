"""A forest over shards of rows that outlasts its shards: trees grow side by side, some at a time.

What they have for another shard meanwhile travels in one parcel (:mod:`dtrees.engine.rows.between.side_by_side`). But trees wait that would
send more rows together than one tree alone.

When shards are lost, new ones take their places, with the same rows, and the trees under way are grown again. Trees do not depend on one
another, so nothing is replayed; but where sums of what trees say of rows out of bag are wanted, finished trees are put through the rows.
"""

from __future__ import annotations

import math
import time
from typing import cast

from dtrees.engine.coordinator.lasting import TreeLog
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.between.stretches import in_order
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.fit import LastingRows
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.tree import rows_to_send
from dtrees.engine.shard.targets.forest_target import exponent_of_votes
from dtrees.tree.tree import Tree


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
    """Grow the trees numbered ``first`` to ``last - 1``.

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
    return _Forest(executor, plan, first, last, n_side_by_side, callback, log).run()


class _Forest(LastingRows):
    """The trees of a forest over shards of rows."""

    def __init__(
        self,
        executor: RowsExecutor,
        plan: ForestPlan,
        first: int,
        last: int,
        n_side_by_side: int,
        callback: Callback | None,
        log: TreeLog | None,
    ) -> None:
        super().__init__(executor, plan, rows_to_send(plan, executor.n_rows, executor.n_shards))
        self._plan, self._first, self._last, self._n_trees = plan, first, last, last - first
        self._n_side_by_side, self._callback, self._log = max(1, n_side_by_side), callback, log
        self._began = time.perf_counter()
        self._trees: list[Tree] = []
        self._scales: f.ForestScales

    def run(self) -> ForestResult:
        """Grow all trees."""
        for tree, _ in [] if self._log is None else self._log.recall():
            if self._next < self._last:
                self._tell_of(tree)
        return self._lasting(self._grow)

    @property
    def _next(self) -> int:
        """The number of the tree that is next."""
        return self._first + len(self._trees)

    def _open(self) -> None:
        session, executor = self._session, self._executor
        session.sent_rows = rows_to_send(self._plan, executor.n_rows, executor.n_shards)  # there may be more shards than before
        self._edges = session.introduce(self._edges)
        self._scales = cast(f.ForestScales, session.say(m.Prepare, session.next_serial(), None)[0])
        session.say(f.OpenForest, self._edges, self._scales, session.stretches)

    def _grow(self) -> ForestResult:
        """Grow the trees that are not finished."""
        if not self._is_open and (self._plan.out_of_bag or self._next < self._last):
            self._begin()
            self._replay_finished()
        while self._next < self._last:
            if self._executor.wants_repair(self._last - self._next):
                self._recover()
            first = self._next
            last = min(first + self._n_side_by_side, self._last)
            grown = cast(list[f.GrownTrees], self._session.grow(f.GrowTrees, first, last))[0].trees
            for tree in grown:
                if self._next < self._last:
                    if self._log is not None:
                        self._log.keep(tree, Scores(math.nan, math.nan))
                    self._tell_of(tree)
            self._add_votes(first)
        return self._result()

    def _tell_of(self, tree: Tree) -> None:
        self._trees.append(tree)
        progress = Progress(len(self._trees), self._n_trees, time.perf_counter() - self._began)
        if self._callback is not None and self._callback(progress):
            self._last = self._next

    def _add_votes(self, first: int) -> None:
        """Have shards add what finished trees, from a number on, say of rows out of bag to their sums."""
        if self._plan.out_of_bag and first < self._next:
            self._session.say(f.AddVotes, first, self._trees[first - self._first :])

    def _replay_finished(self) -> None:
        self._add_votes(self._first)

    def _result(self) -> ForestResult:
        """Return all trees, with what they say of rows out of bag."""
        if not self._plan.out_of_bag:
            return ForestResult(self._trees)
        session, n_rows = self._session, self._executor.n_rows
        votes = cast(list[f.Votes], session.say(f.CountVotes))
        total, count = (in_order([one[i] for one in votes], session.stretches, n_rows) for i in range(2))
        return ForestResult(self._trees, total, count, exponent_of_votes(self._scales.largest))
