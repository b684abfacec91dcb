"""User-defined objectives, and initial values of boosting, on a cluster."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression

import dtrees
from tests.cluster.samples import assert_same_model
from tests.plain import PLAIN
from tests.slow import one_of_each, one_quick

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6))
Y = X[:, 0] + np.sin(3 * X[:, 1]) + RNG.normal(scale=0.2, size=300)
CLASSES = np.digitize(Y, [-0.5, 0.5])
LAZY = da.from_array(X, chunks=((100, 20, 180), 3))
SETTINGS: dict[str, Any] = {**PLAIN, "n_estimators": 4, "max_depth": 3, "random_state": 0}


@pytest.fixture(params=["one-worker", "sharded"])
def placed(request: pytest.FixtureRequest, client: Client) -> Any:
    with dask.config.set({"dtrees.placement": request.param}):
        yield client


@pytest.mark.parametrize(("placed", "lazy"), one_of_each(["one-worker", "sharded"], [False, True]), indirect=["placed"])
def test_scores_of_each_row(placed: Client, lazy: bool) -> None:
    margin = RNG.normal(size=(300, 3))
    here = dtrees.GradientBoostingClassifier(**SETTINGS).fit(X, CLASSES, base_margin=margin)
    given = da.from_array(margin, chunks=((250, 50), (1, 2))) if lazy else margin
    there = dtrees.GradientBoostingClassifier(**SETTINGS).fit(LAZY, da.from_array(CLASSES, chunks=((100, 20, 180),)), base_margin=given)
    assert_same_model(there, here)
    assert_array_equal(there.predict_proba(X, base_margin=margin), here.predict_proba(X, base_margin=margin))
    assert_array_equal(there.predict_proba(LAZY, base_margin=0.0).compute(), here.predict_proba(X, base_margin=0.0))


KINDS = {
    "array": lambda values: da.from_array(values, chunks=((250, 50), *values.shape[1:])),
    "frame": lambda values: dd.from_map(pd.DataFrame if values.ndim == 2 else pd.Series, [values[:100], values[100:120], values[120:]]),
    "here": lambda values: values,
    "unknown": lambda values: KINDS["frame"](values).to_dask_array(),
}


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("of_X", "of_margin"), list(itertools.product(["array", "frame", "unknown"], KINDS)))
def test_predictions_of_scores_of_each_row(of_X: str, of_margin: str, n_outputs: int) -> None:
    """Collections of any kinds whose partitions are those of X, or can be aligned with them."""
    y, margin = (Y, Y / 2) if n_outputs == 1 else (CLASSES, RNG.normal(size=(300, 3)))
    estimator = dtrees.GradientBoostingRegressor if n_outputs == 1 else dtrees.GradientBoostingClassifier
    model = estimator(**SETTINGS).fit(X, y, base_margin=margin)
    lazy, given = LAZY if of_X == "array" else KINDS[of_X](X), KINDS[of_margin](margin)
    if of_X != "array" and of_margin in ("array", "here"):
        message = "base_margin has 2 partitions but X has 3" if of_margin == "array" else "base_margin is a ndarray in memory, but X is a"
        with pytest.raises(ValueError, match=message):
            model.predict(lazy, base_margin=given)
        return
    assert_array_equal(model.predict(lazy, base_margin=given).compute(), model.predict(X, base_margin=margin))
    *_, last = model.staged_predict(lazy, base_margin=given)
    assert_array_equal(last.compute(), model.predict(X, base_margin=margin))
    if n_outputs == 3:
        wanted = model.predict_proba(X, base_margin=margin)
        assert_array_equal(model.predict_proba(lazy, base_margin=given).compute(), wanted)
        assert_array_equal(model.predict_proba(lazy, base_margin=0.5).compute(), model.predict_proba(X, base_margin=0.5))
        assert_array_equal(model.predict_proba(X, base_margin=given), wanted)
    if of_X == of_margin == "array":
        with pytest.raises(ValueError, match="X has 300 rows but base_margin has 299"):
            model.predict(lazy, base_margin=margin[1:])
        with pytest.raises(TypeError, match=r"base_margin is of type dask\.delayed.*; wants a Dask Series, DataFrame or Array"):
            model.predict(lazy, base_margin=dask.delayed(margin))


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("kind", ["array", "frame", "here", "number"])
def test_evaluation_sets_with_scores_of_each_row(request: pytest.FixtureRequest, kind: str, there: bool) -> None:
    margin, set_margin = RNG.normal(size=(300, 3)), 0.25 if kind == "number" else RNG.normal(size=(300, 3))
    here = dtrees.GradientBoostingClassifier(**SETTINGS).fit(X, CLASSES, base_margin=margin, eval_set=[(X, CLASSES, None, set_margin)])
    given = set_margin if kind == "number" else KINDS[kind](set_margin)
    labels = KINDS["array"](CLASSES)
    sets = [(LAZY, labels, None, given), (X, labels, None, given)]
    with contextlib.nullcontext() if not there else request.getfixturevalue("client").as_current():
        model = dtrees.GradientBoostingClassifier(**SETTINGS).fit(LAZY, labels, base_margin=margin, eval_set=sets)
    assert_same_model(model, here)
    for found in model.evals_result_.values():
        assert_array_equal(found["logloss"], here.evals_result_["validation_0"]["logloss"])


@pytest.mark.parametrize(
    ("placed", "held_out"),
    [("one-worker", False), ("sharded", True), pytest.param("rows", True, marks=pytest.mark.slow)],
    indirect=["placed"],
)
def test_estimators_to_start_from(placed: Client, held_out: bool) -> None:
    """They are fitted to all rows in one process; their predictions for each partition start evaluation sets and predictions."""
    settings = SETTINGS | {"init": Means(), "n_iter_no_change": 3 if held_out else None}
    weight = RNG.integers(0, 3, 300) / 2
    for lazy, here in ((LAZY, X), (KINDS["frame"](X), pd.DataFrame(X))):
        y = da.from_array(Y, chunks=((100, 20, 180),))
        wanted = dtrees.GradientBoostingRegressor(**settings).fit(here, Y, weight, eval_set=[(here, Y)])
        model = dtrees.GradientBoostingRegressor(**settings).fit(lazy, y, weight, eval_set=[(lazy, y)])
        assert_same_model(model, wanted)
        assert model.init_.means_.tobytes() == wanted.init_.means_.tobytes()
        assert_array_equal(model.evals_result_["validation_0"]["rmse"], wanted.evals_result_["validation_0"]["rmse"])
        assert_array_equal(model.predict(lazy).compute(), wanted.predict(here))


class Means(RegressorMixin, BaseEstimator):
    """Predicts the mean of y on either side of zero in the first column: independent of the other rows in a partition."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Means:
        above = np.asarray(X)[:, 0] > 0
        self.means_ = np.array([np.average(y[side], weights=sample_weight[side]) for side in (~above, above)])
        return self

    def predict(self, X: Any) -> Any:
        return self.means_[(np.asarray(X)[:, 0] > 0).astype(int)]


