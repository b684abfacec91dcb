"""Constraints on columns: what they cost in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dtrees
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import OURS, Run

_PEER = "without constraints"
#: Constrained fits may take 1.2 times as long.
_TARGETS = {_PEER: 1 / 1.2}


@benchmark("constraints")
def constraints(run: Run) -> Iterator[Yielded]:
    """Monotonic columns and limited interactions: time beside fits without them."""
    n_rows = run.size(tiny=300, small=10_000, full=100_000)
    n_trees = run.size(tiny=2, small=10, full=20)
    signs = [1, -1, *[0] * (N_COLUMNS - 2)]
    X, y = synthetic(n_rows)
    for cls, settings in (
        (dtrees.GradientBoostingRegressor, {"n_estimators": 5 * n_trees, "n_jobs": run.threads}),
        (dtrees.RandomForestRegressor, {"n_estimators": n_trees, "n_jobs": run.threads, "max_features": 1 / 3}),
        (dtrees.ExtraTreesRegressor, {"n_estimators": n_trees, "n_jobs": run.threads, "max_features": 1 / 3}),
    ):
        for name, given in (("monotonic_cst", signs), ("interaction_cst", "pairwise")):
            makers: dict[str, Any] = {
                OURS: lambda cls=cls, settings=settings, given=given, name=name: cls(random_state=0, **settings, **{name: given}),
                _PEER: lambda cls=cls, settings=settings: cls(random_state=0, **settings),
            }
            wanted = _TARGETS if name == "monotonic_cst" and run.scale != "tiny" else {}
            yield from run.fits(f"{name}, {cls.__name__}, {n_rows:,} x {N_COLUMNS}", X, y, makers, wanted)
