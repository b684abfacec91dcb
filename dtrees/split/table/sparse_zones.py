"""The zones of a sparse table: consecutive values of each column, by which its stored cells are summed.

A column has few zones, each of some dozen stored cells: sums by them (:mod:`dtrees.split.zones.sums`) show in which columns a node may have
its best split, and only these are searched. The value 0 is a zone of its own. Its rows are the node's without those of stored cells, so
only stored cells are summed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, kernel
from dtrees.split.policy import CELLS_PER_ZONE, MAX_SPARSE_ZONES
from dtrees.split.table.sparse_columns import SparseColumns


@by_reference
class SparseZones(NamedTuple):
    """The zones of a sparse table. The elements of all columns are numbered: those of a column's zones, then one for missing values.

    Attributes
    ----------
    which : ndarray of int64, shape (n_columns,)
        The columns: all of the table.
    n_zones : ndarray of int64, shape (n_columns,)
    by_category : ndarray of bool, shape (n_columns,)
        False.
    zero_zone : ndarray of int64, shape (n_columns,)
        The zone of the value 0, -1 if every cell is stored.
    begins : ndarray of int64, shape (n_columns + 1,)
        First element of each column, and the end of the last.
    alone : ndarray of bool, shape (n_elements,)
        Whether a zone has a single value.
    row_starts : ndarray of int64, shape (n_rows + 1,)
        See :class:`~dtrees.split.table.sparse_columns.SparseColumns`.
    elements : ndarray of int32, shape (n_cells,)
        Element of each stored cell, row by row.
    """

    which: NDArray[np.int64]
    n_zones: NDArray[np.int64]
    by_category: NDArray[np.bool_]
    zero_zone: NDArray[np.int64]
    begins: NDArray[np.int64]
    alone: NDArray[np.bool_]
    row_starts: NDArray[np.int64]
    elements: NDArray[np.int32]


def no_zones() -> SparseZones:
    """Return the zones of no columns."""
    numbers, flags = np.empty(0, np.int64), np.empty(0, np.bool_)
    return SparseZones(numbers, numbers, flags, numbers, np.zeros(1, np.int64), flags, np.zeros(1, np.int64), np.empty(0, np.int32))


def find_zones(columns: SparseColumns) -> SparseZones:
    """Return the zones of a table.

    Examples
    --------
    >>> from dtrees.split.table.sparse_columns import presort_sparse
    >>> columns = presort_sparse(np.array([2.0, np.nan, -1.0]), np.array([0, 3, 1]), np.array([0, 2, 3]), 4)
    >>> zones = find_zones(columns)
    >>> zones.n_zones.tolist(), zones.zero_zone.tolist(), zones.begins.tolist(), zones.elements.tolist()
    ([2, 2], [0, 1], [0, 3, 6], [1, 3, 2])
    """
    k = columns.n_columns
    n_zones, zero_zone, begins = np.zeros(k, np.int64), np.full(k, -1), np.zeros(k + 1, np.int64)
    element_of = np.empty(columns.offsets[-1] + k, np.int32)  # of each code of each column, and of its missing values
    alone = np.empty(columns.offsets[-1] + k, np.bool_)
    counts = np.zeros(int(np.diff(columns.offsets).max(initial=0)) + 1, np.int64)
    _find_zones(columns, CELLS_PER_ZONE, counts, n_zones, zero_zone, begins, element_of, alone)
    elements = np.empty(columns.row_codes.shape[0], np.int32)
    _write_elements(columns, element_of, elements)
    by_category = np.zeros(k, np.bool_)
    return SparseZones(np.arange(k), n_zones, by_category, zero_zone, begins, alone[: begins[-1]].copy(), columns.row_starts, elements)


@kernel
def _find_zones(columns, cells_per_zone, counts, n_zones, zero_zone, begins, element_of, alone):
    """Write all but the elements of cells; ``counts`` is scratch space of zeros."""
    for j in range(n_zones.shape[0]):
        n_distinct, codes = columns.offsets[j + 1] - columns.offsets[j], columns.codes[columns.starts[j] : columns.starts[j + 1]]
        n_codes, own = n_distinct + 1, element_of[columns.offsets[j] + j :]
        for code in codes:
            counts[code] += 1
        has_zeros = columns.row_starts.shape[0] - 1 > codes.shape[0]
        wanted = max(cells_per_zone, codes.shape[0] // MAX_SPARSE_ZONES + 1)
        first, zone, n, n_values = begins[j], NONE(), wanted, ZERO()
        for code in range(n_distinct):
            is_zero = has_zeros and code == columns.zero_code[j]
            if is_zero or n + counts[code] > wanted:
                zone, n, n_values = zone + 1, ZERO(), ZERO()
            own[code] = first + zone
            n, n_values = n + counts[code], n_values + 1
            alone[first + zone] = n_values == 1
            if is_zero:
                zero_zone[j], n = zone, wanted
        n_zones[j] = zone + 1
        own[n_distinct] = first + n_zones[j]
        alone[first + n_zones[j]] = True
        begins[j + 1] = first + n_zones[j] + 1
        counts[:n_codes] = 0


@kernel
def _write_elements(columns, element_of, elements):
    for cell in range(elements.shape[0]):
        j = np.int64(columns.row_columns[cell])
        elements[cell] = element_of[columns.offsets[j] + j + np.int64(columns.row_codes[cell])]
