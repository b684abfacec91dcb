"""Sums of floats, always in the same order: that of NumPy, pairwise. Numbers that are not finite give no warnings, as NumPy's do.

NumPy itself adds up in another order where an array is not aligned or not contiguous, so that a sum depends on how the array was made:
arrays that were sent from one process to another may lie at any address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, plain

#: Up to so many numbers are added up by eight sums side by side, more than these in two halves.
_AT_ONCE = 128


@kernel
def add_up_blocks(x, n_rows, sums, column):
    """Write the sum of every ``n_rows`` numbers, of as many as there are in the end, into a column of ``sums``."""
    for block in range(sums.shape[0]):
        first = block * n_rows
        last = min(first + n_rows, x.shape[0])
        sums[block, column] = x[first] + _pairwise_sum(x, first + 1, last)


def mean_of(x: NDArray[Any]) -> float:
    """Return the mean of numbers, shape (n,), whatever the layout of the array: NumPy's of a contiguous, aligned one."""
    return float(_total(plain(x.astype(np.float64, copy=False)))) / x.shape[0]


@kernel
def _total(x):
    return 0.0 + _pairwise_sum(x, ZERO(), x.shape[0])


@inner_kernel
def _pairwise_sum(x, first, last):
    if last - first <= _AT_ONCE:
        return _sum_at_once(x, first, last)
    half = (last - first) // 2
    middle = first + half - half % 8
    return _pairwise_sum(x, first, middle) + _pairwise_sum(x, middle, last)


@inner_kernel
def _sum_at_once(x, first, last):
    total = -0.0  # to which nothing but zeros of this sign add up
    middle = last - (last - first) % 8
    if middle > first:
        a, b, c, d = x[first], x[first + 1], x[first + 2], x[first + 3]
        e, f, g, h = x[first + 4], x[first + 5], x[first + 6], x[first + 7]
        for i in range(first + 8, middle, 8):
            a += x[i]
            b += x[i + 1]
            c += x[i + 2]
            d += x[i + 3]
            e += x[i + 4]
            f += x[i + 5]
            g += x[i + 6]
            h += x[i + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(middle, last):
        total += x[i]
    return total
