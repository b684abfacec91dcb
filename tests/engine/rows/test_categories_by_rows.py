"""Sets of categories over shards of rows: byte for byte the model of one process, with sums by category alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.rows import tree as rows_tree
from tests.engine.rows.forests import test_forests_by_rows as forests
from tests.engine.rows.forests.test_forests_by_rows import forest_plan, grow_here, grow_spread
from tests.engine.rows.test_rows_fit import assert_same, cut_finely, fit_here, fit_spread, make_plan, spread
from tests.engine.shards import wild_weight
from tests.examples import examples
from tests.slow import one_of_each, thorough_for

CATEGORY_RULES = ("categorical", "cat_smooth", "min_samples_category", "max_cat_threshold")
#: Rows of nodes that are sent to one shard: none, some, all.
SENT_ROWS = [0, 60, 10_000]
KINDS = ("few", "some", "nearly all distinct", "with gaps", "one shard each", "one")


def make_categories(kind: str, n: int, missing: float, rng: np.random.Generator) -> NDArray[Any]:
    match kind:
        case "few":
            x = rng.integers(0, 3, n)
        case "some":
            x = rng.zipf(1.3, n) % 200
        case "nearly all distinct":
            x = rng.permutation(n)
        case "with gaps":
            x = rng.choice([0, 31, 32, 63, 1000, 4097], n)
        case "one shard each":
            x = np.arange(n) * 7 // max(n, 1)
        case _:
            x = np.zeros(n, np.int64)
    return np.where(rng.random(n) < missing, np.nan, x)


def fit(kinds: list[str], n: int, weighted: bool, seed: int = 0, loss: str = "squared", **rule_changes: Any) -> Any:
    """Return a table of columns of categories and of numbers, a target that both say something of, weights, and a plan."""
    rng = np.random.default_rng(seed)
    table = [make_categories(kind, n, 0.1 * (i % 3), rng) for i, kind in enumerate(kinds)]
    table += [rng.normal(size=n), np.round(rng.normal(size=n))]
    effects = rng.normal(size=5000)
    y = effects[np.nan_to_num(table[0], nan=4999).astype(int)] + table[-1] + 0.3 * rng.normal(size=n)
    k = len(kinds)
    changes = {
        "categorical": tuple(range(k)),
        "cat_smooth": 2.0,
        "min_samples_category": (3,) * k,
        "max_cat_threshold": (32,) * k,
    } | rule_changes
    plan = make_plan(loss, len(table), rule_changes=changes)
    return table, plan, (y > 0).astype(np.int64) if loss == "logistic" else y, wild_weight(n, 4) if weighted else None


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "weighted": {"weighted": True},
    "two classes": {"loss": "logistic", "weighted": True},
    "neither smooth nor rare": {"cat_smooth": 0.0, "min_samples_category": (1, 1, 1), "max_cat_threshold": (5000, 2, 1)},
    "monotonic": {"monotonic": (0, 0, 0, 1, -1), "max_depth": 5},
    "interactions": {"interactions": ((0, 3), (1, 2, 4))},
    "columns drawn": {"max_features": 1, "columns_per_tree": 4},
    "best first": {"max_depth": None, "max_leaf_nodes": 9},
    "pruned": {"ccp_alpha": 0.02, "max_depth": None},
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles
@pytest.mark.parametrize(("case", "sent_rows"), one_of_each([*CASES], SENT_ROWS, others=pytest.mark.thorough))
def test_models_are_those_of_one_process(case: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_tree, "SENT_ROWS", sent_rows)
    options = {"weighted": False} | CASES[case]
    n = 900
    table, plan, y, weight = fit(["some", "with gaps", "nearly all distinct"], n, **options)
    one = fit_here(table, plan, y, weight)
    if case == "plain":
        assert any(tree.categories.node.shape[0] for some in one.rounds for tree in some)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1)):
        assert_same(one, fit_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads))


FORESTS: dict[str, tuple[str, dict[str, Any], dict[str, Any], bool]] = {
    "tree of two classes": ("gini", {}, {"n_classes": 2}, False),
    "tree of three classes": ("gini", {}, {"n_classes": 3}, False),
    "weighted tree of three classes": ("entropy", {"max_features": 2, "min_samples_leaf": 3}, {"n_classes": 3}, True),
    "forest of five classes": (
        "gini",
        {"cat_smooth": 0.0, "min_samples_category": (1, 1, 1), "max_cat_threshold": (5000, 2, 1)},
        {"n_classes": 5, "n_draws": 700, "out_of_bag": True},
        False,
    ),
    "forest of three classes, best first": (
        "entropy",
        {"max_leaf_nodes": 20, "interactions": ((0, 3), (1, 2, 4))},
        {"n_classes": 3, "n_draws": 700, "balanced_subsample": True},
        True,
    ),
}
#: These have kernels of their own.
BY_ENTROPY = {name for name, (criterion, *_) in FORESTS.items() if criterion == "entropy"}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles
@pytest.mark.parametrize(("case", "sent_rows"), one_of_each(thorough_for(BY_ENTROPY, FORESTS), SENT_ROWS, others=pytest.mark.thorough))
def test_forests_are_those_of_one_process(case: str, sent_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: sent_rows)
    criterion, rule_changes, changes, weighted = FORESTS[case]
    n = 900
    table, boosting, y, weight = fit(["some", "with gaps", "nearly all distinct"], n, weighted)
    of_categories = {name: getattr(boosting.rules, name) for name in CATEGORY_RULES}
    plan = forest_plan(criterion, len(table), of_categories | rule_changes, **changes)
    y = np.digitize(y, np.quantile(y, np.arange(1, plan.n_classes) / plan.n_classes)).astype(np.int64)
    one = grow_here(table, plan, y, weight)
    assert any(tree.categories.node.shape[0] for tree in one.trees)
    for n_shards, cuts, n_threads in ((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1)):
        forests.assert_same(one, grow_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads=n_threads))


@pytest.mark.slow
@examples(100)
@given(data=st.data())
def test_any_table_and_partition(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([1, 2, 10, 80, 600]))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    k = len(kinds)
    changes = {
        "max_depth": data.draw(st.sampled_from([None, 3])),
        "reg_lambda": data.draw(st.sampled_from([0.0, 1.0])),
        "max_features": data.draw(st.sampled_from([1, k + 2, k + 2])),
        "cat_smooth": data.draw(st.sampled_from([0.0, 10.0])),
        "min_samples_category": (data.draw(st.sampled_from([1, 2, 20])),) * k,
        "max_cat_threshold": (data.draw(st.sampled_from([1, 4, 10_000])),) * k,
    }
    loss = data.draw(st.sampled_from(["squared", "logistic"]))
    table, plan, y, weight = fit(kinds, n, data.draw(st.booleans()), data.draw(st.integers(0, 2**20)), loss, **changes)
    n_shards = data.draw(st.integers(1, 5))
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    cuts = spread(n, n_shards, bounds, data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_tree, "SENT_ROWS", data.draw(st.sampled_from([0, 20, 100])))
        cut_finely(patch)
        assert_same(fit_here(table, plan, y, weight), fit_spread(table, plan, y, weight, cuts))
