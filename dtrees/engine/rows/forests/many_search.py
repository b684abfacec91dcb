"""The search of some columns where many numbers are summed, of classes or targets, and what a shard tells searchers of flagged rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows.searching.flagged_rows import FlaggedRows, joined
from dtrees.engine.rows.searching.passes import by_column, take_tasks
from dtrees.engine.rows.searching.searcher import Searcher, Wanted
from dtrees.engine.shard.targets.places import as_columns, bounds_of, places_of
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.node.partition import RowPartition
from dtrees.split.zones.over_shards.many_sums.flagging import MANY_REQUEST, flag_many, settle_many
from dtrees.split.zones.over_shards.many_sums.scanning import pick_many, scan_many


class ManySumsSearcher(Searcher):
    """The search of one tree in some of its columns; see :class:`Searcher`. Flagged parts are never cut finer."""

    _settle = staticmethod(settle_many)
    _scan_rows = staticmethod(scan_many)

    def flag(self, bars: NDArray[np.float64], drawn: NDArray[np.bool_]) -> Wanted:
        """Flag parts that may hold better splits than the bars, in columns drawn, and return what rows that takes."""
        self._bars = bars = bars.copy()
        message, n, k, rooms = self._open_flags()
        self._requests = requests = np.zeros((n, k), MANY_REQUEST)
        self._flagged = flagged = np.empty(int(rooms[-1]), np.int64)
        limits, own, out = self._limits, self._own(drawn), self._out
        zone_map, ids, sums, scratch = self._zone_map, self._ids, self._sums, self._scratch
        if k:
            self._threads.share(
                n,
                lambda queue, thread: flag_many(
                    queue, ids, zone_map, sums, message.n_rows, message.sums, limits_for_thread(limits), own, bars, scratch[thread], rooms,
                    requests, flagged, out,
                ),
            )  # fmt: skip
        node, column = requests["looks"].nonzero()
        self._tasks = as_columns(node, column, np.zeros(node.shape[0]))
        return self._wanted(flagged)

    def _rows_sent(self, sent: list[tuple[NDArray[Any], ...]]) -> tuple[Any, Any]:
        width = self._kept.width_picked(self._width > self._kept.n_numbers)
        runs = np.concatenate([one[1] for one in sent]), np.concatenate([one[2] for one in sent]).reshape(-1, width)
        total = runs[0].shape[0]
        return runs, (np.empty(total), np.empty((total, width), np.int64))


class ManySumsFlaggedRows(FlaggedRows):
    """What a shard tells searchers of its rows in flagged parts; see :class:`FlaggedRows`. Nobody asks for sums by finer parts.

    Attributes
    ----------
    targets : ndarray of int64, shape (n_rows, n_targets) or (0, 0)
        What rows add to the sums of several targets, in the tree under way.
    """

    targets: NDArray[np.int64]

    def pick(
        self, wanted: Sequence[Wanted], rows: RowPartition, places: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> dict[int, tuple[NDArray[Any], ...]]:
        """Return the rows that searchers want: how many values of each task, and the values with the elements of their rows."""
        self._make_scratch()
        whole, ends = joined(wanted)
        node, column, shift, n_rows, _ = whole.tasks.T
        start, stop = places[0][node], places[1][node]
        rooms = bounds_of(np.minimum(n_rows, stop - start))
        total, kept, targets = int(rooms[-1]), self._sums_kept, self.targets
        width, n_classes = kept.width_picked(rows.h.shape[0] > 0), kept.n_classes
        values, elements, counts = np.empty(total), np.empty((total, width), np.int64), np.zeros(node.shape[0], np.int64)
        tasks, parts = as_columns(start, stop, column, shift), whole.parts.astype(np.int64)
        columns, zone_map, scratch = self._columns, self._zone_map, self._scratch

        def pick(some: Any) -> None:
            own, begins, own_parts = take_tasks(some, tasks, whole.begins, parts)
            own_rooms, own_counts = rooms[some], counts[some]
            self._threads.share(
                own.shape[0],
                lambda queue, thread: pick_many(
                    queue, own, own_parts, begins, columns, zone_map, rows, scratch[thread], own_rooms, values, elements, own_counts,
                    targets, n_classes,
                ),
            )  # fmt: skip
            counts[some] = own_counts

        for some in by_column(columns.codes, self._pool[column], columns.words):
            pick(some)
        at = places_of(rooms[:-1], counts)
        values, elements = values[at], elements[at]
        bounds = bounds_of(counts)[ends].tolist()
        return {
            searcher: (counts[i:j], values[first:last], elements[first:last].reshape(-1))
            for searcher, ((i, j), (first, last)) in enumerate(zip(pairwise(ends.tolist()), pairwise(bounds), strict=True))
        }
