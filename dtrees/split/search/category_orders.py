"""The rows of a node by category, and the orders of categories whose neighbours splits separate.

For one target there is one order, by its mean; for more than two classes there is one for each, by its share. Several targets have the
orders of each. If at least two of them are numbers, or of two classes, these have one more order together: by the position of the means
of the categories along the direction in which they differ most (the first principal component of the means, weighted). For squared
errors the best set is separated from the others by a plane, which is often nearly perpendicular to that direction. The direction is
computed by power iteration, starting with the target whose means differ most.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import always, optional, specialised
from dtrees.split.criteria.statistics import (
    AmountsOfTargets,
    Classes,
    ClassesOfTargets,
    Moments,
    amount_of,
    n_changed,
    n_sums,
    nothing,
    plus_row,
    weight_at,
    which_sum,
    with_sums,
    write_sums,
)
from dtrees.split.policy import CATEGORY_BUCKETS, DENSE_CATEGORIES, INSERTION_ROWS, ORDERED_SHARE, RANKED_CATEGORIES
from dtrees.split.table.sorting import code_of, place_in, sort_places

#: The code of merged categories.
RARE = np.int64(-1)


@by_reference
class Groups(NamedTuple):
    """Buffers for the rows of a node by category.

    Attributes
    ----------
    code, n : ndarray of int64, shape (size,)
        Code of each category, and its number of rows.
    sums : ndarray of int64, shape (size, n_sums)
    key : ndarray of float64, shape (size,)
        Keys by which they are ordered.
    order : ndarray of int64, shape (2, size)
        The places of categories in their order, and as many for sorting.
    counts : ndarray of int64, shape (CATEGORY_BUCKETS,)
        Number of categories in each bucket of keys.
    side : ndarray of uint8, shape (size,)
        Whether rows go left, by code.
    direction : ndarray of float64, shape (2, n_sums)
        Direction of the means of several targets, and a buffer of the same size.
    """

    code: NDArray[np.int64]
    n: NDArray[np.int64]
    sums: NDArray[np.int64]
    key: NDArray[np.float64]
    order: NDArray[np.int64]
    counts: NDArray[np.int64]
    side: NDArray[np.uint8]
    direction: NDArray[np.float64]


def make_groups(max_distinct: int, n_sums: int) -> Groups:
    """Return buffers for the categories of columns of up to ``max_distinct`` distinct values."""
    size = max_distinct + 2  # one for missing values, and one for merged categories
    return Groups(
        code=np.empty(size, np.int64),
        n=np.empty(size, np.int64),
        sums=np.empty((size, n_sums), np.int64),
        key=np.empty(size),
        order=np.empty((2, size), np.int64),
        counts=np.empty(CATEGORY_BUCKETS, np.int64),
        side=np.empty(size, np.uint8),
        direction=np.empty((2, n_sums)),
    )


@optional
def _add_weight(statistic: Any, sums: Any, weight: Any) -> None:
    """Add the weight of a row to the sums of a category, for the kind of the statistic."""
    sums[n_sums(statistic)] += weight


@_add_weight.of(Classes)
def _(statistic, sums, weight):
    pass  # the sums of classes include it


@optional
def weight_of(statistic: Any, sums: Any) -> Any:
    """Return the weight of a category, given its sums."""
    return sums[n_sums(statistic)]


@weight_of.of(Classes)
def _(statistic, sums):
    total = ZERO()
    for k in range(statistic.sums.shape[0]):
        total += sums[k]
    return total


@optional
def plus_group(statistic: Any, sums: Any, n: Any) -> Any:
    """Return a statistic plus ``n`` rows with these sums. For all kinds but moments, sums are changed in place."""
    for k in range(statistic.sums.shape[0]):
        statistic.sums[k] += sums[k]
    return with_sums(statistic, statistic.sums, statistic.h + weight_of(statistic, sums), statistic.n + n)


@plus_group.of(Moments)
def _(statistic, sums, n):
    return Moments(statistic.g + sums[0], statistic.h + sums[1], statistic.n + n)


@lean_kernel
def group_rows(node, codes, n_distinct, partition, start, in_stop, groups, scratch):
    """Sum the in-sample rows of a node by code, in ascending order; return the number of codes."""
    rows, a, b = partition.rows, partition.g, partition.h
    n = in_stop - start
    if n_distinct > DENSE_CATEGORIES * n:
        sort_places(codes, rows, start, in_stop, scratch.keys, scratch.spare, scratch.counts)
        return group_keys(node, scratch.keys, ZERO(), n, a, b, start, groups)
    groups.n[: n_distinct + 1] = 0
    groups.sums[: n_distinct + 1] = 0
    for i in range(start, in_stop):
        code = np.int64(codes[rows[i]])
        groups.n[code] += 1
        weight, sums = weight_at(b, i), groups.sums[code]
        for t in range(n_changed(node)):
            sums[which_sum(node, a[i], t)] += amount_of(node, a[i], t, weight)
        _add_weight(node, sums, weight)
    m = ZERO()
    for c in range(n_distinct + 1):
        if groups.n[c] > 0:
            groups.code[m] = c
            _move(groups, c, m)
            m += 1
    return m


@lean_kernel
def group_keys(node, keys, first, last, a, b, base, groups):
    """Sum rows sorted by code like :func:`group_rows`; ``a``, ``b`` and ``base`` are those of ``sweep_sorted``."""
    m, i = ZERO(), first
    while i < last:
        code, total = code_of(keys[i]), nothing(node, groups.sums[m])
        while i < last and code_of(keys[i]) == code:
            place = base + np.int64(place_in(keys[i]))
            total = plus_row(total, a[place], weight_at(b, place))
            i += 1
        groups.code[m], groups.n[m] = code, total.n
        write_sums(total, groups.sums[m])
        m += 1
    return m


@inlined_kernel
def _move(groups, source, target):
    """Copy the sums at one place to another."""
    groups.n[target] = groups.n[source]
    for k in range(groups.sums.shape[1]):
        groups.sums[target, k] = groups.sums[source, k]


@lean_kernel
def take_rare_together(groups, m, least):
    """Merge those of ``m`` categories with fewer than ``least`` rows into one, the last; return the new number of categories."""
    if least <= 1:
        return m
    rare, kept = groups.code.shape[0] - 1, ZERO()
    n, sums = ZERO(), groups.sums[rare]
    for i in range(m):
        if groups.n[i] < least:
            if n == 0:
                sums[:] = 0
            n += groups.n[i]
            for k in range(sums.shape[0]):
                sums[k] += groups.sums[i, k]
        else:
            groups.code[kept] = groups.code[i]
            _move(groups, i, kept)
            kept += 1
    if n > 0:
        groups.n[rare] = n
        groups.code[kept] = RARE
        _move(groups, rare, kept)
        kept += 1
    return kept


#: Steps of power iteration. If these are not enough, the two best directions are about equally good.
_MULTIPLICATIONS = 8


@optional
def n_orders(statistic: Any) -> Any:
    """Return one more than the number of the last order; some numbers before may have no order (:func:`is_order`)."""
    return statistic.sums.shape[0] + 1


@n_orders.of(Moments)
def _(statistic):
    return ZERO() + 1


@n_orders.of(Classes)
def _(statistic):
    return statistic.sums.shape[0]


@optional
def is_order(statistic: Any, which: Any) -> Any:
    """Return whether there is an order of this number. For two classes of one of several targets, only the second has one."""
    n_sums = statistic.sums.shape[0]
    if which < n_sums:
        return _classes_of(statistic, which) != 1
    n = ZERO()
    for k in range(n_sums):
        n += _classes_of(statistic, k) == 2
    return n > 1


is_order.of(Moments, Classes)(always)


@specialised
def _classes_of(statistic: Any, k: Any) -> Any:
    """Return the number of classes of the target of the ``k``-th sum, 1 if that sum is redundant, 2 for numbers."""


@_classes_of.of(AmountsOfTargets)
def _(statistic, k):
    return 2


@_classes_of.of(ClassesOfTargets)
def _(statistic, k):
    t = ZERO()
    while statistic.first[t + 1] <= k:
        t += 1
    n = statistic.first[t + 1] - statistic.first[t]
    return 1 if n == 2 and k == statistic.first[t] else n


@optional
def set_means(statistic: Any, groups: Any, m: Any, which: Any, smooth: Any) -> None:
    """Write the smoothed differences of the means of ``m`` categories to the node's, of ``a`` or of shares, to their keys."""
    if which < statistic.sums.shape[0]:
        _set_means_of(statistic, groups, m, which, smooth)
    else:
        _set_along_direction(statistic, groups, m, smooth)


