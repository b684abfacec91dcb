"""Evaluation sets: scored like the model's own predictions, and used for early stopping; monitors."""

import logging

import numpy as np
import pandas as pd
import pytest
import sklearn.ensemble
import sklearn.metrics
from numpy.testing import assert_allclose, assert_array_equal

import dtrees
from dtrees import EarlyStopping
from tests.ensemble.samples import BOOSTING, LABELS, SIGNAL, WEIGHT, X, assert_same_trees, by_sklearn, every_ensemble, make, target
from tests.plain import PLAIN

# --- evaluation sets: scored like the fitted model's predictions, without influence on trees, and used for early stopping ---


TRAIN, REST = slice(0, 180), slice(180, 300)
TARGETS = {"regression": SIGNAL, "binary": SIGNAL > 0, "multiclass": LABELS}
every_task = pytest.mark.parametrize("task", TARGETS)


def kind_of(task):
    return dtrees.GradientBoostingRegressor if task == "regression" else dtrees.GradientBoostingClassifier


@pytest.mark.parametrize("callbacks", [(), [lambda progress: None]], ids=["together", "after each"])
def test_rounds_that_are_scored_together_are_scored_as_one_by_one(callbacks):
    """If scores are not needed at once, several rounds are scored together; also if rounds of an earlier fit come first."""
    model, sets = dtrees.GradientBoostingRegressor(n_estimators=3, warm_start=True, max_depth=2), [(X[REST], SIGNAL[REST])]
    for n_estimators in (3, 20, 36, 37):
        model.set_params(n_estimators=n_estimators).fit(X[TRAIN], SIGNAL[TRAIN], eval_set=sets, callbacks=callbacks)
        found = model.evals_result_["validation_0"]["rmse"]
        wanted = [sklearn.metrics.root_mean_squared_error(SIGNAL[REST], predicted) for predicted in model.staged_predict(X[REST])]
        assert_allclose(found, wanted, rtol=1e-12)
        assert len(found) == n_estimators


@every_task
def test_scores_are_those_of_staged_predictions(task):
    y = TARGETS[task]
    names = ["rmse", "mae"] if task == "regression" else ["logloss", "error", "auc"]
    model = make(kind_of(task), eval_metric=names, subsample=0.8)
    sets = {"seen": (X[TRAIN], y[TRAIN]), "later": (X[REST], y[REST], WEIGHT[REST])}
    model.fit(X[TRAIN], y[TRAIN], WEIGHT[TRAIN], eval_set=sets)
    assert list(model.evals_result_) == ["seen", "later"]
    for set_name, (rows, weight) in {"seen": (TRAIN, None), "later": (REST, WEIGHT[REST])}.items():
        staged = model.staged_predict(X[rows]) if task == "regression" else model.staged_predict_proba(X[rows])
        expected = [[by_sklearn(name, y[rows], predicted, weight) for name in names] for predicted in staged]
        found = model.evals_result_[set_name]
        assert list(found) == names
        assert np.stack(list(found.values()), axis=1) == pytest.approx(np.array(expected), rel=1e-12)
    assert_same_trees(model, make(kind_of(task), subsample=0.8).fit(X[TRAIN], y[TRAIN], WEIGHT[TRAIN]))
    assert not hasattr(model, "best_iteration_")


@pytest.mark.parametrize("form", ["list", "tuple", "frame"])
def test_forms_of_sets(form):
    y = SIGNAL
    plain = make(dtrees.GradientBoostingRegressor).fit(X, y, eval_set=[(X[REST], y[REST])])
    assert list(plain.evals_result_) == ["validation_0"]
    frame = pd.DataFrame(X, columns=list("abcde"))
    given = {
        "list": (X, [(X[REST].tolist(), y[REST].tolist()), (X[REST], y[REST], 2.0)]),
        "tuple": (X, ((X[REST], y[REST]), [X[REST], y[REST], np.full(120, 0.5)])),
        "frame": (frame, [(frame[REST], pd.Series(y[REST])), (frame[REST], y[REST], pd.Series(np.full(120, 7.0)))]),
    }[form]
    model = make(dtrees.GradientBoostingRegressor).fit(given[0], y, eval_set=given[1])
    assert list(model.evals_result_) == ["validation_0", "validation_1"]
    for scores in model.evals_result_.values():
        assert_array_equal(scores["rmse"], plain.evals_result_["validation_0"]["rmse"])


