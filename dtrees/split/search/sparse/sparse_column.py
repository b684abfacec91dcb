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
from dtrees.split.search.thresholds.sweep import SortedRows, nothing
from dtrees.split.table.keys import code_of, place_in
from dtrees.split.table.sorting import sort_keys


@specialised
def search_cells(criterion, zero_code, keys, pair, limits, bar, scratch):
    """Find the best split of one node in one sparse column.

    Parameters
    ----------
    criterion : named tuple
        That of ``limits``.
    zero_code : int
        The code of 0.
    keys : ndarray of uint64, shape (n_stored,)
        Of the node's stored cells in this column, with places from the node's first one on; they may be put in another order.
    pair : NodeColumn
        In place of the column's codes it has room for them, for criteria of order statistics.

    The others, and the result, are those of :func:`~dtrees.split.search.column.search_column`.
    """


@search_cells.otherwise
def _(criterion, zero_code, keys, pair, limits, bar, scratch):
    return _search_sums(limits.thresholds, zero_code, keys, pair, limits, bar, scratch)


@search_cells.of(Clipped)
@search_cells.of(InOrder)
def _(criterion, zero_code, keys, pair, limits, bar, scratch):
    return search_cells(criterion.criterion, zero_code, keys, pair, limits, bar, scratch)


@search_cells.of(Deviations)
def _(criterion, zero_code, keys, pair, limits, bar, scratch):
    if keys.shape[0] == 0:
        return CONSTANT, 0.0, False
    _write_out(zero_code, keys, pair)
    return search_deviations(criterion, pair, limits, bar, scratch)


@search_cells.of(SeveralDeviations)
def _(criterion, zero_code, keys, pair, limits, bar, scratch):
    if keys.shape[0] == 0:
        return CONSTANT, 0.0, False
    _write_out(zero_code, keys, pair)
    return search_deviations_of_targets(criterion, pair, limits, bar, scratch)


@lean_kernel
def _write_out(zero_code, keys, pair):
    """Write the codes of a node's rows to their places in a whole column."""
    rows, dense = pair.partition.rows[pair.start : pair.in_stop], pair.codes
    for i in range(rows.shape[0]):
        dense[rows[i]] = zero_code
    for i in range(keys.shape[0]):
        dense[rows[place_in(keys[i])]] = code_of(keys[i])


@specialised
def _search_sums(thresholds, zero_code, keys, pair, limits, bar, scratch):
    """Find the best split by a criterion that follows from sums; parameters and result as of :func:`search_cells`."""


@_search_sums.of(BestThreshold)
def _(thresholds, zero_code, keys, pair, limits, bar, scratch):
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
    return _search_random(zero_code, keys, pair, limits, bar, scratch)


@lean_kernel
def _search_random(zero_code, keys, pair, limits, bar, scratch):
    """Try a random threshold, as :func:`~dtrees.split.search.thresholds.random_threshold.search_random` does."""
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
    threshold, cut = np.inf, np.int64(n_distinct - 1)
    if low < high:
        threshold, cut = draw_threshold(pair.values, low, high, pair.bits)
    node, zeros_left = node_statistic(limits.criterion, pair.sums, n), has_zeros and zero_code <= cut
    left, missing = _sum_cells(keys, cut, n_distinct, zeros_left, pair.partition, pair.start, node, scratch.classes)
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
