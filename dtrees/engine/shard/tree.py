"""The steps of one tree over shards of columns, or on the single shard of a process.

Every shard takes these steps (:mod:`dtrees.engine.tree.program`): all have all rows, and all make the same decisions. The payloads are::

    rows        a checksum of the rows and gradients of the tree
    while there are splits:
        found   the best splits in a shard's columns; for nodes with constant columns, those in the next columns ("further columns")
        marks   which rows the chosen splits send left, from the owners of the columns: a bit for each row
    delegated   the rows of small nodes of a forest, in a shard's columns, to the shards that grow the nodes to their ends
    subtrees    the grown subtrees
    sets        the categories that go left, from the owners of the columns
    leaves      means (squared error), medians (absolute error), or steps of a boosted tree that depend on the order of residuals

After small nodes have been dealt out, only the shard that grew a node has the places of rows within it.

The single shard with all columns takes no steps, and grows the tree by one call or, if the table is very wide, node by node below a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import measure_leaves, measure_nodes, measures
from dtrees.engine.outcome.values import CategorySplits, places_of_leaves, splits_of_categories
from dtrees.engine.plan.node_limits import criterion_of, subtree_rows
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, alone
from dtrees.engine.protocol.messages import Measured, ShardsDisagree
from dtrees.engine.protocol.nodes import DelegatedNodes, RouteBits, Splits
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.places import bounds_of, places_of
from dtrees.engine.shard.tree_state import TreeState
from dtrees.engine.tree.grower import merge
from dtrees.engine.tree.program import GrownTree, Layout, finish_steps, grow_steps
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.grow.best_first import MergedLeaves, merge_rows, origins
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Candidates, Nodes
from dtrees.split.policy import DELEGATED_COLUMNS, DELEGATED_PARTS, SHARED_CELLS
from dtrees.split.table.columns import Assembly, Columns, take_rows
from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.tree import Tree

_ROOT_ORIGIN = origins(1)


def grow_alone(rows: ColumnTree, number: int, output: int = 0, learning_rate: float = 1.0) -> GrownTree:
    """Grow a tree on the only shard, which has all columns; see :func:`tree_steps`.

    A small tree takes no longer to grow than a few steps in Python, so there are none.
    """
    if rows.set_aside < rows.shards.n_rows:
        return alone(tree_steps(rows, number, output, learning_rate))
    root = rows.open(number, output, by_levels=False)
    whole = Roots([(0, root.n_in, root.n_rows, 0)], rows.nodes.path[:1], rows.nodes.sums[:1], _ROOT_ORIGIN)
    return alone(finish_steps(rows, rows.grow_roots(whole)[0], learning_rate))


def tree_steps(rows: ColumnTree, number: int, output: int = 0, learning_rate: float = 1.0) -> Steps[GrownTree]:
    """Grow a tree level by level, without adding it to predictions.

    Parameters
    ----------
    rows : ColumnTree
        The tree's rows on this shard.
    number : int
        The identity of the tree in random draws.
    output : int
        The raw prediction that the tree improves.
    learning_rate : float
        Multiplies the values of a boosted tree.
    """
    shards, root = rows.shards, rows.open(number, output, by_levels=True)
    replies = yield from shards.gather("rows", (rows.checksum() if shards.n_shards > 1 else 0, root.exponents))
    if any(one != replies[0] for one in replies):
        raise ShardsDisagree(f"shards do not agree about the rows and gradients of tree {number}")
    grown = yield from finish_steps(rows, (yield from grow_steps(rows)), learning_rate)
    for records, outside in rows.grower.outside:  # rows in sample are no longer needed
        rows.take_outside(records, outside)
    return grown


def rows_set_aside(shards: Shards, n_threads: int) -> int:
    """Return the largest number of rows of a node that is grown to its end by one shard, by ``n_threads`` threads if it is the only one."""
    plan, rules, n_shards = shards.plan, shards.plan.rules, shards.n_shards
    if n_shards == 1:
        return subtree_rows(plan, shards.n_rows, shards.n_columns, n_threads)
    if isinstance(plan, BoostingPlan) or rules.max_leaf_nodes is not None or rules.columns_per_tree > DELEGATED_COLUMNS * n_shards:
        return 0
    return min(shards.n_rows // (DELEGATED_PARTS * n_shards), _rows_at_once(shards))


def _rows_at_once(shards: Shards) -> int:
    return SHARED_CELLS // max(1, shards.n_side_by_side) // shards.plan.rules.columns_per_tree


def _needs_rows(plan: ForestPlan | BoostingPlan) -> bool:
    """Return whether rows must be divided by all splits when a tree is finished; sets of categories are found from them."""
    return bool(plan.rules.categorical) or _needs_order(plan)


def _needs_order(plan: ForestPlan | BoostingPlan) -> bool:
    """Return whether the rows of a leaf that replaces several must be in order: those in sample first, each ascending."""
    return measures(plan) or (plan.rules.max_leaf_nodes is not None and isinstance(plan, ForestPlan) and plan.out_of_bag)


class ColumnTree(TreeState, Layout):
    """An unfinished tree on a shard of columns, which finds the best splits in its columns; see :class:`TreeState`."""

    def search(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of nodes, of which each shard finds those in its columns."""
        return merge((yield from self.shards.gather("found", self.find(nodes, *self._divided))))

    def search_further(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of nodes in the next columns."""
        return merge((yield from self.shards.gather("further columns", self.find_further(nodes, self.grower.n_drawn))))

    def apply(self, splits: Splits) -> Steps[None]:
        """Divide the rows of nodes, if these are still needed."""
        plan, self._divided = self.shards.plan, (splits.node, splits.left)
        is_last = self.grower.is_last and not _needs_rows(plan)
        if not is_last or isinstance(plan, BoostingPlan) or plan.out_of_bag:
            self.divide(splits, (yield from self.mark_steps(splits)), rows_only=is_last)

    def mark_steps(self, splits: Splits, sets: CategorySets | None = None) -> Steps[RouteBits]:
        """Return which rows splits send left, marked by the owners of the columns. ``sets`` are those of a finished tree to replay."""
        shards, table, nodes = self.shards, self.nodes, splits.node
        if shards.n_shards == 1:
            return self.mark(splits, sets)
        owner, sizes = shards.owner[splits.column], (table.stop[nodes] - table.start[nodes] + 7) // 8  # a bit for each row
        mine, own = owner == shards.shard, {}
        if mine.any():
            marks = self.mark(splits.take(mine), None if sets is None else sets.take(np.flatnonzero(mine)))
            own = dict.fromkeys(shards.everyone, cast(Arrays, (marks.bits,)))
        owners = sorted(set(owner.tolist()))
        sent = yield shards.step("marks", own, owners)
        if len(owners) == 1:
            return RouteBits(sent[0][0], bounds_of(sizes))
        offsets = bounds_of(sizes)
        bits = np.empty(int(offsets[-1]), np.uint8)
        for shard, (some,) in zip(owners, sent, strict=True):
            which = owner == shard
            bits[places_of(offsets[:-1][which], sizes[which])] = some
        return RouteBits(bits, offsets)

    def deal(self) -> list[list[NDArray[np.int64]]]:
        """Deal the small nodes to shards; a single shard grows them."""
        shards, grower = self.shards, self.grower
        if shards.n_shards == 1:
            some = np.array(grower.to_grow, np.int64)
            if some.shape[0]:
                grower.attach(grower.to_grow, self.grow(some, grower.origin[some], grower.first_splits()))
            return []
        to_one = criterion_named(shards.plan.rules.criterion).measured == "nodes"  # one shard needs all rows to measure medians
        return grower.deal(self.number, shards.n_shards, _rows_at_once(shards), to_one)

    def _places_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes' rows, one node after the other."""
        start = self.nodes.start[nodes]
        return places_of(start, self.nodes.stop[nodes] - start)

    def share_rows(self, nodes: NDArray[np.int64]) -> Arrays:
        """Return the numbers of this shard's columns of the tree, and these columns (:class:`Columns`) in the rows of some nodes."""
        rows = self.rows.rows[self._places_of(nodes)]
        places, columns = self.places, self._shard_columns.columns
        assert isinstance(columns, Columns), "shards of one table are dense"
        return self._shard_columns.ids[places], *take_rows(columns, places, rows)

    def send_rows(self, nodes: Sequence[NDArray[np.int64]]) -> dict[int, Arrays]:
        """Return this shard's columns in the rows of nodes, for the shards that grow the nodes."""
        return {shard: self.share_rows(some) for shard, some in enumerate(nodes) if some.shape[0]}

    def grow_delegated(self, nodes: NDArray[np.int64], sent: Sequence[Arrays]) -> DelegatedNodes:
        """Grow nodes to their ends in a separate table of their rows, with the columns that each shard has sent (:meth:`share_rows`).

        Afterwards, the rows are at their places in the subtrees.
        """
        places, (g, h), n_columns = self._places_of(nodes), self.rows[1:], self._shard_columns.n_columns_total
        rows, assembly = self.rows.rows[places], Assembly(places.shape[0], n_columns)
        for ids, *columns in sent:
            assembly.take(ids.tolist(), Columns(*columns))
        whole = ShardColumns(assembly.finished(), self._shard_columns.everything, n_columns)
        pure_by = self._pure_by[rows] if self._pure_by.shape[0] else self._pure_by
        own = RowPartition(np.arange(places.shape[0], dtype=np.uint32), g[places], h[places] if h.shape[0] else h)
        one = TreeState(whole, self.target, pure_by, sums_zones=False)
        grown, delegated = one.grow_part(self, nodes, own, self.targets, self._levels, self.runner.threads)
        self.rows.rows[places] = moved = rows[own.rows]
        g[places] = own.g
        if h.shape[0]:
            h[places] = own.h
        if not self.target.keeps_out_of_sample:
            return delegated
        ends = [places_of_leaves(subtree.records)[2:] for subtree in grown]
        return delegated._replace(outside=[moved[places_of(in_stop, stop - in_stop)] for in_stop, stop in ends])

    def take_outside(self, records: NDArray[Any], rows: NDArray[np.uint32]) -> None:
        """Move rows out of sample to their places in a subtree that another shard has grown."""
        _, _, in_stop, stop = places_of_leaves(records)
        self.rows.rows[places_of(in_stop, stop - in_stop)] = rows

    def merge(self, merged: Sequence[MergedLeaves]) -> None:
        """Put the rows of leaves that take the places of pruned subtrees in order, if that is needed."""
        for leaves in merged if _needs_order(self.shards.plan) else ():
            merge_rows(self.rows, *leaves)

    def sets_of(self, nodes: Nodes) -> Steps[CategorySets]:
        """Return the categories that go left in the splits of a tree, as found by the owners of the columns, except for known sets."""
        shards, records = self.shards, nodes.records
        splits = splits_of_categories(records, shards.plan.rules)
        if shards.n_shards == 1:
            return self.find_sets(splits)
        known = self.grower.sets
        lacking = known.lacking(records[splits.node])
        mine = lacking[shards.owner[splits.column[lacking]] == shards.shard]
        own = self.find_sets(CategorySplits(*(array[mine] for array in splits))) if mine.shape[0] else NO_SETS
        for sets in (yield from shards.gather("sets", own)):
            known.add(records, sets)
        return known.of_tree(records, shards.plan.rules)

    def measure(self, nodes: Nodes, tree: Tree) -> Steps[NDArray[np.float64] | Measured]:
        """Return the measurements of leaves or nodes; the shard that measures changes with the tree."""
        shards, plan, records, rows, labels = self.shards, self.shards.plan, nodes.records, self.rows, self.labels
        one, criterion, threads = self.number % shards.n_shards, criterion_of(plan.rules), self.runner.threads
        if criterion.measured == "nodes":
            return (yield from shards.of_one("leaves", one, lambda: measure_nodes(rows, labels, self.targets, criterion, records)))
        _, start, in_stop, _ = places_of_leaves(records)
        if isinstance(plan, BoostingPlan):
            of_leaves = self.output, rows.rows, start, in_stop
            return (yield from shards.of_one("leaves", one, lambda: self.boosting.measure_leaves(*of_leaves)))
        if shards.n_shards == 1:
            return measure_leaves(rows, labels, criterion, start, in_stop, threads)
        knows, n_values = self.grower.growers_of(start, one), plan.n_values
        mine = knows == shards.shard
        replies = yield from shards.gather("leaves", measure_leaves(rows, labels, criterion, start[mine], in_stop[mine], threads))
        mean, spread = np.empty((start.shape[0], n_values)), np.empty(start.shape[0])
        for shard, found in enumerate(replies):
            mean[knows == shard], spread[knows == shard] = found.center.reshape(-1, n_values), found.spread
        return Measured(mean, spread)

    def replay_steps(self, tree: Tree, place: int) -> Steps[None]:
        """Add the values of a finished tree, already shrunk, given its place in its round, to the predictions of all rows, as after growth.

        A fit continues from existing trees in this way (warm start), and new shards catch up: the splits are known, so rows are only
        divided.
        """
        self.route(place)
        number = np.zeros(tree.node_count, np.int64)  # numbers of the tree's nodes on the shards
        n_known, level = 1, np.zeros(1, np.int64)
        while (inner := level[tree.children_left[level] >= 0]).size:
            left, right, n = tree.children_left[inner], tree.children_right[inner], inner.shape[0]
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
            )
            self.divide(splits, (yield from self.mark_steps(splits, tree.categories.take(inner))))
            level = np.concatenate([left, right])
        leaf = np.flatnonzero(tree.children_left < 0)
        if isinstance(self.target, BoostingTarget):
            output = place % self.target.raw.shape[0]
            self.target.add_leaves(output, self.rows.rows, self.nodes.start[number[leaf]], np.ascontiguousarray(tree.value[leaf, 0]))
