"""Boosting of a table of three times the workers' memory, whose cells lie on their disks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import dask

from benchmarks import libraries
from benchmarks.cluster import cluster, forget_peak, made_on_workers, news, peak
from benchmarks.data import N_COLUMNS
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run


@benchmark("past-memory")
def past_memory(run: Run) -> Iterator[Yielded]:
    """Loading from partitions that are made when they are asked for, and trees of depth 4, two workers of a thread."""
    n, k, limit = run.size(tiny=(2_000, N_COLUMNS, 0), small=(400_000, N_COLUMNS, 0), full=(5_000_000, 200, 1_200_000_000))
    n_trees = run.size(tiny=2, small=3, full=3)
    with cluster(2, memory_limit=limit) as client, dask.config.set({"dtrees.storage": "auto" if limit else "disk"}):
        processes = client.run(os.getpid)
        X, y = made_on_workers(n, k, part_rows=-(-n // 200))
        client.run(forget_peak)
        model = libraries.our_boosting(n_trees, 1, depth=4).fit(X.astype("float64"), y)
        told = news(client)
        largest = max(client.run(peak).values())
        if (model.placement_.storage, client.run(os.getpid)) != ("disk", processes):
            raise RuntimeError(f"cells were not on disk, or a worker has died: {model.placement_}")
    times = [one["at"] for one in told.rounds]
    work = f"past memory, {n:,} x {k} float64 ({n * k * 8 / 1e9:.3g} GB), 2 workers of a thread and {limit / 1e9 or 'any number of'} GB"
    each = (times[-1] - times[0]) / max(1, len(times) - 1)
    yield Row(f"{work}: a tree after the first", "", None, Measure(each))
    yield Row(f"{work}: memory of a worker, at most", "", None, Measure(largest / 1e6, unit="MB"))
