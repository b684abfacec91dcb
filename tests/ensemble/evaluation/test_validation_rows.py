"""Rows passed as ``X_val``, which decide when a fit stops."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, make_scorer, mean_absolute_error
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import dtrees
from dtrees.engine.plan.plans import has_stalled
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, X, assert_same_trees, make, trees

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
FIT, VAL = slice(None, 200), slice(200, None)
GIVEN = {"X_val": X[VAL], "y_val": SIGNAL[VAL]}
FAST = {"n_estimators": 60, "learning_rate": 0.5, "max_features": None}
STOPS = {"n_iter_no_change": 3, "tol": 1e-3}


def stops_after(scores, patience, tol):
    """Return the number of rounds of a fit whose rounds have these losses."""
    return next((n for n in range(1, len(scores) + 1) if has_stalled(scores[:n], patience, tol)), len(scores))


@pytest.mark.parametrize("weight", [None, WEIGHT[VAL]], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("kind", "y"), [(Regressor, SIGNAL), (Classifier, LABELS), (Classifier, SIGNAL > 0), (Regressor, np.column_stack([SIGNAL, SIGNAL**2]))]
)
def test_the_loss_of_these_rows_decides(kind, y, weight):
    """All rows of X are used for training, and no round is skipped."""
    whole = make(kind, **FAST).fit(X[FIT], y[FIT])
    model = make(kind, **FAST, **STOPS).fit(X[FIT], y[FIT], X_val=X[VAL], y_val=y[VAL], sample_weight_val=weight)
    if kind is Classifier:
        losses = [log_loss(y[VAL], shares, sample_weight=weight) for shares in whole.staged_predict_proba(X[VAL])]
    else:
        losses = [np.average((predicted - y[VAL]) ** 2, axis=0, weights=weight).mean() for predicted in whole.staged_predict(X[VAL])]
    n = stops_after(losses, 3, 1e-3)
    assert n < 60
    assert len(model) == model.n_estimators_ == n
    assert_allclose(model.validation_score_, losses[:n])
    assert_same_trees(model, whole[:n])
    assert_array_equal(model.train_score_, whole.train_score_[:n])
    assert list(model.evals_result_) == ["X_val"]
    assert not hasattr(model, "best_iteration_")


SCORERS = [
    ("r2", lambda model: sklearn.metrics.r2_score(SIGNAL[VAL], model)),
    (None, lambda model: sklearn.metrics.r2_score(SIGNAL[VAL], model)),
    (make_scorer(mean_absolute_error, greater_is_better=False), lambda model: -mean_absolute_error(SIGNAL[VAL], model)),
    (lambda estimator, rows, y: -np.abs(estimator.predict(rows) - y).max(), lambda model: -np.abs(model - SIGNAL[VAL]).max()),
]


@pytest.mark.parametrize(("scoring", "score"), SCORERS, ids=["name", "default", "scorer", "function"])
def test_a_scorer_decides(scoring, score):
    model = make(Regressor, **FAST, **STOPS, scoring=scoring).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    whole = make(Regressor, **FAST).fit(X[FIT], SIGNAL[FIT])
    scores = [score(predicted) for predicted in whole.staged_predict(X[VAL])]
    n = stops_after([-one for one in scores], 3, 1e-3)
    assert_allclose(model.validation_score_, scores[:n])
    assert_same_trees(model, whole[:n])


@pytest.mark.parametrize("classify", [False, True])
def test_as_scikit_learns(classify):
    """On a table of few values, for which bins are exact; its losses are halves of squared errors, and scores are negative."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 6, (600, 3)).astype(float)
    y = table[:, 0] + table[:, 1] * table[:, 2] + rng.normal(scale=4, size=600)
    y = y > 8 if classify else y
    given = {"learning_rate": 0.5, "min_samples_leaf": 5, "n_iter_no_change": 3, "tol": 0.0}
    kind = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    theirs = kind(max_iter=100, max_leaf_nodes=8, early_stopping=True, **given).fit(table[:400], y[:400], X_val=table[400:], y_val=y[400:])
    ours = Classifier if classify else Regressor
    free = {"max_features": None, "reg_lambda": 0.0, "min_child_weight": 1e-3, "max_depth": None}
    model = make(ours, n_estimators=100, max_leaf_nodes=8, **free, **given)
    model.fit(table[:400], y[:400], X_val=table[400:], y_val=y[400:])
    scores = theirs.validation_score_[1:] * (-1 if classify else -2)  # the first one is before any round
    n = min(len(scores), len(model))
    assert 5 < n < 100
    assert_allclose(model.validation_score_[:n], scores[:n], rtol=1e-5)


