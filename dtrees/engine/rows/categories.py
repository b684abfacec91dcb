"""Categorical columns over shards of rows: sums by category, the search by these sums, and which rows a set of categories sends left.

The search needs only the sums by category; no rows are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import LimitsOfFit, StoredSums
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.protocol.nodes import RouteBits, Splits
from dtrees.engine.rows.searcher import FindBars, Scanned
from dtrees.engine.shard.passes import share_by_column
from dtrees.engine.shard.row_division import mark_by_set
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import NodeTable
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.node.partition import RowPartition, SplitsOfRows
from dtrees.split.node.records import SPLIT, Candidates, best_by_node, empty_candidates
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import Columns, as_words
from dtrees.split.table.mmap_arrays import beside, forget
from dtrees.split.zones.over_shards.categories import (
    ListedNodes,
    Lists,
    find_sides,
    make_lists,
    make_tally,
    search_lists,
    settle_lists,
    sum_by_category,
)
from dtrees.split.zones.over_shards.own_rows import SetsOfTree
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree

#: Number of rows that are looked up at a time.
_ROWS_AT_A_TIME = 1 << 16
_NO_KEY, _NO_CUTS = np.uint64(0), np.empty(0)


def count_categories(columns: Columns, categorical: Sequence[int]) -> NDArray[np.int64]:
    """Return the number of categories of each categorical column in a shard's rows; 0 for other columns."""
    found = np.zeros(columns.n_columns, np.int64)
    for j in categorical:
        codes, missing = columns.codes[j], columns.missing(j)
        highest = max((int(some[some < missing].max(initial=0)) for some in _chunks(codes)), default=0)
        forget(codes)
        number = columns.values_of(j, np.array([highest]))[0]
        found[j] = 0 if np.isnan(number) else int(number) + 1
    return found


