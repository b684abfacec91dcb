"""Forests of full depth, all cores."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Run


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
