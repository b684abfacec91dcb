"""A sparse table as codes: only cells that are not zero are stored.

Terms
-----
stored cell
    a cell whose value is not 0; a missing value is stored. Explicit zeros are not stored.
zero code
    the code of the value 0 in its column, which all cells that are not stored have.

Codes are those of the same table as :class:`~dtrees.split.table.columns.Columns`. Cells are stored twice: column by column, to find the
cells of one column, and row by row, to find the cells of a node of few rows in all columns. A stored cell takes 16 bytes, and each
distinct value 4 or 8.

Use
---
>>> import numpy as np
>>> columns = presort_sparse(np.array([2.0, np.nan, -1.0]), np.array([0, 3, 1]), np.array([0, 2, 3]), 4)
>>> columns.distinct(0), columns.distinct(1)
(array([0., 2.]), array([-1.,  0.]))
>>> columns.codes, columns.zero_code
(array([1, 2, 0], dtype=uint32), array([0, 1]))
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.table.columns import MAX_ROWS, Columns, as_words, number_values, sort_float64
from dtrees.split.table.sorting import RADIX


@by_reference
class SparseColumns(NamedTuple):
    """Presorted sparse columns of the same rows, which store only the cells that are not zero.

    Attributes
    ----------
    starts : ndarray of int64, shape (n_columns + 1,)
        Column ``j`` has the stored cells ``starts[j]:starts[j + 1]``.
    rows, codes : ndarray of uint32, shape (n_cells,)
        Row and code of each stored cell, column by column, rows ascending.
    row_starts : ndarray of int64, shape (n_rows + 1,)
        Row ``i`` has the cells ``row_starts[i]:row_starts[i + 1]`` of the next two.
    row_columns : ndarray of int32, shape (n_cells,)
    row_codes : ndarray of uint32, shape (n_cells,)
        Column and code of each stored cell, row by row, columns ascending.
    zero_code : ndarray of int64, shape (n_columns,)
        0 if every cell of a column is stored.
    words : ndarray of float32, shape (n_distinct, 1 or 2)
    offsets : ndarray of int64, shape (n_columns + 1,)
        The distinct values, with 0 if any cell is not stored; see :class:`~dtrees.split.table.columns.Columns`.
    """

    starts: NDArray[np.int64]
    rows: NDArray[np.uint32]
    codes: NDArray[np.uint32]
    row_starts: NDArray[np.int64]
    row_columns: NDArray[np.int32]
    row_codes: NDArray[np.uint32]
    zero_code: NDArray[np.int64]
    words: NDArray[np.float32]
    offsets: NDArray[np.int64]

    @property
    def values(self) -> NDArray[Any]:
        """The distinct values of all columns, float32 or float64, shape (n_distinct,)."""
        return self.words.view(np.float32 if self.words.shape[1] == 1 else np.float64)[:, 0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.starts.shape[0] - 1)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.row_starts.shape[0] - 1)

    def distinct(self, column: int) -> NDArray[Any]:
        """Return the distinct values of a column, ascending."""
        return self.values[self.offsets[column] : self.offsets[column + 1]]


#: The columns of a table, dense or sparse.
AnyColumns = Columns | SparseColumns


def presort_sparse(data: NDArray[Any], indices: NDArray[Any], starts: NDArray[Any], n_rows: int) -> SparseColumns:
    """Sort the stored cells of many columns.

    Parameters
    ----------
    data : ndarray, shape (n_cells,)
        Values other than 0, column by column, of a dtype that :func:`~dtrees.split.table.columns.presort_column` takes; NaN is missing.
    indices : ndarray of integers, shape (n_cells,)
        Their rows, ascending within a column, without duplicates.
    starts : ndarray of integers, shape (n_columns + 1,)
        Column ``j`` has the cells ``starts[j]:starts[j + 1]``.
    n_rows : int
    """
    if n_rows > MAX_ROWS:
        raise ValueError(f"X has {n_rows} rows; dtrees numbers rows with 32 bits and takes at most {MAX_ROWS}.")
    n_cells, starts = data.shape[0], np.ascontiguousarray(starts, np.int64)
    n_columns = starts.shape[0] - 1
    rows, codes = np.ascontiguousarray(indices, np.uint32), np.empty(n_cells, np.uint32)
    zero_code, offsets = np.zeros(n_columns, np.int64), np.zeros(n_columns + 1, np.int64)
    distinct = np.empty(n_cells + n_columns)
    longest = int(np.diff(starts).max(initial=0))
    keys, spare = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    values = np.ascontiguousarray(data, np.float64)
    presort_cells(values, starts, n_rows, keys, spare, np.empty(RADIX, np.int64), codes, zero_code, distinct, offsets)
    kept = distinct[: offsets[-1]].astype(np.float32 if np.can_cast(data.dtype, np.float32) else np.float64)
    row_starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n_rows), out=row_starts[1:])
    row_columns, row_codes = np.empty(n_cells, np.int32), np.empty(n_cells, np.uint32)
    _arrange_by_rows(starts, rows, codes, row_starts[:-1].copy(), row_columns, row_codes)
    words = as_words(kept)
    return SparseColumns(starts, rows, codes, row_starts, row_columns, row_codes, zero_code, words, offsets)


@kernel
def presort_cells(values, starts, n_rows, keys, spare, counts, codes, zero_code, distinct, offsets):
    """Write the codes of all cells, and the zero code and the distinct values of each column."""
    for j in range(starts.shape[0] - 1):
        start, stop = starts[j], starts[j + 1]
        mine, own = values[start:stop], distinct[offsets[j] :]
        m = stop - start
        n_distinct = ZERO()
        if m > 0:
            sort_float64(mine.view(np.uint64), keys[:m], spare[:m], counts)
            n_distinct += number_values(mine, keys[:m], codes[start:stop], own)
        if m < n_rows:
            zero = np.int64(np.searchsorted(own[:n_distinct], 0.0))
            for k in range(n_distinct, zero, -1):
                own[k] = own[k - 1]
            own[zero] = 0.0
            n_distinct += 1
            zero_code[j] = zero
            for k in range(start, stop):
                codes[k] += codes[k] >= zero
        offsets[j + 1] = offsets[j] + n_distinct


@kernel
def _arrange_by_rows(starts, rows, codes, at, row_columns, row_codes):
    """Write the cells row by row; ``at[i]`` is the place of the next cell of row i."""
    for j in range(starts.shape[0] - 1):
        for k in range(starts[j], starts[j + 1]):
            place = at[rows[k]]
            row_columns[place] = j
            row_codes[place] = codes[k]
            at[rows[k]] = place + 1


@lean_kernel
def n_steps(n):
    """Return the number of steps of a binary search among ``n`` numbers."""
    steps = ZERO() + 1
    while n > 1:
        n >>= 1
        steps += 1
    return steps
