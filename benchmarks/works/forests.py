"""Time of trees and forests, including small and sparse tables and several targets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, california, synthetic, texts
from benchmarks.results import Row
from benchmarks.run import Run, benchmark


@benchmark("trees")
def trees(run: Run) -> Iterator[Row]:
    """Regression trees on one core: scikit-learn."""
    X, y = synthetic(run.size(tiny=300, small=10_000, full=100_000))
    shape = f"{len(X):,} x {N_COLUMNS}, 1 core"
    yield from run.fits(f"tree of full depth, {shape}", X, y, libraries.trees(None))
    yield from run.fits(f"tree of depth 6, {shape}", X, y, libraries.trees(6))
    yield from run.fits(f"tree of depth 6 by absolute error, {shape}", X, y, libraries.trees(6, criterion="absolute_error"))


@benchmark("forests")
def forests(run: Run) -> Iterator[Row]:
    """Forests of full depth, all cores, of large, small and sparse tables: scikit-learn, its extension by Intel, YDF."""
    n, n_trees, t = run.size(tiny=200, small=5_000, full=100_000), run.size(tiny=3, small=20, full=32), run.threads
    X, y = synthetic(n)
    shape = f"{n_trees} trees, {n:,} x {N_COLUMNS}"
    yield from run.fits(f"random forest, regression, 1/3 of the columns, {shape}", X, y, libraries.forests(n_trees, t, False, 1 / 3))
    labels = (y > 0).astype(np.int64)
    yield from run.fits(f"random forest, two classes, sqrt of the columns, {shape}", X, labels, libraries.forests(n_trees, t, True, "sqrt"))
    yield from run.fits(f"extra-trees, regression, {shape}", X, y, libraries.extra_trees(n_trees, t))
    n_trees = run.size(tiny=2, small=20, full=100)
    X, y = load_iris(return_X_y=True)
    yield from run.fits(f"random forest, Iris, {n_trees} trees, 150 x 4", X, y, libraries.forests(n_trees, t, True, "sqrt"))
    if (housing := california(run.data)) is not None and run.scale != "tiny":
        yield from run.fits(f"random forest, California housing, {n_trees} trees", *housing, libraries.forests(n_trees, t, False, 1 / 3))
    X, y = texts(run.size(tiny=100, small=5_000, full=20_000), 20_000, 100)
    makers = {name: make for name, make in libraries.forests(20, t, True, "sqrt").items() if name in ("dtrees", "scikit-learn")}
    yield from run.fits(f"random forest, sparse, {X.nnz:,} values, 20 trees, {X.shape[0]:,} x 20,000", X, y, makers)


def _three_targets(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the synthetic table with two more targets, from other columns."""
    X, y = synthetic(n_rows, n_columns=n_columns)
    noise = np.random.default_rng(1).normal(scale=0.5, size=(2, n_rows))
    return X, np.column_stack([y, X[:, 5] * X[:, 0] + noise[0], np.sin(2 * X[:, 6]) + X[:, 7] + noise[1]])


@benchmark("several-targets")
def several_targets(run: Run) -> Iterator[Row]:
    """Trees, forests and extra-trees of full depth for three targets: scikit-learn."""
    for n, n_columns in run.size(tiny=[(200, 8)], small=[(5_000, 8)], full=[(20_000, 8), (100_000, N_COLUMNS)]):
        X, y = _three_targets(n, n_columns)
        shape, n_trees = f"3 targets, {n:,} x {n_columns}", run.size(tiny=2, small=10, full=20)
        labels = np.digitize(y, [-0.7, 0.7])
        for work, target, makers in (
            ("tree, 1 core", y, libraries.trees(None)),
            (f"random forest of {n_trees}", y, libraries.forests(n_trees, run.threads, False, 1 / 3)),
            (f"random forest of {n_trees}, 3 classes each", labels, libraries.forests(n_trees, run.threads, True, "sqrt")),
            (f"extra-trees of {n_trees}", y, libraries.extra_trees(n_trees, run.threads)),
        ):
            yield from run.fits(f"{work}, {shape}", X, target, {name: makers[name] for name in ("dtrees", "scikit-learn")})