def test_sets_are_encoded_as_the_table():
    colour = np.where(X[:, 0] > 0, "red", "blue")
    frame = pd.DataFrame({"x": X[:, 1], "colour": colour})
    other = pd.DataFrame({"x": X[REST, 1], "colour": np.where(X[REST, 0] > 1, "green", "red")})  # one unseen, one absent
    model = make(dtrees.GradientBoostingRegressor, eval_metric="mae").fit(frame, SIGNAL, eval_set=[(other, SIGNAL[REST])])
    wanted = [sklearn.metrics.mean_absolute_error(SIGNAL[REST], predicted) for predicted in model.staged_predict(other)]
    assert model.evals_result_["validation_0"]["mae"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("eval_set", "error", "message"),
    [
        (3, TypeError, r"eval_set is of type int; wants a list of tuples \(X, y\)"),
        ((X, SIGNAL), TypeError, r"eval_set is of type tuple; wants a list of tuples"),
        ([(X,)], ValueError, "eval_set has 'validation_0': tuple; wants a list of tuples"),
        ({"a": X}, ValueError, "eval_set has 'a': ndarray; wants"),
        ({1: (X, SIGNAL)}, ValueError, "eval_set has 1: tuple; wants"),
        ([(X, SIGNAL[:5])], ValueError, "eval_set 'validation_0': X has 300 rows but y has 5"),
        ({"late": (X[:, :2], SIGNAL)}, ValueError, "eval_set 'late': X has 2 features, but"),
        ({"late": (X, SIGNAL * np.nan)}, ValueError, "eval_set 'late': y contains NaN"),
        ({"late": (X, SIGNAL, -WEIGHT)}, ValueError, "eval_set 'late': sample_weight contains the negative value"),
        ({"late": (X, SIGNAL, 0 * WEIGHT)}, ValueError, "eval_set 'late' has no weight above zero"),
        ({"late": (X[:0], SIGNAL[:0])}, ValueError, "eval_set 'late' has no rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sets_that_cannot_be_used(eval_set, error, message):
    with pytest.raises(error, match=message):
        make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, eval_set=eval_set)


def test_unknown_labels():
    y = LABELS.copy()
    y[200] = "huge"
    with pytest.raises(ValueError, match=r"eval_set 'validation_0': y has the label 'huge', which the y of fit does not have"):
        make(dtrees.GradientBoostingClassifier).fit(X[TRAIN], y[TRAIN], eval_set=[(X[REST], y[REST])])


def test_metrics_that_cannot_be_used():
    for asked, error in ((["rmse", "auc"], ValueError), (7, ValueError)):
        with pytest.raises(error, match="eval_metric"):
            make(dtrees.GradientBoostingRegressor, eval_metric=asked).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])


def hits(y, predicted, weight):
    return float(((predicted.argmax(axis=1) if predicted.ndim == 2 else predicted > 0.5) == y).mean())


hits.greater_is_better = True


def test_early_stopping_by_a_score_of_sklearns():
    data, sets = (X[TRAIN], SIGNAL[TRAIN] > 0), [(X[REST], SIGNAL[REST] > 0)]
    models = [
        make(dtrees.GradientBoostingClassifier, n_estimators=100, eval_metric=metric, early_stopping_rounds=8).fit(*data, eval_set=sets)
        for metric in ("auc", sklearn.metrics.roc_auc_score, sklearn.metrics.get_scorer("roc_auc"))
    ]
    assert models[0].best_iteration_ > 0
    assert {model.best_iteration_ for model in models} == {models[0].best_iteration_}
    assert_allclose([model.best_score_ for model in models], models[0].best_score_, rtol=1e-12)


def test_early_stopping_by_a_function_that_does_not_say_what_is_better():
    def error(y, predicted, weight):
        return float(np.abs(y - predicted).mean())

    model = make(dtrees.GradientBoostingRegressor, eval_metric=error, early_stopping_rounds=2)
    with pytest.raises(ValueError, match="eval_metric has 'error', which does not say whether more of it is better"):
        model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=[(X[REST], SIGNAL[REST])])
    error.greater_is_better = False
    assert (
        model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=[(X[REST], SIGNAL[REST])]).best_score_
        == model.evals_result_["validation_0"]["error"].min()
    )


@pytest.mark.parametrize("rounds", [1, 4])
@every_task
def test_early_stopping_leaves_the_best_round_last(task, rounds):
    kind, y = kind_of(task), TARGETS[task]
    metric = "rmse" if task == "regression" else hits
    rng = np.random.default_rng(1)
    noisy = y.copy()
    noisy[:60] = rng.permutation(noisy[:60])
    settings = {"n_estimators": 120, "learning_rate": 0.6, "eval_metric": metric}
    sets = {"first": (X[TRAIN], noisy[TRAIN]), "last": (X[REST], y[REST])}
    model = make(kind, early_stopping_rounds=rounds, **settings).fit(X[TRAIN], noisy[TRAIN], eval_set=sets)
    scores = model.evals_result_["last"][model.eval_metric if isinstance(metric, str) else "hits"]
    best = int(scores.argmin() if task == "regression" else scores.argmax())
    assert model.best_iteration_ == best
    assert model.best_score_ == scores[best]
    assert len(scores) == best + 1 + rounds < 120
    assert model.n_estimators_ == len(model.estimators_) == len(model.train_score_) == best + 1
    assert_same_trees(model, make(kind, **{**settings, "n_estimators": best + 1}).fit(X[TRAIN], noisy[TRAIN]))
    whole = make(kind, **settings).fit(X[TRAIN], noisy[TRAIN], eval_set=sets)
    assert_array_equal(whole.evals_result_["last"][next(iter(whole.evals_result_["last"]))][: len(scores)], scores)
    assert whole.n_estimators_ == 120


