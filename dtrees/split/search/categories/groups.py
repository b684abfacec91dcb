"""The rows of a node by category: how many have each, and their sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.statistics import (
    Classes,
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
from dtrees.split.policy import CATEGORY_BUCKETS, DENSE_CATEGORIES
from dtrees.split.table.sorting import code_of, place_in, sort_places

#: The code of categories taken together.
RARE = np.int64(-1)


@by_reference
class Groups(NamedTuple):
    """Room for the rows of a node by category.

    Attributes
    ----------
    code, n : ndarray of int64, shape (size,)
        Of each category, and how many rows have it.
    sums : ndarray of int64, shape (size, n_sums)
    key : ndarray of float64, shape (size,)
        By which they are ordered.
    order : ndarray of int64, shape (2, size)
        The places of categories in their order, and as many places to sort by.
    counts : ndarray of int64, shape (CATEGORY_BUCKETS,)
        How many categories there are in stretches of keys.
    side : ndarray of uint8, shape (size,)
        By code, whether rows go left.
    direction : ndarray of float64, shape (2, n_sums)
        Of the means of several targets, and as much room.
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
    """Return room for the categories of columns of up to so many distinct values."""
    size = max_distinct + 2  # one for missing values, and one for categories taken together
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


@specialised
def _add_weight(statistic: Any, sums: Any, weight: Any) -> None:
    """Add the weight of a row to the sums of a category; the statistic tells what is summed."""


@_add_weight.of(Classes)
def _(statistic, sums, weight):
    pass  # it is the sum of those of classes


@_add_weight.otherwise
def _(statistic, sums, weight):
    sums[n_sums(statistic)] += weight


@specialised
def weight_of(statistic: Any, sums: Any) -> Any:
    """Return the weight of a category from its sums."""


@weight_of.of(Classes)
def _(statistic, sums):
    total = ZERO()
    for k in range(statistic.sums.shape[0]):
        total += sums[k]
    return total


@weight_of.otherwise
def _(statistic, sums):
    return sums[n_sums(statistic)]


@specialised
def plus_group(statistic: Any, sums: Any, n: Any) -> Any:
    """Return a statistic with ``n`` more rows of these sums. All sums but moments are changed in place."""


@plus_group.of(Moments)
def _(statistic, sums, n):
    return Moments(statistic.g + sums[0], statistic.h + sums[1], statistic.n + n)


@plus_group.otherwise
def _(statistic, sums, n):
    for k in range(statistic.sums.shape[0]):
        statistic.sums[k] += sums[k]
    return with_sums(statistic, statistic.sums, statistic.h + weight_of(statistic, sums), statistic.n + n)


@lean_kernel
def group_rows(node, codes, n_distinct, partition, start, in_stop, groups, scratch):
    """Sum the in-sample rows of a node by code; return how many codes there are. They come in ascending order."""
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
    """Sum rows that are sorted by code, as :func:`group_rows` does; ``a``, ``b`` and ``base`` are those of ``sweep_sorted``."""
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
    """Copy what is summed from one place to another."""
    groups.n[target] = groups.n[source]
    for k in range(groups.sums.shape[1]):
        groups.sums[target, k] = groups.sums[source, k]


@lean_kernel
def take_rare_together(groups, m, least):
    """Make one of those of ``m`` categories that have fewer than ``least`` rows, the last one; return how many there are then."""
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
