"""The columns that a shard has of a table, and the map of their zones."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads
from dtrees.split.policy import SERIAL_MAP_CELLS
from dtrees.split.table.columns import Columns
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.split.table.zone_map import ZoneMap, map_zones


class ShardColumns:
    """The columns of a shard, and where each column of the table is; never written to.

    Parameters
    ----------
    columns : Columns or SparseColumns
    ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    n_columns_total : int
        Columns of the whole table.

    Attributes
    ----------
    place_of : ndarray of int64, shape (n_columns_total,)
        The index in ``columns`` of each column of the table; -1 where another shard has it.
    everything : ndarray of int32, shape (n_columns_total,)
        The numbers of all columns of the table.
    places : ndarray of int64, shape (n_columns,)
        The index in ``columns`` of every column.
    """

    def __init__(self, columns: AnyColumns, ids: NDArray[np.int32], n_columns_total: int) -> None:
        self.columns, self.ids, self.n_columns_total = columns, np.asarray(ids, np.int32), n_columns_total
        self.places = np.arange(self.ids.shape[0])
        self.place_of = np.full(n_columns_total, -1, np.int64)
        self.place_of[self.ids] = self.places
        self.everything = np.arange(n_columns_total, dtype=np.int32)
        self._lock = threading.Lock()
        self._zone_map: ZoneMap | None = None
        self._categorical: tuple[int, ...] = ()

    def places_among(self, pool: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the index in ``columns`` of those of some columns of the table that are here."""
        places = self.place_of[pool]
        return places[places >= 0]

    def zone_map(self, threads: Threads, categorical: tuple[int, ...]) -> ZoneMap:
        """Return the map of zones, where these columns of the table hold categories: made when it is first wanted, by these threads.

        All threads that want it meanwhile share it.
        """
        with self._lock:
            if self._zone_map is None or self._categorical != categorical:
                columns, self._categorical = self.columns, categorical
                assert isinstance(columns, Columns), "sparse tables have no zones"
                in_turn = columns.n_rows * columns.n_columns <= SERIAL_MAP_CELLS
                here = tuple(self.places_among(np.array(categorical, np.int32)).tolist())
                self._zone_map = map_zones(columns, map if in_turn else threads.map, categorical=here)
            return self._zone_map
