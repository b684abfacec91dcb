"""The rows of a shard in a tree of a forest under way."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows import steps as s
from dtrees.engine.rows.between.stretches import rows_of
from dtrees.engine.rows.by_order.leaves import RowsOfLeaves
from dtrees.engine.rows.forests.random_search import Ends, RandomSearch
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.searching.many_search import ManySumsFlaggedRows
from dtrees.engine.shard.targets.forest_target import ForestTarget, OutOfBag
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.shard.targets.prepared import Derived
from dtrees.split.numbers import hashing
from dtrees.split.zones.over_shards.many_sums.elements import sum_many
from dtrees.split.zones.sums import Sums
from dtrees.tree.tree import Tree


class RowsInForest(RowsInTree):
    """The rows of a shard, tree after tree; see :class:`RowsInTree`. Trees that grow side by side have one each."""

    def for_another_tree(self) -> RowsInForest:
        """Return the rows in a tree that grows beside this one; what all trees have in common, they share."""
        other = copy.copy(self)
        other._any_target = self._forest.for_another_tree()
        other._flagged, other._categories = self._flagged.for_another_tree(), copy.copy(self._categories)
        other._begin()
        return other

    @property
    def _forest(self) -> ForestTarget:
        assert isinstance(self._any_target, ForestTarget)
        return self._any_target

    def count_classes(self, tree: int) -> NDArray[np.int64]:
        """Draw the rows of a tree, and count the draws of each class."""
        self._forest.draw(tree)
        return self._forest.count_classes()

    def draw_rows(self, tree: int, factor: NDArray[np.float64] | None = None) -> Derived:
        """Begin a tree: draw its rows, and columns; ``factor`` is by how much the draws of each class count, if they do otherwise."""
        self._use_columns(tree)
        if self._plan.rules.random_splits:
            key = np.uint64(hashing.stream_key(self._seed, hashing.STREAM_THRESHOLD, tree))
            is_category = self._edges.n_categories > 0
            self._random = RandomSearch(self._columns, is_category, self._pool, key, self.threads, self._kept)
        self._forest.draw(tree)
        if factor is not None:
            self._forest.weigh(factor)
        return self._forest.derived()

    def _sum(self, summed: s.Levelled, shift: int) -> dict[int, tuple[NDArray[Any], ...]]:
        """Sum nodes; where thresholds are drawn, by category alone."""
        if not self._plan.rules.random_splits:
            return super()._sum(summed, shift)
        if not summed.node.shape[0] or not self._categories.ids.shape[0]:
            return {}
        return dict(enumerate(self._categories.sum(summed.node, self._start, self._stop, self._rows, self._forest.added)))

    def fix(self, exponents: tuple[int, int], summed: s.Levelled, shift: int) -> tuple[s.Totals, dict[int, tuple[NDArray[Any], ...]]]:
        """Put targets in fixed point, and sum the root; see :meth:`RowsInTree.fix`."""
        found = super().fix(exponents, summed, shift)
        if isinstance(self._flagged, ManySumsFlaggedRows):
            self._flagged.targets = self._forest.added
        return found

    def _include(self, tasks: NDArray[np.int64], sums: Sums) -> None:
        if not self._kept.n_numbers:
            super()._include(tasks, sums)
            return
        zone_map, rows, targets, n_classes = self._zone_map, self._rows, self._forest.added, self._kept.n_classes
        self.threads.share(tasks.shape[0], lambda queue, _: sum_many(queue, tasks, zone_map, rows, sums, targets, n_classes))

    def open_search(self, message: s.FindBars, sent: list[tuple[NDArray[Any], ...]]) -> None:
        """Begin the search of nodes where thresholds are drawn, given their rows by category."""
        self._random.open(message, self._plan.rules, self._forest.added if self._kept.targets else None)
        if self._categories.ids.shape[0]:
            self._category_search.find_bars(message, self._plan.rules, sent, self._random.key)

    def find_ends(self, drawn: NDArray[np.bool_], nodes: NDArray[np.int64]) -> Ends:
        """Return what rows here say of the columns drawn, and of the targets of ``nodes``; see :meth:`RandomSearch.find_ends`."""
        if not nodes.shape[0] and self._categories.ids.shape[0]:  # the search goes on
            self._category_search.search_again(drawn)
        pure, first = self.find_pure(nodes)
        return Ends(*self._random.find_ends(drawn, self._rows.rows, (self._start, self._stop)), pure, first, first)

    def sum_sides(self, ends: Ends) -> dict[int, tuple[NDArray[np.int64]]]:
        """See :meth:`RandomSearch.sum_sides`."""
        return self._random.sum_sides(ends, self._rows, (self._start, self._stop), self._n_shards)

    def try_thresholds(self, sent: list[tuple[NDArray[Any], ...]]) -> s.Scanned:
        """Return the best splits of nodes by the thresholds that this shard tries, and in the columns of categories that it searches."""
        scanned = self._random.scan(sent, self._shard, self._n_shards)
        return self._category_search.merged(scanned) if self._categories.ids.shape[0] else scanned

    def find_pure(self, nodes: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Tell which nodes have one target in all rows here, and which; see :meth:`ForestTarget.find_pure`."""
        return self._forest.find_pure(self._rows, self._start[nodes], self._stop[nodes])

    def send_rows(self, nodes: tuple[NDArray[np.int64], ...]) -> dict[int, tuple[NDArray[Any], ...]]:
        """Return the rows of nodes, for who is to grow them, and with them their targets.

        Of several targets, it is what rows add to the sums that stands in the place of g, row by row.
        """
        sent = super().send_rows(nodes)
        for shard, some in enumerate(nodes):
            if shard in sent:
                start, (counts, values, g, h) = self._start[some], sent[shard]
                g = self._forest.added[g].reshape(-1) if self._kept.targets else g
                rows = self._rows.rows[places_of(start, self._stop[some] - start)]
                sent[shard] = counts, values, g, h, self._forest.target[rows]
        return sent

    def rows_of_leaves(
        self, tree: Tree, known: tuple[NDArray[np.int64], NDArray[np.int64]], begins: NDArray[np.int64]
    ) -> dict[int, RowsOfLeaves]:
        """Return for each shard the rows here of the leaves that it measures: shard i those from ``begins[i]`` to ``begins[i + 1]``."""
        leaves, numbers = self.find_leaves(tree, known), rows_of(self._stretches).astype(np.uint32)
        return {
            shard: leaves.rows_of(first, last, numbers, self._forest.by_target)
            for shard, (first, last) in enumerate(pairwise(begins.tolist()))
        }

    def add_votes(self, number: int, tree: Tree) -> None:
        """Add what a tree says of rows that it did not draw to their sums."""
        self._forest.draw(number)
        in_sample = self._forest.in_sample
        assert in_sample is not None
        rows = np.flatnonzero(~in_sample).astype(np.uint32)
        leaf = np.zeros(self._columns.n_rows)
        self._walk(tree, np.arange(tree.node_count, dtype=np.float64), leaf, rows)
        self.out_of_bag.add(rows, leaf[rows].astype(np.int64), tree.value)

    @property
    def out_of_bag(self) -> OutOfBag:
        """These sums."""
        assert self._forest.out_of_bag is not None
        return self._forest.out_of_bag
