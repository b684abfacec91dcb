"""Gains against fractions, and the symmetries that the order of splits relies on."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.statistics import Classes, Moments
from dtrees.split.search.sweep import score_above
from tests import naive
from tests.naive import ENTROPY, GINI, NEWTON, POISSON, SQUARED_ERROR

weights = st.one_of(st.integers(1, 20), st.integers(1, 2**59))
penalties = st.sampled_from([0.0, 1.0, 1e-3, 2.0**30])


def score_of(criterion: str, left: tuple[int, int], right: tuple[int, int], penalty: float = 0.0) -> float:
    (x, a), (y, b) = left, right
    return float(parts.score(criterion_named(criterion).for_kernels(0, penalty), float(x), float(a), float(y), float(b)))


def float_gain(criterion: str, left: tuple[int, int], right: tuple[int, int], penalty: float = 0.0) -> float:
    (x, a), (y, b) = left, right
    node = Moments(x + y, a + b, 0)
    return float(parts.gain(criterion_named(criterion).for_kernels(0, penalty), score_of(criterion, left, right, penalty), node))


def class_score(criterion: str, left: list[int], right: list[int]) -> float:
    one, total = np.array(left), np.array(left) + np.array(right)
    left_sums, node = Classes(one, one.sum(), 0), Classes(total, total.sum(), 0)
    return float(score_above(left_sums, criterion_named(criterion).for_kernels(3, 0.0), node, -1.0))


def class_gain(criterion: str, left: list[int], right: list[int]) -> float:
    total = np.array(left) + np.array(right)
    node = Classes(total, total.sum(), 0)
    return float(parts.gain(criterion_named(criterion).for_kernels(3, 0.0), class_score(criterion, left, right), node))


def total_of(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(left, right, strict=True))


@given(st.tuples(st.integers(-(2**59), 2**59), weights), st.tuples(st.integers(-(2**59), 2**59), weights), penalties)
def test_squared_error_and_newton(left: tuple[int, int], right: tuple[int, int], penalty: float) -> None:
    for criterion, r in ((SQUARED_ERROR, 0.0), (NEWTON, penalty)):
        exact = float(naive.exact_gain(left, total_of(left, right), naive.SplitLimits(criterion, penalty=r)))
        size = sum(g * g / (h + r) for g, h in (left, right))  # the terms of the difference
        assert float_gain(criterion, left, right, r) == pytest.approx(exact, rel=1e-9, abs=1e-14 * size)


@given(weights, weights, st.floats(0, 1), st.floats(0, 1))
def test_two_classes_in_moments(a: int, b: int, share_left: float, share_right: float) -> None:
    left, right = (min(a, int(a * share_left)), a), (min(b, int(b * share_right)), b)
    for criterion in (GINI, ENTROPY):
        exact = float(naive.exact_gain(left, total_of(left, right), naive.SplitLimits(criterion)))
        gain = float_gain(criterion, left, right)
        assert gain == pytest.approx(exact, rel=1e-9, abs=1e-14 * (a + b))
        in_classes = class_gain(criterion, [a - left[0], left[0]], [b - right[0], right[0]])
        assert gain == pytest.approx(in_classes, rel=1e-9, abs=1e-14 * (a + b))


classes = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 2**57)), min_size=3, max_size=3)


@given(classes, classes)
def test_classes(left: list[int], right: list[int]) -> None:
    assume(any(left) and any(right))
    total = total_of(tuple(left), tuple(right))
    for criterion in (GINI, ENTROPY):
        exact = float(naive.exact_gain(tuple(left), total, naive.SplitLimits(criterion, 3)))
        assert class_gain(criterion, left, right) == pytest.approx(exact, rel=1e-9, abs=1e-14 * sum(total))
        # Mirrored splits tie to the last bit.
        assert class_gain(criterion, left, right) == class_gain(criterion, right, left)


@given(st.tuples(st.integers(-(2**59), 2**59), weights), st.tuples(st.integers(-(2**59), 2**59), weights), penalties)
def test_mirrored_splits_tie_exactly(left: tuple[int, int], right: tuple[int, int], penalty: float) -> None:
    for criterion, r in ((SQUARED_ERROR, 0.0), (NEWTON, penalty)):
        assert float_gain(criterion, left, right, r) == float_gain(criterion, right, left, r)
    left, right = (left[1] // 2, left[1]), (right[1] // 3, right[1])
    for criterion in (GINI, ENTROPY):
        assert float_gain(criterion, left, right) == float_gain(criterion, right, left)


amounts = st.one_of(st.integers(0, 20), st.integers(0, 2**59))


@given(st.tuples(amounts, weights), st.tuples(amounts, weights), st.floats(0.5, 2.0), st.booleans())
@example((455_232_322_685_202_240, 3_885_386_501_765_429), (23, 1), 1.0, False)  # the right side weighs less than a rounding error
def test_no_score_by_poisson_deviance_is_above_its_bound(left: tuple[int, int], right: tuple[int, int], ratio: float, near: bool) -> None:
    value = criterion_named(POISSON).for_kernels(0, 0.0)
    if near:  # means that hardly differ, or differ as much as where the bound is sharp
        right = (int(left[0] * ratio * (right[1] / left[1])), right[1])
    (x, a), (y, b) = left, right
    sides = float(x), float(a), float(y), float(b)
    score, bound = float(parts.score(value, *sides)), float(parts.upper_bound(value, *sides, (float(x) + float(y), float(a) + float(b))))
    assert parts.is_bounded(value)
    assert score <= bound
    assert (score == -1.0) == (bound == -1.0)
    mean = (x + y) / (a + b)
    if score >= 0.0 and all(0.5 < g / h / mean < 2.0 for g, h in (left, right)):
        assert bound <= 1.05 * score + 2.0**-40 * (x + y)
    assert score <= 0.0 or parts.may_exceed(value, *sides, np.nextafter(score, 0.0))


def test_the_bounds_of_other_criteria_are_their_scores() -> None:
    for criterion in (SQUARED_ERROR, NEWTON, GINI):
        value = criterion_named(criterion).for_kernels(0, 0.0)
        assert not parts.is_bounded(value)
        assert parts.upper_bound(value, 3.0, 4.0, 1.0, 2.0, (4.0, 6.0)) == parts.score(value, 3.0, 4.0, 1.0, 2.0)


@pytest.mark.parametrize("criterion", [SQUARED_ERROR, GINI, ENTROPY, NEWTON])
def test_an_empty_side_has_no_score(criterion: str) -> None:
    assert score_of(criterion, (0, 0), (1, 2)) == -1.0
    assert score_of(criterion, (1, 2), (0, 0)) == -1.0
    if criterion == NEWTON:
        assert score_of(criterion, (0, 0), (1, 2), 1.0) >= 0.0
    elif criterion != SQUARED_ERROR:
        assert class_score(criterion, [0, 0, 0], [1, 2, 3]) == -1.0
        assert class_score(criterion, [1, 2, 3], [0, 0, 0]) == -1.0


def test_known_gains() -> None:
    # Targets 0, 0 | 3, 3: the sum of squares falls from 9 to 0.
    assert float_gain(SQUARED_ERROR, (0, 2), (6, 2)) == 9.0
    # Two rows of each of two classes, separated: impurity 1/2 (1 bit) times weight 4.
    assert float_gain(GINI, (0, 2), (2, 2)) == 2.0
    assert float_gain(ENTROPY, (0, 2), (2, 2)) == 4.0
    assert class_gain(GINI, [1, 0, 0], [0, 1, 1]) == pytest.approx(3 * (2 / 3) - 2 * (1 / 2))
    # Chen and Guestrin (2016), equation 7, without the half: 4/3 + 9/4 - 1/6.
    assert float_gain(NEWTON, (2, 2), (-3, 3), 1.0) == pytest.approx(4 / 3 + 9 / 4 - 1 / 6)
    # A penalty can make the gain of a split negative.
    assert float_gain(NEWTON, (1, 1), (1, 1), 1.0) < 0.0


@given(
    st.tuples(st.integers(-(2**59), 2**59), weights),
    st.tuples(st.integers(-(2**59), 2**59), weights),
    penalties,
    st.one_of(st.sampled_from([0.0, 1.0, 2.0**30]), st.floats(0.0, 1.2)),
)
def test_newton_with_an_l1_penalty(left: tuple[int, int], right: tuple[int, int], penalty: float, l1: float) -> None:
    """Compared with the textbook's formula in fractions; thresholds up to beyond a side's sum."""
    (x, a), (y, b) = left, right
    l1 = l1 if l1 >= 1.0 or l1 == 0.0 else l1 * abs(x)
    limits = naive.SplitLimits(naive.NEWTON_L1, penalty=penalty, l1=l1)
    exact = naive.exact_gain(left, total_of(left, right), limits)
    value = naive.kernel_value(limits)
    score = parts.score(value, float(x), float(a), float(y), float(b))
    assert score == parts.score(value, float(y), float(b), float(x), float(a))
    assert score == parts.score(value, -float(x), float(a), -float(y), float(b)) >= 0.0
    found = parts.gain(value, score, Moments(x + y, a + b, 0))
    size = sum(g * g / (h + penalty) for g, h in (left, right))
    assert found == pytest.approx(max(float(exact), 0.0), rel=1e-9, abs=1e-13 * size)
    assert found >= 0.0
    if l1 == 0.0:
        assert found == pytest.approx(max(float_gain(NEWTON, left, right, penalty), 0.0), rel=1e-9, abs=1e-13 * size)
    if exact < 0:
        assert not parts.is_worthwhile(value, found)
