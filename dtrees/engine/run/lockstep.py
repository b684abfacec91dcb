"""A forest over shards that each have some of the columns: many trees grow side by side, and their messages travel together.

To split one node takes messages to the shards and back, however few rows it has, and a tree has many levels. So the
calls of many trees travel together (:class:`~dtrees.engine.protocol.messages.Calls`): an exchange takes each tree one step further,
whatever that step is, and when the first tree is finished, a further one starts. A tree is grown by the very steps that a tree alone is
grown by, and does not know of the others.

Terms
-----
window
    the trees under way, consecutive ones; the first leaves it when it is finished, so the callback hears of trees in their order.
slot
    the place of a tree on each shard: its number modulo the size of the window.
closing
    adding a tree's predictions of its rows out of bag to their sums, which shards keep. Trees are closed in their order: at any time,
    the sums are those of the first so many trees.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import deque
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np

from dtrees.engine.coordinator.lasting import Lasting, TreeLog
from dtrees.engine.coordinator.leaves import Grown
from dtrees.engine.coordinator.session import Requests, Session, Steps
from dtrees.engine.coordinator.tree import starting, tree_steps
from dtrees.engine.plan.node_limits import constraints_of, n_sums_of
from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult, Progress
from dtrees.engine.protocol.messages import NO_SCORES, Executor
from dtrees.engine.run.recovery import align, state_of
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


class _TreeUnderWay:
    """A tree under way: its steps, and the requests that it waits for the replies of; none when it is finished, and ``grown``."""

    def __init__(self, number: int, steps: Steps[Grown]) -> None:
        self.number, self._steps = number, steps
        self.requests: Requests = next(steps)
        self.grown: Grown | None = None

    def take(self, replies: Mapping[int, Any]) -> None:
        """Take the replies."""
        try:
            self.requests = self._steps.send(replies)
        except StopIteration as end:
            self.requests, self.grown = {}, end.value


class _Forest(Lasting):
    """The trees of a forest over shards of columns; parameters are those of :func:`grow_forest_on_shards`.

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
        self._executor, self._out_of_bag = executor, plan.out_of_bag
        self._first, self._last, self._n_trees = first, last, last - first
        self._n_slots = max(1, min(n_side_by_side, last - first))
        self._callback, self._log = callback, log
        self._began = time.perf_counter()
        self._window: deque[_TreeUnderWay] = deque()
        self._told: list[Tree] = []
        self._n_closed = 0  # these have left the window; without rows out of bag, there is nothing to close
        self._is_repair_due = False
        self._session = Session(executor, plan, uuid.uuid4().hex, n_slots=self._n_slots)
        self._exponent: int | None = None
        for tree, _ in [] if log is None else log.recall():
            if first + len(self._told) < self._last:
                self._tell_of(tree)
                self._n_closed += not self._out_of_bag

    def run(self) -> ForestResult:
        """Grow all trees."""
        return self._lasting(self._grow)

    def _grow(self) -> ForestResult:
        """Grow the trees that are not finished."""
        while self._n_closed < self._last - self._first:
            if self._exponent is None:
                self._exponent = self._session.begin().exponent
            self._step()
            self._tell()
        return self._result()

    def _step(self) -> None:
        """Take the trees under way one step further."""
        self._is_repair_due = self._is_repair_due or self._executor.wants_repair()
        if self._is_repair_due and not self._window:
            self._recover()
        if not self._is_repair_due:
            following = self._first + self._n_closed + len(self._window)
            room = self._n_slots - len(self._window)
            for number in range(following, min(following + room, self._last)):
                self._window.append(_TreeUnderWay(number, tree_steps(self._session, starting(self._session, number))))
        # After all shards were lost, trees that were told of are under way once more, and a later one may be grown sooner.
        closing = list(takewhile(self._is_told, self._window))
        for tree in closing:
            assert tree.grown is not None
            tree.requests = self._session.to_all("finish", tree.grown.closing)
        asking = {tree.number % self._n_slots: tree for tree in self._window if tree.requests}
        self._session.post({slot: tree.requests for slot, tree in asking.items()})
        replies = self._session.collect()
        for _ in closing:
            self._leave()
        for slot, tree in asking.items():
            if tree.grown is None:
                tree.take(replies[slot])

    def _is_told(self, tree: _TreeUnderWay) -> bool:
        """Whether a tree is finished, and the callback has heard of it."""
        return tree.grown is not None and tree.number < self._first + len(self._told)

    def _leave(self) -> None:
        self._window.popleft()
        self._n_closed += 1

    def _tell(self) -> None:
        """Tell of the trees that are finished, in their order."""
        for tree in list(self._window):
            if tree.grown is None or tree.number >= self._last:
                break
            if not self._is_told(tree):
                if self._log is not None:
                    self._log.keep(tree.grown.tree, NO_SCORES)
                self._tell_of(tree.grown.tree)
            if not self._out_of_bag:
                self._leave()
        while self._window and self._window[-1].number >= self._last:
            self._window.pop()

    def _tell_of(self, tree: Tree) -> None:
        self._told.append(tree)
        progress = Progress(len(self._told), self._n_trees, time.perf_counter() - self._began)
        if self._callback is not None and self._callback(progress):
            self._last = self._first + len(self._told)

    def _result(self) -> ForestResult:
        if not self._out_of_bag:
            return ForestResult(self._told)
        assert self._exponent is not None
        pieces = [state for _, _, state in state_of(self._session, 0)]
        sums, count = (np.concatenate(arrays, axis=-1) for arrays in zip(*pieces, strict=True))
        return ForestResult(self._told, np.ascontiguousarray(sums.T), count, self._exponent)

    def _restore(self) -> None:
        """Replace shards that are lost, or misplaced, and forget the trees under way."""
        self._window.clear()
        self._is_repair_due = False
        self._executor.repair()
        self._session = self._session.renewed()
        if self._out_of_bag:
            self._n_closed = align(self._session, self._n_closed, len(self._told), None)
        else:
            align(self._session, 0, 0, None)
