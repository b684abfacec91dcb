"""Exported models predict the same as the original: ONNX Runtime, Treelite, XGBoost and JAX."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression

import dtrees
from dtrees import to_jax, to_numbers, to_onnx, to_treelite, to_xgboost
from tests.interop.cases import BAGS, BOOSTING, FULL, PEOPLE, SIGNAL, TREES, TWO, WAGE, Case, X, fit_sets, predictions

pytestmark = pytest.mark.slow


@contextmanager
def x64() -> Iterator[None]:
    """Make JAX, if it is installed, compute in float64."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def run_onnx(model: Any, table: Any) -> list[np.ndarray]:
    """Return the predictions of ONNX Runtime for a table."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    made = to_onnx(model)
    onnx.checker.check_model(made)
    found: list[np.ndarray] = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"X": to_numbers(model, table)})
    return found


def check_onnx(model: Any, table: Any) -> None:
    found = run_onnx(model, table)
    assert_allclose(found[-1], predictions(model, table), rtol=1e-12, atol=1e-15)
    if len(found) == 2:
        assert_array_equal(found[0], model.predict(table))


def check_treelite(model: Any, table: Any, folder: Path | None = None) -> None:
    treelite = pytest.importorskip("treelite")
    made = to_treelite(model)
    if folder is not None:
        made.serialize(folder / "model")
        made = treelite.Model.deserialize(folder / "model")
    wanted = predictions(model, table).reshape(len(table), -1)
    found = treelite.gtil.predict(made, to_numbers(model, table)).reshape(len(table), -1)
    if found.shape[1] < wanted.shape[1]:
        wanted = wanted[:, 1:]
    softmax = hasattr(model, "loss") and wanted.shape[1] > 2  # Treelite computes these in float32
    assert_allclose(found, wanted, rtol=1e-6 if softmax else 1e-12, atol=1e-15)


def run_xgboost(model: Any, table: Any, booster: Any = None, **more: Any) -> np.ndarray:
    """Return the predictions of XGBoost."""
    xgboost = pytest.importorskip("xgboost")
    booster = to_xgboost(model, X=table) if booster is None else booster
    names, kinds = booster.feature_names, booster.feature_types
    rows = xgboost.DMatrix(to_numbers(model, table), feature_names=names, feature_types=kinds, enable_categorical=True, **more)
    found: np.ndarray = booster.predict(rows)
    return found


def check_xgboost(model: Any, table: Any) -> None:
    found, wanted = run_xgboost(model, table), predictions(model, table)
    if hasattr(model, "classes_") and wanted.shape[1] == 2:
        wanted = wanted[:, 1]
    scale = np.abs(wanted).max()
    assert_allclose(found / scale, wanted / scale, rtol=5e-6, atol=2e-6)


def check_jax(model: Any, table: Any) -> None:
    with x64():
        found = np.asarray(to_jax(model)(to_numbers(model, table)))
    assert found.dtype == np.float64
    assert_allclose(found, predictions(model, table), rtol=1e-13, atol=1e-15)


CHECKS = {"onnx": check_onnx, "treelite": check_treelite, "xgboost": check_xgboost, "jax": check_jax}
every_tool = pytest.mark.parametrize("tool", CHECKS)
#: For JAX, trees are arrays whatever criterion grew them, and only the link of a loss matters.
ALIKE = {"friedman_mse", "absolute_error", "quantile", "huber", "gamma", "tweedie"}


@every_tool
@pytest.mark.parametrize("case", TREES + BOOSTING + BAGS, ids=lambda case: case.id)
def test_predictions_are_equal(case: Case, tool: str) -> None:
    if tool == "jax" and case not in BAGS and (case.name.startswith("Extra") or ALIKE & {*map(str, case.parameters.values())}):
        pytest.skip("as others are")
    CHECKS[tool](case.fit(), X)


@every_tool
@pytest.mark.parametrize("kind", ["DecisionTree", "RandomForest", "GradientBoosting"])
@pytest.mark.parametrize("task", ["Regressor", "Classifier", "several"])
def test_sets_of_categories(kind: str, task: str, tool: str, tmp_path: Path) -> None:
    model = fit_sets(kind, task)
    CHECKS[tool](model, PEOPLE)
    CHECKS[tool](model, PEOPLE.assign(job="none such"), *([tmp_path] if tool == "treelite" else []))


@every_tool
@pytest.mark.filterwarnings("ignore:no tree found a split")
def test_splits_by_whether_a_value_is_missing_one_class_and_no_splits(tool: str) -> None:
    one = np.where(np.isnan(X[:, :1]), np.nan, 1.0)
    CHECKS[tool](dtrees.DecisionTreeRegressor().fit(one, SIGNAL), one)
    CHECKS[tool](dtrees.DecisionTreeRegressor(max_depth=1, min_samples_leaf=150).fit(X[:200], SIGNAL[:200]), X)
    if tool == "treelite":
        check_treelite(dtrees.RandomForestClassifier(3).fit(X, np.zeros(len(X), int)), X)


@every_tool
@pytest.mark.timeout(600)  # compiles kernels for large tables of categories
def test_real_data(tool: str, california_housing: Path, adult_train: Path) -> None:
    frame = pd.read_csv(california_housing)
    X, y = frame.drop(columns="median_house_value"), frame["median_house_value"]
    CHECKS[tool](dtrees.RandomForestRegressor(5, random_state=0, n_jobs=2).fit(X, y), X[::4])
    if tool != "treelite":
        CHECKS[tool](dtrees.GradientBoostingRegressor(n_estimators=20, n_jobs=2).fit(X, y), X[::4])
    frame = pd.read_csv(adult_train)
    X, y = frame.drop(columns="income"), frame["income"]
    CHECKS[tool](dtrees.GradientBoostingClassifier(n_estimators=20, n_jobs=2).fit(X, y), X[::4])
    if tool != "jax":
        CHECKS[tool](dtrees.ExtraTreesClassifier(5, max_depth=10, random_state=0, n_jobs=2).fit(X, y), X[::4])


@pytest.mark.parametrize("labels", [np.array([3, 7]), np.array([False, True]), np.array(["b", "ä"], dtype=object)])
def test_onnx_of_labels_of_every_kind(labels: np.ndarray) -> None:
    check_onnx(dtrees.DecisionTreeClassifier(max_depth=3).fit(X, labels[(SIGNAL > 0).astype(int)]), X)


def test_onnx_of_infinities() -> None:
    for dtype in (np.float32, np.float64):
        table = np.where(X > 1, np.inf, np.where(X < -1, -np.inf, X)).astype(dtype)
        check_onnx(dtrees.DecisionTreeRegressor(max_depth=5).fit(table, SIGNAL), table)


def test_onnx_has_names_and_categories_in_its_metadata() -> None:
    pytest.importorskip("onnx")
    made = to_onnx(dtrees.DecisionTreeRegressor().fit(PEOPLE, WAGE))
    found = {entry.key: entry.value for entry in made.metadata_props}
    assert found["columns"] == '["job", "age", "town"]'
    assert '"job 39"], null, ["Aachen", "Bonn", "Celle"]]' in found["categories"]


def test_onnx_refuses_estimators_to_start_from() -> None:
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=r"starts from an estimator \(init=LinearRegression\), which ONNX cannot carry"):
        to_onnx(dtrees.GradientBoostingRegressor(n_estimators=2, init=LinearRegression()).fit(FULL, SIGNAL))


@pytest.fixture
def xgboost() -> Any:
    return pytest.importorskip("xgboost")


def test_xgboosts_objectives_have_their_parameters(xgboost: Any) -> None:
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


def test_a_start_that_float32_cannot_hold(xgboost: Any) -> None:
    """Log odds of ten correspond to a probability of which float32 stores few digits."""
    weight = np.where(TWO == "yes", 1.0, 1e-5)
    model = dtrees.GradientBoostingClassifier(n_estimators=3, min_child_weight=0.0, reg_lambda=0.0).fit(FULL, TWO, weight)
    booster = to_xgboost(model)
    raw = booster.predict(xgboost.DMatrix(FULL, feature_types=booster.feature_types), output_margin=True)
    assert_allclose(raw, model.decision_function(FULL), rtol=2e-6)


def test_a_file_without_xgboost(xgboost: Any, tmp_path: Path) -> None:
    model = dtrees.RandomForestClassifier(5, random_state=0).fit(PEOPLE, WAGE > 1)
    assert to_xgboost(model, tmp_path / "model.json") is None
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    assert booster.num_boosted_rounds() == 1
    assert_array_equal(run_xgboost(model, PEOPLE, booster), run_xgboost(model, PEOPLE))
    again = xgboost.Booster(model_file=bytearray(booster.save_raw("ubj")))
    assert_array_equal(run_xgboost(model, PEOPLE, again), run_xgboost(model, PEOPLE))


def test_margins_of_rows(xgboost: Any) -> None:
    model = dtrees.GradientBoostingRegressor(n_estimators=5).fit(FULL, SIGNAL, base_margin=SIGNAL / 2)
    assert_allclose(run_xgboost(model, FULL, base_margin=SIGNAL / 2), model.predict(FULL, base_margin=SIGNAL / 2), rtol=1e-5, atol=1e-6)
