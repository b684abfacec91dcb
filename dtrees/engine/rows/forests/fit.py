"""A forest over shards of rows that outlasts its shards.

When shards are lost, new ones take their places, with the same rows, and the tree under way is grown again. Trees do not depend on one
another, so nothing is replayed; but where sums of what trees say of rows out of bag are wanted, finished trees are put through the rows.
"""

from __future__ import annotations

import time
from typing import cast

import numpy as np

from dtrees.engine.coordinator.tree_by_tree import TreeLog
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.between.stretches import in_order
from dtrees.engine.rows.exchange import RowsExecutor
from dtrees.engine.rows.fit import LastingRows
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.tree import forest_tree_steps, rows_to_send
from dtrees.engine.shard.targets.forest_target import exponent_of_votes
from dtrees.tree.tree import Tree


def grow_forest_on_rows(
    executor: RowsExecutor,
    plan: ForestPlan,
    first: int,
    last: int,
    callback: Callback | None = None,
    log: TreeLog | None = None,
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

    Returns
    -------
    ForestResult
        That of :func:`dtrees.engine.run.forest_growth.grow_forest`.
    """
    return _Forest(executor, plan, first).run(last, callback, log)


class _Forest(LastingRows):
    """The trees of a forest that are finished, and how another one is grown."""

    def __init__(self, executor: RowsExecutor, plan: ForestPlan, first: int) -> None:
        super().__init__(executor, plan, rows_to_send(plan, executor.n_rows, executor.n_shards))
        self._plan, self._first = plan, first
        self._scales: f.ForestScales
        self._trees: list[Tree] = []

    def run(self, last: int, callback: Callback | None, log: TreeLog | None) -> ForestResult:
        """Grow all trees."""
        began, total = time.perf_counter(), last - self._first
        recalled = [tree for tree, _ in ([] if log is None else log.recall())][:total]
        if len(recalled) < total:
            self._begin()
        while len(self._trees) < total:
            number = len(self._trees)
            if number < len(recalled):
                tree = recalled[number]
            else:
                if self._executor.wants_repair(total - number):
                    self._recover()
                tree = self._lasting(self._grow)
                if log is not None:
                    log.keep(tree, Scores(np.nan, np.nan))
            self._trees.append(tree)
            if callback is not None and callback(Progress(number + 1, total, time.perf_counter() - began)):
                break
        return self._lasting(self._result) if self._plan.out_of_bag else ForestResult(self._trees)

    def _open(self) -> None:
        session = self._session
        self._edges = session.introduce(self._edges)
        self._scales = cast(f.ForestScales, session.say(m.Prepare, session.next_serial(), None)[0])
        session.say(f.OpenForest, self._edges, self._scales)

    def _grow(self) -> Tree:
        return self._session.run(forest_tree_steps(self._session, self._plan, self._scales, self._first + len(self._trees)))

    def _result(self) -> ForestResult:
        """Return all trees, with what they say of rows out of bag."""
        session, n_rows = self._session, self._executor.n_rows
        votes = cast(list[f.Votes], session.say(f.CountVotes))
        total, count = (in_order([one[i] for one in votes], session.stretches, n_rows) for i in range(2))
        return ForestResult(self._trees, total, count, exponent_of_votes(self._scales.largest))

    def _replay_finished(self) -> None:
        for i, tree in enumerate(self._trees if self._plan.out_of_bag else ()):
            self._session.say(f.AddVotes, self._first + i, tree)
