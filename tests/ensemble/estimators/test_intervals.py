"""Intervals: their coverage, and that they are those of conformal prediction, step by step."""

import math
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dtrees
from dtrees import GradientBoostingRegressor, RandomForestRegressor
from tests.ensemble.samples import SIGNAL, N, X

QUANTILES = {"loss": "quantile", "alpha": [0.05, 0.95]}


def noisy(n, seed=0):
    """Rows whose noise grows with the first column."""
    r = np.random.default_rng(seed)
    X = r.uniform(size=(n, 3))
    return X, np.sin(5 * X[:, 1]) + (0.1 + 2 * X[:, 0]) * r.normal(size=n)


def covered(intervals, y):
    low, high = np.asarray(intervals).T
    return float(np.mean((low <= y) & (y <= high)))


def forest(**parameters):
    return RandomForestRegressor(**{"n_estimators": 60, "min_samples_leaf": 10, "keep_targets": True, "random_state": 0, **parameters})


def boosting(**parameters):
    return GradientBoostingRegressor(**{"n_estimators": 30, "learning_rate": 0.1, "random_state": 0, **parameters})


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.97])
def test_as_many_rows_are_covered_as_wanted(coverage):
    """Within four standard deviations of chance, for 1,000 rows of calibration and 2,000 test rows."""
    X, y = noisy(4000)
    fit, calibrate, test = slice(1000), slice(1000, 2000), slice(2000, None)
    chance = 4 * math.sqrt(coverage * (1 - coverage) * (1 / 1000 + 1 / 2000))
    widths = {}
    for name, model in {
        "forest": forest().fit(X[fit], y[fit]),
        "quantiles": boosting(**QUANTILES).fit(X[fit], y[fit]).calibrate(X[calibrate], y[calibrate]),
        "mean": boosting().fit(X[fit], y[fit]).calibrate(X[calibrate], y[calibrate]),
    }.items():
        intervals = model.predict_interval(X[test], coverage)
        assert abs(covered(intervals, y[test]) - coverage) < chance, name
        quiet = X[test][:, 0] < 0.3
        widths[name] = (np.diff(intervals, axis=1)[quiet].mean(), np.diff(intervals, axis=1)[~quiet].mean())
    assert widths["mean"][0] == pytest.approx(widths["mean"][1])
    if coverage == 0.9:
        assert all(1.5 * widths[name][0] < widths[name][1] for name in ("forest", "quantiles"))


@pytest.mark.parametrize("alpha", [None, [0.1, 0.5, 0.9]])
@pytest.mark.parametrize("coverage", [0.3, 0.8, 0.95])
def test_calibrated_intervals_step_by_step(alpha, coverage):
    """The margin is the score of rank ceil((n + 1) coverage)."""
    model = (boosting() if alpha is None else boosting(loss="quantile", alpha=alpha)).fit(X[:150], SIGNAL[:150])
    assert model.calibrate(X[150:], SIGNAL[150:]) is model
    predicted = model.predict(X).reshape(N, -1)
    low, high = predicted[:, 0], predicted[:, -1]
    scores = [max(low[i] - SIGNAL[i], SIGNAL[i] - high[i]) for i in range(150, N)]
    assert model.conformity_scores_.tolist() == sorted(scores)
    margin = sorted(scores)[math.ceil((len(scores) + 1) * coverage) - 1]
    for i, (found, other) in enumerate(model.predict_interval(X, coverage)):
        wanted = (low[i] - margin, high[i] + margin)
        assert (found, other) == (wanted if wanted[0] <= wanted[1] else (found, found))
        assert found <= other
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict_interval(X, coverage), model.predict_interval(X, coverage))


