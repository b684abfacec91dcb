"""Quantiles and intervals of Dask collections; test_conformance.py checks that a forest's stored data is equal in every byte."""

from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client

import dtrees
from tests.cluster.samples import FRAME, LENGTHS, NUMBERS, REGRESSION, assert_same_model, in_partitions, weights
from tests.slow import slow_for

Q = [0.1, 0.5, 0.9]
LAZY = in_partitions(FRAME, LENGTHS[7])


def forest(**parameters: Any) -> dtrees.RandomForestRegressor:
    given = {"n_estimators": 5, "min_samples_leaf": 3, "keep_targets": True, "random_state": 0, "categorical_features": None}
    return dtrees.RandomForestRegressor(**{**given, **parameters})


def boosting(**parameters: Any) -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(n_estimators=3, loss="quantile", alpha=Q, random_state=0, **parameters)


@pytest.mark.parametrize(("placement", "bootstrap"), slow_for({"sharded"}, [("rows", True), ("sharded", False)]))
def test_a_forest_keeps_what_one_of_this_process_does(client: Client, placement: str, bootstrap: bool) -> None:
    y, weight = in_partitions(REGRESSION, LENGTHS[7]), in_partitions(weights(), LENGTHS[7])
    here = forest(bootstrap=bootstrap).fit(FRAME, REGRESSION, weights())
    with dask.config.set({"dtrees.placement": placement}):
        there = forest(bootstrap=bootstrap).fit(LAZY, y, weight)
    assert there.placement_.kind == placement
    assert_same_model(there, here)
    for name, array in here._leaf_targets.__getstate__().items():
        found = getattr(there._leaf_targets, name)
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
    quantiles = there.predict_quantiles(LAZY, Q)
    assert isinstance(quantiles, dd.DataFrame)
    assert quantiles.columns.tolist() == Q
    np.testing.assert_array_equal(quantiles.compute().to_numpy(), here.predict_quantiles(FRAME, Q))
    middle = there.predict_quantiles(LAZY, 0.5)
    assert isinstance(middle, dd.Series)
    np.testing.assert_array_equal(middle.compute(), here.predict_quantiles(FRAME, 0.5))
    if bootstrap:
        intervals = there.predict_interval(LAZY, 0.8)
        assert intervals.columns.tolist() == ["lower", "upper"]
        np.testing.assert_array_equal(intervals.compute().to_numpy(), here.predict_interval(FRAME, 0.8))


def test_arrays_and_several_targets(client: Client) -> None:
    Y = np.column_stack([REGRESSION, REGRESSION**2])
    here = forest().fit(NUMBERS, Y)
    X = da.from_array(NUMBERS, chunks=(90, -1))
    there = forest().fit(X, da.from_array(Y, chunks=(90, -1)))
    for q in (Q, 0.9):
        found = there.predict_quantiles(X, q)
        assert found.shape == here.predict_quantiles(NUMBERS, q).shape
        np.testing.assert_array_equal(found.compute(), here.predict_quantiles(NUMBERS, q))
    sent = forest().fit(NUMBERS, Y, client=client)  # from this process to a worker
    np.testing.assert_array_equal(sent.predict_quantiles(NUMBERS, Q), here.predict_quantiles(NUMBERS, Q))


def test_cross_validation_on_a_cluster(client: Client) -> None:
    X, y = da.from_array(NUMBERS, chunks=(90, -1)), da.from_array(REGRESSION.to_numpy(), chunks=90)
    found = dtrees.cross_validate(forest(), X, y, cv=3, return_estimator=True, return_indices=True)
    for model, train in zip(found["estimator"], found["indices"]["train"], strict=True):
        weight = np.zeros(len(NUMBERS))
        weight[train] = 1.0
        alone = forest().fit(NUMBERS, REGRESSION, weight)
        np.testing.assert_array_equal(model.predict_quantiles(NUMBERS, Q), alone.predict_quantiles(NUMBERS, Q))


def test_boosting(client: Client) -> None:
    y = in_partitions(REGRESSION, LENGTHS[7])
    here, there = boosting().fit(FRAME, REGRESSION), boosting().fit(LAZY, y)
    assert_same_model(there, here)
    found = there.predict(LAZY)
    assert found.columns.tolist() == Q
    np.testing.assert_array_equal(found.compute().to_numpy(), here.predict(FRAME))
    np.testing.assert_allclose(there.score(LAZY, y), here.score(FRAME, REGRESSION))
    here.calibrate(FRAME, REGRESSION)
    there.calibrate(LAZY, y)
    np.testing.assert_array_equal(there.conformity_scores_, here.conformity_scores_)
    intervals = there.predict_interval(LAZY, 0.8)
    assert isinstance(intervals, dd.DataFrame)
    assert intervals.columns.tolist() == ["lower", "upper"]
    np.testing.assert_array_equal(intervals.compute().to_numpy(), here.predict_interval(FRAME, 0.8))
