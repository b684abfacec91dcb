"""Prediction: many rows, and one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dtrees
from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Maker, Run

_Contenders = dict[str, Callable[[], Any]]


@benchmark("prediction-forest")
def forest(run: Run) -> Iterator[Yielded]:
    """Prediction by a forest of 100 full trees, 1M rows and one: the fastest of scikit-learn and LightGBM (which takes minutes to fit)."""
    n, n_trees = run.size(tiny=200, small=5_000, full=100_000), run.size(tiny=3, small=20, full=100)
    makers = libraries.forests(n_trees, run.threads, classify=False, max_features=1 / 3)
    del makers["YDF"]  # which cannot predict by trees of so many nodes
    makers["LightGBM"] = lambda: libraries.lightgbm_forest(n_trees, run.threads, False, n, 1 / 3)
    yield from _predict(run, f"forest of {n_trees} full trees", n, makers)


@benchmark("prediction-boosting")
def boosting(run: Run) -> Iterator[Yielded]:
    """Prediction by boosting of 500 trees of depth 6, 1M rows and one: the fastest of scikit-learn, XGBoost, LightGBM."""
    n, n_trees = run.size(tiny=200, small=5_000, full=100_000), run.size(tiny=3, small=100, full=500)
    makers = libraries.boosting(n_trees, run.threads)
    del makers["XGBoost exact"]
    makers["scikit-learn HistGradientBoosting"] = lambda: libraries.sklearn_hist_boosting(n_trees, run.threads)
    yield from _predict(run, f"boosting of {n_trees}, depth 6", n, makers)


def _predict(run: Run, model: str, n_train: int, makers: dict[str, Maker]) -> Iterator[Yielded]:
    X, y = synthetic(n_train)
    fitted = {name: make().fit(X, y) for name, make in run.installed(makers).items()}
    many, _ = synthetic(run.size(tiny=1_000, small=50_000, full=1_000_000), seed=1)
    yield from run.compare(f"prediction, {model}, {many.shape[0]:,} x {N_COLUMNS}", _calls(fitted, many), fastest=1.0)
    one = many[:1].copy()
    contenders = _calls(fitted, one)
    if "scikit-learn" in fitted and run.threads > 1:
        # Its forests hand a single row to all threads too, which takes longer than the work: it is given a chance on one.
        alone = libraries.forests(1, 1, classify=False, max_features=1 / 3)["scikit-learn"]()
        alone.__dict__.update({**fitted["scikit-learn"].__dict__, "n_jobs": 1})
        contenders |= _calls({"scikit-learn, 1 thread": alone}, one)
    yield from run.compare(f"prediction, {model}, a single row", contenders, fastest=1.0)


def _calls(fitted: dict[str, Any], X: NDArray[Any]) -> _Contenders:
    """Return predictions of the same rows, each made once so that it is warm."""
    contenders = {name: lambda model=model: model.predict(X) for name, model in fitted.items()}
    for contender in contenders.values():
        contender()
    return contenders


@benchmark("prediction-jax")
def in_jax(run: Run) -> Iterator[Yielded]:
    """Prediction of 100,000 rows by dtrees and, in float64, by the function of JAX that its models become."""
    if importlib.util.find_spec("jax") is None:
        run.skip("JAX is not installed")
        return
    import jax

    n_train, n_trees = run.size(tiny=200, small=5_000, full=20_000), run.size(tiny=3, small=20, full=100)
    X, y = synthetic(n_train)
    rows = synthetic(run.size(tiny=1_000, small=20_000, full=100_000), seed=1)[0].astype(np.float64)
    models = {
        f"boosting of {n_trees}, depth 6": libraries.our_boosting(n_trees, run.threads),
        f"forest of {n_trees // 5 + 1} full trees": dtrees.RandomForestRegressor(n_trees // 5 + 1, n_jobs=run.threads, random_state=0),
    }
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        given = jax.numpy.asarray(rows)
        for name, model in models.items():
            model.fit(X, y)
            function = jax.jit(dtrees.to_jax(model))
            contenders: _Contenders = {
                "dtrees": lambda model=model: model.predict(rows),
                "JAX": lambda function=function: function(given).block_until_ready(),
            }
            for contender in contenders.values():
                contender()
            yield from run.compare(f"prediction, {name}, {rows.shape[0]:,} x {N_COLUMNS}", contenders)
    finally:
        jax.config.update("jax_enable_x64", before)
