"""Constraints on columns: what they cost in time, and what comes of them on rows held out, beside the libraries that have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn.metrics

import dtrees
from benchmarks.data import N_COLUMNS, california, hold_out, synthetic
from benchmarks.libraries import Makers, lightgbm, xgboost
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Yielded
from benchmarks.run import OURS, Run

_PEER = "without constraints"
#: Constrained fits may take 1.2 times as long.
_TARGETS = {_PEER: 1 / 1.2}
#: Columns of California housing: prices rise with incomes and fall with the number of people in a block.
_RISING, _FALLING = 7, 5


@benchmark("constraints")
def constraints(run: Run) -> Iterator[Yielded]:
    """Monotonic columns and limited interactions: time beside fits without them, and held-out loss beside other libraries."""
    n_rows = run.size(tiny=300, small=10_000, full=100_000)
    n_trees = run.size(tiny=2, small=10, full=20)
    signs = [1, -1, *[0] * (N_COLUMNS - 2)]
    X, y = synthetic(n_rows)
    for cls, settings in (
        (dtrees.GradientBoostingRegressor, {"n_estimators": 5 * n_trees, "n_jobs": run.threads}),
        (dtrees.RandomForestRegressor, {"n_estimators": n_trees, "n_jobs": run.threads, "max_features": 1 / 3}),
        (dtrees.ExtraTreesRegressor, {"n_estimators": n_trees, "n_jobs": run.threads, "max_features": 1 / 3}),
    ):
        for name, given in (("monotonic_cst", signs), ("interaction_cst", "pairwise")):
            makers: dict[str, Any] = {
                OURS: lambda cls=cls, settings=settings, given=given, name=name: cls(random_state=0, **settings, **{name: given}),
                _PEER: lambda cls=cls, settings=settings: cls(random_state=0, **settings),
            }
            wanted = _TARGETS if name == "monotonic_cst" and run.scale != "tiny" else {}
            yield from run.fits(f"{name}, {cls.__name__}, {n_rows:,} x {N_COLUMNS}", X, y, makers, wanted)
    yield from _held_out(run)


def _held_out(run: Run) -> Iterator[Yielded]:
    housing = california(run.data)
    if housing is None or run.scale == "tiny":
        X, y = synthetic(run.size(tiny=300, small=5_000, full=20_000), False)
    else:
        X, y = housing[0], housing[1] / 100_000
    table = hold_out(X, y)
    signs = np.zeros(X.shape[1], int)
    signs[_RISING], signs[_FALLING] = 1, -1
    n_trees = run.size(tiny=5, small=50, full=200)
    measures = {
        name: Measure(sklearn.metrics.mean_squared_error(table.y_test, make().fit(table.X, table.y).predict(table.X_test)), unit="loss")
        for name, make in run.installed(_boosters(n_trees, run.threads, signs.tolist())).items()
    }
    wanted = {} if run.scale == "tiny" else dict.fromkeys(measures, 0.97)
    yield from run.rows("held-out squared error, two monotonic columns", measures, wanted)


def _boosters(n_trees: int, threads: int, signs: list[int]) -> Makers:
    from sklearn.ensemble import HistGradientBoostingRegressor

    own = {"n_estimators": n_trees, "learning_rate": 0.1, "max_depth": 6, "reg_lambda": 1.0, "n_jobs": threads, "random_state": 0}
    hist = {"max_iter": n_trees, "max_depth": 6, "max_leaf_nodes": None, "early_stopping": False, "random_state": 0}
    return {
        OURS: lambda: dtrees.GradientBoostingRegressor(monotonic_cst=signs, **own),
        "scikit-learn hist": lambda: HistGradientBoostingRegressor(monotonic_cst=signs, **hist),
        "XGBoost exact": lambda: xgboost(n_trees, threads, "exact").set_params(monotone_constraints=tuple(signs)),
        "LightGBM": lambda: lightgbm(n_trees, threads, monotone_constraints=signs),
    }
