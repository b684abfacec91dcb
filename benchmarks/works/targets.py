"""Trees and forests of three targets, which scikit-learn's learn together as well."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Run


def _three_targets(n_rows: int, n_columns: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the synthetic table with two more targets, of other columns."""
    X, y = synthetic(n_rows, n_columns=n_columns)
    noise = np.random.default_rng(1).normal(scale=0.5, size=(2, n_rows))
    return X, np.column_stack([y, X[:, 5] * X[:, 0] + noise[0], np.sin(2 * X[:, 6]) + X[:, 7] + noise[1]])


@benchmark("several-targets")
def several_targets(run: Run) -> Iterator[Yielded]:
    """Trees, forests and extra-trees of full depth for three targets: scikit-learn."""
    for n, n_columns in run.size(tiny=[(200, 8)], small=[(5_000, 8)], full=[(20_000, 8), (100_000, N_COLUMNS)]):
        X, y = _three_targets(n, n_columns)
        table, n_trees = f"3 targets, {n:,} x {n_columns}", run.size(tiny=2, small=10, full=20)
        wanted = {"scikit-learn": 3.0}
        yield from run.fits(f"tree, {table}, 1 core", X, y, libraries.trees(None), wanted)
        some = libraries.forests(n_trees, run.threads, classify=False, max_features=1 / 3)
        yield from run.fits(f"forest regression of {n_trees}, 1/3 of the columns, {table}", X, y, _without_ydf(some), wanted)
        yield from run.fits(f"extra-trees regression of {n_trees}, {table}", X, y, libraries.extra_trees(n_trees, run.threads), wanted)
        labels = np.digitize(y, [-0.7, 0.7])
        some = libraries.forests(n_trees, run.threads, classify=True, max_features="sqrt")
        yield from run.fits(f"forest classification of {n_trees}, sqrt of the columns, {table}", X, labels, _without_ydf(some), wanted)


def _without_ydf(makers: libraries.Makers) -> libraries.Makers:
    """Return the libraries whose forests take several targets."""
    return {name: maker for name, maker in makers.items() if name != "YDF"}
