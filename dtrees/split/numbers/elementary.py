"""The exponential function and logarithms, the same on every machine.

Those of the C library and of NumPy differ in the last bit from one processor, or version, to another: they use fused multiplications or
wider vectors where the processor has them. Workers may be of several kinds, and whatever decides a split or is saved must be the same on
all of them. The functions here consist of additions, multiplications and divisions, each rounded by itself, in a fixed order. As they call
nothing, loops that use them are vectorised.

The logarithms are those of fdlibm (Sun Microsystems, 1993), and for base 2 of FreeBSD's msun: x is 2**k (1 + f), with 1 + f between
sqrt(1/2) and sqrt(2), and log(1 + f) is a polynomial in s = f / (2 + f). They are off by less than a unit in the last place, and powers of
two have exact logarithms to base 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel, lean_kernel, plain

#: Below, the result is 0.
_LOWEST = -746.0
_PER_LN_2 = 1.0 / math.log(2.0)
#: The logarithm of 2 in two parts. The first has 33 bits, so that a multiple of it is exact.
_LN_2, _REST_OF_LN_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: What floats are added to, to be rounded to an integer, which is then in their lowest bits.
_ROUNDER = 1.5 * 2.0**52
#: 1 / 2!, 1 / 3! and so on. For remainders of up to log(2) / 2 more terms add nothing.
_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))

#: The coefficients of the logarithm's polynomial in s**2, from the highest: odd ones and even ones, for two sums that need not wait.
_ODD = 1.479819860511658591e-01, 1.818357216161805012e-01, 2.857142874366239149e-01, 6.666666666666735130e-01
_EVEN = 1.531383769920937332e-01, 2.222219843214978396e-01, 3.999999999940941908e-01
#: 1 / log(2) in two parts, the first of which has 21 bits.
_PER_LN_2_HIGH, _PER_LN_2_LOW = 1.44269504072144627571, 1.67517131648865118353e-10
#: The bits of sqrt(1/2), but for the lower 32.
_SQRT_HALF = 0x3FE6A09E00000000
_LEAST_NORMAL, _TWO_54 = 2.0**-1022, 2.0**54


def _same_bits(source: Any, target: Any) -> Any:
    """Return a function that takes the bits of a number for those of another type."""

    @intrinsic
    def convert(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], ir.IntType(64) if target is types.int64 else ir.DoubleType())

        return target(source), generate

    return convert


_bits_of, _float_of = _same_bits(types.float64, types.int64), _same_bits(types.int64, types.float64)


@lean_kernel
def exponential(x):
    """Return exp(x) for x of at most 0, within a unit in the last place: with x = k log(2) + r it is 2**k exp(r)."""
    x = max(x, _LOWEST)
    rounded = x * _PER_LN_2 + _ROUNDER
    k, multiple = _bits_of(rounded) - _bits_of(_ROUNDER), rounded - _ROUNDER
    r = (x - multiple * _LN_2) - multiple * _REST_OF_LN_2
    series = 0.0
    for term in _TERMS:
        series = series * r + term
    half = k >> np.int64(1)  # 2**k itself may be too small for a float, where the result is not normal
    return (1.0 + (r + r * r * series)) * _power_of_2(half) * _power_of_2(k - half)


@lean_kernel
def exponential_of_any(x):
    """Return exp(x) for any x, infinite where no float is so large."""
    power = exponential(-abs(x))
    return 1.0 / power if x > 0.0 else power


@lean_kernel
def _power_of_2(k):
    return _float_of((k + np.int64(1023)) << np.int64(52))


@lean_kernel
def _reduced(x):
    """Return k and f with x = 2**k (1 + f), for x above 0."""
    small = x < _LEAST_NORMAL
    bits = _bits_of(x * _TWO_54 if small else x)
    k = (bits - np.int64(_SQRT_HALF)) >> np.int64(52)
    f = _float_of(bits - (k << np.int64(52))) - 1.0
    return (_float_of(_bits_of(_ROUNDER) + k) - _ROUNDER) - (54.0 if small else 0.0), f


@lean_kernel
def _series(f, half_square):
    """Return log(1 + f) - f + f**2 / 2."""
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = z * (_ODD[3] + w * (_ODD[2] + w * (_ODD[1] + w * _ODD[0])))
    even = w * (_EVEN[2] + w * (_EVEN[1] + w * _EVEN[0]))
    return s * (half_square + (even + odd))


@lean_kernel
def _of_ends(x, result):
    """Return the logarithm of x where it is no finite number above 0, otherwise ``result``."""
    if x == 0.0:
        result = -math.inf
    if not x >= 0.0:
        result = math.nan
    if x == math.inf:
        result = x
    return result


@lean_kernel
def logarithm(x):
    """Return log(x): -inf for 0, NaN below."""
    k, f = _reduced(x)
    half_square = 0.5 * f * f
    return _of_ends(x, k * _LN_2 - ((half_square - (_series(f, half_square) + k * _REST_OF_LN_2)) - f))


@lean_kernel
def binary_logarithm(x):
    """Return log2(x): -inf for 0, NaN below."""
    k, f = _reduced(x)
    half_square = 0.5 * f * f
    # The leading part has 21 bits, so that its product with the leading part of 1 / log(2) is exact.
    high = _float_of(_bits_of(f - half_square) & np.int64(-1 << 32))
    low = ((f - high) - half_square) + _series(f, half_square)
    most = high * _PER_LN_2_HIGH
    total = k + most
    return _of_ends(x, (((low + high) * _PER_LN_2_LOW + low * _PER_LN_2_HIGH) + ((k - total) + most)) + total)


@kernel
def _exponentials(x, out):
    for i in range(x.shape[0]):
        out[i] = exponential_of_any(x[i])


@kernel
def _logarithms(x, out):
    for i in range(x.shape[0]):
        out[i] = logarithm(x[i])


@kernel
def _binary_logarithms(x, out):
    for i in range(x.shape[0]):
        out[i] = binary_logarithm(x[i])


def _of_each(function: Callable[..., None], x: Any) -> NDArray[np.float64]:
    given = plain(np.asarray(x, np.float64))
    out = np.empty(given.shape)
    function(given.reshape(-1), out.reshape(-1))
    return out


def exp(x: Any) -> NDArray[np.float64]:
    """Return the exponentials of numbers, infinite where no float is so large."""
    return _of_each(_exponentials, x)


def log(x: Any) -> NDArray[np.float64]:
    """Return the logarithms of numbers, -inf for 0 and NaN below."""
    return _of_each(_logarithms, x)


def log2(x: Any) -> NDArray[np.float64]:
    """Return the logarithms to base 2 of numbers, -inf for 0 and NaN below."""
    return _of_each(_binary_logarithms, x)
