"""Boosting of several targets on a cluster; that models are the same in every byte is for test_conformance.py."""

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.base import clone

import dtrees
from tests.cluster.samples import FRAME, LENGTHS, assert_same_model, in_partitions, numbers, targets, weights
from tests.slow import slow_for

pytestmark = pytest.mark.usefixtures("sharded")

VALUE = targets(FRAME)["regression"]
Y = pd.DataFrame({"value": VALUE, "square": VALUE**2, "count": FRAME["count"] + 0.5})


def make(**parameters: Any) -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(n_estimators=4, subsample=0.8, random_state=0, **parameters)


@pytest.fixture(scope="module")
def here() -> dtrees.GradientBoostingRegressor:
    return make().fit(FRAME, Y, weights())


@pytest.mark.parametrize(
    "kind",
    slow_for({"unknown chunks", "local frame"}, ["frame", "columns apart", "unknown chunks", "local frame"]),
)
def test_kinds_of_y(client: Client, here: dtrees.GradientBoostingRegressor, kind: str) -> None:
    y = {
        "frame": in_partitions(Y, LENGTHS[7]),
        "columns apart": da.from_array(Y.to_numpy(), chunks=(200, 2)),
        "unknown chunks": in_partitions(Y, LENGTHS[7]).to_dask_array(),
        "local frame": Y,
    }[kind]
    assert_same_model(make().fit(in_partitions(FRAME, LENGTHS[7]), y, in_partitions(weights(), LENGTHS[7])), here)


def test_partitions_with_columns_in_another_order(client: Client, here: dtrees.GradientBoostingRegressor) -> None:
    mixed = dd.from_map(_turned, [0, 1, 2], meta=Y.iloc[:0])
    assert_same_model(make().fit(in_partitions(FRAME, LENGTHS[3]), mixed, in_partitions(weights(), LENGTHS[3])), here)
    other = dd.from_map(_renamed, [0, 1, 2], meta=Y.iloc[:0])
    with pytest.raises(ValueError, match="y has in partition 1 the columns"):
        make().fit(in_partitions(FRAME, LENGTHS[3]), other)


def _turned(i: int) -> pd.DataFrame:
    part = Y.iloc[[slice(0, 100), slice(100, 120), slice(120, 420)][i]]
    return part[part.columns[::-1]] if i == 1 else part


def _renamed(i: int) -> pd.DataFrame:
    return _turned(i).rename(columns={"square": "other"} if i == 1 else {})


def test_predictions_are_lazy(client: Client, here: dtrees.GradientBoostingRegressor) -> None:
    X = in_partitions(FRAME, LENGTHS[3])
    model = make().fit(X, in_partitions(Y, LENGTHS[3]), in_partitions(weights(), LENGTHS[3]))
    predicted = model.predict(X)
    assert isinstance(predicted, dd.DataFrame)
    assert predicted.columns.tolist() == [0, 1, 2]
    wanted = here.predict(FRAME)
    np.testing.assert_array_equal(predicted.compute().to_numpy(), wanted)
    *_, last = model.staged_predict(X)
    np.testing.assert_array_equal(last.compute().to_numpy(), wanted)
    np.testing.assert_allclose(model.score(X, in_partitions(Y, LENGTHS[3])), here.score(FRAME, Y))
    array = da.from_array(numbers(FRAME), chunks=(100, 3))
    of_array = make().fit(array, da.from_array(Y.to_numpy(), chunks=(100, 3)))
    assert of_array.predict(array).shape == (420, 3)
    np.testing.assert_array_equal(of_array.predict(array).compute(), make().fit(numbers(FRAME), Y).predict(numbers(FRAME)))


def test_targets_of_classes(client: Client) -> None:
    y = pd.DataFrame({"high": Y["value"] > 0, "third": np.where(Y["count"] > 2, "many", "few")})
    classifier = dtrees.GradientBoostingClassifier(n_estimators=4, subsample=0.8, random_state=0)
    wanted = clone(classifier).fit(FRAME, y)
    X, lazy = in_partitions(FRAME, LENGTHS[3]), in_partitions(y, LENGTHS[3])
    model = classifier.fit(X, lazy, eval_set=[(X, lazy)])
    assert_same_model(model, wanted)
    np.testing.assert_array_equal(model.predict(X).compute().to_numpy(), wanted.predict(FRAME))
    np.testing.assert_array_equal(model.decision_function(X).compute().to_numpy(), wanted.decision_function(FRAME))
    *_, staged = model.staged_predict_proba(X)
    for found in (model.predict_proba(X), staged):
        for mine, theirs, labels in zip(found, wanted.predict_proba(FRAME), ([False, True], ["few", "many"]), strict=True):
            assert mine.columns.tolist() == labels
            np.testing.assert_array_equal(mine.compute().to_numpy(), theirs)
    assert model.score(X, lazy) == wanted.score(FRAME, y)


def test_what_is_refused(client: Client) -> None:
    X = in_partitions(FRAME, LENGTHS[3])
    missing = Y.copy()
    missing.iloc[200, 1] = np.nan
    with pytest.raises(ValueError, match=r"y contains NaN.*y\[:, 1\]"):
        make().fit(X, in_partitions(missing, LENGTHS[3]))
    with pytest.raises(ValueError, match=r"eval_set 'validation_0': y has the shape .*; wants \(n, 3\)"):
        make().fit(X, in_partitions(Y, LENGTHS[3]), eval_set=[(X, in_partitions(Y["value"], LENGTHS[3]))])
    with pytest.raises(ValueError, match="in the same partitions"):
        make().fit(X, in_partitions(Y, [120, 200, 100]))
