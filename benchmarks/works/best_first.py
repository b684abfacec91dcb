"""Best-first growth (``max_leaf_nodes``) beside depth-first growth of as many leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dtrees
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


def _both(cls: Any, n_leaves: int | None, n_rows: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return makers of best-first and depth-first growth; where ``n_leaves`` is None, both grow all leaves that there are."""
    depth = None if n_leaves is None else (n_leaves - 1).bit_length()
    return {
        OURS: lambda: cls(max_leaf_nodes=n_leaves or n_rows, max_depth=None, random_state=0, **settings),
        _PEER: lambda: cls(max_depth=depth, random_state=0, **settings),
    }
