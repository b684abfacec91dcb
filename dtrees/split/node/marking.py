"""Which rows the splits of many nodes send left, as bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.node.partition import mark_left
from dtrees.split.table.columns import are_keyed, highest_code_below


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
    """Mark the rows that many splits send left, as :func:`mark_left` does for one; several threads may.

    Parameters
    ----------
    queue : ndarray of int64
    pieces : ndarray of int64, shape (n_pieces, 3)
        A split, and the first and last byte of its bits to be set.
    columns : Columns
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
        j = splits.column[i]
        missing = columns.offsets[j + 1] - columns.offsets[j]
        if are_keyed(columns):
            cut = np.int64(splits.threshold[i])
        else:
            values = columns.words[columns.offsets[j] : columns.offsets[j + 1]]
            cut = highest_code_below(values, NONE(), missing - 1, splits.threshold[i])
        start, stop = splits.start[i] + 8 * first, min(splits.start[i] + 8 * last, splits.stop[i])
        used = bits[offsets[i] + first : offsets[i] + last]
        mark_left(columns.codes[j], cut, missing, splits.missing_left[i], rows, start, stop, used)
        finish(queue)
