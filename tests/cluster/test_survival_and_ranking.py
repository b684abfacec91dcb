"""Boosting of censored times and of rankings on a cluster; its targets have two columns, and its gradients depend on all rows."""

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client

import dtrees
from tests.cluster.samples import FRAME, LENGTHS, assert_same_model, in_partitions, numbers, targets, weights
from tests.slow import one_quick

VALUE = targets(FRAME)["regression"]
RNG = np.random.default_rng(4)
TIME = (np.exp(VALUE / 4) * RNG.exponential(size=len(VALUE)) + 0.1).round(1)
EVENTS = pd.DataFrame({"event": RNG.random(len(TIME)) < 0.7, "time": TIME})
BOUNDS = np.column_stack([TIME, TIME.where(EVENTS["event"], np.inf)])
RELEVANCE = pd.Series(np.digitize(VALUE, [0.5, 2.0, 3.0]), name="relevance")
#: Rows of each query are spread over all partitions.
QUERY = pd.Series(RNG.integers(0, 30, len(VALUE)), name="query")
LAZY = in_partitions(FRAME, LENGTHS[7])


def lazily(data: Any, length: int = 7) -> Any:
    return in_partitions(data, LENGTHS[length])


def survival(loss: str, **parameters: Any) -> dtrees.GradientBoostingRegressor:
    return dtrees.GradientBoostingRegressor(loss=loss, n_estimators=4, subsample=0.8, random_state=0, **parameters)


def ranker(**parameters: Any) -> dtrees.GradientBoostingRanker:
    return dtrees.GradientBoostingRanker(n_estimators=4, subsample=0.8, random_state=0, **parameters)


@pytest.mark.parametrize(("loss", "placement"), [("cox", "sharded"), ("aft", "rows"), pytest.param("cox", "rows", marks=pytest.mark.slow)])
def test_survival_wherever_rows_are(client: Client, loss: str, placement: str) -> None:
    wanted = survival(loss).fit(FRAME, BOUNDS, weights(), eval_set=[(FRAME, EVENTS)])
    model = survival(loss).fit(LAZY, lazily(EVENTS), lazily(weights()), eval_set=[(LAZY, lazily(EVENTS, 3))], placement=placement)
    assert_same_model(model, wanted)
    assert model.placement_.kind == placement
    for name, scores in wanted.evals_result_["validation_0"].items():
        np.testing.assert_array_equal(model.evals_result_["validation_0"][name], scores)
    found = model.predict_survival_function(LAZY, [0.5, 2.0])
    assert found.columns.tolist() == [0.5, 2.0]
    np.testing.assert_array_equal(found.compute().to_numpy(), wanted.predict_survival_function(FRAME, [0.5, 2.0]))
    if loss == "cox":
        np.testing.assert_array_equal(model.cumulative_baseline_hazard_, wanted.cumulative_baseline_hazard_)
    assert model.score(LAZY, lazily(EVENTS)) == wanted.score(FRAME, BOUNDS)


def test_kinds_of_times(client: Client) -> None:
    X = numbers(FRAME)
    wanted, lazy = survival("cox").fit(X, BOUNDS), da.from_array(X, chunks=(100, 3))
    for y in (da.from_array(BOUNDS, chunks=(130, 1)), da.from_array(EVENTS.to_records(index=False), chunks=90), BOUNDS):
        assert_same_model(survival("cox").fit(lazy, y), wanted)
    with pytest.raises(ValueError, match="wants an event"):
        survival("cox").fit(LAZY, lazily(VALUE))
    with pytest.raises(ValueError, match="y has no event"):
        survival("cox").fit(lazy, np.where([False, True], np.inf, BOUNDS))


@pytest.mark.parametrize("placement", one_quick(["rows", "sharded"]))
def test_rankings_wherever_rows_are(client: Client, placement: str) -> None:
    test = FRAME[100:], RELEVANCE[100:], QUERY[100:]
    wanted = ranker(early_stopping_rounds=2).fit(FRAME, RELEVANCE, weights(), qid=QUERY, eval_set=[test])
    sets = [tuple(dd.from_pandas(one, npartitions=3, sort=False) for one in test)]
    model = ranker(early_stopping_rounds=2)
    model.fit(LAZY, lazily(RELEVANCE), lazily(weights()), qid=lazily(QUERY), eval_set=sets, placement=placement)
    assert_same_model(model, wanted)
    assert model.best_score_ == wanted.best_score_
    np.testing.assert_array_equal(model.predict(LAZY).compute().to_numpy(), wanted.predict(FRAME))
    assert model.score(LAZY, lazily(RELEVANCE), qid=lazily(QUERY)) == wanted.score(FRAME, RELEVANCE, qid=QUERY)


def test_kinds_of_queries(client: Client) -> None:
    X, y, qid = numbers(FRAME), RELEVANCE.to_numpy(), QUERY.to_numpy()
    wanted, lazy = ranker().fit(X, y, qid=qid), da.from_array(X, chunks=(100, 3))
    for given, of in (
        (da.from_array(y, chunks=90), da.from_array(qid, chunks=200)),
        (da.from_array(y, chunks=90), qid),
        (lazily(RELEVANCE), lazily(QUERY)),
        (y, da.from_array(qid, chunks=200)),
    ):
        assert_same_model(ranker().fit(lazy, given, qid=of), wanted)
    assert_same_model(dtrees.submit(ranker(), lazy, y, qid=qid).result(), wanted)
    with pytest.raises(ValueError, match="qid is a ndarray in memory, but y is a Series of partitions whose numbers of rows are not known"):
        ranker().fit(LAZY, lazily(RELEVANCE), qid=qid)
    with pytest.raises(ValueError, match="qid has 3 partitions but y has 7"):
        ranker().fit(LAZY, lazily(RELEVANCE), qid=lazily(QUERY, 3))
    with pytest.raises(ValueError, match="qid is None"):
        ranker().fit(LAZY, lazily(RELEVANCE))
