"""Trees and forests, of small tables and of several targets too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, california, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Maker, Run

# --- single trees on one core ---


@benchmark("tree-full-depth")
def full_depth(run: Run) -> Iterator[Yielded]:
    """A tree of full depth on one core: scikit-learn."""
    n = run.size(tiny=300, small=10_000, full=100_000)
    X, y = synthetic(n)
    yield from run.fits(f"tree, full depth, {n:,} x {N_COLUMNS}, 1 core", X, y, libraries.trees(None), {"scikit-learn": 10.0})


@benchmark("tree-depth-6")
def depth_6(run: Run) -> Iterator[Yielded]:
    """A tree of depth 6 on one core: scikit-learn."""
    n = run.size(tiny=300, small=10_000, full=100_000)
    X, y = synthetic(n)
    yield from run.fits(f"tree, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, libraries.trees(6), {"scikit-learn": 5.0})


@benchmark("tree-absolute-error")
def absolute_error(run: Run) -> Iterator[Yielded]:
    """A tree of depth 6 by absolute error on one core: scikit-learn."""
    n = run.size(tiny=200, small=3_000, full=100_000)
    X, y = synthetic(n)
    makers = libraries.trees(6, criterion="absolute_error")
    yield from run.fits(f"absolute_error tree, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, makers, {"scikit-learn": 10.0})


# --- forests of full depth, all cores ---


def _sizes(run: Run) -> tuple[int, int, str]:
    """Return the numbers of rows and of trees, and what to call the work."""
    n, n_trees = run.size(tiny=200, small=5_000, full=100_000), run.size(tiny=3, small=20, full=100)
    return n, n_trees, f"{n_trees} trees, full depth, {n:,} x {N_COLUMNS}"


@benchmark("forest-regression")
def regression(run: Run) -> Iterator[Yielded]:
    """Random forest regression, a third of the columns at each node: scikit-learn, YDF."""
    n, n_trees, text = _sizes(run)
    makers = libraries.forests(n_trees, run.threads, classify=False, max_features=1 / 3)
    yield from run.fits(f"forest regression, 1/3 of the columns, {text}", *synthetic(n), makers, {"scikit-learn": 8.0, "YDF": 5.0})


@benchmark("forest-classification")
def classification(run: Run) -> Iterator[Yielded]:
    """Random forest classification, the square root of the columns at each node: scikit-learn, YDF."""
    n, n_trees, text = _sizes(run)
    makers = libraries.forests(n_trees, run.threads, classify=True, max_features="sqrt")
    work = f"forest classification, sqrt of the columns, {text}"
    yield from run.fits(work, *synthetic(n, classify=True), makers, {"scikit-learn": 6.0, "YDF": 3.0})


@benchmark("extra-trees")
def extra_trees(run: Run) -> Iterator[Yielded]:
    """Extra-trees regression: scikit-learn."""
    n, n_trees, text = _sizes(run)
    makers = libraries.extra_trees(n_trees, run.threads)
    yield from run.fits(f"extra-trees regression, {text}", *synthetic(n), makers, {"scikit-learn": 3.0})


# --- fits of small tables, where what a fit costs whatever its size is felt ---


@benchmark("small-tables")
def small_tables(run: Run) -> Iterator[Yielded]:
    """Iris and California housing, a forest and a boosting of 100: the faster one of scikit-learn and LightGBM."""
    from sklearn.datasets import load_iris

    n_trees = run.size(tiny=2, small=20, full=100)
    tables = {"Iris": (load_iris().data.astype(np.float32), load_iris().target, True)}
    housing = california(run.data)
    if housing is None:
        run.skip("California housing, which is not at hand (--data)")
    else:
        n = run.size(tiny=200, small=5_000, full=housing[0].shape[0])
        tables["California"] = (housing[0][:n], housing[1][:n], False)
    for name, (X, y, classify) in tables.items():
        shape = f"{X.shape[0]:,} x {X.shape[1]}"
        yield from run.fits(f"forest of {n_trees}, {name}, {shape}", X, y, _forests(run, n_trees, classify, X.shape[0]), fastest=1.0)
        yield from run.fits(f"boosting of {n_trees}, {name}, {shape}", X, y, _boostings(run, n_trees, classify), fastest=1.0)


def _forests(run: Run, n_trees: int, classify: bool, n_rows: int) -> dict[str, Maker]:
    max_features = "sqrt" if classify else 1 / 3
    makers = libraries.forests(n_trees, run.threads, classify, max_features)
    del makers["YDF"]
    by_node = 0.5 if classify else 1 / 3  # Iris: two of four columns
    return makers | {"LightGBM": lambda: libraries.lightgbm_forest(n_trees, run.threads, classify, n_rows, by_node)}


def _boostings(run: Run, n_trees: int, classify: bool) -> dict[str, Maker]:
    makers = libraries.boosting(n_trees, run.threads, classify)
    return {
        "dtrees": makers["dtrees"],
        "scikit-learn GradientBoosting": lambda: libraries.sklearn_boosting(n_trees, classify),
        "scikit-learn HistGradientBoosting": lambda: libraries.sklearn_hist_boosting(n_trees, run.threads, classify),
        "LightGBM": makers["LightGBM"],
    }


# --- trees and forests of three targets, which scikit-learn's learn together as well ---


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
