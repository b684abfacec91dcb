"""Tools that read scikit-learn's trees accept dtrees' models after to_sklearn."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import dtrees
from dtrees import to_sklearn
from tests.interop.cases import TREES, Case, predictions

pytestmark = pytest.mark.slow

BOOSTED = [
    Case("GradientBoostingRegressor", {"n_estimators": 10}),
    Case("GradientBoostingClassifier", {"n_estimators": 10}, "two"),
    Case("GradientBoostingClassifier", {"n_estimators": 10}, "three"),
]
TAKEN = [case for case in TREES if case.parameters["criterion"] in ("squared_error", "gini") and case.target != "several"]
every_case = pytest.mark.parametrize("case", TAKEN + BOOSTED, ids=lambda case: case.id)


def rows_of(case: Case) -> tuple[Any, np.ndarray]:
    """Return a model of small trees without missing values, which not every tool supports, and rows."""
    from tests.interop.cases import FULL

    rows = FULL.astype(np.float32)
    return case._replace(parameters={**case.parameters, "max_depth": 4}).fit(rows), rows


@every_case
def test_shap_explains(case: Case) -> None:
    shap = pytest.importorskip("shap")
    if case.name == "GradientBoostingClassifier" and case.target == "three":
        pytest.skip("shap takes boosting of scikit-learn's for two classes only")
    model, rows = rows_of(case)
    explainer = shap.TreeExplainer(to_sklearn(model))
    values = explainer.shap_values(rows[:20].astype(float), check_additivity=False)
    total = np.asarray(values).sum(axis=1) + explainer.expected_value
    raw = model.decision_function(rows[:20]) if case.name == "GradientBoostingClassifier" else predictions(model, rows[:20])
    assert_allclose(total, raw, rtol=1e-5, atol=1e-6)


@every_case
def test_skl2onnx_converts(case: Case) -> None:
    skl2onnx, onnxruntime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    model, rows = rows_of(case)
    options = {"zipmap": False} if hasattr(model, "classes_") else {}
    converted = skl2onnx.to_onnx(to_sklearn(model), rows, options=options)
    found = onnxruntime.InferenceSession(converted.SerializeToString()).run(None, {"X": rows})[-1]
    wanted = predictions(model, rows)
    assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [case for case in TAKEN + BOOSTED if "n_estimators" in case.parameters], ids=lambda case: case.id)
def test_treelite_imports(case: Case) -> None:
    """It supports ensembles only."""
    treelite = pytest.importorskip("treelite")
    model, rows = rows_of(case)
    imported = treelite.sklearn.import_model(to_sklearn(model))
    found = treelite.gtil.predict(imported, rows.astype(float)).reshape(len(rows), -1)
    wanted = predictions(model, rows).reshape(len(rows), -1)
    assert_allclose(found, wanted if found.shape[1] == wanted.shape[1] else wanted[:, 1:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classify", [False, True])
def test_dtreeviz_draws(classify: bool) -> None:
    """It needs classes that are numbers."""
    dtreeviz = pytest.importorskip("dtreeviz")
    from tests.interop.cases import FULL, SIGNAL

    target = (SIGNAL > 0).astype(int) if classify else SIGNAL
    model = dtrees.DecisionTreeClassifier(max_depth=3) if classify else dtrees.DecisionTreeRegressor(max_depth=3)
    model.fit(FULL, target)
    names = {"class_names": ["low", "high"]} if classify else {}
    shown = dtreeviz.model(to_sklearn(model), FULL, target, feature_names=list("abcde"), target_name="y", **names)
    assert "abcde"[model.tree_.feature[0]] in shown.explain_prediction_path(FULL[0])
    assert "digraph" in shown.view(fancy=False).dot


def test_california_in_scikit_learn(california_housing: Path) -> None:
    frame = pd.read_csv(california_housing)
    X, y = frame.drop(columns=["ocean_proximity", "median_house_value"]), frame["median_house_value"]
    for name in ("RandomForestRegressor", "ExtraTreesRegressor"):
        model = getattr(dtrees, name)(20, random_state=0, n_jobs=2).fit(X, y)
        np.testing.assert_array_equal(to_sklearn(model, X).predict(X), model.predict(X))
    X = X.fillna(0)
    boosted = dtrees.GradientBoostingRegressor(n_estimators=50, n_jobs=2).fit(X, y)
    assert_allclose(to_sklearn(boosted, X).predict(X), boosted.predict(X), rtol=1e-12)
