"""Boosting over shards of rows whose leaves are measured: medians, quantiles, Huber's centers, and Newton steps beside plain gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.rows import tree as rows_tree
from dtrees.engine.rows.by_order import quantiles
from dtrees.ensemble.objective.deviances import Poisson
from dtrees.ensemble.objective.regression import AbsoluteError, Huber, Quantile
from dtrees.ensemble.objective.several_targets import SeveralTargets
from tests.engine.rows.test_rows_fit import Pickling, assert_same, boost, fit_here, fit_spread, spread
from tests.engine.shards import Logistic, rules, wild_table, wild_target, wild_weight
from tests.slow import one_of_each

LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "median": (AbsoluteError(), {}),
    "quantile": (Quantile(0.8), {}),
    "Huber": (Huber(0.7), {}),
    "targets": (SeveralTargets((Huber(0.7), Huber(0.7))), {}),
    "steps": (Poisson(), {"first_order": True}),
    "steps of two classes": (Logistic(), {"first_order": True, "n_classes": 2}),
}


def make(loss: str, n: int, seed: int, rule_changes: dict[str, Any], **changes: Any) -> tuple[Any, BoostingPlan, Any]:
    table = wild_table(n, seed)
    kind, own = LOSSES[loss]
    some = rules("newton", len(table), **({"max_depth": 4} | rule_changes))
    y = wild_target(table, own.get("n_classes", 0), seed)
    if loss == "targets":
        y = np.asfortranarray(np.stack([y, np.round(y - table[0])], axis=1))
    elif loss == "steps":
        y = np.abs(np.round(y))
    return table, BoostingPlan(some, 9, kind, 3, **(own | changes)), y


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "plain": ({}, {}, False),
    "weighted, drawn": ({"monotonic": (1, 0, -1, 0, 0, 1, 0)}, {"subsample": 0.6}, True),
    "held out, best first, pruned": ({"max_leaf_nodes": 9, "max_depth": None, "ccp_alpha": 1e-4}, {"n_iter_no_change": 9}, True),
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first one compiles
@pytest.mark.parametrize(("loss", "case"), one_of_each([*LOSSES], [*CASES], others=pytest.mark.thorough))
def test_models_are_those_of_one_process(loss: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule_changes, changes, weighted = CASES[case]
    n = 700
    table, plan, y = make(loss, n, 4, rule_changes, **changes)
    weight = wild_weight(n, 4) if weighted else None
    one = fit_here(table, plan, y, weight)
    for i, (n_shards, cuts, n_threads) in enumerate(((1, [], 2), (2, [n // 3], 1), (5, [1, 2, n // 2, n - 1], 1))):
        monkeypatch.setattr(rows_tree, "SENT_ROWS", (0, 60, 10_000)[i])
        monkeypatch.setattr(quantiles, "SENT_VALUES", (0, 1 << 16, 20)[i])
        assert_same(one, fit_spread(table, plan, y, weight, spread(n, n_shards, cuts, range(9)), n_threads))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_partition(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([3, 60, 400]))
    loss = data.draw(st.sampled_from(list(LOSSES)))
    subsample = data.draw(st.sampled_from([1.0, 0.5]))
    changes = {"max_depth": data.draw(st.sampled_from([None, 2])), "min_samples_leaf": data.draw(st.sampled_from([1, 5]))}
    table, plan, y = make(loss, n, data.draw(st.integers(0, 1000)), changes, subsample=subsample)
    weight = wild_weight(n, 4) if data.draw(st.booleans()) else None
    if weight is not None:
        weight[0] = 1.0
    n_shards = data.draw(st.integers(1, 5))
    bounds = data.draw(st.lists(st.integers(0, n), max_size=7))
    cuts = spread(n, n_shards, bounds, data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_tree, "SENT_ROWS", data.draw(st.sampled_from([0, 20])))
        patch.setattr(quantiles, "SENT_VALUES", data.draw(st.sampled_from([0, 10, 1000])))
        assert_same(fit_here(table, plan, y, weight), fit_spread(table, plan, y, weight, cuts))


@pytest.mark.slow
@pytest.mark.parametrize("lose", ["quantiles", "weights of leaves", "deviations", "counts 0", "bins 0", "rest", "GrowTree"])
def test_a_shard_is_lost(lose: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a round of several targets, too, whose predictions at its beginning are looked at again."""
    monkeypatch.setattr(quantiles, "SENT_VALUES", 20)
    n = 300
    table, plan, y = make("targets", n, 4, {})
    cuts = spread(n, 3, [50, 120, 200], range(3))
    executor = Pickling.of(table, y, None, cuts)
    executor.make, executor.lose, executor.nth = (lambda: Pickling.of(table, y, None, cuts)), lose, 4
    assert_same(fit_here(table, plan, y, None), boost(executor, plan))
    assert executor.n_lost == 1
    executor.close()
