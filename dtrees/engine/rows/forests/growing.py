"""A tree of a forest under way, on one of the shards of rows that grow it together.

Names of parcels beside those of :mod:`dtrees.engine.rows.growing`: where thresholds are drawn at random, "ends" of columns and "sides" of
thresholds in place of those from "bars" to "picked"; and "leaves", rows of leaves to who measures these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.messages import Measured
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.between.shards import Steps
from dtrees.engine.rows.by_order.leaves import measure_means, share_leaves
from dtrees.engine.rows.exchange import Arrays, Turn
from dtrees.engine.rows.forests.random_search import joined_ends
from dtrees.engine.rows.forests.rows_in_forest import RowsInForest
from dtrees.engine.rows.growing import TreeOfShards
from dtrees.engine.shard.targets.forest_scales import ForestScales
from dtrees.tree.tree import Tree

_NONE = np.empty(0, np.int64)
#: Numbers that a row is sent with where leaves are measured, beside its targets.
_CELLS_MEASURED = 2


@dataclass(frozen=True)
class TreeOfForest(TreeOfShards[RowsInForest]):
    """What a shard does in the steps of a tree of a forest.

    Attributes
    ----------
    plan : ForestPlan
    scales : ForestScales
    """

    plan: ForestPlan
    scales: ForestScales

    def search_further(self, drawn: NDArray[np.bool_]) -> Steps[list[s.Levelling]]:
        """Search the nodes searched last in other columns."""
        if not self.plan.rules.random_splits:
            return (yield from super().search_further(drawn))
        scanned, _ = yield from self._search_at_random(next(self.shards.serials), drawn)
        return (yield from self.shards.gather("further columns", s.Levelling(None, scanned, 0)))

    def measure_means(self, tree: Tree, known: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Steps[Measured]:
        """Return the means of the targets of the leaves of a tree, and their spreads: each shard measures some.

        ``known`` are nodes as shards know them, and the leaves of the tree that they are.
        """
        shards = self.shards
        begins = share_leaves(tree.n_node_samples[tree.children_left < 0], shards.n_shards)
        yield Turn(int(tree.n_node_samples[0]) * (_CELLS_MEASURED + self.plan.n_values))
        own = self.rows.rows_of_leaves(tree, known, begins)
        sent = yield shards.step("leaves", next(shards.serials), own, shards.everyone)
        found = yield from shards.gather("means", measure_means(self.plan.rules, sent, self.rows.threads))
        return Measured(*(np.concatenate(some) for some in zip(*found, strict=True)))

    def _search(self, serial: int, search: s.FindBars, sent: list[Arrays]) -> Steps[s.Levelling]:
        """Find the best splits of nodes that all shards have sent sums of, if sums are wanted."""
        if self.plan.rules.random_splits:
            self.rows.open_search(search, sent)
            scanned, pure = yield from self._search_at_random(serial, search.drawn, search.node)
            return s.Levelling(None, scanned, 0, pure)
        own = self.rows.find_bars(search, sent), *self.rows.find_pure(search.node)
        every = yield self.shards.to_all("bars", serial, own)
        bars, pure = np.max([one[0] for one in every], axis=0), pure_in_all([one[1] for one in every], [one[2] for one in every])
        bars[pure] = np.inf  # nothing is looked at in there
        scanned, flagged = yield from self._scan(serial, bars, search.drawn)
        return s.Levelling(None, scanned, flagged, pure)

    def _search_at_random(
        self, serial: int, drawn: NDArray[np.bool_], nodes: NDArray[np.int64] = _NONE
    ) -> Steps[tuple[s.Scanned, NDArray[np.bool_]]]:
        """Find the best of random thresholds of the nodes of an open search; return them, and which of ``nodes`` have one target."""
        shards, rows = self.shards, self.rows
        ends = joined_ends((yield shards.to_all("ends", serial, rows.find_ends(drawn, nodes))))
        sent = yield shards.step("sides", serial, rows.sum_sides(ends), shards.everyone)
        return rows.try_thresholds(sent), ends.of_one_target


def pure_in_all(pure: list[NDArray[np.bool_]], first: list[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return which nodes have one target in the rows of all shards, given what each found of its own.

    Examples
    --------
    >>> yes, nan = np.array([True, True, True]), np.nan
    >>> pure_in_all([yes, yes], [np.array([1.0, 1.0, nan]), np.array([1.0, 2.0, 3.0])]).tolist()
    [True, False, True]
    """
    low, high = np.fmin.reduce(first), np.fmax.reduce(first)
    found: NDArray[np.bool_] = np.all(pure, axis=0) & ~(low < high)
    return found
