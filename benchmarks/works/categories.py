"""Columns of categories: what is learnt from them, and how long it takes, beside libraries that split by sets and beside numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn.metrics

import dtrees
from benchmarks.data import adult_frames
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run


@benchmark("categories")
def categories(run: Run) -> Iterator[Yielded]:
    """Held-out losses with few and many categories, and the time of splits by sets: XGBoost, LightGBM, columns of numbers."""
    n_trees = run.size(tiny=5, small=50, full=200)
    tables = {
        f"{n_levels:,} categories": _levels(n_levels, run.size(tiny=300, small=n_rows // 4, full=n_rows))
        for n_levels, n_rows in ((1_000, 30_000), (10_000, 60_000), (100_000, 400_000))
    }
    incomes = adult_frames(run.data)
    if incomes is not None and run.scale != "tiny":
        tables = {"Adult": incomes} | tables
    for name, (X, y, X_test, y_test) in tables.items():
        yield from _compare(run, name, X, y, X_test, y_test, n_trees)
    yield from _times(run, n_trees)


def _levels(n_levels: int, n_rows: int) -> tuple[Any, Any, Any, Any]:
    """Return a table with four numbers and a column of categories that each have an effect, a third of it held out."""
    import pandas as pd

    random = np.random.default_rng(0)
    level, effect = random.integers(0, n_levels, n_rows), random.normal(size=n_levels)
    x = random.normal(size=(n_rows, 4))
    y = effect[level] + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.5 * random.normal(size=n_rows)
    frame = pd.DataFrame(x, columns=list("abcd"))
    frame["level"] = pd.Categorical.from_codes(level, [f"{i:06d}" for i in range(n_levels)])
    n_train = 2 * n_rows // 3
    return frame[:n_train], y[:n_train], frame[n_train:], y[n_train:]


def _compare(run: Run, name: str, X: Any, y: Any, X_test: Any, y_test: Any, n_trees: int) -> Iterator[Yielded]:
    classify = y.dtype.kind == "i"
    metric = sklearn.metrics.log_loss if classify else sklearn.metrics.mean_squared_error
    plain = {"n_estimators": n_trees, "learning_rate": 0.1, "max_depth": 6, "n_jobs": run.threads, "random_state": 0}
    kind = "Classifier" if classify else "Regressor"

    def ours() -> Any:
        return getattr(dtrees, f"GradientBoosting{kind}")(**plain)

    def xgboost() -> Any:
        import xgboost

        return getattr(xgboost, f"XGB{kind}")(**plain, enable_categorical=True, tree_method="hist")

    def lightgbm() -> Any:
        import lightgbm

        return getattr(lightgbm, f"LGBM{kind}")(**plain, num_leaves=64, verbose=-1)

    losses = {}
    for peer, make in run.installed({"dtrees": ours, "XGBoost hist": xgboost, "LightGBM": lightgbm}).items():
        model = make().fit(X, y)
        predicted = model.predict_proba(X_test) if classify else model.predict(X_test)
        losses[peer] = Measure(metric(y_test, predicted), unit="loss")
    mine = losses.pop("dtrees")
    for peer, theirs in losses.items():
        yield Row.of(f"held-out loss, {name}", peer, theirs, mine, at_least=None if run.scale == "tiny" else 1.0)


def _times(run: Run, n_trees: int) -> Iterator[Yielded]:
    """Compare columns of categories with columns of as many numbers, also where both make the same trees, or nearly."""
    n_rows = run.size(tiny=300, small=20_000, full=100_000)
    random = np.random.default_rng(0)
    for n_levels, same_trees in ((5, False), (20, False), (20, True), (100, False), (100, True), (1_000, False)):
        X = random.integers(0, n_levels, (n_rows, 10)).astype(np.float32)
        effects = random.normal(size=n_levels)
        if same_trees:  # sets are thresholds: effects in the order of the categories, and all splits are on their column
            y = np.sort(effects)[X[:, 0].astype(np.int64)]
        else:
            y = effects[X[:, 0].astype(np.int64)] + X[:, 1] / n_levels + random.normal(size=n_rows)
        shape = {"n_estimators": n_trees // 4 + 1, "max_depth": 4 if same_trees else 6, "max_features": None}
        contenders = {
            name: functools.partial(
                dtrees.GradientBoostingRegressor(n_jobs=run.threads, random_state=0, categorical_features=given, **shape).fit, X, y
            )
            for name, given in (("numbers", None), ("categories", list(range(10))))
        }
        for fit in contenders.values():  # compiles
            fit()
        measures = run.measure(contenders)
        what = f"{n_levels:,} categories{', the same trees' if same_trees else ''}"
        yield Row.of(
            f"boosting, 10 columns of {what}, {n_rows:,} rows", "as numbers", measures["numbers"], measures["categories"],
            at_least=None if run.scale == "tiny" else 1.0,
        )  # fmt: skip
