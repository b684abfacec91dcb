"""The rows of a shard in the current tree of a forest, and the search of nodes by random thresholds.

A random threshold depends on the lowest and the highest value of its node in its column. Shards therefore exchange these values of their
own rows, and each draws the thresholds itself. Then each sums its rows on the left of the thresholds, and sends each sum to the shard that
evaluates the threshold. No zones are summed, and no rows are sent.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.all_rows import pure_in_all, rows_of
from dtrees.engine.rows.leaf_rows import RowsOfLeaves
from dtrees.engine.rows.packed import add_up
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.passes import share_by_column
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.scales import Derived
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.node.records import best_by_node, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.search.random_threshold import draw_thresholds, find_ends, sum_sides, try_thresholds
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.tree.tree import Tree


class Ends(NamedTuple):
    """Ends of the value ranges of pairs of a node and a column, from which thresholds are drawn.

    Attributes
    ----------
    low, high : ndarray of float64, shape (n,)
        The lowest and the highest value; infinity and minus infinity if there are no values.
    has_missing : ndarray of bool, shape (n,)
    pure : ndarray of bool, shape (n_nodes,) or (0,)
        The nodes whose target is constant, if requested.
    first : ndarray of float64, shape (n_nodes,) or (0,)
        The target of the first row of each node, NaN for a node without rows.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    has_missing: NDArray[np.bool_]
    pure: NDArray[np.bool_] = np.empty(0, np.bool_)
    first: NDArray[np.float64] = np.empty(0)


def joined_ends(sent: Sequence[Arrays]) -> Ends:
    """Combine the ends found by several shards.

    Examples
    --------
    >>> one = Ends(np.array([1.0]), np.array([2.0]), np.array([False]))
    >>> other = Ends(np.array([0.5]), np.array([0.5]), np.array([True]))
    >>> joined_ends([one, other])[:3]
    (array([0.5]), array([2.]), array([ True]))
    """
    low, high, has_missing, pure, first = zip(*sent, strict=True)
    return Ends(np.minimum.reduce(low), np.maximum.reduce(high), np.logical_or.reduce(has_missing), pure_in_all(pure, first))