@inlined_kernel
def _distance(g, h, mean, smooth):
    key = (float(g) - mean * float(h)) / (float(h) + smooth)
    return key if key == key else 0.0  # neither sums nor smoothing


@set_means.of(Moments)
def _(statistic, groups, m, which, smooth):
    mean = float(statistic.g) / float(statistic.h) if statistic.h > 0 else 0.0
    for i in range(m):
        groups.key[i] = _distance(groups.sums[i, 0], groups.sums[i, 1], mean, smooth)


@set_means.of(Classes)
def _(statistic, groups, m, which, smooth):
    _set_means_of(statistic, groups, m, which, smooth)


@inlined_kernel
def _set_means_of(statistic, groups, m, which, smooth):
    mean = _mean(statistic, which)
    for i in range(m):
        groups.key[i] = _distance_of(statistic, groups, i, which, mean, smooth)


@inlined_kernel
def _mean(statistic, k):
    return float(statistic.sums[k]) / float(statistic.h) if statistic.h > 0 else 0.0


@inlined_kernel
def _distance_of(statistic, groups, i, k, mean, smooth):
    return _distance(groups.sums[i, k], weight_of(statistic, groups.sums[i]), mean, smooth)


@lean_kernel
def _set_along_direction(statistic, groups, m, smooth):
    """Write the positions of the means of categories along the direction in which they differ most."""
    direction, product, n_sums = groups.direction[0], groups.direction[1], statistic.sums.shape[0]
    widest, first = -1.0, ZERO()
    for k in range(n_sums):
        direction[k] = 0.0
        if _classes_of(statistic, k) == 2:
            mean, spread = _mean(statistic, k), 0.0
            for i in range(m):
                d = _distance_of(statistic, groups, i, k, mean, smooth)
                spread += float(groups.sums[i, n_sums]) * (d * d)
            if spread > widest:
                widest, first = spread, k
    direction[first] = 1.0
    for _ in range(_MULTIPLICATIONS):
        _project(statistic, groups, m, smooth)
        largest = 0.0
        for k in range(n_sums):
            product[k] = 0.0
            if _classes_of(statistic, k) == 2:
                mean = _mean(statistic, k)
                for i in range(m):
                    weighted = float(groups.sums[i, n_sums]) * groups.key[i]
                    product[k] += weighted * _distance_of(statistic, groups, i, k, mean, smooth)
                largest = max(largest, abs(product[k]))
        if not 0.0 < largest < 1e300:  # all means are equal, or out of range
            break
        for k in range(n_sums):
            direction[k] = product[k] / largest
    _project(statistic, groups, m, smooth)


