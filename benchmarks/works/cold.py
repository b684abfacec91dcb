"""The first fit in a fresh process: with an empty kernel cache, as in a new container, and with a full one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run

#: What is fitted: its name, and the most seconds that it may take with an empty cache.
_WORKS = {"first boosting fit": 15.0, "all estimators and criteria": 60.0}

#: Seconds that compiling may go on for after a fit.
_COMPILES_AT_MOST = 600

#: Fits in a fresh process: the number of rows and of trees, the number of threads, and whether all estimators are fitted.
_PROGRAM = """
import sys, time
import numpy as np
n, n_trees, threads, everything = map(int, sys.argv[1:])
r = np.random.default_rng(0)
X = r.normal(size=(n, 8))
X[:, 5:] = np.round(X[:, 5:], 1)
y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + 0.3 * r.normal(size=n)
y -= y.min()  # for Poisson deviance
label = (y > np.median(y)).astype(int)
start = time.perf_counter()
import dtrees
from dtrees.split.criteria.criterion import criteria_for
dtrees.GradientBoostingRegressor(n_estimators=n_trees, n_jobs=threads).fit(X, y).predict(X)
if everything:
    dtrees.GradientBoostingClassifier(n_estimators=n_trees, n_jobs=threads).fit(X, label).predict(X)
    for task, ending, target in (("regression", "Regressor", y), ("classification", "Classifier", label)):
        for criterion in criteria_for(task):
            for kind in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"):
                settings = {} if kind.endswith("Tree") else {"n_estimators": 10, "n_jobs": threads}
                getattr(dtrees, kind + ending)(criterion=criterion, max_depth=8, **settings).fit(X, target).predict(X)
print(time.perf_counter() - start)
"""


@benchmark("cold")
def cold(run: Run) -> Iterator[Yielded]:
    """The first fit in a fresh process, with an empty and with a full kernel cache."""
    n_rows, n_trees = run.size(tiny=(300, 2), small=(20_640, 50), full=(20_640, 200))
    for everything, (work, most) in enumerate(_WORKS.items()):
        if run.scale == "tiny" and everything:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            # A tiny run finds what has been compiled: all it shows is that this works.
            cache = None if run.scale == "tiny" else Path(folder)
            arguments = [n_rows, n_trees, run.threads, everything]
            empty = _seconds(cache, *arguments)
            _await_compilers(cache)
            full = _seconds(cache, *arguments)
        yield Row(f"{work}, empty kernel cache", "", None, Measure(empty), None, f"≤ {most:.3g} s", empty <= most)
        yield Row(f"{work}, full kernel cache", "", None, Measure(full))


def _await_compilers(cache: Path | None) -> None:
    """Wait for the processes that still compile for a fit that has ended: they would slow down whatever is measured next."""
    if cache is not None:
        compilers = [process for process in psutil.process_iter() if _environment(process).get("NUMBA_CACHE_DIR") == str(cache)]
        _, left = psutil.wait_procs(compilers, timeout=_COMPILES_AT_MOST)
        if left:
            raise TimeoutError(f"kernels were still being compiled after {_COMPILES_AT_MOST} s, by processes {[one.pid for one in left]}")


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process; it is empty where there is none to be read."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _seconds(cache: Path | None, *arguments: int) -> float:
    """Return the seconds that fits take in a process of their own."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-c", _PROGRAM, *map(str, arguments)]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
