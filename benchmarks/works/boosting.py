"""Boosting, 100 trees of depth 6."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Point, Yielded
from benchmarks.run import Run

_TARGETS = {"XGBoost exact": 10.0, "XGBoost hist": 1.0, "LightGBM": 0.5}


@benchmark("boosting")
def boosting(run: Run) -> Iterator[Yielded]:
    """Boosting, 100 trees of depth 6, all cores: XGBoost exact and hist, LightGBM."""
    n_trees = run.size(tiny=2, small=100, full=100)
    for n in run.size(tiny=(300, 600), small=(5_000, 20_000), full=(100_000, 1_000_000)):
        X, y = synthetic(n)
        measures = run.measure_fits(X, y, libraries.boosting(n_trees, run.threads))
        yield from run.rows(f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}", measures, _TARGETS)
        for name, measure in measures.items():
            yield Point("boosting", name, n, measure.median)


@benchmark("boosting-one-core")
def boosting_one_core(run: Run) -> Iterator[Yielded]:
    """Boosting, 100 trees of depth 6, one core: scikit-learn's GradientBoostingRegressor."""
    n, n_trees = run.size(tiny=300, small=5_000, full=100_000), run.size(tiny=2, small=20, full=100)
    X, y = synthetic(n)
    makers = {
        "dtrees": lambda: libraries.our_boosting(n_trees, 1),
        "scikit-learn": lambda: libraries.sklearn_boosting(n_trees),
    }
    yield from run.fits(f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, makers, {"scikit-learn": 30.0})
