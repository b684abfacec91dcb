"""Columns in which most rows have one value, against trying every split, and against a full scan."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.node.records import CONSTANT, SPLIT
from dtrees.split.policy import PROBED_ROWS
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import quick_criteria
from tests.split.nodes import best_of, candidate, comparable, expected, same, search_of
from tests.split.strategies import Task

#: What is common: a value below, among or above the others, or none.
COMMON = {"lowest": -9.0, "middle": 0.0, "highest": 9.0, "missing": math.nan}


#: Criteria, and how many classes they are of.
CASES = [(SQUARED_ERROR, 0), (NEWTON, 0), (GINI, 0), (ENTROPY, 0), (GINI, 3), (ENTROPY, 3), (GINI, 5)]


def column(n: int, common: float, n_others: int, n_missing: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Some rows of other values, ties among them, or of none; the rest has the common one."""
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
    st.sampled_from([case for case in CASES if quick_criteria(case[:1])]),
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
    """From so few other rows that there is next to nothing to sweep to so many that the column is searched as any other."""
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
