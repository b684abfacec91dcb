"""An open fit, and the exchanges with its shards that a tree is made of.

Steps are generators that send nothing themselves: they yield calls to shards, an exchange, and are given the replies.
:meth:`Session.run` carries out those of one tree, or of many side by side: to split one node takes messages to the shards and back, however
few rows it has, so the calls of many trees travel together, and an exchange takes each tree one step further.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower, merge
from dtrees.engine.plan.node_limits import subtree_rows
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.messages import Begun, Call, Calls, Executor, Finish, Found
from dtrees.engine.protocol.nodes import RouteBits, RouteBitStore, Splits
from dtrees.split.node.records import SPLIT, Candidates
from dtrees.tree.tree import Tree

T = TypeVar("T")

#: For some shards, what is called of each.
Requests = Mapping[int, Call]
#: What yields requests, is given the replies, and returns something in the end.
Steps = Generator[Requests, Mapping[int, Any], T]


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
    def subtree_rows(self) -> int:
        """Up to how many rows a node is grown to its end by the one shard that there is."""
        executor = self.executor
        return subtree_rows(self.plan, executor.n_rows, executor.n_columns, executor.whole_threads)

    def opening(self, initial: NDArray[np.float64] | None) -> Call:
        """Return the call that opens the fit on a shard."""
        return "begin", self.plan, initial, self.n_slots

    def begin(self, initial: NDArray[np.float64] | None = None) -> Begun:
        """Open the fit on every shard."""
        return cast(Begun, self.ask(self.to_all(*self.opening(initial)))[0])

    def to_all(self, *call: Any) -> Requests:
        """Return the requests to call the same of every shard."""
        return dict.fromkeys(range(self.executor.n_shards), call)

    def post(self, by_slot: Mapping[int, Requests]) -> None:
        """Begin an exchange about the trees in some slots. Shards that are told the same are sent one message, which is pickled once."""
        told: defaultdict[int, list[tuple[int, Call]]] = defaultdict(list)
        for slot, requests in by_slot.items():
            for shard, call in requests.items():
                told[shard].append((slot, call))
        same: dict[tuple[int, ...], Calls] = {}
        messages = {}
        for shard, mine in told.items():
            key = tuple(id(call) for _, call in mine)
            if key not in same:
                same[key] = Calls(self.fit, self.epoch, *zip(*mine, strict=True))
            messages[shard] = same[key]
        self.executor.post(messages)

    def collect(self) -> Mapping[int, Mapping[int, Any]]:
        """Return the replies of the exchange that began first of those under way, by slot and shard, in the order of shards."""
        by_slot: defaultdict[int, dict[int, Any]] = defaultdict(dict)
        for shard, replies in sorted(self.executor.collect().items(), key=itemgetter(0)):
            for slot, reply in replies.items():
                by_slot[slot][shard] = reply
        return by_slot

    def exchange(self, by_slot: Mapping[int, Requests], following: Requests | None = None) -> Mapping[int, Mapping[int, Any]]:
        """Call shards, or the trees in some slots there; return their replies. What is ``following`` is sent right behind."""
        self.post(by_slot)
        if following is not None:
            self.post({0: following})
        return self.collect()

    def ask(self, requests: Requests, following: Requests | None = None) -> Mapping[int, Any]:
        """Call shards, or the one tree under way there; see :meth:`exchange`."""
        return self.exchange({0: requests}, following)[0]

    def run(self, programs: Sequence[Steps[T]], is_begun: bool = False) -> list[T]:
        """Carry out the steps of trees, each in a slot, one exchange after the other; return what they do.

        ``is_begun``: the first exchange is under way already.
        """
        requests: dict[int, Requests] = {}
        results: dict[int, T] = {}
        replies: Mapping[int, Any] = dict.fromkeys(range(len(programs)))
        while replies:
            for slot, reply in replies.items():
                try:
                    requests[slot] = programs[slot].send(reply)
                except StopIteration as end:
                    requests.pop(slot, None)
                    results[slot] = end.value
            replies = self.collect() if is_begun else self.exchange(requests) if requests else {}
            is_begun = False
        return [results[slot] for slot in range(len(programs))]

    def find(self, nodes: NDArray[np.int64], found: list[Found], route_bits: RouteBitStore) -> Candidates:
        """Return the best candidates of nodes that the shards have searched, and keep the marks of these."""
        best = merge([one.candidates for one in found], [one.place for one in found])
        split = best.records["status"] == SPLIT
        owner = np.full(nodes.shape[0], -1)
        owner[split] = self.executor.owner(best.records["column"][split])
        for i, one in enumerate(found):
            route_bits.note(nodes, one.marks, owner == i)
        return best

    def accept(self, grower: Grower, found: list[Found], route_bits: RouteBitStore) -> Steps[None]:
        """Have the grower take what was found; of nodes whose columns drawn are constant, further ones are searched, until one varies."""
        nodes = grower.to_search
        rest = grower.accept(nodes, self.find(nodes, found, route_bits))
        if rest.shape[0]:
            replies = yield self.to_all("search", rest, grower.n_drawn)
            grower.accept(rest, self.find(rest, list(replies.values()), route_bits))


def replay_tree(session: Session, tree: Tree, output: int) -> None:
    """Add the values of a finished tree, shrunk already, to the predictions of every row, as when it was grown.

    This is how a fit goes on from trees it did not grow itself (a warm start), and how shards that lost everything catch up: the splits
    are known, so that rows are only divided.
    """
    session.ask(session.to_all("route", output))
    start = np.zeros(tree.node_count, np.int64)
    stop = np.full(tree.node_count, session.executor.n_rows, np.int64)
    number = np.zeros(tree.node_count, np.int64)  # of the tree's nodes, as the shards know them
    n_known = 1
    level = np.zeros(1, np.int64)
    while level.size:
        inner = level[tree.children_left[level] >= 0]
        level = np.concatenate([tree.children_left[inner], tree.children_right[inner]])
        start[level], stop[level] = np.tile(start[inner], 2), np.tile(stop[inner], 2)
        inner = inner[start[inner] < stop[inner]]  # nodes without rows have nothing to divide
        n = inner.shape[0]
        if n == 0:
            continue
        left, right = tree.children_left[inner], tree.children_right[inner]
        number[left] = n_known + 2 * np.arange(n)
        number[right] = number[left] + 1
        n_known += 2 * n
        splits = Splits(
            node=number[inner],
            left=number[left],
            column=tree.feature[inner],
            threshold=tree.threshold[inner],
            missing_left=tree.missing_go_to_left[inner],
            n_left=np.zeros(n, np.int64),  # no row is in sample
            left_sums=np.zeros((n, 2), np.int64),
        )
        divided = session.ask(session.to_all("advance", splits, _marks(session, splits, tree, inner), number[:0]))[0]
        start[left], stop[left] = start[inner], divided.left_stop
        start[right], stop[right] = divided.left_stop, stop[inner]
    leaf = tree.children_left < 0
    session.ask(session.to_all("finish", Finish(output, start[leaf], start[leaf], stop[leaf], tree.value[leaf])))


def _marks(session: Session, splits: Splits, tree: Tree, nodes: NDArray[np.int64]) -> RouteBits:
    """Ask the owners of the columns which rows the splits of some nodes of a tree send left."""
    owner, route_bits = session.executor.owner(splits.column), RouteBitStore()
    asked = {i: owner == i for i in np.unique(owner).tolist()}
    replies = session.ask({i: ("evaluate", splits.take(mine), tree.categories.take(nodes[mine])) for i, mine in asked.items()})
    for i, mine in asked.items():
        route_bits.note(splits.node[mine], replies[i], np.ones(np.count_nonzero(mine), np.bool_))
    return route_bits.take(splits.node)
