from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import accuracy_score, f1_score, r2_score

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
    every_forest,
    is_classifier,
    make,
    target,
    trees,
)
from tests.slow import thorough_for


def test_balanced_counts_rows_in_trees_and_weights_in_forests():
    """As in scikit-learn 1.9, whose trees and forests differ in this."""
    weight = np.where(LABELS == "low", 5.0, 1.0)
    rows = {label: N / (3 * np.sum(label == LABELS)) for label in set(LABELS)}
    sums = {label: weight.sum() / (3 * weight[label == LABELS].sum()) for label in set(LABELS)}
    for kind, factors in ((dtrees.DecisionTreeClassifier, rows), (dtrees.RandomForestClassifier, sums)):
        assert_same_trees(
            make(kind, class_weight="balanced").fit(X, LABELS, weight), make(kind, class_weight=factors).fit(X, LABELS, weight)
        )


def test_balanced_subsample():
    model = make(dtrees.RandomForestClassifier, class_weight="balanced_subsample").fit(X, LABELS)
    for tree in trees(model):
        assert_allclose(tree.value[0], 1 / 3)
    model = make(dtrees.ExtraTreesClassifier, class_weight="balanced_subsample").fit(X, LABELS)  # no bootstrap: as balanced
    assert_same_trees(model, make(dtrees.ExtraTreesClassifier, class_weight="balanced").fit(X, LABELS))


@pytest.mark.parametrize(
    ("max_samples", "weight", "expected"),
    [(None, None, N), (40, None, 40), (0.5, None, 150), (0.5, 3.0, 150), (None, 1e-3, N), (1.0, 1e16, N), (1.0, 1e-3, N)],
)
def test_max_samples(max_samples, weight, expected):
    weights = None if weight is None else np.full(N, weight)
    model = make(dtrees.RandomForestRegressor, max_samples=max_samples).fit(X, SIGNAL, weights)
    assert {tree.weighted_n_node_samples[0] for tree in trees(model)} == {expected}
    assert all(tree.n_node_samples[0] < expected for tree in trees(model))


def test_few_draws_are_warned_of():
    with pytest.warns(UserWarning, match="draws only 3 of them"):
        make(dtrees.RandomForestRegressor, max_samples=0.01).fit(X, SIGNAL)


def test_more_draws_than_anybody_could_wait_for():
    for max_samples in (2**32 + 1, 1e10):
        with pytest.raises(ValueError, match=r"max_samples=.* draws .* rows; wants at most 4,294,967,296"):
            make(dtrees.RandomForestRegressor, max_samples=max_samples).fit(X, SIGNAL)


@every_forest
def test_a_forest_is_the_mean_of_its_trees(kind):
    model = make(kind).fit(X, target(kind))
    assert len(model.estimators_) == 8
    assert all(isinstance(tree, kind._TREE) for tree in model.estimators_)
    assert model.estimators_[3] is model.estimators_[3]
    assert {tree.max_depth for tree in model.set_params(max_depth=2).estimators_} == {make(kind).max_depth}
    method = "predict_proba" if is_classifier(kind) else "predict"
    assert_allclose(np.mean([getattr(tree, method)(X) for tree in model.estimators_], axis=0), getattr(model, method)(X))
    assert b"estimators_" not in pickle.dumps(model)


@every_forest
def test_trees_can_be_assigned(kind):
    model = make(kind, n_estimators=12, bootstrap=True, oob_score=True, warm_start=True).fit(X, target(kind))
    kept = model.estimators_[:5]
    model.estimators_ = kept
    assert_same_trees(model, make(kind, n_estimators=5, bootstrap=True).fit(X, target(kind)))
    assert len(model.estimators_) == 5
    assert not hasattr(model, "oob_score_")
    method = "predict_proba" if is_classifier(kind) else "predict"
    assert_allclose(np.mean([getattr(tree, method)(X) for tree in kept], axis=0), getattr(model, method)(X))
    with pytest.raises(ValueError, match="warm_start=True cannot go on from this model.* estimators_ was assigned"):
        model.fit(X, target(kind))
    other = make(kind, n_estimators=2).fit(X[:, :4], target(kind))
    for wrong in (other.estimators_, [make(kind._TREE)], [model], []):
        with pytest.raises(ValueError, match="estimators_ is given .*; wants"):
            model.estimators_ = wrong
    assert len(model.estimators_) == 5


