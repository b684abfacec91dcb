"""The rows of a shard in a tree of a forest under way."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows.between.stretches import rows_of
from dtrees.engine.rows.forests import messages as f
from dtrees.engine.rows.forests.forest_rows import ForestRows
from dtrees.engine.rows.forests.leaf_rows import RowsOfLeaves
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.targets.places import places_of


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
    def _forest(self) -> ForestRows:
        assert isinstance(self._any_target, ForestRows)
        return self._any_target

    def count_classes(self, tree: int) -> NDArray[np.int64]:
        """Draw the rows of a tree, and count the draws of each class."""
        return self._forest.count_classes(tree)

    def draw(self, message: f.Draw) -> f.Drawn:
        """Begin a tree: draw its rows, and columns."""
        self._use_columns(message.tree)
        return self._forest.draw(message.tree, message.factor)

    def find_pure(self, nodes: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """Tell which nodes have one target in all rows here, and which; see :meth:`ForestRows.find_pure`."""
        return self._forest.find_pure(self._rows, self._start[nodes], self._stop[nodes])

    def send_rows(self, nodes: tuple[NDArray[np.int64], ...]) -> dict[int, tuple[NDArray[Any], ...]]:
        """Return the rows of nodes, for who is to grow them, and with them their targets."""
        sent = super().send_rows(nodes)
        for shard, some in enumerate(nodes):
            if shard in sent:
                start = self._start[some]
                sent[shard] += (self._forest.target[self._rows.rows[places_of(start, self._stop[some] - start)]],)
        return sent

    def rows_of_leaves(self, message: f.MeasureMeans) -> dict[int, RowsOfLeaves]:
        """Return for each shard the rows here of the leaves that it measures."""
        self._find_leaves(message.tree, (message.node, message.leaf))
        numbers = rows_of(self._stretches).astype(np.uint32)
        return {
            shard: self._leaves.rows_of(first, last, numbers, self._forest.target)
            for shard, (first, last) in enumerate(pairwise(message.begins.tolist()))
        }

    def add_votes(self, message: f.AddVotes) -> None:
        """Add what a tree says of rows that it did not draw to their sums."""
        self._forest.draw(message.number)
        in_sample = self._forest.in_sample
        assert in_sample is not None
        rows, tree = np.flatnonzero(~in_sample).astype(np.uint32), message.tree
        leaf = np.zeros(self._columns.n_rows)
        self._walk(tree, np.arange(tree.node_count, dtype=np.float64), leaf, rows)
        self._forest.add_votes(rows, leaf[rows].astype(np.int64), tree.value)

    def count_votes(self) -> f.Votes:
        """Return these sums."""
        return self._forest.votes
