"""Forests of several targets over shards of rows: byte for byte the trees of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.rows import zone_edges
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.engine.rows.searcher import Searcher
from dtrees.split.criteria.criterion import criterion_named
from tests.engine.rows.forests.test_forests_by_rows import assert_same, assert_same_over_shards, grow_here, grow_spread
from tests.engine.rows.forests.test_random_thresholds_by_rows import SENT_ROWS, send
from tests.engine.rows.test_categories_by_rows import CATEGORY_RULES, fit
from tests.engine.rows.test_rows_fit import Pickling, cut_finely, draw_table, draw_weight, spread
from tests.engine.shards import rules, wild_table, wild_target, wild_weight
from tests.examples import examples
from tests.slow import one_of_each, thorough_for

#: Of a criterion and the classes of its targets: changes of rules, and of plans, and whether rows have weights.
CASES: dict[str, tuple[str, tuple[int, ...], dict[str, Any], dict[str, Any], bool]] = {
    "tree": ("squared_error", (1, 1, 1), {}, {}, False),
    "weighted tree": ("squared_error", (1, 1), {"min_weight_fraction_leaf": 0.02}, {}, True),
    "forest": ("squared_error", (1, 1, 1), {"max_features": 3}, {"n_draws": 700, "out_of_bag": True}, False),
    "weighted forest, best first": ("squared_error", (1, 1, 1), {"max_leaf_nodes": 20}, {"n_draws": 300, "out_of_bag": True}, True),
    "few columns a path, pruned": (
        "squared_error",
        (1, 1),
        {"interactions": ((0, 1, 2), (2, 3, 4, 5, 6)), "most_columns": 2, "ccp_alpha": 0.02, "min_samples_leaf": 3},
        {"n_draws": 500},
        False,
    ),
    "Poisson": ("poisson", (1, 1), {"max_features": 4}, {"n_draws": 700, "out_of_bag": True}, False),
    "weighted, of Poisson": ("poisson", (1, 1), {}, {}, True),
    "tree of classes": ("gini", (2, 3), {}, {}, False),
    "weighted tree of classes": ("entropy", (2, 3, 1), {"max_features": 4}, {}, True),
    "of weighted classes": (
        "gini",
        (3, 1, 4),
        {"max_features": 3},
        {"n_draws": 700, "class_weight": ((1.0, 0.3, 2.0), (1.0,), (1.0, 1.0, 3.0, 0.5)), "out_of_bag": True},
        True,
    ),
    "forest of classes, best first": (
        "gini",
        (2, 2),
        {"max_leaf_nodes": 20, "ccp_alpha": 0.005},
        {"n_draws": 700, "out_of_bag": True},
        False,
    ),
    "classes balanced by tree": (
        "gini",
        (2, 3),
        {"max_features": 3},
        {"n_draws": 512, "balanced_subsample": True, "out_of_bag": True},
        True,
    ),
    "entropy, balanced by tree": ("entropy", (2, 3), {}, {"n_draws": 700, "balanced_subsample": True}, False),
}  # fmt: skip
#: What has kernels of its own, and does nothing that others do not do, or do with one target.
RARE = {"few columns a path, pruned", "Poisson", "weighted tree of classes", "entropy, balanced by tree"}


def plan_of(case: str, n_columns: int, rule_changes: Any = None) -> tuple[ForestPlan, bool]:
    criterion, targets, of_case, changes, weighted = CASES[case]
    n_classes = sum(targets) if criterion_named(criterion).task == "classification" else 0
    some = rules(criterion, n_columns, **{**of_case, **(rule_changes or {})})
    return ForestPlan(some, **{"seed": 9, "n_classes": n_classes, "targets": targets} | changes), weighted


def targets_of(plan: ForestPlan, table: Any) -> NDArray[Any]:
    """Targets of different widths, or numbers of classes; a target's rows lie side by side."""
    n = table[0].shape[0]
    columns = []
    for t, n_classes in enumerate(plan.targets):
        if plan.n_classes:
            columns.append(wild_target(table, n_classes, 4 + t) if n_classes > 1 else np.zeros(n, np.int32))
        else:
            columns.append(wild_target(table, 0, 4 + t) * 10.0 ** (t - 1) + t * table[5])
    y = np.asfortranarray(np.column_stack(columns))
    return np.maximum(np.round(20.0 * y), 0.0) if plan.rules.criterion == "poisson" else y


