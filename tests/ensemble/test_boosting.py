from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from tests.ensemble.samples import (
    BOOSTING,
    LABELS,
    SIGNAL,
    WEIGHT,
    N,
    X,
    is_classifier,
    make,
    target,
)


def test_shapes_of_leaves_of_boosting():
    assert make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL).apply(X).shape == (N, 8)
    assert make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0).apply(X).shape == (N, 8, 1)
    model = make(dtrees.GradientBoostingClassifier).fit(X, LABELS)
    leaves = model.apply(X)
    assert leaves.shape == (N, 8, 3)
    for i, j in ((0, 0), (3, 1), (7, 2)):
        assert_array_equal(leaves[:, i, j], model.estimators_[i, j].apply(X))


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_boosting_is_the_sum_of_its_trees(kind):
    model = make(kind).fit(X, target(kind))
    raw = model.decision_function(X) if is_classifier(kind) else model.predict(X)[:, np.newaxis]
    steps = [[tree.predict(X) for tree in round_] for round_ in model.estimators_]
    assert_allclose(model._trees.initial + np.sum(steps, axis=0).T, raw)


def test_boosting_with_two_classes():
    model = make(dtrees.GradientBoostingClassifier).fit(X, SIGNAL > 0)
    assert model.estimators_.shape == (8, 1)
    odds = model.decision_function(X)
    assert odds.shape == (N,)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("y", [SIGNAL, SIGNAL > 0, LABELS], ids=["regression", "binary", "multinomial"])
def test_staged_predictions_end_in_the_prediction(y):
    kind = dtrees.GradientBoostingClassifier if y.dtype.kind in "bU" else dtrees.GradientBoostingRegressor
    model = make(kind).fit(X, y)
    methods = ["predict"] + (["predict_proba", "decision_function"] if is_classifier(kind) else [])
    for method in methods:
        stages = list(getattr(model, f"staged_{method}")(X))
        assert len(stages) == 8
        assert_array_equal(stages[-1], getattr(model, method)(X))
        for n_estimators in (1, 5):
            assert_array_equal(stages[n_estimators - 1], getattr(make(kind, n_estimators=n_estimators).fit(X, y), method)(X))


def test_training_scores_are_mean_losses():
    model = make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, WEIGHT)
    losses = [np.average((stage - SIGNAL) ** 2, weights=WEIGHT) for stage in model.staged_predict(X)]
    assert_allclose(model.train_score_, losses, rtol=1e-9)


@pytest.mark.parametrize("kind", BOOSTING, ids=lambda kind: kind.__name__)
def test_early_stopping(kind):
    model = make(kind, n_estimators=500, n_iter_no_change=3, learning_rate=0.5, tol=0.0).fit(X, target(kind))
    assert model.n_estimators_ < 500
    assert len(model.estimators_) == len(model.train_score_) == len(model.validation_score_) == model.n_estimators_
    assert model.validation_score_.argmin() == model.n_estimators_ - 4
    assert not hasattr(make(kind).fit(X, target(kind)), "validation_score_")
