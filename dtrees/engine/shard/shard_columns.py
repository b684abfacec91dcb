"""The columns that a shard has of a table, and the map of their zones."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads
from dtrees.split.policy import SERIAL_MAP_CELLS
from dtrees.split.table.columns import Columns
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.split.table.zone_map import ZoneMap, map_zones


class SharedZoneMap:
    """The zone map of some columns: made when it is first wanted, and shared by all threads that want it then."""

    def __init__(self, columns: AnyColumns) -> None:
        self._columns = columns
        self._lock = threading.Lock()
        self._zone_map: ZoneMap | None = None
        self._categorical: tuple[int, ...] = ()

    def get(self, threads: Threads, categorical: tuple[int, ...] = ()) -> ZoneMap:
        """Return the map, made by these threads if there is none yet; ``categorical`` are the columns here that hold categories."""
        with self._lock:
            if self._zone_map is None or self._categorical != categorical:
                columns, self._categorical = self._columns, categorical
                assert isinstance(columns, Columns), "sparse tables have no zones"
                in_turn = columns.n_rows * columns.n_columns <= SERIAL_MAP_CELLS
                self._zone_map = map_zones(columns, map if in_turn else threads.map, categorical=categorical)
            return self._zone_map


class ShardColumns(NamedTuple):
    """The columns of a shard, and where each column of the table is; never written to.

    Attributes
    ----------
    columns : Columns or SparseColumns
    ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    place_of : ndarray of int64, shape (n_columns_total,)
        The index in ``columns`` of each column of the table; -1 where another shard has it.
    everything : ndarray of int32, shape (n_columns_total,)
        The numbers of all columns of the table.
    places : ndarray of int64, shape (n_columns,)
        The index in ``columns`` of every column.
    zones : SharedZoneMap
        Of ``columns``.
    """

    columns: AnyColumns
    ids: NDArray[np.int32]
    place_of: NDArray[np.int64]
    everything: NDArray[np.int32]
    places: NDArray[np.int64]
    zones: SharedZoneMap

    @property
    def n_columns_total(self) -> int:
        """Columns of the whole table."""
        return self.everything.shape[0]

    def places_among(self, pool: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the index in ``columns`` of those of some columns of the table that are here."""
        places = self.place_of[pool]
        return places[places >= 0]

    def places_of(self, columns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in ``columns`` of those of some columns of the table, given by number, that are here."""
        return tuple(place for place in self.place_of[list(columns)].tolist() if place >= 0) if columns else ()


def make_shard_columns(
    columns: AnyColumns, ids: NDArray[np.int32], n_columns_total: int, zones: SharedZoneMap | None = None
) -> ShardColumns:
    """Return columns of a table together with where each is, and with their zone map, if others have it too."""
    ids = np.asarray(ids, np.int32)
    place_of = np.full(n_columns_total, -1, np.int64)
    place_of[ids] = np.arange(ids.shape[0])
    everything = np.arange(n_columns_total, dtype=np.int32)
    return ShardColumns(columns, ids, place_of, everything, np.arange(ids.shape[0]), zones or SharedZoneMap(columns))
