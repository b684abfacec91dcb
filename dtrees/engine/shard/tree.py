"""The steps of one tree over shards of columns, or on the single shard of a process.

Every shard takes these steps (:class:`~dtrees.engine.protocol.exchange.Shards`): all have all rows, and all make the same decisions. The
payloads are::

    rows        a checksum of the rows and gradients of the tree
    while there are splits:
        found   the best splits in a shard's columns; for nodes with constant columns, those in the next columns ("further columns")
        marks   which rows the chosen splits send left, from the owners of the columns: a bit for each row
    shared      the rows of small nodes of a forest, in a shard's columns, to the shards that grow the nodes to their ends
    subtrees    the grown subtrees
    sets        the categories that go left, from the owners of the columns
    leaves      means (squared error), medians (absolute error), or steps of a boosted tree that depend on the order of residuals

A split takes two steps however small the node is, and a fully grown tree has dozens of levels, most of them with small nodes only. So when
no node of a tree exceeds a number of rows, the nodes are dealt to the shards. Afterwards, only the shard that grew a node has the places of
rows within it.

The single shard with all columns takes no steps, and grows the tree by one call or, if the table is very wide, node by node below a size.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import TreeOfNodes, measure_leaves, measure_nodes, measures
from dtrees.engine.outcome.values import CategorySplits, places_of_leaves, pruned, splits_of_categories
from dtrees.engine.plan.node_limits import criterion_of, subtree_rows
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, alone
from dtrees.engine.protocol.messages import Measured, Root, ShardsDisagree
from dtrees.engine.protocol.nodes import NO_SUBTREES, RouteBits, Splits
from dtrees.engine.shard.grower import merge
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.places import bounds_of, places_of
from dtrees.engine.shard.tree_state import TreeState
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.grow.best_first import merge_rows, origins
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.records import Nodes
from dtrees.split.policy import DELEGATED_COLUMNS, DELEGATED_PARTS, SHARED_CELLS
from dtrees.tree.category_sets import NO_SETS, CategorySets
from dtrees.tree.tree import Tree

_NOTHING, _ROOT_ORIGIN = np.empty(0, np.int64), origins(1)


class GrownTree(NamedTuple):
    """A tree, the records of its nodes before pruning by cost, and its value at each of these."""

    tree: Tree
    records: NDArray[np.void]
    said: NDArray[np.float64]


def grow_alone(shards: Shards, rows: TreeState, number: int, output: int = 0, learning_rate: float = 1.0) -> GrownTree:
    """Grow a tree on the only shard, which has all columns; see :func:`tree_steps`.

    A small tree takes no longer to grow than a few steps in Python, so there are none.
    """
    if rows.set_aside < shards.n_rows:
        return alone(tree_steps(shards, rows, number, output, learning_rate))
    root = rows.open(number, output, by_levels=False)
    whole = Roots([(0, root.n_in, root.n_rows, 0)], rows.nodes.path[:1], rows.nodes.sums[:1], _ROOT_ORIGIN)
    return alone(_finish(shards, rows, (number, output), root, rows.grow_roots(whole)[0], None, learning_rate))


def tree_steps(shards: Shards, rows: TreeState, number: int, output: int = 0, learning_rate: float = 1.0) -> Steps[GrownTree]:
    """Grow a tree level by level, without adding it to predictions.

    Parameters
    ----------
    shards : Shards
    rows : TreeState
        The tree's rows on this shard.
    number : int
        The identity of the tree in random draws.
    output : int
        The raw prediction that the tree improves.
    learning_rate : float
        Multiplies the values of a boosted tree.
    """
    root = rows.open(number, output, by_levels=True)
    replies = yield from shards.gather("rows", (rows.checksum() if shards.n_shards > 1 else 0, root.exponents))
    if any(one != replies[0] for one in replies):
        raise ShardsDisagree(f"shards do not agree about the rows and gradients of tree {number}")
    growth = _Growth(shards, rows, number)
    grown = yield from _finish(shards, rows, (number, output), root, (yield from growth.grow()), growth, learning_rate)
    for records, outside in growth.grower.outside:  # rows in sample are no longer needed
        rows.take_outside(records, outside)
    return grown


def _finish(
    shards: Shards, rows: TreeState, identity: tuple[int, int], root: Root, nodes: Nodes, growth: _Growth | None, learning_rate: float
) -> Steps[GrownTree]:
    """Return the finished tree: without nodes that are pruned after growth, with sets, and with values from sums and measurements.

    ``identity`` is the tree's number and output; ``growth`` is None if it was grown by one call.
    """
    plan = shards.plan
    if rows.when_found is not None:
        rows.when_found()
    nodes, merged = pruned(nodes, root.exponents, plan.rules)
    if merged and _needs_order(plan):
        for leaves in merged:
            merge_rows(rows.rows, *leaves)
    of_nodes = TreeOfNodes(plan, nodes, root.exponents, learning_rate, root.noise)
    tree = of_nodes.draft()
    if plan.rules.categorical:
        tree = tree.with_categories((yield from _find_sets(shards, rows, nodes, growth)))
    measured = (yield from _measure(shards, rows, identity, nodes, growth)) if measures(plan) else None
    tree, said = of_nodes.finish(tree, measured)
    return GrownTree(tree, nodes.records, said)


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


class _Growth:
    """The nodes of a tree that is grown level by level."""

    def __init__(self, shards: Shards, rows: TreeState, number: int) -> None:
        self._shards, self._rows, self._number = shards, rows, number
        self.grower = rows.make_grower()

    def grow(self) -> Steps[Nodes]:
        """Grow all nodes; return them in preorder."""
        shards, rows, grower, plan = self._shards, self._rows, self.grower, self._shards.plan
        adds, needs_rows = isinstance(plan, BoostingPlan) or plan.out_of_bag, _needs_rows(plan)
        yield from self._search(_NOTHING, _NOTHING)
        while (splits := grower.choose()) is not None:
            is_last = grower.is_last and not needs_rows
            if is_last and not adds:
                break
            marks = yield from mark_steps(shards, rows, splits)
            rows.divide(splits, marks, rows_only=is_last)
            yield from self._search(splits.node, splits.left)
        if shards.n_shards > 1:
            yield from self._deal_out()
        elif grower.to_grow:
            some = np.array(grower.to_grow, np.int64)
            grower.attach(grower.to_grow, rows.grow(some, grower.origin[some], grower.first_splits()))
        return grower.arrange()

    def _search(self, parents: NDArray[np.int64], left: NDArray[np.int64]) -> Steps[None]:
        """Find the best splits of nodes, children of ``parents``."""
        shards, rows, grower, nodes = self._shards, self._rows, self.grower, self.grower.to_search
        if not nodes.shape[0]:
            return
        rest = grower.accept(nodes, merge((yield from shards.gather("found", rows.find(nodes, parents, left)))))
        if rest.shape[0]:
            found = yield from shards.gather("further columns", rows.find_further(rest, grower.n_drawn))
            grower.accept(rest, merge(found))

    def _deal_out(self) -> Steps[None]:
        """Have small nodes grown to their ends by one shard each."""
        shards, grower = self._shards, self.grower
        to_one = criterion_named(shards.plan.rules.criterion).measured == "nodes"  # one shard needs all rows to measure medians
        for groups in grower.deal(self._number, shards.n_shards, _rows_at_once(shards), to_one):
            yield from self._grow_delegated(groups)

    def _grow_delegated(self, groups: list[NDArray[np.int64]]) -> Steps[None]:
        """Have each shard grow some nodes to their ends."""
        shards, rows, mine = self._shards, self._rows, groups[self._shards.shard]
        others = [i for i in shards.everyone if i != shards.shard]
        shared = {i: cast(Arrays, (rows.share_rows(groups[i]),)) for i in others if groups[i].shape[0]}
        sent = yield shards.step("shared", shared, others if mine.shape[0] else ())
        own = rows.grow_delegated(mine, [one for (one,) in sent]) if mine.shape[0] else NO_SUBTREES
        for group, grown in zip(groups, (yield from shards.gather("subtrees", own)), strict=True):
            self.grower.attach_delegated(group, grown)


def mark_steps(shards: Shards, rows: TreeState, splits: Splits, sets: CategorySets | None = None) -> Steps[RouteBits]:
    """Return which rows splits send left, marked by the owners of the columns. ``sets`` are those of a finished tree to replay."""
    if shards.n_shards == 1:
        return rows.mark(splits, sets)
    owner, table, nodes = shards.owner[splits.column], rows.nodes, splits.node
    sizes = (table.stop[nodes] - table.start[nodes] + 7) // 8  # a bit for each row
    mine, own = owner == shards.shard, {}
    if mine.any():
        marks = rows.mark(splits.take(mine), None if sets is None else sets.take(np.flatnonzero(mine)))
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


def _find_sets(shards: Shards, rows: TreeState, nodes: Nodes, growth: _Growth | None) -> Steps[CategorySets]:
    """Return the categories that go left in the splits of a tree, as found by the owners of the columns, except for known sets."""
    splits = splits_of_categories(nodes.records, shards.plan.rules)
    if shards.n_shards == 1 or growth is None:
        return rows.find_sets(splits)
    known = growth.grower.sets
    lacking = known.lacking(nodes.records[splits.node])
    mine = lacking[shards.owner[splits.column[lacking]] == shards.shard]
    own = rows.find_sets(CategorySplits(*(array[mine] for array in splits))) if mine.shape[0] else NO_SETS
    for sets in (yield from shards.gather("sets", own)):
        known.add(nodes.records, sets)
    return known.of_tree(nodes.records, shards.plan.rules)


def _measure(
    shards: Shards, rows: TreeState, identity: tuple[int, int], nodes: Nodes, growth: _Growth | None
) -> Steps[NDArray[np.float64] | Measured]:
    """Return the measurements of leaves or nodes of a tree, given its number and output; the shard that measures changes with the tree."""
    plan, (number, output), records = shards.plan, identity, nodes.records
    one, criterion, threads = number % shards.n_shards, criterion_of(plan.rules), rows.runner.threads
    if criterion.measured == "nodes":
        about = rows.rows, rows.labels, rows.targets, criterion, records
        return (yield from shards.of_one("leaves", one, lambda: measure_nodes(*about)))
    _, start, in_stop, _ = places_of_leaves(records)
    if isinstance(plan, BoostingPlan):
        return (yield from shards.of_one("leaves", one, lambda: rows.boosting.measure_leaves(output, rows.rows.rows, start, in_stop)))
    if shards.n_shards == 1 or growth is None:
        return measure_leaves(rows.rows, rows.labels, criterion, start, in_stop, threads)
    knows, n_values = growth.grower.growers_of(start, one), plan.n_values
    mine = knows == shards.shard
    replies = yield from shards.gather("leaves", measure_leaves(rows.rows, rows.labels, criterion, start[mine], in_stop[mine], threads))
    mean, spread = np.empty((start.shape[0], n_values)), np.empty(start.shape[0])
    for shard, found in enumerate(replies):
        mean[knows == shard], spread[knows == shard] = found.center.reshape(-1, n_values), found.spread
    return Measured(mean, spread)


def replay_steps(shards: Shards, rows: TreeState, tree: Tree, place: int) -> Steps[None]:
    """Add the values of a finished tree, already shrunk, given its place in its round, to the predictions of all rows, as after growth.

    A fit continues from existing trees in this way (warm start), and new shards catch up: the splits are known, so rows are only divided.
    """
    rows.route(place)
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
        rows.divide(splits, (yield from mark_steps(shards, rows, splits, tree.categories.take(inner))))
        level = np.concatenate([left, right])
    leaf = np.flatnonzero(tree.children_left < 0)
    if isinstance(rows.target, BoostingTarget):
        output = place % rows.target.raw.shape[0]
        rows.target.add_leaves(output, rows.rows.rows, rows.nodes.start[number[leaf]], np.ascontiguousarray(tree.value[leaf, 0]))
