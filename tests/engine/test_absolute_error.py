"""Trees by absolute error: the same ones on any threads and shards; leaf values; targets and weights in fixed point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.search.order_statistics.deviations import levels_of, weights_in_bits
from dtrees.split.table.columns import presort
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from tests.engine.shards import grow_here, rules, wild_table, wild_target

N = 3000
SPREAD = [(0, 2, 4), (1, 3, 5, 6)]


def plan_of(table: Any, n_draws: int | None = None, **changes: Any) -> ForestPlan:
    return ForestPlan(rules("absolute_error", len(table), **changes), seed=3, n_draws=n_draws, out_of_bag=n_draws is not None)


#: Trees are grown by kernels that no quick test needs.
of_their_own = pytest.mark.slow


@of_their_own
def test_leaves_predict_medians() -> None:
    table = wild_table(N, 2)
    y = wild_target(table, 0, 2)
    tree = grow_here(table, y, None, plan_of(table, max_depth=4))[0]
    predicted = sum_values(pack([tree]), np.stack([column.astype(np.float64) for column in table], axis=1))[:, 0]
    for value in np.unique(predicted):
        rows = predicted == value
        assert np.median(y[rows]) == value
    leaf = tree.children_left < 0
    spread = (tree.impurity * tree.weighted_n_node_samples)[leaf].sum()
    assert spread == pytest.approx(np.abs(y - predicted).sum())
    # What each split gains is what the impurity loses by it.
    total = tree.impurity * tree.weighted_n_node_samples
    lost = total - np.where(leaf, total, total[tree.children_left] + total[tree.children_right])
    assert_allclose(tree.gain, lost, atol=1e-9 * total[0])
    assert (np.sort(y)[N // 2 - 1 : N // 2 + 1].mean(), np.abs(y - np.median(y)).mean()) == pytest.approx(
        (tree.value[0, 0], tree.impurity[0])
    )


@of_their_own
def test_a_weight_is_a_repetition() -> None:
    rng = np.random.default_rng(4)
    table, times = wild_table(400, 4), rng.integers(0, 4, 400)
    y = wild_target(table, 0, 4)
    plan = plan_of(table, max_depth=6)
    weighted = grow_here(table, y, times.astype(float), plan)[0]
    repeated = grow_here([np.repeat(column, times) for column in table], np.repeat(y, times), None, plan)[0]
    for name in ("feature", "threshold", "value", "weighted_n_node_samples"):
        assert_array_equal(getattr(weighted, name), getattr(repeated, name), err_msg=name)
    assert_allclose(weighted.impurity, repeated.impurity, rtol=1e-12)


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(np.float64, st.integers(1, 20), elements=FINITE), st.integers(1, 2**40))
@example(np.array([-1.7976931348623157e308, 1.7976931348623157e308]), 2**31)
def test_levels_are_the_targets_but_for_rounding(y: NDArray[np.float64], total_weight: int) -> None:
    distinct = np.unique(y)
    levels, exponent = levels_of(distinct, total_weight)
    bits = min(61, 84 - total_weight.bit_length())
    assert np.abs(levels).max() <= 2 ** (bits - 1)
    assert np.all(np.diff(levels) >= 0)
    width = distinct[-1] / 4 - distinct[0] / 4  # what is rounded up is within range then
    if width:
        found = np.ldexp((levels - levels[0]).astype(float), -exponent - 2)
        assert_allclose(found, distinct / 4 - distinct[0] / 4, atol=width * 2.0 ** (5 - bits) + 1e-323, rtol=1e-15)


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


@of_their_own
def test_targets_at_the_limits_of_float64() -> None:
    table = [np.arange(6.0)]
    y = np.array([-1.7e308, -1.7e308, 0.0, 5e-324, 1.7e308, 1.7e308])
    tree = grow_here(table, y, None, plan_of(table))[0]
    assert sum_values(pack([tree]), table[0][:, None])[:, 0].tolist() == y.tolist()
    levels = ForestTarget(plan_of(table), y, None).start(0, 0).levels
    assert levels.shape == presort([y]).distinct(0).shape
