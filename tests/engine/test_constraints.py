"""The effect of constraints on gains, and levels of trees in which most splits violate them."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.split.criteria import parts
from dtrees.split.criteria.constraints import Clipped, InOrder, begin_column, criterion_for_thread, make_constraints, root_words
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.statistics import Moments
from tests.engine.shards import ShardedExecutor, Table, all_equal, local, rules
from tests.naive_constraints import Constraints

_BOUNDS = st.sampled_from([-2.0, -0.5, -0.1, 0.0, 0.3, 1.0, 4.0])
_SUMS = st.tuples(st.integers(-40, 40), st.integers(1, 9))


@pytest.mark.parametrize("l1", [0.0, 3.0])
@given(_SUMS, _SUMS, st.sampled_from([0.0, 0.5, 2.0]), st.tuples(_BOUNDS, _BOUNDS), st.sampled_from([-1, 0, 1]))
def test_clipped_gain(l1: float, left: Any, right: Any, penalty: float, bounds: tuple[float, float], sign: int) -> None:
    """The gain of clipped values is the decrease of the loss, and, without the node's own, never above the gain without bounds."""
    around = Constraints(rules("newton_l1" if l1 else "newton", 1, monotonic=(sign,)), *sorted(bounds), l1=l1)
    constrained = make_constraints((sign,), (), 0)
    inner = criterion_named(around.rules.criterion).for_kernels(0, penalty)
    criterion = Clipped(inner._replace(l1=l1) if l1 else inner, constrained)
    total = np.array([left[0] + right[0], left[1] + right[1]])
    words = np.array([around.low, around.high, 0.0]).view(np.int64)
    assert root_words(constrained).shape == words.shape
    assert begin_column(criterion, np.concatenate([total, words]), 0)
    sides = [float(x) for x in (*left, *right)]
    score = parts.score(criterion, *sides)
    exact = around.exact_gain(left, right, penalty)
    if score < 0.0:
        assert not around.allows(0, left, right, penalty)
        return
    assert around.allows(0, left, right, penalty)
    gain = parts.gain(criterion, score, Moments(int(total[0]), int(total[1]), 2))
    size = max(abs(x) ** 2 for x in (*total.tolist(), around.low, around.high)) * float(total[1] + 1)
    assert gain == pytest.approx(max(float(exact), 0.0) if l1 else float(exact), rel=1e-9, abs=1e-12 * size)
    free = Constraints(around.rules, l1=l1)
    own = around._loss(total.tolist(), penalty) - free._loss(total.tolist(), penalty)
    assert exact <= free.exact_gain(left, right, penalty) + own
    if penalty == 0.0 and not l1:
        assert exact >= Fraction(0)


SEEDS = range(12)


def falling(seed: int) -> tuple[Table, NDArray[np.float64]]:
    """A table and a target that mostly decreases where it should increase, with many missing values."""
    rng = np.random.default_rng(seed)
    n = 300
    x = np.where(rng.random(n) < 0.15, np.nan, rng.normal(size=n))
    table = [x, rng.integers(0, 12, n).astype(float), rng.normal(size=n), rng.normal(size=n).round(1)]
    y = 2 * np.nan_to_num(x) + table[1] / 3 + rng.normal(size=n) / 5
    y = np.sign(y - np.median(y)) if seed % 2 else y
    return table, y


@pytest.mark.slow  # compiles kernels that search the zones of levels under constraints
@pytest.mark.parametrize("seed", SEEDS)
def test_levels_where_columns_fall_that_should_rise(seed: int) -> None:
    """Most splits violate the constraints: zones must bound the allowed ones."""
    table, y = falling(seed)
    some = rules("newton", 4, max_depth=4, reg_lambda=5.0, min_child_weight=1.0, monotonic=(-1, 1, 0, 0))
    boosting = BoostingPlan(some, seed, SquaredError(), n_rounds=3)
    with local(table, y) as executor:
        trees = [tree for (tree,) in boost(executor, boosting).rounds]
    assert all_equal([tree for (tree,) in boost(ShardedExecutor(table, y, None, [(0, 2), (1, 3)]), boosting).rounds], trees)


def test_kernel_values_of_threads_are_their_own() -> None:
    inner = criterion_named("squared_error").for_kernels(0, 0.0)
    assert criterion_for_thread(inner) is inner
    constrained = InOrder(inner, make_constraints((1,), (), 0))
    own = criterion_for_thread(constrained)
    assert own.constraints.state is not constrained.constraints.state
    assert own.constraints.signs is constrained.constraints.signs
