"""Sums of floats without rounding.

A float is an integer times a power of two, and there are only 2,046 powers: integers of equal power are added up as integers, and only
the total is put together from them. So a sum is the same in any order, and sums of partitions add up to the sum of the whole.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel

#: What the exponent bits of a float are off by, where its mantissa is taken for an integer.
_BIAS = 1075

#: A sum: exact, or infinite or NaN.
Sum = Fraction | float


def exact_sum(values: NDArray[np.float64]) -> Sum:
    """Return the exact sum of up to 2**36 floats.

    Returns
    -------
    Fraction
        Or a float, infinite or NaN, if one of the values is, or if infinities cancel out.

    Examples
    --------
    >>> float(exact_sum(np.array([1e16, 1.0, 1.0, -1e-300])))
    1.0000000000000002e+16
    """
    values = np.require(values, np.float64, ["C", "W"])  # the kernel would be compiled once more for read-only arrays
    high, low = np.zeros(2048, np.int64), np.zeros(2048, np.int64)
    _add_up(values.view(np.int64), high, low)
    if high[2047]:
        with np.errstate(invalid="ignore"):
            return float(values[~np.isfinite(values)].sum())
    used = np.flatnonzero(high | low).tolist()
    if not used:
        return Fraction(0)
    first = used[0]
    total = sum(((int(high[i]) << 27) + int(low[i])) << (i - first) for i in used)
    return Fraction(total) * Fraction(2) ** (first - _BIAS)


def ratio(total: Sum, weight: Sum) -> float:
    """Return one sum over another, rounded once; NaN over zero, and infinite where no float is so large.

    Examples
    --------
    >>> ratio(Fraction(1), Fraction(3)), ratio(Fraction(0), Fraction(0))
    (0.3333333333333333, nan)
    """
    if weight == 0:
        return math.nan
    try:
        return float(total / weight)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@kernel
def _add_up(bits, high, low):
    """Add integers by exponent, their last 27 bits apart so that nothing overflows; ``bits`` are those of the floats."""
    for i in range(bits.shape[0]):
        exponent = (bits[i] >> 52) & 2047
        mantissa = bits[i] & 0xFFFFFFFFFFFFF
        if exponent == 2047:
            high[2047] = 1
            continue
        if exponent:
            mantissa |= 1 << 52
        else:
            exponent = 1  # of numbers too small for a leading bit
        if bits[i] < 0:
            mantissa = -mantissa
        high[exponent] += mantissa >> 27
        low[exponent] += mantissa & 0x7FFFFFF
