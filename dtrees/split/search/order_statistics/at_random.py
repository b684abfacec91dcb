"""Absolute error, or a quantile, at the random threshold of Extra-Trees: a few passes over the node's rows in the order of the target."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.criteria.constraints.order import allows_quantiles, compares_sides, note_quantiles
from dtrees.split.criteria.statistics import no_moments, plus_row
from dtrees.split.node.found import HAS_THRESHOLD, NONE_HIGHER, note_found
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.search.order_statistics.deviations import LOW_BITS, LOW_MASK, gain_of, halfway, may_be_taken, note
from dtrees.split.search.thresholds.random_threshold import draw_threshold


@inner_kernel
def deviation_of(criterion, line, keys, n, cut, missing, which, out):
    """Write the deviation of some of a node's rows.

    ``which`` tells whether to take the rows with codes up to the cut, above it, and missing; ``keys[i]`` is the code of element i + 1.
    """
    above, both = criterion.above, criterion.above + criterion.below
    total = 0
    for i in range(n):
        if which[2 if keys[i] == missing else int(keys[i] > cut)]:
            total += line[i + 1].weight
    below = high = low = 0
    level = line[0].level
    found = False
    for i in range(n):
        if not which[2 if keys[i] == missing else int(keys[i] > cut)]:
            continue
        element = line[i + 1]
        if not found and both * (below + element.weight) >= above * total:
            # All before are below the quantile: the sums are so far those of the levels, taken with a minus sign.
            level = element.level
            high += criterion.below * below * (level >> LOW_BITS)
            low += criterion.below * below * (level & LOW_MASK)
            found = True
        if found:
            high += above * element.weight * ((element.level >> LOW_BITS) - (level >> LOW_BITS))
            low += above * element.weight * ((element.level & LOW_MASK) - (level & LOW_MASK))
        else:
            below += element.weight
            high -= criterion.below * element.weight * (element.level >> LOW_BITS)
            low -= criterion.below * element.weight * (element.level & LOW_MASK)
    note(out, high, low, total)


@inner_kernel
def _quantile_of(criterion, line, keys, n, cut, missing, which, total):
    """Return the quantile of some of a node's rows, of so much weight; parameters are those of :func:`deviation_of`."""
    wanted, both = criterion.above * total, criterion.above + criterion.below
    below, found, level = 0, False, line[0].level
    for i in range(n):
        if not which[2 if keys[i] == missing else int(keys[i] > cut)]:
            continue
        if found:
            return halfway(level, line[i + 1].level)
        below += line[i + 1].weight
        if both * below >= wanted:
            level = line[i + 1].level
            if both * below > wanted:
                return halfway(level, level)
            found = True
    return halfway(level, level)


@inner_kernel
def list_codes(line, codes, n, missing, keys):
    """Write the codes of elements in line to ``keys``.

    Returns whether they vary, the lowest and the highest that is not missing, and how many are.
    """
    low, high, n_missing = missing, np.uint64(0), 0
    for i in range(n):
        code = np.uint64(codes[line[i + 1].row])
        keys[i] = code
        if code == missing:
            n_missing += 1
        else:
            low = min(low, code)
            high = max(high, code)
    return n_missing < n and (low != high or n_missing > 0), low, high, n_missing


@kernel
def search_deviations_at_random(criterion, pair, limits, bar, scratch):
    """Try one random threshold; parameters and result as of :func:`~dtrees.split.search.column.search_column`.

    The node's rows are lined up already.
    """
    n, codes, values = pair.in_stop - pair.start, pair.codes, pair.values
    line, left, right = scratch.line_up.line, scratch.line_up.left, scratch.line_up.right
    keys, missing = scratch.keys, np.uint64(values.shape[0])
    varies, low, high, n_missing = list_codes(line, codes, n, missing, keys)
    if not varies:
        return CONSTANT, 0.0, False
    threshold, cut = np.inf, np.int64(values.shape[0] - 1)
    if low < high:
        threshold, cut = draw_threshold(values, np.int64(low), np.int64(high), pair.bits)
    n_below = 0
    for i in range(n):
        n_below += keys[i] <= np.uint64(cut)
    whole = left[1]
    deviation_of(criterion, line, keys, n, np.uint64(cut), missing, (True, True, True), whole)
    top, missing_left = bar, False
    for side in range(2):
        if side == 0 and (n_missing == 0 or low == high):
            continue
        count = n_below + n_missing if side == 0 else n_below
        deviation_of(criterion, line, keys, n, np.uint64(cut), missing, (True, False, side == 0), left[0])
        deviation_of(criterion, line, keys, n, np.uint64(cut), missing, (False, True, side == 1), right[0])
        if not may_be_taken(limits, count, n, left[0], right[0]):
            continue
        one = other = 0.0
        if compares_sides(limits.criterion):
            one = _quantile_of(criterion, line, keys, n, np.uint64(cut), missing, (True, False, side == 0), left[0].weight)
            other = _quantile_of(criterion, line, keys, n, np.uint64(cut), missing, (False, True, side == 1), right[0].weight)
            if not allows_quantiles(limits.criterion, one, other):
                continue
        gain = gain_of(whole, left[0], right[0])
        if gain > top:
            top = gain
            missing_left = side == 0
            note_quantiles(limits.criterion, one, other)
    if top == bar:
        return NO_SPLIT, -1.0, n_missing > 0
    moments = no_moments()
    for i in range(n):
        if missing_left if keys[i] == missing else keys[i] <= np.uint64(cut):
            moments = plus_row(moments, np.int64(line[i + 1].number), line[i + 1].weight)
    note_found(scratch.found, cut, HAS_THRESHOLD if low < high else NONE_HIGHER, missing_left, moments)
    scratch.found.record[0].threshold = threshold
    return SPLIT, top, n_missing > 0
