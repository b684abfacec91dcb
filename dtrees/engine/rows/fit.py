"""A fit over shards of rows, as the coordinator has it: what is asked of the shards, and how those that are new catch up.

In a new epoch, all shards open the fit once more, with the edges of zones that were found once. No state travels: predictions follow from a
shard's rows and the finished trees, which are replayed. Trees of a forest do not depend on one another; finished ones are put through the
rows again where sums of what trees say of rows out of bag are wanted.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.exchange import RowsDisagree, RowsExecutor
from dtrees.engine.protocol.messages import NO_SCORES, Message, Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.rows.forest_trees import rows_to_send
from dtrees.engine.rows.whole import scores_of_all
from dtrees.engine.rows.zone_edges import Edges, merge_sketches
from dtrees.engine.shard.targets.scales import BoostingScales, ForestScales
from dtrees.split.zones.sums import MAX_PACKED_ROWS
from dtrees.tree.tree import Tree


class RowsFit:
    """A fit over shards of rows; all but ``wants_repair`` raises ShardsLost where shards are lost.

    Parameters
    ----------
    executor : RowsExecutor
    plan : BoostingPlan or ForestPlan

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
        self.wants_repair = executor.wants_repair
        self._executor, self._plan, self._fit, self._epoch = executor, plan, uuid.uuid4().hex, 0
        self._given: NDArray[np.float64] | None = None
        self._edges: Edges | None = None
        self._stretches: list[NDArray[np.int64]] = []
        self._scales: BoostingScales | ForestScales

    @property
    def sent_rows(self) -> int:
        """Up to how many rows a node is grown by one shard, of as many as there are now."""
        executor, plan = self._executor, self._plan
        return rows_to_send(plan, executor.n_rows, executor.n_shards) if isinstance(plan, ForestPlan) else rows_tree.SENT_ROWS

    def open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the raw prediction that boosting starts from, by default what the loss chooses, shape (K,)."""
        n = self._executor.n_shards
        about = self._plan, self.sent_rows, self._edges is None
        introduced: list[m.Introduced] = self._send([m.Introduce(self._fit, self._epoch, shard, n, *about) for shard in range(n)])
        self._stretches = [one.stretches for one in introduced]
        if self._edges is None:
            merged = merge_sketches([one.sketches for one in introduced if one.sketches is not None])
            counts = [one.n_categories for one in introduced if one.n_categories is not None]
            self._edges = merged.of_categories(np.max(counts, axis=0))
        given = [initial, *[None] * (n - 1)]  # which may be as many as there are rows
        self._scales = self._send([m.Open(self._fit, self._epoch, self._edges, self._stretches, one) for one in given])[0]
        if isinstance(self._scales, ForestScales):
            return np.empty(0)
        self._given = found = self._scales.initial
        return found if found.ndim == 1 else np.zeros(found.shape[0])

    def repair(self) -> None:
        """Replace shards that are gone, or misplaced, and begin an epoch."""
        self._executor.repair()
        self._epoch += 1

    def catch_up(self, least: int, most: int) -> int:
        """Open the fit again; return of how many trees shards know what they are to know: of none, whichever are wanted."""
        self.open(self._given)
        return 0

    def replay_tree(self, tree: Tree, output: int) -> None:
        """Add the values of a finished tree to the predictions."""
        self._say(m.Replay, tree, output)

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting."""
        assert isinstance(self._scales, BoostingScales)
        grown = self._grow(m.GrowTree, tree, output, learning_rate, score)
        first, losses = grown[0], [one.losses for one in grown if one.losses is not None]
        if not losses:
            return first.trees[0], NO_SCORES
        return first.trees[0], scores_of_all(self._executor.n_rows, losses, self._scales.weights, first.undrawn, first.score)

    def grow_trees(self, first: int, last: int) -> list[Tree]:
        """Grow the trees of a forest that are number ``first`` to ``last - 1`` side by side."""
        return self._grow(m.GrowTrees, first, last)[0].trees

    def add_votes(self, first: int, trees: Sequence[Tree]) -> None:
        """Have shards add up what finished trees of a forest, from number ``first`` on, say of rows out of bag."""
        self._say(m.AddVotes, first, trees)

    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return sums of what trees say of rows out of bag, of how many trees these are, and the power of two they are multiplied by."""
        assert isinstance(self._scales, ForestScales)
        votes: list[m.Votes] = self._say(m.CountVotes)
        total, count = (in_order([one[i] for one in votes], self._stretches, self._executor.n_rows) for i in range(2))
        return total, count, self._scales.vote_exponent

    def _grow(self, kind: type[Message], *arguments: Any) -> list[m.Grown]:
        """Have all shards grow trees; return what each says of them.

        Raises
        ------
        RowsDisagree
        """
        grown = self._say(kind, *arguments)
        if any(one.checksum != grown[0].checksum for one in grown):
            raise RowsDisagree(f"shards have each grown other trees than the others for {kind.__name__}{arguments}")
        return grown

    def _say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        return self._send([kind(self._fit, self._epoch, *arguments)] * self._executor.n_shards)

    def _send(self, messages: Sequence[Message]) -> list[Any]:
        """Send each shard a message; return their replies."""
        replies = self._executor.send(dict(enumerate(messages)))
        return [replies[shard] for shard in range(len(messages))]
