"""The steps of one tree over shards of rows.

Every shard takes these steps (:mod:`dtrees.engine.tree.program`). The best split of a node is the best that any searcher has found in its
columns::

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

import numpy as np

from dtrees.engine.plan.node_limits import StoredSums
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.exchange import Shards, Steps
from dtrees.engine.rows.levels import Levels
from dtrees.engine.rows.random_levels import RandomLevels
from dtrees.engine.rows.rows_in_tree import KnownLeaves, RowsInTree
from dtrees.engine.rows.whole import exponent_of, find_cuts
from dtrees.engine.shard.targets.forest_target import factors_of_targets
from dtrees.engine.shard.targets.scales import Derived
from dtrees.engine.tree.program import GrownTree, finish_steps, grow_steps
from dtrees.split.policy import DELEGATED_PARTS, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE, SHARED_CELLS
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
    exponents = (yield from exponent_of(shards, rows, derived, 0)), (yield from exponent_of(shards, rows, derived, 1))
    levels = Levels(shards, rows, tree, derived, output, cuts)
    grown = yield from _grow(levels, exponents, learning_rate=learning_rate)
    return grown.tree, levels.known_leaves(grown.records)


def forest_tree_steps(shards: Shards, rows: RowsInTree, number: int) -> Steps[Tree]:
    """Grow the tree with the given number."""
    plan, drawing = shards.forest, rows.forest.scales.drawing
    derived, exponents = yield from _drawn(shards, rows, number)
    rounded = 0 if drawing is None else drawing.n_draws * drawing.points.shape[0]
    levels = (RandomLevels if plan.rules.random_splits else Levels)(shards, rows, number, derived)
    return (yield from _grow(levels, exponents, rounded)).tree


def _grow(levels: Levels, exponents: tuple[int, int], rounded: int = 0, learning_rate: float = 1.0) -> Steps[GrownTree]:
    """Grow a tree to its end; see :meth:`.Levels.begin` and :func:`finish_steps`."""
    yield from levels.begin(exponents, rounded)
    nodes = yield from grow_steps(levels)
    levels.shards.grain.adapt()
    return (yield from finish_steps(levels, nodes, learning_rate))


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
