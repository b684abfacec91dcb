"""Cross-validation on one presorted table, beside the trees of its folds alone, and scikit-learn's function."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import sklearn.model_selection
from sklearn.base import clone

import dtrees
from benchmarks.data import synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Row, Yielded
from benchmarks.run import Run
from dtrees.ensemble.bagging import fit_presorted

_FOLDS = 5


@benchmark("cross-validation")
def cross_validation(run: Run) -> Iterator[Yielded]:
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

    grow()  # compiles
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
    bar = None if run.scale == "tiny" else 1 / 1.15
    for what in ("scores", "curves"):
        yield Row.of(f"{work}, {what}", "the folds' trees alone", measures["trees"], measures[what], at_least=bar)
    yield Row.of(f"{work}, scores", "scikit-learn's function", measures["scikit-learn"], measures["scores"], at_least=bar and 1.0)
