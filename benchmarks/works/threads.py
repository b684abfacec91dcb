"""How much faster more threads are."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Maker, Run


def thread_counts(most: int) -> list[int]:
    """Return 1, 2, 4 and so on, and the most."""
    return sorted({most, *(2**k for k in range(most.bit_length()))})


@benchmark("threads")
def threads(run: Run) -> Iterator[Yielded]:
    """Scaling over threads of boosting, one deep tree, a forest, and prediction."""
    n = run.size(tiny=300, small=20_000, full=200_000)
    n_trees = run.size(tiny=2, small=10, full=20)
    X, y = synthetic(n)
    works = {
        f"boosting of {n_trees}": lambda t: _without(libraries.boosting(n_trees, t), "XGBoost exact"),
        "a tree of full depth": _one_tree,
        f"forest of {n_trees}, 1/3 of the columns": lambda t: libraries.forests(n_trees, t, classify=False, max_features=1 / 3),
    }
    for work, makers_for in works.items():
        taken = {t: run.measure_fits(X, y, makers_for(t)) for t in thread_counts(run.threads)}
        yield from _speedups(work, f"{n:,} x {N_COLUMNS}", taken)
    taken = {}
    for t in thread_counts(run.threads):
        models = {name: make().fit(X, y) for name, make in run.installed(_without(libraries.boosting(n_trees, t), "XGBoost exact")).items()}
        for model in models.values():  # the first prediction makes ready for others
            model.predict(X)
        taken[t] = run.measure({name: lambda model=model: model.predict(X) for name, model in models.items()})
    yield from _speedups(f"prediction, boosting of {n_trees}", f"{n:,} x {N_COLUMNS}", taken)


def _one_tree(threads: int) -> dict[str, Maker]:
    """Return dtrees' tree only: scikit-learn grows one on one core."""
    import dtrees

    return {OURS: lambda: dtrees.DecisionTreeRegressor(n_jobs=threads, random_state=0)}


def _without(makers: dict[str, Maker], name: str) -> dict[str, Maker]:
    return {other: make for other, make in makers.items() if other != name}


def _speedups(work: str, shape: str, taken: dict[int, dict[str, Measure]]) -> Iterator[Yielded]:
    for t, measures in taken.items():
        for name, measure in measures.items():
            yield Point(f"threads, {work}", name, t, measure.median, "threads")
        if t == 1:
            continue
        faster = {name: Measure(taken[1][name].median / measure.median, unit="times faster") for name, measure in measures.items()}
        ours = faster.pop(OURS)
        for name, theirs in faster.items() or {"": None}.items():
            yield Row(f"{work}, {shape}, {t} threads against 1", name, theirs, ours)
