"""Clusters of processes on this machine: what a level, a message, a lost worker cost; boosting and forests on several workers.

Where there are more workers than cores they share the cores, and what they wait for each other's turns counts as overhead.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from distributed import Client

import dtrees
from benchmarks import libraries
from benchmarks.cluster import (
    PART_ROWS,
    News,
    cluster,
    collections,
    forget_peak,
    made_on_workers,
    news,
    overhead,
    peak,
    placed,
    process_ids,
    sharded_fit,
)
from benchmarks.data import N_COLUMNS, synthetic
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Point, Row, Yielded
from benchmarks.run import OURS, Run
from benchmarks.timing import summary
from dtrees.cluster.growing.watching import local_callback

#: Milliseconds of a level beyond the slowest worker's own work, by workers: at most.
_OVERHEAD = {4: 3.0, 16: 8.0}
#: Levels of a tree.
_DEPTH = 6
#: Time of one process with as many threads over that of the cluster: at least.
_ONE_PROCESS = 1 / 1.3
_FOREST_EFFICIENCY = 0.85
#: What a worker may take at its peak: bytes a cell that it holds, and bytes a row of the table.
_PER_CELL, _PER_ROW = 12, 64
#: Seconds after which a fit is given up.
_DEADLINE = 600.0


def _boosting(n_trees: int, threads: int = 1) -> Any:
    return libraries.our_boosting(n_trees, threads)


def _within(work: str, measure: Measure, most: float | None) -> Row:
    """Return a row of a measure that should be small."""
    if most is None:
        return Row(work, "", None, measure)
    return Row(work, "", None, measure, None, f"≤ {most:g} {measure.unit}", measure.median <= most)


def _spread(values: list[float], unit: str) -> Measure:
    """Return the median and half the distance between the quartiles."""
    if len(values) < 2:
        return Measure(values[0], unit=unit)
    low, middle, high = statistics.quantiles(values, n=4)
    return Measure(middle, (high - low) / 2, len(values), unit)


@benchmark("cluster-overhead")
def cluster_overhead(run: Run) -> Iterator[Yielded]:
    """What a level costs beyond the slowest worker's own work, with 4 workers and with 16."""
    n, n_trees = run.size(tiny=500, small=20_000, full=20_000), run.size(tiny=2, small=10, full=20)
    X, y = synthetic(n)
    for n_workers in run.size(tiny=(2,), small=(2, 4, 16), full=(2, 4, 8, 16)):
        with cluster(n_workers) as client:
            dX, dy = collections(client, X, y)
            sharded_fit(client, _boosting(2), dX, dy)
            told = sharded_fit(client, _boosting(n_trees), dX, dy)
        levels = [1e3 * overhead(tree) / _DEPTH for tree in told.trees()]
        work = f"overhead of a level, {n_workers} workers, {n:,} x {N_COLUMNS}"
        yield _within(work, _spread(levels, "ms a level"), _OVERHEAD.get(n_workers))
        yield Row(f"{work}: with all that is between levels and trees", "", None, _spread(_per_tree(told), "ms a level"))
        yield Point("overhead of a level", "dtrees", n_workers, statistics.median(levels), "workers", "milliseconds")


def _per_tree(told: News) -> list[float]:
    """Return for each tree but the first its milliseconds beyond the slowest workers' own work, divided by its levels."""
    rounds = zip(pairwise(told.rounds), told.trees(), strict=False)
    return [1e3 * (after["seconds"] - before["seconds"] - tree["slowest"]) / _DEPTH for (before, after), tree in rounds]


@benchmark("cluster-network")
def cluster_network(run: Run) -> Iterator[Yielded]:
    """Bytes that a worker sends others in a level: a share of the bits of rows, to each, and what comes besides."""
    n_workers = run.size(tiny=2, small=4, full=4)
    for n in run.size(tiny=(500, 1_000), small=(20_000, 100_000), full=(100_000, 1_000_000)):
        X, y = synthetic(n)
        with cluster(n_workers) as client:
            told = sharded_fit(client, _boosting(3), *collections(client, X, y))
        bits = Measure(n / 8 * (n_workers - 1) / n_workers, unit="bytes")
        told_of = [sum(one["exchanged"].values()) / n_workers / _DEPTH for one in told.rounds]
        each = [after - before for before, after in pairwise(told_of)]
        work = f"bytes from a worker in a level, {n_workers} workers, {n:,} x {N_COLUMNS}"
        yield Row(work, "bits of the rows", bits, summary(each, "bytes"), None)
        yield _within(f"{work}: besides the bits", summary([one - bits.median for one in each], "bytes"), 10_000)


