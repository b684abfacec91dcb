"""Which rows a split in a sparse column sends left."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import lean_kernel
from dtrees.split.node.partition import goes_left
from dtrees.split.table.sparse_columns import find_row, n_steps


@lean_kernel
def mark_left_sparse(columns, column, cut, missing_left, rows, place_of, start, stop, bits):
    """Set bit ``i - start`` of ``bits`` where the row at place i goes left; see :func:`~dtrees.split.node.partition.mark_left`.

    Rows without a stored cell all go the same way. ``place_of`` are the places of all rows, a uint32 each.
    """
    first, last = columns.starts[column], columns.starts[column + 1]
    if (stop - start) * n_steps(last - first) < last - first:
        mark_rows(columns, column, cut, missing_left, rows[start:stop], bits)
        return
    missing_code = columns.offsets[column + 1] - columns.offsets[column]
    zeros = np.uint8(0xFF) if columns.zero_code[column] <= cut else np.uint8(0)
    for byte in range(bits.shape[0]):
        bits[byte] = zeros
    for k in range(first, last):
        place = np.int64(place_of[columns.rows[k]]) - start
        if 0 <= place < stop - start:
            bit = np.uint8(1 << (place & 7))
            if goes_left(np.int64(columns.codes[k]), cut, missing_code, missing_left):
                bits[place >> 3] |= bit
            else:
                bits[place >> 3] &= ~bit


@lean_kernel
def mark_rows(columns, column, cut, missing_left, rows, bits):
    """Set bit i of ``bits`` where the i-th of some rows goes left; each is looked for among the cells of the column. Rows may be any."""
    first, last = columns.starts[column], columns.starts[column + 1]
    missing_code = columns.offsets[column + 1] - columns.offsets[column]
    for byte in range(bits.shape[0]):
        bits[byte] = 0
    for i in range(rows.shape[0]):
        k = find_row(columns, first, last, rows[i])
        stored = k < last and columns.rows[k] == rows[i]
        code = np.int64(columns.codes[k]) if stored else columns.zero_code[column]
        bits[i >> 3] |= np.uint8(goes_left(code, cut, missing_code, missing_left)) << np.uint8(i & 7)
