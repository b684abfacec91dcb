"""Models as ONNX, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression

import dtrees
from dtrees import to_numbers, to_onnx
from tests.interop.cases import BAGS, BOOSTING, FULL, PEOPLE, SIGNAL, TREES, WAGE, Case, X, fit_sets, predictions

pytestmark = pytest.mark.slow
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def run(model: Any, table: Any) -> list[np.ndarray]:
    """Return what ONNX Runtime gives for a table."""
    made = to_onnx(model)
    onnx.checker.check_model(made)
    found: list[np.ndarray] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"X": to_numbers(model, table)})
    return found


def check(model: Any, table: Any) -> None:
    """Compare with the model's own predictions."""
    found = run(model, table)
    assert_allclose(found[-1], predictions(model, table), rtol=1e-12, atol=1e-15)
    if len(found) == 2:
        assert_array_equal(found[0], model.predict(table))


@pytest.mark.parametrize("case", TREES + BOOSTING + BAGS, ids=lambda case: case.id)
def test_predictions_are_equal(case: Case) -> None:
    check(case.fit(), X)


@pytest.mark.parametrize("kind", ["DecisionTree", "RandomForest", "ExtraTrees", "GradientBoosting"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier", "several"])
def test_sets_of_categories(kind: str, task: str) -> None:
    model = fit_sets(kind, task)
    check(model, PEOPLE)
    check(model, PEOPLE.assign(job="none such"))


@pytest.mark.parametrize("labels", [np.array([3, 7]), np.array([False, True]), np.array(["b", "ä"], dtype=object)])
def test_labels_of_every_kind(labels: np.ndarray) -> None:
    check(dtrees.DecisionTreeClassifier(max_depth=3).fit(X, labels[(SIGNAL > 0).astype(int)]), X)


@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_a_tree_without_splits_and_one_of_missing_values() -> None:
    check(dtrees.DecisionTreeRegressor(max_depth=1, min_samples_leaf=150).fit(X[:200], SIGNAL[:200]), X)
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    check(dtrees.DecisionTreeRegressor().fit(one, SIGNAL), one)


def test_infinities() -> None:
    for dtype in (np.float32, np.float64):
        table = np.where(X > 1, np.inf, np.where(X < -1, -np.inf, X)).astype(dtype)
        check(dtrees.DecisionTreeRegressor(max_depth=5).fit(table, SIGNAL), table)


def test_names_and_categories_are_in_the_metadata() -> None:
    made = to_onnx(dtrees.DecisionTreeRegressor().fit(PEOPLE, WAGE))
    found = {entry.key: entry.value for entry in made.metadata_props}
    assert found["columns"] == '["job", "age", "town"]'
    assert '"job 39"], null, ["Aachen", "Bonn", "Celle"]]' in found["categories"]


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"starts from an estimator \(init=LinearRegression\), which ONNX cannot carry"):
        to_onnx(dtrees.GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(FULL, SIGNAL))


def test_real_data(california_housing: Path, adult_train: Path) -> None:
    frame = pd.read_csv(california_housing)
    X, y = frame.drop(columns="median_house_value"), frame["median_house_value"]
    check(dtrees.RandomForestRegressor(20, random_state=0, n_jobs=2).fit(X, y), X)
    check(dtrees.GradientBoostingRegressor(n_estimators=50, n_jobs=2).fit(X, y), X)
    frame = pd.read_csv(adult_train)
    X, y = frame.drop(columns="income"), frame["income"]
    check(dtrees.GradientBoostingClassifier(n_estimators=50, n_jobs=2).fit(X, y), X)
    check(dtrees.ExtraTreesClassifier(10, max_depth=12, random_state=0, n_jobs=2).fit(X, y), X)
