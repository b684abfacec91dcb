"""What each criterion of trees and forests, and each constraint, comes to on rows held out, beside the libraries that have it."""

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
from benchmarks.results import Measure, Yielded
from benchmarks.run import OURS, Run

_ALPHA = 0.8
_Metric = Callable[[Any, Any], float]
#: What is measured for each criterion.
_REGRESSION: dict[str, _Metric] = {
    "squared_error": sklearn.metrics.mean_squared_error,
    "friedman_mse": sklearn.metrics.mean_squared_error,
    "absolute_error": sklearn.metrics.mean_absolute_error,
    "quantile": functools.partial(sklearn.metrics.mean_pinball_loss, alpha=_ALPHA),
    "poisson": sklearn.metrics.mean_poisson_deviance,
}
_CLASSIFICATION: dict[str, _Metric] = {"gini": sklearn.metrics.log_loss, "entropy": sklearn.metrics.log_loss}
#: Columns of California housing: prices rise with incomes and fall with the number of people in a block; the place, and all else.
_PRICES = {7: 1, 5: -1}
_PLACE = (0, 1)
#: Columns of Adult: chances of a high income rise with years of school and capital gains.
_INCOMES = {4: 1, 10: 1}
_PERSON = (0, 3, 4, 5, 7, 8, 9)


@benchmark("held_out")
def held_out(run: Run) -> Iterator[Yielded]:
    """What criteria of trees and forests, and constraints, come to on held-out rows: scikit-learn, XGBoost, LightGBM."""
    housing, incomes = california(run.data), adult(run.data)
    if housing is None or incomes is None or run.scale == "tiny":
        X, y = synthetic(run.size(tiny=300, small=5_000, full=20_000), n_columns=14)
        prices, incomes = hold_out(X, np.exp(y / 4)), hold_out(X, (y > 0).astype(np.int64))
    else:
        prices = hold_out(housing[0], housing[1] / 100_000)
    for criteria, table, kind in ((_REGRESSION, prices, "Regressor"), (_CLASSIFICATION, incomes, "Classifier")):
        for criterion, metric in criteria.items():
            for what, makers in _by_criterion(run, criterion, kind):
                yield from _compare(run, f"held-out loss, {what} by {criterion}", table, makers, metric)
    for name, table, signs, group in (("prices", prices, _PRICES, _PLACE), ("incomes", incomes, _INCOMES, _PERSON)):
        n_columns, classify = table.X.shape[1], name == "incomes"
        metric = sklearn.metrics.log_loss if classify else sklearn.metrics.mean_squared_error
        order = [signs.get(column, 0) for column in range(n_columns)]
        rest = tuple(column for column in range(n_columns) if column not in group)
        for what, given in (
            ("two monotonic columns", {"monotonic_cst": order}),
            ("two sets of columns", {"interaction_cst": [group, rest]}),
        ):
            yield from _compare(run, f"held-out loss, {name}, boosting with {what}", table, _constrained(run, classify, given), metric)


def _compare(run: Run, work: str, table: TrainTest, makers: Makers, metric: _Metric) -> Iterator[Yielded]:
    measures = {
        name: Measure(metric(table.y_test, _predictions(make().fit(table.X, table.y), table.X_test)), unit="loss")
        for name, make in run.installed(makers).items()
    }
    yield from run.rows(work, measures, {} if run.scale == "tiny" else dict.fromkeys(measures, 0.97))


def _predictions(model: Any, X: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X))


def _by_criterion(run: Run, criterion: str, kind: str) -> Iterator[tuple[str, Makers]]:
    """Give a tree and a forest of a criterion, of dtrees and of scikit-learn if that has it."""
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
    """Return boosting under constraints of the libraries that know them, trees of depth 6 with steps of a tenth."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    n_trees = run.size(tiny=5, small=50, full=200)
    cls = dtrees.GradientBoostingClassifier if classify else dtrees.GradientBoostingRegressor
    hist = HistGradientBoostingClassifier if classify else HistGradientBoostingRegressor
    if "monotonic_cst" in given:
        signs = given["monotonic_cst"]
        of_xgboost, of_lightgbm = {"monotone_constraints": tuple(signs)}, {"monotone_constraints": signs}
    else:
        sets = [list(columns) for columns in given["interaction_cst"]]
        # A list would be one of names to XGBoost.
        of_xgboost, of_lightgbm = {"interaction_constraints": str(sets)}, {"interaction_constraints": sets}
    settings = {"learning_rate": 0.1, "max_depth": 6, "random_state": 0}
    return {
        OURS: lambda: cls(n_estimators=n_trees, reg_lambda=1.0, n_jobs=run.threads, **settings, **given),
        "scikit-learn hist": lambda: hist(max_iter=n_trees, max_leaf_nodes=None, early_stopping=False, **settings, **given),
        "XGBoost hist": lambda: xgboost(n_trees, run.threads, "hist", classify).set_params(**of_xgboost),
        "LightGBM": lambda: lightgbm(n_trees, run.threads, classify, **of_lightgbm),
    }
