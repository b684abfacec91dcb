"""Slices of ensembles, and predictions of their first trees."""

import pickle

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    FORESTS,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    assert_same_trees,
    every_ensemble,
    is_classifier,
    make,
    target,
)

FILLED = np.nan_to_num(X)
BOTH = np.column_stack([SIGNAL, -SIGNAL])
SLICES = [
    slice(3),
    slice(5, None),
    slice(2, 6),
    slice(-3, None),
    slice(None, -2),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(7, 1, -3),
]
CASES = [(kind, target(kind)) for kind in FORESTS + BOOSTING] + [
    (dtrees.GradientBoostingClassifier, SIGNAL > 0),
    (dtrees.GradientBoostingRegressor, BOTH),
    (dtrees.RandomForestRegressor, BOTH),
]


def outputs(model, X=X, **options):
    """Return the outputs of a model for rows, by all methods that take ``n_trees``."""
    names = ("predict", "predict_proba", "decision_function") if is_classifier(type(model)) else ("predict",)
    return [getattr(model, name)(X, **options) for name in names if hasattr(model, name)]


def by_members(model, numbers):
    """Return the predictions of some rounds of a model, from its members one by one."""
    members = [model.estimators_[i] for i in numbers]
    if type(model) in FORESTS:
        return np.mean([tree.predict_proba(X) if is_classifier(type(model)) else tree.predict(X) for tree in members], axis=0)
    steps = np.sum([[tree.predict(X) for tree in round_] for round_ in members], axis=0).T
    return model._trees.initial + model.learning_rate_ * steps


@pytest.mark.parametrize(("kind", "y"), CASES)
def test_a_slice_has_the_rounds_that_a_list_would_have(kind, y):
    model = make(kind).fit(X, y)
    for index in SLICES:
        part, numbers = model[index], range(8)[index]
        assert type(part) is kind
        assert len(part) == len(numbers)
        assert part.get_params() == model.get_params()
        raw = (
            part.predict_proba(X)
            if kind in FORESTS and is_classifier(kind)
            else part.decision_function(X)
            if is_classifier(kind)
            else part.predict(X)
        )
        assert_allclose(np.reshape(raw, (N, -1)), np.reshape(by_members(model, numbers), (N, -1)))
        for i, j in enumerate(numbers):
            assert all(one._tree.equals(other._tree) for one, other in zip(np.ravel(part[i]), np.ravel(model[j]), strict=True))
    assert len(model) == 8


@pytest.mark.parametrize(("kind", "y"), CASES)
def test_the_first_trees_predict_what_a_slice_does(kind, y):
    model = make(kind).fit(X, y)
    for n in (1, 5, 8):
        for one, other in zip(outputs(model, n_trees=n), outputs(model[:n]), strict=True):
            assert_array_equal(one, other)
    assert_array_equal(outputs(model, n_trees=None)[0], model.predict(X))


@pytest.mark.parametrize("kind", BOOSTING)
def test_the_first_trees_are_those_of_staged_predictions(kind):
    model = make(kind).fit(X, target(kind))
    for n, stage in enumerate(model.staged_predict(X), 1):
        assert_array_equal(model.predict(X, n_trees=n), stage)
    assert_array_equal(list(model[3:].staged_predict(X))[-1], model[3:].predict(X))


@every_ensemble
def test_slices_of_models_elsewhere(kind, tmp_path):
    """In files, pickles and exports, and on Dask collections, a slice works like any model."""
    model = make(kind).fit(X, target(kind))
    part = model[2:6]
    dtrees.save(part, tmp_path / "model")
    for other in (dtrees.load(tmp_path / "model"), pickle.loads(pickle.dumps(part)), dtrees.load(tmp_path / "model")[:]):
        for one, twin in zip(outputs(part), outputs(other), strict=True):
            assert_array_equal(one, twin)
    lazy = da.from_array(X, chunks=(80, 5))
    for options in ({}, {"n_trees": 3}):
        for one, twin in zip(outputs(part, lazy, **options), outputs(part, **options), strict=True):
            assert_array_equal(one.compute(scheduler="synchronous"), twin)
    values, expected = part.shap_values(X[:9]), part.shap_expected_value()
    raw = (part.decision_function if kind in BOOSTING else part.predict_proba)(X[:9]) if is_classifier(kind) else part.predict(X[:9])
    assert_allclose(values.sum(axis=1) + expected, raw, atol=1e-12)
    assert_allclose(part.feature_importances_.sum(), 1.0)
    filled = make(kind).fit(FILLED, target(kind))[2:6]
    theirs, method = dtrees.to_sklearn(filled), "predict_proba" if is_classifier(kind) else "predict"
    assert_allclose(getattr(theirs, method)(FILLED), getattr(filled, method)(FILLED))
    assert clone(part).fit(X, target(kind)).estimators_[0] is not None


def test_categories_and_columns_by_name():
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(LABELS)})
    model = make(dtrees.GradientBoostingRegressor, max_features=None).fit(frame, SIGNAL)
    assert_array_equal(model[:4].predict(frame), model.predict(frame, n_trees=4))
    with pytest.raises(ValueError, match="feature names"):
        model[:4].predict(frame.rename(columns={"a": "b"}))


