"""``scoring``: what the rows held out are scored by."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.engine.shard.targets.boosting_target import rows_held_out
from dtrees.ensemble.evaluation.scoring import check_scoring
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, X, assert_same_trees, make

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
BINARY = (SIGNAL > 1).astype(int)
LEAST = sklearn.metrics.make_scorer(sklearn.metrics.mean_pinball_loss, alpha=0.3, greater_is_better=False)


def held_out(model, y, weight):
    target = np.searchsorted(model.classes_, y) if hasattr(model, "classes_") else y

    class Plan:
        seed, n_classes, validation_fraction, n_iter_no_change = model._seed, getattr(model, "n_classes_", 0), 0.3, 1

    return rows_held_out(Plan, target, weight)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("kind", "y", "scoring", "metric"),
    [
        (Regressor, SIGNAL, "neg_mean_absolute_error", lambda *a, **k: -sklearn.metrics.mean_absolute_error(*a, **k)),
        (Regressor, SIGNAL, None, sklearn.metrics.r2_score),
        (Regressor, SIGNAL, LEAST, lambda *a, **k: -sklearn.metrics.mean_pinball_loss(*a, alpha=0.3, **k)),
        (Classifier, BINARY, "roc_auc", sklearn.metrics.roc_auc_score),
        (Classifier, BINARY, None, sklearn.metrics.accuracy_score),
        (Classifier, LABELS, "neg_log_loss", lambda *a, **k: -sklearn.metrics.log_loss(*a, **k)),
        (Classifier, LABELS, "f1_macro", lambda *a, **k: sklearn.metrics.f1_score(*a, average="macro", **k)),
    ],
)
def test_scores_are_those_of_the_rows_held_out(kind, y, scoring, metric, weight):
    settings = {"validation_fraction": 0.3, "n_iter_no_change": 4, "n_estimators": 20, "learning_rate": 0.5}
    model = make(kind, scoring=scoring, **settings).fit(X, y, weight)
    rows = held_out(model, y, weight)
    shares = scoring in ("roc_auc", "neg_log_loss")
    stages = model.staged_predict_proba(X[rows]) if shares else model.staged_predict(X[rows])
    wanted = [
        metric(y[rows], stage[:, 1] if scoring == "roc_auc" else stage, sample_weight=None if weight is None else weight[rows])
        for stage in stages
    ]
    assert_allclose(model.validation_score_, wanted, rtol=1e-9)
    assert len(model.validation_score_) == model.n_estimators_ == len(model.train_score_)
    # The rule is scikit-learn's, on scores that are to grow.
    ends = [i for i in range(4, len(wanted)) if max(wanted[i - 3 : i + 1]) < max(wanted[: i - 3]) + 1e-4]
    assert model.n_estimators_ == (min(ends) + 1 if ends else 20)
    plain = make(kind, **{**settings, "n_estimators": model.n_estimators_, "n_iter_no_change": 100}).fit(X, y, weight)
    assert_same_trees(model, plain)
    assert_array_equal(make(kind, scoring=scoring, **settings, n_jobs=4).fit(X, y, weight).validation_score_, model.validation_score_)


def test_more_is_better():
    """A score that always grows ends nothing, one that always falls ends the fit as soon as may be."""
    for sign, n_estimators in ((1, 8), (-1, 4)):
        calls = []

        def rising(y, predicted, sign=sign, calls=calls):
            calls.append(len(y))
            return sign * len(calls)

        model = make(Regressor, scoring=sklearn.metrics.make_scorer(rising), n_iter_no_change=3).fit(X, SIGNAL)
        assert model.n_estimators_ == n_estimators
        assert set(calls) == {30}


def test_checkpoints_and_files_and_more_rounds(tmp_path):
    settings = {"scoring": "r2", "n_iter_no_change": 6}
    whole = make(Regressor, **settings).fit(X, SIGNAL)
    make(Regressor, **{**settings, "n_estimators": 3}).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    again = make(Regressor, **settings).fit(X, SIGNAL, checkpoint=tmp_path / "kept")
    assert_array_equal(again.validation_score_, whole.validation_score_)
    dtrees.save(whole, tmp_path / "model")
    assert dtrees.load(tmp_path / "model").scoring == "r2"
    dtrees.save(whole.set_params(scoring=LEAST), tmp_path / "model")
    assert dtrees.load(tmp_path / "model").scoring == "loss"
    more = make(Regressor, **{**settings, "n_estimators": 3}, warm_start=True).fit(X, SIGNAL).set_params(n_estimators=8).fit(X, SIGNAL)
    assert_allclose(more.validation_score_, whole.validation_score_, rtol=1e-12)


def test_lines_of_progress_say_what_they_show(capsys):
    make(Regressor, scoring="r2", n_iter_no_change=3, n_estimators=1, verbose=2).fit(X, SIGNAL)
    make(Regressor, n_iter_no_change=3, n_estimators=1, verbose=2).fit(X, SIGNAL)
    by_scorer, by_loss = capsys.readouterr().err.strip().splitlines()[-2:]
    assert "validation score" in by_scorer
    assert "validation loss" in by_loss


def test_what_cannot_score():
    for kind, y, scoring, message in (
        (Regressor, SIGNAL, "roc_auc", "scoring is 'roc_auc'; wants 'loss', None, or a scorer of scikit-learn for regression"),
        (Classifier, BINARY, "neg_root_mean_squared_error", "wants 'loss', None, or a scorer of scikit-learn for classification"),
        (Regressor, SIGNAL, "unheard of", "scoring is 'unheard of'"),
        (Regressor, SIGNAL, lambda model, X, y: 0.0, r"made a scorer by sklearn.metrics.make_scorer"),
        (Regressor, SIGNAL, sklearn.metrics.r2_score, r"made a scorer by sklearn.metrics.make_scorer"),
    ):
        with pytest.raises(ValueError, match=message):
            make(kind, scoring=scoring, n_iter_no_change=3).fit(X, y)
    with pytest.raises(ValueError, match=r"scoring='r2' scores the rows held out by n_iter_no_change, but n_iter_no_change is None"):
        make(Regressor, scoring="r2").fit(X, SIGNAL)
    assert check_scoring("loss", classify=True) is None


def test_scorers_by_name_as_eval_metric():
    model = make(Classifier, eval_metric=["roc_auc", "neg_log_loss", "auc"], early_stopping_rounds=2).fit(
        X, BINARY, eval_set=[(X[:100], BINARY[:100])]
    )
    scores = model.evals_result_["validation_0"]
    assert list(scores) == ["roc_auc", "neg_log_loss", "auc"]
    assert_allclose(scores["roc_auc"], scores["auc"])
    assert model.best_score_ == max(scores["auc"])
    wanted = [-sklearn.metrics.log_loss(BINARY[:100], stage) for stage in model.staged_predict_proba(X[:100])]
    assert_allclose(scores["neg_log_loss"][: len(wanted)], wanted)
    best = make(Classifier, eval_metric=sklearn.metrics.roc_auc_score, early_stopping_rounds=2)
    best.fit(X, BINARY, eval_set=[(X[:100], BINARY[:100])])
    assert best.best_score_ == max(best.evals_result_["validation_0"]["roc_auc_score"])
    with pytest.raises(ValueError, match="eval_metric has 'roc_auc'; wants, for regression"):
        make(Regressor, eval_metric="roc_auc").fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
