"""Cross-validation and tuning on one presorted table, compared with scikit-learn's function, and with Optuna for other libraries."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.metrics
import sklearn.model_selection
from sklearn.base import clone

import dtrees
from benchmarks.data import synthetic
from benchmarks.libraries import lightgbm, xgboost
from benchmarks.results import Measure, Row
from benchmarks.run import OURS, Run, benchmark
from dtrees.ensemble.bagging import fit_presorted

_FOLDS = 5


@benchmark("cross-validation")
def cross_validation(run: Run) -> Iterator[Row]:
    """Cross-validation of boosting: the trees of its folds alone, scikit-learn's function."""
    X, y = synthetic(run.size(tiny=300, small=20_000, full=100_000))
    n_trees = run.size(tiny=3, small=50, full=200)
    estimator = dtrees.GradientBoostingRegressor(n_estimators=n_trees, n_jobs=run.threads, random_state=0)
    loaded = []
    for train, _ in sklearn.model_selection.KFold(_FOLDS).split(X):
        booster = clone(estimator)
        loaded.append((booster, booster._load(X[train], y[train], None, keep=False)[1]))

    def grow() -> None:
        for booster, table in loaded:
            fit_presorted(booster, table, None)

    grow()  # compiles kernels
    dtrees.cross_validate(clone(estimator).set_params(n_estimators=1), X, y, cv=_FOLDS)
    measures = run.measure(
        {
            "trees": grow,
            "scores": functools.partial(dtrees.cross_validate, estimator, X, y, cv=_FOLDS, return_curves=False),
            "curves": functools.partial(dtrees.cross_validate, estimator, X, y, cv=_FOLDS),
            "scikit-learn": functools.partial(sklearn.model_selection.cross_validate, estimator, X, y, cv=_FOLDS),
        }
    )
    work = f"{_FOLDS} folds of {n_trees} trees, {len(X):,} x {X.shape[1]}"
    yield Row(f"{work}, scores", measures["scores"], "the folds' trees alone", measures["trees"])
    yield Row(f"{work}, curves", measures["curves"], "the folds' trees alone", measures["trees"])
    yield Row(f"{work}, scores", measures["scores"], "scikit-learn's function", measures["scikit-learn"])


# --- the search for parameters: time, and the loss on held-out rows ---


@benchmark("tuning")
def tuning(run: Run) -> Iterator[Row]:
    """Tuning of boosting by Optuna, with equally many trials and pruning: LightGBM, XGBoost. Time, and loss on held-out rows."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    prices, incomes = run.prices_and_incomes()
    n_trials, n_rounds = run.size(tiny=2, small=10, full=30), run.size(tiny=5, small=200, full=1000)
    for name, table, classify in (("California housing", prices, False), ("Adult", incomes, True)):
        metric: Any = sklearn.metrics.log_loss if classify else sklearn.metrics.root_mean_squared_error
        contenders: dict[str, Callable[[Any, Any], Any]] = {
            OURS: functools.partial(_ours, run.threads, n_trials, n_rounds, classify),
            "LightGBM": functools.partial(_peers, _lightgbm, run.threads, n_trials, n_rounds, classify),
            "XGBoost hist": functools.partial(_peers, _xgboost, run.threads, n_trials, n_rounds, classify),
        }
        seconds, losses = {}, {}
        for contender, search in run.installed(contenders).items():
            began = time.perf_counter()
            model = search(table.X, table.y)
            seconds[contender] = Measure(time.perf_counter() - began)
            losses[contender] = Measure(metric(table.y_test, (model.predict_proba if classify else model.predict)(table.X_test)), unit="")
        yield from run.rows(f"{n_trials} trials, {name}", seconds)
        yield from run.rows(f"held-out loss after {n_trials} trials, {name}", losses)


def _ours(threads: int, n_trials: int, n_rounds: int, classify: bool, X: Any, y: Any) -> Any:
    kind = dtrees.GradientBoostingClassifier if classify else dtrees.GradientBoostingRegressor
    return dtrees.tune(kind(n_estimators=n_rounds, n_jobs=threads), X, y, n_trials=n_trials, cv=_FOLDS, random_state=0).estimator


#: Fits to a fold, and returns the best loss on its held-out rows, and the number of rounds; without a fold, fits that number of rounds.
_Fit = Callable[..., tuple[Any, float, int]]


def _peers(fit: _Fit, threads: int, n_trials: int, n_rounds: int, classify: bool, X: Any, y: Any) -> Any:
    """Return the estimator of another library that a study finds, with the same folds, sampler and pruner as for dtrees."""
    import optuna

    splitter = sklearn.model_selection.check_cv(_FOLDS, y, classifier=classify)

    def given(trial: Any) -> dict[str, Any]:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
            "max_depth": trial.suggest_int("max_depth", 2, 10),
            "leaf": trial.suggest_int("leaf", 1, 100, log=True),
            "columns": trial.suggest_float("columns", 0.2, 1.0),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "reg_lambda": trial.suggest_float("reg_lambda", 0.1, 100.0, log=True),
        }

    def judge(trial: Any) -> float:
        losses, rounds = [], []
        for number, (train, test) in enumerate(splitter.split(X, y)):
            _, loss, best = fit(threads, n_rounds, classify, given(trial), X[train], y[train], (X[test], y[test]))
            losses.append(loss)
            rounds.append(best)
            trial.report(float(np.mean(losses)), number)
            if number + 1 < _FOLDS and trial.should_prune():
                raise optuna.TrialPruned
        trial.set_user_attr("rounds", round(float(np.mean(rounds))))
        return float(np.mean(losses))

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(judge, n_trials)
    return fit(threads, study.best_trial.user_attrs["rounds"], classify, given(study.best_trial), X, y)[0]


def _lightgbm(threads: int, n_rounds: int, classify: bool, given: dict[str, Any], X: Any, y: Any, held_out: Any = None) -> Any:
    import lightgbm as library

    model = lightgbm(n_rounds, threads, classify).set_params(
        num_leaves=2 ** min(given["max_depth"], 8), max_depth=given["max_depth"], learning_rate=given["learning_rate"],
        min_child_samples=given["leaf"], colsample_bytree=given["columns"], subsample=given["subsample"], subsample_freq=1,
        reg_lambda=given["reg_lambda"], metric="binary_logloss" if classify else "rmse",
    )  # fmt: skip
    if held_out is None:
        return model.fit(X, y), np.nan, n_rounds
    model.fit(X, y, eval_set=[held_out], callbacks=[library.early_stopping(max(10, n_rounds // 10), verbose=False)])
    (loss,) = model.best_score_["valid_0"].values()
    return model, loss, model.best_iteration_


def _xgboost(threads: int, n_rounds: int, classify: bool, given: dict[str, Any], X: Any, y: Any, held_out: Any = None) -> Any:
    model = xgboost(n_rounds, threads, "hist", classify).set_params(
        max_depth=given["max_depth"], learning_rate=given["learning_rate"], min_child_weight=given["leaf"],
        colsample_bynode=given["columns"], subsample=given["subsample"], reg_lambda=given["reg_lambda"],
    )  # fmt: skip
    if held_out is None:
        return model.fit(X, y), np.nan, n_rounds
    model.set_params(early_stopping_rounds=max(10, n_rounds // 10)).fit(X, y, eval_set=[held_out], verbose=False)
    return model, model.best_score, model.best_iteration + 1
