"""Boosting of rankings."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dtrees
from dtrees.ensemble.objective.ranking import LambdaRank
from tests.ensemble.samples import WEIGHT, N, X, assert_same_trees, make

Ranker = dtrees.GradientBoostingRanker
RNG = np.random.default_rng(7)
QUERY = RNG.integers(0, 25, N)
RELEVANCE = np.digitize(X[:, 0] + X[:, 1] + RNG.normal(scale=0.5, size=N), [0.5, 1.5, 2.5])


def test_no_matter_how_queries_are_numbered_and_spread(tmp_path):
    """Only which rows belong to the same query matters; threads, later rounds, files and checkpoints do not change the model."""
    settings = {"n_estimators": 12, "subsample": 0.8}
    model = make(Ranker, **settings).fit(X, RELEVANCE, WEIGHT, qid=QUERY, checkpoint=tmp_path / "checkpoint")
    for qid in (1000.0 - 7 * QUERY, QUERY.astype(np.int8), QUERY.tolist(), QUERY[:, np.newaxis]):
        assert_same_trees(make(Ranker, **settings).fit(X, RELEVANCE, WEIGHT, qid=qid), model)
    assert_same_trees(make(Ranker, n_jobs=4, **settings).fit(X, RELEVANCE, WEIGHT, qid=QUERY), model)
    assert_same_trees(make(Ranker, **settings).fit(X, RELEVANCE, WEIGHT, qid=QUERY, checkpoint=tmp_path / "checkpoint"), model)
    more = make(Ranker, **{**settings, "n_estimators": 5, "warm_start": True}).fit(X, RELEVANCE, WEIGHT, qid=QUERY)
    assert_same_trees(more.set_params(n_estimators=12).fit(X, RELEVANCE, WEIGHT, qid=QUERY), model)
    dtrees.save(model, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.score(X, RELEVANCE, qid=QUERY) == model.score(X, RELEVANCE, qid=QUERY)
    *_, last = model.staged_predict(X)
    assert_array_equal(last, model.predict(X))


def test_early_stopping():
    train, test = QUERY % 3 > 0, QUERY % 3 == 0
    model = make(Ranker, n_estimators=60, early_stopping_rounds=4, learning_rate=0.3, eval_metric=["map", "ndcg@5", "ndcg"])
    model.fit(X[train], RELEVANCE[train], qid=QUERY[train], eval_set={"test": (X[test], RELEVANCE[test], QUERY[test])})
    scores = model.evals_result_["test"]
    assert list(scores) == ["map", "ndcg@5", "ndcg"]
    assert model.best_iteration_ == np.argmax(scores["ndcg"]) < 59
    assert model.score(X[test], RELEVANCE[test], qid=QUERY[test]) == model.best_score_ > 0.85
    target = np.stack([RELEVANCE[test], QUERY[test]]).astype(float)
    assert LambdaRank().measure("ndcg", target, model.predict(X[test])[np.newaxis], None) == model.best_score_


def made_up(n_queries, seed):
    """Queries of up to 40 rows, whose relevance mostly depends on the columns."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(1, 40, n_queries))
    table = rng.normal(size=(len(qid), 6))
    signal = table[:, 0] + np.sin(2 * table[:, 1]) + table[:, 2] * table[:, 3] + rng.normal(scale=0.7, size=len(qid))
    return table, np.digitize(signal, [0.5, 1.5, 2.5, 3.2]), qid


def test_it_is_as_good_as_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    (table, relevance, qid), (others, truth, of_others) = made_up(150, 0), made_up(150, 1)
    shape = {"n_estimators": 30, "learning_rate": 0.1, "reg_lambda": 0.0, "random_state": 0}
    model = Ranker(**shape, max_leaf_nodes=32, max_depth=None, min_samples_leaf=20, max_features=None).fit(table, relevance, qid=qid)
    bins = {"max_bin": 5000, "min_data_in_bin": 1}  # one bin for each value
    theirs = lightgbm.LGBMRanker(**shape, **bins, num_leaves=32, verbose=-1, n_jobs=1).fit(table, relevance, group=np.bincount(qid))
    target = np.stack([truth, of_others]).astype(float)
    ours = model.score(others, truth, qid=of_others)
    assert ours > LambdaRank().measure("ndcg", target, theirs.predict(others)[np.newaxis], None) - 0.01 > 0.85


def test_refitted_leaves():
    """For the same rows, steps do not change; for other rows, they are computed from these."""
    model = make(Ranker, n_estimators=4, max_features=None).fit(X, RELEVANCE, WEIGHT, qid=QUERY)
    assert_array_equal(model.refit_leaves(X, RELEVANCE, WEIGHT, qid=QUERY, decay=0.0).predict(X), model.predict(X))
    other = model.refit_leaves(X, 3 - RELEVANCE, qid=QUERY, decay=0.0)
    assert other.score(X, 3 - RELEVANCE, qid=QUERY) > model.score(X, 3 - RELEVANCE, qid=QUERY)


@pytest.mark.parametrize(
    ("parameters", "given", "message"),
    [
        ({}, {}, "qid is None; a ranker wants the query of each row"),
        ({}, {"qid": QUERY[:-1]}, r"y has the shape \(300,\) and qid \(299,\)"),
        ({}, {"qid": np.full(N, "a")}, "qid cannot be turned into numbers"),
        ({}, {"qid": np.full(N, np.nan)}, "qid contains NaN"),
        ({}, {"qid": QUERY + 2**53}, "beyond 2"),
        ({"init": dtrees.DecisionTreeRegressor()}, {"qid": QUERY}, "wants 'zero' or None"),
        ({"n_iter_no_change": 3}, {"qid": QUERY}, "n_iter_no_change=3 holds out rows"),
        ({"eval_metric": "auc"}, {"qid": QUERY}, "eval_metric has 'auc'; wants, for this loss, some of ndcg, map"),
        ({"eval_metric": "ndcg@0"}, {"qid": QUERY}, "'ndcg@0'"),
        ({}, {"qid": QUERY, "eval_set": [(X, RELEVANCE)]}, r"wants a list of tuples \(X, y, qid\)"),
    ],
)
def test_what_is_refused(parameters, given, message):
    with pytest.raises(ValueError, match=message):
        make(Ranker, **parameters).fit(X, RELEVANCE, **given)


def test_relevances_that_are_refused():
    with pytest.raises(ValueError, match="whole numbers from 0 to 31"):
        make(Ranker).fit(X, RELEVANCE / 2, qid=QUERY)
    assert make(Ranker, ndcg_exp_gain=False).fit(X, RELEVANCE / 2, qid=QUERY).score(X, RELEVANCE / 2, qid=QUERY) > 0.8
    with pytest.raises(ValueError, match="must be a str among"):
        make(dtrees.GradientBoostingRegressor, loss="lambdarank").fit(X, RELEVANCE)