def test_which_set_and_metric_decide():
    sets = {"a": (X[TRAIN], SIGNAL[TRAIN]), "b": (X[REST], SIGNAL[REST])}
    metrics = ["mae", "r2", "rmse"]

    def fit(*callbacks, **parameters):
        model = make(dtrees.GradientBoostingRegressor, n_estimators=150, learning_rate=0.5, eval_metric=metrics, **parameters)
        return model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=sets, callbacks=callbacks)

    assert_same_trees(fit(EarlyStopping(5)), fit(early_stopping_rounds=5))
    by_r2, by_rmse = fit(EarlyStopping(5, "b", "r2")), fit(EarlyStopping(5, eval_name="b", metric="rmse"))
    assert by_r2.best_iteration_ == by_rmse.best_iteration_ == by_r2.evals_result_["b"]["r2"].argmax()
    seen = fit(EarlyStopping(5, eval_name="a", metric="mae"))
    assert seen.n_estimators_ > by_rmse.n_estimators_
    coarse = fit(EarlyStopping(5, metric="mae", tol=0.2))
    errors = coarse.evals_result_["b"]["mae"]
    assert not (errors < errors[coarse.best_iteration_] - 0.2).any()
    assert coarse.n_estimators_ < fit(EarlyStopping(5, metric="mae")).n_estimators_


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"callbacks": [EarlyStopping(3)]}, ValueError, "eval_set is None or empty; pass eval_set"),
        ({"callbacks": [EarlyStopping(3, eval_name="b")], "eval_set": {"a": (X, SIGNAL)}}, ValueError, "the eval_name 'b'; wants one of a"),
        (
            {"callbacks": [EarlyStopping(3, metric="mae")], "eval_set": {"a": (X, SIGNAL)}},
            ValueError,
            "the metric 'mae'; wants one of rmse",
        ),
        ({"callbacks": [EarlyStopping(3)] * 2, "eval_set": {"a": (X, SIGNAL)}}, ValueError, "asked for 2 times"),
        ({"callbacks": EarlyStopping(3)}, TypeError, "wants a sequence of functions"),
        ({"callbacks": [7]}, TypeError, "wants a sequence of functions"),
    ],
)
def test_early_stopping_that_cannot_be(arguments, error, message):
    with pytest.raises(error, match=message):
        make(dtrees.GradientBoostingRegressor).fit(X, SIGNAL, **arguments)


def test_early_stopping_is_checked():
    for arguments in ({"rounds": 0}, {"rounds": True}, {"rounds": 2.5}, {"rounds": 1, "tol": -1}, {"rounds": 1, "tol": float("nan")}):
        with pytest.raises(ValueError, match="wants"):
            EarlyStopping(**arguments)
    with pytest.raises(ValueError, match="early_stopping_rounds"):
        make(dtrees.GradientBoostingRegressor, early_stopping_rounds=0).fit(X, SIGNAL, eval_set=[(X, SIGNAL)])
    with pytest.raises(TypeError, match="callbacks is"):
        make(dtrees.RandomForestRegressor).fit(X, SIGNAL, callbacks=[EarlyStopping(3)])


def test_callbacks_are_told(caplog):
    heard = []
    model = make(dtrees.GradientBoostingRegressor, eval_metric=["mae", "r2"], n_iter_no_change=50, verbose=2)
    with caplog.at_level(logging.INFO, "dtrees"):
        model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set={"later": (X[REST], SIGNAL[REST])}, callbacks=[heard.append])
    for name in ("mae", "r2"):
        assert [progress.evaluation["later"][name] for progress in heard] == model.evals_result_["later"][name].tolist()
    assert all(0 < progress.tree_seconds <= progress.seconds for progress in heard)
    assert f"later r2 {heard[-1].evaluation['later']['r2']:.6g}" in caplog.records[-1].getMessage()
    stopped = make(dtrees.GradientBoostingRegressor)
    stopped.fit(X, SIGNAL, eval_set=[(X, SIGNAL)], callbacks=[lambda progress: progress.evaluation["validation_0"]["rmse"] < 1.4])
    errors = stopped.evals_result_["validation_0"]["rmse"]
    assert errors[-1] < 1.4 <= errors[-2]


