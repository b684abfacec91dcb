"""Trees grown while the kernels that grow subtrees are being compiled elsewhere: the same as those grown after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dtrees
from dtrees.engine.shard import dense_runner
from tests.cluster.samples import assert_same_model
from tests.slow import slow_for

RNG = np.random.default_rng(5)
N = 700
X = np.round(RNG.normal(size=(N, 5)), 1)
X[RNG.random((N, 5)) < 0.1] = np.nan
X[:, 4] = RNG.normal(size=N)
SIGNAL = np.nan_to_num(X[:, 0]) * (X[:, 4] > 0) + 0.3 * RNG.normal(size=N)
LABEL = np.digitize(SIGNAL, [-0.4, 0.4])
WEIGHT = RNG.integers(0, 4, N).astype(float)

FITS: dict[str, tuple[Any, dict[str, Any], np.ndarray]] = {
    "boosting": (dtrees.GradientBoostingRegressor, {"n_estimators": 8, "max_depth": 4}, SIGNAL),
    "boosting of classes": (dtrees.GradientBoostingClassifier, {"n_estimators": 4, "subsample": 0.7}, LABEL),
    "few leaves": (dtrees.GradientBoostingRegressor, {"n_estimators": 4, "max_leaf_nodes": 9}, SIGNAL),
    "tree": (dtrees.DecisionTreeRegressor, {}, SIGNAL),
    "forest": (dtrees.RandomForestRegressor, {"n_estimators": 6, "oob_score": True, "max_features": 2}, SIGNAL),
    "forest of two classes": (dtrees.RandomForestClassifier, {"n_estimators": 4, "max_leaf_nodes": 20}, LABEL > 0),
    "forest of classes": (dtrees.RandomForestClassifier, {"n_estimators": 4, "min_samples_leaf": 3}, LABEL),
    "forest by entropy": (dtrees.RandomForestClassifier, {"n_estimators": 4, "criterion": "entropy", "min_samples_leaf": 3}, LABEL),
    "medians": (dtrees.RandomForestRegressor, {"n_estimators": 3, "criterion": "absolute_error", "max_depth": 6}, SIGNAL),
    "random thresholds": (dtrees.ExtraTreesRegressor, {"n_estimators": 4}, SIGNAL),
}
#: What has no kernels of its own for nodes that are searched by themselves.
QUICK = {"boosting", "boosting of classes", "tree"}


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", slow_for(FITS.keys() - QUICK, FITS, {"forest by entropy"}))
def test_the_same_trees(monkeypatch: pytest.MonkeyPatch, name: str, weight: np.ndarray | None) -> None:
    estimator, parameters, y = FITS[name]
    model = estimator(random_state=3, **parameters)
    if "forest" in name or name in ("medians", "random thresholds"):
        model.set_params(n_jobs=2)
    expected = model.fit(X, y, sample_weight=weight)
    asked: list[str] = []

    def compiled_elsewhere(kernel: Any, *arguments: Any) -> bool:
        asked.append(kernel.__name__)
        return len(asked) <= 2  # the others are grown as usual

    monkeypatch.setattr(dense_runner, "bound", lambda *arguments: None)
    monkeypatch.setattr(dense_runner, "compiled_elsewhere", compiled_elsewhere)
    found = estimator(**model.get_params()).fit(X, y, sample_weight=weight)
    assert asked
    assert_same_model(found, expected)
