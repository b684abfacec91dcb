"""Objectives of the user's own, and what boosting starts from, on a cluster."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression

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
    with pytest.raises(ValueError, match="base_margin is an array, but X is a Array, whose rows are elsewhere"):
        there.predict(LAZY, base_margin=margin)


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
def test_what_is_for_data_in_memory(placed: Client) -> None:
    y = da.from_array(Y, chunks=((100, 20, 180),))
    for parameters, options, message in (
        ({"init": LinearRegression()}, {}, r"init is LinearRegression\(\), but X is a Array, .* pass its raw scores as base_margin"),
        ({}, {"base_margin": Y, "eval_set": [(LAZY, y, None, Y)]}, "cannot be scored on a cluster together with base_margin"),
        ({}, {"base_margin": Y[1:]}, r"base_margin has the shape \(299,\); wants raw scores of shape \(300,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            dtrees.GradientBoostingRegressor(**parameters, **SETTINGS).fit(LAZY, y, **options)
