"""How the time of boosting grows with the rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Run

_MOST = 1.1


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the straight line through the logarithms of points."""
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


@benchmark("growth")
def growth(run: Run) -> Iterator[Yielded]:
    """Boosting from 100k to 4M rows: the slope of time against rows, both logarithmic."""
    sizes = run.size(
        tiny=(200, 400), small=(5_000, 10_000, 20_000, 40_000), full=(100_000, 250_000, 500_000, 1_000_000, 2_000_000, 4_000_000)
    )
    n_trees = run.size(tiny=2, small=20, full=20)
    work = f"growth of boosting, {n_trees} trees, {sizes[0]:,} to {sizes[-1]:,} x {N_COLUMNS}"
    lines: dict[str, list[tuple[float, float]]] = {}
    X, y = synthetic(sizes[-1])
    for n in sizes:
        makers = libraries.boosting(n_trees, run.threads)
        del makers["XGBoost exact"]
        for name, measure in run.measure_fits(X[:n], y[:n], makers).items():
            lines.setdefault(name, []).append((n, measure.median))
            yield Point("growth of boosting", name, n, measure.median)
    ours = slope(lines.pop(OURS))
    yield Row(work, "", None, Measure(ours, unit="(log-log slope)"), None, f"slope ≤ {_MOST:g}", ours <= _MOST)
    for name, line in lines.items():
        yield Row(work, name, Measure(slope(line), unit="(log-log slope)"), Measure(ours, unit="(log-log slope)"))
