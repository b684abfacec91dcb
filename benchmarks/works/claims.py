"""Three published claims that stand at the origin of this project, with dtrees beside them; growth with the rows is plotted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import libraries
from benchmarks.baselines import NumpyTree, medians_by_heaps, medians_by_sorting, quadratic_stump, sorted_stump
from benchmarks.data import california, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Run
from benchmarks.works.boosting import slope

_Table = tuple[NDArray[Any], NDArray[Any]]
#: From a table of some rows, what each contender does.
_Contenders = Callable[[NDArray[Any], NDArray[Any]], dict[str, Callable[[], Any]]]


@benchmark("claim-numpy-tree")
def numpy_tree(run: Run) -> Iterator[Yielded]:
    """A vectorised NumPy tree twice as fast as scikit-learn's (2019): both, and dtrees, on one core."""

    def contenders(X: NDArray[Any], y: NDArray[Any]) -> dict[str, Callable[[], Any]]:
        fits = {name: lambda make=make: make().fit(X, y) for name, make in libraries.trees(None).items()}
        return {**fits, "NumPy tree": lambda: NumpyTree().fit(X, y)}

    yield from _grow(run, "tree of full depth", contenders)


@benchmark("claim-traversal")
def traversal(run: Run) -> Iterator[Yielded]:
    """An O(n log n) search for the best split against an O(n^2) one, on 500 to 20,000 rows of California housing."""

    def contenders(X: NDArray[Any], y: NDArray[Any]) -> dict[str, Callable[[], Any]]:
        return {
            OURS: lambda: libraries.trees(1)["dtrees"]().fit(X, y),
            "sums anew, O(n^2)": lambda: quadratic_stump(X, y),
            "sort and running sums, O(n log n)": lambda: sorted_stump(X, y),
        }

    yield from _grow(run, "the best split of all columns", contenders)


@benchmark("claim-medians")
def medians(run: Run) -> Iterator[Yielded]:
    """Running medians by two heaps ten times faster than by sorting again, and dtrees' split by absolute error of one column."""

    def contenders(X: NDArray[Any], y: NDArray[Any]) -> dict[str, Callable[[], Any]]:
        make = libraries.trees(1, criterion="absolute_error")["dtrees"]
        plain = {"sorting again": lambda: medians_by_sorting(y), "two heaps": lambda: medians_by_heaps(y)}
        return {OURS: lambda: make().fit(X[:, :1], y), **plain}

    yield from _grow(run, "running medians", contenders)


def _grow(run: Run, work: str, contenders: _Contenders) -> Iterator[Yielded]:
    """Time contenders on ever more rows; yield the curves, their slopes, and rows of the last."""
    sizes = run.size(tiny=(40, 80), small=(500, 1_000, 2_000), full=(500, 1_000, 2_000, 5_000, 10_000, 20_000))
    table, name = _housing(run, sizes[-1])
    lines: dict[str, list[tuple[float, float]]] = {}
    for n in sizes:
        calls = contenders(table[0][:n], table[1][:n])
        if n == sizes[0]:
            for call in calls.values():
                call()
        measures = run.measure(calls)
        for contender, measure in measures.items():
            lines.setdefault(contender, []).append((n, measure.median))
            yield Point(f"claim, {work}, {name}", contender, n, measure.median)
    yield from run.rows(f"claim: {work}, {sizes[-1]:,} rows of {name}", measures)
    for contender, line in lines.items():
        exponent = Measure(slope(line), unit="(log-log slope)")
        ours = contender == OURS
        yield Row(f"claim: growth of {work}, {name}", "" if ours else contender, None if ours else exponent, exponent if ours else None)


def _housing(run: Run, n_rows: int) -> tuple[_Table, str]:
    """Return so many rows in random order of California housing, or of the synthetic table where that is not at hand, and the name."""
    table = california(run.data)
    if table is None:
        run.skip("California housing, which is not at hand (--data); a synthetic table takes its place")
        return synthetic(n_rows, n_columns=9), "the synthetic table"
    rows = np.random.default_rng(0).permutation(table[0].shape[0])[:n_rows]
    return (table[0][rows], table[1][rows]), "California"