def _chunks(codes: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    return [codes[first : first + _ROWS_AT_A_TIME] for first in range(0, codes.shape[0], _ROWS_AT_A_TIME)]


class CategoryRows:
    """The categorical columns of a shard's rows.

    Parameters
    ----------
    columns : Columns
        The columns of the shard's rows.
    n_categories : ndarray of int64, shape (n_columns,)
        The number of categories over all shards; 0 for numeric columns.
    threads : Threads
    stored : StoredSums
        Which sums are stored.

    Attributes
    ----------
    ids : ndarray of int32, shape (k,)
        The numbers of the categorical columns in the table.
    """

    def __init__(self, columns: Columns, n_categories: NDArray[np.int64], threads: Threads, stored: StoredSums) -> None:
        self._columns, self._threads, self._stored = columns, threads, stored
        self.ids = np.flatnonzero(n_categories).astype(np.int32)
        self._missing = n_categories[self.ids]
        self._place_of = np.full(n_categories.shape[0], -1, np.int64)
        self._place_of[self.ids] = np.arange(self.ids.shape[0])
        self._codes = beside(columns.codes)(self.ids.shape[0] * columns.n_rows, np.uint32).reshape(self.ids.shape[0], columns.n_rows)
        list(threads.map(self._number, range(self.ids.shape[0])))
        numbers = np.concatenate([np.empty(0), *map(np.arange, self._missing.tolist())])
        self._numbered = Columns.of(self._codes, numbers, np.append(0, np.cumsum(self._missing)))
        most = (int(self._missing.max(initial=0)) + 1) * stored.per_category
        self._tallies = [make_tally(most) for _ in range(threads.n_threads if self.ids.shape[0] else 0)]

    def _number(self, place: int) -> None:
        column, missing = int(self.ids[place]), self._missing[place]
        for first in range(0, self._columns.n_rows, _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            numbers = self._columns.values_of(column, self._columns.codes[column][rows])
            self._codes[place, rows] = np.where(np.isnan(numbers), missing, numbers)
        forget(self._columns.codes[column], self._codes[place])

    def deal(self, pool: NDArray[np.int32], n_shards: int) -> list[NDArray[np.int64]]:
        """Deal the columns of a tree to shards, beginning with the last; return, for each shard, their places among the tree's columns.

        :meth:`sum` then returns the sums of each shard's columns.
        """
        which = np.flatnonzero(self._place_of[pool] >= 0)
        dealt = [which[n_shards - 1 - shard :: n_shards] for shard in range(n_shards)]
        self._dealt = [self._place_of[pool[places]] for places in dealt]
        return dealt

    def sum(self, node: NDArray[np.int64], nodes: NodeTable, partition: RowPartition, targets: NDArray[np.int64]) -> list[Arrays]:
        """Return the sums of nodes by category, for each searcher: the number of elements of each node in each column, then the elements.

        ``targets`` has the summands of all rows for multi-output targets; shape (0, 0) for one target.
        """
        n, places = node.shape[0], np.concatenate(self._dealt)
        ends = np.cumsum([n * mine.shape[0] for mine in self._dealt])
        column = np.concatenate([np.tile(mine, n) for mine in self._dealt])
        which = np.concatenate([np.repeat(np.arange(n), mine.shape[0]) for mine in self._dealt])
        first, last = nodes.start[node][which], nodes.stop[node][which]
        per_category, n_classes, per_row = self._stored.per_category, self._stored.n_classes, max(1, targets.shape[1])
        offsets = np.minimum((last - first) * per_row, (self._missing[column] + 1) * per_category)
        lists = make_lists(offsets, partition.h.shape[0] > 0)
        order = np.argsort(first - last, kind="stable")
        tasks = np.ascontiguousarray(np.stack([first, last, column, np.arange(column.shape[0])], axis=1)[order])
        if places.shape[0]:
            codes, tallies = self._codes, self._tallies
            share_by_column(
                self._threads, codes, tasks[:, 2],
                lambda queue, thread, own: sum_by_category(queue, own, codes, partition, tallies[thread], lists, n_classes, targets),
                [tasks],
            )  # fmt: skip
        sent: list[Arrays] = []
        for mine in (slice(begin, end) for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
            counts = lists.length[mine]
            at = places_of(lists.begin[mine], counts)
            sent.append((counts, lists.code[at], lists.n[at], lists.g[at], lists.h[at] if lists.h.shape[0] else lists.h))
        return sent

    def mark(self, sets: CategorySets, splits: Splits, rows: NDArray[np.uint32], nodes: NodeTable, marks: RouteBits) -> None:
        """Set the bits of the rows that splits with a set send left."""
        start, stop = nodes.start[splits.node], nodes.stop[splits.node]
        of_rows = SplitsOfRows(start, stop, self._place_of[splits.column], _NO_CUTS, splits.missing_left)
        mark_by_set(self._threads, self._numbered, rows, of_rows, sets, marks)

    def of_tree(self, tree: Tree) -> SetsOfTree:
        """Return the sets of a finished tree, and the categories of the shard's rows."""
        sets, set_of = tree.categories, np.full(tree.node_count, -1, np.int64)
        set_of[sets.node] = np.arange(sets.node.shape[0])
        return SetsOfTree(self._place_of, self._codes, set_of, sets.offset, sets.words)


class CategorySearch:
    """The search for the best splits of a tree in some categorical columns.

    Parameters
    ----------
    ids : ndarray of int32, shape (k,)
        The numbers of the columns in the table.
    places : ndarray of int64, shape (k,)
        The places of the columns among the tree's columns.
    n_codes : ndarray of int64, shape (k,)
        The code of missing values in each column.
    threads : Threads
    stored : StoredSums
        Which sums are stored.
    """

    def __init__(
        self, ids: NDArray[np.int32], places: NDArray[np.int64], n_codes: NDArray[np.int64], threads: Threads, stored: StoredSums
    ) -> None:
        self._stored = stored
        self._ids, self._places, self._n_codes, self._threads = ids, places, n_codes, threads
        most = int(n_codes.max(initial=0))
        self._values = np.empty((most, 1), np.float32)
        self._lists = make_lists(np.empty(0, np.int64), False)
        each = range(threads.n_threads if ids.shape[0] else 0)
        self._scratch = [make_scratch(1, most, stored.n_numbers, categories=True, n_sums=stored.n_sums) for _ in each]
        self._tallies = [make_tally((most + 1) * stored.per_category) for _ in each]

    def find_bars(self, message: FindBars, rules: Rules, sent: Sequence[Arrays], key: np.uint64 = _NO_KEY) -> NDArray[np.float64]:
        """Find the best splits of nodes, given the results of :meth:`CategoryRows.sum` of all shards; return their scores, -1.0 for none.

        ``key`` is the key of the tree's stream of random thresholds, if splits are random.
        """
        self._message, self._key, k = message, key, self._ids.shape[0]
        self._found = empty_candidates(message.node.shape[0] * k, message.sums.shape[1])
        if not k:
            return np.full(message.node.shape[0], -1.0)
        if rules.random_splits:  # random splits depend on the numbers of categories
            n_codes = self._values.shape[0]
            self._values = as_words(np.arange(n_codes, dtype=np.float32 if n_codes <= 2**24 else np.float64))
        self._path = message.path if rules.random_splits else np.zeros(message.node.shape[0], np.uint64)
        root = message.root
        self._limits, _ = LimitsOfFit(rules, self._stored, self._ids).of_tree(root.sums, root.exponents, root.slope, root.noise)
        self._settle(sent)
        return self._search(message.drawn)

    def _settle(self, sent: Sequence[Arrays]) -> None:
        """Combine the lists of all shards."""
        message, k, before = self._message, self._ids.shape[0], self._lists
        count, code, n, g, h = (np.concatenate([one[i] for one in sent]) for i in range(5))
        of_shards = Lists(np.cumsum(count) - count, count, code, n, g, h)
        _, other, parent, slot = (np.repeat(of, k) for of in message.tasks.T)
        column = np.tile(np.arange(k), message.tasks.shape[0])
        to, of_other = slot * k + column, other * k + column
        of_parent = np.where(other >= 0, parent * k + column, -1)
        offsets = np.zeros(message.n_slots * k, np.int64)
        counts = count.reshape(len(sent), -1)
        offsets[to] = np.minimum(counts.sum(axis=0), (self._n_codes[column] + 1) * self._stored.per_category)
        has = other >= 0
        offsets[of_other[has]] = before.length[of_parent[has]]
        self._lists = lists = make_lists(offsets, h.shape[0] > 0)
        tasks = np.ascontiguousarray(np.stack([to, of_parent, of_other], axis=1))
        begins, tallies = np.arange(count.shape[0]).reshape(len(sent), -1), self._tallies
        self._threads.share(
            tasks.shape[0], lambda queue, thread: settle_lists(queue, tasks, of_shards, begins, before, tallies[thread], lists)
        )

    def search_again(self, drawn: NDArray[np.bool_]) -> None:
        """Find the best splits of the same nodes in other columns; ``drawn`` is as for :class:`FindBars`."""
        if self._ids.shape[0] and drawn is not self._message.drawn:
            self._search(drawn)

    def _search(self, drawn: NDArray[np.bool_]) -> NDArray[np.float64]:
        message, k = self._message, self._ids.shape[0]
        n = message.node.shape[0]
        own = np.ascontiguousarray(drawn[:, self._places]) if drawn.shape[0] else np.ones((n, k), np.bool_)
        self._found = out = empty_candidates(n * k, message.sums.shape[1])
        nodes, limits, scratch = self._nodes(), self._limits, self._scratch
        self._threads.share(n * k, lambda queue, thread: search_lists(queue, nodes, limits_for_thread(limits), own, scratch[thread], out))
        return np.where(out.records["status"] == SPLIT, out.records["score"], -1.0).reshape(n, k).max(axis=1)

    def _nodes(self) -> ListedNodes:
        message = self._message
        of_columns = self._ids, self._n_codes, self._values, self._lists
        return ListedNodes(*of_columns, message.n_rows, message.sums, self._key, self._path)

    def merged(self, scanned: Scanned) -> Scanned:
        """Return, for each node, the better of the split found here and that in other columns, with the sets of the former."""
        k, n = self._ids.shape[0], self._message.node.shape[0]
        if not k:
            return scanned
        best = Candidates(scanned.candidates.records.copy(), scanned.candidates.left.copy())
        best_by_node(self._found, np.repeat(np.arange(n), k), best)
        records = best.records
        node = np.flatnonzero((records["status"] == SPLIT) & np.isin(records["column"], self._ids))
        above = scanned.above.copy()
        above[node] = np.inf
        return Scanned(best, above, self._sets(node, records[node]))

    def _sets(self, node: NDArray[np.int64], splits: NDArray[Any]) -> CategorySets:
        """Return the sets of splits found in these columns."""
        column = np.searchsorted(self._ids, splits["column"])
        sizes = (self._n_codes[column] + 31) // 32
        offsets, words = np.cumsum(sizes) - sizes, np.zeros(int(sizes.sum()), np.uint32)
        which, numbers = np.ascontiguousarray(np.stack([node, column], axis=1)), splits["threshold"].copy()
        nodes, limits, scratch = self._nodes(), self._limits, self._scratch
        self._threads.share(
            node.shape[0],
            lambda queue, thread: find_sides(queue, which, numbers, nodes, limits_for_thread(limits), scratch[thread], offsets, words),
        )
        # The words of a set end with the last that is not 0.
        of_nodes = zip(node.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
        return CategorySets.of_words({i: np.trim_zeros(words[first : first + size], "b") for i, first, size in of_nodes})
