"""Best-first growth (``max_leaf_nodes``) beside depth-first growth of as many leaves, and beside LightGBM's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import dtrees
from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import OURS, Run

_PEER = "depth-first, as many leaves"
#: Best-first growth may take 1.5 times as long.
_TARGETS = {_PEER: 1 / 1.5}


@benchmark("best-first")
def best_first(run: Run) -> Iterator[Yielded]:
    """Best-first growth (max_leaf_nodes) beside depth-first growth of as many leaves: boosting and single trees."""
    few, many = run.size(tiny=(200, 300), small=(2_000, 10_000), full=(2_000, 100_000))
    boosting = {"n_estimators": run.size(tiny=2, small=20, full=20), "n_jobs": run.threads}
    tree = {"n_jobs": 1}
    for cls, settings, n_rows, n_columns, n_leaves in (
        (dtrees.GradientBoostingRegressor, boosting, few, 5, None),
        (dtrees.GradientBoostingRegressor, boosting, many, N_COLUMNS, 64),
        (dtrees.DecisionTreeRegressor, tree, many, N_COLUMNS, 64),
        (dtrees.DecisionTreeRegressor, tree, many, N_COLUMNS, None),
    ):
        X, y = synthetic(n_rows, n_columns=n_columns)
        work = f"best-first {cls.__name__}, {n_leaves or 'all'} leaves, {n_rows:,} x {n_columns}"
        yield from run.fits(work, X, y, _both(cls, n_leaves, n_rows, settings), _TARGETS)
    yield from _noise(run)


def _noise(run: Run) -> Iterator[Yielded]:
    """Late trees of noise: a root gains less than many a node below it."""
    n_rows, n_trees = run.size(tiny=(200, 2), small=(5_000, 50), full=(25_000, 200))
    X, y = synthetic(n_rows, classify=True)
    y ^= (np.random.default_rng(1).random(n_rows) < 0.3).astype(np.int64)
    settings = {"n_estimators": n_trees, "learning_rate": 0.1, "n_jobs": run.threads, "random_state": 0}
    makers = {
        OURS: lambda: dtrees.GradientBoostingClassifier(max_leaf_nodes=31, max_depth=None, **settings),
        "LightGBM": lambda: libraries.lightgbm(n_trees, run.threads, classify=True, num_leaves=31, max_depth=-1),
        "depth-first, depth 5": lambda: dtrees.GradientBoostingClassifier(max_depth=5, **settings),
    }
    yield from run.fits(
        f"boosting, {n_trees} trees of 31 leaves, labels a third noise, {n_rows:,} x {N_COLUMNS}", X, y, run.installed(makers)
    )


def _both(cls: Any, n_leaves: int | None, n_rows: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return makers of best-first and depth-first growth; where ``n_leaves`` is None, both grow all leaves that there are."""
    depth = None if n_leaves is None else (n_leaves - 1).bit_length()
    return {
        OURS: lambda: cls(max_leaf_nodes=n_leaves or n_rows, max_depth=None, random_state=0, **settings),
        _PEER: lambda: cls(max_depth=depth, random_state=0, **settings),
    }
