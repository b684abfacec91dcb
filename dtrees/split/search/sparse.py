"""The best split of one node in one sparse column, from the node's stored cells.

Stored cells are listed as keys. The cells of one column are found by a pass over them, or by looking up each row of the node among them;
those of all columns by a pass over the rows of the node. The fastest of these is chosen (:func:`lists_all`), so the time for a node is
proportional to the number of stored cells in its rows, or in the columns drawn for it.

The rows of a node without a stored cell all have the value 0, the dominant value of :mod:`dtrees.split.search.sweep`: the sums of its
rows are the node's minus those of the stored cells, and only these are read. For criteria of order statistics, which do not follow from
sums, the column is written out for the rows of the node, if it has stored cells there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, lean_kernel, separate_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.criteria.statistics import minus, nothing, plus_row, weight_at
from dtrees.split.node.limits import RandomThreshold
from dtrees.split.node.records import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.policy import LISTED_CELL, LISTED_SHARE
from dtrees.split.search.column import search_column, search_sorted
from dtrees.split.search.random_threshold import draw_threshold, try_threshold
from dtrees.split.search.sweep import SortedRows, search_around_dominant
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.sorting import code_in, code_of, key_of, lower_bound, place_in, sort_keys
from dtrees.split.table.sparse_columns import SparseColumns, n_steps


@by_reference
class CellBuffer(NamedTuple):
    """Buffers of a thread for finding the stored cells of nodes.

    Attributes
    ----------
    place_of : ndarray of uint32, shape (n_rows,)
        Place of each row in the row partition.
    keys : ndarray of uint64
        Keys of stored cells, with places counted from the node's first one.
    n_listed : ndarray of int32, shape (n_columns,)
        Number of listed cells of each column, 0 between two nodes; -1 for columns that the tree may not use.
    end : ndarray of int64, shape (n_columns,)
        End of the listed cells of each column in ``keys``.
    present : ndarray of int32, shape (n_columns + 1,)
        The columns with listed cells come first.
    dense : ndarray of uint32, shape (n_rows,) or (0,)
        A buffer for the codes of a whole column, for criteria that need them.
    """

    place_of: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    n_listed: NDArray[np.int32]
    end: NDArray[np.int64]
    present: NDArray[np.int32]
    dense: NDArray[np.uint32]


def make_cell_buffer(columns: SparseColumns, dense: bool, place_of: NDArray[np.uint32] | None = None) -> CellBuffer:
    """Return buffers for the cells of the nodes of one tree at a time.

    ``dense``: add a buffer for a whole column; ``place_of``: share this array with other threads of the same tree.
    """
    n_rows, n_columns = columns.n_rows, columns.n_columns
    longest = int(np.diff(columns.starts).max(initial=0))
    return CellBuffer(
        mapped(n_rows, np.uint32) if place_of is None else place_of,
        mapped(max(columns.rows.shape[0] // LISTED_SHARE, longest) + 1, np.uint64),
        np.zeros(n_columns, np.int32),
        np.empty(n_columns, np.int64),
        np.empty(n_columns + 1, np.int32),
        mapped(n_rows if dense else 0, np.uint32),
    )


@lean_kernel
def lists_all(columns, rows, n_drawn, buffer):
    """Return whether listing a node's cells of all columns is faster than finding those of ``n_drawn`` columns.

    The buffer holds only a part of the table.
    """
    n_columns = columns.starts.shape[0] - 1
    in_column = columns.rows.shape[0] // n_columns + 1
    by_columns = n_drawn * (1 + min(in_column, rows.shape[0] * n_steps(in_column)))
    return _has_at_most(columns, rows, min(by_columns // LISTED_CELL, buffer.keys.shape[0]))


@lean_kernel
def may_list_all(columns, rows, buffer):
    """Return whether a node's cells of all columns fit the buffer."""
    return _has_at_most(columns, rows, buffer.keys.shape[0])


@lean_kernel
def _has_at_most(columns, rows, most):
    total, starts = ZERO(), columns.row_starts
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        total += starts[row + 1] - starts[row]
        if total > most:
            return False
    return True


@lean_kernel
def list_cells(columns, rows, buffer):
    """List the cells of some rows in all columns that the tree may use; return the number of columns with any."""
    starts, column_of, codes = columns.row_starts, columns.row_columns, columns.row_codes
    n_listed, end, present, keys = buffer.n_listed, buffer.end, buffer.present, buffer.keys
    n_present = ZERO()
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        for k in range(starts[row], starts[row + 1]):
            column = np.int64(column_of[k])
            n = n_listed[column]
            if n == 0:
                present[n_present] = column
                n_present += 1
            if n >= 0:
                n_listed[column] = n + 1
    total = ZERO()
    for k in range(n_present):
        column = np.int64(present[k])
        end[column] = total
        total += n_listed[column]
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        for k in range(starts[row], starts[row + 1]):
            column = np.int64(column_of[k])
            if n_listed[column] > 0:
                at = end[column]
                keys[at] = key_of(codes[k], i)
                end[column] = at + 1
    return n_present


@lean_kernel
def forget_cells(buffer, n_present):
    """Clear the listed cells of ``n_present`` columns."""
    for k in range(n_present):
        buffer.n_listed[np.int64(buffer.present[k])] = 0


