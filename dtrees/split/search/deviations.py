"""Exact sums of deviations from quantiles, as integers.

Terms
-----
level
    a target in fixed point, of up to 61 bits.
factor
    the factor of a unit of deviation: one integer above the quantile, one below; 1 and 1 for the median, 9 and 1 for the 0.9-quantile
    (:class:`~dtrees.split.criteria.absolute_error.Deviations`).
deviation
    the sum of factor * weight * abs(level - quantile) over some rows, about their weighted quantile: ``high * 2**LOW_BITS + low`` with
    ``low`` below ``2**LOW_BITS``. Splits are compared by these, so comparisons are exact: the two parts of the levels are summed
    separately, each in 64 bits.

For that the weights of a tree, times the larger factor, may sum up to 2**40, and levels and these together have 84 bits: 61 and up to
23, or 44 and 40. Counts (bootstrap) and whole numbers are stored exactly up to that sum; other weights are rounded to 2**-40 of their
sum (times the larger factor), which for medians still is a twenty-millionth of the mean weight of 50,000 rows. A weight is never rounded
to zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.node.limits import is_allowed
from dtrees.split.numbers.fixed_point import absolute_sum, scale_into
from dtrees.split.table.sorting import RADIX, code_in, key_of, place_in, sort_keys

#: Bits of the lower part of levels and deviations.
LOW_BITS = 22
LOW_MASK = 2**LOW_BITS - 1
_WEIGHT_BITS = 40
_LEVEL_BITS = 61
_ALL_BITS = 84
#: Limit of the sum of weights times the larger factor: small weights are rounded up.
MOST_WEIGHT = 2 ** (_WEIGHT_BITS + 1)

#: A deviation of some rows, and their weight.
DEVIATION = np.dtype([("high", np.int64), ("low", np.int64), ("weight", np.int64)])


def weights_in_bits(weight: NDArray[np.float64], factor: int = 1) -> tuple[NDArray[np.int64], int]:
    """Return weights in fixed point with a sum of at most about ``2**40 / factor``, and the exponent of their scale."""
    bits = _WEIGHT_BITS - (factor - 1).bit_length()
    total = float(absolute_sum(weight))
    out = np.empty(weight.shape[0], np.int64)
    if math.isfinite(total):
        exponent = bits - math.frexp(total)[1] if total else 0
    else:
        exponent = bits - math.frexp(float(weight.max()))[1] - weight.shape[0].bit_length()
    if exponent > 0 and (weight == np.rint(weight)).all():
        exponent = 0
    scale_into(weight, exponent, out)
    np.maximum(out, weight > 0, out=out)
    return out, exponent


def levels_of(targets: Sequence[NDArray[np.float64]], total_weight: int) -> tuple[NDArray[np.int64], int]:
    """Return the levels of several targets, concatenated, in a common scale, so that the deviations of all can be added.

    An offset is subtracted from each target; the exponent of the scale is the second result.

    Parameters
    ----------
    targets : sequence of ndarray of float64, shape (n,)
        Each ascending and finite.
    total_weight : int
        Upper bound of the sum of a tree's weights times the larger factor.
    """
    centered = []
    for one in targets:
        with np.errstate(over="ignore"):
            shifted = one - one[one.shape[0] // 2]
        centered.append(shifted if np.isfinite(shifted).all() else one)
    bits = min(_LEVEL_BITS, _ALL_BITS - (total_weight * len(targets)).bit_length())
    joined = np.concatenate(centered)
    largest = float(np.abs(joined).max())
    exponent = bits - 1 - math.frexp(largest)[1] if largest else 0
    levels = np.empty(joined.shape[0], np.int64)
    scale_into(joined, exponent, levels)
    return levels, exponent


@inner_kernel
def note(out, high, low, weight):
    """Write a deviation and its weight."""
    out.high = high + (low >> LOW_BITS)
    out.low = low & LOW_MASK
    out.weight = weight


@inner_kernel
def gain_of(node, left, right):
    """Return the gain of a split from three deviations, exact up to the rounding to float64."""
    low = node.low - left.low - right.low
    high = node.high - left.high - right.high + (low >> LOW_BITS)
    return float(high) * float(LOW_MASK + 1) + float(low & LOW_MASK)


@inner_kernel
def may_be_taken(limits, n_left, n, left, right):
    """Return whether a split of ``n`` rows is allowed, given the deviations of both sides; neither may be without weight."""
    return is_allowed(limits, n_left, n - n_left, left.weight, right.weight) and min(left.weight, right.weight) >= 1


@inner_kernel
def _add(tree, i, value):
    """Add a number to the i-th element of a Fenwick tree."""
    while i < tree.shape[0]:
        tree[i] += value
        i += i & -i


@inner_kernel
def _add_item(item, trees, sums):
    """Add an item to Fenwick trees of weights and of weighted levels, in two parts; return the sums of all items."""
    (weights, highs, lows), (total, high, low) = trees, sums
    upper, lower = item.weight * (item.level >> LOW_BITS), item.weight * (item.level & LOW_MASK)
    _add(weights, item.element, item.weight)
    _add(highs, item.element, upper)
    _add(lows, item.element, lower)
    return total + item.weight, high + upper, low + lower


@inner_kernel
def _sum_up_to(tree, i):
    """Return the sum of the first ``i`` elements of a Fenwick tree."""
    total = 0
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


@inner_kernel
def _elements_before(criterion, weights, total, beyond):
    """Return the number of elements before the quantile's share of the weight, or up to and including it (``beyond``)."""
    wanted, both = criterion.above * total, criterion.above + criterion.below
    n = weights.shape[0] - 1
    step = 1
    while 2 * step <= n:
        step *= 2
    i = before = 0
    while step > 0:
        following = i + step
        if following <= n:
            found = both * (before + weights[following])
            if found < wanted or (beyond and found == wanted):
                i = following
                before += weights[i]
        step //= 2
    return i


