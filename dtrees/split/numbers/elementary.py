"""The exponential function and logarithms, the same on every machine.

The functions of the C library and of NumPy differ in the last bit between processors and versions: they use fused multiplications or
wider vectors if the processor has them. Workers may run on different processors, and all numbers that decide a split or are saved must
be the same on each. The functions here consist of additions, multiplications and divisions in a fixed order, each rounded separately.
They call no other function, so loops over them are vectorised.

The logarithms use a table: x is 2**k c (1 + r), where c is the number of seven bits nearest to the fraction of x, so that r is at most
2**-8, and log(1 + r) is a short polynomial (Tang 1990, "Table-driven implementation of the logarithm function in IEEE floating-point
arithmetic"). They need no division, and their error is little more than a unit in the last place; logarithms to base 2 of powers of two
are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, kernel, lean_kernel, plain

#: Below this, the result is 0.
_LOWEST = -746.0
_PER_LN_2 = 1.0 / math.log(2.0)
#: The logarithm of 2 in two parts. The first has 33 bits, so that a multiple of it is exact.
_LN_2, _REST_OF_LN_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
#: A constant that, added to a float, rounds it to an integer, which is then in its lowest bits.
_ROUNDER = 1.5 * 2.0**52
#: 1 / 2!, 1 / 3! and so on. For remainders of up to log(2) / 2 more terms have no effect.
_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))

#: The bits of sqrt(1/2) without the lower 32.
_SQRT_HALF = 0x3FE6A09E00000000
#: All bits of a float below the first seven of its fraction.
_BELOW = (1 << 45) - 1
_LEAST_NORMAL, _TWO_54 = 2.0**-1022, 2.0**54


def _table() -> NDArray[np.float64]:
    """Return 1 / c, log(c) and log2(c) for each c nearest to a float between sqrt(1/2) and sqrt(2), the logarithms in two parts.

    The first parts are multiples of 2**-42, so their sums with multiples of log(2), or with integers, are exact.
    """
    first, last = (_rounded_bits(bits) for bits in (_SQRT_HALF, _SQRT_HALF + (1 << 52)))
    centers = np.arange(first, last + 1, _BELOW + 1).view(np.float64).tolist()
    with localcontext(prec=40):
        natural, of_two = [Decimal(c).ln() for c in centers], Decimal(2).ln()
        parts = [[1.0 / c for c in centers]]
        for values in (natural, [value / of_two for value in natural]):
            high = [float((value * 2**42).to_integral_value()) / 2**42 for value in values]
            parts += [high, [float(value - Decimal(part)) for value, part in zip(values, high, strict=True)]]
    return np.array(parts).T.copy()


def _rounded_bits(bits: int) -> int:
    """Return the bits of a float rounded to seven bits of its fraction."""
    return (bits + (_BELOW >> 1) + 1) & ~_BELOW


_TABLE = _table()
_N_ROWS, _N_COLUMNS = _TABLE.shape
_FIRST = _rounded_bits(_SQRT_HALF) >> 45
#: 1 / log(2) minus its value as a float.
_LACKING = 2.0355273740931033e-17


@intrinsic
def _looked_up(typing_context: Any, row: Any, column: Any) -> Any:
    """Return an entry of the table, stored in the machine code: kernels that refer to Python's arrays cannot be cached on disk."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name, kind = "dtrees.table_of_logarithms", ir.ArrayType(ir.DoubleType(), _N_ROWS * _N_COLUMNS)
        table = builder.module.globals.get(name)
        if table is None:
            table = cgutils.global_constant(builder.module, name, ir.Constant(kind, _TABLE.ravel().tolist()))
        place = builder.add(builder.mul(arguments[0], ir.Constant(ir.IntType(64), _N_COLUMNS)), arguments[1])
        return builder.load(builder.gep(table, [ir.Constant(ir.IntType(64), 0), place], inbounds=True))

    return types.float64(types.int64, types.int64), generate


@inlined_kernel
def bits_of(x):
    """Return the bits of a float as an integer."""
    return np.float64(x).view(np.int64)


