"""Random thresholds over shards of rows: byte for byte the trees of one process, of what each shard says of the ends of columns alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.exchange import Step
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.split.table.mmap_arrays import on_disk
from tests.engine.rows.forests.test_forests_by_rows import CASES, OTHERS, assert_same, forest_plan, grow_here, grow_spread
from tests.engine.rows.test_adversarial_tables import COLUMNS, THIRDS, N, table_of
from tests.engine.rows.test_categories_by_rows import CATEGORY_RULES, fit
from tests.engine.rows.test_rows_fit import Pickling, draw_table, draw_weight, spread
from tests.engine.rows.test_rows_on_disk import read_little_at_a_time
from tests.engine.shards import wild_table, wild_target, wild_weight
from tests.examples import THOROUGH, examples
from tests.slow import one_of_each, thorough_for

#: Rows of nodes that are sent to one shard: none, some, all.
SENT_ROWS = [0, 30, 10_000]
#: Beside random thresholds, what has no other kernels is enough: they are drawn whatever scores the splits.
RARE = OTHERS | {name for name, (criterion, *_) in CASES.items() if criterion == "entropy"} | {"three classes, few columns a path"}


def send(patch: pytest.MonkeyPatch, sent_rows: int) -> None:
    patch.setattr(rows_tree, "SENT_ROWS", 0)
    patch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: sent_rows)


def random_plan(case: str, n_columns: int, rule_changes: Any = None) -> Any:
    criterion, of_case, changes, _ = CASES[case]
    return forest_plan(criterion, n_columns, {**of_case, **(rule_changes or {}), "random_splits": True}, **changes)


def target_for(plan: Any, table: Any) -> NDArray[Any]:
    y = wild_target(table, plan.n_classes, 4)
    return np.maximum(np.round(y), 0.0) if plan.rules.criterion == "poisson" else y


def test_a_forest_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick one, with nodes of all shards and of one."""
    send(monkeypatch, 40)
    n = 300
    table = wild_table(n, 4)
    plan = random_plan("forest", len(table))
    y = target_for(plan, table)
    assert_same(grow_here(table, plan, y, None), grow_spread(table, plan, y, None, spread(n, 3, [20, 150], range(3))))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first ones compile
