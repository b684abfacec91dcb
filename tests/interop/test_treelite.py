"""Models as Treelite's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import dtrees
from dtrees import to_numbers, to_treelite
from tests.interop.cases import BAGS, BOOSTING, PEOPLE, SIGNAL, TREES, Case, X, fit_sets, predictions

pytestmark = pytest.mark.slow
treelite = pytest.importorskip("treelite")


def check(model: Any, table: Any, made: Any = None) -> None:
    """Compare with the model's own predictions."""
    found = treelite.gtil.predict(to_treelite(model) if made is None else made, to_numbers(model, table))
    wanted = predictions(model, table).reshape(len(table), -1)
    found = found.reshape(len(table), -1)
    if found.shape[1] < wanted.shape[1]:
        wanted = wanted[:, 1:]
    softmax = hasattr(model, "loss") and wanted.shape[1] > 2  # which Treelite computes in float32
    assert_allclose(found, wanted, rtol=1e-6 if softmax else 1e-12, atol=1e-15)


@pytest.mark.parametrize("case", TREES + BOOSTING + BAGS, ids=lambda case: case.id)
def test_predictions_are_equal(case: Case) -> None:
    check(case.fit(), X)


@pytest.mark.parametrize("kind", ["DecisionTree", "RandomForest", "ExtraTrees", "GradientBoosting"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier", "several"])
def test_sets_of_categories(kind: str, task: str, tmp_path: Path) -> None:
    model = fit_sets(kind, task)
    check(model, PEOPLE)
    to_treelite(model).serialize(tmp_path / "model")
    check(model, PEOPLE.assign(job="none such"), treelite.Model.deserialize(tmp_path / "model"))


def test_one_class_and_splits_by_whether_a_value_is_missing() -> None:
    check(dtrees.RandomForestClassifier(3).fit(X, np.zeros(len(X), int)), X)
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    check(dtrees.DecisionTreeRegressor().fit(one, SIGNAL), one)


def test_real_data(california_housing: Path, adult_train: Path) -> None:
    frame = pd.read_csv(california_housing)
    X, y = frame.drop(columns="median_house_value"), frame["median_house_value"]
    check(dtrees.RandomForestRegressor(5, random_state=0, n_jobs=2).fit(X, y), X)
    frame = pd.read_csv(adult_train)
    X, y = frame.drop(columns="income"), frame["income"]
    check(dtrees.GradientBoostingClassifier(n_estimators=50, n_jobs=2).fit(X, y), X)
    check(dtrees.ExtraTreesClassifier(5, max_depth=10, random_state=0, n_jobs=2).fit(X, y), X)
