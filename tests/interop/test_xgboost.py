"""Models as XGBoost's boosters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees import to_numbers, to_xgboost
from tests.interop.cases import BAGS, BOOSTING, FULL, PEOPLE, SIGNAL, TREES, TWO, WAGE, Case, X, fit_sets, predictions

pytestmark = pytest.mark.slow
xgboost = pytest.importorskip("xgboost")


def run(model: Any, table: Any, booster: Any = None, **more: Any) -> np.ndarray:
    """Return what XGBoost predicts."""
    booster = to_xgboost(model, X=table) if booster is None else booster
    names, kinds = booster.feature_names, booster.feature_types
    rows = xgboost.DMatrix(to_numbers(model, table), feature_names=names, feature_types=kinds, enable_categorical=True, **more)
    found: np.ndarray = booster.predict(rows)
    return found


def check(model: Any, table: Any) -> None:
    """Compare with the model's own predictions."""
    found, wanted = run(model, table), predictions(model, table)
    if hasattr(model, "classes_") and wanted.shape[1] == 2:
        wanted = wanted[:, 1]
    scale = np.abs(wanted).max()
    assert_allclose(found / scale, wanted / scale, rtol=5e-6, atol=2e-6)


@pytest.mark.parametrize("case", TREES + BOOSTING + BAGS, ids=lambda case: case.id)
def test_predictions_are_equal(case: Case) -> None:
    check(case.fit(), X)


@pytest.mark.parametrize("kind", ["DecisionTree", "RandomForest", "ExtraTrees", "GradientBoosting"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier", "several"])
def test_sets_of_categories(kind: str, task: str) -> None:
    model = fit_sets(kind, task)
    check(model, PEOPLE)
    check(model, PEOPLE.assign(job="none such"))


def test_objectives_have_their_parameters() -> None:
    wanted = {
        "quantile": ("reg:quantileerror", "2.5E-1"),
        "tweedie": ("reg:tweedie", "1.25"),
        "poisson": ("count:poisson", "max_delta_step"),
    }
    for loss, (name, text) in wanted.items():
        model = dtrees.GradientBoostingRegressor(
            loss=loss,
            n_estimators=2,
            **({"alpha": 0.25} if loss == "quantile" else {"tweedie_variance_power": 1.25} if loss == "tweedie" else {}),
        )
        config = to_xgboost(model.fit(FULL, np.exp(SIGNAL))).save_config()
        assert name in config
        assert text in config


def test_a_start_that_float32_cannot_hold() -> None:
    """Log odds of ten are a probability that float32 has few digits of."""
    weight = np.where(TWO == "yes", 1.0, 1e-5)
    model = dtrees.GradientBoostingClassifier(n_estimators=3, min_child_weight=0.0, reg_lambda=0.0).fit(FULL, TWO, weight)
    booster = to_xgboost(model)
    raw = booster.predict(xgboost.DMatrix(FULL, feature_types=booster.feature_types), output_margin=True)
    assert_allclose(raw, model.decision_function(FULL), rtol=2e-6)


def test_a_file_without_xgboost(tmp_path: Path) -> None:
    model = dtrees.RandomForestClassifier(5, random_state=0).fit(PEOPLE, WAGE > 1)
    assert to_xgboost(model, tmp_path / "model.json") is None
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    assert booster.num_boosted_rounds() == 1
    assert_array_equal(run(model, PEOPLE, booster), run(model, PEOPLE))
    again = xgboost.Booster(model_file=bytearray(booster.save_raw("ubj")))
    assert_array_equal(run(model, PEOPLE, again), run(model, PEOPLE))


def test_margins_of_rows() -> None:
    model = dtrees.GradientBoostingRegressor(n_estimators=5).fit(FULL, SIGNAL, base_margin=SIGNAL / 2)
    assert_allclose(run(model, FULL, base_margin=SIGNAL / 2), model.predict(FULL, base_margin=SIGNAL / 2), rtol=1e-5, atol=1e-6)


def test_splits_by_whether_a_value_is_missing() -> None:
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    check(dtrees.DecisionTreeRegressor().fit(one, SIGNAL), one)


def test_real_data(california_housing: Path, adult_train: Path) -> None:
    frame = pd.read_csv(california_housing)
    X, y = frame.drop(columns="median_house_value"), frame["median_house_value"]
    check(dtrees.RandomForestRegressor(20, random_state=0, n_jobs=2).fit(X, y), X)
    check(dtrees.GradientBoostingRegressor(n_estimators=50, n_jobs=2).fit(X, y), X)
    frame = pd.read_csv(adult_train)
    X, y = frame.drop(columns="income"), frame["income"]
    check(dtrees.GradientBoostingClassifier(n_estimators=50, n_jobs=2).fit(X, y), X)
    check(dtrees.ExtraTreesClassifier(10, max_depth=12, random_state=0, n_jobs=2).fit(X, y), X)