class RowsInForest(RowsInTree):
    """The rows of a shard, tree after tree; see :class:`RowsInTree`. Trees that grow side by side have one object each."""

    _scratch: list[Scratch]  # for random thresholds

    def for_another_tree(self) -> RowsInForest:
        """Return the rows for a tree that grows side by side with this one; the state that does not depend on the tree is shared."""
        other = copy.copy(self)
        other._any_target = self.forest.for_another_tree()
        other._flagged, other._categories = self._flagged.for_another_tree(), copy.copy(self._categories)
        other._begin()
        return other

    @property
    def forest(self) -> ForestTarget:
        """The target, which must be for a forest."""
        assert isinstance(self._any_target, ForestTarget)
        return self._any_target

    def draw_rows(self, tree: int, factor: NDArray[np.float64] | None = None) -> Derived:
        """Begin a tree: draw its rows and columns; ``factor``, if given, multiplies the draws of each class."""
        self._use_columns(tree)
        if self._plan.rules.random_splits:
            self._key, self._scratch = np.uint64(hashing.stream_key(self._seed, hashing.STREAM_THRESHOLD, tree)), []
        self.forest.draw(tree)
        if factor is not None:
            self.forest.weigh(factor)
        return self.forest.derived()

    def _sum(self, summed: s.Levelled, shift: int) -> dict[int, Arrays]:
        """Sum nodes; for random thresholds, by category only."""
        if not self._plan.rules.random_splits:
            return super()._sum(summed, shift)
        if not summed.node.shape[0] or not self._categories.ids.shape[0]:
            return {}
        return dict(enumerate(self._categories.sum(summed.node, self._nodes, self._rows, self.forest.added)))

    def open_search(self, message: s.FindBars, sent: list[Arrays]) -> None:
        """Begin the search of nodes by random thresholds, given their sums by category."""
        rules, root, targets = self._plan.rules, message.root, self.forest.added if self._stored.targets else None
        self._message = message
        self._limits, _ = self._stored.limits(rules).of_tree(root.sums, root.exponents, root.slope, root.noise, targets)
        self._category_search.find_bars(message, rules, sent, self._key)

    def find_ends(self, drawn: NDArray[np.bool_], nodes: NDArray[np.int64]) -> Ends:
        """Return the ends of this shard's rows in the columns drawn for each node (all if empty); determine which ``nodes`` are pure."""
        message, columns, rows, searched = self._message, self._columns, self._rows.rows, ~(self._edges.n_categories > 0)[self._pool]
        if not nodes.shape[0]:  # a continued search
            self._category_search.search_again(drawn)
        chosen = drawn & searched if drawn.shape[0] else np.broadcast_to(searched, (message.node.shape[0], searched.shape[0]))
        self._node, place = np.nonzero(chosen)
        self._column = self._pool[place].astype(np.int64)
        of_pairs = message.node[self._node]
        tasks = np.stack([self._nodes.start[of_pairs], self._nodes.stop[of_pairs], self._column], axis=1)
        codes = np.empty((tasks.shape[0], 3), np.int64)

        share_by_column(
            self.threads, columns.codes, self._column,
            lambda queue, _, own, found: find_ends(queue, own, columns, rows, found),
            [tasks], [codes], [columns.words],
        )  # fmt: skip
        low, high = columns.values_of(self._column, codes[:, 0]), columns.values_of(self._column, np.maximum(codes[:, 1], 0))
        none, (pure, first) = codes[:, 1] < 0, self.find_pure(nodes)
        return Ends(np.where(none, np.inf, low), np.where(none, -np.inf, high), codes[:, 2] > 0, pure, first)

    def sum_sides(self, ends: Ends) -> dict[int, tuple[NDArray[np.int64]]]:
        """Draw thresholds; return the sums of the shard's rows, for each shard those of the thresholds that it evaluates.

        Columns that vary in their nodes are dealt to the shards in turn; nodes with a constant target are left out.
        """
        message, columns, rows, n_shards = self._message, self._columns, self._rows, self._n_shards
        varies = (ends.low < ends.high) | (ends.has_missing & (ends.low <= ends.high))
        if ends.pure.shape[0]:
            varies &= ~ends.pure[self._node]
        some = np.flatnonzero(varies)
        node, column = self._node[some], self._column[some]
        thresholds = np.empty(some.shape[0])
        draw_thresholds(self._key, message.path[node], column, ends.low[some], ends.high[some], thresholds)
        with_missing, n = ends.has_missing[some], some.shape[0]
        missing_place = np.where(with_missing, np.cumsum(with_missing) - 1, -1)
        self._tries = np.stack([node, column, missing_place], axis=1), thresholds
        width = message.sums.shape[1] + 1
        left, missing = np.zeros((n, width), np.int64), np.zeros((int(with_missing.sum()), width), np.int64)
        cuts = columns.codes_up_to(column, thresholds)
        of_tries = message.node[node]
        tasks = np.stack([self._nodes.start[of_tries], self._nodes.stop[of_tries], column, node, missing_place], axis=1)
        limits, scratch = self._limits, self._make_scratch()

        share_by_column(
            self.threads, columns.codes, column,
            lambda queue, thread, own, own_cuts, own_left: sum_sides(
                queue, own, columns, rows, own_cuts, message.sums, limits_for_thread(limits), scratch[thread], own_left, missing
            ),
            [tasks, cuts], [left], [columns.words],
        )  # fmt: skip
        return {
            shard: (np.concatenate([left[shard::n_shards].ravel(), missing[self._of_shard(shard)[0]].ravel()]),)
            for shard in range(n_shards)
        }

    def _of_shard(self, shard: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the sums of missing rows for a shard's thresholds, and the index of each threshold among these (or -1)."""
        place = self._tries[0][shard :: self._n_shards, 2]
        has = place >= 0
        return place[has], np.where(has, np.cumsum(has) - 1, -1)

    def try_thresholds(self, sent: Sequence[Arrays]) -> s.Scanned:
        """Evaluate this shard's thresholds, given the sums of all shards; return the best split of each node, categories included."""
        message, (tries, thresholds), shard, n_shards = self._message, self._tries, self._shard, self._n_shards
        tasks = tries[shard::n_shards].copy()
        node, n, n_sums = tasks[:, 0].copy(), tasks.shape[0], message.sums.shape[1]
        tasks[:, 2] = self._of_shard(shard)[1]
        sums = add_up([one for (one,) in sent]).reshape(-1, n_sums + 1)
        own_thresholds, out = thresholds[shard::n_shards].copy(), empty_candidates(n, n_sums)
        limits, scratch, left, missing = self._limits, self._make_scratch(), sums[:n], sums[n:]
        self.threads.share(
            n,
            lambda queue, thread: try_thresholds(
                queue, tasks, own_thresholds, left, missing, message.n_rows, message.sums, limits_for_thread(limits), scratch[thread], out
            ),
        )
        best = empty_candidates(message.node.shape[0], n_sums)
        best_by_node(out, node, best)
        return self._category_search.merged(s.Scanned(best, np.full(message.node.shape[0], np.inf)))

    def _make_scratch(self) -> list[Scratch]:
        while len(self._scratch) < self.threads.n_threads:
            self._scratch.append(make_scratch(1, 1, self._stored.n_numbers, n_sums=self._stored.n_sums))
        return self._scratch

    def rows_of_leaves(self, tree: Tree, known: s.KnownLeaves, begins: NDArray[np.int64]) -> dict[int, RowsOfLeaves]:
        """Return, for each shard i, this shard's rows of the leaves that it measures, ``begins[i]`` to ``begins[i + 1] - 1``."""
        leaves, numbers = self.find_leaves(tree, known), rows_of(self._ranges).astype(np.uint32)
        return {
            shard: leaves.rows_of(first, last, numbers, self.forest.by_target)
            for shard, (first, last) in enumerate(pairwise(begins.tolist()))
        }

    def add_votes(self, number: int, tree: Tree) -> None:
        """Add the predictions of a tree for rows that it did not draw to their sums."""
        self.forest.draw(number)
        in_sample = self.forest.in_sample
        assert in_sample is not None
        rows = np.flatnonzero(~in_sample).astype(np.uint32)
        leaf = np.zeros(self._columns.n_rows)
        self._walk(tree, np.arange(tree.node_count, dtype=np.float64), leaf, rows)
        assert self.forest.out_of_bag is not None
        self.forest.out_of_bag.add(rows, leaf[rows].astype(np.int64), tree.value)
