"""The columns of categories of a shard's rows: sums by category, and which rows the sets of splits send left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.rows.searching.passes import by_column
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import THREAD_ROWS
from dtrees.split.table.columns import Columns
from dtrees.split.table.mmap_arrays import beside, forget
from dtrees.split.zones.over_shards.categories import Tally, make_lists, make_tally, sum_by_category
from dtrees.split.zones.over_shards.own_rows import SetsOfTree, SplitsBySets, WalkedTree, mark_by_words, walk_rows
from dtrees.tree.category_sets import CategorySets

#: Rows that are looked up at a time.
_ROWS_AT_A_TIME = 1 << 16


def count_categories(columns: Columns, categorical: Sequence[int]) -> NDArray[np.int64]:
    """Return by how many numbers each column of categories is numbered, so far as a shard's rows tell; 0 for other columns."""
    found = np.zeros(columns.n_columns, np.int64)
    for j in categorical:
        codes, missing = columns.codes[j], columns.missing(j)
        highest = max((int(some[some < missing].max(initial=0)) for some in _pieces(codes)), default=0)
        forget(codes)
        number = columns.values_of(j, np.array([highest]))[0]
        found[j] = 0 if np.isnan(number) else int(number) + 1
    return found


def _pieces(codes: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    return [codes[first : first + _ROWS_AT_A_TIME] for first in range(0, codes.shape[0], _ROWS_AT_A_TIME)]


class CategoryRows:
    """The columns of categories of a shard's rows.

    Parameters
    ----------
    columns : Columns
        Of the shard's rows.
    n_categories : ndarray of int64, shape (n_columns,)
        By how many numbers categories are numbered, over all shards; 0 for columns that hold numbers.
    threads : Threads
    kept : SumsKept
        What is summed.

    Attributes
    ----------
    ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table.
    """

    def __init__(self, columns: Columns, n_categories: NDArray[np.int64], threads: Threads, kept: SumsKept) -> None:
        self._columns, self._threads, self._kept = columns, threads, kept
        self.ids = np.flatnonzero(n_categories).astype(np.int32)
        self._missing = n_categories[self.ids]
        self._place_of = np.full(n_categories.shape[0], -1, np.int64)
        self._place_of[self.ids] = np.arange(self.ids.shape[0])
        self._codes = beside(columns.codes)(self.ids.shape[0] * columns.n_rows, np.uint32).reshape(self.ids.shape[0], columns.n_rows)
        list(threads.map(self._number, range(self.ids.shape[0])))
        self._tallies: list[Tally] = []

    def _number(self, place: int) -> None:
        column, missing = int(self.ids[place]), self._missing[place]
        for first in range(0, self._columns.n_rows, _ROWS_AT_A_TIME):
            rows = slice(first, first + _ROWS_AT_A_TIME)
            numbers = self._columns.values_of(column, self._columns.codes[column][rows])
            self._codes[place, rows] = np.where(np.isnan(numbers), missing, numbers)
        forget(self._columns.codes[column], self._codes[place])

    def deal(self, pool: NDArray[np.int32], n_shards: int) -> list[NDArray[np.int64]]:
        """Return which columns of a tree each shard searches, as their places among the tree's; the last shard is the first one's turn.

        :meth:`sum` then sends each its own.
        """
        which = np.flatnonzero(self._place_of[pool] >= 0)
        dealt = [which[n_shards - 1 - shard :: n_shards] for shard in range(n_shards)]
        self._dealt = [self._place_of[pool[places]] for places in dealt]
        return dealt

    def sum(
        self,
        node: NDArray[np.int64],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        partition: RowPartition,
        targets: NDArray[np.int64],
    ) -> list[tuple[NDArray[Any], ...]]:
        """Return the sums of nodes by category, for each searcher: how many elements each node has in each column, and their lists.

        ``targets`` are what all rows add to the sums of several targets; shape (0, 0) of one.
        """
        n, places = node.shape[0], np.concatenate(self._dealt)
        ends = np.cumsum([n * mine.shape[0] for mine in self._dealt])
        column = np.concatenate([np.tile(mine, n) for mine in self._dealt])
        which = np.concatenate([np.repeat(np.arange(n), mine.shape[0]) for mine in self._dealt])
        first, last = start[node][which], stop[node][which]
        per_category, n_classes, per_row = self._kept.per_category, self._kept.n_classes, max(1, targets.shape[1])
        rooms = np.minimum((last - first) * per_row, (self._missing[column] + 1) * per_category)
        lists = make_lists(rooms, partition.h.shape[0] > 0)
        order = np.argsort(first - last, kind="stable")
        tasks = np.ascontiguousarray(np.stack([first, last, column, np.arange(column.shape[0])], axis=1)[order])
        if places.shape[0]:
            while len(self._tallies) < self._threads.n_threads:
                self._tallies.append(make_tally((int(self._missing.max()) + 1) * per_category))
            codes, tallies = self._codes, self._tallies

            def add(own: NDArray[np.int64]) -> None:
                self._threads.share(
                    own.shape[0],
                    lambda queue, thread: sum_by_category(queue, own, codes, partition, tallies[thread], lists, n_classes, targets),
                )

            for some in by_column(codes, tasks[:, 2]):
                add(tasks[some])
        sent: list[tuple[NDArray[Any], ...]] = []
        for mine in (slice(begin, end) for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)):
            counts = lists.length[mine]
            at = places_of(lists.begin[mine], counts)
            sent.append((counts, lists.code[at], lists.n[at], lists.g[at], lists.h[at] if lists.h.shape[0] else lists.h))
        return sent

    def mark(
        self,
        sets: CategorySets,
        column: NDArray[np.int32],
        missing_left: NDArray[np.bool_],
        rows: NDArray[np.uint32],
        places: tuple[NDArray[np.int64], NDArray[np.int64]],
        bits: NDArray[np.uint8],
        offsets: NDArray[np.int64],
    ) -> None:
        """Mark the rows that some of several splits send left, those that have a set; ``places`` are where all their nodes lie."""
        start, stop = places
        step = max(1024, int(offsets[-1]) // (2 * self._threads.n_threads) + 1)
        sizes = np.diff(offsets).tolist()
        pieces = [
            (k, i, first, min(first + step, sizes[i])) for k, i in enumerate(sets.node.tolist()) for first in range(0, sizes[i], step)
        ]
        tasks, of_split = np.array(pieces, np.int64).reshape(-1, 4), self._place_of[column]
        codes, missing, side = self._codes, self._missing, self._make_sides()
        splits = SplitsBySets(sets.offset, sets.words, of_split, missing_left, start, stop, offsets)

        def mark(own: NDArray[np.int64]) -> None:
            self._threads.share(
                own.shape[0],
                lambda queue, thread: mark_by_words(queue, own, splits, codes, missing, rows, side[thread], bits),
                most=1 + int((stop - start).sum()) // THREAD_ROWS,
            )

        for some in by_column(codes, of_split[tasks[:, 1]]):
            mark(tasks[some])

    def _make_sides(self) -> NDArray[np.uint8]:
        return np.empty((self._threads.n_threads, int(self._missing.max(initial=0)) + 1), np.uint8)

    def walk(
        self,
        tree: WalkedTree,
        sets: CategorySets,
        pieces: NDArray[np.int64],
        rows: NDArray[np.uint32],
        total: NDArray[np.float64],
    ) -> None:
        """Look rows up in a tree with sets, and add its values to their predictions."""
        columns, missing = self._columns.codes, np.diff(self._columns.offsets)
        set_of = np.full(tree.left.shape[0], -1, np.int64)
        set_of[sets.node] = np.arange(sets.node.shape[0])
        of_tree = SetsOfTree(self._place_of, self._codes, set_of, sets.offset, sets.words)
        self._threads.share(pieces.shape[0], lambda queue, _: walk_rows(queue, pieces, columns, missing, tree, of_tree, rows, total))
        forget(self._codes)
