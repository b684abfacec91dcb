"""Small nodes of a tree over shards, each grown to its end by one shard, to which the others send their columns of its rows.

However small a node is, to split it takes an exchange with all shards; a tree grown to its end has dozens of levels, most of them of small
nodes. So when no node of a tree has more than some rows, each is given to a shard, and two exchanges do for all that is below::

    share_rows       every shard: its columns, in the rows of the nodes that other shards are to grow
    grow_delegated   every shard: grow nodes, in a table put together from what the others sent and its own columns

The nodes of a tree are shared out over the shards, whether trees grow side by side or not. Afterwards, only the shard that grew a delegated
node knows where rows lie within it: that shard is asked about the leaves, and says at once which categories its splits send left. For rows
out of bag, all shards are told.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.coordinator.session import Session, Steps
from dtrees.engine.outcome.beyond_sums import KnownSets
from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.protocol import messages as m
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.policy import DELEGATED_COLUMNS, DELEGATED_PARTS, SHARED_CELLS


class Delegation(NamedTuple):
    """Which nodes of a tree were grown by one shard each, arrays of shape (n,), ascending by place.

    Attributes
    ----------
    start, stop : ndarray of int64
        The places of the nodes.
    shard : ndarray of int64
    outside : list of ndarray of uint32
        Rows of each node out of sample, in the order of its leaves, if they are to be known.
    sets : KnownSets
        Those of all splits within the nodes.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    shard: NDArray[np.int64]
    outside: list[NDArray[np.uint32]]
    sets: KnownSets

    def shard_of(self, start: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
        """Return the shard that grew the node that each leaf lies in, ``otherwise`` for leaves that all shards know."""
        if not self.start.shape[0]:
            return np.full(start.shape[0], otherwise, np.int64)
        node = np.searchsorted(self.start, start, side="right") - 1
        return np.where((node >= 0) & (start < self.stop[node]), self.shard[node], otherwise)

    def ask(self, start: NDArray[np.int64], otherwise: int) -> dict[int, NDArray[np.bool_] | slice]:
        """Return the shards that know leaves, ``otherwise`` those that all know, and which leaves each is to be asked about."""
        if not self.start.shape[0]:
            return {otherwise: slice(None)}
        knows = self.shard_of(start, otherwise)
        return {shard: knows == shard for shard in np.unique(knows).tolist()}


def no_delegation() -> Delegation:
    """Return what is known of nodes grown by one shard each where there are none."""
    none = np.empty(0, np.int64)
    return Delegation(none, none, none, [], KnownSets())


def rows_to_delegate(session: Session) -> int:
    """Return up to how many rows a node is grown by one of several shards."""
    executor, plan = session.executor, session.plan
    rules = plan.rules
    if isinstance(plan, BoostingPlan) or rules.max_leaf_nodes is not None or rules.columns_per_tree > DELEGATED_COLUMNS * executor.n_shards:
        return 0
    return min(executor.n_rows // (DELEGATED_PARTS * executor.n_shards), _rows_at_once(session))


def _rows_at_once(session: Session) -> int:
    return SHARED_CELLS // max(1, session.n_slots) // session.plan.rules.columns_per_tree


def grow_delegated(session: Session, number: int, grower: Grower) -> Steps[Delegation]:
    """Have all nodes that the grower has set aside grown, in the tree of a number."""
    if not grower.to_grow:
        return no_delegation()
    nodes = np.array(grower.to_grow, np.int64)
    start, _, stop = grower.places(nodes)
    n_shards = session.executor.n_shards
    order = np.argsort(start - stop, kind="stable")  # the largest first
    shard = np.full(nodes.shape[0], number % n_shards)
    if criterion_named(session.plan.rules.criterion).measured != "nodes":  # one shard has to know all rows to measure medians
        shard[order] = (number + np.arange(nodes.shape[0])) % n_shards
    outside: dict[int, NDArray[np.uint32]] = {}
    known_sets = KnownSets()
    taken = np.cumsum((stop - start)[order]) // max(1, _rows_at_once(session))
    for batch in np.split(order, np.flatnonzero(np.diff(taken)) + 1):
        groups = {i: nodes[batch[shard[batch] == i]] for i in np.unique(shard[batch]).tolist()}
        shared: dict[int, list[m.SharedRows]] = {i: [] for i in groups}
        if n_shards > 1:
            asking = {sender: [i for i in groups if i != sender] for sender in range(n_shards)}
            asked = {sender: ("share_rows", [groups[i] for i in others]) for sender, others in asking.items() if others}
            replies = yield asked
            for sender in asked:
                for i, rows in zip(asking[sender], replies[sender], strict=True):
                    shared[i].append(rows)
        replies = yield {i: ("grow_delegated", groups[i], shared[i]) for i in groups}
        for i, group in groups.items():
            grown: m.GrownDelegated = replies[i]
            subtrees = [nodes.unpacked() for nodes in grown.subtrees]
            grower.attach(group.tolist(), subtrees)
            for subtree, sets in zip(subtrees, grown.sets, strict=True):
                known_sets.add(subtree.records, sets)
            outside.update(zip(group.tolist(), grown.outside, strict=True))
    order = np.argsort(start)
    return Delegation(start[order], stop[order], shard[order], [outside[node] for node in nodes[order].tolist()], known_sets)
