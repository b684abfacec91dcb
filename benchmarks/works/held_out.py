"""Losses on held-out rows by loss and column type, for dtrees and the libraries that support these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.metrics

from benchmarks.data import TrainTest, adult_frames
from benchmarks.libraries import Makers, boosting_with
from benchmarks.results import Row
from benchmarks.run import OURS, Run, benchmark

# --- the losses of boosting ---


_QUANTILE, _POWER = 0.8, 1.5
#: For each regression loss the metric, and the objectives of XGBoost and LightGBM. Huber's loss estimates means without outliers, so the
#: metric is the absolute error.
_LOSSES: dict[str, tuple[Callable[[Any, Any], float], str, str]] = {
    "squared_error": (sklearn.metrics.mean_squared_error, "reg:squarederror", "l2"),
    "absolute_error": (sklearn.metrics.mean_absolute_error, "reg:absoluteerror", "l1"),
    "huber": (sklearn.metrics.mean_absolute_error, "", ""),
    "quantile": (lambda y, p: sklearn.metrics.mean_pinball_loss(y, p, alpha=_QUANTILE), "reg:quantileerror", "quantile"),
    "poisson": (sklearn.metrics.mean_poisson_deviance, "count:poisson", "poisson"),
    "gamma": (sklearn.metrics.mean_gamma_deviance, "reg:gamma", "gamma"),
    "tweedie": (lambda y, p: sklearn.metrics.mean_tweedie_deviance(y, p, power=_POWER), "reg:tweedie", "tweedie"),
}
#: Parameters of some losses.
_XGBOOST = {"quantile": {"quantile_alpha": _QUANTILE}, "tweedie": {"tweedie_variance_power": _POWER}}
_LIGHTGBM = {"quantile": {"alpha": _QUANTILE}, "tweedie": {"tweedie_variance_power": _POWER}}
_HIST = {"squared_error": {}, "absolute_error": {}, "quantile": {"quantile": _QUANTILE}, "poisson": {}, "gamma": {}}


@benchmark("objectives")
def objectives(run: Run) -> Iterator[Row]:
    """Losses on held-out rows by loss of boosting: scikit-learn, XGBoost, LightGBM."""
    (table, labels), n_trees = run.prices_and_incomes(), run.size(tiny=5, small=50, full=200)
    for loss, (metric, *_) in _LOSSES.items():
        yield from run.losses(loss.replace("_", " "), table, _regressors(loss, n_trees, run.threads), metric)
    yield from run.losses("exponential, log loss of Adult", labels, _exponential(n_trees, run.threads), sklearn.metrics.log_loss)


def _regressors(loss: str, n_trees: int, threads: int) -> Makers:
    """Return the estimators that have a loss, with trees of depth 6 and a learning rate of 0.1."""
    own: dict[str, Any] = {"loss": loss} | ({"alpha": _QUANTILE} if loss == "quantile" else {})
    given = {OURS: own | {"reg_lambda": 1.0}}
    if loss in ("absolute_error", "huber", "quantile"):
        given["scikit-learn"] = own
    if loss in _HIST:
        given["scikit-learn hist"] = {"loss": loss, **_HIST[loss]}
    _, of_xgboost, of_lightgbm = _LOSSES[loss]
    if of_xgboost:
        method = "hist" if loss in ("absolute_error", "quantile") else "exact"  # exact does not have these losses
        given[f"XGBoost {method}"] = {"objective": of_xgboost, **_XGBOOST.get(loss, {})}
        given["LightGBM"] = {"objective": of_lightgbm, **_LIGHTGBM.get(loss, {})}
    return boosting_with(n_trees, threads, False, given)


def _exponential(n_trees: int, threads: int) -> Makers:
    own = {"loss": "exponential", "max_depth": 3}
    return boosting_with(n_trees, threads, True, {OURS: own | {"reg_lambda": 0.0}, "scikit-learn": own})


# --- columns of categories, which all three libraries split by subsets ---


@benchmark("categories")
def categories(run: Run) -> Iterator[Row]:
    """Held-out losses with few and many categories, 200 trees of depth 6: XGBoost, LightGBM."""
    n_trees = run.size(tiny=5, small=50, full=200)
    incomes = adult_frames(run.data)
    if incomes is not None and run.scale != "tiny":
        yield from run.losses("Adult, log loss", incomes, _by_sets(run, n_trees, True), sklearn.metrics.log_loss)
    for n_levels, n_rows in ((1_000, 30_000), (10_000, 60_000), (100_000, 400_000)):
        table = _levels(n_levels, run.size(tiny=300, small=n_rows // 4, full=n_rows))
        work = f"{n_levels:,} categories, {n_rows:,} rows, squared error"
        yield from run.losses(work, table, _by_sets(run, n_trees, False), sklearn.metrics.mean_squared_error)


def _levels(n_levels: int, n_rows: int) -> TrainTest:
    """Return a table of four numeric columns and a column of categories with individual effects; a third of the rows is held out."""
    import pandas as pd

    random = np.random.default_rng(0)
    level, effect = random.integers(0, n_levels, n_rows), random.normal(size=n_levels)
    x = random.normal(size=(n_rows, 4))
    y = effect[level] + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * random.normal(size=n_rows)
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["level"] = pd.Categorical.from_codes(level, [f"{i:06d}" for i in range(n_levels)])
    n_train = 2 * n_rows // 3
    return TrainTest(frame[:n_train], y[:n_train], frame[n_train:], y[n_train:])


def _by_sets(run: Run, n_trees: int, classify: bool) -> Makers:
    return boosting_with(n_trees, run.threads, classify, {OURS: {}, "XGBoost hist": {"enable_categorical": True}, "LightGBM": {}})
