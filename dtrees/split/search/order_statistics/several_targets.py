"""The best split of one node in one column by the absolute error, or a quantile, of several targets.

Target by target, the node's rows are put in line and the deviations of both sides of all splits are found as for one target
(:mod:`dtrees.split.search.order_statistics`); they are added up, and the split of the largest gain in all is taken. Deviations
are exact, and so are their sums: levels have as many bits fewer as the targets need.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.statistics import no_moments, plus_row, weight_at
from dtrees.split.node.found import HAS_THRESHOLD, NONE_HIGHER, note_found
from dtrees.split.node.limits import BestThreshold, RandomThreshold, SortedThreshold
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.policy import POINTER_STEPS
from dtrees.split.search.order_statistics.at_random import deviation_of, list_codes
from dtrees.split.search.order_statistics.deviations import gain_of, may_be_taken
from dtrees.split.search.order_statistics.line_up import line_up_by_keys, list_items
from dtrees.split.search.order_statistics.removals import deviations
from dtrees.split.search.thresholds.random_threshold import draw_threshold
from dtrees.split.table.keys import code_in, code_of, key_of


@inner_kernel
def _put_in_line(criterion, t, partition, start, in_stop, scratch):
    """Put a node's in-sample rows in the order of one target."""
    rows, a = criterion.rows, partition.g
    for i in range(in_stop - start):
        scratch.keys[i] = key_of(rows[a[start + i], t], i)
    line_up_by_keys(criterion.criterion, partition.rows, partition.h, start, in_stop - start, scratch)


@inner_kernel
def _add(found, total, anew):
    """Add the deviations of one target to those of the targets before it, of which there are none yet if ``anew``."""
    for i in range(found.shape[0]):
        if anew:
            total[i] = found[i]
        else:
            total[i].high += found[i].high
            total[i].low += found[i].low


@inner_kernel
def _sum_left(codes, partition, start, in_stop, cut, missing, missing_left):
    """Return the moments of the rows with codes up to ``cut``, with the missing ones if they go left."""
    left = no_moments()
    for i in range(start, in_stop):
        code = np.int64(codes[partition.rows[i]])
        if missing_left if code == missing else code <= cut:
            left = plus_row(left, partition.g[i], weight_at(partition.h, i))
    return left


@kernel
def search_deviations_of_targets(criterion, pair, limits, bar, scratch):
    """Find the best split of a node in one column; parameters and result as of :func:`~dtrees.split.search.column.search_column`.

    ``criterion`` is the :class:`~dtrees.split.criteria.several.SeveralDeviations` in ``limits``.
    """
    return _search(limits.thresholds, criterion, pair, limits, bar, scratch)


@specialised
def _search(thresholds, criterion, pair, limits, bar, scratch):
    """Find the best split; see :func:`search_deviations_of_targets`."""


@_search.of(SortedThreshold)
@_search.of(BestThreshold)
def _(thresholds, criterion, pair, limits, bar, scratch):
    return _search_all_thresholds(criterion, pair, limits, bar, scratch)


@_search.of(RandomThreshold)
def _(thresholds, criterion, pair, limits, bar, scratch):
    return _search_at_random(criterion, pair, limits, bar, scratch)


