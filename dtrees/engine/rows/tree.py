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
    leaves      for a forest whose targets are numbers, send the rows of leaves, each leaf to the shard that measures it

Forests draw rows first, and count the draws of each class if a tree weighs classes by its own rows ("draws").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import TreeOfNodes, measures
from dtrees.engine.outcome.values import places_of_leaves, pruned
from dtrees.engine.plan.node_limits import LimitsOfFit, StoredSums, constraints_of, limited_splits, noise_of
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, Turn
from dtrees.engine.protocol.messages import Root, ShardsDisagree
from dtrees.engine.protocol.nodes import NO_SUBTREES, DelegatedNodes, Splits
from dtrees.engine.rows.levels import Found, Levels
from dtrees.engine.rows.random_levels import RandomLevels
from dtrees.engine.rows.rows_in_tree import KnownLeaves, RowsInTree
from dtrees.engine.rows.whole import LeafRows, exponent_of, find_cuts, leaf_means, leaf_quantiles, leaf_steps
from dtrees.engine.shard.grower import Grower, NodeTable
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.targets.forest_target import ForestTarget, factors_of_targets
from dtrees.engine.shard.targets.scales import Derived
from dtrees.engine.shard.tree_state import TreeState
from dtrees.split.criteria.constraints import root_words
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NO_SPLIT, Nodes, midpoint
from dtrees.split.numbers.hashing import ROOT
from dtrees.split.policy import DELEGATED_PARTS, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE, SHARED_CELLS
from dtrees.split.table.columns import Columns, make_bench, number_values, sort_float64
from dtrees.split.zones.sums import size_shift
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree

#: Largest number of rows of a node that is grown to its end by one shard.
SENT_ROWS = 1024
#: Memory of an unfinished tree on a shard, in bytes: for each row (measured: 57, of which the order of rows takes 25, their draws 9 and
#: their leaves 23), for each column with three sums (measured: 64,000 to 330,000 for 60k x 100 on five shards and 1M x 8 on two), and for
#: each thread.
_ROW_BYTES, _COLUMN_BYTES, _THREAD_BYTES = 64, 350_000, 1_400_000