@pytest.mark.slow  # kernels of their own, of one process and of shards
@pytest.mark.parametrize("case", ["forest", "of weighted classes"])
def test_a_forest(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nodes of all shards and of one."""
    send(monkeypatch, 40)
    n = 300
    table = wild_table(n, 4)
    plan, weighted = plan_of(case, len(table))
    y, weight = targets_of(plan, table), wild_weight(n, 4) if weighted else None
    assert_same(grow_here(table, plan, y, weight), grow_spread(table, plan, y, weight, spread(n, 3, [20, 150], range(3))))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first ones compile
@pytest.mark.parametrize(
    ("case", "sent_rows", "random_splits"),
    one_of_each(thorough_for(RARE, CASES), SENT_ROWS, [False, True], others=pytest.mark.thorough),
)
def test_trees_are_those_of_one_process(case: str, sent_rows: int, random_splits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, sent_rows)
    if sent_rows:
        cut_finely(monkeypatch)
    n = 700
    table = wild_table(n, 4)
    plan, weighted = plan_of(case, len(table), {"random_splits": random_splits})
    y, weight = targets_of(plan, table), wild_weight(n, 4) if weighted else None
    assert_same_over_shards(table, plan, y, weight)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("case", "sent_rows", "random_splits"),
    one_of_each(
        thorough_for(
            {"weighted forest, best first", "of weighted classes"},
            [("tree", 0), ("weighted forest, best first", 100), ("tree of classes", 100), ("of weighted classes", 0)],
        ),
        [False, True],
        others=pytest.mark.thorough,
    ),
)
def test_sets_of_categories(case: str, sent_rows: int, random_splits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, sent_rows)
    n = 600
    table, boosting, first, weight = fit(["some", "with gaps", "few"], n, CASES[case][-1])
    of_categories = {name: getattr(boosting.rules, name) for name in CATEGORY_RULES}
    plan, _ = plan_of(case, len(table), of_categories | {"random_splits": random_splits})
    y = targets_of(plan, [first, *wild_table(n, 4)[1:]])
    one = grow_here(table, plan, y, weight)
    assert any(tree.categories.node.shape[0] for tree in one.trees)
    for n_shards in (1, 3):
        assert_same(one, grow_spread(table, plan, y, weight, spread(n, n_shards, [1, 200, 250], range(5))))


@pytest.mark.slow
@pytest.mark.parametrize("criterion", thorough_for({"entropy"}, ["squared_error", "poisson", "gini", "entropy"]))
def test_parts_of_many_rows_that_may_hold_no_better_split_are_left_out(criterion: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a column that says much, and few others that do; and no split is missed."""
    send(monkeypatch, 20)
    monkeypatch.setattr(zone_edges, "most_zones", lambda n_rows: 32)
    cells, flag = list[tuple[int, int]](), Searcher.flag

    def flag_and_note(searcher: Searcher, bars: Any, drawn: Any, most_bytes: int) -> Any:
        wanted = flag(searcher, bars, drawn, most_bytes)
        cells.append((int(wanted.tasks[:, 3].sum()), int(searcher._message.n_rows.sum()) * searcher._ids.shape[0]))
        return wanted

    monkeypatch.setattr(Searcher, "flag", flag_and_note)
    n, rng = 4_000, np.random.default_rng(1)
    table = [rng.normal(size=n) for _ in range(4)] + [np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))]
    signal = table[0] + np.nan_to_num(table[4]) + rng.normal(size=n) / 3
    y = np.asfortranarray(np.column_stack([signal, signal**2 + rng.normal(size=n) / 3, rng.normal(size=n) / 3 + signal]))
    targets = (1, 1, 1)
    if criterion == "poisson":
        y = np.round(np.exp(np.clip(y, -2, 3)))
    elif criterion != "squared_error":
        targets, y = (3, 2, 3), np.column_stack([np.digitize(y[:, t], np.arange(1 + (t != 1))) for t in range(3)])
    n_classes = sum(targets) if max(targets) > 1 else 0
    for changes in ({}, {"n_draws": n}):
        plan = ForestPlan(rules(criterion, len(table), max_depth=4), seed=9, n_classes=n_classes, targets=targets, **changes)
        assert_same(grow_here(table, plan, y, None), grow_spread(table, plan, y, None, spread(n, 2, [n // 3], range(2))))
    flagged, looked_at = np.sum(cells, axis=0)
    assert 0.001 * looked_at < flagged < 0.3 * looked_at


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_table_and_partition(data: st.DataObject) -> None:
    table, rng = draw_table(data, 4)
    n = len(table[0])
    criterion = data.draw(st.sampled_from(["squared_error", "squared_error", "gini"]))
    first = np.nan_to_num(table[0].astype(float)) * 2 + data.draw(st.sampled_from([0.0, 1.0, 1e6])) * rng.normal(size=n)
    others = {"the same": first, "one value": np.full(n, 0.1), "few": np.arange(n) % 3 * 0.5, "far away": first * 1e-3 + 1e12}
    columns = [first, *(others[data.draw(st.sampled_from(sorted(others)))] for _ in range(data.draw(st.integers(1, 2))))]
    targets, n_classes = (1,) * len(columns), 0
    if criterion == "gini":
        columns = [np.digitize(y, np.array([0.0, 0.5, 1.0][: t + 1])) for t, y in enumerate(columns)]
        targets = tuple(t + 2 for t in range(len(columns)))
        n_classes = sum(targets)
    y, weight = np.asfortranarray(np.column_stack(columns)), draw_weight(data, rng, n)
    changes = {
        "max_depth": data.draw(st.sampled_from([None, 2, 6])),
        "min_samples_leaf": data.draw(st.sampled_from([1, 4])),
        "max_features": data.draw(st.sampled_from([1, len(table), len(table)])),
        "max_leaf_nodes": data.draw(st.sampled_from([None, None, 6])),
        "random_splits": data.draw(st.booleans()),
    }
    n_draws = data.draw(st.sampled_from([None, 1, max(1, n // 2), n, 3 * n]))
    plan = ForestPlan(
        rules(criterion, len(table), **changes), seed=9, n_classes=n_classes, targets=targets, n_draws=n_draws,
        out_of_bag=n_draws is not None,
    )  # fmt: skip
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    cuts = spread(n, data.draw(st.integers(1, 5)), bounds, data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        send(patch, data.draw(st.sampled_from([0, 8, 100])))
        cut_finely(patch)
        assert_same(grow_here(table, plan, y, weight), grow_spread(table, plan, y, weight, cuts))


@pytest.mark.slow
def test_a_node_whose_rows_agree_in_all_targets_is_a_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large nodes, all rows of which agree, on all shards, or but for one row of one in one target."""
    send(monkeypatch, 5)
    n = 600
    table = wild_table(n, 4)
    y = np.asfortranarray(np.column_stack([np.where(table[0] > 1.0, table[5].astype(float), 0.0), np.zeros(n)]))
    y[0, 1] = y[n - 1, 1] = -7.0
    plan = ForestPlan(rules("squared_error", len(table)), seed=9, targets=(1, 1))
    assert_same(grow_here(table, plan, y, None), grow_spread(table, plan, y, None, spread(n, 3, [1, 300], range(3))))


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    ["Open", "draws", "drawn", "level", "means", "held out", "bars", "picked", "picked of batch 1", "apart", "leaves"],
)
def test_a_shard_lost_anywhere(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send(monkeypatch, 40)
    if place.endswith("batch 1"):
        cut_finely(monkeypatch)
    n = 400
    table = wild_table(n, 4)
    plan, weighted = plan_of("classes balanced by tree" if place == "draws" else "weighted forest, best first", len(table))
    y, weight = targets_of(plan, table), wild_weight(n, 4) if weighted else None
    cuts = spread(n, 3, [10, 200], range(3))
    executor = Pickling.of(table, y, weight, cuts)
    executor.lose, executor.nth = place, 1
    executor.make = lambda: LocalRowsExecutor.of(table, y, weight, cuts)
    got = grow_forest_on_rows(executor, plan, 0, 4, n_side_by_side=3)
    executor.close()
    assert executor.n_lost
    assert_same(grow_here(table, plan, y, weight, 4), got)