@inner_kernel
def _note_from_trees(criterion, line, trees, sums, out):
    """Find the quantile of all items in trees, and write their deviation."""
    (weights, highs, lows), (total, high, low) = trees, sums
    above, both = criterion.above, criterion.above + criterion.below
    i = _elements_before(criterion, weights, total, False)
    level, rest = line[min(i + 1, weights.shape[0] - 1)].level, above * total - both * _sum_up_to(weights, i)
    high = above * high - both * _sum_up_to(highs, i) - (level >> LOW_BITS) * rest
    low = above * low - both * _sum_up_to(lows, i) - (level & LOW_MASK) * rest
    note(out, high, low, total)


@inner_kernel
def deviations_by_tree(criterion, line, items, n, end, last, forward, out):
    """Write the deviations of :func:`~dtrees.split.search.line_up.deviations` in O(log n) a row, for any weights."""
    trees, sums = (np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)), (0, 0, 0)
    for i in range(end, last):
        sums = _add_item(items[i], trees, sums)
    _note_from_trees(criterion, line, trees, sums, out[end if forward else 0])
    for k in range(end):
        i = end - 1 - k if forward else k
        sums = _add_item(items[i], trees, sums)
        _note_from_trees(criterion, line, trees, sums, out[i if forward else i + 1])


@inner_kernel
def note_all_quantiles(criterion, line, items, n, end, last, forward, out):
    """Write the quantiles of all prefixes or suffixes of ``items[:end]``, the midpoint if two targets qualify.

    Parameters are those of :func:`~dtrees.split.search.line_up.deviations`; the quantile of an empty set is not written. For
    constraints: rows are added to a Fenwick tree of weights, in O(log n) a row.
    """
    weights = np.zeros(n + 1, np.int64)
    total = 0
    for k in range(end, last):
        total += items[k].weight
        _add(weights, items[k].element, items[k].weight)
    if total > 0:
        out[end if forward else 0] = _quantile_in(criterion, line, weights, total)
    for k in range(end):
        i = end - 1 - k if forward else k
        total += items[i].weight
        _add(weights, items[i].element, items[i].weight)
        out[i if forward else i + 1] = _quantile_in(criterion, line, weights, total)


