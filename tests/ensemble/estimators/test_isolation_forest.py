"""Isolation forests: trees and scores compared with the oracle, and with scikit-learn's; weights, missing values, files, other tools."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
from sklearn.metrics import roc_auc_score

import dtrees
from dtrees.engine.plan.plans import ForestPlan, Rules
from dtrees.engine.plan.row_draws import RowDraws, find_drawing
from dtrees.ensemble.input.target import target_of_rows
from dtrees.interop import dtrees_numpy
from tests.engine.by_the_book import check_forest
from tests.engine.shards import wild_table

RNG = np.random.default_rng(0)
#: Rows of two clouds, and some anywhere.
X = np.concatenate([RNG.normal(size=(1500, 4)), RNG.normal(3.0, 0.5, size=(500, 4)), RNG.uniform(-8, 8, (40, 4))])
PLANTED = np.arange(len(X)) >= 2000


def test_trees_by_the_book() -> None:
    table = wild_table(60, 1)
    plan = ForestPlan(Rules("squared_error", 1, 4, random_splits=True, max_depth=6), seed=3, n_draws=40, distinct_draws=True)
    for tree in check_forest(table, target_of_rows(0, 60), None, plan):
        assert tree.n_node_samples[0] == 40


def c(n: int) -> float:
    """Return the mean path length of the paper, equation 1, with the harmonic number's approximation."""
    return 0.0 if n == 1 else 1.0 if n == 2 else 2.0 * (np.log(n - 1.0) + 0.5772156649015329) - 2.0 * (n - 1.0) / n


def scores_by_hand(model: Any, rows: np.ndarray) -> np.ndarray:
    """Pass rows through trees, and count the steps."""
    found = []
    for x in rows:
        lengths = []
        for tree in model._trees.groups[0]:
            node, depth = 0, 0
            while tree.feature[node] >= 0:
                value = x[tree.feature[node]]
                left = tree.missing_go_to_left[node] if np.isnan(value) else value <= tree.threshold[node]
                node, depth = int(tree.children_left[node] if left else tree.children_right[node]), depth + 1
            lengths.append(depth + c(int(tree.n_node_samples[node])))
        found.append(-(2.0 ** (-np.mean(lengths) / c(model.max_samples_))))
    return np.array(found)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_scores_by_hand(bootstrap: bool) -> None:
    table = np.where(RNG.random(X.shape) < 0.1, np.nan, np.round(X))
    model = dtrees.IsolationForest(n_estimators=7, max_samples=100, bootstrap=bootstrap, random_state=0).fit(table)
    assert {tree.max_depth for tree in model._trees.groups[0]} == {7}
    np.testing.assert_allclose(model.score_samples(table[:200]), scores_by_hand(model, table[:200]), rtol=1e-12)
    samples = model.estimators_samples_
    assert [len(rows) for rows in samples] == [100] * 7
    assert all(len(set(rows.tolist())) == 100 for rows in samples) != bootstrap


@pytest.mark.parametrize("parameters", [{}, {"max_samples": 1.0, "max_features": 2}, {"bootstrap": True, "contamination": 0.02}])
def test_what_scikit_learn_finds(parameters: dict[str, Any]) -> None:
    ours = dtrees.IsolationForest(random_state=0, **parameters).fit(X)
    theirs = sklearn.ensemble.IsolationForest(random_state=0, **parameters).fit(X)
    a, b = ours.score_samples(X), theirs.score_samples(X)
    assert np.corrcoef(a, b)[0, 1] > 0.95
    assert abs(roc_auc_score(PLANTED, -a) - roc_auc_score(PLANTED, -b)) < 0.02
    assert abs(a.mean() - b.mean()) < 0.01
    assert ours.offset_ == pytest.approx(theirs.offset_, abs=0.02)
    assert (ours.max_samples_, ours.get_params().keys()) == (theirs.max_samples_, theirs.get_params().keys())
    assert np.array_equal(ours.decision_function(X), a - ours.offset_)
    assert np.array_equal(ours.predict(X), np.where(a < ours.offset_, -1, 1))
    if "contamination" in parameters:
        assert abs(np.mean(ours.predict(X) == -1) - 0.02) < 0.002


def test_draws_by_weight() -> None:
    """Rows are drawn one after the other, each with a probability proportional to its weight among the rest, as in NumPy."""
    weight = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    plan = ForestPlan(Rules("squared_error", 1, 1), seed=5, n_draws=2, distinct_draws=True)
    draws = RowDraws.of_table(plan, np.zeros(5), weight)
    found = Counter(tuple(np.flatnonzero(draws.counts(tree)).tolist()) for tree in range(6000))
    assert {len(rows) for rows in found} == {2}
    p = weight / weight.sum()
    for (i, j), n in found.items():
        assert n / 6000 == pytest.approx(p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j])), abs=0.02)
    model = dtrees.IsolationForest(max_samples=3, random_state=0).fit(np.arange(5.0)[:, None], sample_weight=weight)
    assert not any(0 in rows for rows in model.estimators_samples_)