@lean_kernel
def _project(statistic, groups, m, smooth):
    groups.key[:m] = 0.0
    for k in range(statistic.sums.shape[0]):
        factor = groups.direction[0, k]
        if factor != 0.0:
            mean = _mean(statistic, k)
            for i in range(m):
                groups.key[i] += factor * _distance_of(statistic, groups, i, k, mean, smooth)


@lean_kernel
def sort_by_key(key, places, spare):
    """Sort ``places`` by their keys, ascending and stable."""
    m, run = places.shape[0], ZERO() + (INSERTION_ROWS if places.shape[0] <= INSERTION_ROWS else 8)
    for first in range(0, m, run):
        for i in range(first + 1, min(first + run, m)):
            place = places[i]
            mine, j = key[place], i - 1
            while j >= first and key[places[j]] > mine:
                places[j + 1] = places[j]
                j -= 1
            places[j + 1] = place
    width, source, sink, in_spare = run, places, spare, False
    while width < m:
        for first in range(0, m, 2 * width):
            middle, last = min(first + width, m), min(first + 2 * width, m)
            i, j = first, middle
            for k in range(first, last):
                if i < middle and (j >= last or key[source[i]] <= key[source[j]]):
                    sink[k] = source[i]
                    i += 1
                else:
                    sink[k] = source[j]
                    j += 1
        source, sink, in_spare = sink, source, not in_spare
        width *= 2
    if in_spare:
        for k in range(m):
            places[k] = spare[k]


