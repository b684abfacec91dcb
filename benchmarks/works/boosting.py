"""Time of boosting: by the size of the table, by the task, and by the kind of columns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from benchmarks import libraries
from benchmarks.data import N_COLUMNS, adult, adult_frames, california, classes, synthetic, texts
from benchmarks.results import Row
from benchmarks.run import OURS, Maker, Run, benchmark


@benchmark("boosting-sizes")
def sizes(run: Run) -> Iterator[Row]:
    """Boosting of depth 6 on tables of 150 to 1,000,000 rows: histogram libraries, and exact ones up to 100,000 rows."""
    n_trees = run.size(tiny=2, small=20, full=100)
    tables: dict[str, Callable[[], tuple[Any, Any]]] = {"Iris, 150 x 4, 3 classes": lambda: load_iris(return_X_y=True)}
    if (housing := california(run.data)) is not None:
        tables["California housing, 20,640 x 9"] = lambda: housing
    shapes = {"tiny": [(200, 8)], "small": [(5_000, 8)], "full": [(20_000, 8), *((10**k, N_COLUMNS) for k in (3, 4, 5, 6))]}
    for n, k in shapes[run.scale]:
        tables[f"{n:,} x {k}"] = functools.partial(synthetic, n, n_columns=k)
    for name, make in tables.items():
        X, y = make()
        n, classify = len(X), y.dtype.kind == "i"
        makers = libraries.boosting(n_trees, run.threads, classify)
        makers["scikit-learn hist"] = functools.partial(libraries.sklearn_hist_boosting, n_trees, run.threads, classify)
        if n <= 100_000:
            makers["XGBoost exact"] = functools.partial(libraries.xgboost, n_trees, run.threads, "exact", classify)
        if n <= 30_000:
            makers["scikit-learn exact, 1 core"] = libraries.boosting_with(n_trees, 1, classify, {"scikit-learn": {}})["scikit-learn"]
        yield from run.fits(name, X, y, makers)
    if run.scale == "full":
        X, y = synthetic(1_000_000)
        yield from dataclasses.replace(run, repeats=1).fits(
            f"1,000,000 x {N_COLUMNS}, 300 trees, one turn", X, y, libraries.boosting(300, 2)
        )


@benchmark("boosting-tasks")
def tasks(run: Run) -> Iterator[Row]:
    """Boosting by task: leaves, noise, classes, many columns, sparse tables, categories, constraints, defaults."""
    boosting, t = libraries.boosting, run.threads

    def n(full: int, tiny: int = 300) -> int:
        return run.size(tiny=tiny, small=max(tiny, full // 10), full=full)

    def work(text: str, X: Any, y: Any, makers: dict[str, Maker]) -> Iterator[Row]:
        yield from run.fits(f"{text}, {X.shape[0]:,} x {X.shape[1]:,}", X, y, makers)

    yield from work(f"31 leaves, {n(100, 3)} trees", *synthetic(n(100_000)), boosting(n(100, 3), t, leaves=31))
    X, y = synthetic(n(25_000), classify=True)
    noisy = y ^ (np.random.default_rng(1).random(len(y)) < 0.3)
    yield from work(f"31 leaves, two classes, a third of the labels noise, {n(200, 3)} trees", X, noisy, boosting(n(200, 3), t, True, 31))
    yield from work(f"255 leaves, {n(50, 3)} trees", *synthetic(n(500_000)), boosting(n(50, 3), t, leaves=255))
    yield from work(f"two classes, {n(100, 3)} trees", *classes(n(1_000_000), 2), boosting(n(100, 3), t, True))
    yield from work(f"five classes, {n(50, 3)} rounds", *classes(n(100_000), 5), boosting(n(50, 3), t, True))
    if run.scale != "tiny":
        yield from work("100 classes, 5 rounds", *classes(n(50_000), 100, 20), boosting(5, t, True))
    yield from work(f"{n(50, 3)} trees", *synthetic(n(5_000), n_columns=n(2_000)), boosting(n(50, 3), t))
    signs = [1, *[0] * (N_COLUMNS - 1)]
    yield from work(f"a monotonic column, {n(100, 3)} trees", *synthetic(n(100_000)), _monotonic(n(100, 3), t, signs))
    X, y = texts(n(20_000), n(5_000), 50)
    makers = libraries.boosting_by_default(t, True, n(100, 3))
    del makers["scikit-learn hist"]  # supports dense tables only
    yield from work(f"sparse, {X.nnz:,} values, two classes, defaults, {n(100, 3)} trees", X, y, makers)
    incomes, frames = adult(run.data), adult_frames(run.data)
    if incomes is None or frames is None or run.scale == "tiny":
        return
    yield from work("Adult as numbers, defaults, 100 trees", incomes.X, incomes.y, libraries.boosting_by_default(t, True, 100))
    categories = list(frames.X.select_dtypes("category"))
    makers = libraries.boosting_by_default(t, True, 100)
    for peer, given in (("XGBoost hist", {"enable_categorical": True}), ("CatBoost", {"cat_features": categories})):
        makers[peer] = lambda make=makers[peer], given=given: make().set_params(**given)
    yield from work("Adult, 8 columns of categories, defaults, 100 trees", frames.X, frames.y, makers)


def _monotonic(n_trees: int, threads: int, signs: list[int]) -> dict[str, Maker]:
    """Return the functions that create boosting with monotonic columns; CatBoost's has symmetric trees."""
    given: dict[str, Any] = {"XGBoost hist": tuple(signs), "LightGBM": signs, "CatBoost": signs}
    peers = libraries.boosting_with(n_trees, threads, False, {name: {"monotone_constraints": order} for name, order in given.items()})
    return {OURS: lambda: libraries.our_boosting(n_trees, threads).set_params(monotonic_cst=signs), **peers}


