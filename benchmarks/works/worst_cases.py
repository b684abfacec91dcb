"""Tables on which pruning saves nothing, compared with scikit-learn's exact trees, which scan everything, on one core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.data import N_COLUMNS
from benchmarks.results import Row
from benchmarks.run import Run, benchmark


def cases(n: int) -> dict[str, tuple[NDArray[Any], NDArray[np.float64]]]:
    """Return tables of ``n * 28`` cells or several times as many, by name."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n, N_COLUMNS), np.float32)
    noise = random.standard_normal(n)
    ties = random.integers(0, 4, X.shape).astype(np.float32)
    long = n * N_COLUMNS
    narrow = n // 20
    return {
        "pure noise": (X, noise),
        "all ties": (ties, ties[:, 0] * ties[:, 1] + noise),
        "one huge column": (random.standard_normal((long, 1), np.float32), random.standard_normal(long)),
        "2,000 columns": (random.standard_normal((narrow, min(2000, 70 * narrow)), np.float32), random.standard_normal(narrow)),
        "heavy-tailed target": (X, X[:, 0] + random.standard_cauchy(n) ** 3),
    }


@benchmark("worst-cases")
def worst_cases(run: Run) -> Iterator[Row]:
    """Noise, ties, one very long column, 2,000 columns, heavy tails: scikit-learn, which scans everything."""
    n_trees = run.size(tiny=1, small=10, full=20)
    for case, (X, y) in cases(run.size(tiny=200, small=10_000, full=100_000)).items():
        shape = f"{X.shape[0]:,} x {X.shape[1]:,}"
        for depth in (6, None):
            work = f"{case}, tree of {'full depth' if depth is None else f'depth {depth}'}, {shape}, 1 core"
            yield from run.fits(work, X, y, libraries.trees(depth))
        makers = {"dtrees": lambda: libraries.our_boosting(n_trees, 1), **libraries.boosting_with(n_trees, 1, False, {"scikit-learn": {}})}
        yield from run.fits(f"{case}, boosting of {n_trees}, depth 6, {shape}, 1 core", X, y, makers)
