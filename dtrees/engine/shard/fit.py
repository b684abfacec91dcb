"""The coordinator's side of a fit over shards: requests to the shards, and how new shards are brought up to date.

Between two trees, every shard of columns has the same state of the rows: the predictions of the finished trees or, for a forest, their
out-of-bag sums. In a new epoch, earlier messages are stale. New shards receive the state from one that has it
(:meth:`~dtrees.engine.shard.shard.Shard.program`). If there is none, finished trees of boosting are replayed, and those of a forest are
grown again for the sums.
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


class ShardsFit:
    """A fit over shards of any kind; all methods except ``wants_repair`` raise ShardsLost if shards are lost.

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
        """Replace lost or misplaced shards, and begin an epoch."""
        self._executor.repair()
        self._epoch += 1

    def replay_tree(self, tree: Tree, place: int) -> None:
        """Add the values of a finished tree, given its place in its round, to the predictions."""
        self._send_all(m.Replay, tree, place)

    def grow_trees(self, first: int, last: int) -> list[Tree]:
        """Grow the trees ``first`` to ``last - 1`` of a forest side by side."""
        return self._grow(m.GrowTrees, first, last)[0].trees

    def add_votes(self, first: int, trees: Sequence[Tree]) -> None:
        """Have shards add the out-of-bag predictions of finished trees of a forest, from number ``first`` on, to their sums."""
        self._send_all(m.AddVotes, first, trees)

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


class ColumnsFit(ShardsFit):
    """A fit over shards of columns; see :class:`ShardsFit`. ``n_side_by_side`` limits the trees of a forest in growth."""

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan, n_side_by_side: int = 0) -> None:
        super().__init__(executor, plan)
        self._n_side_by_side = n_side_by_side

    def open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the initial raw prediction of boosting, by default as the loss chooses, shape (K,)."""
        opened = self._open(initial, 0, 0)
        self._given = opened.initial if initial is None else initial
        return opened.initial

    def catch_up(self, least: int, most: int) -> int:
        """Bring all shards, in a new epoch, to the same state: that of a shard that has finished ``least`` to ``most`` trees.

        Return the number of trees in that state. If no shard has one, all start from the beginning, and it is 0. The same holds for
        dropout, as the node numbers of rows are not sent.
        """
        if isinstance(self._plan, BoostingPlan) and self._plan.dropout is not None:
            least = most + 1
        return self._open(self._given, least, most).n_finished

    def _open(self, initial: NDArray[np.float64] | None, least: int, most: int) -> m.Opened:
        n, about = self._executor.n_shards, (self._plan, initial, self._n_side_by_side, least, most)
        opened: list[m.Opened] = self._send([m.Open(self._fit, self._epoch, shard, n, *about) for shard in range(n)])
        return opened[0]

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting."""
        grown = self._grow(m.GrowTree, tree, output, learning_rate, score)
        return grown[0].trees[0], scores_of([one.losses for one in grown]) if score else NO_SCORES

    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return the out-of-bag sums, the number of trees summed for each row, and the exponent of their scale."""
        votes: m.Votes = self._executor.send({0: m.CountVotes(self._fit, self._epoch)})[0]
        return votes.sums, votes.counts, votes.exponent