def kinds(n: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield tables of ``n`` rows and 28 columns with names; each kind may be slow for its own reason."""
    random = np.random.default_rng(0)
    shape = n, N_COLUMNS

    def normal() -> NDArray[np.float64]:
        return random.standard_normal(shape)

    tables: dict[str, Callable[[], NDArray[Any]]] = {
        "nine of ten values 0": lambda: np.where(random.random(shape) < 0.9, 0.0, normal()),
        "a category of 22, one-hot": lambda: np.hstack([normal()[:, :6], np.eye(22)[random.integers(0, 22, n)]]),
        "integers up to 255": lambda: random.integers(0, 256, shape),
        "counts": lambda: random.poisson(0.7, shape),
        "rounded to 0.01": lambda: normal().round(2),
        "three of ten values missing": lambda: np.where(random.random(shape) < 0.3, np.nan, normal()),
        "heavy tails": lambda: np.exp(2 * normal()),
        "rows in the order of a column": lambda: (X := normal())[np.argsort(X[:, 0])],
    }
    for kind, make in tables.items():
        yield kind, make().astype(np.float32)


def target_of(X: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a target of five columns, like that of the synthetic table, for any scale of the columns."""
    x = np.nan_to_num(X[:, :5]).astype(np.float64)
    x = np.clip((x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), -3, 3)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + x[:, 3] * (x[:, 4] > 0)
    return np.asarray(signal + 0.5 * np.random.default_rng(1).standard_normal(len(x)))


@benchmark("boosting-kinds")
def boosting_kinds(run: Run) -> Iterator[Row]:
    """Boosting of 50 trees of depth 6 on columns of zeros, one-hot, integers, missing values, heavy tails, and on ordered rows."""
    n, n_trees = run.size(tiny=300, small=20_000, full=100_000), run.size(tiny=2, small=20, full=50)
    for kind, X in kinds(n):
        yield from run.fits(f"{kind}, {n:,} x {N_COLUMNS}", X, target_of(X), libraries.boosting(n_trees, run.threads))
