"""The search of columns of categories for the best splits of nodes, by what shards of rows have summed.

Sums by category are all that it takes: no rows are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.steps import FindBars, Scanned
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.candidate import SPLIT, Candidates, best_by_node, empty_candidates
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.columns import as_words
from dtrees.split.zones.over_shards.categories import (
    ListedNodes,
    Lists,
    Tally,
    find_sides,
    make_lists,
    make_tally,
    search_lists,
    settle_lists,
)
from dtrees.tree.category_sets import CategorySets

_NO_KEY = np.uint64(0)


class CategorySearch:
    """The search of one tree in some columns of categories.

    Parameters
    ----------
    ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table.
    places : ndarray of int64, shape (k,)
        Of these among the tree's columns.
    n_codes : ndarray of int64, shape (k,)
        The code of missing values in each.
    threads : Threads
    kept : SumsKept
        What is summed.
    """

    def __init__(
        self, ids: NDArray[np.int32], places: NDArray[np.int64], n_codes: NDArray[np.int64], threads: Threads, kept: SumsKept
    ) -> None:
        self._kept = kept
        self._ids, self._places, self._n_codes, self._threads = ids, places, n_codes, threads
        most = int(n_codes.max(initial=0))
        self._values = np.empty((most, 1), np.float32)
        self._lists = make_lists(np.empty(0, np.int64), False)
        self._tallies: list[Tally] = []
        self._scratch: list[Scratch] = []

    def find_bars(
        self, message: FindBars, rules: Rules, sent: Sequence[tuple[NDArray[Any], ...]], key: np.uint64 = _NO_KEY
    ) -> NDArray[np.float64]:
        """Find the best splits of nodes, given what :meth:`CategoryRows.sum` has of each shard; return their scores, -1.0 for none.

        ``key`` is of the tree's stream of random thresholds, if splits are drawn.
        """
        self._message, self._key, k = message, key, self._ids.shape[0]
        self._found = empty_candidates(message.node.shape[0] * k, message.sums.shape[1])
        if not k:
            return np.full(message.node.shape[0], -1.0)
        while len(self._scratch) < self._threads.n_threads:
            most = self._values.shape[0]
            self._scratch.append(make_scratch(1, most, self._kept.n_numbers, categories=True, n_sums=self._kept.n_sums))
            self._tallies.append(make_tally((most + 1) * self._kept.per_category))
        if rules.random_splits:  # then the numbers of categories matter
            n_codes = self._values.shape[0]
            self._values = as_words(np.arange(n_codes, dtype=np.float32 if n_codes <= 2**24 else np.float64))
        self._path = message.path if rules.random_splits else np.zeros(message.node.shape[0], np.uint64)
        root = message.root
        self._limits, _ = self._kept.limits(rules, root.sums, root.exponents, root.slope, ids=self._ids)
        self._settle(sent)
        return self._search(message.drawn)

    def _settle(self, sent: Sequence[tuple[NDArray[Any], ...]]) -> None:
        """Put lists of shards together."""
        message, k, before = self._message, self._ids.shape[0], self._lists
        count, code, n, g, h = (np.concatenate([one[i] for one in sent]) for i in range(5))
        of_shards = Lists(np.cumsum(count) - count, count, code, n, g, h)
        _, other, parent, slot = (np.repeat(of, k) for of in message.tasks.T)
        column = np.tile(np.arange(k), message.tasks.shape[0])
        to, of_other = slot * k + column, other * k + column
        of_parent = np.where(other >= 0, parent * k + column, -1)
        rooms = np.zeros(message.n_slots * k, np.int64)
        counts = count.reshape(len(sent), -1)
        rooms[to] = np.minimum(counts.sum(axis=0), (self._n_codes[column] + 1) * self._kept.per_category)
        has = other >= 0
        rooms[of_other[has]] = before.length[of_parent[has]]
        self._lists = lists = make_lists(rooms, h.shape[0] > 0)
        tasks = np.ascontiguousarray(np.stack([to, of_parent, of_other], axis=1))
        begins, tallies = np.arange(count.shape[0]).reshape(len(sent), -1), self._tallies
        self._threads.share(
            tasks.shape[0], lambda queue, thread: settle_lists(queue, tasks, of_shards, begins, before, tallies[thread], lists)
        )

    def search_again(self, drawn: NDArray[np.bool_]) -> None:
        """Find the best splits of the same nodes in other columns, ``drawn`` as of :class:`FindBars`."""
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
        """Return the better of the splits found here and in other columns, with the sets of the former."""
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
        """Return the sets of splits found in the columns here."""
        column = np.searchsorted(self._ids, splits["column"])
        sizes = (self._n_codes[column] + 31) // 32
        rooms, words = np.cumsum(sizes) - sizes, np.zeros(int(sizes.sum()), np.uint32)
        which, numbers = np.ascontiguousarray(np.stack([node, column], axis=1)), splits["threshold"].copy()
        nodes, limits, scratch = self._nodes(), self._limits, self._scratch
        self._threads.share(
            node.shape[0],
            lambda queue, thread: find_sides(queue, which, numbers, nodes, limits_for_thread(limits), scratch[thread], rooms, words),
        )
        # No set has words after the last that is not 0.
        kept = np.array(
            [_n_words(words[first : first + size]) for first, size in zip(rooms.tolist(), sizes.tolist(), strict=True)], np.int64
        )
        offset = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return CategorySets(node.astype(np.int32), offset, words[places_of(rooms, kept)])


def _n_words(words: NDArray[np.uint32]) -> int:
    some = np.flatnonzero(words)
    return int(some[-1]) + 1 if some.shape[0] else 0