def test_intervals_of_forests_step_by_step():
    model = forest(n_estimators=5, min_samples_leaf=3).fit(X, SIGNAL)
    leaves, drawn = model.apply(X), [np.bincount(rows, minlength=N) for rows in model.estimators_samples_]
    scores = []
    for i in range(N):
        weight = np.zeros(N)
        for tree, counts in enumerate(drawn):
            if not counts[i]:
                here = (leaves[:, tree] == leaves[i, tree]) * counts
                weight += here / here.sum()
        if weight.any():
            low, high = np.quantile(SIGNAL, [0.1, 0.9], weights=weight * (1 + 1e-12), method="inverted_cdf")
            scores.append(max(low - SIGNAL[i], SIGNAL[i] - high))
    assert len(scores) < N  # some rows are drawn by all trees
    margin = sorted(scores)[math.ceil((len(scores) + 1) * 0.8) - 1]
    found = model.predict_interval(X, 0.8)
    assert_array_equal(found, model.predict_quantiles(X, [0.1, 0.9]) + np.array([-margin, margin]))
    assert_array_equal(model.set_params(n_jobs=2).predict_interval(X, 0.8), found)


def test_rows_of_no_weight_do_not_calibrate():
    weight = (np.arange(N) % 3 > 0).astype(float)
    wild = np.where(weight > 0, SIGNAL, 1e6)
    tame = np.where(weight > 0, SIGNAL, 0.0)
    found = [forest(min_samples_leaf=3).fit(X, y, weight).predict_interval(X) for y in (wild, tame)]
    assert_array_equal(*found)


def test_files_and_what_takes_intervals_away(tmp_path):
    model = boosting(**QUANTILES, warm_start=True).fit(X[:200], SIGNAL[:200]).calibrate(X[200:], SIGNAL[200:])
    dtrees.save(model, tmp_path / "model.dtrees")
    assert_array_equal(dtrees.load(tmp_path / "model.dtrees").predict_interval(X, 0.8), model.predict_interval(X, 0.8))
    for other in (model[:10], model.refit_leaves(X, SIGNAL), pickle.loads(pickle.dumps(model)).set_params(n_estimators=31).fit(X, SIGNAL)):
        with pytest.raises(ValueError, match=r"call calibrate\(X, y\) with rows that it was not fitted on"):
            other.predict_interval(X)


def test_scores_that_trees_are_added_to():
    margin = np.nan_to_num(X[:, 1])
    model = boosting().fit(X[:200], SIGNAL[:200], base_margin=margin[:200])
    model.calibrate(X[200:], SIGNAL[200:], base_margin=margin[200:])
    found = model.predict_interval(X, 0.8, base_margin=margin)
    assert np.allclose(found.mean(axis=1), model.predict(X, base_margin=margin))
    with pytest.raises(ValueError, match="pass base_margin"):
        model.predict_interval(X)


def test_refusals():
    model = boosting().fit(X, SIGNAL)
    with pytest.raises(ValueError, match=r"call calibrate\(X, y\)"):
        model.predict_interval(X)
    with pytest.raises(ValueError, match="all must describe the same rows|has 10 rows"):
        model.calibrate(X[:10], SIGNAL[:9])
    model.calibrate(X[:8], SIGNAL[:8])
    with pytest.raises(ValueError, match=r"coverage=0.9 wants 9 rows at least to calibrate with, but there are 8"):
        model.predict_interval(X, 0.9)
    for coverage in (0, 1, True, "all", np.nan):
        with pytest.raises(ValueError, match="wants a number between 0 and 1"):
            model.predict_interval(X, coverage)
    several = boosting().fit(X, np.column_stack([SIGNAL, SIGNAL]))
    with pytest.raises(ValueError, match="the model has 2 targets; intervals are of one"):
        several.calibrate(X, SIGNAL)
    times = np.column_stack([np.exp(SIGNAL / 4)] * 2)
    with pytest.raises(ValueError, match="loss='cox' predicts no values of y"):
        boosting(loss="cox").fit(X, times).calibrate(X, times)


@pytest.mark.slow
def test_houses(california_housing: Path):
    table = pd.read_csv(california_housing).sample(frac=1.0, random_state=0)
    X, y = table.drop(columns="median_house_value"), table["median_house_value"].to_numpy()
    fit, calibrate, test = slice(8000), slice(8000, 10000), slice(10000, None)
    models = [
        forest(max_features=0.4, min_samples_leaf=5, n_jobs=-1).fit(X[fit], y[fit]),
        boosting(**QUANTILES, n_estimators=100).fit(X[fit], y[fit]).calibrate(X[calibrate], y[calibrate]),
    ]
    for model in models:
        assert 0.88 < covered(model.predict_interval(X[test]), y[test]) < 0.93
