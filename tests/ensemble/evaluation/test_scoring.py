"""``scoring``: scores of held-out rows."""

import numpy as np
import pytest
import sklearn.metrics
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees.engine.shard.targets.scales import rows_held_out
from dtrees.ensemble.metrics import check_scoring
from tests.ensemble.samples import LABELS, SIGNAL, WEIGHT, X, assert_same_trees, make

Regressor, Classifier = dtrees.GradientBoostingRegressor, dtrees.GradientBoostingClassifier
BINARY = (SIGNAL > 1).astype(int)
LEAST = sklearn.metrics.make_scorer(sklearn.metrics.mean_pinball_loss, alpha=0.3, greater_is_better=False)


def held_out(model, y, weight):
    target = np.searchsorted(model.classes_, y) if hasattr(model, "classes_") else y

    class Plan:
        seed, n_classes, validation_fraction, holds_out = model._seed, getattr(model, "n_classes_", 0), 0.3, True

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
    # The rule is scikit-learn's, on scores that should increase.
    ends = [i for i in range(4, len(wanted)) if max(wanted[i - 3 : i + 1]) < max(wanted[: i - 3]) + 1e-4]
    assert model.n_estimators_ == (min(ends) + 1 if ends else 20)
    plain = make(kind, **{**settings, "n_estimators": model.n_estimators_, "n_iter_no_change": 100}).fit(X, y, weight)
    assert_same_trees(model, plain)
    assert_array_equal(make(kind, scoring=scoring, **settings, n_jobs=4).fit(X, y, weight).validation_score_, model.validation_score_)


def test_more_is_better():
    """A score that always increases ends nothing; one that always decreases ends the fit as soon as possible."""
    for sign, n_estimators in ((1, 8), (-1, 4)):
        calls = []

        def rising(y, predicted, sign=sign, calls=calls):
            calls.append(len(y))
            return sign * len(calls)

        model = make(Regressor, scoring=sklearn.metrics.make_scorer(rising), n_iter_no_change=3).fit(X, SIGNAL)
        assert model.n_estimators_ == n_estimators
        assert set(calls) == {30}


def test_files_have_names_of_scorers(tmp_path):
    model = make(Regressor, scoring="r2", n_iter_no_change=6).fit(X, SIGNAL)
    for scoring, loaded in (("r2", "r2"), (LEAST, "loss")):
        dtrees.save(model.set_params(scoring=scoring), tmp_path / "model")
        assert dtrees.load(tmp_path / "model").scoring == loaded


def test_lines_of_progress_say_what_they_show(capsys):
    make(Regressor, scoring="r2", n_iter_no_change=3, n_estimators=1, verbose=2).fit(X, SIGNAL)
    make(Regressor, n_iter_no_change=3, n_estimators=1, verbose=2).fit(X, SIGNAL)
    by_scorer, by_loss = capsys.readouterr().err.strip().splitlines()[-2:]
    assert "validation score" in by_scorer
    assert "validation loss" in by_loss


def test_what_cannot_score():
    for kind, y, scoring, message in (
        (Regressor, SIGNAL, "roc_auc", "scoring is 'roc_auc'; wants 'loss', None, or a scorer for regression"),
        (Classifier, BINARY, "neg_root_mean_squared_error", "wants 'loss', None, or a scorer for classification"),
        (Regressor, SIGNAL, "unheard of", "scoring is 'unheard of'"),
        (Regressor, SIGNAL, lambda y_true, y_pred: 0.0, r"made a scorer by sklearn.metrics.make_scorer"),
        (Regressor, SIGNAL, sklearn.metrics.r2_score, r"made a scorer by sklearn.metrics.make_scorer"),
    ):
        with pytest.raises(ValueError, match=message):
            make(kind, scoring=scoring, n_iter_no_change=3).fit(X, y)
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


def test_a_function_of_estimator_and_rows():
    """It receives the same as scikit-learn's scorers, except for the columns of X, and leads to the same decisions."""
    by_name = {
        "accuracy": lambda model, X, y, sample_weight=None: model.score(X, y, sample_weight),
        "neg_log_loss": lambda *a, **k: sklearn.metrics.get_scorer("neg_log_loss")(*a, **k),
        "roc_auc": lambda model, X, y, sample_weight=None: sklearn.metrics.roc_auc_score(
            y, model.decision_function(X), sample_weight=sample_weight
        ),
        "r2": lambda model, X, y, sample_weight=None: sklearn.metrics.r2_score(
            y, np.concatenate([model.predict(X[:9]), model.predict(X[np.arange(9, len(X))])]), sample_weight=sample_weight
        ),
    }
    for name, scorer in by_name.items():
        kind, y = (Regressor, SIGNAL) if name == "r2" else (Classifier, BINARY if name == "roc_auc" else LABELS)
        for weight, fraction in ((None, 0.3), (WEIGHT, None)):
            settings = {"n_iter_no_change": 3, "validation_fraction": fraction}
            own, wanted = (make(kind, scoring=scoring, **settings).fit(X, y, weight) for scoring in (scorer, name))
            assert_allclose(own.validation_score_, wanted.validation_score_, rtol=1e-9)
            assert_same_trees(own, wanted)


