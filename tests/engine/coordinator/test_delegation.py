"""Small nodes that are delegated: how many exchanges they take, who grows them, and that batches leave no trace."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from dtrees.engine.coordinator import delegation as delegating
from dtrees.engine.plan.plans import ForestPlan, ForestResult
from dtrees.engine.run.lasting import grow_forest_on_shards
from dtrees.engine.run.local_executor import grow_forest
from dtrees.split.table.columns import presort
from tests.engine.shards import ShardedExecutor, all_equal, called, rules, wild_table, wild_target

N = 500
TABLE = wild_table(N, 4)
P = len(TABLE)
SPREAD = [(0, 2), (1, 4, 5), (3, 6)]


def plan_of(criterion: str = "squared_error", n_classes: int = 0, **changes: Any) -> ForestPlan:
    return ForestPlan(rules(criterion, P, **changes), seed=3, n_classes=n_classes, n_draws=N, out_of_bag=True)


def grown(plan: ForestPlan, spread: list[Any] = SPREAD, table: list[Any] = TABLE) -> tuple[ForestResult, ShardedExecutor]:
    target = wild_target(TABLE, plan.n_classes, 4)
    executor = ShardedExecutor(table, target, None, spread)
    found = grow_forest_on_shards(executor, plan, 0, 4, 2)
    wanted = grow_forest(presort(table), target, None, plan, 0, 4, 1)
    assert all_equal(found.trees, wanted.trees)
    assert found.oob_sum is not None
    assert wanted.oob_sum is not None
    assert np.array_equal(found.oob_sum, wanted.oob_sum)
    assert np.array_equal(found.oob_count, wanted.oob_count)
    return found, executor


def test_small_nodes_are_shared_out() -> None:
    found, executor = grown(plan_of())
    borrowed = called(executor, "grow_delegated")
    assert {shard for shard, _ in borrowed} == {0, 1, 2}
    n_nodes = [sum(nodes.shape[0] for shard, (nodes, _) in borrowed if shard == i) for i in range(3)]
    assert max(n_nodes) - min(n_nodes) <= 4  # each tree's are dealt out, from another shard on
    assert all(len(shared) == 2 for _, (_, shared) in borrowed)
    assert all(tree.n_node_samples.min() < 4 for tree in found.trees)
    depth = max(int(np.log2(tree.node_count)) for tree in found.trees)
    assert len(called(executor, "advance")) < 4 * 3 * 2 * depth


@pytest.mark.parametrize("cells", [1, 2 * P * 30, 2 * P * 100])
def test_batches_leave_no_trace(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegating, "SHARED_CELLS", cells)
    _, executor = grown(plan_of(min_samples_leaf=2))
    shared = [sum(group.shape[0] for group in nodes) for _, (nodes,) in called(executor, "share_rows")]
    assert not shared if cells == 1 else len(shared) > 8


@pytest.mark.slow  # kernels of their own
def test_medians_are_measured_by_one_shard() -> None:
    _, executor = grown(plan_of("absolute_error"))
    by_tree = [shard for shard, _ in called(executor, "measure_nodes")]
    assert sorted(by_tree) == [0, 0, 1, 2]
    assert {shard for shard, _ in called(executor, "grow_delegated")} == {0, 1, 2}


@pytest.mark.parametrize("changes", [{}, pytest.param({"random_splits": True, "max_features": 2}, marks=pytest.mark.thorough)])
def test_sets_of_categories(changes: dict[str, Any]) -> None:
    """Those of delegated nodes are told by the shards that grew these, those above by the shards that have the columns."""
    random = np.random.default_rng(0)
    categories = [np.where(random.random(N) < 0.1, np.nan, random.integers(0, n, N)) for n in (4, 12, 60, 200)]
    limits = {"categorical": (3, 4, 5, 6), "cat_smooth": 1.0, "min_samples_category": (1, 1, 2, 2), "max_cat_threshold": (9,) * 4}
    found, executor = grown(plan_of(**limits, **changes), table=[*TABLE[:3], *categories])
    assert all(tree.categories.node.shape[0] > 20 for tree in found.trees)
    assert called(executor, "grow_delegated")
    told = sum(splits.node.shape[0] for _, (splits,) in called(executor, "find_sets"))
    assert 0 < told < sum(tree.categories.node.shape[0] for tree in found.trees) // 2


def test_one_shard_borrows_from_nobody() -> None:
    _, executor = grown(plan_of(), [range(P)])
    assert not called(executor, "share_rows")
    assert called(executor, "grow_delegated")


def test_too_many_columns_are_not_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegating, "DELEGATED_COLUMNS", 2)
    assert not called(grown(plan_of())[1], "grow_delegated")
    assert not called(grown(dataclasses.replace(plan_of(max_leaf_nodes=30)))[1], "grow_delegated")
