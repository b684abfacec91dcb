"""A fit over shards, as the coordinator has it: what is asked of the shards, and how those that are new catch up.

Between two trees every shard of columns holds the same state of the rows (the predictions of the finished trees; of a forest, sums of what
trees say of rows out of bag). In a new epoch, all that was on its way before is stale. State comes from a shard that has it
(:meth:`~dtrees.engine.shard.shard.Shard.program`). Where none has, finished trees of boosting are replayed, those of a forest grown again
for these sums.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import scores_of
from dtrees.engine.plan.node_limits import constraints_of, n_sums_of
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.messages import NO_SCORES, Executor, Message, Scores
from dtrees.split.policy import FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE
from dtrees.tree.tree import Tree


def trees_side_by_side(plan: ForestPlan, n_rows: int, weighted: bool, memory: float = math.inf) -> int:
    """Return how many trees may grow side by side over shards, by the memory that their rows take on each.

    Parameters
    ----------
    plan : ForestPlan
    n_rows : int
    weighted : bool
        Whether the rows have weights.
    memory : float, default=inf
        Bytes that are left beside those for each row.

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
    """Return what a shard keeps of a tree under way: its row partition, and its nodes."""
    n_inside = n_rows if plan.n_draws is None else math.ceil(n_rows * -math.expm1(-plan.n_draws / n_rows))
    n_in_partition = n_rows if plan.out_of_bag else n_inside
    weighted = weighted or plan.n_draws is not None or plan.class_weight is not None
    rules = plan.rules
    n_leaves = n_inside // rules.min_samples_leaf
    if rules.max_leaf_nodes is not None:
        n_leaves = min(n_leaves, 2 * rules.max_leaf_nodes)  # some more are grown than are left in the end
    if rules.max_depth is not None and rules.max_depth < 40:
        n_leaves = min(n_leaves, 2**rules.max_depth)
    constraints = constraints_of(rules)
    n_sums = n_sums_of(plan) + (0 if constraints is None else constraints.n_words)
    amounts = 8 * len(plan.targets) * n_rows if plan.targets and not plan.n_classes and weighted else 0
    return n_in_partition * (20 if weighted else 12) + amounts + 2 * n_leaves * (40 + 8 * n_sums) + 1


class ShardsFit:
    """A fit over shards, whatever they have; all but ``wants_repair`` raises ShardsLost where shards are lost.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan or ForestPlan
    """

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan) -> None:
        self.wants_repair = executor.wants_repair
        self._executor, self._plan, self._fit, self._epoch = executor, plan, uuid.uuid4().hex, 0
        self._given: NDArray[np.float64] | None = None

    def repair(self) -> None:
        """Replace shards that are gone, or misplaced, and begin an epoch."""
        self._executor.repair()
        self._epoch += 1

    def replay_tree(self, tree: Tree, place: int) -> None:
        """Add the values of a finished tree, by its place in its round, to the predictions."""
        self._say(m.Replay, tree, place)

    def grow_trees(self, first: int, last: int) -> list[Tree]:
        """Grow the trees of a forest that are number ``first`` to ``last - 1`` side by side."""
        return self._grow(m.GrowTrees, first, last)[0].trees

    def add_votes(self, first: int, trees: Sequence[Tree]) -> None:
        """Have shards add up what finished trees of a forest, from number ``first`` on, say of rows out of bag."""
        self._say(m.AddVotes, first, trees)

    def _grow(self, kind: type[Message], *arguments: Any) -> list[m.Grown]:
        """Have all shards grow trees; return what each says of them.

        Raises
        ------
        ShardsDisagree
        """
        grown = self._say(kind, *arguments)
        if any(one.checksum != grown[0].checksum for one in grown):
            raise m.ShardsDisagree(f"shards have each grown other trees than the others for {kind.__name__}{arguments}")
        return grown

    def _say(self, kind: type[Message], *arguments: Any) -> list[Any]:
        """Send one message to every shard; return their replies."""
        return self._send([kind(self._fit, self._epoch, *arguments)] * self._executor.n_shards)

    def _send(self, messages: Sequence[Message]) -> list[Any]:
        """Send each shard a message; return their replies."""
        replies = self._executor.send(dict(enumerate(messages)))
        return [replies[shard] for shard in range(len(messages))]


class ColumnsFit(ShardsFit):
    """A fit over shards of columns; see :class:`ShardsFit`. ``n_slots`` are the trees of a forest to grow at once at most."""

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan, n_slots: int = 0) -> None:
        super().__init__(executor, plan)
        self._n_slots = n_slots

    def open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the raw prediction that boosting starts from, by default what the loss chooses, shape (K,)."""
        opened = self._open(initial, 0, 0)
        self._given = opened.initial if initial is None else initial
        return opened.initial

    def catch_up(self, least: int, most: int) -> int:
        """Bring all shards, in an epoch just begun, to the same state: that of one that has finished ``least`` to ``most`` trees.

        Returns how many trees that are. If no shard has finished as many, every one starts from the beginning, and it is none. So they do
        with a dropout: which nodes rows are in does not travel.
        """
        if isinstance(self._plan, BoostingPlan) and self._plan.dropout is not None:
            least = most + 1
        return self._open(self._given, least, most).n_finished

    def _open(self, initial: NDArray[np.float64] | None, least: int, most: int) -> m.Opened:
        n, about = self._executor.n_shards, (self._plan, initial, self._n_slots, least, most)
        opened: list[m.Opened] = self._send([m.Open(self._fit, self._epoch, shard, n, *about) for shard in range(n)])
        return opened[0]

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting."""
        grown = self._grow(m.GrowTree, tree, output, learning_rate, score)
        return grown[0].trees[0], scores_of([one.losses for one in grown]) if score else NO_SCORES

    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return sums of what trees say of rows out of bag, of how many trees these are, and the power of two they are multiplied by."""
        votes: m.Votes = self._executor.send({0: m.CountVotes(self._fit, self._epoch)})[0]
        return votes.sums, votes.counts, votes.exponent
