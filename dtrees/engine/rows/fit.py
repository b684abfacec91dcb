"""The coordinator's side of a fit over shards of rows: requests to the shards, and how new shards are brought up to date.

In a new epoch, all shards open the fit again with the same edges of zones. No state is sent: the predictions follow from a shard's rows and
the finished trees, which are replayed. Trees of a forest are independent; if out-of-bag sums are wanted, finished trees are applied to the
rows again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import NO_SCORES, CountVotes, Executor, GrowTree, Scores, Votes
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.rows.forest_trees import rows_to_send
from dtrees.engine.rows.whole import scores_of_all
from dtrees.engine.rows.zone_edges import Edges, merge_sketches
from dtrees.engine.shard.fit import ShardsFit
from dtrees.engine.shard.targets.scales import BoostingScales, ForestScales
from dtrees.tree.tree import Tree


class RowsFit(ShardsFit):
    """A fit over shards of rows; see :class:`~dtrees.engine.shard.fit.ShardsFit`."""

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan) -> None:
        super().__init__(executor, plan)
        self._edges: Edges | None = None
        self._ranges: list[NDArray[np.int64]] = []
        self._scales: BoostingScales | ForestScales

    @property
    def sent_rows(self) -> int:
        """The largest number of rows of a node that is grown by one shard, given the current number of shards."""
        executor, plan = self._executor, self._plan
        return rows_to_send(plan, executor.n_rows, executor.n_shards) if isinstance(plan, ForestPlan) else rows_tree.SENT_ROWS

    def open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the initial raw prediction of boosting, by default as the loss chooses, shape (K,)."""
        n = self._executor.n_shards
        about = self._plan, self.sent_rows, self._edges is None
        introduced: list[m.Introduced] = self._send([m.Introduce(self._fit, self._epoch, shard, n, *about) for shard in range(n)])
        self._ranges = [one.ranges for one in introduced]
        if self._edges is None:
            merged = merge_sketches([one.sketches for one in introduced if one.sketches is not None])
            counts = [one.n_categories for one in introduced if one.n_categories is not None]
            self._edges = merged.of_categories(np.max(counts, axis=0))
        given = [initial, *[None] * (n - 1)]  # the initial predictions may be as large as a column
        self._scales = self._send([m.Open(self._fit, self._epoch, self._edges, self._ranges, one) for one in given])[0]
        if isinstance(self._scales, ForestScales):
            return np.empty(0)
        self._given = found = self._scales.initial
        return found if found.ndim == 1 else np.zeros(found.shape[0])

    def catch_up(self, least: int, most: int) -> int:
        """Open the fit again; return the number of trees in the shards' state, which is 0."""
        self.open(self._given)
        return 0

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting."""
        assert isinstance(self._scales, BoostingScales)
        grown = self._grow(GrowTree, tree, output, learning_rate, score)
        first, losses = grown[0], [one.losses for one in grown if one.losses is not None]
        if not losses:
            return first.trees[0], NO_SCORES
        return first.trees[0], scores_of_all(self._executor.n_rows, losses, self._scales.weights, first.undrawn, first.score)

    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the out-of-bag sums, the number of trees summed for each row, and the exponent of their scale."""
        votes: list[Votes] = self._send_all(CountVotes)
        about = self._ranges, self._executor.n_rows
        total, count = in_order([one.sums for one in votes], *about), in_order([one.counts for one in votes], *about)
        return total, count, votes[0].exponent
