"""The steps of one tree over shards of rows, and the decisions in each.

Every shard takes these steps (:class:`~dtrees.engine.protocol.exchange.Shards`). The best split of a node is the best that any searcher has
found in its columns::

    sizes       if rows are drawn by their gradients, count gradients by size
    derived     compute gradients; for a forest, draw rows
    sums        convert gradients to fixed point and sum the root; or divide nodes, report row counts, and sum some of the children. Sums
                go to the searchers of columns, which add them up, exchange the best gains at zone edges, flag the parts that may hold a
                better split, receive the rows in these, and find the best splits in their columns (:mod:`dtrees.engine.rows.levels`)
    level       send the best splits to all
    delegated   send the rows of small nodes, each node to the shard that grows it to its end
    subtrees    send the grown subtrees to all
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.beyond_sums import KnownSets, sets_of
from dtrees.engine.outcome.ending import draft_tree, finish_tree
from dtrees.engine.outcome.values import pruned
from dtrees.engine.plan.node_limits import StoredSums, constraints_of, noise_of
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, Turn
from dtrees.engine.protocol.messages import Root, ShardsDisagree
from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.levels import Columns, Found, Levels, RowsGrower
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.whole import exponent_of, exponents_of, find_cuts, leaf_quantiles, leaf_steps
from dtrees.engine.shard.targets.scales import Derived
from dtrees.split.criteria.constraints import root_words
from dtrees.split.node.records import NO_SPLIT, Nodes, midpoint
from dtrees.split.numbers import hashing
from dtrees.split.policy import SHARED_CELLS
from dtrees.split.zones.sums import size_shift
from dtrees.tree.tree import Tree

#: Largest number of rows of a node that is grown to its end by one shard.
SENT_ROWS = 1024
#: Numbers by which shards know some of the leaves of a tree, and the numbers of these leaves in the tree.
_Known = tuple[NDArray[np.int64], NDArray[np.int64]]


def boosted_tree_steps(shards: Shards, rows: RowsInTree, tree: int, output: int, learning_rate: float) -> Steps[tuple[Tree, _Known]]:
    """Grow one tree; return it, and the numbers by which shards know its leaves.

    The parameters are those of :func:`dtrees.engine.shard.tree.tree_steps`.
    """
    cuts = yield from find_cuts(shards, rows)
    found = rows.begin(tree, output, cuts)
    if found is not None:
        rows.boosting.draw_by_gradient(tree - output, np.concatenate((yield from shards.gather("sizes", found)), axis=1))
    derived = yield from shards.gather("derived", rows.derive(output))
    plan, exponents = shards.boosting, (yield from exponents_of(shards, rows, derived))
    nodes, grown, leaves, noise = yield from grow_nodes(Levels(shards, rows), tree, derived, exponents, learning_rate=learning_rate)
    steps = None
    if plan.loss.measures_leaves:
        steps = yield from leaf_quantiles(shards, rows, grown, output, leaves, cuts)
    elif plan.separate_steps:
        of_steps = exponents[0], (yield from exponent_of(shards, rows, derived, 2))
        steps = yield from leaf_steps(shards, rows, grown, leaves, of_steps, plan.rules)
    return finish_tree(plan, nodes, exponents, grown, steps, learning_rate, noise)[0], leaves


def _leaves_known(records: NDArray[Any], known: dict[tuple[int, int], int]) -> _Known:
    """Return the numbers by which shards know leaves of a tree, and the numbers of these leaves in the tree."""
    leaf = np.flatnonzero(records["column"] < 0)
    places = zip(records["start"][leaf].tolist(), records["in_stop"][leaf].tolist(), strict=True)
    numbers = np.array([known.get(place, -1) for place in places], np.int64)
    mine = numbers >= 0
    return numbers[mine], leaf[mine]


def grow_nodes(
    levels: Levels, tree: int, derived: list[Derived], exponents: tuple[int, int], rounded: int = 0, learning_rate: float = 1.0
) -> Steps[tuple[Nodes, Tree, _Known, float]]:
    """Return the nodes of a tree in preorder, its draft, the numbers by which shards know its leaves, and the gain of splits by chance.

    Parameters
    ----------
    levels : Levels
    tree : int
    derived : list of Derived
        The :class:`Derived` of each shard.
    exponents : tuple of int
        The exponents of the powers of two that scale gradients and hessians.
    rounded : int, default=0
        Rounding error by which the sizes of all rows may exceed those of the shards, besides one for each row.
    """
    shards, n_in = levels.shards, sum(one.n_in for one in derived)
    size = math.ldexp(sum(one.sums[0] for one in derived), exponents[0]) + n_in + rounded
    shift = int(size_shift.py_func(min(int(size), 2**62))) if math.isfinite(size) else 32
    if n_in > shards.sent_rows:
        levels.plan_root(n_in)
    totals, slope, sums = levels.rows.fix(exponents, levels.summed, shift)
    to_send = {shard: (totals, np.array(slope), *sums.get(shard, ())) for shard in shards.everyone}
    sent = yield shards.step("sums", to_send, shards.everyone)
    constraints, added = constraints_of(shards.plan.rules), np.sum([one[0] for one in sent], axis=0)
    of_all, noise = added[:-1], noise_of(shards.plan.rules, n_in, added[:-1], int(added[-1]))
    of_root = of_all if constraints is None else np.concatenate([of_all, root_words(constraints)])
    root = Root(n_in, n_in, of_root, exponents, float(np.max([one[1] for one in sent])), shift, noise)
    growth = _Growth(levels, tree, root)
    yield from growth.grow(sent)
    return growth.draft(learning_rate)


class _Growth:
    """The nodes of the current tree."""

    def __init__(self, levels: Levels, tree: int, root: Root) -> None:
        shards, rules, stored = levels.shards, levels.shards.plan.rules, StoredSums.of(levels.shards.plan)
        self._levels, self._shards, self._tree, self._root = levels, shards, tree, root
        self._grower = RowsGrower(rules, stored.n_classes, rules.columns_per_tree, root, shards.sent_rows, stored.targets)
        self._path: dict[int, Any] = {0: hashing.ROOT}
        self._cells_of_row = stored.cells_sent(rules)
        self._delegated: list[tuple[int, int]] = []  # places of nodes that a single shard has grown to their ends
        self._sets = KnownSets()
        # For nodes with a split: the next value above each cut, and the words of sets of categories.
        self._above: dict[int, float] = {}
        self._words: dict[int, NDArray[np.uint32]] = {}

    def grow(self, every: list[Arrays]) -> Steps[None]:
        """Grow all nodes, given the payloads of all shards about the root: totals, slope and sums."""
        shards, grower, levels = self._shards, self._grower, self._levels
        while (nodes := grower.to_search).shape[0]:
            levels.open(grower, self._root, Columns(shards, self._tree, [self._path[node] for node in nodes.tolist()]))
            scanned, flagged, pure = yield from levels.search([one[2:] for one in every])
            every.clear()  # the memory is needed to receive the next sums
            yield from self._accept(nodes, (yield from levels.found(scanned, flagged)), pure)
            if (splits := grower.choose()) is None:
                break
            cut, sums = self._divide(splits)
            to_send = {shard: (*cut, *sums.get(shard, ())) for shard in shards.everyone}
            every = yield shards.step("sums", to_send, shards.everyone)
            self._settle(splits, [s.Cut(*one[:2]) for one in every])
        yield from self._grow_small()
        shards.grain.adapt()

    def _accept(self, nodes: NDArray[np.int64], best: Found, pure: NDArray[np.intp]) -> Steps[None]:
        """Accept the best splits of nodes, except nodes with a constant target."""
        found, above, words = best
        found.records["status"][pure] = NO_SPLIT
        constant = self._grower.accept(nodes, found)
        if constant.shape[0]:
            at = np.searchsorted(nodes, constant)
            rest, above[at], more = yield from self._levels.search_rest(at)
            self._grower.accept(constant, rest)
            words |= more
        self._words = {int(nodes[i]): some for i, some in words.items()}
        self._above = dict(zip(nodes.tolist(), above.tolist(), strict=True))

    def _divide(self, splits: Splits) -> tuple[s.Cut, dict[int, Arrays]]:
        """Divide the rows of nodes on this shard, and sum some of the children."""
        grower, nodes, by_level = self._grower, splits.node.tolist(), self._shards.plan.rules.by_level
        grower.lay_out(splits)
        parents = np.array([self._path[node] for node in nodes], np.uint64)
        for side in range(2):
            sides = np.full(parents.shape[0], side and not by_level, np.int64)
            self._path.update(zip((splits.left + side).tolist(), hashing.child_paths(parents, sides), strict=True))
        self._levels.plan(grower, splits)
        sets = sets_of({i: self._words[node] for i, node in enumerate(nodes) if node in self._words})
        self._sets.add(grower.records_of(splits.node), sets)
        self._next_above = np.array([self._above[node] for node in nodes])
        self._by_set = sets.node
        return self._levels.rows.divide(splits, np.isnan(self._next_above), sets, self._levels.summed, self._root.shift)

    def _settle(self, splits: Splits, cuts: list[s.Cut]) -> None:
        """Set the thresholds of splits, after all shards have divided their nodes.

        Raises
        ------
        ShardsDisagree
        """
        if not np.array_equal(sum(cut.n_left for cut in cuts), splits.n_left):
            raise ShardsDisagree(f"shards have divided nodes of tree {self._tree} otherwise than their splits say")
        thresholds = splits.threshold.copy()
        if not self._shards.plan.rules.random_splits:
            above = np.where(np.isnan(self._next_above), np.min([cut.above for cut in cuts], axis=0), self._next_above)
            pairs = zip(splits.threshold.tolist(), above.tolist(), strict=True)
            thresholds = np.array([math.inf if high == math.inf else midpoint(low, high) for low, high in pairs])
        thresholds[self._by_set] = splits.threshold[self._by_set]  # codes of splits on categories, not thresholds
        self._grower.settle(splits.node, thresholds)

    def draft(self, learning_rate: float) -> tuple[Nodes, Tree, _Known, float]:
        """Return the result of :func:`grow_nodes`."""
        plan, exponents = self._shards.plan, self._root.exponents
        start, stop, _ = self._grower.places(np.arange(self._grower.n_nodes))
        known = {place: node for node, place in enumerate(zip(start.tolist(), stop.tolist(), strict=True))}
        for place in self._delegated:
            del known[place]
        nodes, _ = pruned(self._grower.arrange(), exponents, plan.rules)
        tree = draft_tree(plan, nodes, exponents, learning_rate, self._root.noise)
        if plan.rules.categorical:
            tree = tree.with_categories(self._sets.of_tree(nodes.records, plan.rules))
        return nodes, tree, _leaves_known(nodes.records, known), self._root.noise

    def _deal(self) -> list[list[NDArray[np.int64]]]:
        """Return the nodes of each batch, for each shard."""
        nodes, n_shards = np.array(self._grower.to_grow, np.int64), self._shards.n_shards
        if not nodes.shape[0]:
            return []
        n_rows = self._grower.about(nodes)[0]
        order = np.argsort(-n_rows, kind="stable")  # in descending order of size, dealt to the shards in turn
        shard = np.empty(nodes.shape[0], np.int64)
        shard[order] = (self._tree + np.arange(nodes.shape[0])) % n_shards
        at_once = max(1, SHARED_CELLS * n_shards // self._cells_of_row)
        batches = np.split(order, np.flatnonzero(np.diff(np.cumsum(n_rows[order]) // at_once)) + 1)
        return [[nodes[batch[shard[batch] == i]] for i in range(n_shards)] for batch in batches]

    def _grow_sent(self, groups: list[NDArray[np.int64]]) -> Steps[s.Subtrees | None]:
        """Send the rows of some nodes to the shards that grow them, and grow those of this shard, if any."""
        yield Turn(sum(int(self._grower.about(group)[0].sum()) for group in groups) * self._cells_of_row)
        shards, nodes = self._shards, groups[self._shards.shard]
        senders = shards.everyone if nodes.shape[0] else ()
        sent = yield shards.step("delegated", self._levels.rows.send_rows(groups), senders)
        if not nodes.shape[0]:
            return None
        _, sums, depth = self._grower.about(nodes)
        paths = np.array([self._path[node] for node in nodes.tolist()], np.uint64)
        about = s.GrowSent(self._tree, self._root, depth, paths, sums, self._grower.origin_of(nodes), self._grower.first_splits())
        return self._levels.rows.grow_sent(about, sent)

    def _grow_small(self) -> Steps[None]:
        """Have small nodes grown to their ends by one shard each, in batches that fit the memory; attach all subtrees."""
        all_grown = []
        for groups in self._deal():
            own = yield from self._grow_sent(groups)
            replies = yield from self._shards.gather("subtrees", own)
            all_grown += [(nodes, one) for nodes, one in zip(groups, replies, strict=True) if one is not None]
        for nodes, grown in all_grown:
            first, last, _ = (some.tolist() for some in self._grower.places(nodes))
            subtrees = [packed.unpacked() for packed in grown.nodes]
            for subtree, sets, start in zip(subtrees, grown.sets, first, strict=True):
                by = start - int(subtree.records["start"][0])
                for name in ("start", "in_stop", "stop"):
                    subtree.records[name] = subtree.records[name].astype(np.int64) + by
                self._sets.add(subtree.records, sets)
            self._grower.attach(nodes.tolist(), subtrees)
            self._delegated += zip(first, last, strict=True)
