"""Objectives of the user's own."""

from __future__ import annotations

import pickle

import cloudpickle
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax

import dtrees
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, N, X, assert_same_trees, make

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
BINARY = (SIGNAL > 1).astype(int)


def squared(y, raw, weight):
    w = np.ones(len(y)) if weight is None else weight
    return w * (raw - y), w


def logistic(y, raw, weight):
    w, p = np.ones(len(y)) if weight is None else weight, expit(raw)
    return w * (p - y), w * p * (1 - p)


def multinomial(y, raw, weight):
    w, p = np.ones(len(y)) if weight is None else weight, softmax(raw, axis=1)
    return w[:, np.newaxis] * (p - np.eye(raw.shape[1])[y]), w[:, np.newaxis] * p * (1 - p) * raw.shape[1] / (raw.shape[1] - 1)


CASES = [
    (Regressor, SIGNAL, squared, "squared_error"),
    (Classifier, BINARY, logistic, "log_loss"),
    (Classifier, LABELS, multinomial, "log_loss"),
]
every_case = pytest.mark.parametrize(("kind", "y", "objective", "loss"), CASES, ids=["values", "two classes", "three classes"])


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@every_case
def test_the_losses_there_are(kind, y, objective, loss, weight):
    """An objective with the derivatives of a loss gives its trees, but for rounding; both start from zero."""
    settings = {"subsample": 0.8, "max_depth": 3, "min_child_weight": 0.9, "n_estimators": 3}
    own = make(kind, loss=objective, **settings).fit(X, y, weight)
    theirs = make(kind, loss=loss, init="zero", **settings).fit(X, y, weight)
    predict = "predict" if kind is Regressor else "predict_proba"
    assert_allclose(getattr(own, predict)(X), getattr(theirs, predict)(X), rtol=1e-6)
    assert_array_equal(own.predict(X), own.predict(X))
    assert own.init_.predict(X[:1]).shape == (1,)
    assert np.isnan(own.train_score_).all()
    assert not hasattr(own, "oob_score_")
    assert_same_trees(make(kind, loss=objective, n_jobs=4, **settings).fit(X, y, weight), own)


def test_arrays_are_whole_and_in_order():
    seen = []

    def objective(y, raw, weight):
        seen.append((y, raw, weight))
        return raw - y, np.ones(len(y))

    told = []
    model = make(Regressor, loss=objective, n_jobs=4, n_iter_no_change=2, scoring="r2", n_estimators=3)
    model.fit(X, SIGNAL, WEIGHT, callbacks=[lambda progress: told.append((progress.train_score, progress.validation_score))])
    assert told == [(None, score) for score in model.validation_score_]
    assert len(seen) == 3
    for round_, (y, raw, weight) in enumerate(seen):
        assert_array_equal(y, SIGNAL)
        assert_array_equal(weight, WEIGHT)
        assert_allclose(raw, np.zeros(N) if round_ == 0 else list(model.staged_predict(X))[round_ - 1], atol=1e-12)

    # What the function does to its arguments stays with it.
    def spoil(y, raw, weight):
        result = raw - y, np.ones(len(y))
        y[:] = raw[:] = np.nan
        return result

    assert_same_trees(make(Regressor, loss=spoil).fit(X, SIGNAL), make(Regressor, loss=squared).fit(X, SIGNAL))


def test_predictions_are_by_the_loss_that_was_fitted(tmp_path):
    """Whatever the parameter is set to afterwards; so are files and copies."""
    for kind, y, fitted, other in (
        (Regressor, np.exp(SIGNAL), "poisson", "squared_error"),
        (Regressor, SIGNAL, squared, "poisson"),
        (Regressor, np.exp(SIGNAL), "poisson", squared),
        (Classifier, BINARY, "log_loss", "exponential"),
        (Classifier, BINARY, logistic, "exponential"),
    ):
        model = make(kind, loss=fitted).fit(X, y)
        method = "predict" if kind is Regressor else "predict_proba"
        wanted = getattr(model, method)(X)
        model.set_params(loss=other)
        assert_array_equal(getattr(model, method)(X), wanted)
        assert_array_equal(list(getattr(model, f"staged_{method}")(X))[-1], wanted)
        assert_array_equal(getattr(pickle.loads(pickle.dumps(model)), method)(X), wanted)
        dtrees.save(model, tmp_path / "model")
        loaded = dtrees.load(tmp_path / "model")
        assert_array_equal(getattr(loaded, method)(X), wanted)
        assert loaded.loss == (fitted if isinstance(fitted, str) else "custom")
    with pytest.raises(ValueError, match="loss='custom' stands for a function that a model file could not hold"):
        dtrees.load(tmp_path / "model").fit(X, BINARY)
    with pytest.raises(ValueError, match="'loss' parameter of GradientBoostingRegressor must be"):
        Regressor(loss="unheard of").fit(X, SIGNAL)


def test_more_rounds_and_checkpoints(tmp_path):
    whole = make(Regressor, loss=squared).fit(X, SIGNAL)
    model = make(Regressor, loss=squared, n_estimators=3, warm_start=True).fit(X, SIGNAL).set_params(n_estimators=8).fit(X, SIGNAL)
    assert_same_trees(model, whole)
    make(Regressor, loss=squared, n_estimators=4).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    assert_same_trees(make(Regressor, loss=squared).fit(X, SIGNAL, checkpoint=tmp_path / "kept"), whole)
    with pytest.raises(ValueError, match=r"is of another fit \(loss was CustomObje.*, is CustomObje"):
        make(Regressor, loss=lambda y, raw, weight: (raw - y, np.ones(len(y)))).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    with pytest.raises(ValueError, match="keeps the trees of the loss 'custom', but loss is 'squared_error'"):
        model.set_params(loss="squared_error", n_estimators=9).fit(X, SIGNAL)


def test_evaluation_and_early_stopping():
    model = make(Regressor, loss=squared, early_stopping_rounds=3).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    assert list(model.evals_result_["validation_0"]) == ["rmse"]
    assert cloudpickle.loads(cloudpickle.dumps(make(Regressor, loss=lambda y, raw, w: (raw - y, 1 + 0 * y)))).fit(X, SIGNAL)


def returns(*found):
    return lambda y, raw, weight: tuple(one(y) if callable(one) else one for one in found)


@pytest.mark.parametrize(
    ("objective", "parameters", "message"),
    [
        (lambda y, raw, weight: raw - y, {}, r"returned ndarray; wants a tuple \(gradient, hessian\)"),
        (returns(lambda y: y[1:], np.ones_like), {}, r"returned a gradient of shape \(299,\); wants that of raw, \(300,\)"),
        (returns(np.zeros_like, 1.0), {}, r"returned a hessian of shape \(\)"),
        (returns(lambda y: y * np.nan, np.ones_like), {}, "returned a gradient with NaN or infinity"),
        (returns(np.zeros_like, lambda y: -np.ones_like(y)), {}, "returned the hessian -1.0; wants numbers of at least 0"),
        (returns(lambda y: ["a"] * len(y), np.ones_like), {}, "is no array of numbers"),
        (squared, {"n_iter_no_change": 3}, "n_iter_no_change=3 with scoring='loss' wants the value of the loss"),
        (squared, {"eval_metric": "loss"}, "eval_metric has 'loss', but loss is a function of derivatives"),
    ],
)
def test_what_is_no_objective(objective, parameters, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(Regressor, loss=objective, **parameters).fit(X, SIGNAL)
