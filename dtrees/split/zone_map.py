"""The zones of every row, for all columns at once.

Each column's values are cut into up to 255 consecutive *zones* (:mod:`dtrees.split.zones` says what for). To sum all columns of a node in
one pass over its rows, the zones of a row's columns are stored side by side, a byte each.

Cuts
----
A bound on what a zone may hide grows with the zone's rows m, and noise in the sum of k rows with sqrt(k). So zones are narrow where a cut
has few rows on one side: the z-th of Z cuts is at the quantile sin(pi z / 2Z)**2, whose density makes m proportional to sqrt(k (n - k)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.columns import Columns
from dtrees.split.kernel import ZERO, kernel
from dtrees.split.zones import MAX_ZONES

#: Fewer zones for tables of few rows: to bound a zone costs about as much as to scan so many.
_ROWS_PER_ZONE = 8
_MIN_CUTS = 32


class ZoneMap(NamedTuple):
    """The zones of every row, for some columns.

    Attributes
    ----------
    zone : ndarray of uint8, shape (n_rows, k)
        Missing values have the number after the last zone.
    which : ndarray of int64, shape (k,)
        The columns, ascending.
    n_zones : ndarray of int64, shape (k,)
        At most 255.
    exact : ndarray of bool, shape (k,)
        Whether each zone is a single value.
    first_codes : ndarray of int64, shape (k, 257)
        The first code of each zone, and the code of missing values.
    """

    zone: NDArray[np.uint8]
    which: NDArray[np.int64]
    n_zones: NDArray[np.int64]
    exact: NDArray[np.bool_]
    first_codes: NDArray[np.int64]

    def take(self, places: NDArray[np.int64]) -> ZoneMap:
        """Return some of the columns."""
        zone = np.ascontiguousarray(self.zone[:, places])
        return ZoneMap(zone, self.which[places], self.n_zones[places], self.exact[places], self.first_codes[places])


def map_zones(columns: Columns, map: Any = map) -> ZoneMap:
    """Cut every column into zones; ``map`` as in :func:`~dtrees.split.columns.presort`."""
    n_rows, n_columns = columns.n_rows, columns.n_columns
    n_distinct = np.diff(columns.offsets)
    n_cuts = max(_MIN_CUTS, min(MAX_ZONES - 1, n_rows // _ROWS_PER_ZONE))
    quantiles = np.rint(n_rows * np.sin(np.pi * np.arange(1, n_cuts + 1) / (2 * n_cuts)) ** 2).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(n_distinct + 1)]).astype(np.int64)
    table = np.empty(starts[-1], np.uint8)  # the zones of all codes, put there column by column, so that they are not in memory twice

    def put(j: int) -> None:
        table[starts[j] : starts[j + 1]] = zones_of_codes(columns.codes[j], int(n_distinct[j]), quantiles)

    list(map(put, range(n_columns)))
    zone = np.empty((n_rows, n_columns), np.uint8)
    step = max(4096, n_rows // 64)
    list(map(lambda i: _write_zones(columns.codes, table, starts, i, min(i + step, n_rows), zone), range(0, n_rows, step)))
    n_zones = table[starts[1:] - 1].astype(np.int64)
    first_codes = np.zeros((n_columns, MAX_ZONES + 1), np.int64)
    for j in range(n_columns):
        first_codes[j, : n_zones[j] + 1] = np.searchsorted(table[starts[j] : starts[j + 1]], np.arange(n_zones[j] + 1))
    return ZoneMap(zone, np.arange(n_columns), n_zones, n_zones == n_distinct, first_codes)


@kernel
def zones_of_codes(codes, n_distinct, quantiles):
    """Return the zone of each code, uint8 of shape (n_distinct + 1,); that of missing values, the last, is the number of zones.

    ``quantiles`` are the numbers of rows after which a zone is to end, ascending; the last is the number of all rows.
    """
    zone_of = np.empty(n_distinct + 1, np.uint8)
    if n_distinct < MAX_ZONES:
        for code in range(n_distinct + 1):
            zone_of[code] = code
        return zone_of
    counts = np.zeros(n_distinct + 1, np.uint32)
    for i in range(codes.shape[0]):
        counts[codes[i]] += np.uint32(1)
    # Zones are of the rows present: quantiles are scaled to them.
    share = (codes.shape[0] - counts[n_distinct]) / codes.shape[0]
    zone = ZERO()
    next_cut = ZERO()
    n = 0
    for code in range(n_distinct):
        if n > 0 and n >= quantiles[next_cut] * share:
            zone += 1
            while next_cut < quantiles.shape[0] - 1 and n >= quantiles[next_cut] * share:
                next_cut += 1
        zone_of[code] = zone
        n += counts[code]
    zone_of[n_distinct] = zone + 1
    return zone_of


@kernel
def _write_zones(codes, table, starts, first, last, zone):
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for j in range(codes.shape[0]):
            zone_of = table[starts[j] : starts[j + 1]]
            for i in range(block, end):
                zone[i, j] = zone_of[codes[j, i]]