@lean_kernel
def _rank_all(key, m, order):
    """Write the places of ``m`` keys in ascending order, by counting how many come before each; without branches to mispredict."""
    for i in range(m):
        mine, rank = key[i], ZERO()
        for j in range(i):
            rank += np.int64(key[j] <= mine)
        for j in range(i + 1, m):
            rank += np.int64(key[j] < mine)
        order[rank] = i


@inlined_kernel
def _range_of(key, m):
    """Return the lowest and the highest of ``m`` keys, none NaN; four independent chains of comparisons run side by side."""
    low = high = low_1 = high_1 = low_2 = high_2 = low_3 = high_3 = key[0]
    last = m & ~3
    for i in range(0, last, 4):
        x, x_1, x_2, x_3 = key[i], key[i + 1], key[i + 2], key[i + 3]
        low, high = x if x < low else low, x if x > high else high
        low_1, high_1 = x_1 if x_1 < low_1 else low_1, x_1 if x_1 > high_1 else high_1
        low_2, high_2 = x_2 if x_2 < low_2 else low_2, x_2 if x_2 > high_2 else high_2
        low_3, high_3 = x_3 if x_3 < low_3 else low_3, x_3 if x_3 > high_3 else high_3
    for i in range(last, m):
        low, high = min(low, key[i]), max(high, key[i])
    return min(low, low_1, low_2, low_3), max(high, high_1, high_2, high_3)


@lean_kernel
def order_ends(groups, m, most):
    """Write the places of the ``most`` lowest of ``m`` keys to the front of ``order[0]``, those of the highest to its end, ascending.

    Among equal keys, the lower place comes first.
    """
    key, order, spare, counts = groups.key, groups.order[0], groups.order[1], groups.counts
    if m <= RANKED_CATEGORIES:
        _rank_all(key, m, order)
        return
    if m > ORDERED_SHARE * most:
        low, high = _range_of(key, m)
        scale = float(CATEGORY_BUCKETS) / (high - low)
        if 0.0 < scale < 1e300:  # all keys are finite, and not all are equal
            # Scaling and truncating preserve the order, so that categories are sorted within buckets only.
            counts[:] = 0
            for i in range(m):
                counts[min(np.int64((key[i] - low) * scale), CATEGORY_BUCKETS - 1)] += 1
            lowest, n_low = ZERO(), counts[0]
            while n_low < most:
                lowest += 1
                n_low += counts[lowest]
            highest, n_high = ZERO() + CATEGORY_BUCKETS - 1, counts[CATEGORY_BUCKETS - 1]
            while n_high < most:
                highest -= 1
                n_high += counts[highest]
            if lowest < highest:
                at, other = ZERO(), m - n_high
                for i in range(m):
                    chunk = min(np.int64((key[i] - low) * scale), CATEGORY_BUCKETS - 1)
                    if chunk <= lowest:
                        order[at] = i
                        at += 1
                    elif chunk >= highest:
                        order[other] = i
                        other += 1
                sort_by_key(key, order[:n_low], spare)
                sort_by_key(key, order[m - n_high : m], spare)
                return
    for i in range(m):
        order[i] = i
    sort_by_key(key, order[:m], spare)
