"""The best split of one node in one sparse column, from the node's stored cells.

The rows of a node without a stored cell have the value 0 in common. It is the dominant value of
:mod:`dtrees.split.search.thresholds.dominant_value`: the sums of its rows are the node's without those of the stored cells, and only these
are looked at. For criteria of order statistics, which no sums tell, the column is written out for the rows of the node, if it has stored
cells there at all.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, lean_kernel, separate_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints.kinds import Clipped, InOrder
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.criteria.statistics import minus, plus_row, weight_at
from dtrees.split.node.limits import BestThreshold, RandomThreshold
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.search.column import search_sorted
from dtrees.split.search.order_statistics.one_target import search_deviations
from dtrees.split.search.order_statistics.several_targets import search_deviations_of_targets
from dtrees.split.search.thresholds.dominant_value import search_around_dominant
from dtrees.split.search.thresholds.random_threshold import draw_threshold, try_threshold
from dtrees.split.search.thresholds.sweep import nothing
from dtrees.split.table.keys import code_of, place_in
from dtrees.split.table.sorting import sort_keys


@specialised
def search_cells(criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense):
    """Find the best split of one node in one sparse column.

    Parameters
    ----------
    criterion : named tuple
        That of ``limits``.
    columns : SparseColumns
    column : int
    keys : ndarray of uint64, shape (n_stored,)
        Of the node's stored cells in this column, with places from the node's first one on; they may be put in another order.
    dense : ndarray of uint32
        Room for the codes of a whole column, for criteria of order statistics.

    The others, and the result, are those of :func:`~dtrees.split.search.column.search_column`.
    """


@search_cells.otherwise
def _(criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense):
    return _search_sums(limits.thresholds, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch)


@search_cells.of(Clipped)
@search_cells.of(InOrder)
def _(criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense):
    return search_cells(
        criterion.criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense
    )  # fmt: skip


@search_cells.of(Deviations)
def _(criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense):
    if keys.shape[0] == 0:
        return CONSTANT, 0.0, False
    _write_out(columns.zero_code[column], keys, partition.rows[start:in_stop], dense)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return search_deviations(criterion, dense, values, partition, start, in_stop, limits, threshold_bits, bar, scratch)


@search_cells.of(SeveralDeviations)
def _(criterion, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch, dense):
    if keys.shape[0] == 0:
        return CONSTANT, 0.0, False
    _write_out(columns.zero_code[column], keys, partition.rows[start:in_stop], dense)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return search_deviations_of_targets(criterion, dense, values, partition, start, in_stop, limits, threshold_bits, bar, scratch)


@lean_kernel
def _write_out(zero_code, keys, rows, dense):
    """Write the codes of a node's rows to their places in a whole column."""
    for i in range(rows.shape[0]):
        dense[rows[i]] = zero_code
    for i in range(keys.shape[0]):
        dense[rows[place_in(keys[i])]] = code_of(keys[i])


@specialised
def _search_sums(thresholds, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch):
    """Find the best split by a criterion that follows from sums; parameters and result as of :func:`search_cells`."""


@_search_sums.of(BestThreshold)
def _(thresholds, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch):
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    return _search_best(columns.zero_code[column], n_distinct, keys, partition, start, in_stop, sums, limits, bar, scratch)


@separate_kernel
def _search_best(zero_code, n_distinct, keys, partition, start, in_stop, sums, limits, bar, scratch):
    """Find the best of all splits."""
    m = keys.shape[0]
    if m < in_stop - start:
        return search_around_dominant(keys, n_distinct, partition, start, in_stop, zero_code, sums, limits, bar, scratch)
    sort_keys(keys, scratch.spare, m, scratch.counts)
    return search_sorted(keys, ZERO(), m, n_distinct, partition.g, partition.h, start, sums, limits, bar, scratch)


@_search_sums.of(RandomThreshold)
def _(thresholds, columns, column, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch):
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return _search_random(columns.zero_code[column], values, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch)


@lean_kernel
def _search_random(zero_code, values, keys, partition, start, in_stop, sums, limits, threshold_bits, bar, scratch):
    """Try a random threshold, as :func:`~dtrees.split.search.thresholds.random_threshold.search_random` does."""
    n_distinct, n, m = values.shape[0], in_stop - start, keys.shape[0]
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
    threshold, cut = np.inf, np.int64(n_distinct - 1)
    if low < high:
        threshold, cut = draw_threshold(values, low, high, threshold_bits)
    node = node_statistic(limits.criterion, sums, n)
    left, missing = _sum_cells(keys, cut, n_distinct, has_zeros and zero_code <= cut, partition, start, node, scratch.classes)
    top = try_threshold(limits, left, missing, node, low < high, cut, threshold, bar, scratch)
    return SPLIT if top >= 0.0 else NO_SPLIT, top, n_missing > 0


@lean_kernel
def _sum_cells(keys, cut, missing_code, zeros_left, partition, start, node, room):
    """Return the statistics of the rows with codes up to ``cut``, and of those whose value is missing.

    The side on which the zeros are is the node without the other rows.
    """
    a, b = partition.g, partition.h
    side, missing = nothing(node, room[0]), nothing(node, room[1])
    for i in range(keys.shape[0]):
        code, place = code_of(keys[i]), start + np.int64(place_in(keys[i]))
        if code == missing_code:
            missing = plus_row(missing, a[place], weight_at(b, place))
        elif (code <= cut) != zeros_left:
            side = plus_row(side, a[place], weight_at(b, place))
    if zeros_left:
        side = minus(minus(node, missing, room[2]), side, room[0])
    return side, missing
