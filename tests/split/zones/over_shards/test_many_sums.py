"""Elements of many numbers, against rows added up one by one, and bounds on what several targets add to scores, against all splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.rows.searcher import make_sums
from dtrees.engine.rows.zone_edges import merge_sketches, own_zone_map, sketch_columns
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.parts import class_term, most_in_box, score_of_terms
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.columns import presort
from dtrees.split.zones.over_shards.node_sums import sum_many
from dtrees.split.zones.sums import lay_out_slots


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


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [0, 5])
def test_sums_of_nodes_by_part(n_classes: int, weighted: bool) -> None:
    rng = np.random.default_rng(5)
    n, n_targets, size_shift = 900, 2, 3
    columns = presort([rng.normal(size=n), np.where(rng.random(n) < 0.3, np.nan, np.round(rng.normal(size=n), 1))])
    edges = merge_sketches([sketch_columns(columns, map)])
    zone_map = own_zone_map(columns, edges, map)
    targets = rng.integers(0, 2, (n, n_targets)) + np.array([0, 2]) if n_classes else rng.integers(-(2**40), 2**40, (n, n_targets))
    rows = rng.permutation(n)[:700].astype(np.uint32)
    h = rng.integers(1, 9, n)[rows] if weighted else np.empty(0, np.int64)
    width = n_classes + weighted if n_classes else 2 * n_targets + 2
    starts, shifts = lay_out_slots(zone_map, width)
    room = int(starts[1, -1])
    sums = make_sums(np.full((1, room), 77), starts, shifts, width, size_shift)
    sums.grains[:] = 1
    tasks = np.array([[100, 600, 0, 0, 2, 1]])
    sum_many(make_queue(), tasks, zone_map, RowPartition(rows, rows.astype(np.int64), h), sums, targets, n_classes)
    wanted: Any = np.zeros((2, room), np.int64)[0]
    for place in range(100, 600):
        row, weight = rows[place], h[place] if weighted else 1
        for j in range(2):
            element = wanted[starts[1, j] + (int(zone_map.part[row, j]) >> int(shifts[1, j])) * width :][:width]
            if n_classes:
                element[targets[row]] += weight
                element[n_classes:] += 1
            else:
                element[:n_targets] += targets[row]
                element[n_targets : n_targets + 2] += [weight, 1]
                element[n_targets + 2 :] += (np.abs(targets[row]) >> size_shift) + 1
    assert sums.slots[0].tolist() == wanted.tolist()
