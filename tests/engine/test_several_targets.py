"""Trees of several targets against those of one target where these must be the same, and large ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from tests.engine.shards import Table, all_equal, grow_here, grow_sharded, rules
from tests.engine.test_naive_trees import COMPILED


def large(criterion: str, n: int = 6000) -> tuple[Table, NDArray[Any]]:
    """A table with ties and missing values, larger than a block, and a target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).round(2)
    X[:, 3] = (X[:, 3] > 1) * X[:, 3]
    X[rng.random((n, 5)) < 0.05] = np.nan
    y = np.nan_to_num(X[:, 0] * 2 + X[:, 1] ** 2) + rng.normal(size=n)
    if criterion == "poisson":
        y = np.abs(y)
    return list(X.T), (np.digitize(y, [0.0, 1.5]) if criterion in ("gini", "entropy") else y)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("n_draws", [None, 4000])
@pytest.mark.parametrize(("criterion", "random_splits"), sorted(COMPILED))
def test_copies_of_one_target_give_its_trees(criterion: str, n_draws: int | None, random_splits: bool) -> None:
    table, y = large(criterion)
    n_classes = 3 if criterion in ("gini", "entropy") else 0
    some = rules(criterion, 5, max_depth=9, max_features=3, random_splits=random_splits)
    plan = ForestPlan(some, 5, n_classes=n_classes, n_draws=n_draws)
    one = grow_here(table, y, None, plan, n_trees=2)
    # Two copies: sums of two equal floats are exact, so that no tie is made or broken.
    twice = dataclasses.replace(plan, n_classes=2 * n_classes, targets=(max(n_classes, 1),) * 2)
    two = grow_here(table, np.asfortranarray(np.column_stack([y, y])), None, twice, n_trees=2)
    for tree, same in zip(one, two, strict=True):
        assert tree.node_count > 100
        for name in ("feature", "threshold", "children_right", "missing_go_to_left", "n_node_samples"):
            assert np.array_equal(getattr(tree, name), getattr(same, name))
        assert np.allclose(np.hstack([tree.value, tree.value]), same.value, rtol=1e-12, atol=1e-12)
        assert np.allclose(tree.impurity, same.impurity, atol=1e-12)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize(("criterion", "n_classes"), [("squared_error", 0), ("gini", 2), ("gini", 3)])
@pytest.mark.parametrize("max_features", [5, 2])
def test_sets_by_copies_of_one_target_are_its_sets(criterion: str, n_classes: int, max_features: int) -> None:
    table, y = large(criterion)
    levels = np.random.default_rng(3).integers(0, 60, (2, len(y))).astype(np.float64)
    levels[0, ::7] = np.nan
    effect = np.random.default_rng(4).normal(size=60)[levels[1].astype(int)] > 0.5
    y = np.minimum(y, 1) ^ effect if n_classes == 2 else np.where(effect, y + 1, y) % 3 if n_classes else y + effect
    table = [*table[:3], *levels]
    some = dataclasses.replace(
        rules(criterion, 5, max_depth=9, max_features=max_features), categorical=(3, 4), cat_smooth=10.0,
        min_samples_category=(3, 3), max_cat_threshold=(32, 32),
    )  # fmt: skip
    plan = ForestPlan(some, 5, n_classes=n_classes, n_draws=4000)
    one = grow_here(table, y, None, plan, n_trees=2)
    twice = dataclasses.replace(plan, n_classes=2 * n_classes, targets=(max(n_classes, 1),) * 2)
    two = grow_here(table, np.asfortranarray(np.column_stack([y, y])), None, twice, n_trees=2)
    for tree, same in zip(one, two, strict=True):
        assert len(tree.categories.node) > 20
        for name in ("feature", "children_right", "missing_go_to_left", "n_node_samples"):
            assert np.array_equal(getattr(tree, name), getattr(same, name))
        assert np.array_equal(tree.categories.node, same.categories.node)
        assert np.array_equal(tree.categories.words, same.categories.words)


@pytest.mark.slow  # kernels of their own
@pytest.mark.parametrize("criterion", ["squared_error", "gini"])
@pytest.mark.parametrize("weighted", [False, True])
def test_large_tables_level_by_level(criterion: str, weighted: bool) -> None:
    """Large nodes, blocks and tiny nodes find what a search node by node does."""
    table, y = large(criterion)
    by_class = criterion == "gini"
    other = np.nan_to_num(table[2]).round(1)
    target = np.column_stack([y, np.digitize(other, [0.0]) if by_class else other, y[::-1]])
    classes = (3, 2, 3) if by_class else (1, 1, 1)
    weight = np.random.default_rng(1).random(len(y)) if weighted else None
    plan = ForestPlan(rules(criterion, 5, max_features=4), 7, n_classes=sum(classes) * by_class, targets=classes)
    here = grow_here(table, np.asfortranarray(target), weight, plan, n_trees=1)
    assert here[0].node_count > 3000
    assert all_equal(grow_sharded(table, np.asfortranarray(target), weight, plan, 1, [[0, 3], [1, 2, 4]])[0], here)
