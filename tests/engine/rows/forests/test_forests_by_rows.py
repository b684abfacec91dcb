"""Forests over shards of rows: byte for byte the trees of one process, however rows are spread, and whatever becomes of shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan, ForestResult, Progress
from dtrees.engine.plan.row_draws import RowDraws, find_drawing
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows import whole_sums, zone_edges
from dtrees.engine.rows.by_order.leaves import share_leaves
from dtrees.engine.rows.fit import grow_forest_on_rows
from dtrees.engine.rows.forests.tree import rows_to_send
from dtrees.engine.rows.local import LocalRowsExecutor
from dtrees.engine.rows.searcher import Searcher
from dtrees.engine.run.forest_growth import grow_forest
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import to_fixed
from dtrees.split.table.columns import presort
from tests.engine.rows.test_rows_fit import Cuts, Pickling, cut_finely, draw_table, draw_weight, spread
from tests.engine.shards import all_equal, rules, wild_table, wild_target, wild_weight
from tests.examples import examples
from tests.slow import level_by_level, one_of_each, thorough_for


def forest_plan(criterion: str, n_columns: int, rule_changes: Any = None, **changes: Any) -> ForestPlan:
    n_classes = 2 if criterion in ("gini", "entropy") else 0
    return ForestPlan(rules(criterion, n_columns, **(rule_changes or {})), **{"seed": 9, "n_classes": n_classes} | changes)


def grow_here(table: Any, plan: ForestPlan, y: NDArray[Any], weight: Any, n_trees: int = 2) -> ForestResult:
    return grow_forest(presort(table), y, weight, plan, 0, n_trees, 1)


def grow_spread(
    table: Any, plan: ForestPlan, y: NDArray[Any], weight: Any, cuts: Cuts, n_trees: int = 2, n_threads: int = 1, side_by_side: int = 2
) -> ForestResult:
    executor = Pickling.of(table, y, weight, cuts, n_threads)
    try:
        return grow_forest_on_rows(executor, plan, 0, n_trees, n_side_by_side=side_by_side)
    finally:
        executor.close()


def assert_same_over_shards(table: Any, plan: ForestPlan, y: NDArray[Any], weight: Any) -> None:
    """Grow trees in one process, and over one, two and five shards, some of which have a row or none."""
    one, n = grow_here(table, plan, y, weight), y.shape[0]
    assert all(tree.node_count > 3 for tree in one.trees)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1)):
        parts = spread(n, n_shards, cuts, range(9))
        assert_same(one, grow_spread(table, plan, y, weight, parts, n_threads=n_threads, side_by_side=1 + n_shards % 2))


def assert_same(one: ForestResult, other: ForestResult) -> None:
    assert all_equal(one.trees, other.trees)
    assert one.oob_exponent == other.oob_exponent
    for ours, theirs in ((one.oob_sum, other.oob_sum), (one.oob_count, other.oob_count)):
        assert (ours is None) == (theirs is None)
        assert ours is None or (ours.shape == theirs.shape and ours.tobytes() == theirs.tobytes())


#: Of a criterion: changes of rules, and of plans, and whether rows have weights.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    "tree": ("squared_error", {}, {}, False),
    "weighted tree": ("squared_error", {"min_weight_fraction_leaf": 0.02}, {}, True),
    "forest": ("squared_error", {"max_features": 3}, {"n_draws": 700, "out_of_bag": True}, False),
    "weighted forest, best first": ("squared_error", {"max_leaf_nodes": 20}, {"n_draws": 300, "out_of_bag": True}, True),
    "shallow, of columns drawn for trees": (
        "squared_error",
        {"max_depth": 3, "columns_per_tree": 5, "max_features": 2},
        {"n_draws": 700},
        False,
    ),
    "in order": ("squared_error", {"monotonic": (1, 0, -1, 0, 0, 1, 0)}, {"n_draws": 500, "out_of_bag": True}, False),
    "few columns a path": ("squared_error", {"interactions": ((0, 1, 2), (2, 3, 4, 5, 6)), "most_columns": 2}, {"n_draws": 500}, False),
    "pruned": ("squared_error", {"ccp_alpha": 0.02, "min_samples_leaf": 3}, {"n_draws": 700, "out_of_bag": True}, True),
    "little gain": ("squared_error", {"min_impurity_decrease": 0.01, "min_samples_split": 9}, {}, True),
    "Poisson": ("poisson", {"max_features": 4}, {"n_draws": 700, "out_of_bag": True}, False),
    "weighted, of Poisson": ("poisson", {}, {}, True),
    "tree of classes": ("gini", {}, {}, False),
    "weighted tree of classes": ("gini", {"max_features": 2}, {"class_weight": (0.3, 2.0)}, True),
    "forest of classes": ("gini", {"max_features": 2}, {"n_draws": 700, "out_of_bag": True}, False),
    "balanced": ("gini", {"max_features": 3}, {"n_draws": 700, "balanced_draws": True, "out_of_bag": True}, False),
    "weighted, balanced, pruned": ("gini", {"ccp_alpha": 0.01}, {"n_draws": 700, "balanced_draws": True, "out_of_bag": True}, True),
    "balanced by tree": ("gini", {"max_features": 3}, {"n_draws": 700, "balanced_subsample": True, "out_of_bag": True}, False),
    "weighted, balanced by tree": (
        "entropy",
        {"min_weight_fraction_leaf": 0.02, "ccp_alpha": 0.01},
        {"n_draws": 512, "balanced_subsample": True, "out_of_bag": True},
        True,
    ),
    "tree of three classes": ("gini", {}, {"n_classes": 3}, False),
    "weighted tree of three classes": ("entropy", {"min_weight_fraction_leaf": 0.02, "max_features": 4}, {"n_classes": 3}, True),
    "forest of three classes": ("gini", {"max_features": 2}, {"n_classes": 3, "n_draws": 700, "out_of_bag": True}, False),
    "forest of four classes, best first": (
        "entropy",
        {"max_leaf_nodes": 20, "ccp_alpha": 0.005},
        {"n_classes": 4, "n_draws": 600, "class_weight": (0.3, 2.0, 1.0, 1.0), "out_of_bag": True},
        True,
    ),
    "three classes, few columns a path": (
        "gini",
        {"interactions": ((0, 1, 2), (2, 3, 4, 5, 6)), "most_columns": 2, "min_samples_leaf": 3},
        {"n_classes": 3, "n_draws": 500},
        False,
    ),
    "three classes, balanced by tree": (
        "gini",
        {"max_features": 3},
        {"n_classes": 3, "n_draws": 512, "balanced_subsample": True, "out_of_bag": True},
        True,
    ),
    "three classes, balanced": ("entropy", {}, {"n_classes": 3, "n_draws": 700, "balanced_draws": True, "out_of_bag": True}, True),
    "entropy": ("entropy", {"max_features": 3}, {"n_draws": 900, "class_weight": (0.3, 2.0)}, True),
    "weighted tree by entropy": ("entropy", {}, {}, True),
}
#: What has kernels of its own, and differs from others in the score of a split alone.
OTHERS = {"weighted, balanced by tree", "entropy", "weighted tree by entropy"}


def test_rows_are_sent_though_a_helper_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one shard has been sent, it cannot give back."""
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: 40)
    n = 300
    table = wild_table(n, 4)
    plan, y = forest_plan("squared_error", len(table)), wild_target(table, 0, 4)
    expected = grow_here(table, plan, y, None)
    with level_by_level():
        assert_same(expected, grow_spread(table, plan, y, None, spread(n, 3, [20, 150], range(3))))


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first ones compile
@pytest.mark.parametrize(("case", "sent_rows"), one_of_each(thorough_for(OTHERS, CASES), [0, 30, 10_000], others=pytest.mark.thorough))
def test_trees_are_those_of_one_process(case: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.engine.rows.forests.tree.rows_to_send", lambda plan, n_rows, n_shards: sent_rows)
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: sent_rows)
    if sent_rows:
        cut_finely(monkeypatch)
    criterion, rule_changes, changes, weighted = CASES[case]
    n = 700
    table = wild_table(n, 4)
    plan = forest_plan(criterion, len(table), rule_changes, **changes)
    y, weight = wild_target(table, plan.n_classes, 4), wild_weight(n, 4) if weighted else None
    if criterion == "poisson":
        y = np.maximum(np.round(y), 0.0)
    assert_same_over_shards(table, plan, y, weight)


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@pytest.mark.parametrize("n_classes", [3, 7])
def test_parts_of_many_rows_that_may_hold_no_better_split_are_left_out(
    criterion: str, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is a column that says much, and few others that do; and no split is missed."""
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: 20)
    monkeypatch.setattr(zone_edges, "most_zones", lambda n_rows: 8)
    shares, flag = list[float](), Searcher.flag

    def flag_and_note(searcher: Searcher, bars: Any, drawn: Any, most_bytes: int) -> Any:
        wanted = flag(searcher, bars, drawn, most_bytes)
        rows = int(searcher._message.n_rows.sum()) * searcher._ids.shape[0]
        shares.append(int(wanted.tasks[:, 3].sum()) / max(1, rows))
        return wanted

    monkeypatch.setattr(Searcher, "flag", flag_and_note)
    n, rng = 4_000, np.random.default_rng(1)
    table = [rng.normal(size=n) for _ in range(4)] + [np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))]
    signal = table[0] + np.nan_to_num(table[4]) + rng.normal(size=n) / 3
    y = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.int64)
    for changes in ({}, {"n_draws": n}):
        plan = forest_plan(criterion, len(table), n_classes=n_classes, **changes)
        one = grow_here(table, plan, y, None)
        assert_same(one, grow_spread(table, plan, y, None, spread(n, 2, [n // 3], range(2))))
    assert min(shares) < 0.2
    assert max(shares) > 0.01


@pytest.mark.parametrize("n_draws", [256, 301])
def test_trees_that_weigh_the_classes_of_their_own_rows(n_draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where the weights of all rows come to a power of two, so that their order matters."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n, in_order = 300, list[str]()
    sum_in_order = whole_sums.sum_in_order
    monkeypatch.setattr(whole_sums, "sum_in_order", lambda *given: in_order.append(given[2]) or sum_in_order(*given))
    table = wild_table(n, 4)
    plan = forest_plan("gini", len(table), {"max_features": 4}, n_draws=n_draws, balanced_subsample=True, out_of_bag=True)
    y = (wild_target(table, 2, 4) & (np.arange(n) % 3 > 0)).astype(np.int64)
    one = grow_here(table, plan, y, None)
    assert_same(one, grow_spread(table, plan, y, None, spread(n, 3, [20, 150], range(3))))
    assert bool(in_order) == (n_draws == 256)


def test_a_forest_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick one, with nodes of all shards and of one."""
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    n = 300
    table = wild_table(n, 4)
    plan, y = forest_plan("squared_error", len(table), {"max_features": 4}, n_draws=n, out_of_bag=True), wild_target(table, 0, 4)
    one = grow_here(table, plan, y, None)
    assert_same(one, grow_spread(table, plan, y, None, spread(n, 3, [20, 150], range(3))))


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_table_and_partition(data: st.DataObject) -> None:
    table, rng = draw_table(data, 4)
    n = len(table[0])
    y = np.nan_to_num(table[0].astype(float)) * 2 + data.draw(st.sampled_from([0.0, 1.0, 1e6])) * rng.normal(size=n)
    criterion, n_classes = data.draw(st.sampled_from([("squared_error", 0), ("gini", 2), ("gini", 3), ("entropy", 4)]))
    shape = data.draw(st.sampled_from(["as it is", "few values", "one value", "mostly one value", "far away"]))
    if n_classes:
        y = np.digitize(y, np.array([0.0, 0.5, 1.0][: n_classes - 1]) + data.draw(st.sampled_from([0.0, 0.0, 1e9]))).astype(np.int64)
    elif shape == "few values":
        y = np.round(y)
    elif shape == "one value":
        y = np.full(n, 0.1)
    elif shape == "mostly one value":
        y = np.where(rng.random(n) < 0.95, -0.0, y)
    elif shape == "far away":
        y = y * 1e-3 + 1e12
    weight = draw_weight(data, rng, n)
    changes = {
        "max_depth": data.draw(st.sampled_from([None, None, 2, 6])),
        "min_samples_leaf": data.draw(st.sampled_from([1, 4])),
        "max_features": data.draw(st.sampled_from([1, len(table), len(table)])),
        "max_leaf_nodes": data.draw(st.sampled_from([None, None, 6])),
        "ccp_alpha": data.draw(st.sampled_from([0.0, 0.0, 0.01])),
        "min_weight_fraction_leaf": data.draw(st.sampled_from([0.0, 0.1])),
    }
    n_draws = data.draw(st.sampled_from([None, 1, max(1, n // 2), n, 3 * n]))
    drawn = [{}, {"balanced_draws": True}, {"balanced_subsample": True}] if n_classes and n_draws is not None else [{}]
    how = data.draw(st.sampled_from(drawn)) | {"n_draws": n_draws, "out_of_bag": n_draws is not None, "n_classes": n_classes}
    plan = forest_plan(criterion, len(table), changes, **how)
    n_shards = data.draw(st.integers(1, 5))
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    cuts = spread(n, n_shards, bounds, data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        sent_rows = data.draw(st.sampled_from([0, 8, 100]))
        patch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: sent_rows)
        cut_finely(patch, data.draw(st.sampled_from([1, 2, 16])), data.draw(st.sampled_from([1, 2])))
        assert_same(grow_here(table, plan, y, weight), grow_spread(table, plan, y, weight, cuts))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_a_node_of_one_target_is_a_leaf_though_columns_vary(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large nodes, all rows of which are 0, on all shards or but for one row of one."""
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: 5)
    n = 600
    table = wild_table(n, 4)
    y = np.where(table[0] > 1.0, table[5].astype(float), 0.0)
    y[0] = y[n - 1] = -7.0
    plan, weight = forest_plan("squared_error", len(table)), wild_weight(n, 4) if weighted else None
    assert_same(grow_here(table, plan, y, weight), grow_spread(table, plan, y, weight, spread(n, 3, [1, 300], range(3))))


PLACES = [
    "Introduce", "Open", "GrowTrees", "draws", "sum in order", "drawn", "level", "subtrees", "means", "AddVotes",
    "CountVotes", "targets", "before targets", "held out", "sums", "before sums", "bars", "flags", "picked", "apart",
    "before apart", "leaves", "before leaves",
]  # fmt: skip


ONCE = ["Introduce", "Open", "GrowTrees", "AddVotes", "CountVotes"]
LOST = one_of_each(ONCE, [(1, 1), (1, 3)], others=pytest.mark.thorough)
LOST += one_of_each([place for place in PLACES if place not in ONCE], [(1, 1), (3, 3), (1, 3), (3, 1)], others=pytest.mark.thorough)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "nth", "side_by_side"), LOST)
def test_a_shard_lost_anywhere(place: str, nth: int, side_by_side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", 40)
    if place == "subtrees":  # each small node has too many rows for one exchange with others
        monkeypatch.setattr(rows_tree, "SHARED_CELLS", 1)
    n = 400
    table = wild_table(n, 4)
    y, weight = wild_target(table, 0, 4), wild_weight(n, 4)
    plan = forest_plan("squared_error", len(table), {"max_features": 4}, n_draws=n, out_of_bag=True)
    if place in ("draws", "sum in order"):
        y, weight = wild_target(table, 2, 4), None
        plan = forest_plan("gini", len(table), {"max_features": 4}, n_draws=512, balanced_subsample=True, out_of_bag=True)
    cuts = spread(n, 3, [10, 200], range(3))
    one = grow_here(table, plan, y, weight, 4)
    executor = Pickling.of(table, y, weight, cuts)
    executor.lose, executor.nth = place, nth
    executor.make = lambda: LocalRowsExecutor.of(table, y, weight, cuts)
    got = grow_forest_on_rows(executor, plan, 0, 4, n_side_by_side=side_by_side)
    executor.close()
    assert executor.n_lost == 1
    assert_same(one, got)


class Log:
    """Keeps trees in memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def recall(self) -> list[Any]:
        return list(self.kept)

    def keep(self, tree: Any, scores: Any) -> None:
        self.kept.append((tree, scores))


def test_trees_that_a_log_kept_are_not_grown_again_and_a_callback_ends_the_fit() -> None:
    n = 200
    table = wild_table(n, 4)
    plan, y, cuts = forest_plan("squared_error", len(table), n_draws=n), wild_target(table, 0, 4), spread(n, 2, [90], range(2))
    one, log, heard = grow_here(table, plan, y, None, 3).trees, Log(), list[Progress]()

    def two(progress: Progress) -> bool:
        heard.append(progress)
        return progress.done == 2

    def grow(n_trees: int, callback: Any = None) -> tuple[list[Any], Any]:
        executor = Pickling.of(table, y, None, cuts)
        executor.largest = {}
        return grow_forest_on_rows(executor, plan, 0, n_trees, callback, log).trees, executor.largest

    trees, _ = grow(3, two)
    assert all_equal(trees, one[:2])
    assert [(progress.done, progress.total) for progress in heard] == [(1, 3), (2, 3)]
    assert len(log.kept) == 2
    trees, sent = grow(3)
    assert all_equal(trees, one)
    assert "GrowTrees" in sent
    trees, sent = grow(3)
    assert all_equal(trees, one)
    assert not sent  # nothing was asked of shards


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_shards_draw_the_rows_that_one_process_draws(weighted: bool, balanced: bool) -> None:
    n = 500
    rng = np.random.default_rng(0)
    y = rng.choice([0, 2, 3], n, p=[0.7, 0.2, 0.1])
    weight = wild_weight(n, 1) if weighted else None
    plan = ForestPlan(rules("gini", 3), 5, n_classes=4, n_draws=n, balanced_draws=balanced)
    cuts = [np.array([[0, 1], [2, 90], [300, 499]]), np.empty((0, 2), np.int64), np.array([[1, 2], [90, 300], [499, 500]])]
    wanted = RowDraws.of_table(plan, y, weight).counts(3)
    assert wanted.sum() > 0
    if balanced:  # as many rows of each class as the smallest one has
        there = np.ones(n, bool) if weight is None else weight > 0
        assert np.bincount(y, wanted)[[0, 2, 3]].tolist() == [np.bincount(y[there])[[0, 2, 3]].min()] * 3
        assert not wanted[~there].any()
    else:
        expected, cumulative = np.zeros(n, np.int64), np.cumsum([] if weight is None else to_fixed(weight)[0]).astype(np.int64)
        hashing.bootstrap_counts(hashing.as_seed(5), 3, n, cumulative, expected)
        np.testing.assert_array_equal(wanted, expected)
    for stretches in cuts:
        drawing, before = find_drawing(plan, y, weight, stretches[:, 0])
        own = np.concatenate([np.empty(0, np.int64), *(np.arange(*ends) for ends in stretches.tolist())])
        draws = RowDraws(drawing, 5, stretches, before, y[own], None if weight is None else weight[own])
        np.testing.assert_array_equal(draws.counts(3), wanted[own])


def test_leaves_are_shared_by_rows() -> None:
    for sizes in ([5], [1, 1, 1, 1, 1, 1, 1, 1], [100, 1, 1], [1, 1, 100]):
        begins = share_leaves(np.array(sizes), 3)
        assert begins.shape[0] == 4
        assert begins[0] == 0
        assert begins[-1] == len(sizes)
        assert (np.diff(begins) >= 0).all()
    assert share_leaves(np.ones(9, np.int64), 3).tolist() == [0, 3, 6, 9]


def test_nodes_sent_grow_with_the_table_but_for_what_a_message_may_weigh() -> None:
    plan = forest_plan("squared_error", 28)
    assert [rows_to_send(plan, n, 2) for n in (100, 100_000, 10**8)] == [1024, 12_500, 2**20 // 28]
    wide = replace(plan, rules=replace(plan.rules, columns_per_tree=10**6))
    assert rows_to_send(wide, 10**8, 2) == 1024
