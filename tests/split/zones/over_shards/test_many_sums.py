"""Elements of many numbers, against rows added up one by one, and bounds on what several targets add to scores, against all splits."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.parts import class_term, most_in_box, score_of_terms


def draw_amounts(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    match kind:
        case "near the limit":
            return rng.integers(-(2**61) // n, 2**61 // n, n)
        case "heavy-tailed":
            return np.rint(rng.normal(size=n) * np.exp(rng.normal(0, 8, n))).astype(np.int64)
        case "all the same":
            return np.full(n, 12_345)
    return rng.integers(-1000, 1000, n)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("criterion", ["squared_error", "poisson"])
@pytest.mark.parametrize("kind", ["small", "near the limit", "heavy-tailed", "all the same"])
def test_no_split_inside_a_part_scores_above_its_bound(kind: str, criterion: str) -> None:
    rng, value = np.random.default_rng(3), criterion_named(criterion).for_targets()
    n_finite = 0
    for _ in range(60):
        n = int(rng.integers(3, 40))
        amounts, weights = draw_amounts(kind, n, rng), rng.integers(1, 2 ** int(rng.integers(1, 20)), n)
        if criterion == "poisson":
            amounts = np.abs(amounts)
        first, last = sorted(rng.integers(0, n + 1, 2).tolist())
        own, whole, all_weights = amounts[first:last], int(amounts.sum()), int(weights.sum())
        start, inside, size = float(amounts[:first].sum()), float(own.sum()), float(np.abs(own).sum())
        light, heavy = int(weights[:first].sum()), int(weights[:last].sum())
        corners = float(light), float(all_weights - light), float(heavy), float(all_weights - heavy)
        bound = most_in_box(value, start - (size - inside) / 2, start + (size + inside) / 2, float(whole), corners)
        n_finite += bool(np.isfinite(bound))
        for end in range(max(first, 1), min(last, n - 1) + 1):
            left, h = int(amounts[:end].sum()), float(weights[:end].sum())
            term = class_term(value, left, whole - left, h, all_weights - h)
            score = score_of_terms(value, term, h, all_weights - h, float(all_weights), 1)
            assert score < 0.0 or score <= bound
    assert n_finite > 20
