"""Memory of fits, and a table of three times the workers' memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask

from benchmarks import libraries
from benchmarks.cluster import cluster, forget_peak, made_on_workers, news, peak
from benchmarks.data import N_COLUMNS
from benchmarks.libraries import is_installed
from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run
from benchmarks.timing import summary

# --- memory of a fit beyond the user's array: its peak in a process of its own ---


#: What a fit may take: bytes a cell and bytes a row.
_PER_CELL, _PER_ROW = 12, 64
#: Seconds after which a measurement is given up.
_DEADLINE = 1800.0


@benchmark("memory")
def memory(run: Run) -> Iterator[Yielded]:
    """Peak memory of fits beyond the user's array, 1M x 28."""
    n = run.size(tiny=2_000, small=100_000, full=1_000_000)
    peers = {
        "boosting": run.size(tiny=(), small=("XGBoost hist", "LightGBM"), full=("XGBoost exact", "XGBoost hist", "LightGBM")),
        "tree": run.size(tiny=(), small=("scikit-learn",), full=("scikit-learn",)),
    }
    for kind in run.size(tiny=("boosting",), small=("boosting", "tree"), full=("boosting", "tree")):
        work = f"memory of a {kind} fit beyond the array, {n:,} x {N_COLUMNS}"
        ours = _measure(run, kind, "dtrees", n, N_COLUMNS)
        allowance = Measure(_PER_CELL * N_COLUMNS + _PER_ROW, unit="bytes a row")
        yield Row.of(work, f"allowance of {_PER_CELL} bytes a cell and {_PER_ROW} a row", allowance, ours, 1.0)
        # Half the columns: the difference is what cells take, and the rest what rows do.
        half = N_COLUMNS // 2
        cell = (ours.median - _measure(run, kind, "dtrees", n, half).median) / (N_COLUMNS - half)
        yield Row(f"{work}: of it by cell", "", None, Measure(cell, unit="bytes a cell"))
        yield Row(f"{work}: of it by row", "", None, Measure(ours.median - N_COLUMNS * cell, unit="bytes a row"))
        for peer in peers[kind]:
            if is_installed(peer):
                yield Row.of(work, peer, _measure(run, kind, peer, n, N_COLUMNS), ours)
            else:
                run.skip(f"{peer} is not installed")


def _measure(run: Run, kind: str, library: str, n_rows: int, n_columns: int) -> Measure:
    arguments = json.dumps([kind, library, n_rows, n_columns, run.threads])
    found = []
    for _ in range(run.repeats):
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.resident", arguments],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
        )
        if answer.returncode:
            raise RuntimeError(f"measuring the memory of {library} failed:\n{answer.stderr}")
        found.append(float(answer.stdout.split()[-1]) / n_rows)
    return summary(found, "bytes a row")


# --- boosting of a table of three times the workers' memory, whose cells lie on their disks ---


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