@pytest.mark.parametrize(("case", "sent_rows"), one_of_each(thorough_for(RARE, CASES), SENT_ROWS, others=pytest.mark.thorough))
def test_trees_are_those_of_one_process(case: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, sent_rows)
    n = 700
    table = wild_table(n, 4)
    plan = random_plan(case, len(table))
    y, weight = target_for(plan, table), wild_weight(n, 4) if CASES[case][3] else None
    one = grow_here(table, plan, y, weight)
    assert all(tree.node_count > 3 for tree in one.trees)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (3, [n - 1], 2), (5, [1, 2, n // 2, n - 1], 1)):
        assert_same(one, grow_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads=n_threads))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_features", [1, len(COLUMNS)])
def test_tables_that_are_hard(dtype: Any, max_features: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One value, one shard with all extremes, neighbouring numbers, nothing but missing values, infinite ones."""
    send(monkeypatch, 10)
    table = table_of([*COLUMNS], dtype)
    infinite = table[3].copy()
    infinite[::7], infinite[1::9] = np.inf, -np.inf
    table.append(infinite)
    y = np.nan_to_num(table[2]).astype(float) + np.round(np.nan_to_num(table[5])) + np.random.default_rng(0).normal(size=N)
    plan = random_plan("tree", len(table), {"max_features": max_features})
    one = grow_here(table, plan, y, None)
    assert_same(one, grow_spread(table, plan, y, None, THIRDS))
    assert_same(one, grow_spread(table, plan, y, None, [*THIRDS[::-1], [], []], n_threads=2))


@pytest.mark.slow
def test_shards_of_one_row_each(monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, 2)
    n = 25
    table = wild_table(n, 4)
    plan = random_plan("tree", len(table), {"max_features": 2})
    y = target_for(plan, table)
    cuts = [[(i, i + 1)] for i in range(n)]
    assert_same(grow_here(table, plan, y, None), grow_spread(table, plan, y, None, cuts))


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_table_and_partition(data: st.DataObject) -> None:
    table, rng = draw_table(data, 5)
    n = len(table[0])
    y = np.nan_to_num(table[0].astype(float)) * 2 + data.draw(st.sampled_from([0.0, 1.0, 1e6])) * rng.normal(size=n)
    criteria = [("squared_error", 0), ("gini", 2), ("gini", 3), ("entropy", 4)]
    criterion, n_classes = data.draw(st.sampled_from(criteria if THOROUGH else criteria[:3]))
    if n_classes:
        y = np.digitize(y, np.array([0.0, 0.5, 1.0][: n_classes - 1])).astype(np.int64)
    elif data.draw(st.booleans()):
        y = np.round(y)
    weight = draw_weight(data, rng, n)
    changes = {
        "random_splits": True,
        "max_depth": data.draw(st.sampled_from([None, None, 4])),
        "min_samples_leaf": data.draw(st.sampled_from([1, 4])),
        "max_features": data.draw(st.sampled_from([1, len(table)])),
        "max_leaf_nodes": data.draw(st.sampled_from([None, None, 6])),
    }
    n_draws = data.draw(st.sampled_from([None, max(1, n // 2), n]))
    plan = forest_plan(criterion, len(table), changes, n_draws=n_draws, out_of_bag=n_draws is not None, n_classes=n_classes)
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    owners = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    cuts = spread(n, data.draw(st.integers(1, 5)), bounds, owners)
    with pytest.MonkeyPatch.context() as patch:
        send(patch, data.draw(st.sampled_from([0, 8, 100])))
        assert_same(grow_here(table, plan, y, weight), grow_spread(table, plan, y, weight, cuts))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles
@pytest.mark.parametrize(
    ("criterion", "n_classes", "changes", "weighted", "sent_rows"),
    one_of_each(
        [
            ("squared_error", 0, {}, False),
            ("gini", 2, {"max_features": 2, "min_samples_category": (1, 2, 9)}, True),
            pytest.param("gini", 3, {"max_cat_threshold": (5000, 2, 1), "max_leaf_nodes": 20}, False, marks=pytest.mark.thorough),
            pytest.param("entropy", 4, {"max_features": 1, "interactions": ((0, 3), (1, 2, 4))}, True, marks=pytest.mark.thorough),
        ],
        SENT_ROWS,
        others=pytest.mark.thorough,
    ),
)
def test_sets_of_categories(
    criterion: str, n_classes: int, changes: Any, weighted: bool, sent_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(monkeypatch, sent_rows)
    n = 900
    table, boosting, y, weight = fit(["some", "with gaps", "nearly all distinct"], n, weighted)
    rule_changes = {name: getattr(boosting.rules, name) for name in CATEGORY_RULES} | changes | {"random_splits": True}
    plan = forest_plan(criterion, len(table), rule_changes, n_classes=n_classes)
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)).astype(np.int64)
    one = grow_here(table, plan, y, weight)
    assert any(tree.categories.node.shape[0] for tree in one.trees)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1)):
        assert_same(one, grow_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads=n_threads))


@pytest.mark.slow
def test_a_node_of_one_target_is_a_leaf_though_columns_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large nodes, all rows of which are 0, on all shards or but for one row of one."""
    send(monkeypatch, 5)
    n = 600
    table = wild_table(n, 4)
    y = np.where(table[0] > 1.0, table[5].astype(float), 0.0)
    y[0] = y[n - 1] = -7.0
    plan = random_plan("tree", len(table))
    assert_same(grow_here(table, plan, y, None), grow_spread(table, plan, y, None, spread(n, 3, [1, 300], range(3))))


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False])
def test_cells_on_disk(tmp_path: Path, keyed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, 30)
    read_little_at_a_time(monkeypatch)
    n = 700
    table = [column.astype(np.float32) if keyed else column for column in wild_table(n, 4)]
    plan = random_plan("forest", len(table))
    y = target_for(plan, wild_table(n, 4))
    executor = LocalRowsExecutor.of(table, y, None, spread(n, 3, [100, 101, 400], [0, 1, 2, 0]), 2, partial(on_disk, str(tmp_path)))
    try:
        found = grow_forest_on_rows(executor, plan, 0, 2)
        assert [shard._columns.is_keyed for shard in executor.shards] == [keyed] * 3
    finally:
        executor.close()
    assert_same(grow_here(table, plan, y, None), found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "nth"),
    one_of_each(
        ["drawn", "level", "further columns", "means", "ends", "before ends", "sides", "before sides"],
        [1, 3],
        others=pytest.mark.thorough,
    ),
)
def test_a_shard_lost_anywhere(place: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, 40)
    n = 400
    table = wild_table(n, 4)
    if place == "further columns":  # there are nodes in which the column drawn is constant
        table += [np.ones(n)] * 10
    plan = random_plan("forest", len(table), {"max_features": 1})
    y, cuts = target_for(plan, table), spread(n, 3, [10, 200], range(3))
    one = grow_here(table, plan, y, None, 4)
    executor = Pickling.of(table, y, None, cuts)
    executor.lose, executor.nth = place, nth
    executor.make = lambda: LocalRowsExecutor.of(table, y, None, cuts)
    got = grow_forest_on_rows(executor, plan, 0, 4)
    executor.close()
    assert executor.n_lost == 1
    assert_same(one, got)


class Weighing(LocalRowsExecutor):
    """Notes how many bytes the parcels of each step have at most."""

    def hand_over(self, shard: int, step: Step) -> None:
        for parcel in step.parcels.values():
            self.sizes[step.name] = max(self.sizes.get(step.name, 0), sum(getattr(array, "nbytes", 0) for array in parcel.arrays))
        super().hand_over(shard, step)


def test_what_is_sent_grows_with_nodes_and_columns_not_with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No zones are summed, and no rows are sent."""
    send(monkeypatch, 1)
    sizes = []
    for n in (500, 5000):
        table = [np.random.default_rng(i).normal(size=n) for i in range(4)]
        plan = random_plan("tree of classes", len(table), {"max_depth": 2})
        executor = Weighing.of(table, (table[0] > 0).astype(np.int64), None, spread(n, 2, [n // 2], range(2)))
        executor.sizes = {}
        grow_forest_on_rows(executor, plan, 0, 1)
        executor.close()
        sizes.append(executor.sizes)
    for one in sizes:
        assert {"ends", "sides"} < one.keys()
        assert one["sums"] <= 24  # of all rows together
        assert not {"bars", "flags", "picked", "apart"} & one.keys()
        assert one["ends"] <= 2 * (4 * 17 + 17)
        assert one["sides"] <= 2 * 2 * 24
