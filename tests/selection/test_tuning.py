"""Trials compared with cross-validation with their parameters, and studies: stored, continued, pruned."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import optuna
import pytest
from numpy.testing import assert_array_equal
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GroupKFold

import dtrees
from dtrees.selection.tuning import default_space
from tests.selection.test_cross_validation import BOOSTER, CLASSES, FOREST, FRAME, SIGNAL, WEIGHT, N, state

SPACE = {"max_depth": IntDistribution(1, 5), "learning_rate": FloatDistribution(0.05, 1.0, log=True)}
MANY = clone(BOOSTER).set_params(n_estimators=40)
LABELS = np.where(SIGNAL > 1.5, "high", "low")


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def tune(estimator: Any = MANY, y: Any = SIGNAL, space: Any = SPACE, **options: Any) -> Any:
    return dtrees.tune(estimator, FRAME, y, space, **{"n_trials": 6, "cv": 3, "random_state": 0, **options})


def values(study: optuna.Study) -> list[Any]:
    return [(trial.params, trial.values, trial.state) for trial in study.trials]


class Ruthless(optuna.pruners.BasePruner):
    """Prunes all trials but the first."""

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        return trial.number > 0


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weights"])
def test_trials_of_boosting_are_judged_by_curves(weight: Any) -> None:
    study, model = tune(sample_weight=weight)
    assert study.trials[0].params == {}
    assert study.direction.name == "MINIMIZE"
    for trial in study.trials:
        if trial.state.name == "COMPLETE":
            estimator = clone(MANY).set_params(**trial.params, early_stopping_rounds=10)
            curve = dtrees.cross_validate(estimator, FRAME, SIGNAL, cv=3, sample_weight=weight).curves["rmse"]
            assert trial.value == curve.best_score
            assert trial.user_attrs["n_estimators"] == curve.best_n_estimators
            assert trial.user_attrs["scores"] == curve.by_fold[:, curve.best_n_estimators - 1].tolist()
            assert list(trial.intermediate_values) == [0, 1, 2]
            assert trial.intermediate_values[0] == np.nanmin(curve.by_fold[0])
    assert study.best_value < study.trials[0].value
    n_rounds = study.best_trial.user_attrs["n_estimators"]
    assert state(model) == state(clone(MANY).set_params(**study.best_params, n_estimators=n_rounds).fit(FRAME, SIGNAL, weight))


def test_trials_of_others_are_judged_by_scores() -> None:
    space = {"max_features": FloatDistribution(0.2, 1.0), "criterion": CategoricalDistribution(["squared_error", "poisson"])}
    y = SIGNAL.abs()
    study, model = tune(FOREST, y, space, scoring="neg_mean_absolute_error", groups=np.arange(N) % 6, cv=GroupKFold(2))
    scores = [
        dtrees.cross_validate(
            clone(FOREST).set_params(**trial.params),
            FRAME,
            y,
            cv=GroupKFold(2),
            groups=np.arange(N) % 6,
            scoring=study.user_attrs["judged_by"],
        )["test_score"]
        for trial in study.trials
        if trial.state.name == "COMPLETE"
    ]
    assert max(map(np.mean, scores)) == study.best_value
    assert study.direction.name == "MAXIMIZE"
    assert {trial.params.get("criterion") for trial in study.trials} == {None, "squared_error", "poisson"}
    assert state(model) == state(clone(FOREST).set_params(**study.best_params).fit(FRAME, y))


@pytest.mark.parametrize(
    ("scoring", "metric", "direction"),
    [
        (None, "logloss", "MINIMIZE"),
        ("auc", "auc", "MAXIMIZE"),
        ("roc_auc", "roc_auc", "MAXIMIZE"),
        (make_scorer(mean_absolute_error, greater_is_better=False, response_method="predict_proba", pos_label=1), None, None),
    ],
)
def test_scoring_of_boosting_is_a_metric(scoring: Any, metric: Any, direction: Any) -> None:
    if metric is None:
        study, model = tune(MANY, scoring=make_scorer(mean_absolute_error, greater_is_better=False), n_trials=2)
        assert study.user_attrs["judged_by"] == "neg_mean_absolute_error"
        assert study.best_value < 0
        return
    study, model = tune(clone(CLASSES).set_params(n_estimators=20), LABELS, scoring=scoring, n_trials=3)
    assert (study.user_attrs["judged_by"], study.direction.name) == (metric, direction)
    assert model.n_estimators_ == study.best_trial.user_attrs["n_estimators"]


def test_one_trial_at_a_time_gives_the_same_study() -> None:
    any_state = clone(MANY).set_params(random_state=None, subsample=0.7)
    (one, model), (two, again) = tune(any_state), tune(any_state)
    assert values(one) == values(two)
    assert state(model) == state(again)
    assert model.random_state == 0
    assert values(tune(any_state, random_state=1)[0]) != values(one)


def test_trials_side_by_side() -> None:
    study, model = tune(n_jobs=3, n_trials=7)
    assert len(study.trials) == 7
    assert sum(trial.params == {} for trial in study.trials) == 1
    assert model.n_estimators_ == study.best_trial.user_attrs["n_estimators"]


def test_trials_are_pruned_after_a_fold() -> None:
    study, model = tune(pruner=Ruthless(), n_trials=3)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert [len(trial.intermediate_values) for trial in study.trials] == [3, 1, 1]
    assert model.get_params() == clone(MANY).set_params(n_estimators=study.best_trial.user_attrs["n_estimators"]).get_params()


def test_a_study_is_stored_and_gone_on_with(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    seen: list[int] = []
    tune(storage=storage, study_name="prices", n_trials=2)
    study, _ = tune(storage=storage, study_name="prices", n_trials=3, callbacks=[lambda study, trial: seen.append(trial.number)])
    assert seen == [2, 3, 4]
    assert [trial.params == {} for trial in study.trials] == [True, False, False, False, False]
    with pytest.raises(ValueError, match="'prices' is to minimize 'rmse'; wants one to maximize 'r2'"):
        tune(storage=storage, study_name="prices", scoring="r2")
    with pytest.raises(ValueError, match="'prices' is to minimize 'rmse'; wants one to minimize 'mae'"):
        tune(study=study, scoring="mae")
    again, _ = tune(study=study, n_trials=1, space={"max_depth": IntDistribution(7, 9)})
    assert again is study
    assert 7 <= study.trials[-1].params["max_depth"] <= 9
    more, model = tune(study=study, n_trials=1, space={"min_samples_leaf": IntDistribution(70, 79)})
    assert "max_depth" in more.best_params
    assert model.max_depth == more.best_params["max_depth"]


def test_a_space_may_be_a_function() -> None:
    def space(trial: optuna.Trial) -> dict[str, Any]:
        depth = trial.suggest_int("depth", 1, 4)
        return {"max_depth": depth, "max_leaf_nodes": 2 * depth, "n_estimators": trial.suggest_int("n_estimators", 5, 15)}

    study, model = tune(clone(MANY).set_params(n_estimators=1), space=space)
    assert study.best_trial.number > 0
    assert (model.max_depth, model.max_leaf_nodes) == (study.best_params["depth"], 2 * study.best_params["depth"])
    assert model.n_estimators == study.best_trial.user_attrs["n_estimators"] <= 15


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (dtrees.GradientBoostingClassifier(n_estimators=10), LABELS),
        (dtrees.RandomForestClassifier(3), LABELS),
        (dtrees.ExtraTreesRegressor(3), SIGNAL),
        (dtrees.DecisionTreeRegressor(), SIGNAL),
        (dtrees.BaggingRegressor(n_estimators=2), SIGNAL),
        (dtrees.BaggingClassifier(clone(CLASSES), n_estimators=2), LABELS),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("error")
def test_default_spaces(estimator: Any, y: Any) -> None:
    study, model = tune(estimator, y, None, n_trials=3, pruner=optuna.pruners.NopPruner())
    assert set(study.trials[-1].params) == set(default_space(estimator, N))
    assert type(model) is type(estimator)
    assert model.predict(FRAME).shape == (N,)


def test_what_a_fold_cannot_be_judged_by_is_left_to_the_others() -> None:
    """The first fold's held-out rows have a label that the other rows do not have."""
    y, first = np.where(SIGNAL > 1.5, 1, 0), np.arange(N) < N // 3
    y[first] = 2
    cv = [(np.flatnonzero(~first), np.flatnonzero(first)), (np.arange(0, N, 2), np.arange(1, N, 2))]
    study, _ = tune(clone(CLASSES).set_params(n_estimators=10), y, cv=cv, n_trials=2)
    assert [list(trial.intermediate_values) for trial in study.trials] == [[0], [0]]
    assert study.trials[0].value == study.trials[0].intermediate_values[0]
    with pytest.raises(ValueError, match="each fold's held-out rows have a label that no other rows have"):
        tune(CLASSES, y, cv=cv[:1])


