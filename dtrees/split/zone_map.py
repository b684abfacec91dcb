"""The zones of every row, for all columns at once.

Each column's values are cut into up to 255 consecutive *zones* (:mod:`dtrees.split.zones` says what for). To sum all columns of a node in
one pass over its rows, the zones of a row's columns are stored side by side, a byte each.

Cuts
----
A bound on what a zone may hide grows with the zone's rows m, and noise in the sum of k rows with sqrt(k). So zones are narrow where a cut
has few rows on one side: the z-th of Z cuts is at the quantile sin(pi z / 2Z)**2, whose density makes m proportional to sqrt(k (n - k)).
The *parts* of a column, for nodes to which zones are too wide (:mod:`dtrees.split.fine`), are cut in the same way, but are looked up by
code: there is a table for each column.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.columns import Columns
from dtrees.split.kernel import ZERO, kernel
from dtrees.split.search import MAX_PARTS
from dtrees.split.zones import MAX_ZONES

#: Fewer zones for tables of few rows: to bound a zone costs about as much as to scan so many.
_ROWS_PER_ZONE = 8
_MIN_CUTS = 32
#: The same for parts.
_ROWS_PER_PART = 64
_MIN_PARTS = 256
#: Most elements of a table of parts: few enough to stay in the cache, and so many that parts are narrow at both ends of a column.
_MAX_CELLS = 2**15
_MIN_CELLS = 2**10
#: Tables of fewer rows have fewer, not to take memory: a quarter of a byte a row and column.
_ROWS_PER_CELL = 8
#: Most rows listed at an end of a column.
_LISTED = 128


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
    part_of : ndarray of uint16, shape (k, cells)
        The part of each code, shifted by ``part_shift``. Missing values may share the last part, or have the number after it.
    part_shift, n_parts : ndarray of int64, shape (k,)
    listed : ndarray of uint32, shape (k, 2, 128)
        The rows of some parts at the lower and the upper end of each column, ascending.
    ends : ndarray of int64, shape (k, 4)
        The first part that is not at the lower end, the first at the upper end, and how many rows are listed of both.
    """

    zone: NDArray[np.uint8]
    which: NDArray[np.int64]
    n_zones: NDArray[np.int64]
    exact: NDArray[np.bool_]
    first_codes: NDArray[np.int64]
    part_of: NDArray[np.uint16]
    part_shift: NDArray[np.int64]
    n_parts: NDArray[np.int64]
    listed: NDArray[np.uint32]
    ends: NDArray[np.int64]

    def take(self, places: NDArray[np.int64]) -> ZoneMap:
        """Return some of the columns."""
        zone = np.ascontiguousarray(self.zone[:, places])
        rest: list[Any] = [array[places] for array in self[1:]]
        return ZoneMap(zone, *rest)


