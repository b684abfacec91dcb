"""The columns that a shard has of a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.columns import Columns


class Stock(NamedTuple):
    """See the module's text; never written to.

    Attributes
    ----------
    columns : Columns
    ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    place_of : ndarray of int64, shape (n_columns_total,)
        The index in ``columns`` of each column of the table; -1 where another shard has it.
    everything : ndarray of int32, shape (n_columns_total,)
        The numbers of all columns of the table.
    places : ndarray of int64, shape (n_columns,)
        The index in ``columns`` of every column.
    """

    columns: Columns
    ids: NDArray[np.int32]
    place_of: NDArray[np.int64]
    everything: NDArray[np.int32]
    places: NDArray[np.int64]

    @property
    def n_columns_total(self) -> int:
        """Columns of the whole table."""
        return self.everything.shape[0]

    def places_among(self, pool: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the index in ``columns`` of those of some columns of the table that are here."""
        places = self.place_of[pool]
        return places[places >= 0]


def make_stock(columns: Columns, ids: NDArray[np.int32], n_columns_total: int) -> Stock:
    """Return columns of a table together with where each is."""
    ids = np.asarray(ids, np.int32)
    place_of = np.full(n_columns_total, -1, np.int64)
    place_of[ids] = np.arange(ids.shape[0])
    return Stock(columns, ids, place_of, np.arange(n_columns_total, dtype=np.int32), np.arange(ids.shape[0]))
