"""Boosting: trees of depth 6, growth with the rows, threads, best-first growth, constraints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import dtrees
from benchmarks import libraries
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Maker, Run

# --- boosting, 100 trees of depth 6 ---


_TARGETS = {"XGBoost exact": 10.0, "XGBoost hist": 1.0, "LightGBM": 0.5}


@benchmark("boosting")
def boosting(run: Run) -> Iterator[Yielded]:
    """Boosting, 100 trees of depth 6, all cores: XGBoost exact and hist, LightGBM."""
    n_trees = run.size(tiny=2, small=100, full=100)
    for n in run.size(tiny=(300, 600), small=(5_000, 20_000), full=(100_000, 1_000_000)):
        X, y = synthetic(n)
        measures = run.measure_fits(X, y, libraries.boosting(n_trees, run.threads))
        yield from run.rows(f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}", measures, _TARGETS)
        for name, measure in measures.items():
            yield Point("boosting", name, n, measure.median)


@benchmark("boosting-one-core")
def boosting_one_core(run: Run) -> Iterator[Yielded]:
    """Boosting, 100 trees of depth 6, one core: scikit-learn's GradientBoostingRegressor."""
    n, n_trees = run.size(tiny=300, small=5_000, full=100_000), run.size(tiny=2, small=20, full=100)
    X, y = synthetic(n)
    makers = {
        "dtrees": lambda: libraries.our_boosting(n_trees, 1),
        "scikit-learn": lambda: libraries.sklearn_boosting(n_trees),
    }
    yield from run.fits(f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}, 1 core", X, y, makers, {"scikit-learn": 30.0})


# --- how the time of boosting grows with the rows ---


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


# --- how much faster more threads are ---


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


# --- best-first growth (``max_leaf_nodes``) beside depth-first growth of as many leaves, and beside LightGBM's ---


_DEPTH_FIRST = "depth-first, as many leaves"
#: Best-first growth may take 1.5 times as long.
_BEST_FIRST = {_DEPTH_FIRST: 1 / 1.5}


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
        yield from run.fits(work, X, y, _both_orders(cls, n_leaves, n_rows, settings), _BEST_FIRST)
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


def _both_orders(cls: Any, n_leaves: int | None, n_rows: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return makers of best-first and depth-first growth; where ``n_leaves`` is None, both grow all leaves that there are."""
    depth = None if n_leaves is None else (n_leaves - 1).bit_length()
    return {
        OURS: lambda: cls(max_leaf_nodes=n_leaves or n_rows, max_depth=None, random_state=0, **settings),
        _DEPTH_FIRST: lambda: cls(max_depth=depth, random_state=0, **settings),
    }


# --- constraints on columns: what they cost in time ---


_FREE = "without constraints"
#: Constrained fits may take 1.2 times as long.
_CONSTRAINED = {_FREE: 1 / 1.2}


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
                _FREE: lambda cls=cls, settings=settings: cls(random_state=0, **settings),
            }
            wanted = _CONSTRAINED if name == "monotonic_cst" and run.scale != "tiny" else {}
            yield from run.fits(f"{name}, {cls.__name__}, {n_rows:,} x {N_COLUMNS}", X, y, makers, wanted)