@benchmark("cluster-boosting")
def cluster_boosting(run: Run) -> Iterator[Yielded]:
    """Boosting over shards against one process with as many threads, and against XGBoost on the same cluster."""
    n, n_trees = run.size(tiny=400, small=50_000, full=1_000_000), run.size(tiny=2, small=20, full=100)
    n_workers = 4 if run.threads >= 4 else 2
    X, y = synthetic(n)
    work = f"boosting, {n_trees} trees, depth 6, {n:,} x {N_COLUMNS}, {n_workers} workers of a thread"
    with cluster(n_workers) as client:
        dX, dy = collections(client, X, y)
        alone = f"dtrees, one process, {n_workers} threads"
        peers: dict[str, Callable[[int], Any]] = {
            alone: lambda k: _boosting(k, n_workers).fit(X, y),
            "XGBoost hist": lambda k: _xgboost_on(client, dX, dy, k),
        }
        growing: list[float] = []

        def ours(k: int) -> None:
            growing.append(sharded_fit(client, _boosting(k), dX, dy).rounds[-1]["seconds"])

        contenders = {OURS: ours, **run.installed(peers)}
        for fit in contenders.values():
            fit(2)
        growing.clear()
        measures = run.measure({name: lambda fit=fit: fit(n_trees) for name, fit in contenders.items()})
    yield from run.rows(work, measures, {alone: _ONE_PROCESS, "XGBoost hist": 1.0})
    yield Row(f"{work}: of it growing, without loading", "", None, summary(growing))


def _xgboost_on(client: Client, X: Any, y: Any, n_trees: int) -> Any:
    from xgboost import dask as xgboost

    settings = {"tree_method": "hist", "max_depth": 6, "eta": 0.1, "verbosity": 0}
    return xgboost.train(client, settings, xgboost.DaskDMatrix(client, X, y), num_boost_round=n_trees)


@benchmark("cluster-forest")
def cluster_forest(run: Run) -> Iterator[Yielded]:
    """How well a forest uses several workers, presorting excluded."""
    n, n_trees = run.size(tiny=300, small=20_000, full=100_000), run.size(tiny=8, small=40, full=100)
    n_workers = 4 if run.threads >= 4 else 2
    X, y = synthetic(n)
    seconds: dict[int, Measure] = {}
    for workers in (1, n_workers):
        with cluster(workers) as client:
            dX, dy = collections(client, X, y)
            grow_forest(client, dX, dy, 2 * workers)
            seconds[workers] = summary([grow_forest(client, dX, dy, n_trees) for _ in range(run.repeats)])
            yield Point("forest on a cluster", OURS, workers, seconds[workers].median, "workers")
    efficiency = seconds[1].median / seconds[n_workers].median / n_workers
    work = f"forest of {n_trees}, 1/3 of the columns, {n:,} x {N_COLUMNS}, {n_workers} workers"
    yield Row(work, "dtrees, one worker", seconds[1], seconds[n_workers], seconds[1].median / seconds[n_workers].median)
    met = efficiency >= _FOREST_EFFICIENCY
    yield Row(f"{work}: efficiency", "", None, Measure(efficiency, unit="of a worker"), None, f"≥ {_FOREST_EFFICIENCY}", met)


def grow_forest(client: Client, X: Any, y: Any, n_trees: int) -> float:
    """Grow a forest, and return the seconds from the presorted columns to the last tree."""
    seconds: list[float] = []
    with local_callback(lambda progress: seconds.append(progress.seconds), client) as note:
        began = time.monotonic()
        libraries.forests(n_trees, 1, classify=False, max_features=1 / 3)[OURS]().fit(X, y, callbacks=[note])
        while len(seconds) < n_trees:  # the last words may still be on their way
            if time.monotonic() > began + _DEADLINE:
                raise TimeoutError("the forest's progress was not told")
            time.sleep(0.01)
    return max(seconds)


