"""Which rows the splits of nodes send left, as bits: of one node of a sparse table, or of many nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.node.partition import Cut, goes_left, mark_left
from dtrees.split.table.columns import Columns, are_keyed, highest_code_below
from dtrees.split.table.sparse_columns import SparseColumns, find_row, n_steps


class SplitsOfRows(NamedTuple):
    """Splits of nodes, and where the rows lie that they divide.

    Attributes
    ----------
    start, stop : ndarray of int64, shape (n,)
        Places of the nodes.
    column : ndarray of integers, shape (n,)
        For kernels, the places of columns among those that they are given.
    threshold : ndarray of float64, shape (n,)
        Of keyed columns, for kernels, the highest codes that go left. Of splits on categories, a number in place of it, while a tree grows
        (:mod:`dtrees.split.search.categories`).
    missing_left : ndarray of bool, shape (n,)
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    column: NDArray[np.integer]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]


@kernel
def mark_many(queue, pieces, columns, splits, rows, marks):
    """Mark the rows that many splits send left, as :func:`~dtrees.split.node.partition.mark_left` does for one; several threads may.

    Parameters
    ----------
    queue : ndarray of int64
    pieces : ndarray of int64, shape (n_pieces, 3)
        A split, and the first and last byte of its bits to be set.
    columns : Columns or SparseColumns
    splits : SplitsOfRows
    rows : ndarray of uint32
    marks : RouteBits
        Written.
    """
    bits, offsets = marks
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        i, first, last = pieces[k]
        mine = rows[splits.start[i] + 8 * first : min(splits.start[i] + 8 * last, splits.stop[i])]
        used = bits[offsets[i] + first : offsets[i] + last]
        _mark_piece(columns, splits.column[i], splits.threshold[i], splits.missing_left[i], mine, used)
        finish(queue)


@specialised
def _mark_piece(columns, column, threshold, missing_left, rows, bits):
    """Set bit i of ``bits`` where the i-th of some rows goes left."""


@_mark_piece.of(Columns)
def _(columns, column, threshold, missing_left, rows, bits):
    missing = columns.offsets[column + 1] - columns.offsets[column]
    cut = np.int64(threshold) if are_keyed(columns) else _highest_code(columns, column, threshold)
    mark_left(columns.codes[column], Cut(cut, missing, missing_left), rows, ZERO(), rows.shape[0], bits)


@_mark_piece.of(SparseColumns)
def _(columns, column, threshold, missing_left, rows, bits):
    missing = columns.offsets[column + 1] - columns.offsets[column]
    mark_rows(columns, column, Cut(_highest_code(columns, column, threshold), missing, missing_left), rows, bits)


@inlined_kernel
def _highest_code(columns, column, threshold):
    """Return the highest code of a column whose value goes left."""
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return highest_code_below(values, NONE(), np.int64(values.shape[0]) - 1, threshold)


@lean_kernel
def mark_left_sparse(columns, column, rule, rows, place_of, start, stop, bits):
    """Set bit ``i - start`` of ``bits`` where the row at place i goes left; see :func:`~dtrees.split.node.partition.mark_left`.

    Rows without a stored cell all go the same way. ``place_of`` are the places of all rows, a uint32 each.
    """
    first, last = columns.starts[column], columns.starts[column + 1]
    if (stop - start) * n_steps(last - first) < last - first:
        mark_rows(columns, column, rule, rows[start:stop], bits)
        return
    zeros = np.uint8(0xFF) if goes_left(rule, columns.zero_code[column]) else np.uint8(0)
    for byte in range(bits.shape[0]):
        bits[byte] = zeros
    for k in range(first, last):
        place = np.int64(place_of[columns.rows[k]]) - start
        if 0 <= place < stop - start:
            bit = np.uint8(1 << (place & 7))
            if goes_left(rule, columns.codes[k]):
                bits[place >> 3] |= bit
            else:
                bits[place >> 3] &= ~bit


@lean_kernel
def mark_rows(columns, column, rule, rows, bits):
    """Set bit i of ``bits`` where the i-th of some rows goes left; each is looked for among the cells of the column. Rows may be any."""
    first, last = columns.starts[column], columns.starts[column + 1]
    for byte in range(bits.shape[0]):
        bits[byte] = 0
    for i in range(rows.shape[0]):
        k = find_row(columns, first, last, rows[i])
        stored = k < last and columns.rows[k] == rows[i]
        code = np.int64(columns.codes[k]) if stored else columns.zero_code[column]
        bits[i >> 3] |= np.uint8(goes_left(rule, code)) << np.uint8(i & 7)
