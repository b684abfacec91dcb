"""Targets and weights of trees by absolute error, in fixed point."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.search.deviations import levels_of, weights_in_bits
from dtrees.split.table.columns import presort
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from tests.engine.shards import grow_here, rules

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(np.float64, st.integers(1, 20), elements=FINITE), st.integers(1, 2**40))
@example(np.array([-1.7976931348623157e308, 1.7976931348623157e308]), 2**31)
def test_levels_are_the_targets_but_for_rounding(y: NDArray[np.float64], total_weight: int) -> None:
    distinct = np.unique(y)
    levels, exponent = levels_of([distinct], total_weight)
    bits = min(61, 84 - total_weight.bit_length())
    assert np.abs(levels).max() <= 2 ** (bits - 1)
    assert np.all(np.diff(levels) >= 0)
    width = distinct[-1] / 4 - distinct[0] / 4  # rounding up then stays within range
    if width:
        found = np.ldexp((levels - levels[0]).astype(float), -exponent - 2)
        # Centred targets are rounded like floats, whatever the number of bits.
        assert_allclose(found, distinct / 4 - distinct[0] / 4, atol=width * 2.0 ** max(5 - bits, -51) + 1e-323, rtol=1e-15)


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(0, allow_infinity=False)))
def test_weights_have_forty_bits(weight: NDArray[np.float64]) -> None:
    b, exponent = weights_in_bits(weight)
    assert 0 <= b.sum() <= 2**40 + len(b)
    assert_array_equal(b > 0, weight > 0)
    exact = np.ldexp(weight, min(exponent, 900)) if exponent > 0 else weight / 2.0 ** min(-exponent, 1000)
    if abs(exponent) < 900:
        assert np.all(np.abs(b - exact) <= 1.0)


@given(arrays(np.int64, st.integers(1, 20), elements=st.integers(0, 2**34)))
def test_whole_weights_are_kept(weight: NDArray[np.int64]) -> None:
    b, exponent = weights_in_bits(weight.astype(float))
    assert (b.tolist(), exponent) == (weight.tolist(), 0)


@pytest.mark.slow  # needs kernels that no quick test needs
def test_targets_at_the_limits_of_float64() -> None:
    table, plan = [np.arange(6.0)], ForestPlan(rules("absolute_error", 1), seed=3)
    y = np.array([-1.7e308, -1.7e308, 0.0, 5e-324, 1.7e308, 1.7e308])
    tree = grow_here(table, y, None, plan)[0]
    assert sum_values(pack([tree]), table[0][:, None])[:, 0].tolist() == y.tolist()
    levels = ForestTarget.of_table(plan, y, None).start(0, 0).levels
    assert levels.shape == presort([y]).distinct(0).shape
