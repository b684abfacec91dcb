"""Cuts of one column."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import lean_entry
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.node.records import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.policy import PROBED_ROWS
from dtrees.split.search.vectors import EXACT_WEIGHT, sweeps_chunks
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import quick_criteria
from tests.split.nodes import best_of, candidate, comparable, expected, same, search_of, widen
from tests.split.strategies import Task

# --- one node, one column, computed by hand: the cut, and the side of missing values ---


NAN = math.nan
PLAIN = naive.SplitLimits(SQUARED_ERROR)


def task(x: list[float], a: list[int], limits: naive.SplitLimits, b: list[int] | None = None) -> Task:
    return Task([np.array(x)], np.array(a), np.array(b or [], np.int64), np.ones(len(x), np.bool_), limits)


#: A case with kernels that no quick test needs.
of_their_own = partial(pytest.param, marks=pytest.mark.slow)
CASES: list[Any] = [
    # x, a, limits, b, (threshold, missing left, rows left, sums left, gain)
    ([1, 2, 3, 4], [0, 0, 6, 6], PLAIN, None, (2.5, False, 2, (0, 2), 36.0)),
    ([4, 1, 3, 2], [6, 0, 6, 0], PLAIN, None, (2.5, False, 2, (0, 2), 36.0)),
    # Ties: the lower threshold.
    ([1, 2, 3], [1, 0, 1], PLAIN, None, (1.5, False, 1, (1, 1), 1 / 6)),
    ([1, 1, 2, 2, 3], [0, 1, 0, 1, 3], PLAIN, None, (2.5, True, 4, (2, 4), 5.0)),
    # Rows without the value go with the majority.
    ([1, 2, 3], [0, 0, 3], PLAIN, None, (2.5, True, 2, (0, 2), 6.0)),
    # Missing values go with similar ones; left if both sides are equally good.
    ([1, 2, NAN], [0, 6, 0], PLAIN, None, (1.5, True, 2, (0, 2), 24.0)),
    ([1, 2, NAN], [0, 6, 6], PLAIN, None, (1.5, False, 1, (0, 1), 24.0)),
    ([1, 2, NAN], [-3, 3, 0], PLAIN, None, (1.5, True, 2, (-3, 2), 13.5)),
    # All values on one side, missing ones on the other.
    ([1, 2, NAN, NAN], [5, 5, 1, 1], PLAIN, None, (math.inf, False, 2, (10, 2), 16.0)),
    ([7, 7, NAN], [4, 4, 1], PLAIN, None, (math.inf, False, 2, (8, 2), 6.0)),
    # Weights: a is weight times target.
    ([1, 2, 3], [0, 0, 12], PLAIN, [1, 2, 3], (2.5, True, 2, (0, 3), 24.0)),
    # Limits on rows and weight leave the second best.
    ([1, 2, 3, 4], [9, 0, 0, 0], PLAIN._replace(min_samples=2), None, (2.5, False, 2, (9, 2), 81 / 4)),
    ([1, 2, 3, 4], [9, 0, 0, 0], PLAIN._replace(min_weight=3), [1, 1, 1, 5], (3.5, True, 3, (9, 3), 16.875)),
    # Two classes (a is the weight of class 1).
    ([1, 2, 3, 4], [0, 0, 1, 1], naive.SplitLimits(GINI), None, (2.5, False, 2, (0, 2), 2.0)),
    of_their_own([1, 2, 3, 4], [0, 0, 1, 1], naive.SplitLimits(ENTROPY), None, (2.5, False, 2, (0, 2), 4.0)),
    # Four classes: the most even cut halves the entropy of two bits.
    of_their_own([1, 2, 3, 4], [0, 1, 2, 3], naive.SplitLimits(ENTROPY, 4), None, (2.5, False, 2, (1, 1, 0, 0), 4.0)),
    ([1, 2, 3, NAN], [0, 1, 1, 0], naive.SplitLimits(GINI, 3), None, (1.5, True, 2, (2, 0, 0), 2.0)),
    ([1, 2, NAN, NAN], [1, 1, 2, 2], naive.SplitLimits(GINI, 3), [1, 2, 3, 4], (math.inf, False, 2, (0, 3, 0), 4.2)),
    # Newton with penalty 1: 4/2 + 4/2 - 0/3.
    ([1, 2], [-2, 2], naive.SplitLimits(NEWTON, penalty=1.0), None, (1.5, False, 1, (-2, 1), 4.0)),
    # If no row on one side has weight, only a penalty makes a split possible.
    ([1, 2], [-2, 2], naive.SplitLimits(NEWTON, penalty=1.0), [1, 0], (1.5, False, 1, (-2, 1), 6.0)),
]


@pytest.mark.parametrize(("x", "a", "limits", "b", "answer"), CASES)
def test_by_hand(x: list[float], a: list[int], limits: naive.SplitLimits, b: list[int] | None, answer: tuple[Any, ...]) -> None:
    one = task(x, a, limits, b)
    # In bins, and sorted because the table has many more values.
    for found in (best_of(search_of(one)), best_of(search_of(widen(one, 100)))):
        status, split = found
        assert status == SPLIT
        assert (split.threshold, split.missing_left, split.n_left, split.left) == answer[:4]
        assert split.gain == pytest.approx(answer[4])
        assert same(found, expected(one))


@pytest.mark.parametrize(
    ("x", "a", "limits", "b", "status"),
    [
        ([3, 3, 3], [1, 2, 3], PLAIN, None, CONSTANT),
        ([NAN, NAN], [1, 2], PLAIN, None, CONSTANT),
        ([0.0, -0.0], [1, 2], PLAIN, None, CONSTANT),
        ([5.0], [1], PLAIN, None, CONSTANT),
        ([1, 2, 3], [1, 2, 9], PLAIN._replace(min_samples=2), None, NO_SPLIT),
        ([1, 2, 3], [1, 2, 9], PLAIN._replace(min_weight=4), [3, 1, 3], NO_SPLIT),
        ([1, 2], [0, 2], PLAIN._replace(min_gain=2.1), None, NO_SPLIT),
        ([1, 2, 3], [0, 1, 1], naive.SplitLimits(GINI, 3, min_samples=2), None, NO_SPLIT),
        ([1, NAN], [0, 1], naive.SplitLimits(GINI, 3, min_weight=2), None, NO_SPLIT),
        # Newton: only with a positive gain.
        ([1, 2], [1, 1], naive.SplitLimits(NEWTON), None, NO_SPLIT),
        ([1, 2], [1, 1], naive.SplitLimits(NEWTON, penalty=1.0), None, NO_SPLIT),
        ([1, 2], [-2, 2], naive.SplitLimits(NEWTON), [1, 0], NO_SPLIT),
    ],
)
def test_no_split_by_hand(x: list[float], a: list[int], limits: naive.SplitLimits, b: list[int] | None, status: int) -> None:
    one = task(x, a, limits, b)
    assert best_of(search_of(one)) == (status, None)
    assert best_of(search_of(widen(one, 100))) == (status, None)
    assert expected(one) == (status, None)


def test_a_split_without_gain_is_a_split() -> None:
    """As in scikit-learn, so that a gain of two splits together can be found (exclusive or)."""
    status, split = best_of(search_of(task([1, 2, 1, 2], [0, 0, 1, 1], naive.SplitLimits(GINI, min_gain=-1e-9))))
    assert status == SPLIT
    assert split.gain == 0.0


@lean_entry
def _may_sweep_chunks(criterion, sums):  # type: ignore[no-untyped-def]
    return sweeps_chunks(criterion, node_statistic(criterion, sums, 0))


@pytest.mark.slow
def test_the_heaviest_node_whose_squares_are_exact() -> None:
    """Two classes, cut in the middle, have the largest sum of squares; with one more unit of weight floats might round."""
    half = EXACT_WEIGHT // 2
    node = np.array([half, 0, EXACT_WEIGHT - half])
    gini, entropy = (criterion_named(name).for_kernels(3, 0.0) for name in (GINI, ENTROPY))
    assert 2 * half * half * (EXACT_WEIGHT - half) ** 2 * 4 // 4 < 2**53
    assert _may_sweep_chunks(gini, node)
    assert not _may_sweep_chunks(gini, node + np.array([0, 1, 0]))
    assert not _may_sweep_chunks(entropy, node)


# --- columns in which most rows have the same value, compared with trying every split, and with a full scan ---


#: The common value: below, among or above the others, or missing.
COMMON = {"lowest": -9.0, "middle": 0.0, "highest": 9.0, "missing": math.nan}


#: Criteria, and their numbers of classes.
LAYOUTS = [(SQUARED_ERROR, 0), (NEWTON, 0), (GINI, 0), (ENTROPY, 0), (GINI, 3), (ENTROPY, 3), (GINI, 5)]


def column(n: int, common: float, n_others: int, n_missing: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return some rows with other values, including ties and missing values; the rest has the common value."""
    x = np.full(n, common)
    rows = rng.permutation(n)[: n_others + n_missing]
    values = np.where(rng.random(n_others) < 0.5, np.nextafter(rng.integers(-4, 5, n_others) / 2, 99.0), rng.normal(0, 3, n_others))
    x[rows[:n_others]] = np.clip(values, -8.0, 8.0)
    x[rows[n_others:]] = np.nan
    return x


