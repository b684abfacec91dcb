"""Clusters of processes on this machine: boosting and forests on several workers, traffic, memory, and the cost of a lost worker.

If there are more workers than cores, they share the cores, and the time that they wait for each other counts as overhead.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import dask
from distributed import Client, wait

import dtrees
from benchmarks.cluster import News, cluster, forget_peak, made_on_workers, news, placed
from benchmarks.data import N_COLUMNS
from benchmarks.libraries import forests, our_boosting
from benchmarks.resident import resident_bytes
from benchmarks.results import Measure, Row
from benchmarks.run import OURS, Run, benchmark, wait_for_kernels
from benchmarks.timing import summary
from dtrees.cluster.growing.watching import local_callback

#: Levels of a tree.
_DEPTH = 6
#: Seconds after which a fit is abandoned.
_DEADLINE = 600.0
#: Placements of boosting, by contender.
_PLACEMENTS = {OURS: "auto", "dtrees, over columns": "sharded", "dtrees, over rows": "rows"}


def placed_fit(client: Client, how: str, model: Any, X: Any, y: Any) -> News:
    """Fit with a placement, and return the events of the fit."""
    with placed(how):
        model.fit(X, y)
    return news(client)


def resident(n: int, *, classify: bool = False) -> tuple[Any, Any]:
    """Return Dask arrays of a table that the workers of the current client have generated and hold."""
    X, y = made_on_workers(n, N_COLUMNS, part_rows=-(-n // 8))
    X, y = dask.persist(X, (y > 0).astype("int64") if classify else y)
    wait([X, y])
    return X, y


@benchmark("cluster-boosting")
def cluster_boosting(run: Run) -> Iterator[Row]:
    """Boosting by each placement against one process with as many threads, and against XGBoost on the same cluster."""
    n, n_trees = run.size(tiny=2_000, small=200_000, full=1_000_000), run.size(tiny=2, small=20, full=100)
    for classify in (False, True):
        yield from _boosting(run, n, n_trees, classify)


def _boosting(run: Run, n: int, n_trees: int, classify: bool) -> Iterator[Row]:
    with cluster(2) as client:
        X, y = resident(n, classify=classify)
        X_here, y_here = dask.compute(X, y)
        contenders: dict[str, Callable[[int], Any]] = {
            name: lambda k, how=how: placed_fit(client, how, our_boosting(k, 1, classify), X, y) for name, how in _PLACEMENTS.items()
        }
        contenders["dtrees, one process"] = lambda k: our_boosting(k, 2, classify).fit(X_here, y_here)
        contenders["XGBoost hist"] = lambda k: _xgboost_on(client, X, y, k, classify)
        contenders = run.installed(contenders)
        for fit in contenders.values():
            fit(5)
        wait_for_kernels()
        measures = run.measure({name: partial(fit, n_trees) for name, fit in contenders.items()})
    kind = "two classes" if classify else "regression"
    yield from run.rows(f"boosting, {kind}, {n_trees} trees of depth {_DEPTH}, {n:,} x {N_COLUMNS}", measures)


def _xgboost_on(client: Client, X: Any, y: Any, n_trees: int, classify: bool) -> Any:
    """Fit XGBoost on a cluster, including loading."""
    from xgboost import dask as xgboost

    settings = {"tree_method": "hist", "max_depth": _DEPTH, "eta": 0.1, "verbosity": 0}
    settings |= {"objective": "binary:logistic"} if classify else {}
    return xgboost.train(client, settings, xgboost.DaskDMatrix(client, X, y), num_boost_round=n_trees)


@benchmark("cluster-costs")
def cluster_costs(run: Run) -> Iterator[Row]:
    """What a level of a tree costs beyond the slowest worker's own work, and megabytes that workers send one another for a tree."""
    n, n_trees = run.size(tiny=500, small=20_000, full=20_000), run.size(tiny=2, small=10, full=20)
    for n_workers in run.size(tiny=(2,), small=(2, 4), full=(2, 4, 8)):
        with cluster(n_workers) as client:
            X, y = resident(n)
            placed_fit(client, "sharded", our_boosting(2, 1), X, y)
            wait_for_kernels()
            told = placed_fit(client, "sharded", our_boosting(n_trees, 1), X, y)
        levels = [1e3 * (tree["seconds"] - tree["slowest"]) / _DEPTH for tree in told.trees()]
        work = f"time of a level beyond the slowest worker's work, over columns, {n_workers} workers, {n:,} x {N_COLUMNS}"
        yield Row(work, Measure(statistics.median(levels), n=len(levels), unit="ms"))
    n, n_trees = run.size(tiny=2_000, small=100_000, full=1_000_000), run.size(tiny=3, small=10, full=10)
    with cluster(2) as client:
        X, y = resident(n)
        for name, how in list(_PLACEMENTS.items())[1:]:
            told = placed_fit(client, how, our_boosting(n_trees, 1), X, y)
            sent = [sum(one["exchanged"].values()) / 1e6 for one in told.rounds]
            each = summary([after - before for before, after in pairwise(sent)], "MB")
            yield Row(f"sent by workers for a tree, {name.removeprefix('dtrees, ')}, 2 workers, {n:,} x {N_COLUMNS}", each)


