"""Independent trees: a tree depends only on its number, the plan and the table; and kernels that are compiled in advance."""

import itertools
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dtrees
from dtrees.engine.plan.plans import ForestPlan, ForestResult, Progress
from dtrees.engine.run.local_executor import grow_forest
from dtrees.engine.shard import node_search
from dtrees.engine.shard import tree_state as one_tree
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.split.grow.parallel_subtree import grow_together
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import ZoneMap, map_zones
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from tests.engine.shards import all_equal, rules, wild_table, wild_target, wild_weight

# --- independent trees: a tree depends only on its number, the plan and the table ---


N = 400
TABLE = wild_table(N, 8)
P = len(TABLE)
COLUMNS = presort(TABLE)
X = np.stack([column.astype(np.float64) for column in TABLE], axis=1)
PLAN = ForestPlan(rules("squared_error", P, max_features=3), seed=4, n_draws=N, out_of_bag=True)
Y = wild_target(TABLE, 0, 8)


def grow(first: int, last: int, n_threads: int = 1, plan: ForestPlan = PLAN) -> ForestResult:
    return grow_forest(COLUMNS, Y, None, plan, first, last, n_threads)


def test_batches_and_threads_change_nothing() -> None:
    whole = grow(0, 9)
    assert len({tree.threshold.tobytes() for tree in whole.trees}) == 9
    for bounds, n_threads in (((0, 4, 9), 1), ((0, 1, 7, 9), 4), ((0, 9), 3), ((0, 9), 16)):
        parts = [grow(i, j, n_threads) for i, j in itertools.pairwise(bounds)]
        assert all_equal([tree for part in parts for tree in part.trees], whole.trees)
        assert {part.oob_exponent for part in parts} == {whole.oob_exponent}
        assert np.array_equal(sum(part.oob_sum for part in parts), whole.oob_sum)
        assert np.array_equal(sum(part.oob_count for part in parts), whole.oob_count)


def test_seeds_make_other_trees() -> None:
    other = ForestPlan(PLAN.rules, seed=5, n_draws=N)
    assert not any(a.equals(b) for a, b in zip(grow(0, 3, plan=other).trees, grow(0, 3).trees, strict=True))


@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_out_of_bag_sums_are_those_of_the_predictions(n_classes: int) -> None:
    criterion = "gini" if n_classes else "squared_error"
    plan = ForestPlan(rules(criterion, P), seed=4, n_classes=n_classes, n_draws=N, out_of_bag=True)
    y, weight = wild_target(TABLE, n_classes, 8), wild_weight(N, 8)
    result = grow_forest(COLUMNS, y, weight, plan, 0, 8, 2)
    target = ForestTarget.of_table(plan, y, weight)
    expected, count = np.zeros((N, max(n_classes, 1))), np.zeros(N)
    for t, tree in enumerate(result.trees):
        outside = ~target.start(t, 0).in_sample
        expected[outside] += sum_values(pack([tree]), X)[outside]
        count += outside
        assert tree.n_node_samples[0] == N - outside.sum()
    assert result.oob_count.tolist() == count.tolist()
    assert np.ldexp(result.oob_sum.astype(float), -result.oob_exponent) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_classes", [0, 3])
def test_the_size_of_blocks_changes_nothing(n_classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor whether there are blocks: each tree has nodes that are too large for a small block."""
    plan = replace(PLAN, rules=rules("gini" if n_classes else "squared_error", P, max_features=3), n_classes=n_classes)
    y = wild_target(TABLE, n_classes, 8)
    results = []
    for most in (0, 2, 10, 60, N):
        monkeypatch.setattr(one_tree, "block_rows", lambda *_, most=most: most)
        results.append(grow_forest(COLUMNS, y, None, plan, 0, 4, 1))
    for result in results[:-1]:
        assert all_equal(result.trees, results[-1].trees)
        assert np.array_equal(result.oob_sum, results[-1].oob_sum)


def test_callbacks() -> None:
    seen: list[Progress] = []
    assert len(grow_forest(COLUMNS, Y, None, PLAN, 3, 9, 3, seen.append).trees) == 6
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5, 6]
    assert {progress.total for progress in seen} == {6}
    stopped = grow_forest(COLUMNS, Y, None, PLAN, 0, 50, 1, lambda progress: progress.done == 4)
    assert all_equal(stopped.trees, grow(0, 4).trees)
    some = grow_forest(COLUMNS, Y, None, PLAN, 0, 50, 3, lambda progress: progress.done >= 4)
    assert 4 <= len(some.trees) < 50
    assert some.oob_count.sum() == sum(N - tree.n_node_samples[0] for tree in some.trees)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_in_a_callback_ends_the_fit_and_its_threads(n_threads: int) -> None:
    before = set(threading.enumerate())

    def fail(progress: Progress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        grow_forest(COLUMNS, Y, None, PLAN, 0, 20, n_threads, fail)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("dtrees")]


def test_one_row() -> None:
    plan = ForestPlan(rules("gini", 1), seed=0, n_classes=2)
    (tree,) = grow_forest(presort([np.array([np.nan])]), np.array([1]), None, plan, 0, 1, 4).trees
    assert tree.node_count == 1
    assert tree.value.tolist() == [[0.0, 1.0]]


def test_threads_share_one_zone_map(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def map_once(*arguments: Any, **named: Any) -> ZoneMap:
        made.append(arguments)
        return map_zones(*arguments, **named)

    monkeypatch.setattr(node_search, "map_zones", map_once)
    rng = np.random.default_rng(0)
    table = [rng.normal(size=9000) for _ in range(2)]
    plan = ForestPlan(rules("squared_error", 2, max_depth=4), seed=0, n_draws=9000)
    grown = [grow_forest(presort(table), table[0] + table[1], None, plan, 0, 4, n_threads) for n_threads in (1, 3)]
    assert len(made) == 2
    assert all_equal(grown[0].trees, grown[1].trees)


# --- versions of kernels ---


@pytest.mark.parametrize(
    "model", [dtrees.GradientBoostingRegressor(n_estimators=2), dtrees.RandomForestRegressor(2), dtrees.ExtraTreesRegressor(2)]
)
def test_columns_of_both_precisions_go_on_with_the_same_kernels(model: Any) -> None:
    X = np.random.default_rng(0).normal(size=(500, 3))
    y = X[:, 0] + X[:, 1] ** 2
    model.fit(X, y)
    before = len(grow_together.overloads)
    model.fit(X.astype(np.float32), y)
    assert len(grow_together.overloads) == before
