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

from benchmarks.results import Measure, Row
from benchmarks.run import Run, benchmark

#: Fits in one process, in order: a name, the estimator, its parameters, the kind of table and the target.
_KINDS: tuple[tuple[str, str, dict[str, Any], str, str], ...] = (
    ("boosting, the first of the process", "GradientBoostingRegressor", {}, "numbers", "y"),
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
#: All estimators except boosting, with two or three criteria each: the task, the criteria, and the target.
_CRITERIA = (
    ("Regressor", ("squared_error", "poisson", "absolute_error"), "y"),
    ("Classifier", ("gini", "entropy"), "two"),
)
#: Seconds that compiling may continue after a fit.
_COMPILES_AT_MOST = 600
_PREDICT = """
import sys, time
import numpy as np
import dtrees
dtrees.load(sys.argv[1]).predict(np.zeros((1, 8)))
print(time.process_time())
"""


@benchmark("cold")
def cold(run: Run) -> Iterator[Row]:
    """The first fits of each kind, the demo, and a loaded model's first prediction, with an empty and with a full kernel cache."""
    n_rows, n_trees = run.size(tiny=(300, 2), small=(20_640, 50), full=(20_640, 200))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # A tiny run uses the existing kernels: it only shows that the benchmark works.
        cache = None if run.scale == "tiny" else Path(folder) / "kernels"
        kinds = _KINDS[:1] if run.scale == "tiny" else _KINDS
        model = Path(folder) / "model.dtrees"
        empty, full = (_fits(cache, kinds, n_rows, n_trees, run.threads, str(model)) for _ in range(2))
        for kind in empty:
            yield _row(kind, empty[kind], full[kind])
        yield Row("first prediction of a loaded model, processor time", Measure(float(_run(cache, "-c", _PREDICT, str(model)))))
        if cache is None:
            return
        cache, kinds = Path(folder) / "others", [*_KINDS[:2], *_by_criterion()]
        empty, full = (_fits(cache, kinds, n_rows, n_trees, run.threads, "") for _ in range(2))
        yield _row("all estimators, two or three criteria each", sum(empty.values()), sum(full.values()))
        yield _row("`dtrees demo`", *(_demo(Path(folder) / "of the demo") for _ in range(2)))


def _row(work: str, empty: float, full: float) -> Row:
    return Row(work, Measure(empty), "full kernel cache", Measure(full))


def _demo(cache: Path) -> float:
    """Return the seconds of the demo."""
    began = time.perf_counter()
    _run(cache, "-m", "dtrees", "demo")
    taken = time.perf_counter() - began
    _await_compilers(cache)
    return taken


def _by_criterion() -> Iterator[tuple[str, str, dict[str, Any], str, str]]:
    """Yield entries like those of :data:`_KINDS` for all criteria of all estimators except boosting."""
    for task, criteria, target in _CRITERIA:
        for criterion in criteria:
            for kind in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees"):
                yield f"{kind} by {criterion}", kind + task, {"criterion": criterion, "max_depth": 8}, "numbers", target


def _fits(cache: Path | None, kinds: Any, *arguments: Any) -> dict[str, float]:
    """Return the seconds of fits in a new process, by name; the first includes the start of the process."""
    program = "from benchmarks.works.cold import fit_in_turn; fit_in_turn()"
    found = json.loads(_run(cache, "-c", program, json.dumps([kinds, *arguments])))
    _await_compilers(cache)
    return dict(found)


def fit_in_turn() -> None:
    """Run the fits given on the command line, and print names and seconds as JSON."""
    kinds, n_rows, n_trees, threads, path = json.loads(sys.argv[1])
    r = np.random.default_rng(0)
    X: Any = r.normal(size=(n_rows, 8))
    X[:, 5:] = np.round(X[:, 5:], 1)
    y = X[:, 0] * X[:, 1] + np.abs(X[:, 2]) + 0.3 * r.normal(size=n_rows)
    y -= y.min()  # for Poisson deviance
    targets = {"y": y, "two": np.digitize(y, [np.median(y)]), "three": np.digitize(y, np.quantile(y, [0.3, 0.6]))}
    taken = []
    began = psutil.Process().create_time()
    for kind, estimator, parameters, table, target in kinds:
        import dtrees

        size = {} if "Tree" in estimator and "Trees" not in estimator else {"n_jobs": threads}
        size |= {"n_estimators": n_trees} if "Boosting" in estimator else {"n_estimators": 10} if size else {}
        given = X if table == "numbers" else _with_categories(X)
        model = getattr(dtrees, estimator)(**{**size, **parameters}).fit(given, targets[target])
        model.predict(given)
        taken.append((kind, time.time() - began))
        if path and len(taken) == 1:
            dtrees.save(model, path)
        began = time.time()
    print(json.dumps(taken))


def _with_categories(X: np.ndarray[Any, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame(X).rename(columns=str).assign(word=pd.Categorical([f"word {k}" for k in np.round(3 * X[:, 5]).astype(int)]))


def _processes(folder: str) -> list[psutil.Process]:
    """Return the processes that use a kernel cache."""
    return [process for process in psutil.process_iter() if _environment(process).get("NUMBA_CACHE_DIR") == folder]


def _await_compilers(cache: Path | None) -> None:
    """Wait for processes that still compile after a fit: they would slow down the next measurement."""
    if cache is not None:
        _, left = psutil.wait_procs(_processes(str(cache)), timeout=_COMPILES_AT_MOST)
        if left:
            raise TimeoutError(f"kernels were still being compiled after {_COMPILES_AT_MOST} s, by processes {[one.pid for one in left]}")


def _environment(process: psutil.Process) -> dict[str, str]:
    """Return the environment of a process; empty if it cannot be read."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _run(cache: Path | None, *arguments: str) -> str:
    """Run a new Python process, and return its output."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    return subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True).stdout
