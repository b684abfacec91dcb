"""Losses of the rows that rounds of boosting do not draw."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.ensemble
from numpy.testing import assert_allclose

import dtrees
from dtrees.ensemble.objective.registry import loss_for
from dtrees.split.numbers import hashing
from tests.ensemble.objective.samples import pointwise
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, N, X, make

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier


def drawn(model, eligible, n_outputs):
    """The rows that each round draws."""
    for round_ in range(model.n_estimators_):
        chosen = np.empty(N, np.bool_)
        n_wanted = max(1, int(model.subsample * eligible.sum()))
        hashing.subsample(hashing.as_seed(model._seed), hashing.STREAM_SUBSAMPLE, round_ * n_outputs, n_wanted, eligible, chosen)
        yield chosen


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(("kind", "y", "loss"), [(Regressor, SIGNAL, "squared_error"), (Classifier, LABELS, "log_loss")])
def test_by_the_book(kind, y, loss, weight):
    model = make(kind, loss=loss, subsample=0.6).fit(X, y, weight)
    n_classes = getattr(model, "n_classes_", 0)
    own = loss_for(loss, n_classes)
    target = np.searchsorted(model.classes_, y).astype(np.int32) if n_classes else y
    w = np.ones(N) if weight is None else weight
    initial = np.repeat(model._trees.initial[:, np.newaxis], N, axis=1)
    stages = model.staged_decision_function(X) if n_classes else (stage[:, np.newaxis] for stage in model.staged_predict(X))
    losses = [pointwise(own, target, np.ascontiguousarray(stage.T)) for stage in stages]
    outside = [(w > 0) & ~chosen for chosen in drawn(model, w > 0, own.n_outputs)]
    scores = [np.average(loss[rows], weights=w[rows]) for loss, rows in zip(losses, outside, strict=True)]
    before = [np.average(pointwise(own, target, initial)[outside[0]], weights=w[outside[0]]), *scores[:-1]]
    assert_allclose(model.oob_scores_, scores, rtol=1e-9)
    assert_allclose(model.oob_improvement_, np.subtract(before, scores), rtol=1e-6, atol=1e-9)
    assert model.oob_score_ == model.oob_scores_[-1]


def test_scikit_learn_has_the_same_attributes():
    theirs = sklearn.ensemble.GradientBoostingRegressor(n_estimators=8, subsample=0.6, random_state=0).fit(np.nan_to_num(X), SIGNAL)
    ours = make(Regressor, subsample=0.6).fit(X, SIGNAL)
    for name in ("oob_scores_", "oob_improvement_"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape == (8,)
    whole = ours.set_params(subsample=1.0).fit(X, SIGNAL)
    assert not any(hasattr(whole, name) for name in ("oob_scores_", "oob_improvement_", "oob_score_"))


def test_more_rounds_files_and_checkpoints(tmp_path):
    once = make(Regressor, subsample=0.6).fit(X, SIGNAL)
    twice = make(Regressor, subsample=0.6, n_estimators=3, warm_start=True).fit(X, SIGNAL).set_params(n_estimators=8).fit(X, SIGNAL)
    make(Regressor, subsample=0.6, n_estimators=4).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    resumed = make(Regressor, subsample=0.6).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    dtrees.save(once, tmp_path / "model")
    for other in (twice, resumed, dtrees.load(tmp_path / "model"), make(Regressor, subsample=0.6, n_jobs=4).fit(X, SIGNAL)):
        for name in ("oob_scores_", "oob_improvement_", "oob_score_"):
            assert_allclose(getattr(other, name), getattr(once, name), rtol=1e-12)
    stopped = make(Regressor, subsample=0.6, early_stopping_rounds=1, learning_rate=1.5)
    stopped.fit(X, SIGNAL, eval_set=[(X[:50], SIGNAL[::-1][:50])])
    assert len(stopped.oob_scores_) == len(stopped.oob_improvement_) == stopped.n_estimators_
    assert stopped.oob_score_ == stopped.oob_scores_[-1]
