"""Which rows the splits of many nodes send left, as bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.node.partition import mark_left
from dtrees.split.node.sparse_division import mark_rows
from dtrees.split.table.columns import Columns, are_keyed, highest_code_below
from dtrees.split.table.sparse_columns import SparseColumns


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
    mark_left(columns.codes[column], cut, missing, missing_left, rows, ZERO(), rows.shape[0], bits)


@_mark_piece.of(SparseColumns)
def _(columns, column, threshold, missing_left, rows, bits):
    mark_rows(columns, column, _highest_code(columns, column, threshold), missing_left, rows, bits)


@inlined_kernel
def _highest_code(columns, column, threshold):
    """Return the highest code of a column whose value goes left."""
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return highest_code_below(values, NONE(), np.int64(values.shape[0]) - 1, threshold)
