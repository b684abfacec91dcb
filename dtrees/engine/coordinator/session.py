"""An open fit, and the exchanges with its shards that a tree is made of.

Steps are generators that send nothing themselves: they yield the messages of an exchange with the shards, and are given their replies.
:meth:`Session.run` carries out those of one tree, :mod:`dtrees.engine.run.lockstep` those of many trees at once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower, merge
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.plan.search_plan import inherits_sums, rows_to_grow
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.executor import Executor
from dtrees.engine.protocol.route_bits import RouteBitStore
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.split.node.candidate import SPLIT, Candidates
from dtrees.split.policy import OFFER_ROWS
from dtrees.tree.category_sets import CategorySets

T = TypeVar("T")


#: For some shards, the message to each.
Requests = Mapping[int, m.Message]
#: What yields requests, is given the replies, and returns something in the end.
Steps = Generator[Requests, Mapping[int, m.Reply], T]


@dataclass(frozen=True)
class Session:
    """An open fit: the executor, and what every message carries. ``n_slots`` are the trees to grow side by side; 0: one at a time.

    ``last_tree``: the next tree is the last one, and the one shard that has all columns need not keep them longer than they are searched.
    """

    executor: Executor
    plan: ForestPlan | BoostingPlan
    fit: str
    epoch: int = 0
    n_slots: int = 0
    last_tree: bool = False

    @property
    def gives_up_columns(self) -> bool:
        """Whether no column is looked at any more when the nodes of the tree are grown."""
        return self.last_tree and not self.plan.rules.categorical

    def opening(self, initial: NDArray[np.float64] | None) -> m.Begin:
        """Return the message that opens the fit on a shard."""
        return m.Begin(self.fit, self.epoch, self.plan, initial, self.n_slots)

    def begin(self, initial: NDArray[np.float64] | None = None) -> m.Begun:
        """Open the fit on every shard."""
        return cast(m.Begun, self.executor.broadcast(self.opening(initial))[0])

    def renewed(self) -> Session:
        """Return the session of the next epoch."""
        return replace(self, epoch=self.epoch + 1)

    @cached_property
    def boosts_at_once(self) -> bool:
        """Whether the one shard that there is grows whole trees of a boosting by itself."""
        executor = self.executor
        return bool(executor.whole_threads) and isinstance(self.plan, BoostingPlan) and subtree_rows(executor, self.plan) >= executor.n_rows

    def to_all(self, message: m.Message) -> Requests:
        """Return the requests of one message to every shard."""
        return dict.fromkeys(range(self.executor.n_shards), message)

    def run(self, steps: Steps[T], is_begun: bool = False) -> T:
        """Carry out steps, one exchange after the other; return what they do. ``is_begun``: the first exchange is under way already."""
        try:
            requests = next(steps)
            while True:
                if not is_begun:
                    self.executor.post(requests)
                is_begun = False
                requests = steps.send(self.executor.collect())
        except StopIteration as end:
            return cast(T, end.value)

    def search_mode(self, n_rows: int) -> m.SearchMode:
        """Return how to search nodes of so many rows together."""
        if self.executor.whole_threads:
            return m.SearchMode.FIND
        if n_rows < OFFER_ROWS or self.executor.n_shards == 1:
            return m.SearchMode.OFFER
        return m.SearchMode.BARS if not self.n_slots and inherits_sums(self.plan) else m.SearchMode.FIND

    def advance(
        self, splits: Splits, marks: RouteBits, search: NDArray[np.int64], mode: m.SearchMode = m.SearchMode.FIND
    ) -> Steps[list[m.Divided]]:
        """Apply splits on every shard, and search nodes."""
        replies = yield self.to_all(m.Advance(self.fit, self.epoch, splits, marks, search, mode))
        return [cast(m.Divided, replies[i]) for i in range(len(replies))]

    def mark(self, splits: Splits, route_bits: RouteBitStore, sets: CategorySets | None = None) -> Steps[RouteBits]:
        """Return the marks of splits, asking the owners of their columns for those that were not offered.

        ``sets`` are those of splits of a tree that is known already, by their places in ``splits``.
        """
        lacking = ~route_bits.has(splits.node)
        if lacking.any():
            owner = np.where(lacking, self.executor.owner(splits.column), -1)
            asked = {i: splits.take(owner == i) for i in np.unique(owner[lacking]).tolist()}
            known = {i: None if sets is None else sets.take(np.flatnonzero(owner == i)) for i in asked}
            replies = yield {i: m.Evaluate(self.fit, self.epoch, some, known[i]) for i, some in asked.items()}
            for i, some in asked.items():
                route_bits.note(some.node, cast(RouteBits, replies[i]), np.ones(some.node.shape[0], np.bool_))
        return route_bits.take(splits.node)

    def find(self, nodes: NDArray[np.int64], found: list[m.Found | m.Bars | None], route_bits: RouteBitStore) -> Steps[Candidates]:
        """Return the best candidates of nodes that the shards have searched, or begun to, and keep the marks of these."""
        if any(isinstance(one, m.Bars) for one in found):
            bars = np.max([cast(m.Bars, one).bars for one in found], axis=0)
            replies = yield self.to_all(m.Scan(self.fit, self.epoch, bars))
            found = [cast(m.Found, replies[i]) for i in range(len(replies))]
        best = merge_found(cast(list[m.Found], found))
        split = best.records["status"] == SPLIT
        owner = np.full(nodes.shape[0], -1)
        owner[split] = self.executor.owner(best.records["column"][split])
        for i, one in enumerate(cast(list[m.Found], found)):
            if one.marks is not None:
                route_bits.note(nodes, one.marks, owner == i)
        return best

    def search_rest(self, grower: Grower, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Search the columns of nodes that were not drawn at first, until one varies."""
        replies = yield self.to_all(m.Search(self.fit, self.epoch, nodes, grower.n_drawn))
        return merge_found([cast(m.Found, replies[i]) for i in range(len(replies))])


def merge_found(found: list[m.Found]) -> Candidates:
    """Return the best candidate of each node over all shards."""
    return merge([f.candidates for f in found], [f.place for f in found])


def subtree_rows(executor: Executor, plan: ForestPlan | BoostingPlan) -> int:
    """Return up to how many rows a node is grown to its end by the one shard that there is."""
    if executor.whole_threads == 1:
        return executor.n_rows
    if inherits_sums(plan):
        return rows_to_grow(executor.n_rows, executor.n_columns, executor.whole_threads)
    return max(1024, executor.n_rows // (8 * executor.whole_threads))
