"""A forest over shards that each have some of the columns: many trees grow side by side (:mod:`dtrees.engine.coordinator.side_by_side`)."""

from __future__ import annotations

import math
import uuid
from typing import cast

import numpy as np

from dtrees.engine.coordinator.leaves import Grown
from dtrees.engine.coordinator.session import Requests, Session, Steps
from dtrees.engine.coordinator.side_by_side import SideBySide
from dtrees.engine.coordinator.tree import starting, tree_steps
from dtrees.engine.coordinator.tree_by_tree import TreeLog
from dtrees.engine.plan.node_limits import constraints_of, n_sums_of
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.executor import Executor
from dtrees.engine.run.recovery import align, pieces_of_state
from dtrees.split.policy import FOREST_BYTES_PER_ROW, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE
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


def grow_forest_on_shards(
    executor: Executor,
    plan: ForestPlan,
    first: int,
    last: int,
    n_side_by_side: int,
    callback: Callback | None = None,
    log: TreeLog | None = None,
) -> ForestResult:
    """Grow the trees numbered ``first`` to ``last - 1``.

    Parameters
    ----------
    executor : Executor
        Closing it is left to the caller.
    plan : ForestPlan
    first, last : int
    n_side_by_side : int
        Trees to grow at once at most.
    callback : callable, optional
        Called after each tree, in their order; returning True leaves out the trees after it.
    log : TreeLog, optional
        Keeps trees, should the forest have to be grown again. Those it brings back are grown only where their out-of-bag sums are wanted.

    Returns
    -------
    ForestResult
        That of :func:`dtrees.engine.run.forest_growth.grow_forest`.
    """
    return _Forest(executor, plan, first, last, n_side_by_side, callback, log).run()


class _Forest(SideBySide[Grown]):
    """The trees of a forest over shards of columns.

    When shards are lost, the executor replaces them, and out-of-bag sums are copied from a shard that is left. Trees do not depend on one
    another, so nothing is replayed; only if all shards are lost together with the sums, trees are grown again to add them up.
    """

    def __init__(
        self,
        executor: Executor,
        plan: ForestPlan,
        first: int,
        last: int,
        n_side_by_side: int,
        callback: Callback | None,
        log: TreeLog | None,
    ) -> None:
        super().__init__(first, last, n_side_by_side, plan.out_of_bag, callback, log)
        self._executor: Executor = executor
        self._n_values = plan.n_values
        self._session: Session = Session(executor, plan, uuid.uuid4().hex, n_slots=self._n_slots)
        self._exponent: int | None = None

    def _begin(self) -> None:
        if self._exponent is None:
            self._exponent = self._session.begin().exponent

    def _steps(self, number: int) -> Steps[Grown]:
        return tree_steps(self._session, starting(self._session, number))

    def _tree_of(self, grown: Grown) -> Tree:
        return grown.tree

    def _closing(self, number: int, grown: Grown) -> Requests:
        assert grown.closing is not None
        return self._session.to_all(grown.closing)

    def _result(self) -> ForestResult:
        if not self._out_of_bag:
            return ForestResult(self._told)
        assert self._exponent is not None
        session, n_rows = self._session, self._executor.n_rows
        total = np.empty((n_rows, self._n_values), np.int64)
        count = np.empty(n_rows, np.int64)
        for first, last in pieces_of_state(session):
            replies = self._executor.send({0: m.Fetch(session.fit, session.epoch, first, last)})
            sums, count[first:last] = cast(m.RowState, replies[0]).arrays
            total[first:last] = sums.T
        return ForestResult(self._told, total, count, self._exponent)

    def _restore(self) -> None:
        """Replace shards that are lost, or misplaced, and forget the trees under way."""
        self._forget_trees()
        self._executor.repair()
        self._session = self._session.renewed()
        if self._out_of_bag:
            self._n_closed = align(self._session, self._n_closed, len(self._told), None)
        else:
            align(self._session, 0, 0, None)