def test_draws_of_some_ranges_of_rows() -> None:
    plan = ForestPlan(Rules("squared_error", 1, 1), seed=5, n_draws=30, distinct_draws=True)
    ranges = np.array([[0, 20], [50, 90]])
    drawing, before = find_drawing(plan, np.zeros(100), None, ranges[:, 0])
    whole, some = RowDraws.of_table(plan, np.zeros(100), None), RowDraws(drawing, plan.seed, ranges, before, np.zeros(60), None)
    for tree in range(3):
        counts = whole.counts(tree)
        assert (counts.sum(), counts.max()) == (30, 1)
        assert np.array_equal(some.counts(tree), np.r_[counts[:20], counts[50:90]])


@pytest.mark.filterwarnings("ignore:max_samples")
def test_small_tables() -> None:
    assert dtrees.IsolationForest(3).fit([[1.0]]).score_samples([[1.0], [9.0]]).tolist() == [-0.5, -0.5]
    same = dtrees.IsolationForest(3, random_state=0).fit(np.ones((50, 2)))
    assert [tree.node_count for tree in same._trees.groups[0]] == [1, 1, 1]
    assert np.allclose(same.score_samples(np.zeros((2, 2))), -0.5, rtol=1e-15)
    missing = np.full((64, 1), np.nan)
    missing[:60] = 1.0
    rare = dtrees.IsolationForest(20, random_state=0).fit(missing).score_samples([[1.0], [np.nan]])
    assert rare[1] < rare[0]
    with pytest.warns(UserWarning, match="max_samples is 9, greater than the total number of samples: all 4 rows"):
        assert dtrees.IsolationForest(3, max_samples=9).fit([[1.0], [2.0], [3.0], [4.0]]).max_samples_ == 4
    with pytest.raises(ValueError, match="max_features is 3, but X has 2 columns"):
        dtrees.IsolationForest(max_features=3).fit(np.ones((5, 2)))


def test_frames_and_dask(tmp_path: Path) -> None:
    """Categories are ordered by their numbers; for a Dask collection, predictions are lazy."""
    import dask.dataframe as dd

    frame = pd.DataFrame({"x": X[:, 0], "size": pd.Categorical(RNG.choice(["s", "m", "l"], len(X)), ["s", "m", "l"], ordered=True)})
    model = dtrees.IsolationForest(10, contamination=0.05, random_state=0).fit(frame)
    lazy = dtrees.IsolationForest(10, contamination=0.05, random_state=0).fit(dd.from_pandas(frame, npartitions=3))
    assert lazy.offset_ == model.offset_
    scores = lazy.score_samples(dd.from_pandas(frame, npartitions=2))
    assert (scores.dtype, lazy.predict(dd.from_pandas(frame, npartitions=2)).dtype) == (np.float64, np.int64)
    assert np.array_equal(scores.compute(), model.score_samples(frame))


def test_files_and_other_tools(tmp_path: Path) -> None:
    model = dtrees.IsolationForest(5, contamination=0.1, random_state=0).fit(X)
    dtrees.save(model, tmp_path / "model")
    loaded, plain = dtrees.load(tmp_path / "model"), dtrees_numpy.load(tmp_path / "model")
    for method in ("score_samples", "decision_function", "predict"):
        wanted = getattr(model, method)(X)
        assert getattr(loaded, method)(X).tobytes() == getattr(plain, method)(X).tobytes() == wanted.tobytes()
    assert (loaded.offset_, loaded.max_samples_) == (model.offset_, model.max_samples_)
    further = loaded.set_params(warm_start=True, n_estimators=8, random_state=0).fit(X)
    whole = dtrees.IsolationForest(8, contamination=0.1, random_state=0).fit(X)
    assert all(a.equals(b) for a, b in zip(further._trees.groups[0], whole._trees.groups[0], strict=True))
    assert further.offset_ == whole.offset_
    for carry in (dtrees.to_onnx, dtrees.to_xgboost, dtrees.to_treelite, dtrees.to_jax, dtrees.to_sklearn):
        with pytest.raises((ValueError, TypeError), match=re.escape("is an IsolationForest")):
            carry(model)
    lengths = -np.log2(-model.score_samples(X[:20]))
    np.testing.assert_allclose(model.shap_values(X[:20]).sum(axis=1) + model.shap_expected_value(), lengths)


def test_what_wants_a_target_is_not_there() -> None:
    model = dtrees.IsolationForest(2).fit(X)
    for name in ("feature_importances_", "oob_permutation_importances", "refit_leaves"):
        with pytest.raises(AttributeError, match="an isolation forest has no target"):
            getattr(model, name)
    with pytest.raises(TypeError, match="IsolationForest has no parameter 'max_depth'"):
        dtrees.IsolationForest(max_depth=3)
    text = str(dtrees.IsolationForest.__doc__)
    assert not re.search("oob_score_|feature_importances_", text)
    assert "a threshold is drawn uniformly" in text
