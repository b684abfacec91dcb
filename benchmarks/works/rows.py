"""Rows that stay where they are: loading and boosting beside the column placement, one process, and XGBoost on the same cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
from distributed import Client, wait

from benchmarks import libraries
from benchmarks.cluster import News, cluster, forget_peak, made_on_workers, news, peak, placed
from benchmarks.data import N_COLUMNS
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Run
from benchmarks.timing import summary
from benchmarks.works.row_costs import own_work

DEPTH = 6
#: Of XGBoost's histogram: bins of a column, and bytes of a bin (two float64).
_BINS, _BIN_BYTES = 256, 16
_PARTS = 8
#: What a worker may take: bytes a cell and bytes a row of its own.
_PER_CELL, _PER_ROW = 12, 80


def placed_fit(client: Client, how: str, model: Any, X: Any, y: Any) -> News:
    """Fit with a placement, and return what was told of it."""
    with placed(how):
        model.fit(X, y)
    return news(client)


def resident(client: Client, n: int, *, classify: bool = False) -> tuple[Any, Any]:
    """Return Dask arrays of a table that the workers have made and hold."""
    X, y = made_on_workers(n, N_COLUMNS, part_rows=-(-n // _PARTS))
    X, y = dask.persist(X, (y > 0).astype("int64") if classify else y)
    wait([X, y])
    return X, y


@benchmark("rows-loading")
def rows_loading(run: Run) -> Iterator[Yielded]:
    """From a Dask Array to the first tree: rows that stay, and columns that are put together."""
    for n in run.size(tiny=(2_000,), small=(1_000_000,), full=(1_000_000, 4_000_000)):
        with cluster(2) as client:
            X, y = resident(client, n)
            fits: dict[str, Callable[[], Any]] = {
                name: partial(placed_fit, client, how, libraries.our_boosting(1, 1), X, y)
                for name, how in ((OURS, "rows"), ("dtrees, sharded", "sharded"))
            }
            for fit in fits.values():
                fit()
            measures = run.measure(fits)
        yield from run.rows(f"loading and a tree, {n:,} x {N_COLUMNS}, 2 workers of a thread", measures, {"dtrees, sharded": 2.0})


@benchmark("rows")
def rows(run: Run) -> Iterator[Yielded]:
    """Boosting over rows against one process, the column placement, and XGBoost on the same cluster; bytes that travel."""
    n, n_trees = run.size(tiny=2_000, small=200_000, full=1_000_000), run.size(tiny=2, small=20, full=100)
    for classify in (False, True):
        yield from _boosting(run, n, n_trees, classify=classify)


def _boosting(run: Run, n: int, n_trees: int, *, classify: bool) -> Iterator[Yielded]:
    kind = "two classes" if classify else "squared error"
    work = f"boosting, {n_trees} trees, depth {DEPTH}, {kind}, {n:,} x {N_COLUMNS}, 2 workers of a thread"
    growing: dict[str, list[float]] = {"rows": [], "sharded": []}
    with cluster(2) as client:
        X, y = resident(client, n, classify=classify)
        X_here, y_here = dask.compute(X, y)

        def ours(how: str, k: int) -> News:
            told = placed_fit(client, how, libraries.our_boosting(k, 1, classify=classify), X, y)
            growing[how].append(told.rounds[-1]["seconds"])
            return told

        alone = "dtrees, one process, 2 threads"
        contenders: dict[str, Callable[[int], Any]] = {
            OURS: lambda k: ours("rows", k),
            alone: lambda k: libraries.our_boosting(k, 2, classify=classify).fit(X_here, y_here),
            "dtrees, sharded": lambda k: ours("sharded", k),
            **run.installed({"XGBoost hist": lambda k: xgboost_on(client, X, y, k, classify=classify)}),
        }
        for fit in contenders.values():
            fit(2)
        before = client.run(forget_peak)
        told = ours("rows", n_trees)
        grown = max(now - before[worker] for worker, now in client.run(peak).items())
        growing = {"rows": [], "sharded": []}
        measures = run.measure({name: lambda fit=fit: fit(n_trees) for name, fit in contenders.items()})
    yield from run.rows(work, measures, {alone: 1 / 1.2, "XGBoost hist": 1 / 1.3 if classify else 1.0})
    for how, seconds in growing.items():
        yield Row(f"{work}: of it growing, {how}", "", None, summary(seconds))
    yield Row(f"{work}: of it growing, slowest worker's own work", "", None, Measure(max(told.rounds[-1]["scan"].values())))
    yield from _bytes_of_trees(work, told)
    allowed = Measure((_PER_CELL * n / 2 * N_COLUMNS + _PER_ROW * n / 2 + 4 * n / _PARTS * N_COLUMNS) / 1e6, unit="MB")
    yield Row.of(f"{work}: memory of a worker beyond its partitions", "allowance", allowed, Measure(grown / 1e6, unit="MB"), 1.0)


def _bytes_of_trees(work: str, told: News) -> Iterator[Yielded]:
    """Yield what workers send one another for a tree: early, late, and by the coordinator."""
    sums = Measure(histogram_bytes(N_COLUMNS) / 1e6, unit="MB")
    sent = [sum(one["exchanged"].values()) for one in told.rounds]
    each = [(after - before) / 1e6 for before, after in zip([0, *sent], sent, strict=False)]
    for name, some in (("first", each[:1]), ("second to tenth", each[1:10]), ("last ten", each[-10:])):
        if some:
            measure = Measure(sum(some) / len(some), unit="MB a tree")
            yield Row.of(f"{work}: sent by workers, {name} trees", "XGBoost's sums, computed", sums, measure, 1 / 3)
    last = told.rounds[-1]
    by_coordinator = sum(sum(last[side].values()) for side in ("sent", "received")) / len(told.rounds)
    yield Row(f"{work}: to and from the coordinator", "", None, Measure(by_coordinator / 1e6, unit="MB a tree"))
    for i, one in enumerate(each):
        yield Point("bytes of a tree over rows", OURS, i + 1, one, "tree", "MB")


def histogram_bytes(n_columns: int, n_workers: int = 2) -> float:
    """Return what all workers together send for the sums of a tree by histogram: one child of each split, all-reduced in a ring.

    Examples
    --------
    >>> histogram_bytes(28) / 1e6
    7.340032
    """
    nodes = 1 + sum(2**level for level in range(DEPTH - 1))
    return 2.0 * (n_workers - 1) * nodes * n_columns * _BINS * _BIN_BYTES


@benchmark("rows-scaling")
def rows_scaling(run: Run) -> Iterator[Yielded]:
    """The slowest shard's own work where rows are fixed and shards double: all are in this process, one works at a time.

    The second row of each is of what is waited for: the slowest shard of each step, of some fifty in a tree.
    """
    for n, n_trees in run.size(tiny=((2_000, 2),), small=((400_000, 10),), full=((1_000_000, 20), (16_000_000, 8))):
        before: tuple[Measure, Measure] | None = None
        for n_workers in run.size(tiny=(2,), small=(2, 4), full=(2, 4, 8)):
            work = own_work(n, N_COLUMNS, n_workers, n_trees)
            slowest, of_steps = Measure(work.slowest), Measure(work.shards)
            name = f"own work of the slowest of {n_workers} shards a tree, {n:,} x {N_COLUMNS}"
            name_of_steps = f"{name}, of the slowest of each step"
            if before is None:
                yield Row(name, "", None, slowest)
                yield Row(name_of_steps, "", None, of_steps)
            else:
                yield Row.of(name, "half as many shards", before[0], slowest, 1 / 0.6)
                yield Row.of(name_of_steps, "half as many shards", before[1], of_steps)
            yield Point(f"own work of the slowest shard, a tree, {n:,} rows", OURS, n_workers, slowest.median, "shards")
            before = slowest, of_steps


def xgboost_on(client: Client, X: Any, y: Any, n_trees: int, *, classify: bool = False) -> Any:
    """Have XGBoost boost on a cluster, loading included."""
    from xgboost import dask as xgboost

    settings = {"tree_method": "hist", "max_depth": DEPTH, "eta": 0.1, "verbosity": 0}
    if classify:
        settings["objective"] = "binary:logistic"
    return xgboost.train(client, settings, xgboost.DaskDMatrix(client, X, y), num_boost_round=n_trees)
