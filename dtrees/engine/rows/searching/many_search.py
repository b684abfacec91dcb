"""The search of some columns where many numbers are summed, of classes or targets, and what a shard tells searchers of flagged rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.rows.searching.flagged_rows import FlaggedRows
from dtrees.engine.rows.searching.searcher import Searcher
from dtrees.engine.shard.targets.places import as_columns
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.part_lists import NO_LISTS
from dtrees.split.zones.over_shards.flagging import MANY_FLAGGED
from dtrees.split.zones.over_shards.records import MANY_REQUEST, ShardRows, ValueElements


class ManySumsSearcher(Searcher):
    """The search of one tree in some of its columns; see :class:`Searcher`. Flagged parts are never cut finer."""

    _request, _flagged = MANY_REQUEST, MANY_FLAGGED

    def _wanted_tasks(self, requests: NDArray[Any]) -> NDArray[np.int64]:
        node, column = requests["looks"].nonzero()
        return as_columns(node, column, np.zeros(node.shape[0]))

    @property
    def _width_picked(self) -> int:
        return self._kept.width_picked(self._width > self._kept.n_numbers)

    @property
    def _row_bytes(self) -> int:
        return 8 + 8 * self._width_picked

    def _rows_sent(self, sent: list[tuple[NDArray[Any], ...]]) -> tuple[Any, Any]:
        width = self._width_picked
        runs = ValueElements(np.concatenate([one[1] for one in sent]), np.concatenate([one[2] for one in sent]).reshape(-1, width))
        return runs, ValueElements(np.empty_like(runs.values), np.empty_like(runs.elements))


class ManySumsFlaggedRows(FlaggedRows):
    """What a shard tells searchers of its rows in flagged parts; see :class:`FlaggedRows`. Nobody asks for sums by finer parts.

    Attributes
    ----------
    targets : ndarray of int64, shape (n_rows, n_targets) or (0, 0)
        What rows add to the sums of several targets, in the tree under way.
    """

    targets: NDArray[np.int64]

    def _of_shard(self, rows: RowPartition, sizes: NDArray[np.int64], share: int = 1) -> ShardRows:
        return ShardRows(self._columns, self._zone_map, NO_LISTS, rows, self.targets, self._sums_kept.n_classes)

    def _room(self, n: int, weighted: bool) -> ValueElements:
        width = self._sums_kept.width_picked(weighted)
        elements = mapped(n * width, np.int64, large_pages=False).reshape(n, width)
        return ValueElements(mapped(n, np.float64, large_pages=False), elements)
