"""Sweeps of several rows at a time, against the plain ones (which are tested against trying every split)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest

from dtrees.split.criteria import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from dtrees.split.stretch import EXACT_WEIGHT, STRETCH, make_stretch, sums_squares, sweep_complete, sweep_squares
from dtrees.split.sweep import Limits, sweep_classes, sweep_sorted

SIZES = [2, 3, 40, STRETCH - 1, STRETCH, STRETCH + 1, 2 * STRETCH, 3 * STRETCH + 17]


@numba.njit
def _moments(limits, keys, first, last, a, b, base, node, bar, best, stretch, plain):  # type: ignore[no-untyped-def]
    if plain:
        nothing = (0, 0, 0)
        return sweep_sorted(limits, keys, first, last, a, b, base, nothing, nothing, node, -1, bar, best)
    return sweep_complete(limits, keys, first, last, a, b, base, node, bar, best, stretch)


@numba.njit
def _classes(limits, keys, first, last, a, b, base, node, bar, best, best_left, stretch, plain):  # type: ignore[no-untyped-def]
    left, missing = np.zeros_like(node), np.zeros_like(node)
    if plain:
        nothing, n_node = (0, 0), (node.sum(), last - first)
        return sweep_classes(limits, keys, first, last, a, b, base, left, nothing, missing, nothing, node, n_node, -1, bar, best, best_left)
    return sweep_squares(limits, keys, first, last, a, b, base, node, left, bar, best, best_left, stretch)


def sorted_keys(n: int, n_values: int, rng: np.random.Generator) -> tuple[np.ndarray, int, int]:
    """Keys of a node somewhere in a list, of at least two values."""
    codes = np.sort(rng.integers(0, n_values, n))
    codes[0], codes[-1] = 0, n_values
    places = rng.permutation(n)
    first = int(rng.integers(0, 5))
    keys = np.zeros(n + first + 3, np.uint64)
    keys[first : first + n] = codes.astype(np.uint64) << np.uint64(32) | places.astype(np.uint64)
    return keys, first, first + n


def limits_for(criterion: int, n: int, weight: int, n_classes: int, rng: np.random.Generator) -> Limits:
    penalty = float(rng.choice([0.0, 3.5])) if criterion == NEWTON else 0.0
    least, lightest = int(rng.choice([1, 1, 2, n // 3 + 1, n])), int(rng.choice([0, 0, 1, weight // 4]))
    return Limits(criterion, n_classes, False, penalty, 1.0, least, lightest, -np.inf)


@pytest.mark.parametrize("criterion", [SQUARED_ERROR, GINI, NEWTON])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments(criterion: int, weighted: bool) -> None:
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
        g, h = int(a[base:].sum()), int(b[base:].sum()) if weighted else n
        limits = limits_for(criterion, n, h, 0, rng)
        answers: list[Any] = []
        for plain in (True, False):
            best = np.full(6, -7)
            score = _moments(limits, keys, first, last, a, b, base, (g, h, n), -1.0, best, make_stretch(), plain)
            answers.append((score, best.tolist()))
            # Only what is better than the bar counts, even by the last bit.
            for bar in (np.nextafter(score, -np.inf) if score >= 0.0 else -1.0, score):
                again = np.full(6, -7)
                answers[-1] += (
                    _moments(limits, keys, first, last, a, b, base, (g, h, n), bar, again, make_stretch(), plain),
                    again.tolist(),
                )
        assert repr(answers[0]) == repr(answers[1])
        n_found += answers[0][0] >= 0.0
    assert n_found > 20


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
        node = np.bincount(a[base:], weights=b[base:] if weighted else None, minlength=n_classes).astype(np.int64)
        limits = limits_for(GINI, n, int(node.sum()), n_classes, rng)
        assert sums_squares_of(limits, node)
        answers: list[Any] = []
        for plain in (True, False):
            answer: list[Any] = []
            bar = -1.0
            for _ in range(2):
                best, best_left = np.zeros(6, np.int64), np.full(n_classes, -7)
                bar = _classes(limits, keys, first, last, a, b, base, node, bar, best, best_left, make_stretch(), plain)
                answer += [bar, best.tolist(), best_left.tolist()]
                bar = np.nextafter(bar, -np.inf) if bar > 0 else -1.0
            answers.append(answer)
        assert repr(answers[0]) == repr(answers[1])
        n_found += answers[0][0] >= 0.0
    assert n_found > 20


sums_squares_of = numba.njit(lambda limits, node: sums_squares(limits, node))


def test_the_heaviest_node_whose_squares_are_exact() -> None:
    """Two classes, cut in the middle, have the largest sum of squares; one more unit of weight and floats might round."""
    half = EXACT_WEIGHT // 2
    keys = np.arange(4, dtype=np.uint64) << np.uint64(32) | np.arange(4, dtype=np.uint64)
    a, b = np.array([0, 0, 2, 2]), np.array([half - 1, 1, 2, EXACT_WEIGHT - half - 2])
    node = np.array([half, 0, EXACT_WEIGHT - half])
    limits = Limits(GINI, 3, False, 0.0, 1.0, 1, 0, -np.inf)
    answers = []
    for plain in (True, False):
        best, best_left = np.zeros(6, np.int64), np.zeros(3, np.int64)
        answers.append((_classes(limits, keys, 0, 4, a, b, 0, node, -1.0, best, best_left, make_stretch(), plain), best[:3].tolist()))
    assert answers[0] == answers[1]
    assert answers[0][1] == [1, 2, 0]
    assert 2 * half * half * (EXACT_WEIGHT - half) ** 2 * 4 // 4 < 2**53
    assert sums_squares_of(limits, node)
    assert not sums_squares_of(limits, node + np.array([0, 1, 0]))
    assert not sums_squares_of(limits._replace(criterion=ENTROPY), node)
