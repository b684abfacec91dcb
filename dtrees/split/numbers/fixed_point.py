"""Gradients, hessians, targets and weights as 64-bit integers.

Splits are decided by sums over rows. Sums of floats depend on the order of the additions; sums of integers do not. Each quantity is
therefore multiplied by a power of two and rounded once per tree, after which parent minus child is exact, and any thread or worker may
sum any part. The power of two is the largest for which the sum of all absolute values stays below 2**61.

Sums of floats that remain are always computed in the same order, NumPy's pairwise one. Unlike NumPy, they give no warnings for
infinities and NaN, and do not depend on the alignment and contiguity of an array: arrays sent from one process to another may start at
any address.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, plain
from dtrees.split.policy import SLOPES_AT_ONCE

_LIMIT = 61
#: A factor that makes a rounded slope an upper bound.
_ABOVE = 1.0 + 2.0**-44


@kernel
def absolute_sum(x):
    """Return sum(abs(x)) by four independent sums, of every fourth element each."""
    one = other = third = fourth = 0.0
    n = x.shape[0] - x.shape[0] % 4
    for i in range(0, n, 4):
        one += abs(x[i])
        other += abs(x[i + 1])
        third += abs(x[i + 2])
        fourth += abs(x[i + 3])
    for i in range(n, x.shape[0]):
        one += abs(x[i])
    return (one + other) + (third + fourth)


@kernel
def scale_into(x, exponent, out):
    """Write ``x * 2**exponent``, rounded to integers (half to even), into ``out``."""
    half = exponent // 2  # 2**exponent may be beyond the range of float64
    one, other = math.ldexp(1.0, half), math.ldexp(1.0, exponent - half)
    for i in range(x.shape[0]):
        out[i] = np.int64(np.rint(x[i] * one * other))


@kernel
def _exponent_of(x):
    total = absolute_sum(x)
    if total == 0.0:
        return ZERO()
    if math.isfinite(total):
        # frexp: total < 2**e. Rounding changes each scaled value by at most a half, hence the spare bits below 2**63.
        return np.int64(_LIMIT - math.frexp(total)[1])
    largest = 0.0  # the sum overflows, the values do not
    for i in range(x.shape[0]):
        largest = max(largest, abs(x[i]))
    exponent = np.int64(_LIMIT - math.frexp(largest)[1])
    n = x.shape[0]
    while n > 0:
        exponent -= 1
        n >>= 1
    return exponent


@kernel
def fix_into(x, most, out):
    """Write ``x`` in fixed point to ``out``; return the exponent of the power of two, at most ``most``, that it is multiplied by."""
    exponent = min(_exponent_of(x), most)
    scale_into(x, exponent, out)
    return exponent


@kernel
def add_up(a, b):
    """Return the totals of a, of b and of abs(a), and an upper bound of abs(a) / b; ``b`` is empty if every weight is 1.

    The bound is infinite if some b is zero but not its a.
    """
    total_a = total_b = size = highest = ZERO()
    n = a.shape[0]
    if b.shape[0] == 0:
        for i in range(n):
            total_a += a[i]
            size += abs(a[i])
            highest = max(highest, abs(a[i]))
        return total_a, ZERO() + n, size, float(highest) * _ABOVE
    # Non-negative floats have the order of their bits, and the compiler computes the maximum of several integers at once.
    bits = np.empty(SLOPES_AT_ONCE, np.int64)
    for first in range(0, n, SLOPES_AT_ONCE):
        some_a, some_b = a[first : first + SLOPES_AT_ONCE], b[first : first + SLOPES_AT_ONCE]
        for i in range(some_a.shape[0]):
            g, h = abs(some_a[i]), some_b[i]
            slope = float(g) / h
            slope = slope if h > 0 else (np.inf if g > 0 else 0.0)
            bits[i] = np.float64(slope).view(np.int64)
            total_a += some_a[i]
            total_b += h
            size += g
        for i in range(some_a.shape[0]):
            highest = max(highest, bits[i])
    return total_a, total_b, size, np.int64(highest).view(np.float64) * _ABOVE


#: Factor of squares of integers such that their sum fits 64 bits: the sum is at most the square of the sum of sizes.
_OF_SQUARES = 2.0**-60


@kernel
def add_up_squares(a):
    """Return the sum of the squares of ``a`` in units of 2**60; each square is rounded."""
    total = ZERO()
    for i in range(a.shape[0]):
        total += np.int64(np.rint(float(a[i]) * float(a[i]) * _OF_SQUARES))
    return total


@kernel
def fix_and_add_up(a, b, most_a, most_b, out_a, out_b):
    """Write a and b in fixed point (:func:`fix_into`), and return the exponents and the totals (:func:`add_up`)."""
    exponents = fix_into(a, most_a, out_a), fix_into(b, most_b, out_b)
    return exponents, add_up(out_a, out_b)


def exponent_for(x: NDArray[np.float64], integral: bool = False) -> int:
    """Return the exponent of the power of two by which to scale ``x``.

    Parameters
    ----------
    x : ndarray of float64
        Finite.
    integral : bool, default=False
        The values are whole numbers: do not scale them (unless they are too large).
    """
    exponent = int(_exponent_of(x))
    return min(exponent, 0) if integral else exponent


#: Up to this many numbers are added by eight sums side by side, more in two halves.
_AT_ONCE = 128


@kernel
def add_up_blocks(x, n_rows, sums, column):
    """Write the sum of each block of ``n_rows`` numbers (the last may be shorter) into a column of ``sums``."""
    for block in range(sums.shape[0]):
        first = block * n_rows
        last = min(first + n_rows, x.shape[0])
        sums[block, column] = x[first] + _pairwise_sum(x, first + 1, last)


def mean_of(x: NDArray[Any]) -> float:
    """Return the mean of numbers, shape (n,), whatever the layout of the array: equal to NumPy's for a contiguous, aligned array."""
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
    total = -0.0  # adding zeros of either sign to -0.0 gives the sign of their sum
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