def task_of(x: NDArray[np.float64], criterion: str, n_classes: int, weighted: bool, target: str, rng: np.random.Generator) -> Task:
    n = x.shape[0]
    inside = rng.random(n) < (0.99 if rng.random() < 0.5 else 1.0)
    b = rng.integers(1, 2**20, n) if weighted else np.empty(0, np.int64)
    seen = np.nan_to_num(x, nan=1.5)
    signal = {"noise": rng.normal(size=n), "the value": seen + rng.normal(0, 0.1, n), "far from 0": np.abs(seen)}[target]
    if n_classes:
        a = np.digitize(signal, np.quantile(signal, np.linspace(0, 1, n_classes + 1)[1:-1]))
    elif criterion in (GINI, ENTROPY):
        a = (signal > 0.5).astype(np.int64) * (b if weighted else 1)
    else:
        a = np.rint(signal * float(rng.choice([1.0, 2.0**30]))).astype(np.int64)
    weight = int(b[inside].sum()) if weighted else int(inside.sum())
    limits = naive.SplitLimits(
        criterion,
        n_classes=n_classes,
        penalty=float(rng.choice([0.0, 1.0, 0.1 * weight])) if criterion == NEWTON else 0.0,
        min_samples=int(rng.choice([1, 1, 2, n // 10])),
        min_weight=int(rng.choice([0, 0, 1, weight // 20])),
    )
    return Task([x], a.astype(np.int64), b, inside, limits)


@given(
    st.sampled_from([case for case in LAYOUTS if quick_criteria(case[:1])]),
    st.sampled_from(sorted(COMMON)),
    st.sampled_from([0, 1, 2, 7, 30, 60]),
    st.sampled_from([0, 0, 1, 40]),
    st.booleans(),
    st.sampled_from(["noise", "the value", "far from 0"]),
    st.integers(0, 2**20),
)
@examples(150)
def test_the_best_of_every_split(
    layout: tuple[int, int], common: str, n_others: int, n_missing: int, weighted: bool, target: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = column(int(rng.integers(PROBED_ROWS + 40, PROBED_ROWS + 200)), COMMON[common], n_others, n_missing, rng)
    task = task_of(x, *layout, weighted, target, rng)
    assert same(best_of(search_of(task, seed)), expected(task))


@pytest.mark.parametrize("criterion", [SQUARED_ERROR, GINI, NEWTON])
@pytest.mark.parametrize("common", sorted(COMMON))
def test_large_nodes(criterion: str, common: str) -> None:
    """From so few other rows that almost nothing is swept to so many that the column is searched in the usual way."""
    n_splits = 0
    for seed, share in enumerate((0.0, 0.001, 0.05, 0.2, 0.3, 0.34, 0.5)):
        rng = np.random.default_rng(seed)
        n = 6000
        x = column(n, COMMON[common], int(share * n), 50 * (seed % 2), rng)
        task = task_of(x, criterion, 0, seed % 3 == 0, "far from 0", rng)
        rows = np.flatnonzero(task.inside)
        b = task.h[rows] if task.h.shape[0] else np.ones(rows.shape[0], np.int64)
        answer = naive.full_scan(x[rows], 0, task.g[rows], b, task.limits)
        assert same(candidate(search_of(task, seed), 0), comparable(answer))
        n_splits += answer[0] == SPLIT
    assert n_splits >= 3


def test_a_constant_column() -> None:
    rng = np.random.default_rng(0)
    for common in COMMON.values():
        task = task_of(np.full(700, common), SQUARED_ERROR, 0, False, "noise", rng)
        assert best_of(search_of(task)) == (CONSTANT, None)