def test_early_stopping_rounds_takes_them_for_an_evaluation_set():
    model = make(Regressor, **FAST, early_stopping_rounds=4).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    twin = make(Regressor, **FAST, early_stopping_rounds=4).fit(X[FIT], SIGNAL[FIT], eval_set={"X_val": (X[VAL], SIGNAL[VAL])})
    assert_same_trees(model, twin)
    assert model.best_iteration_ == twin.best_iteration_ == len(model) - 1
    assert not hasattr(model, "validation_score_")


def test_a_fit_that_goes_on_counts_the_rounds_before(tmp_path):
    parameters = {**FAST, **STOPS, "warm_start": True}
    whole = make(Regressor, **parameters).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    part = make(Regressor, **{**parameters, "n_estimators": 4}).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    part.set_params(n_estimators=60).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    assert_same_trees(part, whole)
    assert_array_equal(part.validation_score_, whole.validation_score_)
    stored = make(Regressor, **{**parameters, "warm_start": False})
    for _ in range(2):
        stored.fit(X[FIT], SIGNAL[FIT], **GIVEN, checkpoint=tmp_path / "checkpoint", checkpoint_interval=0)
        assert_same_trees(stored, whole)
    dtrees.save(whole, tmp_path / "model")
    assert_array_equal(dtrees.load(tmp_path / "model").validation_score_, whole.validation_score_)


def test_a_pipeline_transforms_them_too():
    with sklearn.config_context(enable_metadata_routing=True):
        model = make(Regressor, **FAST, **STOPS).set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("model", model)], transform_input=["X_val"]).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    plain = make(Regressor, **FAST, **STOPS).fit(X[FIT], SIGNAL[FIT], **GIVEN)
    assert len(pipeline[-1]) == len(plain)
    assert_allclose(pipeline[-1].validation_score_, plain.validation_score_, rtol=1e-6)


def test_what_does_not_go_together():
    model = make(Regressor, n_iter_no_change=3)
    for given, message in [
        ({"X_val": X}, "y_val is None, but another of X_val, y_val and sample_weight_val is given; wants both X_val and y_val"),
        ({"y_val": SIGNAL}, "X_val is None, but another"),
        ({"sample_weight_val": WEIGHT}, "X_val is None, but another"),
        ({**GIVEN, "eval_set": [(X, SIGNAL)]}, "X_val and eval_set are given; wants one"),
        ({**GIVEN, "sample_weight_val": -WEIGHT[VAL]}, "eval_set 'X_val': sample_weight"),
        ({"X_val": X[:, :2], "y_val": SIGNAL}, "eval_set 'X_val': X has 2 features"),
        ({"X_val": X, "y_val": SIGNAL[:7]}, "eval_set 'X_val': .*300.*7"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, SIGNAL, **given)
    for parameters in ({}, {"n_iter_no_change": 3, "early_stopping_rounds": 3}):
        with pytest.raises(ValueError, match="X_val is given to decide when to stop, but n_iter_no_change is"):
            make(Regressor, **parameters).fit(X, SIGNAL, **GIVEN)
    with pytest.raises(ValueError, match="X_val is given with scoring='loss', but loss='huber'"):
        make(Regressor, loss="huber", n_iter_no_change=3).fit(X, SIGNAL, **GIVEN)


def test_frames_and_categories():
    frame = pd.DataFrame({"a": X[:, 0], "kind": pd.Categorical(LABELS)})
    model = make(Regressor, **FAST, **STOPS).fit(frame[FIT], SIGNAL[FIT], X_val=frame[VAL], y_val=pd.Series(SIGNAL[VAL]))
    assert_allclose(model.validation_score_[-1], np.mean((model.predict(frame[VAL]) - SIGNAL[VAL]) ** 2))
    assert any(tree.categories.node.size for tree in trees(model))
