"""A fit over shards of columns, as the coordinator has it: what is asked of the shards, and how those that are new catch up.

Between two trees every shard holds the same state of the rows (the predictions of the finished trees; of a forest, sums of what trees say
of rows out of bag). In a new epoch, all that was on its way before is stale. State comes from a shard that has it, in pieces. Where none
has (all are lost, or all that are left had closed the tree already when the others went), every shard starts from the beginning: finished
trees of boosting are replayed (:func:`~dtrees.engine.coordinator.session.replay_tree`), those of a forest grown again for these sums.

Terms
-----
closing
    adding a tree's values to the predictions, or what it says of its rows out of bag to the sums. Trees are closed in their order: at any
    time, the state is that of the first so many trees.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Session, replay_tree
from dtrees.engine.coordinator.tree import grow_tree, starting, tree_steps
from dtrees.engine.plan.node_limits import constraints_of, n_sums_of
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Executor, Finish, Scores, Start
from dtrees.split.policy import FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE, STATE_PIECE_BYTES
from dtrees.tree.tree import Tree


def trees_side_by_side(plan: ForestPlan, n_rows: int, weighted: bool, room: float = math.inf) -> int:
    """Return how many trees may grow side by side over shards, by the memory that their rows take on each.

    Parameters
    ----------
    plan : ForestPlan
    n_rows : int
    weighted : bool
        Whether the rows have weights.
    room : float, default=inf
        Bytes that are left beside those for each row.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import Rules
    >>> plan = ForestPlan(Rules("gini", max_features=5, columns_per_tree=20, max_depth=10), seed=0, n_classes=2)
    >>> [trees_side_by_side(plan, n_rows, weighted=False) for n_rows in (20_000, 10**6, 10**7)]
    [64, 11, 5]
    >>> trees_side_by_side(plan, 20_000, weighted=False, room=0)
    3
    """
    state = FOREST_BYTES_PER_ROW * n_rows
    budget = max(state, min(FOREST_MIN_BYTES, state + room))
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


class ColumnsFit:
    """A fit over shards of columns; all but ``wants_repair`` raises ShardsLost where shards are lost.

    Parameters
    ----------
    executor : Executor
    plan : BoostingPlan or ForestPlan
    n_side_by_side : int, default=0
        Trees of a forest to grow at once at most.
    """

    def __init__(self, executor: Executor, plan: BoostingPlan | ForestPlan, n_side_by_side: int = 0) -> None:
        self.wants_repair = executor.wants_repair
        self._executor, self._plan = executor, plan
        self._session = Session(executor, plan, uuid.uuid4().hex, n_slots=n_side_by_side)
        self._given: NDArray[np.float64] | None = None
        self._started: Start | None = None  # the next tree of boosting
        self._closings: dict[int, Finish | None] = {}  # of trees that were grown last

    def open(self, initial: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Open the fit; return the raw prediction that boosting starts from, by default what the loss chooses, shape (K,)."""
        begun = self._session.begin(initial)
        self._given, self._exponent = begun.initial if initial is None else initial, begun.exponent
        return begun.initial

    def repair(self) -> None:
        """Replace shards that are gone, or misplaced, and begin an epoch."""
        if self._started is not None:
            self._started = None
            self._executor.collect()
        self._executor.repair()
        self._session = replace(self._session, epoch=self._session.epoch + 1)
        self._closings = {}

    def catch_up(self, least: int, most: int) -> int:
        """Bring all shards, in an epoch just begun, to the same state: that of one that has finished ``least`` to ``most`` trees.

        Returns how many trees that are. If no shard has finished as many, every one starts from the beginning, and it is none.
        """
        session = self._session
        standing = session.ask(session.to_all("renew"))
        reached = max((n_finished for n_finished in standing.values() if least <= n_finished <= most), default=0)
        # One that has finished none may have been about to take over the state of another.
        behind = [shard for shard, n_finished in standing.items() if n_finished != reached or not reached]
        if behind:
            session.ask(dict.fromkeys(behind, session.opening(self._given)))
        if reached and behind:
            source = next(shard for shard, n_finished in standing.items() if n_finished == reached)
            for first, last, state in self._state_of(source):
                # Only the last piece makes it count: shards may be lost in between.
                n_finished = reached if last == self._executor.n_rows else 0
                session.ask(dict.fromkeys(behind, ("adopt", first, state, n_finished)))
        return reached

    def _state_of(self, shard: int) -> Iterator[tuple[int, int, list[NDArray[Any]]]]:
        """Yield the state of the rows that a shard has, in pieces that travel: the first row, the row after the last, and arrays."""
        n_rows, plan = self._executor.n_rows, self._plan
        n_outputs = plan.loss.n_outputs if isinstance(plan, BoostingPlan) else plan.n_values
        step = max(1, STATE_PIECE_BYTES // (16 * n_outputs))
        for first in range(0, n_rows, step):
            last = min(first + step, n_rows)
            yield first, last, self._session.ask({shard: ("fetch", first, last)})[shard]

    def replay_tree(self, tree: Tree, output: int) -> None:
        """Add the values of a finished tree to the predictions."""
        replay_tree(self._session, tree, output)

    def grow_tree(self, tree: int, output: int, learning_rate: float, score: bool) -> tuple[Tree, Scores]:
        """Grow a tree of boosting, and start the next one: this leaves no trace, should no other be wanted."""
        assert isinstance(self._plan, BoostingPlan)
        (started, self._started), n_outputs = (self._started, None), self._plan.loss.n_outputs
        is_last = tree + 1 == self._plan.n_rounds * n_outputs
        following = None if is_last else starting(self._session, tree + 1, (tree + 1) % n_outputs)
        start = started or starting(self._session, tree, output)
        grown = grow_tree(self._session, start, learning_rate, score, started is not None, following)
        self._started = following
        return grown

    def grow_trees(self, first: int, last: int) -> list[Tree]:
        """Grow the trees of a forest that are number ``first`` to ``last - 1`` side by side."""
        session = self._session
        grown = session.run([tree_steps(session, starting(session, number)) for number in range(first, last)])
        self._closings = {number: one.closing for number, one in enumerate(grown, first)}
        return [one.tree for one in grown]

    def add_votes(self, first: int, trees: Sequence[Tree]) -> None:
        """Close trees of a forest, from number ``first`` on: those grown last, or such as are to be grown again, as shards were lost."""
        last = first + len(trees)
        while first < last:
            if first not in self._closings:
                self.grow_trees(first, min(first + self._session.n_slots, last))
            closings = {number: closing for number, closing in self._closings.items() if number < last}
            self._session.exchange({slot: self._session.to_all("finish", one) for slot, one in enumerate(closings.values())})
            first += len(closings)
        self._closings = {}

    def votes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return sums of what trees say of rows out of bag, of how many trees these are, and the power of two they are multiplied by."""
        pieces = [state for _, _, state in self._state_of(0)]
        sums, count = (np.concatenate(arrays, axis=-1) for arrays in zip(*pieces, strict=True))
        return np.ascontiguousarray(sums.T), count, self._exponent