@every_ensemble
def test_warm_start_adds_what_one_fit_would_have_grown(kind):
    y = target(kind)
    parameters = {"subsample": 0.7} if kind in BOOSTING else {}
    whole = make(kind, **parameters).fit(X, y, WEIGHT)
    model = make(kind, n_estimators=3, warm_start=True, **parameters).fit(X, y, WEIGHT)
    first = trees(model)[0]
    model.set_params(n_estimators=8).fit(X, y, WEIGHT)
    assert trees(model)[0] is first
    assert_same_trees(model, whole)
    assert_array_equal(model.predict(X), whole.predict(X))
    assert len(model.estimators_) == 8
    if kind in BOOSTING:
        assert_allclose(model.train_score_, whole.train_score_, rtol=1e-12)
    with pytest.raises(ValueError, match="n_estimators=4 must be larger or equal to .*=8 when warm_start==True"):
        model.set_params(n_estimators=4).fit(X, y)
    assert_same_trees(model.set_params(n_estimators=5, warm_start=False).fit(X, y), make(kind, n_estimators=5, **parameters).fit(X, y))


# Random thresholds beside sets of categories have kernels of their own.
@pytest.mark.parametrize("kind", thorough_for(FORESTS[2:], FORESTS + BOOSTING), ids=lambda kind: kind.__name__)
def test_warm_start_with_other_data(kind):
    frame = pd.DataFrame({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "a", "b")})
    y = target(kind)
    model = make(kind, warm_start=True).fit(frame, y)
    model.set_params(n_estimators=10)
    with pytest.raises(ValueError, match="categories of X column 'c' by their numbers, but it has 'z' and lacks 'a', 'b' now"):
        model.fit(frame.assign(c="z"), y)
    weight = np.arange(len(y)) > 0.0  # as the message says
    copy.deepcopy(model).fit(frame.assign(c=["a", *"b" * (len(y) - 1)]), y, weight)
    with pytest.warns(UserWarning, match="valid feature names"), pytest.raises(ValueError, match="X has 1 features"):
        model.fit(frame[["x"]].to_numpy(), y)
    if is_classifier(kind):
        with pytest.raises(ValueError, match="y had the classes"):
            model.fit(frame, np.where(y == "mid", "low", y))


@every_forest
def test_warm_start_without_more_trees(kind):
    model = make(kind, warm_start=True).fit(X, target(kind))
    grown = model._trees
    with pytest.warns(UserWarning, match="does not fit new trees"):
        model.fit(X, target(kind))
    assert model._trees is grown


@every_forest
def test_out_of_bag(kind):
    y = target(kind)
    model = make(kind, n_estimators=60, bootstrap=True, oob_score=True).fit(X, y)
    fresh = make(kind, n_estimators=60, bootstrap=True).fit(X[:200], y[:200]).score(X[200:], y[200:])
    assert model.oob_score_ == pytest.approx(fresh, abs=0.12)
    if is_classifier(kind):
        assert_allclose(model.oob_decision_function_.sum(axis=1), 1.0)
        assert model.oob_score_ == accuracy_score(y, model.classes_[model.oob_decision_function_.argmax(axis=1)])
    else:
        assert model.oob_score_ == r2_score(y, model.oob_prediction_)
    own = {"max_depth": 2} if is_classifier(kind) else {}
    metric = (lambda truth, predicted: f1_score(truth, predicted, average="macro")) if is_classifier(kind) else r2_score
    assert 0 < make(kind, n_estimators=60, bootstrap=True, oob_score=metric, **own).fit(X, y).oob_score_ < 1
    assert_same_trees(model, make(kind, n_estimators=60, bootstrap=True).fit(X, y))


@every_forest
@pytest.mark.parametrize("from_the_start", [True, False])
def test_out_of_bag_with_warm_start(kind, from_the_start):
    y = target(kind)
    whole = make(kind, n_estimators=40, bootstrap=True, oob_score=True).fit(X, y)
    model = make(kind, n_estimators=25, bootstrap=True, oob_score=from_the_start, warm_start=True).fit(X, y)
    model.set_params(n_estimators=40, oob_score=True).fit(X, y)
    assert model.oob_score_ == whole.oob_score_
    attribute = "oob_decision_function_" if is_classifier(kind) else "oob_prediction_"
    assert_array_equal(getattr(model, attribute), getattr(whole, attribute))


def test_rows_that_are_never_out_of_bag_are_warned_of():
    with pytest.warns(UserWarning, match="Some inputs do not have OOB scores"):
        model = make(dtrees.RandomForestRegressor, n_estimators=1, oob_score=True).fit(X, SIGNAL)
    assert (model.oob_prediction_ == 0).sum() > N / 2