def test_measures_of_rounds_are_sliced():
    model = make(dtrees.GradientBoostingRegressor, subsample=0.5, n_iter_no_change=50)
    model.fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    part = model[5:1:-2]
    for name in ("train_score_", "validation_score_", "oob_scores_", "oob_improvement_"):
        assert_array_equal(getattr(part, name), getattr(model, name)[[5, 3]])
    assert part.oob_score_ == model.oob_scores_[3]
    assert_array_equal(part.evals_result_["validation_0"]["rmse"], model.evals_result_["validation_0"]["rmse"][[5, 3]])
    assert (part.n_estimators_, model.n_estimators_, len(model.train_score_)) == (2, 8, 8)


def test_early_stopping():
    """A model ends with its best round; a slice has no best round."""
    model = make(dtrees.GradientBoostingRegressor, n_estimators=100, learning_rate=1.0, early_stopping_rounds=3)
    model.fit(X[::2], SIGNAL[::2], eval_set=[(X[1::2], SIGNAL[1::2])])
    best = model.best_iteration_ + 1
    assert best < 100
    assert len(model[:]) == best == len(model.train_score_)
    assert not hasattr(model[:], "best_iteration_")
    with pytest.raises(
        ValueError, match=f"n_trees is {best + 1}, but the model has {best} rounds; wants an integer from 1 to {best}, or None"
    ):
        model.predict(X, n_trees=best + 1)


def test_what_boosting_starts_from_stays_with_every_slice():
    model = make(dtrees.GradientBoostingRegressor, init=LinearRegression()).fit(FILLED, SIGNAL)
    steps = np.sum([tree.predict(FILLED) for tree in model.estimators_[3:5, 0]], axis=0)
    assert_allclose(model[3:5].predict(FILLED), model.init_.predict(FILLED) + model.learning_rate_ * steps)
    scored = make(dtrees.GradientBoostingRegressor).fit(FILLED, SIGNAL, base_margin=FILLED[:, 0])
    assert_array_equal(scored.predict(FILLED, 1.5, n_trees=2), scored[:2].predict(FILLED, base_margin=1.5))
    plain = make(dtrees.GradientBoostingRegressor).fit(FILLED, SIGNAL)
    assert_allclose(plain[:3].predict(X) + plain[3:].predict(X) - plain._trees.initial, plain.predict(X))


@pytest.mark.parametrize("kind", BOOSTING)
def test_a_fit_goes_on_from_the_first_rounds(kind):
    model = make(kind, subsample=0.7, warm_start=True).fit(X, target(kind), WEIGHT)
    again = model[:5].fit(X, target(kind), WEIGHT)
    assert_same_trees(again, model)
    assert [len(np.ravel(again.train_score_)), len(model[:5])] == [8, 5]
    assert_array_equal(again.train_score_, model.train_score_)
    with pytest.raises(ValueError, match="it is a slice"):
        model[1:].fit(X, target(kind))


def test_members_of_slices_know_how_they_were_grown():
    model = make(dtrees.RandomForestRegressor, warm_start=True, max_depth=2, n_estimators=3).fit(X, SIGNAL)
    model.set_params(max_depth=4, n_estimators=6).fit(X, SIGNAL)
    assert [tree.max_depth for tree in model[1:5]] == [2, 2, 4, 4]
    scored = make(dtrees.RandomForestRegressor, oob_score=True, n_estimators=30).fit(X, SIGNAL)
    assert not hasattr(scored[:4], "oob_score_")
    assert hasattr(scored, "oob_score_")
    with pytest.raises(AttributeError, match="estimators_samples_ are not known"):
        scored[:4].estimators_samples_  # noqa: B018


@every_ensemble
def test_what_is_no_slice(kind):
    model = make(kind)
    with pytest.raises(ValueError, match="not fitted"):
        model[:3]
    model.fit(X, target(kind))
    unit = "round" if kind in BOOSTING else "tree"
    assert np.array_equal(np.shape(model[True]), np.shape(model[1]))
    for index in ("a", (0, 0), 1.0, [1, 2]):
        with pytest.raises(TypeError, match=rf"is indexed by .*; wants the number of a {unit}, or a slice of them, such as \[:10\]"):
            model[index]
    with pytest.raises(ValueError, match=rf"the slice slice\(8, None, None\) of {kind.__name__} has none of its 8 {unit}s; wants one"):
        model[8:]
    for n in (0, 9, -1, 2.0, True, "all"):
        with pytest.raises(ValueError, match=f"n_trees is .*, but the model has 8 {unit}s; wants an integer from 1 to 8, or None"):
            model.predict(X, n_trees=n)


def test_the_last_step_of_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), make(dtrees.RandomForestClassifier)).fit(X, LABELS)
    shorter = make_pipeline(pipeline[0], pipeline[-1][:3])
    assert_array_equal(shorter.predict_proba(X), pipeline.predict_proba(X, n_trees=3))