@benchmark("cluster-memory")
def cluster_memory(run: Run) -> Iterator[Yielded]:
    """The peak of a worker's memory while boosting, beyond what it holds before."""
    n = run.size(tiny=2_000, small=500_000, full=1_000_000)
    n_workers = run.size(tiny=2, small=4, full=4)
    grown = {}
    for n_columns in (N_COLUMNS, N_COLUMNS // 2):
        with cluster(n_workers) as client:
            sharded_fit(client, _boosting(2), *made_on_workers(6_000, n_columns))
            before = client.run(forget_peak)
            sharded_fit(client, _boosting(3), *made_on_workers(n, n_columns))
            grown[n_columns] = max(now - before[worker] for worker, now in client.run(peak).items())
    work = f"memory of a worker while boosting, {n_workers} workers, {n:,} x {N_COLUMNS}"
    cells = n * -(-N_COLUMNS // n_workers)
    allowed = Measure((_PER_CELL * cells + _PER_ROW * n + 4 * min(n, PART_ROWS) * N_COLUMNS) / 1e6, unit="MB")
    peer = f"allowance of {_PER_CELL} bytes a cell, {_PER_ROW} a row, and a partition"
    yield Row.of(work, peer, allowed, Measure(grown[N_COLUMNS] / 1e6, unit="MB"), 1.0)
    fewer = n * (-(-N_COLUMNS // n_workers) - -(-N_COLUMNS // 2 // n_workers))
    cell = (grown[N_COLUMNS] - grown[N_COLUMNS // 2]) / fewer
    yield Row(f"{work}: of it by cell", "", None, Measure(cell, unit="bytes a cell"))
    yield Row(f"{work}: of it by row", "", None, Measure((grown[N_COLUMNS] - cell * cells) / n, unit="bytes a row"))


@benchmark("cluster-recovery")
def cluster_recovery(run: Run) -> Iterator[Yielded]:
    """What a worker killed in the middle of a fit costs: at most the tree under way, and loading again."""
    n, n_trees = run.size(tiny=500, small=50_000, full=500_000), run.size(tiny=6, small=20, full=20)
    n_workers = run.size(tiny=2, small=4, full=4)
    X, y = made_on_workers(n, N_COLUMNS)  # what lay on the lost worker only must be made again
    lost: list[float] = []
    loads: list[float] = []
    trees: list[float] = []
    for _ in range(run.repeats):
        with cluster(n_workers) as client:
            sharded_fit(client, _boosting(2), X, y)
            began = time.time()
            calm = sharded_fit(client, _boosting(n_trees), X, y)
            loads.append(calm.rounds[0]["at"] - began)
            trees.append(statistics.median(_steps(calm)))
            hit = _fit_with_a_loss(client, n_trees, X, y)
            lost.append(max(_steps(hit)) - trees[-1])
    work = f"a worker of {n_workers} killed in a fit of {n_trees} trees, {n:,} x {N_COLUMNS}: extra seconds"
    allowed = [load + tree for load, tree in zip(loads, trees, strict=True)]
    yield Row.of(work, "loading everything, and one tree", summary(allowed), summary(lost), 1.0)


def _steps(told: News) -> list[float]:
    """Return the seconds between rounds."""
    return [after["seconds"] - before["seconds"] for before, after in pairwise(told.rounds)]


def _fit_with_a_loss(client: Client, n_trees: int, X: Any, y: Any) -> News:
    """Boost, and kill a worker other than the coordinator's when half of the trees are there."""
    processes = process_ids(client)
    with placed("sharded"):
        future = dtrees.submit(_boosting(n_trees), X, y, client=client)
    deadline = time.monotonic() + _DEADLINE
    while len(news(client, future.key).rounds) < n_trees // 2:
        if time.monotonic() > deadline:
            raise TimeoutError("half of the trees did not come")
        time.sleep(0.01)
    coordinator = news(client, future.key).rounds[-1]["worker"]
    os.kill(next(process for worker, process in sorted(processes.items()) if worker != coordinator), signal.SIGKILL)
    future.result(timeout=_DEADLINE)
    told = news(client, future.key)
    future.release()
    return told
