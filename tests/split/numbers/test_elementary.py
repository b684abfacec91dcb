"""The exponential function and logarithms, against decimal arithmetic of 60 digits."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.numbers.elementary import _binary_logarithms, _exponentials, _logarithms, exp, log, log2
from tests.examples import examples

SMALLEST = 5e-324
POSITIVE = st.floats(SMALLEST, 1.7e308) | st.floats(0.5, 2.0) | st.floats(1e-9, 1e-3).map(lambda x: 1.0 + x)
NEAR_POWERS_OF_TWO = [0.7071067811865475, 0.7071067811865476, 1.4142135623730950, 1.4142135623730951, 1.0, 1.0 - 2.0**-53, 1.0 + 2.0**-52]


def off_by(found: float, exact: Decimal) -> Decimal:
    """Return the error in units in the last place."""
    return abs(Decimal(found) - exact) / Decimal(max(np.spacing(abs(float(exact))), SMALLEST))


@examples(300)
@given(
    st.lists(
        st.floats(-750.0, 709.0) | st.floats(-2.0, 2.0) | st.integers(-1080, 1020).map(lambda k: k * math.log(2.0)), min_size=1, max_size=40
    )
)
@example([-708.3964185322641, -708.3964185322642, -745.1332191019411, -745.1332191019412, -0.34657359027997264, -0.3465735902799727])
def test_exponentials(x: list[float]) -> None:
    """Also for subnormal results, and on both sides of each change of the power of two. Above 0 a division adds an error."""
    with localcontext(prec=60):
        for given_x, found in zip(x, exp(x).tolist(), strict=True):
            assert off_by(found, Decimal(given_x).exp()) <= (1 if given_x <= 0 else 2 if given_x < 708 else 4)


@examples(300)
@given(st.lists(POSITIVE, min_size=1, max_size=40))
@example(NEAR_POWERS_OF_TWO)
def test_logarithms(x: list[float]) -> None:
    with localcontext(prec=60):
        for given_x, found, binary in zip(x, log(x).tolist(), log2(x).tolist(), strict=True):
            exact = Decimal(given_x).ln()
            assert off_by(found, exact) < 1
            assert off_by(binary, exact / Decimal(2).ln()) < 1.5


def test_powers_of_two_are_exact() -> None:
    k = np.arange(-1074, 1024)
    np.testing.assert_array_equal(log2(np.ldexp(1.0, k)), k)


@pytest.mark.parametrize(
    ("function", "x", "wanted"),
    [
        *[(exp, *ends) for ends in [(0.0, 1.0), (-0.0, 1.0), (-SMALLEST, 1.0), (-745.13, SMALLEST), (-800.0, 0.0), (-np.inf, 0.0)]],
        *[(exp, *ends) for ends in [(800.0, np.inf), (np.inf, np.inf), (np.nan, np.nan)]],
        *[(one, *ends) for one in (log, log2) for ends in [(0.0, -np.inf), (-0.0, -np.inf), (np.inf, np.inf), (1.0, 0.0)]],
        *[(one, x, np.nan) for one in (log, log2) for x in (-1.0, -SMALLEST, -np.inf, np.nan)],
    ],
)
def test_ends(function: Callable[[Any], NDArray[np.float64]], x: float, wanted: float) -> None:
    np.testing.assert_array_equal(function(x), wanted)


@pytest.mark.parametrize("function", [exp, log, log2])
def test_alone_or_among_others(function: Callable[[Any], NDArray[np.float64]]) -> None:
    """Several are computed at a time, others one by one: the bits are the same, for any layout."""
    x = np.random.default_rng(0).exponential(20.0, 1_003)
    together = function(x)
    assert [float(function(one)) for one in x] == together.tolist()
    assert function(np.repeat(x, 2).reshape(-1, 2)[:, 1]).tobytes() == together.tobytes()
    assert function(x.reshape(17, 59).T).tobytes() == np.ascontiguousarray(together.reshape(17, 59).T).tobytes()


def test_kernels_are_kept_on_disk() -> None:
    """Numba does not cache kernels that refer to Python objects, such as functions passed as arguments."""
    for function, kernel in ((exp, _exponentials), (log, _logarithms), (log2, _binary_logarithms)):
        function([1.0])
        assert kernel.overloads
        assert not any(compiled.library.has_dynamic_globals for compiled in kernel.overloads.values())
