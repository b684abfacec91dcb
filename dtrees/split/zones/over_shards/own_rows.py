"""Passes over the rows of one shard that search nothing: the next code above a cut, leaves of a finished tree, sums in order."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, kernel
from dtrees.split.compile.work_queue import claim, finish


@kernel
def next_codes(queue, nodes, columns, rows, cuts, out):
    """Write the lowest code above a cut among the rows of nodes, the number of distinct values if there is none, by several threads.

    ``nodes``, shape (n, 3), are first and last place and column.
    """
    while True:
        k = claim(queue)
        if k >= nodes.shape[0]:
            return
        start, stop, column = nodes[k]
        codes = columns.codes[column]
        lowest, cut = np.int64(columns.offsets[column + 1] - columns.offsets[column]), cuts[k]
        for i in range(start, stop):
            code = np.int64(codes[rows[i]])
            if code > cut:
                lowest = min(lowest, code)
        out[k] = lowest
        finish(queue)


@kernel
def walk_rows(queue, pieces, codes, missing, left, right, column, cuts, missing_left, values, rows, total):
    """Add to ``total``, by row, the value of the leaf of a finished tree that the row comes to, by several threads.

    Parameters
    ----------
    pieces : ndarray of int64, shape (n, 2)
        Stretches of ``rows``.
    codes : ndarray of uint32, shape (n_columns, n_rows)
    missing : ndarray of int64, shape (n_columns,)
        The code of missing values.
    left, right, column, missing_left, values : ndarray
        Of the tree's nodes.
    cuts : ndarray of int64
        The highest code that goes left.
    """
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        for i in range(pieces[k, 0], pieces[k, 1]):
            row, node = rows[i], ZERO()
            while left[node] >= 0:
                code = np.int64(codes[column[node], row])
                goes_left = missing_left[node] if code == missing[column[node]] else code <= cuts[node]
                node = np.int64(left[node] if goes_left else right[node])
            total[row] += values[node]
        finish(queue)


@kernel
def add_in_order(x, first_row, n_rows, lanes):
    """Add absolute values of a stretch of rows to the sums that :func:`~dtrees.split.numbers.fixed_point.absolute_sum` makes of all."""
    whole = n_rows - n_rows % 4
    for i in range(x.shape[0]):
        row = first_row + i
        lanes[row % 4 if row < whole else 0] += abs(x[i])