@kernel
def _search_all_thresholds(criterion, pair, limits, bar, scratch):
    codes, partition, start, in_stop = pair.codes, pair.partition, pair.start, pair.in_stop
    n, n_distinct, weighted = in_stop - start, pair.values.shape[0], partition.h.shape[0] > 0
    line_up, one = scratch.line_up, criterion.criterion
    totals, keys = line_up.totals, scratch.keys
    end = 0
    for t in range(criterion.rows.shape[1]):
        _put_in_line(criterion, t, partition, start, in_stop, scratch)
        end = list_items(codes, n_distinct, n, scratch)
        if end < 0:
            return CONSTANT, 0.0, False
        node = line_up.node
        begin = node[2], node[3], node[4], node[5], node[6]
        for side in range(2):  # missing values go left, then right
            if side == 0 and end == n:
                continue
            left_last, right_last = (n, end) if side == 0 else (end, n)
            line, links, items, left, right = line_up.line, line_up.links, line_up.items, line_up.left, line_up.right
            deviations(one, line, links, items, begin, n, end, left_last, right_last, weighted, POINTER_STEPS * n, left, right)
            _add(left[: end + 1], totals[2 * side, : end + 1], t == 0)
            _add(right[: end + 1], totals[2 * side + 1, : end + 1], t == 0)
    top, cut, missing_left = bar, -1, False
    for side in range(2):
        if side == 0 and end == n:
            continue
        left, right = totals[2 * side], totals[2 * side + 1]
        whole = left[end] if side == 0 else right[0]
        n_left_missing = n - end if side == 0 else 0
        for k in range(1, end + (side == 1 and end < n)):
            if k < end and code_in(keys[k - 1]) == code_in(keys[k]):
                continue
            if not may_be_taken(limits, k + n_left_missing, n, left[k], right[k]):
                continue
            gain = gain_of(whole, left[k], right[k])
            # Lower thresholds first, then missing left.
            if gain > top or (gain == top and cut > k):
                top, cut, missing_left = gain, k, side == 0
    if cut < 0:
        return NO_SPLIT, -1.0, end < n
    code, next_code = code_of(keys[cut - 1]), code_of(keys[cut]) if cut < end else NONE_HIGHER
    note_found(scratch.found, code, next_code, missing_left, _sum_left(codes, partition, start, in_stop, code, n_distinct, missing_left))
    return SPLIT, top, end < n


@kernel
def _search_at_random(criterion, pair, limits, bar, scratch):
    codes, values, partition, start, in_stop = pair.codes, pair.values, pair.partition, pair.start, pair.in_stop
    n, n_distinct, missing = in_stop - start, values.shape[0], np.uint64(values.shape[0])
    line, keys, left, right = scratch.line_up.line, scratch.keys, scratch.line_up.left, scratch.line_up.right
    totals = scratch.line_up.totals
    threshold, cut, low, high, n_missing = np.inf, np.int64(n_distinct - 1), missing, missing, 0
    for t in range(criterion.rows.shape[1]):
        _put_in_line(criterion, t, partition, start, in_stop, scratch)
        varies, low, high, n_missing = list_codes(line, codes, n, missing, keys)
        if not varies:
            return CONSTANT, 0.0, False
        if t == 0 and low < high:
            threshold, cut = draw_threshold(values, np.int64(low), np.int64(high), pair.bits)
        deviation_of(criterion.criterion, line, keys, n, np.uint64(cut), missing, (True, True, True), left[1])
        _add(left[1:2], totals[0, 1:2], t == 0)
        for side in range(2):
            deviation_of(criterion.criterion, line, keys, n, np.uint64(cut), missing, (True, False, side == 0), left[0])
            deviation_of(criterion.criterion, line, keys, n, np.uint64(cut), missing, (False, True, side == 1), right[0])
            _add(left[:1], totals[2 * side, :1], t == 0)
            _add(right[:1], totals[2 * side + 1, :1], t == 0)
    n_below = 0
    for i in range(n):
        n_below += keys[i] <= np.uint64(cut)
    whole = totals[0, 1]
    top, missing_left = bar, False
    for side in range(2):
        if side == 0 and (n_missing == 0 or low == high):
            continue
        count = n_below + n_missing if side == 0 else n_below
        one, other = totals[2 * side, 0], totals[2 * side + 1, 0]
        if not may_be_taken(limits, count, n, one, other):
            continue
        gain = gain_of(whole, one, other)
        if gain > top:
            top, missing_left = gain, side == 0
    if top == bar:
        return NO_SPLIT, -1.0, n_missing > 0
    moments = _sum_left(codes, partition, start, in_stop, cut, n_distinct, missing_left)
    note_found(scratch.found, cut, HAS_THRESHOLD if low < high else NONE_HIGHER, missing_left, moments)
    scratch.found.record[0].threshold = threshold
    return SPLIT, top, n_missing > 0
