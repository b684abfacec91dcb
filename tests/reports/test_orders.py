"""Reports of rankings, survival models and isolation forests: scores and pictures that these have, and sentences about what is left out."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import dtrees
from dtrees.reports.behaviour import Looked, rises_by_shuffling, take_rows
from dtrees.reports.orders import kaplan_meier, target_of
from tests.reports.test_report import BEHAVIOUR, Page, assert_self_contained, headings, row

RANDOM = np.random.default_rng(3)
X = pd.DataFrame(RANDOM.normal(size=(400, 5)), columns=list("abcde"))
QUERY = RANDOM.integers(0, 25, 400)
RELEVANCE = np.digitize(X["a"] + 0.5 * RANDOM.normal(size=400), [0.5, 1.5])
LIFETIME = np.exp(-X["b"].to_numpy()) * RANDOM.exponential(size=400)
TIMES = pd.DataFrame({"event": LIFETIME < 2.0, "time": np.minimum(LIFETIME, 2.0)})
STRANGE = np.arange(400) % 20 == 0
MOVED = X.assign(a=X["a"] + 6 * STRANGE)
NO_ERRORS = "Left out: predictions of this model are compared with one another"


@pytest.fixture(scope="module")
def ranker():
    return dtrees.GradientBoostingRanker(n_estimators=10).fit(X, RELEVANCE, qid=QUERY, eval_set=[(X, RELEVANCE, QUERY)])


@pytest.fixture(scope="module")
def cox():
    return dtrees.GradientBoostingRegressor(loss="cox", n_estimators=10).fit(X, TIMES)


@pytest.fixture(scope="module")
def forest():
    return dtrees.IsolationForest(10, random_state=0).fit(MOVED)


def test_of_a_ranker(ranker):
    report = dtrees.report(ranker, X, RELEVANCE, qid=QUERY, rows="of the fit")
    page = assert_self_contained(report.html, pictures=1 + 1 + BEHAVIOUR + 2)
    assert "Learning curves" in headings(report.html)
    assert float(row(page, "NDCG")[1]) == pytest.approx(ranker.score(X, RELEVANCE, qid=QUERY), abs=1e-4)
    assert float(row(page, "NDCG@10")[2]) < float(row(page, "NDCG@10")[1])
    assert row(page, "task")[1] == "ranking"
    assert NO_ERRORS in page.text
    assert "How much the NDCG of 400 rows falls" in page.text
    assert "always predicts a random order of each query" in page.text


def test_of_survival(cox):
    report = dtrees.report(cox, X, TIMES, rows="of the fit")
    page = assert_self_contained(report.html, pictures=1 + BEHAVIOUR + 2)
    assert float(row(page, "concordance")[1]) == pytest.approx(cox.score(X, TIMES), abs=1e-4)
    assert float(row(page, "concordance")[2]) == 0.5
    assert row(page, "task")[1] == "survival"
    assert NO_ERRORS in page.text
    assert "observed (Kaplan-Meier); dashed, the means that the model predicts." in page.text
    assert "The row with the highest relative hazard: " in page.text
    assert "observed (Kaplan-Meier)." in dtrees.report(cox[:5], X, TIMES, n_trees=0).html  # which has no baseline hazard


def test_of_intervals_of_times():
    bounds = np.column_stack([LIFETIME, LIFETIME + 0.5])
    aft = dtrees.GradientBoostingRegressor(loss="aft", n_estimators=5).fit(X, bounds)
    page = assert_self_contained(dtrees.report(aft, X, bounds, n_trees=0).html, pictures=1 + BEHAVIOUR)
    assert "Left out: curves of survival need times that are known or censored on the right." in page.text
    assert "The row with the earliest predicted time: " in page.text


@pytest.mark.parametrize("labels", [None, STRANGE, np.where(STRANGE, -1, 1)])
def test_of_an_isolation_forest(forest, labels):
    report = dtrees.report(forest, MOVED, labels, rows="of the fit")
    page = assert_self_contained(report.html, pictures=1 + (labels is not None) + 6 + 2 + 2)
    normal = forest.score_samples(MOVED)
    assert row(page, "share of outliers")[1:3] == [f"{np.mean(normal < -0.5):.4g}", "-"]
    assert ("ROC AUC" in page.text) == (labels is not None)
    if labels is not None:
        assert float(row(page, "ROC AUC")[1]) == pytest.approx(roc_auc_score(STRANGE, -normal), abs=1e-4)
    assert ("Left out: an isolation forest has no importances without labels." in page.text) == (labels is None)
    assert NO_ERRORS in page.text
    assert f"The row with the lowest score: {normal.min():.3f}"[:-1] in page.text
    assert "in the order of the table" in page.text
    assert row(page, "a")[-1] == "-"


def test_a_sample_has_whole_queries(ranker):
    rows = take_rows(ranker, X, RELEVANCE, None, None, 100, 0, QUERY)
    (target,) = rows.targets
    assert 60 < rows.n <= 100
    assert rows.n_total == 400
    sizes = pd.Series(target.queries).value_counts()
    assert (sizes == pd.Series(QUERY).value_counts()[sizes.index]).all()
    some = Looked.of(ranker, rows).some(50)
    assert len(some.sample) == len(some.target.actual) <= 50
    np.testing.assert_array_equal(ranker.predict(some.sample.table), some.target.predicted)


def test_importances_by_shuffling_are_falls_of_measures(ranker, forest):
    looked = Looked.of(ranker, take_rows(ranker, X, RELEVANCE, None, None, None, 0, QUERY))
    order = np.random.default_rng(0).permutation(400)

    shuffled = X.assign(a=X["a"].to_numpy()[order])
    fall = ranker.score(X, RELEVANCE, qid=QUERY) - ranker.score(shuffled, RELEVANCE, qid=QUERY)
    assert rises_by_shuffling(looked)[0, 0] == pytest.approx(fall)
    labelled = Looked.of(forest, take_rows(forest, MOVED, STRANGE, None, None, None, 0))
    assert rises_by_shuffling(labelled).mean(axis=1).argmax() == 0


def test_weights_and_dask_collections(ranker, cox):
    import dask.dataframe as dd

    weight = 1.0 + np.arange(400) % 3
    scores = target_of(cox, TIMES, cox.predict(X), weight).scores(cox)[1]
    assert scores[0].model == cox.score(X, TIMES, weight)
    lazy = [dd.from_pandas(one, npartitions=3) for one in (X, pd.Series(RELEVANCE), pd.Series(QUERY))]
    here = take_rows(ranker, X, RELEVANCE, None, None, 100, 0, QUERY)
    there = take_rows(ranker, *lazy[:2], None, None, 100, 0, lazy[2])
    np.testing.assert_array_equal(there.targets[0].actual, here.targets[0].actual)
    np.testing.assert_array_equal(there.targets[0].predicted, here.targets[0].predicted)
    page = Page(dtrees.report(cox, lazy[0], dd.from_pandas(TIMES, npartitions=3), n_trees=0, max_rows=200).html)
    assert "200 of 400 rows, drawn at random" in page.text


def test_the_estimate_of_kaplan_and_meier(cox):
    """With weights that count rows, it is that of repeated rows; without censoring, it is the share that is left."""
    weight = 1 + np.arange(400) % 3
    target = target_of(cox, TIMES, cox.predict(X), weight.astype(float))
    repeated = target_of(cox, TIMES.loc[np.repeat(np.arange(400), weight)], np.zeros(weight.sum()))
    for found, wanted in zip(kaplan_meier(target), kaplan_meier(repeated), strict=True):
        np.testing.assert_allclose(found, wanted)
    times, left = kaplan_meier(target_of(cox, np.column_stack([LIFETIME, LIFETIME]), np.zeros(400)))
    np.testing.assert_allclose(left, (times[:, np.newaxis] < LIFETIME).mean(axis=1), atol=1e-12)


def test_what_cannot_be_reported(ranker, forest):
    with pytest.raises(ValueError, match="qid is None; a ranker wants the query of each row"):
        dtrees.report(ranker, X, RELEVANCE)
    with pytest.raises(ValueError, match="y has labels other than those of outliers; wants 1 or True for outliers"):
        dtrees.report(forest, MOVED, np.arange(400) % 3)
