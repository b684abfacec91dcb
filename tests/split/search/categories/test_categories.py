"""Splits by sets of categories: the order of categories at both ends, the split found, and the sides that follow, against Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.node.limits import BestThreshold, Categories, SplitLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import CONSTANT, NO_SPLIT, SPLIT, NodeColumn
from dtrees.split.search.categories import choose_sides_of_node, n_categories_left, search_categories
from dtrees.split.search.category_orders import make_groups, order_ends
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort


@kernel
def _order_ends(groups: Any, m: Any, most: Any) -> None:
    order_ends(groups, m, most)


@kernel
def _search(codes: Any, values: Any, partition: Any, n: Any, sums: Any, limits: Any, scratch: Any) -> Any:
    zero = np.int64(0)
    return search_categories(zero, NodeColumn(codes, values, partition, zero, n, sums, np.uint64(0)), limits, -1.0, scratch)


@kernel
def _choose_sides(codes: Any, values: Any, partition: Any, n: Any, sums: Any, limits: Any, number: Any, scratch: Any, side: Any) -> None:
    zero = np.int64(0)
    choose_sides_of_node(zero, NodeColumn(codes, values, partition, zero, n, sums, np.uint64(0)), limits, number, scratch, side)


KEYS = {
    "noise": lambda random, m: random.normal(size=m),
    "ties": lambda random, m: random.integers(0, 5, m) / 3.0,
    "one key": lambda random, m: np.zeros(m),
    "far out": lambda random, m: np.where(random.random(m) < 0.01, 1e300, random.normal(size=m)),
    "infinite": lambda random, m: np.where(random.random(m) < 0.1, -np.inf, random.normal(size=m)),
    "subnormal": lambda random, m: random.integers(0, 9, m) * 5e-324,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(("m", "most"), [(1, 0), (2, 1), (9, 1), (60, 9), (700, 3), (700, 40), (700, 350), (3000, 100)])
def test_both_ends_are_in_order(kind: str, m: int, most: int) -> None:
    groups = make_groups(m, 2)
    groups.key[:m] = KEYS[kind](np.random.default_rng(m), m)
    _order_ends(groups, np.int64(m), np.int64(most))
    wanted = np.argsort(groups.key[:m], kind="stable")
    assert groups.order[0, :most].tolist() == wanted[:most].tolist()
    assert groups.order[0, m - most : m].tolist() == wanted[m - most :].tolist()


def naive_search(task: dict[str, Any], criterion: str) -> tuple[float, set[int], set[int]] | None:
    """Return the score of the best split, the codes that go left, and those that may be on either side, None if there is no split."""
    codes, n_distinct, target, weight = task["codes"], task["n_distinct"], task["target"], task["weight"]
    n_classes = 0 if criterion != "gini" else task["n_classes"]
    rows = {code: np.flatnonzero(codes == code) for code in np.unique(codes).tolist()}
    if len(rows) < 2:
        return None
    groups = [(code, some) for code, some in rows.items() if len(some) >= task["least"]]
    rare = [some for some in rows.values() if len(some) < task["least"]]
    if rare:
        groups.append((-1, np.concatenate(rare)))

    def mean(some: Any, k: int) -> float:
        values = (target[some] == k).astype(float) if n_classes else target[some]
        every = (target == k).astype(float) if n_classes else target
        h, centre = float(weight[some].sum()), float((every * weight).sum()) / float(weight.sum())
        total = float((values * weight[some]).sum()) - centre * h
        return total / (h + task["smooth"]) if h + task["smooth"] > 0 else 0.0

    def score(left: Any, right: Any) -> float:
        a, b = float(weight[left].sum()), float(weight[right].sum())
        if not n_classes:
            apart = float((target[left] * weight[left]).sum()) * b - float((target[right] * weight[right]).sum()) * a
            return apart * apart / (a * b)
        return sum(
            (float(weight[left][target[left] == k].sum()) * b - float(weight[right][target[right] == k].sum()) * a) ** 2 / (a * b)
            for k in range(n_classes)
        )

    best = None
    for k in range(max(1, n_classes)):
        keys = [mean(some, k) for _, some in groups]
        order = sorted(range(len(groups)), key=lambda i: keys[i])
        for cut in range(1, len(groups)):
            if min(cut, len(groups) - cut) > task["most"]:
                continue
            left, right = ([groups[i] for i in some] for some in (order[:cut], order[cut:]))
            mine = score(np.concatenate([some for _, some in left]), np.concatenate([some for _, some in right]))
            if best is None or mine > best[0] * (1 + 1e-12):
                best = mine, left, right
    if best is None or best[0] <= 0.0:
        return None
    worth, left, right = best
    n_left = sum(len(some) for _, some in left)
    turned = any(code == -1 for code, _ in left) if rare else 2 * n_left > len(codes)
    return worth, {code for code, _ in (right if turned else left)}, {n_distinct}


@pytest.mark.slow  # compiles the search
@given(st.integers(0, 10**6), st.sampled_from(["squared_error", "gini"]), st.sampled_from([2, 5, 30, 400]), st.sampled_from([1, 3]))
def test_the_split_that_is_found(seed: int, criterion: str, n_levels: int, least: int) -> None:
    """Few and many categories, ties, missing values, weights, categories of few rows: the best split of the order, and its sides."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 600))
    numbers = random.integers(0, n_levels, n).astype(np.float64)
    if random.random() < 0.5:
        numbers[random.random(n) < 0.2] = np.nan
    columns = presort([numbers])
    n_distinct = int(columns.offsets[1])
    n_classes = 3
    task: dict[str, Any] = {
        "codes": columns.codes[0].astype(np.int64),
        "n_distinct": n_distinct,
        "target": random.integers(0, n_classes, n) if criterion == "gini" else random.integers(-9, 10, n),
        "weight": random.integers(1, 4, n) if random.random() < 0.5 else np.ones(n, np.int64),
        "n_classes": n_classes,
        "least": least,
        "most": int(random.choice([1, 4, 1000])),
        "smooth": float(random.choice([0.0, 2.5])),
    }
    a = task["target"].astype(np.int64)
    b = task["weight"].astype(np.int64)
    if criterion != "gini":
        a = a * b
    sums = np.bincount(task["target"], b, n_classes).astype(np.int64) if criterion == "gini" else np.array([a.sum(), b.sum()])
    categories = Categories(True, np.ones(1, np.bool_), task["smooth"], np.array([task["least"]]), np.array([task["most"]]))
    value = criterion_named(criterion).for_kernels(n_classes if criterion == "gini" else 0, 0.0)
    limits = SplitLimits(value, BestThreshold(), 0.0, 1, 0, -math.inf, categories)
    partition = RowPartition(np.arange(n, dtype=np.uint32), a, b)
    scratch = make_scratch(n, n_distinct, n_classes if criterion == "gini" else 0, categories=True)
    codes, values = columns.codes[0], columns.words
    found = _search(codes, values, partition, np.int64(n), sums, limits, scratch)
    wanted = naive_search(task, criterion)
    if wanted is None:
        assert found[0] in ((CONSTANT,) if len(np.unique(task["codes"])) < 2 else (NO_SPLIT, SPLIT))
        return
    assert found[0] == SPLIT
    record = scratch.found.record[0]
    side = np.zeros(n_distinct + 1, np.uint8)
    number = float(record["threshold"])
    _choose_sides(codes, values, partition, np.int64(n), sums, limits, number, scratch, side)
    left = side[task["codes"]].astype(bool)
    mine = set(np.flatnonzero(side).tolist())
    assert record["n_left"] == left.sum()
    assert n_categories_left(number) == len(mine)
    assert bool(record["missing_left"]) == bool(side[n_distinct])
    kept = np.bincount(task["codes"], minlength=n_distinct + 1)
    assert all(kept[code] >= least for code in mine)  # what is not listed goes right
    if criterion == "gini":
        assert scratch.found.left.tolist() == np.bincount(task["target"][left], b[left], n_classes).astype(int).tolist()
    else:
        assert scratch.found.left.tolist() == [a[left].sum(), b[left].sum()]
        h, other = float(b[left].sum()), float(b[~left].sum())
        apart = float(a[left].sum()) * other - float(a[~left].sum()) * h
        assert apart * apart / (h * other) == pytest.approx(wanted[0], rel=1e-9)
