"""The steps of one tree of a forest over shards of rows.

It is grown like a boosted tree (:mod:`dtrees.engine.rows.tree`), with two differences. Rows are drawn first, and the draws of each class
are counted if the tree weighs classes by its own rows. Means of leaves are computed afterwards if targets are numeric.

Names of payloads besides those of :mod:`dtrees.engine.rows.levels`: for random thresholds, "ends" of columns and "sides" of thresholds
replace those from "bars" to "picked"; "leaves" has the rows of leaves, sent to the shard that measures them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import finish_tree, measures
from dtrees.engine.plan.node_limits import StoredSums
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps, Turn
from dtrees.engine.protocol.messages import Measured, Root
from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.rows import steps as s
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.leaf_rows import measure_means, share_leaves
from dtrees.engine.rows.levels import Columns, Levels, RowsGrower
from dtrees.engine.rows.rows_in_forest import RowsInForest, joined_ends, pure_in_all
from dtrees.engine.rows.tree import grow_nodes
from dtrees.engine.rows.whole import exponent_of
from dtrees.engine.shard.targets.forest_target import factors_of_targets
from dtrees.engine.shard.targets.scales import Derived
from dtrees.split.policy import DELEGATED_PARTS, FOREST_MIN_BYTES, MOST_TREES_SIDE_BY_SIDE, SHARED_CELLS
from dtrees.tree.tree import Tree

_NONE = np.empty(0, np.int64)
#: Number of values with which a row is sent if leaves are measured, besides its targets.
_CELLS_MEASURED = 2
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
    return max(rows_tree.SENT_ROWS, min(n_rows // (DELEGATED_PARTS * n_shards), at_once))


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


def leaf_means(shards: Shards, rows: RowsInForest, tree: Tree, known: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Steps[Measured]:
    """Return the mean targets of the leaves of a tree, and their spreads; each shard measures some of the leaves.

    ``known`` has node numbers used by the shards, and the leaves of the tree that they stand for.
    """
    plan = shards.forest
    begins = share_leaves(tree.n_node_samples[tree.children_left < 0], shards.n_shards)
    yield Turn(int(tree.n_node_samples[0]) * (_CELLS_MEASURED + plan.n_values))
    sent = yield shards.step("leaves", rows.rows_of_leaves(tree, known, begins), shards.everyone)
    found = yield from shards.gather("means", measure_means(plan.rules, sent, rows.threads))
    return Measured(*(np.concatenate(some) for some in zip(*found, strict=True)))


class ForestLevels(Levels):
    """The sums of the levels of a forest's tree, and the search of their nodes; see :class:`Levels`."""

    rows: RowsInForest

    def search(self, sent: list[Arrays]) -> Steps[tuple[s.Scanned, int, NDArray[np.intp]]]:
        """Find the best splits of nodes; nodes with a constant target become leaves."""
        search = self._searched
        own = self.rows.find_bars(search, sent), *self.rows.find_pure(search.node)
        every = yield self.shards.to_all("bars", own)
        bars, pure = np.max([one[0] for one in every], axis=0), pure_in_all([one[1] for one in every], [one[2] for one in every])
        bars[pure] = np.inf
        return (*(yield from self._scan(bars, search.drawn)), np.flatnonzero(pure))


class RandomLevels(ForestLevels):
    """The search of the nodes of levels with random thresholds, for each node separately and without zones."""

    def plan_root(self, n_rows: int) -> None:
        """Schedule the search of the root."""
        self.summed = s.Levelled(np.zeros(1, np.int64), np.zeros(1, np.int64))

    def plan(self, grower: RowsGrower, splits: Splits) -> None:
        """Schedule the search of all new nodes that may be split."""
        self.summed = s.Levelled(grower.to_search, np.zeros(grower.to_search.shape[0], np.int64))

    def open(self, grower: RowsGrower, root: Root, columns: Columns) -> None:
        """Begin the search of the scheduled nodes."""
        every, (n_rows, sums, _) = np.arange(grower.to_search.shape[0]), grower.about(grower.to_search)
        tasks, (node, grain), n = np.stack([every, 0 * every - 1, 0 * every - 1, every], axis=1), self.summed, every.shape[0]
        self._columns = columns
        self._searched = s.FindBars(root, tasks, self.summed, n, node, n_rows, grain, sums, columns.drawn(), columns.paths)

    def search(self, sent: list[Arrays]) -> Steps[tuple[s.Scanned, int, NDArray[np.intp]]]:
        """Find the best random thresholds of nodes."""
        self.rows.open_search(self._searched, sent)
        scanned, pure = yield from self._try_thresholds(self._searched.drawn, self._searched.node)
        return scanned, 0, np.flatnonzero(pure)

    def _search_further(self, drawn: NDArray[np.bool_]) -> Steps[s.Scanned]:
        return (yield from self._try_thresholds(drawn))[0]

    def _try_thresholds(self, drawn: NDArray[np.bool_], nodes: NDArray[np.int64] = _NONE) -> Steps[tuple[s.Scanned, NDArray[np.bool_]]]:
        """Find the best random thresholds of the nodes being searched; return them, and which of ``nodes`` have a constant target."""
        shards, rows = self.shards, self.rows
        ends = joined_ends((yield shards.to_all("ends", rows.find_ends(drawn, nodes))))
        sent = yield shards.step("sides", rows.sum_sides(ends), shards.everyone)
        return rows.try_thresholds(sent), ends.pure


def forest_tree_steps(shards: Shards, rows: RowsInForest, number: int) -> Steps[Tree]:
    """Grow the tree with the given number."""
    plan, drawing = shards.forest, rows.forest.scales.drawing
    derived, exponents = yield from _drawn(shards, rows, number)
    rounded = 0 if drawing is None else drawing.n_draws * drawing.points.shape[0]
    levels = (RandomLevels if plan.rules.random_splits else ForestLevels)(shards, rows)
    nodes, tree, known, _ = yield from grow_nodes(levels, number, derived, exponents, rounded)
    measured = (yield from leaf_means(shards, rows, tree, known)) if measures(plan) else None
    return finish_tree(plan, nodes, exponents, tree, measured)[0]


def _drawn(shards: Shards, rows: RowsInForest, number: int) -> Steps[tuple[list[Derived], tuple[int, int]]]:
    """Draw the rows of a tree; return the :class:`Derived` of each shard, and the exponents of targets and weights."""
    plan, factors = shards.forest, None
    if plan.balanced_subsample:
        counts = np.sum((yield from shards.gather("draws", rows.count_classes(number))), axis=0)
        factors = factors_of_targets(counts, plan.targets or (plan.n_classes,))
    derived = yield from shards.gather("drawn", rows.draw_rows(number, factors))
    if factors is None:
        return derived, rows.forest.scales.exponents
    exponent = yield from exponent_of(shards, rows, derived, 1)
    if all(one.integral for one in derived):
        exponent = min(exponent, 0)
    return derived, (exponent, exponent)
