"""Sweeps of several rows at a time, against the plain ones (which are tested against trying every split)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtrees.split.compile.kernels import lean_entry
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.gini import GiniOfClasses
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.node.found import NONE_HIGHER, no_split_found
from dtrees.split.node.limits import BestThreshold, SplitLimits
from dtrees.split.policy import STRETCH
from dtrees.split.search.thresholds.sweep import SortedRows, nothing, sweep_sorted
from dtrees.split.search.thresholds.vector_sweep import EXACT_WEIGHT, make_stretch, sweep_stretches, sweeps_stretches
from tests.naive import ENTROPY, GINI, NEWTON, POISSON, SQUARED_ERROR
from tests.slow import thorough_for

SIZES = [2, 3, 40, STRETCH - 1, STRETCH, STRETCH + 1, 2 * STRETCH, 3 * STRETCH + 17]


@lean_entry
def _sweep(limits, keys, first, last, a, b, base, sums, bar, room, found, stretch, plain):  # type: ignore[no-untyped-def]
    node, rows = node_statistic(limits.criterion, sums, last - first), SortedRows(keys, first, last, a, b, base)
    if plain:
        left, missing = nothing(node, room[0]), nothing(node, room[1])
        return sweep_sorted(limits, rows, left, missing, node, NONE_HIGHER, bar, room[2], found)
    return sweep_stretches(node, limits, rows, bar, room[0], found, stretch)


@lean_entry
def _may_sweep_stretches(criterion, sums):  # type: ignore[no-untyped-def]
    return sweeps_stretches(criterion, node_statistic(criterion, sums, 0))


def sweep(limits: SplitLimits, keys: Any, first: int, last: int, a: Any, b: Any, base: int, sums: Any, bar: float, plain: bool) -> Any:
    """The score, and the split found."""
    found, n_classes = no_split_found(sums.shape[0]), sums.shape[0] if isinstance(limits.criterion, GiniOfClasses) else 0
    room = np.zeros((3, n_classes), np.int64)
    score = _sweep(limits, keys, first, last, a, b, base, sums, bar, room, found, make_stretch(), plain)
    return score, found.record.tolist(), found.left.tolist()


def sorted_keys(n: int, n_values: int, rng: np.random.Generator) -> tuple[np.ndarray, int, int]:
    """Keys of a node somewhere in a list, of at least two values."""
    codes = np.sort(rng.integers(0, n_values, n))
    codes[0], codes[-1] = 0, n_values
    places = rng.permutation(n)
    first = int(rng.integers(0, 5))
    keys = np.zeros(n + first + 3, np.uint64)
    keys[first : first + n] = codes.astype(np.uint64) << np.uint64(32) | places.astype(np.uint64)
    return keys, first, first + n


def limits_for(criterion: str, n: int, weight: int, n_classes: int, rng: np.random.Generator) -> SplitLimits:
    penalty = float(rng.choice([0.0, 3.5])) if criterion == NEWTON else 0.0
    least, lightest = int(rng.choice([1, 1, 2, n // 3 + 1, n])), int(rng.choice([0, 0, 1, weight // 4]))
    return SplitLimits(criterion_named(criterion).for_kernels(n_classes, penalty), BestThreshold(), 1.0, least, lightest, -np.inf)


@pytest.mark.slow  # kernels of its own; whole nodes and trees are searched against trying every split in every run
@pytest.mark.parametrize("criterion", thorough_for({POISSON}, [SQUARED_ERROR, GINI, NEWTON, POISSON]))
@pytest.mark.parametrize("weighted", [False, True])
def test_moments(criterion: str, weighted: bool) -> None:
    n_found = 0
    for seed, n in enumerate(SIZES * 6):
        rng = np.random.default_rng(seed)
        keys, first, last = sorted_keys(n, int(rng.choice([2, 9, 10 * n])), rng)
        base = int(rng.integers(0, 3))
        b = rng.integers(0 if criterion == NEWTON else 1, 2**30, n + base) if weighted else np.empty(0, np.int64)
        if criterion == GINI:
            a = rng.integers(0, 2, n + base) * (b if weighted else 1)
        else:
            a = rng.integers(-1, 2, n + base) if seed % 2 else rng.integers(-(2**50), 2**50, n + base)
        a = np.abs(a) if criterion == POISSON else a
        sums = np.array([a[base:].sum(), b[base:].sum() if weighted else n])
        limits = limits_for(criterion, n, int(sums[1]), 0, rng)
        answers: list[Any] = []
        for plain in (True, False):
            answers.append([sweep(limits, keys, first, last, a, b, base, sums, -1.0, plain)])
            score = answers[-1][0][0]
            # Only what is better than the bar counts, even by the last bit.
            for bar in (np.nextafter(score, -np.inf) if score >= 0.0 else -1.0, score):
                answers[-1].append(sweep(limits, keys, first, last, a, b, base, sums, bar, plain))
        assert repr(answers[0]) == repr(answers[1])
        n_found += answers[0][0][0] >= 0.0
    assert n_found > 20


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [3, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_classes(n_classes: int, weighted: bool) -> None:
    n_found = 0
    for seed, n in enumerate(SIZES * 6):
        rng = np.random.default_rng(seed)
        keys, first, last = sorted_keys(n, int(rng.choice([2, 9, 10 * n])), rng)
        base = int(rng.integers(0, 3))
        b = rng.integers(1, 1 + EXACT_WEIGHT // n, n + base) if weighted else np.empty(0, np.int64)
        a = rng.integers(0, n_classes, n + base) if seed % 3 else np.minimum(np.arange(n + base) % 50, n_classes - 1)
        sums = np.bincount(a[base:], weights=b[base:] if weighted else None, minlength=n_classes).astype(np.int64)
        limits = limits_for(GINI, n, int(sums.sum()), n_classes, rng)
        assert _may_sweep_stretches(limits.criterion, sums)
        answers: list[Any] = []
        for plain in (True, False):
            answer = [sweep(limits, keys, first, last, a, b, base, sums, -1.0, plain)]
            score = answer[0][0]
            answer.append(sweep(limits, keys, first, last, a, b, base, sums, np.nextafter(score, -np.inf) if score > 0 else -1.0, plain))
            answers.append(answer)
        assert repr(answers[0]) == repr(answers[1])
        n_found += answers[0][0][0] >= 0.0
    assert n_found > 20


@pytest.mark.slow
def test_the_heaviest_node_whose_squares_are_exact() -> None:
    """Two classes, cut in the middle, have the largest sum of squares; one more unit of weight and floats might round."""
    half = EXACT_WEIGHT // 2
    keys = np.arange(4, dtype=np.uint64) << np.uint64(32) | np.arange(4, dtype=np.uint64)
    a, b = np.array([0, 0, 2, 2]), np.array([half - 1, 1, 2, EXACT_WEIGHT - half - 2])
    node = np.array([half, 0, EXACT_WEIGHT - half])
    gini, entropy = (criterion_named(name).for_kernels(3, 0.0) for name in (GINI, ENTROPY))
    limits = SplitLimits(gini, BestThreshold(), 1.0, 1, 0, -np.inf)
    answers = [sweep(limits, keys, 0, 4, a, b, 0, node, -1.0, plain) for plain in (True, False)]
    assert answers[0] == answers[1]
    assert answers[0][1][0][:2] == (1, 2)
    assert 2 * half * half * (EXACT_WEIGHT - half) ** 2 * 4 // 4 < 2**53
    assert _may_sweep_stretches(gini, node)
    assert not _may_sweep_stretches(gini, node + np.array([0, 1, 0]))
    assert not _may_sweep_stretches(entropy, node)