@inlined_kernel
def float_of(bits):
    """Return the float with these bits."""
    return np.int64(bits).view(np.float64)


@lean_kernel
def exponential(x):
    """Return exp(x) for x of at most 0, within a unit in the last place: with x = k log(2) + r it is 2**k exp(r)."""
    x = max(x, _LOWEST)
    rounded = x * _PER_LN_2 + _ROUNDER
    k, multiple = bits_of(rounded) - bits_of(_ROUNDER), rounded - _ROUNDER
    r = (x - multiple * _LN_2) - multiple * _REST_OF_LN_2
    series = 0.0
    for term in _TERMS:
        series = series * r + term
    half = k >> np.int64(1)  # 2**k itself may be too small for a float if the result is subnormal
    return (1.0 + (r + r * r * series)) * _power_of_2(half) * _power_of_2(k - half)


@lean_kernel
def exponential_of_any(x):
    """Return exp(x) for any x, infinite on overflow."""
    power = exponential(-abs(x))
    return 1.0 / power if x > 0.0 else power


@lean_kernel
def _power_of_2(k):
    return float_of((k + np.int64(1023)) << np.int64(52))


@lean_kernel
def _reduced(x):
    """Return k, r and a row of the table with x = 2**k c (1 + r), for a normal x above 0; r is at most 2**-8."""
    bits = bits_of(x)
    k = (bits - np.int64(_SQRT_HALF)) >> np.int64(52)
    bits -= k << np.int64(52)
    center = (bits + np.int64(1 << 44)) & np.int64(~_BELOW)
    row = (center >> np.int64(45)) - np.int64(_FIRST)
    return float_of(bits_of(_ROUNDER) + k) - _ROUNDER, (float_of(bits) - float_of(center)) * _looked_up(row, 0), row


@lean_kernel
def _series(r):
    """Return log(1 + r) - r."""
    square = r * r
    return square * ((r * (1 / 3) - 0.5) + square * ((r * (1 / 5) - 0.25) + square * (r * (1 / 7) - 1 / 6)))


@lean_kernel
def _of_end(x):
    """Return the logarithm of a number that is not positive and finite."""
    return x if x > 0.0 else -math.inf if x == 0.0 else math.nan


@lean_kernel
def _logarithm(x, k_more):
    k, r, row = _reduced(x)
    k += k_more
    low = _series(r) + (_looked_up(row, 2) + k * _REST_OF_LN_2)
    return (k * _LN_2 + _looked_up(row, 1)) + (r + low)


@lean_kernel
def _binary_logarithm(x, k_more):
    k, r, row = _reduced(x)
    low = _series(r) * _PER_LN_2 + (_looked_up(row, 4) + r * _LACKING)
    return ((k + k_more) + _looked_up(row, 3)) + (r * _PER_LN_2 + low)


@lean_kernel
def logarithm(x):
    """Return log(x): -inf for 0, NaN below."""
    if not 0.0 < x < math.inf:
        return _of_end(x)
    return _logarithm(x * _TWO_54, -54.0) if x < _LEAST_NORMAL else _logarithm(x, 0.0)


@lean_kernel
def binary_logarithm(x):
    """Return log2(x): -inf for 0, NaN below."""
    if not 0.0 < x < math.inf:
        return _of_end(x)
    return _binary_logarithm(x * _TWO_54, -54.0) if x < _LEAST_NORMAL else _binary_logarithm(x, 0.0)


@lean_kernel
def binary_logarithm_of_normal(x):
    """Return log2(x) of a normal number above 0."""
    return _binary_logarithm(x, 0.0)


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
    """Return the exponentials of numbers, infinite on overflow."""
    return _of_each(_exponentials, x)


def log(x: Any) -> NDArray[np.float64]:
    """Return the logarithms of numbers, -inf for 0 and NaN below."""
    return _of_each(_logarithms, x)


def log2(x: Any) -> NDArray[np.float64]:
    """Return the logarithms to base 2 of numbers, -inf for 0 and NaN below."""
    return _of_each(_binary_logarithms, x)
