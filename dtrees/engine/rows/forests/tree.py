"""One tree of a forest over shards of rows.

It is grown as a boosted one is (:mod:`dtrees.engine.rows.tree`), but that rows are drawn before, of each class as many as are to count
where a tree weighs the classes of its own rows; and that the means of leaves, of numbers as targets, are found after.
"""

from __future__ import annotations

import numpy as np

from dtrees.engine.outcome.ending import draft_tree, finish_tree, measures
from dtrees.engine.outcome.values import pruned
from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.between.shards import Steps
from dtrees.engine.rows.forests.growing import TreeOfForest
from dtrees.engine.rows.tree import grow_nodes, leaves_known
from dtrees.engine.rows.whole_sums import exponent_of
from dtrees.engine.shard.targets.forest_target import factors_of_targets
from dtrees.engine.shard.targets.prepared import Derived
from dtrees.split.policy import DELEGATED_PARTS, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE, SHARED_CELLS
from dtrees.tree.tree import Tree

#: Bytes that a tree under way keeps on a shard: for each row (measured, 57: the order of rows takes 25, their draws 9 and their leaves 23);
#: for each column where three numbers are summed (64,000 to 330,000: 60k x 100 on five shards, 1M x 8 on two); and for each thread.
_ROW_BYTES, _COLUMN_BYTES, _THREAD_BYTES = 64, 350_000, 1_400_000


def rows_to_send(plan: ForestPlan, n_rows: int, n_shards: int) -> int:
    """Return up to how many rows a node of a forest is grown by one shard.

    Each row drawn is sent once for a tree that is grown to its end, whatever this number is; the larger it is, the fewer levels take an
    exchange.
    """
    at_once = SHARED_CELLS // SumsKept.of(plan).cells_sent(plan.rules)
    return max(rows_tree.SENT_ROWS, min(n_rows // (DELEGATED_PARTS * n_shards), at_once))


def trees_at_once(plan: ForestPlan, n_rows: int, n_threads: int, room: float) -> int:
    """Return how many trees may grow side by side, by the memory that they take on a shard.

    Parameters
    ----------
    plan : ForestPlan
    n_rows, n_threads : int
        Of the shard.
    room : float
        Bytes that it has left beside one tree.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import Rules
    >>> plan = ForestPlan(Rules("squared_error", max_features=9, columns_per_tree=28), seed=0, n_draws=1000)
    >>> [trees_at_once(plan, n_rows, 1, 1e12) for n_rows in (1000, 10**5, 10**6, 10**8)]
    [12, 8, 2, 1]
    >>> trees_at_once(plan, 10**5, 1, room=0)
    1
    """
    n_sums, amounts = SumsKept.of(plan).width(True), 0 if plan.n_classes else 8 * len(plan.targets)
    of_tree = (_ROW_BYTES + amounts) * n_rows + _COLUMN_BYTES * n_sums // 3 * plan.rules.columns_per_tree + _THREAD_BYTES * n_threads
    return int(min(MOST_TREES_SIDE_BY_SIDE, 1 + max(0, min(room, FOREST_MIN_BYTES)) // of_tree))


def forest_tree_steps(growing: TreeOfForest, number: int) -> Steps[Tree]:
    """Grow the tree of a number."""
    plan, drawing = growing.plan, growing.scales.drawing
    derived, exponents = yield from _drawn(growing, number)
    rounded = 0 if drawing is None else drawing.n_draws * drawing.points.shape[0]
    nodes, known, sets = yield from grow_nodes(growing, number, derived, exponents, rounded)
    nodes, _ = pruned(nodes, exponents, plan.rules)
    tree = draft_tree(plan, nodes, exponents)
    if plan.rules.categorical:
        tree = tree.with_categories(sets.of_tree(nodes.records, plan.rules))
    measured = (yield from growing.measure_means(tree, leaves_known(nodes.records, known))) if measures(plan) else None
    return finish_tree(plan, nodes, exponents, tree, measured)[0]


def _drawn(growing: TreeOfForest, number: int) -> Steps[tuple[list[Derived], tuple[int, int]]]:
    """Draw the rows of a tree; return what is of each shard's, and the powers of two that targets and weights are multiplied by."""
    plan, shards, rows, factors = growing.plan, growing.shards, growing.rows, None
    if plan.balanced_subsample:
        counts = np.sum((yield from shards.gather("draws", rows.count_classes(number))), axis=0)
        factors = factors_of_targets(counts, plan.targets or (plan.n_classes,))
    derived = yield from shards.gather("drawn", rows.draw_rows(number, factors))
    if factors is None:
        return derived, growing.scales.exponents
    exponent = yield from exponent_of(shards, rows, derived, 1)
    if all(one.integral for one in derived):
        exponent = min(exponent, 0)
    return derived, (exponent, exponent)
