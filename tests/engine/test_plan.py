"""Plans: limits of nodes in the units of one tree's sums, and when boosting stops early."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.engine.plan.node_limits import LimitsOfFit, StoredSums
from dtrees.engine.plan.plans import Stopping
from dtrees.split.criteria.criterion import criterion_named
from tests.engine.shards import rules

# --- rules in the units of one tree's sums ---


@given(st.integers(-900, 60), st.integers(1, 2**61), st.sampled_from([0.0, 0.1, 0.25, 0.5]), st.sampled_from([0.0, 1e-3, 1.0, 7.5]))
def test_smallest_weight_of_a_child(exponent: int, weight: int, fraction: float, child_weight: float) -> None:
    """The smallest integer weight that, unscaled, is neither below the fraction of the root's nor below the absolute minimum."""
    some = rules("newton", 1, min_weight_fraction_leaf=fraction, min_child_weight=child_weight)
    limits, stops = LimitsOfFit(some, StoredSums()).of_tree(np.array([0, weight]), (exponent, exponent))
    # The product with the fraction is computed in floating point, as users would.
    smallest = max(Fraction(child_weight) * Fraction(2) ** exponent, Fraction(fraction * weight))
    if smallest < 2**62:
        assert smallest <= limits.min_weight < smallest + 1
        assert stops.min_weight == min(2 * limits.min_weight, 2**62)
    assert limits.min_weight >= min(smallest, 2**62)


def test_a_minimum_beyond_any_weight() -> None:
    limits, stops = LimitsOfFit(rules("newton", 1, min_child_weight=1e18), StoredSums()).of_tree(np.array([0, 2**60]), (0, 50))
    assert 2**60 < limits.min_weight < 2**63
    assert 2**60 < stops.min_weight < 2**63


@pytest.mark.parametrize(
    ("criterion", "n_classes", "sums", "exponents", "unit"),
    [
        ("squared_error", 0, [0, 5 * 2**4], (7, 4), 2.0**10),
        ("newton", 0, [0, 5 * 2**4], (-7, 4), 2.0**-18),
        ("gini", 2, [2, 5 * 2**4], (4, 4), 2.0**4),
        ("entropy", 3, [2 * 2**4, 0, 3 * 2**4], (0, 4), 2.0**4),
    ],
)
def test_smallest_gain(criterion: str, n_classes: int, sums: list[int], exponents: tuple[int, int], unit: float) -> None:
    """Per unit of the root's weight (5 here), in units of gains; a rounding error is forgiven."""
    stored = StoredSums(n_classes if n_classes > 2 else 0)
    limits, _ = LimitsOfFit(rules(criterion, 1, min_impurity_decrease=0.3), stored).of_tree(np.array(sums), exponents)
    assert criterion_named(criterion).gain_exponent(exponents) == math.log2(unit)
    assert limits.min_gain < 0.3 * 5 * unit
    assert limits.min_gain == pytest.approx(0.3 * 5 * unit, rel=1e-14)
    assert LimitsOfFit(rules(criterion, 1), stored).of_tree(np.array(sums), exponents)[0].min_gain < 0.0


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-100, 1e100, 1e300])
def test_gains_of_any_size(scale: float) -> None:
    exponent = 61 - math.frexp(scale)[1]
    limits, _ = LimitsOfFit(rules("squared_error", 1), StoredSums()).of_tree(np.array([2**60, 100]), (min(exponent, 1000), 0))
    assert limits.min_gain <= 0.0


def test_limits_of_one_tree_after_another() -> None:
    """Data common to all trees is computed once: for each tree, the limits equal those of the tree alone."""
    some = rules("newton_l1", 2, reg_lambda=1.5, reg_alpha=0.5, min_child_weight=0.1, min_impurity_decrease=0.01)
    fit = LimitsOfFit(some, StoredSums())
    for weight, exponents in [(9, (0, 20)), (2**40, (0, 20)), (2**40, (3, 21)), (9, (0, 20))]:
        sums = np.array([5, weight])
        assert fit.of_tree(sums, exponents, 2.0) == LimitsOfFit(some, StoredSums()).of_tree(sums, exponents, 2.0)


scores = st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, math.nan]), min_size=1, max_size=12)


@given(scores, st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_the_best_round_and_the_end(values: list[float], rounds: int, tol: float, greater_is_better: bool) -> None:
    """Compared with a simple loop; NaN is never better than a number."""
    rule = Stopping(rounds, tol=tol, greater_is_better=greater_is_better)
    best, value = 0, values[0]
    for i, score in enumerate(values):
        better = score > value + tol if greater_is_better else score < value - tol
        if better or (math.isnan(value) and not math.isnan(score)):
            best, value = i, score
    assert rule.best(values) == best
    assert rule.ends(values) == (len(values) > best + rounds)


def test_a_score_that_is_infinite_at_first() -> None:
    assert Stopping(1).best([math.inf, 3.0, 4.0]) == 1
    assert Stopping(1).best([math.inf, math.inf]) == 0
    assert Stopping(1, greater_is_better=True).best([-math.inf, 3.0]) == 1
