"""One tree over shards of rows: the steps that it is grown in, and what is decided in each.

Every shard takes them (:mod:`dtrees.engine.rows.between.shards`). This is what shards do in each; the best split of a node is the best of
those that the searchers of columns have found::

    derive      compute gradients; of a forest, draw rows
    fix         put gradients in fixed point, sum the root, and search it as nodes of a level are
    level       divide nodes, and sum some of their children; sums go to searchers of columns, which put them together, tell one another how
                good the best split at an edge of a zone is, flag the parts that may hold a better one, are sent the rows in there, and
                find the best splits in their columns (:class:`~dtrees.engine.rows.growing.TreeOfShards`)
                The last one has nodes of few rows grown to their ends, each by one shard, to which all send their rows
    grow_apart  grow further ones, if those have too many rows for one exchange
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.grower import Grower
from dtrees.engine.outcome.ending import draft_tree, finish_tree
from dtrees.engine.outcome.values import pruned
from dtrees.engine.plan.node_limits import SumsKept, constraints_of
from dtrees.engine.protocol.messages import Root
from dtrees.engine.protocol.splits import Splits
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.between.shards import Shards, Steps
from dtrees.engine.rows.categories.known_sets import KnownSets, sets_of, words_of
from dtrees.engine.rows.growing import TreeOfShards
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.session import RowsDisagree
from dtrees.engine.rows.whole_leaves import find_cuts, leaf_quantiles, leaf_steps
from dtrees.engine.rows.whole_sums import exponent_of, exponents_of
from dtrees.engine.shard.targets.prepared import Derived
from dtrees.split.criteria.constraints.words import root_words
from dtrees.split.node.candidate import Candidates, best_by_node, empty_candidates, midpoint
from dtrees.split.node.records import Nodes
from dtrees.split.node.status import CONSTANT, NO_SPLIT
from dtrees.split.numbers import hashing
from dtrees.split.policy import FOLD, MAX_ZONES, ROWS_PER_PART, SHARED_CELLS
from dtrees.split.zones.sums import grain_for, size_shift
from dtrees.tree.tree import Tree

#: Up to how many rows a node is grown to its end by one shard.
SENT_ROWS = 1024
#: Nodes are summed by parts of so many rows each, more than in one process, as sums are sent. Late trees of 1M x 28 on two shards send
#: 16.9 MB instead of 21.4 for it, in 0.92 of the time of a processor; trees of noise 16.4 instead of 18.9, in as much time.
_ROWS_PER_PART = 4 * ROWS_PER_PART
_NOTHING = np.empty(0, np.int64)
#: The best splits of nodes, the next value above each cut (NaN: not known), and the words of their sets of categories, by node.
_Found = tuple[Candidates, NDArray[np.float64], dict[int, NDArray[np.uint32]]]

#: The numbers by which shards know some of the leaves of a tree, and the numbers of these in the tree.
_Known = tuple[NDArray[np.int64], NDArray[np.int64]]


class _RowsGrower(Grower):
    """A grower that is told thresholds after the splits, since they take a look at all rows."""

    def settle(self, nodes: NDArray[np.int64], thresholds: NDArray[np.float64]) -> None:
        """Write the thresholds of nodes that have been split."""
        self._nodes.records["threshold"][nodes] = thresholds

    def lay_out(self, splits: Splits) -> None:
        """Note where the rows of children would lie if all rows were in one place."""
        records = self._nodes.records
        start, stop = (records[name][splits.node].astype(np.int64) for name in ("start", "in_stop"))
        middle = start + splits.n_left
        for children, first, last in ((splits.left, start, middle), (splits.left + 1, middle, stop)):
            records["start"][children], records["in_stop"][children], records["stop"][children] = first, last, last

    def records_of(self, nodes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the records of nodes."""
        return self._nodes.records[nodes]

    def about(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of rows, sums and depths of nodes."""
        records = self._nodes.records[nodes]
        return records["in_stop"].astype(np.int64) - records["start"], self._nodes.sums[nodes], self._depth[nodes]

    def in_stop_of_all(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the rows of each node would begin and end."""
        records = self._nodes.records[: self._n]
        return records["start"].astype(np.int64), records["in_stop"].astype(np.int64)


def boosted_tree_steps(shards: Shards, rows: RowsInTree, tree: int, output: int, learning_rate: float) -> Steps[tuple[Tree, _Known]]:
    """Grow one tree; return it, and what shards know of its leaves.

    Parameters are those of :func:`dtrees.engine.coordinator.tree.grow_tree`.
    """
    cuts = yield from find_cuts(shards, rows)
    derived = yield from shards.gather("derived", rows.derive(tree, output, cuts))
    plan, exponents = shards.boosting, (yield from exponents_of(shards, rows, derived))
    nodes, known, sets = yield from grow_nodes(TreeOfShards(shards, rows), tree, derived, exponents)
    nodes, _ = pruned(nodes, exponents, plan.rules)
    leaves = leaves_known(nodes.records, known)
    grown, steps = draft_tree(plan, nodes, exponents, learning_rate), None
    if plan.rules.categorical:
        grown = grown.with_categories(sets.of_tree(nodes.records, plan.rules))
    if plan.loss.measures_leaves:
        steps = yield from leaf_quantiles(shards, rows, grown, output, leaves, cuts)
    elif plan.steps_apart:
        of_steps = exponents[0], (yield from exponent_of(shards, rows, derived, 2))
        steps = yield from leaf_steps(shards, rows, grown, leaves, of_steps, plan.rules)
    return finish_tree(plan, nodes, exponents, grown, steps, learning_rate)[0], leaves


def checksum(trees: Sequence[Tree]) -> int:
    """Return a number that trees and others have in common, if they are the same."""
    total = 0
    for tree in trees:
        for array in (tree.children_left, tree.feature, tree.threshold, tree.missing_go_to_left, tree.value, *tree.categories):
            total = zlib.crc32(np.ascontiguousarray(array).data, total)
    return total


def leaves_known(records: NDArray[Any], known: dict[tuple[int, int], int]) -> _Known:
    """Return the numbers by which shards know leaves of a tree, and the numbers of these in the tree."""
    leaf = np.flatnonzero(records["column"] < 0)
    places = zip(records["start"][leaf].tolist(), records["in_stop"][leaf].tolist(), strict=True)
    numbers = np.array([known.get(place, -1) for place in places], np.int64)
    mine = numbers >= 0
    return numbers[mine], leaf[mine]


def grow_nodes(
    growing: TreeOfShards[Any], tree: int, derived: list[Derived], exponents: tuple[int, int], rounded: int = 0
) -> Steps[tuple[Nodes, dict[tuple[int, int], int], KnownSets]]:
    """Return the nodes of a tree, in preorder, and the numbers by which shards know nodes, by their places.

    The sets of categories of its splits come last.

    Parameters
    ----------
    growing : TreeOfShards
    tree : int
    derived : list of Derived
        Of each shard.
    exponents : tuple of int
        The powers of two that gradients and hessians are multiplied by.
    rounded : int, default=0
        By how much more the sizes of all rows may be than the shards said, for rounding, beside one for each row.
    """
    shards = growing.shards
    plan = shards.plan
    n_in = sum(one.n_in for one in derived)
    size = math.ldexp(sum(one.sums[0] for one in derived), exponents[0]) + n_in + rounded
    shift = int(size_shift.py_func(min(int(size), 2**62))) if math.isfinite(size) else 32
    kept = SumsKept.of(plan)
    planner = (_RandomLevels if plan.rules.random_splits else _Levels)(growing)
    path, constraints = {0: hashing.ROOT}, constraints_of(plan.rules)
    constrained = _NOTHING if constraints is None else root_words(constraints)
    columns, known_sets, search = _Columns(shards, tree, [path[0]]), KnownSets(), None
    if n_in > shards.sent_rows:
        unknown = s.Rooted(n_in, np.concatenate([np.zeros(kept.n_sums, np.int64), constrained]), exponents, 0.0, shift)
        search = planner.search_root(unknown, columns)
    summed = s.Levelled(_NOTHING, _NOTHING) if search is None else search.summed
    fixed = yield from growing.fix(exponents, summed, shift, search)
    totals, levelled = [one.totals for one in fixed], [one.levelled for one in fixed if one.levelled is not None]
    sums = np.concatenate([np.sum([one.sums for one in totals], axis=0), constrained])
    root = s.Rooted(n_in, sums, exponents, max(one.slope for one in totals), shift)
    whole = Root(n_in, n_in, sums, exponents, 0, None)
    grower = _RowsGrower(plan.rules, kept.n_classes, plan.rules.columns_per_tree, whole, shards.sent_rows, kept.targets)
    apart = _Apart(growing, grower, tree, root, path)
    if not grower.to_search.shape[0]:
        search = None
    while True:
        if search is not None:
            found, above, words = planner.found(search, levelled)
            if (pure := levelled[0].pure) is not None:
                found.records["status"][pure] = NO_SPLIT
            constant = grower.accept(search.node, found)
            if constant.shape[0]:
                at = np.searchsorted(search.node, constant)
                rest, above[at], more = yield from planner.search_rest(columns, at)
                grower.accept(constant, rest)
                words |= more
            words_by_node = {int(search.node[i]): some for i, some in words.items()}
            next_above = dict(zip(search.node.tolist(), above.tolist(), strict=True))
        splits = grower.choose()
        if splits is None:
            break
        grower.lay_out(splits)
        parents = np.array([path[node] for node in splits.node.tolist()], np.uint64)
        for side in range(2):
            sides = np.full(parents.shape[0], side and not plan.rules.by_level, np.int64)
            path.update(zip((splits.left + side).tolist(), hashing.child_paths(parents, sides), strict=True))
        above = np.array([next_above[node] for node in splits.node.tolist()])
        summed, search, small = planner.plan(grower, splits), None, None
        if not grower.to_search.shape[0]:
            small = apart.next()
        else:
            columns = _Columns(shards, tree, [path[node] for node in grower.to_search.tolist()])
            search = planner.search(grower, root, columns)
        sets = sets_of({i: words_by_node[node] for i, node in enumerate(splits.node.tolist()) if node in words_by_node})
        known_sets.add(grower.records_of(splits.node), sets)
        levelled = yield from growing.level(
            s.Divide(
                splits.node, splits.left, splits.column, splits.threshold, splits.missing_left, np.isnan(above), summed, shift, sets
            ),
            search, small,
        )  # fmt: skip
        if small is not None:
            apart.take([one.subtrees for one in levelled])
        cuts = [one.cut for one in levelled if one.cut is not None]
        if not np.array_equal(sum(cut.n_left for cut in cuts), splits.n_left):
            raise RowsDisagree(f"shards have divided nodes of tree {tree} otherwise than their splits say")
        above = np.where(np.isnan(above), np.min([cut.above for cut in cuts], axis=0), above)
        thresholds = splits.threshold if plan.rules.random_splits else _thresholds(splits.threshold, above)
        thresholds[sets.node] = splits.threshold[sets.node]  # which are no thresholds, but numbers of splits
        grower.settle(splits.node, thresholds)
    known = {place: node for node, place in enumerate(zip(*(ends.tolist() for ends in grower.in_stop_of_all()), strict=True))}
    for place in (yield from apart.finish(known_sets)):
        del known[place]
    shards.grain.adapt()
    return grower.arrange(), known, known_sets


def _thresholds(cut: NDArray[np.float64], above: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([math.inf if high == math.inf else midpoint(low, high) for low, high in zip(cut.tolist(), above.tolist(), strict=True)])


class _Apart:
    """Small nodes of a tree, which are grown to their ends by one shard each: so many at once as they have rows for."""

    def __init__(self, growing: TreeOfShards[Any], grower: _RowsGrower, tree: int, root: s.Rooted, path: dict[int, Any]) -> None:
        self._growing, self._grower, self._tree, self._root, self._path = growing, grower, tree, root, path
        self._batches: list[list[NDArray[np.int64]]] | None = None
        self._asked: list[NDArray[np.int64]] = []
        self._grown: list[tuple[NDArray[np.int64], s.Subtrees]] = []

    def _deal(self) -> list[list[NDArray[np.int64]]]:
        """Return the nodes of each batch, for each shard; none is added to them any more."""
        nodes, n_shards = np.array(self._grower.to_grow, np.int64), self._growing.shards.n_shards
        if not nodes.shape[0]:
            return []
        n_rows, _, _ = self._grower.about(nodes)
        order = np.argsort(-n_rows, kind="stable")  # the largest first, to the shards by turns
        shard = np.empty(nodes.shape[0], np.int64)
        shard[order] = (self._tree + np.arange(nodes.shape[0])) % n_shards
        plan = self._growing.shards.plan
        at_once = max(1, SHARED_CELLS * n_shards // SumsKept.of(plan).cells_sent(plan.rules))
        batches = np.split(order, np.flatnonzero(np.diff(np.cumsum(n_rows[order]) // at_once)) + 1)
        return [[nodes[batch[shard[batch] == i]] for i in range(n_shards)] for batch in batches]

    def next(self) -> s.Apart | None:
        """Return the next batch, once no node is left that is searched by all shards; None if there is none."""
        if self._batches is None:
            self._batches = self._deal()[::-1]
        if not self._batches:
            return None
        self._asked = groups = self._batches.pop()
        n_rows = sum(int(self._grower.about(group)[0].sum()) for group in groups)
        first = self._grower.first_splits()  # one object, which is sent once
        return s.Apart(tuple(groups), tuple(self._about(group, first) if group.shape[0] else None for group in groups), n_rows)

    def _about(self, nodes: NDArray[np.int64], first: NDArray[Any]) -> s.GrowSent:
        _, sums, depth = self._grower.about(nodes)
        paths = np.array([self._path[node] for node in nodes.tolist()], np.uint64)
        return s.GrowSent(self._tree, self._root, depth, paths, sums, self._grower.origin_of(nodes), first)

    def take(self, replies: list[s.Subtrees | None]) -> None:
        """Take what has become of the batch."""
        self._grown += [(nodes, one) for nodes, one in zip(self._asked, replies, strict=True) if one is not None]

    def finish(self, known_sets: KnownSets) -> Steps[list[tuple[int, int]]]:
        """Have the batches that are left grown, and hand over all to the grower; return the places of the nodes."""
        while (apart := self.next()) is not None:
            self.take((yield from self._growing.grow_apart(apart)))
        places: list[tuple[int, int]] = []
        for nodes, grown in self._grown:
            first, last, _ = (some.tolist() for some in self._grower.places(nodes))
            subtrees = [packed.unpacked() for packed in grown.nodes]
            for subtree, sets, start in zip(subtrees, grown.sets, first, strict=True):
                by = start - int(subtree.records["start"][0])
                for name in ("start", "in_stop", "stop"):
                    subtree.records[name] = subtree.records[name].astype(np.int64) + by
                known_sets.add(subtree.records, sets)
            self._grower.attach(nodes.tolist(), subtrees)
            places += zip(first, last, strict=True)
        return places


class _Columns:
    """The columns in which nodes are searched, in the order in which they are drawn for each."""

    def __init__(self, shards: Shards, tree: int, paths: list[Any]) -> None:
        rules, seed = shards.plan.rules, hashing.as_seed(shards.plan.seed)
        n, k = shards.n_columns, rules.columns_per_tree
        self.n_drawn, self.n_columns, self.paths = min(rules.max_features, k), k, np.array(paths, np.uint64)
        self.order = np.empty((0, 0), np.int64)
        if self.n_drawn < k:
            pool = hashing.tree_columns(seed, tree, n, k) if k < n else np.arange(n, dtype=np.int32)
            key, self.order = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree)), np.empty((len(paths), k), np.int64)
            for i, path in enumerate(paths):
                drawn = pool.copy()
                hashing.draw_columns(key, path, drawn, 0, k)
                self.order[i] = np.searchsorted(pool, drawn)

    def drawn(self) -> NDArray[np.bool_]:
        """Return in which columns each node is searched at first, empty if in all."""
        found = np.zeros((self.order.shape[0], self.n_columns if self.order.shape[0] else 0), np.bool_)
        if self.order.shape[0]:
            np.put_along_axis(found, self.order[:, : self.n_drawn], True, axis=1)
        return found


class _Levels:
    """What is summed of a tree's levels, and how their nodes are searched."""

    def __init__(self, growing: TreeOfShards[Any]) -> None:
        self._growing, self._shards = growing, growing.shards
        self._grain: dict[int, int] = {}
        self._slot: dict[int, int] = {}  # of the nodes searched last
        self._tasks = np.empty((0, 4), np.int64)
        self._summed = s.Levelled(_NOTHING, _NOTHING)
        self._n_slots = 0

    def _grain_for(self, n_rows: int) -> int:
        most_grain = self._shards.grain.current
        return int(grain_for.py_func(most_grain, _ROWS_PER_PART * (MAX_ZONES - 1) << (most_grain or FOLD), n_rows))

    def search_root(self, root: s.Rooted, columns: _Columns) -> s.FindBars:
        """Return how to sum and search the root, of which nothing but its rows is known yet."""
        self._grain, self._slot = {0: self._grain_for(root.n_in)}, {0: 0}
        self._tasks, self._n_slots, self._n_sums = np.array([[0, -1, -1, 0]]), 1, root.sums.shape[0]
        first, grain, n_rows = np.zeros(1, np.int64), np.array([self._grain[0]]), np.array([root.n_in])
        self._summed = s.Levelled(first, grain)
        return s.FindBars(root, self._tasks, self._summed, 1, first, n_rows, grain, root.sums[None], columns.drawn())

    def plan(self, grower: _RowsGrower, splits: Splits) -> s.Levelled:
        """Return what to sum of the children of nodes just split: of two, the smaller, as the other's sums follow.

        Unless finer parts are wanted than those that the node was summed by.
        """
        wanted = {node: i for i, node in enumerate(grower.to_search.tolist())}
        n_rows = dict(zip(wanted, grower.about(grower.to_search)[0].tolist(), strict=True))
        grains: dict[int, int] = {}
        tasks, summed = [], []
        n_slots = len(wanted)
        n_left, n_all = splits.n_left.tolist(), grower.about(splits.node)[0].tolist()
        for parent, left, lefts, rows in zip(splits.node.tolist(), splits.left.tolist(), n_left, n_all, strict=True):
            smaller, larger = (left, left + 1) if 2 * lefts <= rows else (left + 1, left)
            if larger in wanted and self._grain[parent] < self._grain_for(n_rows[larger]):
                for node in (smaller, larger):
                    if node in wanted:
                        grains[node] = self._grain_for(n_rows[node])
                        tasks.append((wanted[node], -1, -1, wanted[node]))
                        summed.append((node, grains[node]))
            elif larger in wanted:
                grain = min(self._grain[parent], self._grain_for(n_rows[larger]))
                grains[larger] = grain
                one = wanted.get(smaller, -1)
                if one >= 0:
                    grains[smaller] = min(grain, self._grain_for(n_rows[smaller]))
                slot = one if one >= 0 else n_slots
                n_slots += one < 0
                tasks.append((one, wanted[larger], self._slot[parent], slot))
                summed.append((smaller, grain))
            elif smaller in wanted:
                grains[smaller] = self._grain_for(n_rows[smaller])
                tasks.append((wanted[smaller], -1, -1, wanted[smaller]))
                summed.append((smaller, grains[smaller]))
        self._grain, self._n_slots = grains, n_slots
        self._tasks = np.array(tasks, np.int64).reshape(-1, 4)
        pairs = np.array(summed, np.int64).reshape(-1, 2)
        self._summed = s.Levelled(pairs[:, 0].copy(), pairs[:, 1].copy())
        return self._summed

    def search(self, grower: _RowsGrower, root: s.Rooted, columns: _Columns) -> s.FindBars:
        """Return how to search the nodes that are to be searched, whose sums have been planned."""
        nodes = grower.to_search
        n_rows, sums, _ = grower.about(nodes)
        grain = np.array([self._grain[node] for node in nodes.tolist()], np.int64)
        self._slot = {node: i for i, node in enumerate(nodes.tolist())}
        self._n_sums = sums.shape[1]
        return s.FindBars(root, self._tasks, self._summed, self._n_slots, nodes, n_rows, grain, sums, columns.drawn())

    def found(self, search: s.FindBars, levelled: list[s.Levelling]) -> _Found:
        """Return the best splits of nodes in the columns drawn, and the next value above each cut (NaN: not known)."""
        n_cells = int(search.n_rows.sum()) * self._shards.plan.rules.columns_per_tree
        self._shards.grain.note(sum(one.flagged for one in levelled), n_cells)
        return self._best(levelled, search.node.shape[0])

    def search_rest(self, columns: _Columns, which: NDArray[np.int64]) -> Steps[_Found]:
        """Search some of the nodes searched last in their further columns, each up to the first that is not constant in it."""
        n, left, n_sums = columns.order.shape[0], which, self._n_sums
        best, above, words = empty_candidates(n, n_sums), np.full(n, np.nan), dict[int, NDArray[np.uint32]]()
        for place in range(columns.n_drawn, columns.n_columns):
            drawn = np.zeros((n, columns.n_columns), np.bool_)
            drawn[left, columns.order[left, place]] = True
            found, next_above, more = self._best((yield from self._growing.search_further(drawn)), n)
            best.records[left], best.left[left], above[left] = found.records[left], found.left[left], next_above[left]
            words |= {i: more[i] for i in left.tolist() if i in more}
            left = left[best.records["status"][left] == CONSTANT]
            if not left.shape[0]:
                break
        return best.take(which), above[which], words

    def _best(self, levelled: list[s.Levelling], n: int) -> _Found:
        """Return the best of what searchers have found, the next value above each cut, and the sets of splits of categories, by node."""
        scanned = [one.scanned for one in levelled if one.scanned is not None]
        best = empty_candidates(n, self._n_sums)
        every = np.arange(n)
        for one in scanned:
            best_by_node(one.candidates, every, best)
        above, words = np.full(n, np.nan), dict[int, NDArray[np.uint32]]()
        for one in scanned:
            mine = one.candidates.records["column"] == best.records["column"]
            above[mine] = one.above[mine]
            words.update((i, some) for i, some in words_of(one.sets).items() if mine[i])
        return best, above, words


class _RandomLevels(_Levels):
    """How the nodes of levels are searched where thresholds are drawn at random: each node by itself, and without zones."""

    def search_root(self, root: s.Rooted, columns: _Columns) -> s.FindBars:
        """Return how to search the root."""
        return self._all(root, np.zeros(1, np.int64), np.array([root.n_in]), root.sums[None], columns)

    def plan(self, grower: _RowsGrower, splits: Splits) -> s.Levelled:
        """Return the nodes to be searched next: of these all."""
        return s.Levelled(grower.to_search, np.zeros(grower.to_search.shape[0], np.int64))

    def search(self, grower: _RowsGrower, root: s.Rooted, columns: _Columns) -> s.FindBars:
        """Return how to search the nodes that are to be searched."""
        return self._all(root, grower.to_search, *grower.about(grower.to_search)[:2], columns)

    def _all(self, root: s.Rooted, nodes: Any, n_rows: Any, sums: NDArray[np.int64], columns: _Columns) -> s.FindBars:
        self._n_sums, every, zero = sums.shape[1], np.arange(nodes.shape[0]), np.zeros(nodes.shape[0], np.int64)
        tasks = np.stack([every, zero - 1, zero - 1, every], axis=1)
        return s.FindBars(root, tasks, s.Levelled(nodes, zero), nodes.shape[0], nodes, n_rows, zero, sums, columns.drawn(), columns.paths)
