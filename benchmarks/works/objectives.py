"""The losses of boosting: what each comes to on rows held out, beside the libraries that have it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.metrics
from numpy.typing import NDArray

import dtrees
from benchmarks.data import TrainTest, adult, california, hold_out, synthetic
from benchmarks.libraries import Makers, lightgbm, xgboost
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run

_QUANTILE, _POWER = 0.8, 1.5
#: What is measured for each loss for regression. Huber's loss is for means without outliers: what counts is the absolute error.
_METRICS: dict[str, Callable[[Any, Any], float]] = {
    "squared_error": sklearn.metrics.mean_squared_error,
    "absolute_error": sklearn.metrics.mean_absolute_error,
    "huber": sklearn.metrics.mean_absolute_error,
    "quantile": lambda y, p: sklearn.metrics.mean_pinball_loss(y, p, alpha=_QUANTILE),
    "poisson": sklearn.metrics.mean_poisson_deviance,
    "gamma": sklearn.metrics.mean_gamma_deviance,
    "tweedie": lambda y, p: sklearn.metrics.mean_tweedie_deviance(y, p, power=_POWER),
}
_XGBOOST = {
    "squared_error": {"objective": "reg:squarederror"},
    "absolute_error": {"objective": "reg:absoluteerror"},
    "quantile": {"objective": "reg:quantileerror", "quantile_alpha": _QUANTILE},
    "poisson": {"objective": "count:poisson"},
    "gamma": {"objective": "reg:gamma"},
    "tweedie": {"objective": "reg:tweedie", "tweedie_variance_power": _POWER},
}
_LIGHTGBM = {
    "squared_error": {"objective": "l2"},
    "absolute_error": {"objective": "l1"},
    "quantile": {"objective": "quantile", "alpha": _QUANTILE},
    "poisson": {"objective": "poisson"},
    "gamma": {"objective": "gamma"},
    "tweedie": {"objective": "tweedie", "tweedie_variance_power": _POWER},
}
_HIST = {"squared_error": {}, "absolute_error": {}, "quantile": {"quantile": _QUANTILE}, "poisson": {}, "gamma": {}}


@benchmark("objectives")
def objectives(run: Run) -> Iterator[Yielded]:
    """What each loss of boosting comes to on held-out rows: scikit-learn, XGBoost, LightGBM."""
    housing, incomes = california(run.data), adult(run.data)
    n_trees = run.size(tiny=5, small=50, full=200)
    if housing is None or incomes is None or run.scale == "tiny":
        X, y = synthetic(run.size(tiny=300, small=5_000, full=20_000), False)
        table, labels = hold_out(X, np.exp(y / 4)), hold_out(*synthetic(len(X), True))
    else:
        table, labels = hold_out(housing[0], housing[1] / 100_000), incomes
    for loss, metric in _METRICS.items():
        yield from _compare(run, f"held-out loss, {loss}", table, _regressors(loss, n_trees, run.threads), metric)
    yield from _compare(run, "held-out log loss, exponential", labels, _exponential(n_trees, run.threads), sklearn.metrics.log_loss)


@benchmark("criteria")
def criteria(run: Run) -> Iterator[Yielded]:
    """Trees for regression by each criterion: squared error."""
    n = run.size(tiny=300, small=20_000, full=100_000)
    X, y = synthetic(n, False)
    amounts = np.exp(y / 4)
    for depth in (6, None):
        contenders = {
            name: functools.partial(dtrees.DecisionTreeRegressor(criterion=name, max_depth=depth, random_state=0).fit, X, amounts)
            for name in ("squared_error", "poisson", "absolute_error", "quantile")
        }
        for fit in contenders.values():  # compiles
            fit()
        measures = run.measure(contenders)
        for name in ("poisson", "absolute_error", "quantile"):
            most = None if run.scale == "tiny" else 1.2 if name == "poisson" else 4.0
            work = f"tree {'of full depth' if depth is None else f'of depth {depth}'} by {name}, {n:,} x {X.shape[1]}"
            yield Row.of(work, "squared error", measures["squared_error"], measures[name], at_least=None if most is None else 1 / most)


def _compare(run: Run, work: str, table: TrainTest, makers: Makers, metric: Callable[[Any, Any], float]) -> Iterator[Yielded]:
    measures = {
        name: Measure(metric(table.y_test, _predictions(make().fit(table.X, table.y), table.X_test)), unit="loss")
        for name, make in run.installed(makers).items()
    }
    ours = measures.pop("dtrees")
    for peer, theirs in measures.items():
        yield Row.of(work, peer, theirs, ours, at_least=None if run.scale == "tiny" else 0.97)


def _predictions(model: Any, X: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X))


def _regressors(loss: str, n_trees: int, threads: int) -> Makers:
    """Return the estimators that have a loss, with trees of depth 6 and steps of a tenth."""
    from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

    own = {"quantile": {"alpha": _QUANTILE}}.get(loss, {})
    plain = {"n_estimators": n_trees, "learning_rate": 0.1, "max_depth": 6}
    makers: Makers = {
        "dtrees": lambda: dtrees.GradientBoostingRegressor(loss=loss, **own, **plain, reg_lambda=1.0, n_jobs=threads, random_state=0)
    }
    if loss in ("absolute_error", "huber", "quantile"):
        makers["scikit-learn"] = lambda: GradientBoostingRegressor(loss=loss, **own, **plain, random_state=0)
    if loss in _HIST:
        makers["scikit-learn hist"] = lambda: HistGradientBoostingRegressor(
            loss=loss, **_HIST[loss], max_iter=n_trees, max_depth=6, max_leaf_nodes=None, early_stopping=False, random_state=0
        )
    if loss in _XGBOOST:
        method = "hist" if loss in ("absolute_error", "quantile") else "exact"  # which do not have these losses
        makers[f"XGBoost {method}"] = lambda: xgboost(n_trees, threads, method).set_params(**_XGBOOST[loss])
    if loss in _LIGHTGBM:
        makers["LightGBM"] = lambda: lightgbm(n_trees, threads, **_LIGHTGBM[loss])
    return makers


def _exponential(n_trees: int, threads: int) -> Makers:
    from sklearn.ensemble import GradientBoostingClassifier

    plain = {"loss": "exponential", "n_estimators": n_trees, "learning_rate": 0.1, "max_depth": 3}
    return {
        "dtrees": lambda: dtrees.GradientBoostingClassifier(**plain, reg_lambda=0.0, n_jobs=threads, random_state=0),
        "scikit-learn": lambda: GradientBoostingClassifier(**plain, random_state=0),
    }
