"""Fits of small tables, where what a fit costs whatever its size is felt."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import libraries
from benchmarks.data import california
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Maker, Run


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
        yield from run.fits(f"boosting of {n_trees}, {name}, {shape}", X, y, _boosting(run, n_trees, classify), fastest=1.0)


def _forests(run: Run, n_trees: int, classify: bool, n_rows: int) -> dict[str, Maker]:
    max_features = "sqrt" if classify else 1 / 3
    makers = libraries.forests(n_trees, run.threads, classify, max_features)
    del makers["YDF"]
    by_node = 0.5 if classify else 1 / 3  # Iris: two of four columns
    return makers | {"LightGBM": lambda: libraries.lightgbm_forest(n_trees, run.threads, classify, n_rows, by_node)}


def _boosting(run: Run, n_trees: int, classify: bool) -> dict[str, Maker]:
    makers = libraries.boosting(n_trees, run.threads, classify)
    return {
        "dtrees": makers["dtrees"],
        "scikit-learn GradientBoosting": lambda: libraries.sklearn_boosting(n_trees, classify),
        "scikit-learn HistGradientBoosting": lambda: libraries.sklearn_hist_boosting(n_trees, run.threads, classify),
        "LightGBM": makers["LightGBM"],
    }