def map_zones(columns: Columns, map: Any = map) -> ZoneMap:
    """Cut every column into zones; ``map`` as in :func:`~dtrees.split.columns.presort`."""
    n_rows, n_columns = columns.n_rows, columns.n_columns
    n_distinct = np.diff(columns.offsets)
    zone_quantiles = _quantiles(n_rows, max(_MIN_CUTS, min(MAX_ZONES - 1, n_rows // _ROWS_PER_ZONE)))
    part_quantiles = _quantiles(n_rows, max(_MIN_PARTS, min(MAX_PARTS - 1, n_rows // _ROWS_PER_PART)))
    n_cells = min(_MAX_CELLS, max(_MIN_CELLS, n_rows // _ROWS_PER_CELL))
    shifts = np.array([max(0, int(d - 1).bit_length() - n_cells.bit_length() + 1) for d in n_distinct], np.int64)
    part_of = np.zeros((n_columns, int(((n_distinct >> shifts) + 1).max(initial=1))), np.uint16)
    listed, ends = np.zeros((n_columns, 2, _LISTED), np.uint32), np.zeros((n_columns, 4), np.int64)
    starts = np.concatenate([[0], np.cumsum(n_distinct + 1)]).astype(np.int64)
    table = np.empty(starts[-1], np.uint8)  # the zones of all codes, put there column by column, so that they are not in memory twice

    def put(j: int) -> None:
        table[starts[j] : starts[j + 1]] = _cut_column(
            columns.codes[j], int(n_distinct[j]), zone_quantiles, part_quantiles, shifts[j], part_of[j], listed[j], ends[j]
        )

    list(map(put, range(n_columns)))
    zone = np.empty((n_rows, n_columns), np.uint8)
    step = max(4096, n_rows // 64)
    list(map(lambda i: _write_zones(columns.codes, table, starts, i, min(i + step, n_rows), zone), range(0, n_rows, step)))
    n_zones = table[starts[1:] - 1].astype(np.int64)
    first_codes = np.zeros((n_columns, MAX_ZONES + 1), np.int64)
    for j in range(n_columns):
        first_codes[j, : n_zones[j] + 1] = np.searchsorted(table[starts[j] : starts[j + 1]], np.arange(n_zones[j] + 1))
    n_parts = part_of[np.arange(n_columns), np.maximum(n_distinct - 1, 0) >> shifts].astype(np.int64) + 1
    return ZoneMap(zone, np.arange(n_columns), n_zones, n_zones == n_distinct, first_codes, part_of, shifts, n_parts, listed, ends)


def _quantiles(n_rows: int, n: int) -> NDArray[np.int64]:
    """Return the numbers of rows after which each of n zones is to end, ascending; the last is the number of all rows."""
    return np.rint(n_rows * np.sin(np.pi * np.arange(1, n + 1) / (2 * n)) ** 2).astype(np.int64)


@kernel
def _cut_column(codes, n_distinct, zone_quantiles, part_quantiles, shift, part_of, listed, ends):
    """Return the zone of each code, uint8 of shape (n_distinct + 1,); that of missing values, the last, is the number of zones.

    Parts are written to ``part_of``, and what :class:`ZoneMap` says to ``listed`` and ``ends``.
    """
    zone_of = np.empty(n_distinct + 1, np.uint8)
    if n_distinct < MAX_ZONES:
        for code in range(n_distinct + 1):
            zone_of[code] = part_of[code] = code
        return zone_of
    counts = np.zeros(n_distinct + 1, np.uint32)
    for i in range(codes.shape[0]):
        counts[codes[i]] += np.uint32(1)
    _cut(counts, zone_quantiles, ZERO(), zone_of)
    _cut(counts, part_quantiles, shift, part_of)
    low, high = ZERO(), n_distinct
    n = ZERO()
    for code in range(n_distinct):
        if code > 0 and part_of[code >> shift] != part_of[(code - 1) >> shift]:
            low = code
        n += np.int64(counts[code])
        if n > _LISTED:
            break
    n = ZERO()
    for code in range(n_distinct - 1, low, -1):
        n += np.int64(counts[code])
        if n > _LISTED:
            break
        if part_of[code >> shift] != part_of[(code - 1) >> shift]:
            high = code
    n_low = n_high = ZERO()
    for row in range(codes.shape[0]):
        mine = np.int64(codes[row])
        if mine < low:
            listed[0, n_low] = row
            n_low += 1
        elif high <= mine < n_distinct:
            listed[1, n_high] = row
            n_high += 1
    ends[0], ends[1], ends[2], ends[3] = part_of[low >> shift], part_of[(high - 1) >> shift] + 1, n_low, n_high
    return zone_of


@kernel
def _cut(counts, quantiles, shift, part_of):
    """Write the part of each code, shifted, given how many rows have each; codes that are equal when shifted are in the same part.

    The part of the last code, that of missing values, is the number of parts, unless it shares one.
    """
    n_distinct = counts.shape[0] - 1
    n_rows = np.int64(0)
    for code in range(n_distinct):
        n_rows += np.int64(counts[code])
    # Parts are of the rows present: quantiles are scaled to them.
    share = n_rows / quantiles[quantiles.shape[0] - 1]
    part = next_cut = n = before = ZERO()
    cell = ZERO()
    for code in range(n_distinct):
        if code >> shift != cell:
            cell = code >> shift
            if n > before and n >= quantiles[next_cut] * share:
                part += 1
                before = n
                while next_cut < quantiles.shape[0] - 1 and n >= quantiles[next_cut] * share:
                    next_cut += 1
        part_of[cell] = part
        n += np.int64(counts[code])
    if n_distinct >> shift != cell:
        part_of[n_distinct >> shift] = part + 1


@kernel
def _write_zones(codes, table, starts, first, last, zone):
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for j in range(codes.shape[0]):
            zone_of = table[starts[j] : starts[j + 1]]
            for i in range(block, end):
                zone[i, j] = zone_of[codes[j, i]]