def test_a_linear_model_without_a_client() -> None:
    wanted = dtrees.GradientBoostingRegressor(**SETTINGS, init=LinearRegression()).fit(X, Y)
    assert_same_model(dtrees.GradientBoostingRegressor(**SETTINGS, init=LinearRegression()).fit(LAZY, KINDS["array"](Y)), wanted)


def test_scores_of_partitions_that_are_another_time_others(client: Client) -> None:
    """``base_margin`` belongs to the same computation as X and y."""
    whole = da.from_array(np.column_stack([X, Y]), chunks=((100, 20, 180), 7)).map_blocks(_shuffled, dtype=float)
    settings = SETTINGS | {"n_estimators": 1, "eval_metric": "mae"}
    given = whole[:, :6], whole[:, 6], None, whole[:, 6]
    model = dtrees.GradientBoostingRegressor(**settings).fit(given[0], given[1], base_margin=given[3], eval_set=[given])
    assert model.evals_result_["validation_0"]["mae"].tolist() == [0.0]
    assert np.abs(model.predict(X, base_margin=0.0)).max() == 0.0


def _shuffled(block: Any) -> Any:
    return np.random.default_rng().permutation(block)


def test_functions_travel(placed: Client) -> None:
    shift = 0.25  # of this function's own
    model = dtrees.GradientBoostingRegressor(loss=lambda y, raw, weight: (raw - y + shift, np.ones(len(y))), **SETTINGS)
    y = da.from_array(Y, chunks=((100, 20, 180),))
    assert_same_model(dtrees.GradientBoostingRegressor(loss=model.loss, **SETTINGS).fit(LAZY, y), model.fit(X, Y))


@pytest.mark.parametrize("placed", one_quick(["sharded", "one-worker"]), indirect=True)
def test_errors_of_functions_come_back(placed: Client) -> None:
    model = dtrees.GradientBoostingRegressor(loss=lambda y, raw, weight: (raw, -np.ones(len(y))), **SETTINGS)
    with pytest.raises(ValueError, match="returned the hessian -1.0; wants numbers of at least 0"):
        model.fit(LAZY, da.from_array(Y, chunks=((100, 20, 180),)))


@pytest.mark.parametrize("placed", one_quick(["sharded", "one-worker"]), indirect=True)
def test_what_is_refused(placed: Client) -> None:
    y = da.from_array(Y, chunks=((100, 20, 180),))
    for parameters, options, message in (
        ({"init": LogisticRegression()}, {}, r"init is LogisticRegression\(\); wants a regressor"),
        ({}, {"base_margin": Y, "eval_set": [(LAZY, y, None, Y[1:])]}, "X has 300 rows but base_margin has 299"),
        ({}, {"base_margin": y[1:]}, "X has 300 rows but base_margin has 299"),
        ({}, {"base_margin": Y, "eval_set": [(LAZY, y)]}, "eval_set 'validation_0' has no base_margin, unlike the rows"),
        ({}, {"base_margin": Y[1:]}, r"base_margin has the shape \(299,\); wants raw scores of shape \(300,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            dtrees.GradientBoostingRegressor(**parameters, **SETTINGS).fit(LAZY, y, **options)