def test_rankers_are_tuned_by_queries() -> None:
    rows, query = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 20
    relevance = np.clip(np.round(rows[:, 0]), 0, 3)
    ranker = dtrees.GradientBoostingRanker(n_estimators=8, eval_metric="ndcg@5")
    study, model = dtrees.tune(ranker, rows, relevance, qid=query, n_trials=2, cv=2, random_state=0)
    assert study.direction.name == "MAXIMIZE"
    assert model.score(rows, relevance, qid=query) > 0.8


def test_time_may_decide() -> None:
    study, _ = tune(n_trials=None, timeout=0.01)
    assert len(study.trials) == 1


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"estimator": Ridge()}, TypeError, "Ridge.*wants an estimator of dtrees"),
        ({"space": {"max_depth": [1, 2]}}, TypeError, "wants a dict from names of parameters to distributions of Optuna"),
        ({"space": {"num_leaves": IntDistribution(2, 9)}}, ValueError, "num_leaves.*Did you mean 'max_leaf_nodes'"),
        ({"scoring": ["r2", "neg_log_loss"]}, ValueError, "wants one scorer"),
        ({"scoring": "nothing"}, ValueError, "eval_metric has 'nothing'"),
        ({"study": optuna.create_study(), "storage": "sqlite://"}, ValueError, "study is given beside storage"),
        ({"space": {"max_depth": IntDistribution(-3, -2)}}, ValueError, "max_depth"),
    ],
)
def test_what_cannot_be_used_is_refused(options: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        tune(**options)


def test_data_that_is_partly_elsewhere_is_refused() -> None:
    with pytest.raises(TypeError, match=r"y is a Array, but X is in memory; wants both there: y.compute\(\)"):
        dtrees.tune(BOOSTER, FRAME, da.zeros(N))


def test_without_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"needs optuna.*pip install 'dask-dtrees\[tune\]'"):
        tune()


def test_forests_that_draw_no_rows_search_no_share_of_them() -> None:
    assert "max_samples" in default_space(dtrees.ExtraTreesClassifier(bootstrap=True), N)
    assert "max_samples" not in default_space(dtrees.ExtraTreesClassifier(), N)
    assert_array_equal(sorted(default_space(dtrees.DecisionTreeClassifier(), N)), ["max_depth", "min_samples_leaf"])