@lean_kernel
def any_varies(buffer, n_present, n_rows):
    """Return whether one of the listed columns has more than one value in a node of ``n_rows`` rows."""
    for k in range(n_present):
        column = np.int64(buffer.present[k])
        m, end = np.int64(buffer.n_listed[column]), buffer.end[column]
        if m < n_rows:
            return True
        first = code_in(buffer.keys[end - m])
        for i in range(end - m + 1, end):
            if code_in(buffer.keys[i]) != first:
                return True
    return False


@lean_kernel
def find_cells(columns, column, rows, first, buffer):
    """Write the keys of the cells of some rows in one column to the front of ``buffer.keys``; return their number.

    The rows are at the places from ``first`` on, ascending.
    """
    start, stop = columns.starts[column], columns.starts[column + 1]
    keys, codes, place_of, n = buffer.keys, columns.codes, buffer.place_of, rows.shape[0]
    m = ZERO()
    if n * n_steps(stop - start) < stop - start:
        for i in range(n):
            start = lower_bound(columns.rows, start, stop, rows[i])
            if start < stop and columns.rows[start] == rows[i]:
                keys[m] = key_of(codes[start], i)
                m += 1
        return m
    for k in range(start, stop):
        place = np.int64(place_of[columns.rows[k]]) - first
        keys[m] = key_of(codes[k], place & 0xFFFFFFFF)
        m += (place >= 0) & (place < n)
    return m


@optional
def search_cells(criterion, zero_code, keys, pair, limits, bar, scratch):
    """Find the best split of one node in one sparse column.

    Parameters
    ----------
    criterion : named tuple
        The criterion of ``limits``, without constraints.
    zero_code : int
        The code of 0.
    keys : ndarray of uint64, shape (n_stored,)
        Keys of the node's stored cells in this column, with places counted from the node's first one; they may be reordered.
    pair : NodeColumn
        Instead of the column's codes it has a buffer for them, for criteria of order statistics.

    The others, and the result, are those of :func:`~dtrees.split.search.column.search_column`.
    """
    return _search_sums(limits.thresholds, zero_code, keys, pair, limits, bar, scratch)


@search_cells.of(Deviations, SeveralDeviations)
def _(criterion, zero_code, keys, pair, limits, bar, scratch):
    if keys.shape[0] == 0:
        return CONSTANT, 0.0, False
    _write_out(zero_code, keys, pair)
    return search_column(criterion, pair, limits, bar, scratch)


@lean_kernel
def _write_out(zero_code, keys, pair):
    """Write the codes of a node's rows to their places in a buffer for a whole column."""
    rows, dense = pair.partition.rows[pair.start : pair.in_stop], pair.codes
    for i in range(rows.shape[0]):
        dense[rows[i]] = zero_code
    for i in range(keys.shape[0]):
        dense[rows[place_in(keys[i])]] = code_of(keys[i])


@optional
def _search_sums(thresholds, zero_code, keys, pair, limits, bar, scratch):
    """Find the best split by a criterion of sums; parameters and result are those of :func:`search_cells`."""
    return _search_best(zero_code, keys, pair, limits, bar, scratch)


@separate_kernel
def _search_best(zero_code, keys, pair, limits, bar, scratch):
    """Find the best of all splits."""
    m = keys.shape[0]
    if m < pair.in_stop - pair.start:
        return search_around_dominant(keys, zero_code, pair, limits, bar, scratch)
    sort_keys(keys, scratch.spare, m, scratch.counts)
    rows = SortedRows(keys, ZERO(), m, pair.partition.g, pair.partition.h, pair.start)
    return search_sorted(rows, pair.values.shape[0], pair.sums, limits, bar, scratch)


@_search_sums.of(RandomThreshold)
def _(thresholds, zero_code, keys, pair, limits, bar, scratch):
    """Try a random threshold like :func:`~dtrees.split.search.random_threshold.search_random`."""
    n_distinct, n, m = pair.values.shape[0], pair.in_stop - pair.start, keys.shape[0]
    has_zeros = m < n
    low, high = (zero_code, zero_code) if has_zeros else (np.int64(n_distinct), np.int64(-1))
    n_missing = ZERO()
    for i in range(m):
        code = code_of(keys[i])
        if code == n_distinct:
            n_missing += 1
        else:
            low, high = min(low, code), max(high, code)
    if high < 0 or (low == high and n_missing == 0):
        return CONSTANT, 0.0, False
    threshold, cut = draw_threshold(pair.values, low, high, pair.bits)
    node, zeros_left = node_statistic(limits.criterion, pair.sums, n), has_zeros and zero_code <= cut
    left, missing = _sum_cells(keys, cut, n_distinct, zeros_left, pair.partition, pair.start, node, scratch.classes)
    top = try_threshold(limits, left, missing, node, cut, threshold, bar, scratch)
    return SPLIT if top >= 0.0 else NO_SPLIT, top, n_missing > 0


@lean_kernel
def _sum_cells(keys, cut, missing_code, zeros_left, partition, start, node, buffer):
    """Return the statistics of the rows with codes up to ``cut``, and of those with missing values.

    The statistic of the side with the zeros is the node's minus the other rows.
    """
    a, b = partition.g, partition.h
    side, missing = nothing(node, buffer[0]), nothing(node, buffer[1])
    for i in range(keys.shape[0]):
        code, place = code_of(keys[i]), start + np.int64(place_in(keys[i]))
        if code == missing_code:
            missing = plus_row(missing, a[place], weight_at(b, place))
        elif (code <= cut) != zeros_left:
            side = plus_row(side, a[place], weight_at(b, place))
    if zeros_left:
        side = minus(minus(node, missing, buffer[2]), side, buffer[0])
    return side, missing
