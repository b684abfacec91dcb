"""Memory of fits, including a table of three times the workers' memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask

from benchmarks.cluster import cluster, forget_peak, made_on_workers, news
from benchmarks.data import N_COLUMNS
from benchmarks.libraries import our_boosting
from benchmarks.resident import resident_bytes
from benchmarks.results import Measure, Row
from benchmarks.run import OURS, Run, benchmark
from benchmarks.timing import summary

_PEERS = {"boosting": ["XGBoost hist", "LightGBM", "CatBoost"], "tree": ["scikit-learn"], "forest": ["scikit-learn"]}
#: Seconds after which a measurement is abandoned.
_DEADLINE = 1800.0


@benchmark("memory")
def memory(run: Run) -> Iterator[Row]:
    """Peak memory of fits beyond the user's array, in a process of its own, 1M x 28."""
    n = run.size(tiny=2_000, small=100_000, full=1_000_000)
    for kind, peers in run.size(tiny={"boosting": []}, small=_PEERS, full=_PEERS).items():
        libraries = run.installed(dict.fromkeys([OURS, *peers]))
        measures = {name: _measure(run, kind, name, n, N_COLUMNS) for name in libraries}
        yield from run.rows(f"{kind}, {n:,} x {N_COLUMNS}", measures)


def _measure(run: Run, kind: str, library: str, n_rows: int, n_columns: int) -> Measure:
    command = [sys.executable, "-m", "benchmarks.resident", json.dumps([kind, library, n_rows, n_columns, run.threads])]
    found = []
    for _ in range(run.repeats):
        answer = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=_DEADLINE)
        if answer.returncode:
            raise RuntimeError(f"measuring the memory of {library} failed:\n{answer.stderr}")
        found.append(float(answer.stdout.split()[-1]) / n_rows)
    return summary(found, "bytes a row")


@benchmark("past-memory")
def past_memory(run: Run) -> Iterator[Row]:
    """Loading partitions that are generated on request, and growing trees of depth 4, on two workers of one thread."""
    n, k, limit = run.size(tiny=(2_000, N_COLUMNS, 0), small=(400_000, N_COLUMNS, 0), full=(5_000_000, 200, 1_200_000_000))
    n_trees = run.size(tiny=2, small=3, full=3)
    with cluster(2, memory_limit=limit) as client, dask.config.set({"dtrees.storage": "auto" if limit else "disk"}):
        processes = client.run(os.getpid)
        X, y = made_on_workers(n, k, part_rows=-(-n // 200))
        client.run(forget_peak)
        model = our_boosting(n_trees, 1, depth=4).fit(X.astype("float64"), y)
        told = news(client)
        largest = max(client.run(resident_bytes, "VmHWM").values())
        if (model.placement_.storage, client.run(os.getpid)) != ("disk", processes):
            raise RuntimeError(f"cells were not on disk, or a worker has died: {model.placement_}")
    times = [one["at"] for one in told.rounds]
    work = f"past memory, {n:,} x {k} float64 ({n * k * 8 / 1e9:.3g} GB), 2 workers of a thread and {limit / 1e9 or 'any number of'} GB"
    each = (times[-1] - times[0]) / max(1, len(times) - 1)
    yield Row(f"{work}: a tree after the first", Measure(each))
    yield Row(f"{work}: memory of a worker, at most", Measure(largest / 1e6, unit="MB"))
