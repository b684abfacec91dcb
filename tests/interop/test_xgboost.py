"""Models as XGBoost's boosters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees import to_xgboost
from tests.interop.cases import FULL, PEOPLE, SIGNAL, TWO, WAGE
from tests.interop.test_predictions import run_xgboost

pytestmark = pytest.mark.slow
xgboost = pytest.importorskip("xgboost")


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
    assert_array_equal(run_xgboost(model, PEOPLE, booster), run_xgboost(model, PEOPLE))
    again = xgboost.Booster(model_file=bytearray(booster.save_raw("ubj")))
    assert_array_equal(run_xgboost(model, PEOPLE, again), run_xgboost(model, PEOPLE))


def test_margins_of_rows() -> None:
    model = dtrees.GradientBoostingRegressor(n_estimators=5).fit(FULL, SIGNAL, base_margin=SIGNAL / 2)
    assert_allclose(run_xgboost(model, FULL, base_margin=SIGNAL / 2), model.predict(FULL, base_margin=SIGNAL / 2), rtol=1e-5, atol=1e-6)
