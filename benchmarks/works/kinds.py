"""Boosting and forests of tables whose columns are other than normal: each has its own way to be slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Run


def tables(n: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Give tables of ``n`` rows and 28 columns, with their names."""
    random = np.random.default_rng(0)
    shape = n, N_COLUMNS

    def normal() -> NDArray[np.float64]:
        return random.standard_normal(shape)

    def one_hot() -> NDArray[np.float64]:
        n_categories = N_COLUMNS - 6
        return np.hstack([normal()[:, :6], np.eye(n_categories)[random.integers(0, n_categories, n)]])

    def in_order() -> NDArray[np.float64]:
        X = normal()
        return X[np.argsort(X[:, 0])]

    kinds: dict[str, Callable[[], NDArray[Any]]] = {
        "nine of ten values 0": lambda: np.where(random.random(shape) < 0.9, 0.0, normal()),
        "6 columns and a category of 22, one-hot": one_hot,
        "integers up to 255": lambda: random.integers(0, 256, shape),
        "counts": lambda: random.poisson(0.7, shape),
        "rounded to 0.01": lambda: normal().round(2),
        "three of ten values missing": lambda: np.where(random.random(shape) < 0.3, np.nan, normal()),
        "heavy tails": lambda: np.exp(2 * normal()),
        "rows in the order of a column": in_order,
    }
    for kind, make in kinds.items():
        yield kind, make().astype(np.float32)


def target_of(X: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a target of five columns, as that of the synthetic table, whatever their scale."""
    x = np.nan_to_num(X[:, :5]).astype(np.float64)
    x = np.clip((x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), -3, 3)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + x[:, 3] * (x[:, 4] > 0)
    return np.asarray(signal + 0.5 * np.random.default_rng(1).standard_normal(len(x)))


@benchmark("kinds")
def kinds(run: Run) -> Iterator[Yielded]:
    """Boosting of sparse, one-hot, integer, missing, heavy-tailed columns and of ordered rows: XGBoost hist, LightGBM."""
    n, n_trees = run.size(tiny=300, small=20_000, full=300_000), run.size(tiny=2, small=20, full=50)
    for kind, X in tables(n):
        makers = libraries.boosting(n_trees, run.threads)
        del makers["XGBoost exact"]
        yield from run.fits(f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}, {kind}", X, target_of(X), makers, {})


@benchmark("kinds-forest")
def kinds_forest(run: Run) -> Iterator[Yielded]:
    """Forests of the same columns, and of normal ones, regression and classification: scikit-learn."""
    n, n_trees = run.size(tiny=300, small=10_000, full=100_000), run.size(tiny=2, small=4, full=8)
    for kind, X in [("normal", synthetic(n)[0]), *tables(n)]:
        y = target_of(X)
        for classify, max_features in ((False, 1 / 3), (True, "sqrt")):
            makers = libraries.forests(n_trees, run.threads, classify, max_features)
            del makers["YDF"]
            what = "classification" if classify else "regression"
            work = f"forest {what}, {n_trees} trees, {n:,} x {N_COLUMNS}, {kind}"
            yield from run.fits(work, X, y > np.median(y) if classify else y, makers, {})
