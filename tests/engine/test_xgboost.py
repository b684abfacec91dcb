"""Boosted trees against XGBoost's exact method."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.run.boosting_rounds import boost
from dtrees.tree.packing import pack
from dtrees.tree.predict import sum_values
from tests.engine.shards import Logistic, Squared, local, rules
from tests.slow import one_of_each

xgboost = pytest.importorskip("xgboost")

N, P = 2000, 5


def nodes_in_preorder(node: dict[str, Any]) -> list[tuple[int, float, bool]]:
    """(feature, threshold, missing goes left) of every node, or (-2, value, False) of a leaf."""
    if "leaf" in node:
        return [(-2, node["leaf"], False)]
    left, right = (next(child for child in node["children"] if child["nodeid"] == node[side]) for side in ("yes", "no"))
    own = (int(node["split"][1:]), node["split_condition"], node["missing"] == node["yes"])
    return [own, *nodes_in_preorder(left), *nodes_in_preorder(right)]


OBJECTIVES = [("reg:squarederror", 1.0), ("binary:logistic", 1.0), ("reg:squarederror", 20.0), ("binary:logistic", 20.0)]


@pytest.mark.parametrize(("objective", "reg_lambda", "missing", "seed"), one_of_each(OBJECTIVES, [0.0, 0.2], [0, 1, 2]))
def test_against_the_exact_method(objective: str, reg_lambda: float, missing: float, seed: int) -> None:
    check(objective, reg_lambda, missing, seed)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
@pytest.mark.parametrize("alpha", [3.0, 30.0])
@pytest.mark.slow
def test_with_an_l1_penalty(alpha: float, objective: str, missing: float, seed: int) -> None:
    check(objective, 1.0, missing, seed, alpha)


def check(objective: str, reg_lambda: float, missing: float, seed: int, alpha: float = 0.0) -> None:
    """Compare trees node by node, and predictions."""
    rng = np.random.default_rng(seed)
    X = np.stack([(rng.permutation(N) - N // 3) / np.float32(64) for _ in range(P)], axis=1).astype(np.float32)
    y = np.sin(X[:, 0] / 5) + (X[:, 1] > 3) * X[:, 2] / 20 + rng.normal(size=N) / 2
    X[rng.random(X.shape) < missing] = np.nan
    binary = objective == "binary:logistic"
    y = (y > 0).astype(np.int32) if binary else y.astype(np.float32).astype(np.float64)
    least = 10.0 if binary else 25.0
    booster = xgboost.train(
        {
            "objective": objective, "tree_method": "exact", "max_depth": 4, "eta": 0.3, "lambda": reg_lambda, "alpha": alpha,
            "gamma": 0.0, "min_child_weight": least, "base_score": 0.5, "nthread": 2,
        },
        xgboost.DMatrix(X, y, feature_names=[f"f{j}" for j in range(P)]),
        num_boost_round=4,
    )  # fmt: skip
    some = rules("newton_l1" if alpha else "newton", P, max_depth=4, reg_lambda=reg_lambda, reg_alpha=alpha, min_child_weight=least)
    plan = BoostingPlan(some, 0, Logistic() if binary else Squared(), n_rounds=4, n_classes=2 if binary else 0, learning_rate=0.3)
    with local(list(X.T), y) as executor:
        ours = boost(executor, plan, initial=np.array([0.0 if binary else 0.5]))
    for (tree,), dump in zip(ours.rounds, booster.get_dump(dump_format="json"), strict=True):
        theirs = nodes_in_preorder(json.loads(dump))
        assert tree.feature.tolist() == [feature for feature, _, _ in theirs]
        reached = {0: np.ones(N, np.bool_)}
        for node, (feature, number, missing_left) in enumerate(theirs):
            if feature < 0:
                assert tree.value[node, 0] == pytest.approx(number, rel=1e-3, abs=1e-5)
                continue
            # Their rows with x < condition go left, ours with x <= threshold: both cuts lie between the same two values, in float32.
            assert tree.threshold[node] == pytest.approx(number, abs=1e-5) or (missing and np.isinf(tree.threshold[node]))
            x, to_left = X[:, feature], tree.missing_go_to_left[node]
            if np.isnan(x[reached[node]]).any():
                assert to_left == missing_left
            left = np.where(np.isnan(x), to_left, x <= tree.threshold[node])
            reached[tree.children_left[node]], reached[tree.children_right[node]] = reached[node] & left, reached[node] & ~left
    margin = booster.predict(xgboost.DMatrix(X, feature_names=[f"f{j}" for j in range(P)]), output_margin=True)
    raw = ours.initial[0] + sum_values(pack([tree for (tree,) in ours.rounds]), X.astype(np.float64))[:, 0]
    assert raw == pytest.approx(margin, abs=1e-4)
