from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtrees.ensemble.objective.arithmetic.exact_sum import exact_sum, ratio

floats = st.floats(-1e300, 1e300, allow_subnormal=True)


@given(st.lists(floats, max_size=30))
def test_sums_are_exact(values):
    total = exact_sum(np.array(values, dtype=np.float64))
    assert total == sum((Fraction(value) for value in values), Fraction(0))
    assert float(total) == math.fsum(values)


def test_sums_of_many_do_not_overflow():
    for value in (np.nextafter(1.0, 0.0), -np.nextafter(1.0, 0.0)):
        assert exact_sum(np.full(2_000_000, value)) == 2_000_000 * Fraction(value)


def test_what_has_no_sum():
    assert exact_sum(np.array([1.0, np.inf, -3.0])) == math.inf
    assert exact_sum(np.array([1.0, -np.inf])) == -math.inf
    assert math.isnan(exact_sum(np.array([np.inf, -np.inf])))
    assert math.isnan(exact_sum(np.array([1.0, np.nan])))
    assert exact_sum(np.array([1e308] * 4)) == 4 * Fraction(1e308)


def test_any_memory_will_do():
    values = np.arange(10.0)
    values.flags.writeable = False
    assert exact_sum(values) == 45
    assert exact_sum(values[::3]) == 18


def test_ratios():
    assert ratio(4 * Fraction(1e308), Fraction(1)) == math.inf
    assert ratio(-4 * Fraction(1e308), Fraction(1)) == -math.inf
    assert ratio(math.inf, Fraction(2)) == math.inf
    assert math.isnan(ratio(Fraction(1), 0))