@inner_kernel
def _quantile_in(criterion, line, weights, total):
    last = weights.shape[0] - 1
    lower, higher = _elements_before(criterion, weights, total, False), _elements_before(criterion, weights, total, True)
    return halfway(line[min(lower + 1, last)].level, line[min(higher + 1, last)].level)


@inner_kernel
def halfway(one, other):
    """Return the midpoint of two levels, exactly the level if they are equal."""
    return float(one) if one == other else float(one) / 2.0 + float(other) / 2.0


@inner_kernel
def _merge(keys, first, middle, last, spare):
    """Merge two sorted chunks; keys of the first come first in ties."""
    i, j = first, middle
    for k in range(first, last):
        if j == last or (i < middle and code_in(keys[i]) <= code_in(keys[j])):
            spare[k] = keys[i]
            i += 1
        else:
            spare[k] = keys[j]
            j += 1
    keys[first:last] = spare[first:last]


@inner_kernel
def _quantile(criterion, keys, first, last, partition, target):
    """Return the weighted quantile of a node's targets, and the sum of weighted deviations from it.

    It is the midpoint of two targets if the weight up to the first is exactly the quantile's share, like scikit-learn's median.
    """
    above, both = criterion.above, criterion.above + criterion.below
    rows, b = partition.rows, partition.h
    total = last - first
    if b.shape[0] > 0:
        total = 0
        for i in range(first, last):
            total += b[place_in(keys[i])]
    k = first
    below = b[place_in(keys[k])] if b.shape[0] > 0 else 1
    while both * below < above * total:
        k += 1
        below += b[place_in(keys[k])] if b.shape[0] > 0 else 1
    quantile = target[rows[place_in(keys[k])]]
    if both * below == above * total and k + 1 < last:
        other = target[rows[place_in(keys[k + 1])]]
        if other != quantile:
            quantile = quantile / 2.0 + other / 2.0
    factor_above, factor_below = float(above) / float(criterion.unit), float(criterion.below) / float(criterion.unit)
    spread = 0.0
    for i in range(first, last):
        place = place_in(keys[i])
        w = float(b[place]) if b.shape[0] > 0 else 1.0
        y = target[rows[place]]
        spread += w * (factor_above if y > quantile else factor_below) * abs(y - quantile)
    return quantile, spread


@kernel
def node_quantiles(criterion, partition, target, left, right, start, in_stop, quantiles, spreads):
    """Compute the quantile of the targets of every node of a tree, and the weighted sum of deviations from it.

    Parameters
    ----------
    criterion : Deviations
    partition : RowPartition
        Its ``a`` are ranks of targets.
    target : ndarray of float64, shape (n_rows,)
    left, right : ndarray of int32, shape (n_nodes,)
        Children, in preorder; -1 for leaves.
    start, in_stop : ndarray of int64, shape (n_nodes,)
        Places of the in-sample rows of leaves.
    """
    n_nodes = left.shape[0]
    firsts, lasts = np.zeros(n_nodes, np.int64), np.zeros(n_nodes, np.int64)
    n = 0
    for node in range(n_nodes):
        firsts[node] = n
        if left[node] < 0:
            n += in_stop[node] - start[node]
        lasts[node] = n
    keys, spare, counts = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(RADIX, np.int64)
    for node in range(n_nodes - 1, -1, -1):
        first = firsts[node]
        if left[node] < 0:
            last = lasts[node]
            for i in range(last - first):
                place = start[node] + i
                keys[first + i] = key_of(partition.g[place], place)
            sort_keys(keys[first:last], spare[first:last], last - first, counts)
        else:
            last = lasts[right[node]]
            lasts[node] = last
            _merge(keys, first, firsts[right[node]], last, spare)
        quantiles[node], spreads[node] = _quantile(criterion, keys, first, last, partition, target)
