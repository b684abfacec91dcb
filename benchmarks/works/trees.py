"""Single trees on one core."""

from __future__ import annotations

from collections.abc import Iterator

from sklearn.utils._param_validation import InvalidParameterError

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Yielded
from benchmarks.run import Run


@benchmark("tree-full-depth")
def full_depth(run: Run) -> Iterator[Yielded]:
    """A tree of full depth on one core: scikit-learn."""
    n = run.size(tiny=300, small=10_000, full=100_000)
    X, y = synthetic(n)
    yield from run.fits(f"tree, full depth, {n:,} x {N_COLUMNS}, 1 core", X, y, libraries.trees(None), {"scikit-learn": 10.0})


@benchmark("tree-depth-6")
def depth_6(run: Run) -> Iterator[Yielded]:
    """A tree of depth 6 on one core: scikit-learn."""
    n = run.size(tiny=300, small=10_000, full=100_000)
    X, y = synthetic(n)
    yield from run.fits(f"tree, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, libraries.trees(6), {"scikit-learn": 5.0})


@benchmark("tree-absolute-error")
def absolute_error(run: Run) -> Iterator[Yielded]:
    """A tree of depth 6 by absolute error on one core: scikit-learn."""
    n = run.size(tiny=200, small=3_000, full=100_000)
    X, y = synthetic(n)
    makers = libraries.trees(6, criterion="absolute_error")
    if not knows_absolute_error():
        run.skip("trees by absolute error, which this version of dtrees does not have")
        return
    yield from run.fits(f"absolute_error tree, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, makers, {"scikit-learn": 10.0})


def knows_absolute_error() -> bool:
    """Tell whether dtrees' trees take the criterion."""
    try:
        libraries.trees(1, criterion="absolute_error")["dtrees"]().fit([[0.0], [1.0]], [0.0, 1.0])
    except InvalidParameterError:
        return False
    return True