@benchmark("cluster-forest")
def cluster_forest(run: Run) -> Iterator[Row]:
    """How well a forest uses several workers, presorting excluded."""
    n, n_trees = run.size(tiny=300, small=20_000, full=100_000), run.size(tiny=8, small=40, full=32)
    seconds: dict[int, Measure] = {}
    for workers in (1, 2):
        with cluster(workers) as client:
            X, y = resident(n)
            grow_forest(client, X, y, 2 * workers)
            wait_for_kernels()
            seconds[workers] = summary([grow_forest(client, X, y, n_trees) for _ in range(run.repeats)])
    yield Row(f"forest of {n_trees} trees, {n:,} x {N_COLUMNS}, 2 workers", seconds[2], "one worker", seconds[1])


def grow_forest(client: Client, X: Any, y: Any, n_trees: int) -> float:
    """Grow a forest, and return the seconds from the presorted columns to the last tree."""
    seconds: list[float] = []
    with local_callback(lambda progress: seconds.append(progress.seconds), client) as note:
        began = time.monotonic()
        forests(n_trees, 1, classify=False, max_features=1 / 3)[OURS]().fit(X, y, callbacks=[note])
        while len(seconds) < n_trees:  # the last events may not have arrived
            if time.monotonic() > began + _DEADLINE:
                raise TimeoutError("the forest's progress was not told")
            time.sleep(0.01)
    return max(seconds)


@benchmark("cluster-memory")
def cluster_memory(run: Run) -> Iterator[Row]:
    """The peak of a worker's memory while boosting over columns and over rows, beyond what it holds before."""
    n, n_workers = run.size(tiny=2_000, small=500_000, full=1_000_000), run.size(tiny=2, small=4, full=4)
    for name, how in list(_PLACEMENTS.items())[1:]:
        with cluster(n_workers) as client:
            placed_fit(client, how, our_boosting(2, 1), *made_on_workers(6_000, N_COLUMNS))
            before = client.run(forget_peak)
            placed_fit(client, how, our_boosting(3, 1), *made_on_workers(n, N_COLUMNS))
            grown = max(now - before[worker] for worker, now in client.run(resident_bytes, "VmHWM").items())
        work = f"peak memory of a worker, {name.removeprefix('dtrees, ')}, {n_workers} workers, {n:,} x {N_COLUMNS}"
        yield Row(work, Measure(grown / 1e6, unit="MB"))


@benchmark("cluster-recovery")
def cluster_recovery(run: Run) -> Iterator[Row]:
    """What a worker killed in the middle of a fit costs: at most the tree under way, and loading again."""
    n, n_trees = run.size(tiny=500, small=50_000, full=500_000), run.size(tiny=6, small=20, full=20)
    n_workers = run.size(tiny=2, small=4, full=4)
    X, y = made_on_workers(n, N_COLUMNS)  # only partitions on the lost worker must be computed again
    lost: list[float] = []
    loads: list[float] = []
    trees: list[float] = []
    for _ in range(run.repeats):
        with cluster(n_workers) as client:
            placed_fit(client, "sharded", our_boosting(2, 1), X, y)
            wait_for_kernels()
            began = time.time()
            calm = placed_fit(client, "sharded", our_boosting(n_trees, 1), X, y)
            loads.append(calm.rounds[0]["at"] - began)
            trees.append(statistics.median(_steps(calm)))
            hit = _fit_with_a_loss(client, n_trees, X, y)
            lost.append(max(_steps(hit)) - trees[-1])
    work = f"time lost when one of {n_workers} workers is killed, boosting of {n_trees} trees, {n:,} x {N_COLUMNS}"
    yield Row(work, summary(lost), "loading and one tree", summary([load + tree for load, tree in zip(loads, trees, strict=True)]))


def _steps(told: News) -> list[float]:
    """Return the seconds between rounds."""
    return [after["seconds"] - before["seconds"] for before, after in pairwise(told.rounds)]


def _fit_with_a_loss(client: Client, n_trees: int, X: Any, y: Any) -> News:
    """Boost, and kill a worker other than the coordinator's when half of the trees are finished."""
    processes = client.run(os.getpid)
    with placed("sharded"):
        future = dtrees.submit(our_boosting(n_trees, 1), X, y, client=client)
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
