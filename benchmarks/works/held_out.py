"""Losses on held-out rows by loss, criterion, constraint and column type, for dtrees and the libraries that support these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sklearn.metrics

import dtrees
from benchmarks.data import TrainTest, adult_frames
from benchmarks.libraries import Makers, boosting_with, lightgbm
from benchmarks.results import Row
from benchmarks.run import OURS, Run, benchmark

# --- criteria of trees and forests, and constraints ---


_ALPHA = 0.8
_Metric = Callable[[Any, Any], float]
#: The metric for each criterion.
_REGRESSION: dict[str, _Metric] = {
    "squared_error": sklearn.metrics.mean_squared_error,
    "friedman_mse": sklearn.metrics.mean_squared_error,
    "absolute_error": sklearn.metrics.mean_absolute_error,
    "quantile": functools.partial(sklearn.metrics.mean_pinball_loss, alpha=_ALPHA),
    "poisson": sklearn.metrics.mean_poisson_deviance,
}
_CLASSIFICATION: dict[str, _Metric] = {"gini": sklearn.metrics.log_loss, "entropy": sklearn.metrics.log_loss}
#: Columns of California housing: prices increase with incomes and decrease with the number of people in a block.
_PRICES = {7: 1, 5: -1}
_PLACE = (0, 1)
#: Columns of Adult: the probability of a high income increases with years of school and capital gains.
_INCOMES = {4: 1, 10: 1}
_PERSON = (0, 3, 4, 5, 7, 8, 9)


@benchmark("held_out")
def held_out(run: Run) -> Iterator[Row]:
    """Losses on held-out rows by criterion of trees and forests, and by constraint: scikit-learn, XGBoost, LightGBM."""
    prices, incomes = run.prices_and_incomes()
    for criteria, table, kind in ((_REGRESSION, prices, "Regressor"), (_CLASSIFICATION, incomes, "Classifier")):
        for criterion, metric in criteria.items():
            for what, makers in _by_criterion(run, criterion, kind):
                yield from run.losses(f"{what} by {criterion}", table, makers, metric)
    for name, table, signs, group in (("prices", prices, _PRICES, _PLACE), ("incomes", incomes, _INCOMES, _PERSON)):
        n_columns, classify = table.X.shape[1], name == "incomes"
        metric = sklearn.metrics.log_loss if classify else sklearn.metrics.mean_squared_error
        order = [signs.get(column, 0) for column in range(n_columns)]
        rest = tuple(column for column in range(n_columns) if column not in group)
        for what, given in (
            ("two monotonic columns", {"monotonic_cst": order}),
            ("two sets of columns", {"interaction_cst": [group, rest]}),
        ):
            yield from run.losses(f"{name}, boosting with {what}", table, _constrained(run, classify, given), metric)


def _by_criterion(run: Run, criterion: str, kind: str) -> Iterator[tuple[str, Makers]]:
    """Yield a tree and a forest with a criterion, of dtrees and of scikit-learn if it has the criterion."""
    import sklearn.ensemble
    import sklearn.tree

    tree = {"criterion": criterion, "max_depth": 10, "min_samples_leaf": 20, "random_state": 0}
    n_trees = run.size(tiny=2, small=10, full=50)
    forest = {"criterion": criterion, "n_estimators": n_trees, "min_samples_leaf": 5, "max_features": 0.4, "random_state": 0}
    for what, class_name, module, settings in (
        ("a tree", f"DecisionTree{kind}", sklearn.tree, tree),
        ("a forest", f"RandomForest{kind}", sklearn.ensemble, forest | {"n_jobs": run.threads}),
    ):
        own = {"alpha": _ALPHA} if criterion == "quantile" else {}
        makers: Makers = {OURS: functools.partial(getattr(dtrees, class_name), **settings, **own)}
        if criterion != "quantile":
            # scikit-learn has deprecated this name for squared error.
            theirs = settings | {"criterion": "squared_error" if criterion == "friedman_mse" else criterion}
            makers["scikit-learn"] = functools.partial(getattr(module, class_name), **theirs)
        elif what == "a forest":
            makers["LightGBM"] = functools.partial(
                lightgbm, n_trees, run.threads, objective="quantile", alpha=_ALPHA, boosting_type="rf", num_leaves=4096, max_depth=-1,
                min_child_samples=5, subsample=0.632, subsample_freq=1, colsample_bynode=0.4,
            )  # fmt: skip
        yield what, makers


def _constrained(run: Run, classify: bool, given: dict[str, Any]) -> Makers:
    """Return constrained boosting of the libraries that support the constraints, with trees of depth 6 and a learning rate of 0.1."""
    of_xgboost: dict[str, Any]
    of_lightgbm: dict[str, Any]
    if "monotonic_cst" in given:
        signs = given["monotonic_cst"]
        of_xgboost, of_lightgbm = {"monotone_constraints": tuple(signs)}, {"monotone_constraints": signs}
    else:
        sets = [list(columns) for columns in given["interaction_cst"]]
        # XGBoost would interpret a list as names.
        of_xgboost, of_lightgbm = {"interaction_constraints": str(sets)}, {"interaction_constraints": sets}
    of_each = {OURS: {"reg_lambda": 1.0, **given}, "scikit-learn hist": given, "XGBoost hist": of_xgboost, "LightGBM": of_lightgbm}
    return boosting_with(run.size(tiny=5, small=50, full=200), run.threads, classify, of_each)


# --- the losses of boosting ---


_QUANTILE, _POWER = 0.8, 1.5
#: For each regression loss the metric, and the objectives of XGBoost and LightGBM. Huber's loss estimates means without outliers, so the
#: metric is the absolute error.
_LOSSES: dict[str, tuple[_Metric, str, str]] = {
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
