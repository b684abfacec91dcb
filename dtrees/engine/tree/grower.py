"""The grower decides about the nodes of one tree: which are searched, which are split, when the tree is complete. It does no I/O.

It receives the best candidates (:meth:`Grower.accept`), returns the next splits (:meth:`Grower.choose`), and finally assembles the tree
(:meth:`Grower.arrange`). The table of nodes records the places of rows after each division (:meth:`.NodeTable.divide`).

All nodes of a level with a split are split at once. With ``max_leaf_nodes``, nodes that best-first growth cannot reach are left out
(:mod:`dtrees.split.grow.best_first`), and the finished tree is pruned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import splits_of_categories
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.nodes import DelegatedNodes, Splits, join_subtrees
from dtrees.split.criteria.constraints import divide_sums
from dtrees.split.criteria.parts import node_weights
from dtrees.split.grow.best_first import ORIGIN, RANKED, are_first, origins, rank_splits
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import NodeLimits, SplitLimits, may_be_split
from dtrees.split.node.records import CONSTANT, NODE, SPLIT, Candidates, Nodes, best_by_node, empty_candidates
from dtrees.split.numbers.hashing import LEFT, RIGHT, mix_each
from dtrees.tree.category_sets import CategorySets

_NOTHING = np.empty(0, np.int64)
#: Where the rows in sample of nodes end, and where all of their rows end.
Stops = tuple[NDArray[np.int64], NDArray[np.int64]]


class NodeTable:
    """The places and properties of the nodes of the current tree. Grows as nodes are added."""

    def __init__(self, n_sums: int) -> None:
        self.start = np.zeros(64, np.int64)
        self.in_stop = np.zeros(64, np.int64)
        self.stop = np.zeros(64, np.int64)
        self.depth = np.zeros(64, np.int64)
        self.path = np.zeros(64, np.uint64)
        self.sums = np.zeros((64, n_sums), np.int64)

    def open(self, n_in: int, n_rows: int, path: np.uint64, sums: NDArray[np.int64]) -> None:
        """Begin another tree, whose root has all rows."""
        self.start[0], self.in_stop[0], self.stop[0], self.depth[0] = 0, n_in, n_rows, 0
        self.path[0], self.sums[0] = path, sums

    def divide(self, nodes: NDArray[np.int64], left: NDArray[np.int64], left_stops: Stops, by_level: bool = False) -> None:
        """Add the children of nodes, without their sums. The children ``left`` end at the given places; the right ones follow them.

        ``by_level`` is as for :class:`~dtrees.engine.plan.plans.Rules`.
        """
        right, (left_in_stop, left_stop) = left + 1, left_stops
        self.reserve(int(right.max(initial=0)) + 1)
        start, in_stop, stop, path = self.start[nodes], self.in_stop[nodes], self.stop[nodes], self.path[nodes]
        self.start[left], self.in_stop[left], self.stop[left] = start, left_in_stop, left_stop
        self.start[right], self.in_stop[right], self.stop[right] = left_stop, left_stop + (in_stop - left_in_stop), stop
        self.depth[left] = self.depth[right] = self.depth[nodes] + 1
        self.path[left] = mix_each(path ^ LEFT)
        self.path[right] = mix_each(path ^ (LEFT if by_level else RIGHT))

    def extract(self, nodes: NDArray[np.int64]) -> NodeTable:
        """Return a separate table of some nodes, whose rows follow each other there.

        Node 0 of that table has the rows of all these nodes, which come after it.
        """
        one, mine = NodeTable(self.sums.shape[1]), slice(1, nodes.shape[0] + 1)
        one.reserve(nodes.shape[0] + 1)
        stop = np.cumsum(self.stop[nodes] - self.start[nodes])
        moved = stop - self.stop[nodes]
        one.in_stop[0] = one.stop[0] = (self.stop[nodes] - self.start[nodes]).sum()
        one.start[mine], one.in_stop[mine], one.stop[mine] = self.start[nodes] + moved, self.in_stop[nodes] + moved, stop
        for name in ("depth", "path", "sums"):
            getattr(one, name)[mine] = getattr(self, name)[nodes]
        return one

    def roots(self, nodes: NDArray[np.int64], origin: NDArray[Any], depth: NDArray[np.int64] | None = None) -> Roots:
        """Return nodes as roots of subtrees to be grown; ``depth`` replaces their depths."""
        arrays = self.start[nodes], self.in_stop[nodes], self.stop[nodes], self.depth[nodes] if depth is None else depth
        places = list(zip(*(array.tolist() for array in arrays), strict=True))
        return Roots(places, self.path[nodes], self.sums[nodes], origin)

    def reserve(self, n: int) -> None:
        """Allocate ``n`` nodes."""
        size = self.start.shape[0]
        if n > size:
            for name, array in vars(self).items():
                setattr(self, name, _enlarge(array, max(n, 2 * size)))


class KnownSets:
    """Sets of categories, found by the places of the nodes' rows in the row partition of the whole table.

    The place identifies a node, as no two split nodes have the same.

    Examples
    --------
    >>> known = KnownSets()
    >>> splits = np.array([(0, 9), (9, 12)], [("start", np.int64), ("in_stop", np.int64)])
    >>> known.add(splits, CategorySets.of(np.array([1]), [np.array([3])]))
    >>> len(known.sets)
    1
    """

    def __init__(self) -> None:
        self.sets: dict[tuple[int, int], NDArray[np.uint32]] = {}

    def add(self, records: NDArray[Any], sets: CategorySets) -> None:
        """Store the sets of nodes, given the records that ``sets.node`` refers to."""
        for i, words in sets.by_node.items():
            self.sets[_place(records[i])] = words

    def lacking(self, records: NDArray[Any]) -> NDArray[np.int64]:
        """Return the indices of the records whose sets are not known yet."""
        return np.array([i for i in range(records.shape[0]) if _place(records[i]) not in self.sets], np.int64)

    def of_tree(self, records: NDArray[Any], rules: Rules) -> CategorySets:
        """Return the sets of a tree with categorical columns, given the records of all its nodes."""
        node = splits_of_categories(records, rules)[0]
        return CategorySets.of_words({int(i): self.sets[_place(records[i])] for i in node.tolist()})


def _place(record: Any) -> tuple[int, int]:
    return int(record["start"]), int(record["in_stop"])


class Grower:
    """Decides about the nodes of one tree.

    Parameters
    ----------
    limits : SplitLimits
    stops : NodeLimits
    most_splits : int
        The largest number of splits, 0 if it is not limited.
    n_columns : int
        The number of columns of the tree.
    subtree_rows : int
        Nodes of up to this many rows are grown to their end by one shard, or one thread.
    table : NodeTable
        The nodes of the tree, with the root.

    Attributes
    ----------
    table : NodeTable
        The places and properties of the nodes.
    n_nodes : int
        The number of nodes, excluding those below the nodes that a single shard grows.
    origin : ndarray
        The origin of each node, if leaves are limited (:mod:`dtrees.split.grow.best_first`).
    to_grow : list of int
        The nodes that are grown to their ends by one shard.
    sets : KnownSets
        The sets of categories that are known so far.
    outside : list of (ndarray, ndarray)
        Records of subtrees grown by one shard, and their rows out of sample.
    """

    def __init__(
        self, limits: SplitLimits, stops: NodeLimits, most_splits: int, n_columns: int, subtree_rows: int, table: NodeTable
    ) -> None:
        self._limits, self._stops, self._most_splits, self._n_columns = limits, stops, most_splits, n_columns
        self._first, self._n_first = np.zeros(most_splits, RANKED), 0  # the first known splits
        self._subtree_rows, self.table = subtree_rows, table
        self.n_drawn, self.n_nodes = min(stops.max_features, n_columns), 1
        self._records = np.zeros(64, NODE)  # without places, which the table has
        # Only if leaves are limited: the origin of each node, and the rank of its split, if it has one.
        self.origin, self._rank = np.zeros(64, ORIGIN), np.zeros(64)
        self.origin[:1] = origins(1)
        self._pending: list[tuple[NDArray[np.int64], Candidates]] = []  # nodes with a split, and these
        self._subtrees: dict[int, Nodes] = {}
        self.to_grow: list[int] = []
        self._dealt = _NOTHING, _NOTHING  # nodes and their shards
        self.sets, self.outside = KnownSets(), list[tuple[NDArray[Any], NDArray[np.uint32]]]()
        self._set_leaf(np.zeros(1, np.int64))
        self.to_search = self._sort_out(np.zeros(1, np.int64))

    def _set_leaf(self, nodes: NDArray[np.int64]) -> None:
        for name in ("left", "right", "column"):
            self._records[name][nodes] = -1
        self._records["gain"][nodes] = 0.0

    def _reserve(self, n: int) -> None:
        self.table.reserve(n)
        size = self._rank.shape[0]
        if n > size:
            n = max(n, 2 * size)
            self._records, self.origin, self._rank = (_enlarge(array, n) for array in (self._records, self.origin, self._rank))

    def _sort_out(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the new nodes that are to be searched; leaves and roots of subtrees are recorded elsewhere."""
        table = self.table
        n_rows = table.in_stop[nodes] - table.start[nodes]
        weights = node_weights(self._limits.criterion, table.sums[nodes])
        inner = may_be_split.py_func(self._stops, n_rows, table.depth[nodes], weights)
        small = n_rows <= self._subtree_rows
        self.to_grow.extend(nodes[inner & small].tolist())
        return nodes[inner & ~small]

    def accept(self, nodes: NDArray[np.int64], found: Candidates) -> NDArray[np.int64]:
        """Accept the best candidates of nodes; return the nodes whose remaining columns must be searched too.

        As in scikit-learn, drawing goes on beyond ``max_features`` while all columns drawn are constant in the node.
        """
        status = found.records["status"]
        is_split = status == SPLIT
        split, found = nodes[is_split], found.take(is_split)
        self._pending.append((split, found))
        if self._most_splits:
            gains, ranks = np.ascontiguousarray(found.records["gain"]), np.empty(split.shape[0])
            self._n_first = rank_splits(self._first, self._n_first, split, self.origin[split], gains, ranks)
            self._rank[split] = ranks
        if self.n_drawn >= self._n_columns:
            return _NOTHING
        return nodes[status == CONSTANT]

    @property
    def is_last(self) -> bool:
        """Return whether the splits just chosen are the last ones: all nodes that they lead to are leaves."""
        return not (self.to_search.shape[0] or self.to_grow)

    def choose(self) -> Splits | None:
        """Return the next splits to apply and number their children, or return None if the tree is complete."""
        pending, self._pending = self._pending, []
        node = np.concatenate([_NOTHING, *(nodes for nodes, _ in pending)])
        order = np.argsort(node)
        if self._most_splits:
            order = order[are_first(self._first, self._n_first, node[order], self._rank[node[order]])]
        if not order.shape[0]:
            return None
        node, found, left_sums = node[order], *(np.concatenate(of)[order] for of in zip(*(some for _, some in pending), strict=True))
        left = self.n_nodes + 2 * np.arange(node.shape[0])
        self.n_nodes += 2 * node.shape[0]
        self._reserve(self.n_nodes)
        splits = Splits(node, left, found["column"], found["threshold"], found["missing_left"], found["n_left"])
        records, table, right = self._records, self.table, left + 1
        records["left"][node], records["right"][node] = left, right
        for name in ("column", "threshold", "missing_left", "gain"):
            records[name][node] = found[name]
        table.sums[left], table.sums[right] = divide_sums(self._limits.criterion, found["column"], table.sums[node], left_sums)
        table.depth[left] = table.depth[right] = table.depth[node] + 1
        if self._most_splits:
            for side in range(2):
                for name, values in (("parent", node), ("side", side), ("rank", self._rank[node])):
                    self.origin[name][left + side] = values
        # Numbers of rows are known before their places, and suffice to sort out the children.
        table.start[left], table.in_stop[left] = 0, splits.n_left
        table.start[right], table.in_stop[right] = splits.n_left, table.in_stop[node] - table.start[node]
        children = np.stack([left, right], axis=1).ravel()
        self._set_leaf(children)
        self.to_search = self._sort_out(children)
        return splits

    def first_splits(self) -> NDArray[Any]:
        """Return the first known splits of the tree."""
        return self._first[: self._n_first]

    def places(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the places of the rows of nodes: the first, the one after the rows in sample, and the one after all rows."""
        return self.table.start[nodes], self.table.in_stop[nodes], self.table.stop[nodes]

    def records_of(self, nodes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the records of nodes."""
        records = self._records[nodes]
        records["start"], records["in_stop"], records["stop"] = self.places(nodes)
        return records

    def about(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of rows, the sums and the depths of nodes."""
        start, _, stop = self.places(nodes)
        return stop - start, self.table.sums[nodes], self.table.depth[nodes]

    def settle(self, nodes: NDArray[np.int64], thresholds: NDArray[np.float64]) -> None:
        """Set the thresholds of nodes that have been split, if these are known only afterwards."""
        self._records["threshold"][nodes] = thresholds

    def deal(self, first: int, n_shards: int, most_rows: int, to_one: bool = False) -> list[list[NDArray[np.int64]]]:
        """Deal the nodes to be grown to shards; return the nodes of each shard, batch by batch.

        The shards get nodes in turn from number ``first`` on, in descending order of size, or that shard gets all. A batch has about
        ``most_rows`` rows, or one node.
        """
        if not self.to_grow:
            return []
        nodes = np.array(self.to_grow, np.int64)
        sizes = self.about(nodes)[0]
        order = np.argsort(-sizes, kind="stable")
        nodes, shard = self._dealt = nodes[order], (first + np.arange(nodes.shape[0]) * (not to_one)) % n_shards
        cuts = np.flatnonzero(np.diff(np.cumsum(sizes[order]) // max(1, most_rows))) + 1
        batches = zip(np.split(nodes, cuts), np.split(shard, cuts), strict=True)
        return [[some[of_shard == i] for i in range(n_shards)] for some, of_shard in batches]

    def growers_of(self, start: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
        """Return the shard that got the node above each leaf, which starts at ``start``; ``otherwise`` if no shard got one."""
        nodes, shard = self._dealt
        if not nodes.shape[0]:
            return np.full(start.shape[0], otherwise)
        first, _, stop = self.places(nodes)
        order = np.argsort(first)
        node = order[np.searchsorted(first[order], start, side="right") - 1]
        return np.where((first[node] <= start) & (start < stop[node]), shard[node], otherwise)

    def attach(self, nodes: list[int], subtrees: list[Nodes]) -> None:
        """Insert subtrees grown elsewhere, each in place of a node."""
        self._subtrees.update(zip(nodes, subtrees, strict=True))

    def attach_delegated(self, nodes: NDArray[np.int64], grown: DelegatedNodes) -> None:
        """Insert subtrees that a shard has grown, with their sets of categories and rows out of sample."""
        subtrees = [packed.unpacked() for packed in grown.subtrees]
        self.attach(nodes.tolist(), subtrees)
        for subtree, outside, sets in zip(subtrees, grown.outside, grown.sets, strict=True):
            self.sets.add(subtree.records, sets)
            if outside.shape[0]:
                self.outside.append((subtree.records, outside))

    def arrange(self) -> Nodes:
        """Return all nodes in preorder."""
        n = self.n_nodes
        return join_subtrees(Nodes(self.records_of(np.arange(n)), self.table.sums[:n]), self._subtrees)


def merge(found: list[tuple[Candidates, NDArray[np.int64]]]) -> Candidates:
    """Return the best candidate of each node over all shards, given the candidates of each shard and their places among the columns drawn.

    If columns are searched one after the other (places differ), the first column that varies counts; among candidates of one place, the
    order of splits.
    """
    if len(found) == 1:
        return found[0][0]
    n, n_sums = found[0][0].left.shape
    first = np.min([place for _, place in found], axis=0)
    best = empty_candidates(n, n_sums)
    every = np.arange(n)
    for candidates, place in found:
        which = place == first
        best_by_node(candidates.take(which), every[which], best)
    return best


def _enlarge(array: NDArray[Any], n: int) -> NDArray[Any]:
    larger = np.zeros((n, *array.shape[1:]), array.dtype)
    larger[: array.shape[0]] = array
    return larger