def rows_to_send(plan: ForestPlan, n_rows: int, n_shards: int) -> int:
    """Return the largest number of rows of a forest's node that is grown by one shard.

    If a tree is grown to its end, each drawn row is sent once, whatever this number is; a larger number means fewer levels that need an
    exchange.
    """
    at_once = SHARED_CELLS // StoredSums.of(plan).cells_sent(plan.rules)
    return max(SENT_ROWS, min(n_rows // (DELEGATED_PARTS * n_shards), at_once))


def trees_at_once(plan: ForestPlan, n_rows: int, n_threads: int, memory: float) -> int:
    """Return the number of trees that may grow side by side, limited by their memory on a shard.

    Parameters
    ----------
    plan : ForestPlan
    n_rows, n_threads : int
        Of the shard.
    memory : float
        Bytes that are free besides one tree.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import Rules
    >>> plan = ForestPlan(Rules("squared_error", max_features=9, columns_per_tree=28), seed=0, n_draws=1000)
    >>> [trees_at_once(plan, n_rows, 1, 1e12) for n_rows in (1000, 10**5, 10**6, 10**8)]
    [12, 8, 2, 1]
    >>> trees_at_once(plan, 10**5, 1, memory=0)
    1
    """
    n_sums, amounts = StoredSums.of(plan).width(True), 0 if plan.n_classes else 8 * len(plan.targets)
    of_tree = (_ROW_BYTES + amounts) * n_rows + _COLUMN_BYTES * n_sums // 3 * plan.rules.columns_per_tree + _THREAD_BYTES * n_threads
    return int(min(MOST_TREES_SIDE_BY_SIDE, 1 + max(0, min(memory, FOREST_MIN_BYTES)) // of_tree))


def boosted_tree_steps(shards: Shards, rows: RowsInTree, tree: int, output: int, learning_rate: float) -> Steps[tuple[Tree, KnownLeaves]]:
    """Grow one tree; return it, and the numbers by which shards know its leaves.

    The parameters are those of :func:`dtrees.engine.shard.tree.tree_steps`.
    """
    cuts = yield from find_cuts(shards, rows)
    found = rows.begin(tree, output, cuts)
    if found is not None:
        rows.boosting.draw_by_gradient(tree - output, np.concatenate((yield from shards.gather("sizes", found)), axis=1))
    rows.boosting.derive(output)
    derived = yield from shards.gather("derived", rows.boosting.derived())
    plan = shards.boosting
    exponents = (yield from exponent_of(shards, rows, derived, 0)), (yield from exponent_of(shards, rows, derived, 1))
    nodes, grown, known, noise = yield from grow_nodes(Levels(shards, rows, tree), derived, exponents, learning_rate=learning_rate)
    steps = None
    if plan.loss.measures_leaves:
        steps = yield from leaf_quantiles(shards, rows, LeafRows(rows, grown, known), int(grown.n_node_samples[0]), output, cuts)
    elif plan.separate_steps:
        of_steps = exponents[0], (yield from exponent_of(shards, rows, derived, 2))
        steps = yield from leaf_steps(shards, rows, LeafRows(rows, grown, known), of_steps, plan.rules)
    return TreeOfNodes(plan, nodes, exponents, learning_rate, noise).finish(grown, steps)[0], known


def forest_tree_steps(shards: Shards, rows: RowsInTree, number: int) -> Steps[Tree]:
    """Grow the tree with the given number."""
    plan, drawing = shards.forest, rows.forest.scales.drawing
    derived, exponents = yield from _drawn(shards, rows, number)
    rounded = 0 if drawing is None else drawing.n_draws * drawing.points.shape[0]
    levels = (RandomLevels if plan.rules.random_splits else Levels)(shards, rows, number)
    nodes, tree, known, _ = yield from grow_nodes(levels, derived, exponents, rounded)
    measured = (yield from leaf_means(shards, rows, tree, known)) if measures(plan) else None
    return TreeOfNodes(plan, nodes, exponents).finish(tree, measured)[0]


def _drawn(shards: Shards, rows: RowsInTree, number: int) -> Steps[tuple[list[Derived], tuple[int, int]]]:
    """Draw the rows of a tree; return the :class:`Derived` of each shard, and the exponents of targets and weights."""
    plan, factors = shards.forest, None
    if plan.balanced_subsample:
        rows.forest.draw(number)
        counts = np.sum((yield from shards.gather("draws", rows.forest.count_classes())), axis=0)
        factors = factors_of_targets(counts, plan.targets or (plan.n_classes,))
    derived = yield from shards.gather("drawn", rows.draw_rows(number, factors))
    if factors is None:
        return derived, rows.forest.scales.exponents
    exponent = yield from exponent_of(shards, rows, derived, 1)
    if all(one.integral for one in derived):
        exponent = min(exponent, 0)
    return derived, (exponent, exponent)


def grow_nodes(
    levels: Levels, derived: list[Derived], exponents: tuple[int, int], rounded: int = 0, learning_rate: float = 1.0
) -> Steps[tuple[Nodes, Tree, KnownLeaves, float]]:
    """Return the nodes of a tree in preorder, its draft, the numbers by which shards know its leaves, and the gain of splits by chance.

    Parameters
    ----------
    levels : Levels
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
    growth = _Growth(levels, root)
    yield from growth.grow(sent)
    return growth.draft(learning_rate)


class _Growth:
    """The nodes of the current tree."""

    def __init__(self, levels: Levels, root: Root) -> None:
        self._levels, self._shards, self._tree, self._root = levels, levels.shards, levels.tree, root
        rules, stored, table = self._shards.plan.rules, levels.rows.stored, NodeTable(root.sums.shape[0])
        table.open(root.n_in, root.n_rows, ROOT, root.sums)
        limits, most_splits = LimitsOfFit(rules, stored).of_tree(root.sums, root.exponents), limited_splits(rules, root.n_in)
        self._grower = Grower(*limits, most_splits, rules.columns_per_tree, self._shards.sent_rows, table)
        self._cells_of_row = stored.cells_sent(rules)

    def grow(self, every: list[Arrays]) -> Steps[None]:
        """Grow all nodes, given the payloads of all shards about the root: totals, slope and sums."""
        shards, grower, levels = self._shards, self._grower, self._levels
        while (nodes := grower.to_search).shape[0]:
            levels.open(grower, self._root)
            scanned, flagged, pure = yield from levels.search([one[2:] for one in every])
            every.clear()  # the memory is needed to receive the next sums
            above, words = yield from self._accept(nodes, (yield from levels.found(scanned, flagged)), pure)
            if (splits := grower.choose()) is None:
                break
            at = np.searchsorted(nodes, splits.node)
            above, sets = above[at], CategorySets.of_words({i: words[node] for i, node in enumerate(at.tolist()) if node in words})
            cut, sums = self._divide(splits, above, sets)
            to_send = {shard: (*cut, *sums.get(shard, ())) for shard in shards.everyone}
            every = yield shards.step("sums", to_send, shards.everyone)
            self._settle(splits, above, sets, [one[:2] for one in every])
        yield from self._grow_small()
        shards.grain.adapt()

    def _accept(
        self, nodes: NDArray[np.int64], best: Found, pure: NDArray[np.intp]
    ) -> Steps[tuple[NDArray[np.float64], dict[int, NDArray[np.uint32]]]]:
        """Accept the best splits of nodes, except nodes with a constant target; return the next values above the cuts, and the sets."""
        found, above, words = best
        found.records["status"][pure] = NO_SPLIT
        constant = self._grower.accept(nodes, found)
        if constant.shape[0]:
            at = np.searchsorted(nodes, constant)
            rest, above[at], more = yield from self._levels.search_rest(at)
            self._grower.accept(constant, rest)
            words |= more
        return above, words

    def _divide(self, splits: Splits, above: NDArray[np.float64], sets: CategorySets) -> tuple[Arrays, dict[int, Arrays]]:
        """Divide the rows of nodes on this shard, and sum some of the children."""
        grower = self._grower
        middle = grower.places(splits.node)[0] + splits.n_left  # in the row partition that the whole table would have
        grower.table.divide(splits.node, splits.left, (middle, middle), self._shards.plan.rules.by_level)
        self._levels.plan(grower, splits)
        grower.sets.add(grower.records_of(splits.node), sets)
        return self._levels.rows.divide(splits, np.isnan(above), sets, self._levels.summed, self._root.shift)

    def _settle(self, splits: Splits, above: NDArray[np.float64], sets: CategorySets, cuts: Sequence[Arrays]) -> None:
        """Set the thresholds of splits, after all shards have divided their nodes and sent what :meth:`.RowsInTree.divide` returns.

        ``above`` has the next value above each cut, NaN where it is not known yet.

        Raises
        ------
        ShardsDisagree
        """
        if not np.array_equal(sum(n_left for n_left, _ in cuts), splits.n_left):
            raise ShardsDisagree(f"shards have divided nodes of tree {self._tree} otherwise than their splits say")
        thresholds = splits.threshold.copy()
        if not self._shards.plan.rules.random_splits:
            above = np.where(np.isnan(above), np.min([found for _, found in cuts], axis=0), above)
            pairs = zip(splits.threshold.tolist(), above.tolist(), strict=True)
            thresholds = np.array([math.inf if high == math.inf else midpoint(low, high) for low, high in pairs])
        thresholds[sets.node] = splits.threshold[sets.node]  # codes of splits on categories, not thresholds
        self._grower.settle(splits.node, thresholds)

    def draft(self, learning_rate: float) -> tuple[Nodes, Tree, KnownLeaves, float]:
        """Return the result of :func:`grow_nodes`."""
        plan, exponents = self._shards.plan, self._root.exponents
        divided = np.setdiff1d(np.arange(self._grower.n_nodes), self._grower.to_grow)  # by all shards
        start, stop, _ = self._grower.places(divided)
        number_of = dict(zip(zip(start.tolist(), stop.tolist(), strict=True), divided.tolist(), strict=True))
        nodes, _ = pruned(self._grower.arrange(), exponents, plan.rules)
        tree = TreeOfNodes(plan, nodes, exponents, learning_rate, self._root.noise).draft()
        if plan.rules.categorical:
            tree = tree.with_categories(self._grower.sets.of_tree(nodes.records, plan.rules))
        leaf, first, last, _ = places_of_leaves(nodes.records)
        numbers = np.array([number_of.get(place, -1) for place in zip(first.tolist(), last.tolist(), strict=True)], np.int64)
        mine = numbers >= 0
        return nodes, tree, (numbers[mine], np.flatnonzero(leaf)[mine]), self._root.noise

    def _grow_small(self) -> Steps[None]:
        """Have small nodes grown to their ends by one shard each, in batches that fit the memory; attach all subtrees."""
        shards, grower, rows, cells_of_row = self._shards, self._grower, self._levels.rows, self._cells_of_row
        for groups in grower.deal(self._tree, shards.n_shards, SHARED_CELLS * shards.n_shards // cells_of_row):
            yield Turn(sum(int(grower.about(group)[0].sum()) for group in groups) * cells_of_row)
            mine = groups[shards.shard]
            sent = yield shards.step("delegated", rows.send_rows(groups), shards.everyone if mine.shape[0] else ())
            own = grow_sent(rows, self._tree, self._root, grower, mine, sent) if mine.shape[0] else NO_SUBTREES
            del sent
            for nodes, grown in zip(groups, (yield from shards.gather("subtrees", own)), strict=True):
                grower.attach_delegated(nodes, grown)


def grow_sent(rows: RowsInTree, tree: int, root: Root, grower: Grower, nodes: NDArray[np.int64], sent: Sequence[Arrays]) -> DelegatedNodes:
    """Grow nodes to their ends, given the rows of each shard, as :meth:`.RowsInTree.send_rows` returns them.

    Nodes with constant targets are leaves.
    """
    target, pool, n_columns = rows.target, rows.pool, rows.columns.n_columns
    # The rows arrive by shard, then by node, and are reordered by node.
    order = np.argsort(np.concatenate([np.repeat(np.arange(nodes.shape[0]), one[0]) for one in sent]), kind="stable")
    n_rows, first, place = order.shape[0], 0, np.empty_like(order)
    place[order] = np.arange(n_rows)
    n_values = pool.shape[0] * n_rows
    numbers = rows.sent_buffer.take(n_values + (n_columns * n_rows + 1) // 2)
    values = numbers[:n_values].view(np.float64).reshape(-1, n_rows)
    codes = numbers[n_values:].view(np.uint32)[: n_columns * n_rows].reshape(-1, n_rows)
    for one in sent:
        last = first + one[1].shape[1]
        values[:, place[first:last]] = one[1]
        first = last
    g, h, pure_by = (np.concatenate([one[i] for one in sent]) for i in (2, 3, 4))
    pure_by = pure_by[order] if pure_by.shape[0] else pure_by
    several = g.reshape(n_rows, -1)[order] if isinstance(target, ForestTarget) and target.plan.targets else None
    g = g[order] if several is None else np.arange(n_rows)
    partition = RowPartition(np.arange(n_rows, dtype=np.uint32), g, h[order] if h.shape[0] else h)
    columns = ShardColumns(_presort(values, pool, codes), np.arange(n_columns, dtype=np.int32), n_columns)
    state = TreeState(columns, target, pure_by, sums_zones=False)
    state.open_nodes(tree, root, grower.table.extract(nodes), partition, several, rows.threads)
    return state.grow_nodes(grower.table.start[nodes], grower.origin[nodes], grower.first_splits())[1]


def _presort(values: NDArray[np.float64], pool: NDArray[np.int32], codes: NDArray[np.uint32]) -> Columns:
    """Sort the columns of a pool in ascending order; other columns have no values, and meaningless codes.

    Equivalent to :func:`~dtrees.split.table.columns.presort` for few rows, where the overhead around its sort kernels would take as long as
    the sort. Distinct values overwrite ``values``.
    """
    keys, spare, counts = make_bench(values.shape[1])
    distinct, offsets, at = values.reshape(-1), np.zeros(codes.shape[0] + 1, np.int64), 0
    for column, all_values in zip(pool.tolist(), values, strict=True):
        own = all_values.copy()
        sort_float64(own.view(np.uint64), keys, spare, counts)
        offsets[column + 1] = number_values(own, keys, codes[column], distinct[at:])
        at += int(offsets[column + 1])
    return Columns.of(codes, distinct[:at], offsets.cumsum())
