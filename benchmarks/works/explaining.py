"""Explaining predictions by Shapley values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.results import Row
from benchmarks.run import Run, benchmark


@benchmark("shap")
def shap(run: Run) -> Iterator[Row]:
    """Shapley values of boosting, 100 trees of depth 6: peers, with interactions XGBoost."""
    n_trees, n = run.size(tiny=3, small=30, full=100), run.size(tiny=300, small=3_000, full=10_000)
    X, y = synthetic(n)
    work = f"boosting of {n_trees}, depth 6, {n:,} x {N_COLUMNS}"
    for threads in sorted({1, run.threads}):
        makers = libraries.boosting(n_trees, threads)
        fitted = {name: make().fit(X, y) for name, make in run.installed(makers).items()}
        by: dict[str, Callable[[Any, Any], Any]] = {
            "dtrees": lambda model, rows: model.shap_values(rows),
            "LightGBM": lambda model, rows, threads=threads: model.predict(rows, pred_contrib=True, num_threads=threads),
            "XGBoost hist": lambda model, rows: model.get_booster().predict(_table(rows), pred_contribs=True),
            "CatBoost": lambda model, rows, threads=threads: _catboost(model, rows, threads),
        }
        contenders = {name: _warm(by[name], model, X) for name, model in fitted.items()}
        yield from run.compare(f"Shapley values, {work}, {threads} thread{'s' * (threads > 1)}", contenders)
        some = X[: n // 200 + 1]
        pairs: dict[str, Callable[[Any, Any], Any]] = {
            "dtrees": lambda model, rows: model.shap_interaction_values(rows),
            "XGBoost hist": lambda model, rows: model.get_booster().predict(_table(rows), pred_interactions=True),
        }
        contenders = {name: _warm(pairs[name], model, some) for name, model in fitted.items() if name in pairs}
        yield from run.compare(f"interaction values, {work}, {len(some)} of the rows, {threads} thread{'s' * (threads > 1)}", contenders)


def _catboost(model: Any, rows: Any, threads: int) -> Any:
    import catboost

    return model.get_feature_importance(catboost.Pool(rows), type="ShapValues", thread_count=threads)


def _table(rows: Any) -> Any:
    import xgboost

    return xgboost.DMatrix(rows)


def _warm(explain: Callable[[Any, Any], Any], model: Any, rows: Any) -> Callable[[], Any]:
    """Return a function that explains rows, after a call with a few of them."""
    assert np.isfinite(explain(model, rows[:50])).all()
    return lambda: explain(model, rows)