def test_going_on_after_early_stopping():
    sets = [(X[REST], SIGNAL[REST])]
    model = make(dtrees.GradientBoostingRegressor, n_estimators=100, learning_rate=0.6, early_stopping_rounds=2, warm_start=True)
    n_rounds = model.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=sets).n_estimators_
    model.set_params(early_stopping_rounds=8).fit(X[TRAIN], SIGNAL[TRAIN], eval_set=sets)
    assert model.n_estimators_ >= n_rounds
    fresh = make(dtrees.GradientBoostingRegressor, n_estimators=100, learning_rate=0.6, early_stopping_rounds=8)
    assert_same_trees(model, fresh.fit(X[TRAIN], SIGNAL[TRAIN], eval_set=sets))
    assert_array_equal(model.evals_result_["validation_0"]["rmse"], fresh.evals_result_["validation_0"]["rmse"])
    assert_array_equal(model.train_score_, fresh.train_score_)
    model.set_params(early_stopping_rounds=None, n_estimators=model.n_estimators_ + 1).fit(X[TRAIN], SIGNAL[TRAIN])
    assert not hasattr(model, "evals_result_")


def test_models_are_saved_with_their_scores(tmp_path):
    model = make(dtrees.GradientBoostingClassifier, eval_metric=["error", hits], early_stopping_rounds=2)
    model.fit(X[TRAIN], LABELS[TRAIN], eval_set={"later": (X[REST], LABELS[REST])})
    dtrees.save(model, tmp_path / "model")
    loaded = dtrees.load(tmp_path / "model")
    assert (loaded.best_iteration_, loaded.best_score_) == (model.best_iteration_, model.best_score_)
    for name in ("error", "hits"):
        assert_array_equal(loaded.evals_result_["later"][name], model.evals_result_["later"][name])
    assert loaded.eval_metric is None  # a function is not plain data
    loaded.set_params(early_stopping_rounds=None).fit(X, LABELS)


# --- ``monitor``: callbacks in the form of scikit-learn's boosting. Other callbacks are tested with fits ---


@every_ensemble
def test_a_monitor_is_called_after_each_round_and_ends_the_fit(kind):
    calls = []

    def monitor(i, estimator, variables):
        calls.append((i, variables["progress"].done, len(getattr(estimator, "train_score_", ()))))
        assert type(estimator) is kind
        assert estimator.n_features_in_ == 5
        return i == 3

    model = make(kind, n_jobs=1).fit(X, target(kind), monitor=monitor)
    assert calls == [(i, i + 1, i + 1 if kind in BOOSTING else 0) for i in range(4)]
    assert len(model.estimators_) == 4
    assert len(getattr(model, "train_score_", "four")) == 4


def test_a_monitor_of_scikit_learns_boosting_serves_here():
    filled = np.nan_to_num(X)
    stops = {}
    for library in (dtrees, sklearn.ensemble):
        own = {**PLAIN, "reg_lambda": 0.0, "max_depth": 3} if library is dtrees else {}
        seen = []

        def monitor(i, estimator, variables, seen=seen):
            seen.append(estimator.train_score_[i])
            return i > 2 and seen[-3] - seen[-1] < 0.4

        library.GradientBoostingRegressor(**{**own, "n_estimators": 50, "learning_rate": 0.1}).fit(filled, SIGNAL, monitor=monitor)
        stops[library] = seen
    assert 4 < len(stops[dtrees]) < 50
    assert_allclose(stops[dtrees], stops[sklearn.ensemble])


def test_a_monitor_of_a_warm_start_sees_the_scores_of_before():
    seen = []
    model = make(dtrees.GradientBoostingRegressor, n_estimators=3, warm_start=True).fit(X, SIGNAL)
    model.set_params(n_estimators=6).fit(X, SIGNAL, monitor=lambda i, estimator, variables: seen.append((i, estimator.train_score_)))
    assert [i for i, _ in seen] == [3, 4, 5]
    assert_array_equal(seen[-1][1], model.train_score_)


def test_a_monitor_and_callbacks_are_all_called():
    seen = []
    make(dtrees.RandomForestRegressor, n_estimators=3, n_jobs=1).fit(
        X, SIGNAL, callbacks=[lambda progress: seen.append("callback")], monitor=lambda *arguments: seen.append("monitor")
    )
    assert seen == ["callback", "monitor"] * 3
    with pytest.raises(TypeError, match="monitor is 3; wants a function"):
        make(dtrees.RandomForestRegressor).fit(X, SIGNAL, monitor=3)
