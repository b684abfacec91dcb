"""Prediction of many rows, and of one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.results import Row
from benchmarks.run import Maker, Run, benchmark

_Contenders = dict[str, Callable[[], Any]]


@benchmark("prediction")
def prediction(run: Run) -> Iterator[Row]:
    """Prediction of a million rows and of one, by boosting of 500 trees of depth 6 and by a forest of full trees."""
    n, n_trees = run.size(tiny=200, small=5_000, full=100_000), run.size(tiny=3, small=100, full=500)
    makers = libraries.boosting(n_trees, run.threads)
    makers["scikit-learn hist"] = lambda: libraries.sklearn_hist_boosting(n_trees, run.threads)
    yield from _predict(run, f"boosting of {n_trees} trees of depth 6", n, makers)
    n_trees = run.size(tiny=3, small=20, full=32)
    makers = libraries.forests(n_trees, run.threads, classify=False, max_features=1 / 3)
    del makers["YDF"]  # cannot predict with trees of this size
    yield from _predict(run, f"forest of {n_trees} full trees", n, makers)


def _predict(run: Run, model: str, n_train: int, makers: dict[str, Maker]) -> Iterator[Row]:
    X, y = synthetic(n_train)
    fitted = {name: make().fit(X, y) for name, make in run.installed(makers).items()}
    many, _ = synthetic(run.size(tiny=1_000, small=50_000, full=1_000_000), seed=1)
    yield from run.compare(f"{model}, {many.shape[0]:,} x {N_COLUMNS}", _calls(fitted, many))
    one = many[:1].copy()
    contenders = _calls(fitted, one)
    if "scikit-learn" in fitted and run.threads > 1:
        # Its forests use all threads for a single row, too, which takes longer than the work: a forest with one thread is also tried.
        alone = libraries.forests(1, 1, classify=False, max_features=1 / 3)["scikit-learn"]()
        alone.__dict__.update({**fitted["scikit-learn"].__dict__, "n_jobs": 1})
        contenders |= _calls({"scikit-learn, 1 thread": alone}, one)
    yield from run.compare(f"{model}, a single row", contenders)


def _calls(fitted: dict[str, Any], X: NDArray[Any]) -> _Contenders:
    """Return functions that predict the same rows, each called once as a warm-up."""
    contenders = {name: lambda model=model: model.predict(X) for name, model in fitted.items()}
    for contender in contenders.values():
        contender()
    return contenders
