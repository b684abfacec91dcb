"""Parts that all exporters share."""

import functools
import sys

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import dtrees
from dtrees import DecisionTreeRegressor, GradientBoostingRegressor, to_numbers
from dtrees.interop.description import describe
from tests.interop.cases import BEYOND, FULL, PEOPLE, SIGNAL, WAGE, Case, X, parametrized


@functools.cache
def tree() -> DecisionTreeRegressor:
    """Return a model; creating it while tests are collected might compile kernels."""
    return DecisionTreeRegressor(max_depth=2).fit(PEOPLE, WAGE)


@pytest.mark.parametrize(
    ("export", "module", "install"),
    [
        ("to_onnx", "onnx", "pip install 'dask-dtrees[export]'"),
        ("to_treelite", "treelite.model_builder", "pip install 'dask-dtrees[export]'"),
        ("to_xgboost", "xgboost", "pip install xgboost"),
        ("to_jax", "jax", "pip install 'dask-dtrees[jax]'"),
    ],
)
def test_a_missing_package_is_named(export: str, module: str, install: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"this needs {module.partition('.')[0]}, .*{install}".replace("[", r"\[")):
        getattr(dtrees, export)(tree())


def test_mlflow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'dask-dtrees\[mlflow\]'"), dtrees.MLflowCallback(DecisionTreeRegressor()):
        pass


@pytest.mark.parametrize("export", ["to_onnx", "to_treelite", "to_xgboost", "to_jax", "to_sklearn", "to_c"])
def test_what_is_no_model_is_refused(export: str) -> None:
    with pytest.raises(TypeError, match="model is of type Pipeline; wants a fitted estimator of dtrees"):
        getattr(dtrees, export)(make_pipeline(tree()))


def test_tables_as_numbers() -> None:
    numbers = to_numbers(tree(), PEOPLE)
    assert numbers.dtype == np.float64
    jobs = sorted(PEOPLE["job"].dropna().unique())
    assert np.array_equal(numbers[:, 0], [jobs.index(job) if isinstance(job, str) else np.nan for job in PEOPLE["job"]], equal_nan=True)
    assert np.array_equal(numbers[:, 1], PEOPLE["age"], equal_nan=True)
    with pytest.raises(TypeError, match=r"X is a sparse csr_matrix; pass X.toarray\(\)"):
        to_numbers(DecisionTreeRegressor(max_depth=2).fit(X, SIGNAL), csr_matrix(FULL))
    with pytest.raises(TypeError, match="model is of type int"):
        to_numbers(3, FULL)


def test_trees_of_boosting_come_round_by_round() -> None:
    model = GradientBoostingRegressor(n_estimators=3).fit(FULL, np.column_stack([SIGNAL, SIGNAL, -SIGNAL]))
    plain = describe(model, "a test")
    assert [output for output, _ in plain.trees()] == [0, 1, 2] * 3
    assert (plain.n_outputs, plain.divisor, plain.link, plain.column(2)) == (3, 1, "identity", "column 2")


@parametrized(BEYOND)
def test_what_only_c_and_numpy_can_hold_is_refused_elsewhere(case: Case) -> None:
    with pytest.raises(ValueError, match=r"a test .* use dtrees.to_c or dtrees.interop.dtrees_numpy"):
        describe(case.fit(), "a test")


def test_scores_of_rows_are_refused() -> None:
    model = GradientBoostingRegressor(n_estimators=2).fit(FULL, SIGNAL, base_margin=SIGNAL)
    with pytest.raises(ValueError, match="was fitted with base_margin, and a test has no place for the scores of rows; use dtrees.to_c"):
        describe(model, "a test")


def test_bags_whose_mean_is_no_sum_of_trees_are_refused() -> None:
    model = dtrees.BaggingClassifier(n_estimators=2).fit(FULL, SIGNAL > 0)
    with pytest.raises(
        ValueError, match=r"this BaggingClassifier predicts the mean of .* by loss='log_loss'.* use dtrees.to_c or dtrees.to_sklearn"
    ):
        describe(model, "a test")
    with pytest.raises(NotFittedError):
        describe(dtrees.BaggingRegressor(), "a test")
