from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.ensemble.objective.arithmetic.exponential import exponential
from dtrees.split.compile.kernels import kernel
from tests.examples import examples

SMALLEST = 5e-324


@kernel
def exponentials(x: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    for i in range(x.size):
        out[i] = exponential(x[i])


def of(*x: float) -> NDArray[np.float64]:
    out = np.full(len(x), np.nan)
    exponentials(np.array(x), out)
    return out


@examples(300)
@given(
    st.lists(st.floats(-750.0, 0.0) | st.floats(-2.0, 0.0) | st.integers(-1080, 0).map(lambda k: k * np.log(2.0)), min_size=1, max_size=40)
)
@example([-708.3964185322641, -708.3964185322642, -745.1332191019411, -745.1332191019412, -0.34657359027997264, -0.3465735902799727])
def test_a_unit_in_the_last_place(x: list[float]) -> None:
    """Also where results are not normal, and on both sides of where the power of two changes."""
    with localcontext(prec=60):
        for given_x, found in zip(x, of(*x), strict=True):
            exact = Decimal(given_x).exp()
            assert abs(Decimal(float(found)) - exact) <= Decimal(max(np.spacing(float(exact)), SMALLEST))


@pytest.mark.parametrize(("x", "wanted"), [(0.0, 1.0), (-0.0, 1.0), (-SMALLEST, 1.0), (-745.13, SMALLEST), (-800.0, 0.0), (-np.inf, 0.0)])
def test_ends(x: float, wanted: float) -> None:
    assert of(x).tolist() == [wanted]


def test_alone_or_among_others() -> None:
    """Several are done at a time, others one by one: the bits are the same."""
    x = -np.random.default_rng(0).exponential(20.0, 1_003)
    together = of(*x)
    assert [of(one)[0] for one in x] == together.tolist()
