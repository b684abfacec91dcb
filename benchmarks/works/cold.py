"""The first fits in a fresh process, with an empty kernel cache, as in a new container, and with a full one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.registry import benchmark
from benchmarks.results import Measure, Row, Yielded
from benchmarks.run import Run

#: Fits, one after the other in one process: a name, the estimator, its parameters, the kind of table and the target.
_KINDS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("boosting", "GradientBoostingRegressor", {}, "numbers", "y"),
    ("boosting of two classes", "GradientBoostingClassifier", {}, "numbers", "two"),
    ("boosting of three classes", "GradientBoostingClassifier", {}, "numbers", "three"),
    ("boosting, monotonic", "GradientBoostingRegressor", {"monotonic_cst": [1, 0, 0, 0, 0, 0, 0, 0]}, "numbers", "y"),
    ("boosting, Poisson", "GradientBoostingRegressor", {"loss": "poisson"}, "numbers", "y"),
    ("boosting, absolute error", "GradientBoostingRegressor", {"loss": "absolute_error"}, "numbers", "y"),
    ("boosting, categories", "GradientBoostingRegressor", {}, "categories", "y"),
    ("forest", "RandomForestRegressor", {"n_estimators": 10}, "numbers", "y"),
    ("forest of two classes", "RandomForestClassifier", {"n_estimators": 10}, "numbers", "two"),
    ("extra-trees", "ExtraTreesRegressor", {"n_estimators": 10}, "numbers", "y"),
    ("extra-trees of two classes", "ExtraTreesClassifier", {"n_estimators": 10}, "numbers", "two"),
)
#: All estimators with two or three criteria each: the task, the criteria, and the target. Boosting comes on top.
_CRITERIA = (
    ("Regressor", ("squared_error", "poisson", "absolute_error"), "y"),
    ("Classifier", ("gini", "entropy"), "two"),
)
#: The most seconds: of the first fit of a process with an empty cache, of any other kind, of all estimators, of the demo with an empty and
#: with a full cache, and of a loaded model's first prediction.
_FIRST, _FURTHER, _ALL, _DEMO, _DEMO_AGAIN, _PREDICTION = 6.0, 3.0, 30.0, 12.0, 3.5, 1.5
#: Seconds that compiling may go on for after a fit.
_COMPILES_AT_MOST = 600
_PREDICT = """
import sys, time
import numpy as np
import dtrees
dtrees.load(sys.argv[1]).predict(np.zeros((1, 8)))
print(time.process_time())
"""


@benchmark("cold")
def cold(run: Run) -> Iterator[Yielded]:
    """The first fits of each kind, the demo, and a loaded model's first prediction, with an empty and with a full kernel cache.

    After the seconds of a fit, those of its process and of the processes that it has compile for it are given: they say more where others
    use the machine, too.
    """
    n_rows, n_trees = run.size(tiny=(300, 2), small=(20_640, 50), full=(20_640, 200))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # A tiny run finds what has been compiled: all it shows is that this works.
        cache = None if run.scale == "tiny" else Path(folder) / "kernels"
        kinds = _KINDS[:1] if run.scale == "tiny" else _KINDS
        model = Path(folder) / "model.dtrees"
        for state in ("empty", "full"):
            for number, (kind, seconds, processor) in enumerate(_fits(cache, kinds, n_rows, n_trees, run.threads, str(model))):
                most = None if state == "full" else _FURTHER if number else _FIRST
                yield _row(f"first fit of {kind}, {state} kernel cache", seconds, most)
                yield _row(f"first fit of {kind}, {state} kernel cache, processor time", processor)
        yield _row("first prediction of a loaded model, processor time", float(_run(cache, "-c", _PREDICT, str(model))), _PREDICTION)
        if cache is None:
            return
        cache = Path(folder) / "others"
        taken = sum(seconds for _, seconds, _ in _fits(cache, [*_KINDS[:2], *_by_criterion()], n_rows, n_trees, run.threads, ""))
        yield _row("all estimators with three criteria each, empty kernel cache", taken, _ALL)
        cache = Path(folder) / "of the demo"
        for state, most in (("empty", _DEMO), ("full", _DEMO_AGAIN)):
            began = time.perf_counter()
            _run(cache, "-m", "dtrees", "demo")
            taken = time.perf_counter() - began
            _await_compilers(cache)
            yield _row(f"dtrees demo, {state} kernel cache", taken, most)


def _by_criterion() -> Iterator[tuple[str, str, dict[str, Any], str, str]]:
    """Yield what :data:`_KINDS` holds for all estimators that are not boosted and all of their criteria."""
    for task, criteria, target in _CRITERIA:
        for criterion in criteria:
            for kind in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"):
                yield f"{kind} by {criterion}", kind + task, {"criterion": criterion, "max_depth": 8}, "numbers", target


def _row(work: str, seconds: float, most: float | None = None) -> Row:
    if most is None:
        return Row(work, "", None, Measure(seconds))
    return Row(work, "", None, Measure(seconds), None, f"≤ {most:.3g} s", seconds <= most)


def _fits(cache: Path | None, kinds: Any, *arguments: Any) -> list[tuple[str, float, float]]:
    """Return name, seconds and processor time of fits in a process of their own; the first are from its start on."""
    program = "from benchmarks.works.cold import fit_in_turn; fit_in_turn()"
    found = json.loads(_run(cache, "-c", program, json.dumps([kinds, *arguments])))
    _await_compilers(cache)
    return [tuple(one) for one in found]


def fit_in_turn() -> None:
    """Fit what the command line says, and print the names, seconds and processor time as JSON."""
    kinds, n_rows, n_trees, threads, path = json.loads(sys.argv[1])
    r = np.random.default_rng(0)
    X: Any = r.normal(size=(n_rows, 8))
    X[:, 5:] = np.round(X[:, 5:], 1)
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + 0.3 * r.normal(size=n_rows)
    y -= y.min()  # for Poisson deviance
    targets = {"y": y, "two": np.digitize(y, [np.median(y)]), "three": np.digitize(y, np.quantile(y, [0.3, 0.6]))}
    taken, processor, model = [], 0.0, None
    began = psutil.Process().create_time()
    for kind, estimator, parameters, table, target in kinds:
        import dtrees

        size = {} if "Tree" in estimator and "Trees" not in estimator else {"n_jobs": threads}
        size |= {"n_estimators": n_trees} if "Boosting" in estimator else {"n_estimators": 10} if size else {}
        given = X if table == "numbers" else _with_categories(X)
        model = getattr(dtrees, estimator)(**{**size, **parameters}).fit(given, targets[target])
        model.predict(given)
        now, used = time.time(), _processor_time()
        taken.append((kind, now - began, used - processor))
        if path and len(taken) == 1:
            dtrees.save(model, path)
        began, processor = time.time(), _processor_time()
    print(json.dumps(taken))


def _with_categories(X: np.ndarray[Any, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(X).rename(columns=str).assign(word=pd.Categorical([f"word {k}" for k in np.round(3 * X[:, 5]).astype(int)]))


def _processor_time() -> float:
    """Return the processor time of this process, and of those that compile for its cache, as far as they are alive."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    compilers = [] if folder is None else _processes(folder)
    return time.process_time() + sum(sum(process.cpu_times()[:2]) for process in compilers if process.pid != os.getpid())


def _processes(folder: str) -> list[psutil.Process]:
    """Return the processes that use a kernel cache."""
    return [process for process in psutil.process_iter() if _environment(process).get("NUMBA_CACHE_DIR") == folder]


def _await_compilers(cache: Path | None) -> None:
    """Wait for the processes that still compile for a fit that has ended: they would slow down whatever is measured next."""
    if cache is not None:
        _, left = psutil.wait_procs(_processes(str(cache)), timeout=_COMPILES_AT_MOST)
        if left:
            raise TimeoutError(f"kernels were still being compiled after {_COMPILES_AT_MOST} s, by processes {[one.pid for one in left]}")


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process; it is empty where there is none to be read."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _run(cache: Path | None, *arguments: str) -> str:
    """Return what a fresh Python prints."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True).stdout