def test_what_a_function_of_estimator_and_rows_may_not_do():
    for scorer, error, message in (
        (lambda model, X, y: model.predict(X[:, 0]), TypeError, r"X\[\(slice.* asks for columns"),
        (lambda model, X, y: X.mean(), AttributeError, "scoring: X has no 'mean'"),
        (lambda model, X, y: None, TypeError, "scoring '<lambda>' returned None; wants a number"),
    ):
        with pytest.raises(error, match=message):
            make(Regressor, scoring=scorer, n_iter_no_change=3).fit(X, SIGNAL)


def test_training_rows_may_decide():
    """As in HistGradientBoosting: without ``validation_fraction`` all rows are used for training, and their loss ends the fit."""
    plain = make(Regressor, n_estimators=20, learning_rate=0.5).fit(X, SIGNAL, WEIGHT)
    model = make(Regressor, n_estimators=20, learning_rate=0.5, n_iter_no_change=2, validation_fraction=None, tol=0.05)
    model.fit(X, SIGNAL, WEIGHT)
    losses = plain.train_score_
    wanted = next(n for n in range(3, 21) if min(losses[n - 2 : n]) > min(losses[: n - 2]) - 0.05)
    assert model.n_estimators_ == wanted < 20
    assert_array_equal(model.train_score_, losses[:wanted])
    assert_array_equal(model.validation_score_, losses[:wanted])


def test_more_rounds_remember_the_best_score(tmp_path):
    settings = {"n_estimators": 60, "learning_rate": 0.5, "n_iter_no_change": 4, "warm_start": True}
    whole = make(Regressor, **settings).fit(X, SIGNAL)
    n = whole.n_estimators_
    assert 4 < n < 60
    for through_a_file in (False, True):
        model = make(Regressor, **{**settings, "n_estimators": n - 2}).fit(X, SIGNAL)
        if through_a_file:
            dtrees.save(model, tmp_path / "model")
            model = dtrees.load(tmp_path / "model")
        model.set_params(n_estimators=60).fit(X, SIGNAL)
        assert_array_equal(model.validation_score_, whole.validation_score_)
        assert_same_trees(model, whole)
    # Scores of different kinds cannot be compared.
    other = make(Regressor, **{**settings, "n_estimators": n - 2}).fit(X, SIGNAL).set_params(n_estimators=60, scoring="r2").fit(X, SIGNAL)
    assert other.n_estimators_ >= n - 2 + 5


def test_scores_that_are_no_numbers():
    """A fit that stops by them has no best round and reports this, instead of returning a model of one tree."""

    def some(y, predicted, weight=None):
        calls.append(1)
        return np.nan if len(calls) in {2, 4} else float(len(calls) % 6)

    def none(y, predicted, sample_weight=None):
        return np.nan

    some.greater_is_better = none.greater_is_better = True
    only = BINARY == 0
    for kind, y, rows, metric, name in (
        (Regressor, SIGNAL, slice(None), none, "'none'"),
        (Classifier, BINARY, only, "auc", "'auc'"),
    ):
        with pytest.raises(ValueError, match=f"early stopping decides by eval_metric {name} of the set 'validation_0', which is NaN after"):
            make(kind, eval_metric=metric, early_stopping_rounds=2).fit(X, y, eval_set=[(X[rows], y[rows])])
    with pytest.raises(ValueError, match=r"decides by scoring=.*, which is NaN after each of 4 rounds"):
        make(Regressor, scoring=sklearn.metrics.make_scorer(none), n_iter_no_change=3).fit(X, SIGNAL)
    calls = []
    with pytest.warns(UserWarning, match="eval_metric 'some' of the set 'validation_0', which is NaN after 2 of 8 rounds"):
        model = make(Regressor, eval_metric=some, early_stopping_rounds=3).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    assert model.best_iteration_ == 4
    bag = dtrees.BaggingRegressor(make(Regressor, scoring=sklearn.metrics.make_scorer(none), n_iter_no_change=3), 2)
    with pytest.raises(ValueError, match="which is NaN after each of"):
        bag.fit(X, SIGNAL)
