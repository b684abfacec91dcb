"""Fixed point: exact where it can be, never too large.

Sums of floats by blocks.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dtrees.split.node.partition import RowPartition, gather
from dtrees.split.numbers.fixed_point import (
    absolute_sum,
    add_up,
    add_up_blocks,
    exponent_for,
    fix_and_add_up,
    fix_into,
    mean_of,
    scale_into,
)


def to_fixed(x: NDArray[np.float64], integral: bool = False) -> tuple[NDArray[np.int64], int]:
    """Return ``x`` in fixed point, and the exponent of the power of two that it was multiplied by."""
    exponent, out = exponent_for(x, integral), np.empty(x.shape[0], np.int64)
    scale_into(x, exponent, out)
    return out, exponent


vectors = st.one_of(
    arrays(np.float64, st.integers(1, 50), elements=st.floats(allow_nan=False, allow_infinity=False)),
    arrays(np.float64, st.integers(1, 50), elements=st.floats(-1e3, 1e3)),
    arrays(np.float64, st.integers(1, 50), elements=st.integers(-9, 9).map(float)),
)


@given(vectors, st.booleans())
@example(np.full(50, np.finfo(float).max), False)
@example(np.full(50, np.finfo(float).max), True)
@example(np.array([5e-324]), False)
@example(np.array([2.0**61, 2.0**61, 1.0]), True)
def test_rounding_and_bound(x: NDArray[np.float64], integral: bool) -> None:
    if integral:
        x = np.rint(x)
    fixed, exponent = to_fixed(x, integral)
    assert sum(abs(int(k)) for k in fixed) < 2**62
    for value, k in zip(x, fixed, strict=True):
        scaled = math.ldexp(value, exponent)  # exact: scaling down only drops bits of subnormal numbers
        assert abs(scaled - int(k)) <= 0.5


@given(arrays(np.float64, st.integers(1, 50), elements=st.floats(-1e6, 1e6, allow_subnormal=False)))
def test_no_bit_is_wasted(x: NDArray[np.float64]) -> None:
    fixed, exponent = to_fixed(x)
    total = sum(abs(int(k)) for k in fixed)
    assert total == 0 or exponent == 1000 or total >= 2**59


@given(arrays(np.int64, st.integers(1, 50), elements=st.integers(-(2**53) // 50, 2**53 // 50)))
def test_whole_numbers_are_kept(k: NDArray[np.int64]) -> None:
    fixed, exponent = to_fixed(k.astype(np.float64), integral=True)
    assert exponent == 0
    assert fixed.tolist() == k.tolist()


def test_large_whole_numbers_are_scaled_down() -> None:
    x = np.array([2.0**70, 2.0**69])
    fixed, exponent = to_fixed(x, integral=True)
    assert exponent < 0
    assert np.ldexp(fixed.astype(float), -exponent).tolist() == x.tolist()


def test_dyadic_numbers_are_exact() -> None:
    x = np.arange(-100, 100) / 1024
    fixed, exponent = to_fixed(x)
    assert np.ldexp(fixed.astype(float), -exponent).tolist() == x.tolist()


def test_zeros() -> None:
    fixed, exponent = to_fixed(np.zeros(3))
    assert (fixed.tolist(), exponent) == ([0, 0, 0], 0)


@pytest.mark.parametrize("n", [2, 3, 1000])
def test_a_sum_that_overflows(n: int) -> None:
    x = np.full(n, 1.5e308)
    assert math.isinf(absolute_sum(x))
    fixed, exponent = to_fixed(x)
    assert 2**58 < int(fixed[0]) * n < 2**62
    assert math.ldexp(float(fixed[0]), -exponent) == pytest.approx(x[0])


@pytest.mark.parametrize("most", [-5, 7, 2**31])
@pytest.mark.parametrize("x", [[0.0, 0.0], [0.25, -3.0, 1e-3], [1.5e308, -1.5e308, 1e300]])
def test_in_one_call_it_is_the_same_up_to_a_largest_exponent(x: list[float], most: int) -> None:
    values, out = np.array(x), np.empty(len(x), np.int64)
    exponent = min(exponent_for(values), most)
    assert fix_into(values, most, out) == exponent
    assert out.tolist() == [round(Fraction(value) * Fraction(2) ** exponent) for value in x]


@pytest.mark.parametrize("weighted", [True, False])
def test_both_sums_in_one_call(weighted: bool) -> None:
    a, b = np.array([0.25, -3.0, 1e-3]), np.array([0.5, 0.0, 2.0] if weighted else [])
    out_a, out_b = np.empty(3, np.int64), np.empty(b.shape[0], np.int64)
    exponents, totals = fix_and_add_up(a, b, 2**31, 40, out_a, out_b)
    assert exponents == (exponent_for(a), min(exponent_for(b), 40))
    assert [out_a.tolist(), out_b.tolist()] == [np.ldexp(x, e).round().tolist() for x, e in zip((a, b), exponents, strict=True)]
    assert totals == add_up(out_a, out_b)


def test_halves_round_to_even() -> None:
    out = np.empty(4, np.int64)
    scale_into(np.array([0.5, 1.5, -0.5, 2.5]), 0, out)
    assert out.tolist() == [0, 2, 0, 2]


def test_order_of_rows_changes_the_exponent_only_through_rounding() -> None:
    x = np.random.default_rng(0).normal(size=1000)
    assert exponent_for(x) == exponent_for(x[::-1].copy()) == 61 - math.frexp(np.abs(x).sum())[1]


@given(st.integers(0, 9), st.sampled_from([0, 1023, 2048]), st.booleans(), st.data())
def test_totals(n: int, n_before: int, weighted: bool, data: st.DataObject) -> None:
    """More rows than are processed at once; the steepest may be anywhere."""
    g = data.draw(arrays(np.int64, n, elements=st.integers(-(2**58), 2**58)))
    h = data.draw(arrays(np.int64, n, elements=st.integers(0, 2**58)))
    at = data.draw(st.integers(0, n_before))
    g, h = np.insert(np.full(n_before, 3), at, g), np.insert(np.full(n_before, 5), at, h)
    a, b, size, steepest = add_up(g, h if weighted else h[:0])
    pairs = [(x, w if weighted else 1) for x, w in zip(g.tolist(), h.tolist(), strict=True)]
    assert (a, b, size) == (sum(x for x, _ in pairs), sum(w for _, w in pairs), sum(abs(x) for x, _ in pairs))
    slopes = [Fraction(abs(x), w) if w else math.inf for x, w in pairs if w or x]
    exact = max(slopes, default=Fraction(0))
    assert exact <= steepest
    assert steepest == math.inf if exact == math.inf else steepest <= exact * (1 + Fraction(2) ** -40)
    rows = np.arange(g.shape[0], dtype=np.uint32)
    partition = RowPartition(rows, np.empty_like(g), np.empty_like(h if weighted else h[:0]))
    assert (a, b, size, steepest) == gather(partition, 0, g.shape[0], g, h if weighted else h[:0])


@pytest.mark.parametrize("n", [1, 2, 8, 9, 127, 128, 129, 130, 1000, 8192, 8193, 20_001])
def test_sums_are_those_of_numpy_to_the_last_bit(n: int) -> None:
    r = np.random.default_rng(n)
    x = r.normal(size=n) * 10.0 ** r.integers(-8, 8, n)
    sums = np.zeros((-(-n // 8192), 2))
    add_up_blocks(x, 8192, sums, 1)
    assert sums[:, 1].tobytes() == np.add.reduceat(x, np.arange(0, n, 8192)).tobytes()
    assert not sums[:, 0].any()


@pytest.mark.parametrize("n", [1, 2, 8, 9, 127, 128, 129, 130, 1000, 8192, 8193, 20_001])
def test_means_are_those_of_numpy_whatever_the_layout(n: int) -> None:
    r = np.random.default_rng(n)
    x = r.normal(size=n) * 10.0 ** r.integers(-8, 8, n)
    unaligned = np.empty(8 * n + 1, np.uint8)[1:].view(np.float64)
    unaligned[:] = x
    assert mean_of(x) == mean_of(unaligned) == mean_of(np.repeat(x, 3)[::3]) == x.mean()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 9, 17, 300])
def test_negative_zeros_add_up_to_one(n: int) -> None:
    sums = np.ones((1, 1))
    add_up_blocks(np.full(n, -0.0), 8192, sums, 0)
    assert sums.tobytes() == np.add.reduceat(np.full(n, -0.0), [0]).tobytes()


def test_a_sum_that_is_not_finite_gives_no_warning() -> None:
    sums = np.zeros((1, 1))
    add_up_blocks(np.full(3, 1e308), 8192, sums, 0)
    assert np.isinf(sums[0, 0])
