"""``dtrees check``: whether an installation, and a cluster, work."""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dtrees
from dtrees.cli.clusters import cluster
from dtrees.cli.display import Display, plural
from dtrees.cli.errors import CommandError
from dtrees.cli.models import FAMILIES
from dtrees.ensemble.input.target import VALUES
from dtrees.version import DISTRIBUTION, installed, pip_install

#: Packages on which results, messages or pickles depend.
_PACKAGES = ("numpy", "numba", "llvmlite", "scikit-learn", "dask", "distributed", "cloudpickle", "pandas")


#: The environment variable for the helper process that compiles kernels.
_HELPER = "DTREES_HELPER"
#: Tables that need kernels of their own, and numbers of rows for a small node, and for one large enough for zone sums.
_TABLES = ("numbers", "categories", "sparse", "monotonic", "several targets")
_ROWS = (2_000, 50_000)


def run(*, scheduler: str | None, as_json: bool, models: Sequence[str] = (), all_models: bool = False) -> None:
    """Carry out the command; the arguments are its options.

    Raises
    ------
    CommandError
        If versions on a cluster differ.
    """
    display = Display(as_json=as_json)
    here = versions()
    found = {"here": here}
    if scheduler is not None:
        with cluster(display, scheduler) as client:
            found |= {f"worker {address}": versions_there for address, versions_there in sorted(client.run(versions).items())}
            found["scheduler"] = client.run_on_scheduler(versions)
    groups = _alike(found)
    display.table([(name, *(versions_there[name] for versions_there in groups.values())) for name in here], ("", *groups))
    if other := installed(["dtrees"]):
        display.warn(
            f"the package dtrees {other['dtrees']} is installed, too. It is another project's, or an old version of this one, and has "
            f"files of the same names: pip uninstall dtrees {DISTRIBUTION}, then {pip_install()}."
        )
    differing = sorted({name for versions_there in found.values() for name in here if versions_there.get(name) != here[name]} - {"kernels"})
    before = os.environ.get(_HELPER)
    os.environ[_HELPER] = "0"  # the process must not leave a helper that continues compiling
    try:
        start = time.monotonic()
        with display.stage("Compiling kernels, or reading compiled ones"):
            _fit_a_little()
        with warnings.catch_warnings(action="ignore"):  # they concern tables that are not the user's
            n_kinds = _compile_kinds([name for name in FAMILIES if FAMILIES[name].kind == VALUES] if all_models else models, display)
        seconds = time.monotonic() - start
    finally:
        os.environ.pop(_HELPER)
        if before is not None:
            os.environ[_HELPER] = before
    display.document(
        {"versions": found, "differing": differing, "seconds_of_kernels": seconds, "kinds_of_fits": n_kinds, "ok": not differing}
    )
    if differing:
        raise CommandError(
            f"Versions differ: {', '.join(differing)}. Install the same versions everywhere; otherwise results and messages may differ."
        )
    display.result("All is well." if scheduler is None else f"All is well: {plural(len(found) - 2, 'worker')} and the scheduler.")


def versions() -> dict[str, str]:
    """Return the versions of this process, and the name of its compiled kernels, which also depends on the type of processor."""
    from dtrees.split.compile.cache import kernel_version

    found = dict.fromkeys(_PACKAGES, "missing") | installed(_PACKAGES)
    return {"python": platform.python_version(), "dtrees": dtrees.__version__, **found, "kernels": kernel_version()}


def _alike(found: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return versions by process; workers with equal versions are combined.

    >>> _alike({"here": {"a": "1"}, "worker x": {"a": "2"}, "worker y": {"a": "2"}, "worker z": {"a": "3"}})
    {'here': {'a': '1'}, '2 workers, such as x': {'a': '2'}, 'worker z': {'a': '3'}}
    """
    groups: dict[object, list[str]] = {}
    for name, versions_there in found.items():
        groups.setdefault(tuple(versions_there.items()) if name.startswith("worker ") else name, []).append(name)
    alike = {}
    for first, *others in groups.values():
        called = f"{len(others) + 1} workers, such as {first.removeprefix('worker ')}" if others else first
        alike[called] = found[first]
    return alike


def _fit_a_little() -> None:
    """Fit models that need most kernels of numeric tables."""
    import numpy as np

    X = np.random.default_rng(0).random((5000, 4))
    y = X[:, 0] + X[:, 1] ** 2
    dtrees.GradientBoostingRegressor(n_estimators=2).fit(X, y).predict(X[:10])
    dtrees.GradientBoostingClassifier(n_estimators=2).fit(X, y > 1).predict(X[:10])
    dtrees.RandomForestRegressor(2).fit(X, y).predict(X[:10])
    dtrees.RandomForestClassifier(2).fit(X, y > 1).predict(X[:10])


def _compile_kinds(models: Sequence[str], display: Display) -> int:
    """Fit models of each kind with kernels of its own, and report each that compiled some; return their number."""
    from dtrees.split.compile.cache import n_compiled

    kinds = [(*of_model, table, n_rows) for name in models for of_model in _estimators(name) for table in _TABLES for n_rows in _ROWS]
    n_kinds = 0
    for number, (estimator, n_classes, table, n_rows) in enumerate(kinds, 1):
        before, start = n_compiled(), time.monotonic()
        n_kinds += _fit(estimator, n_classes, table, n_rows)
        n_new = n_compiled() - before
        if n_new or number == len(kinds):
            what = f"{type(estimator).__name__} of {table}, {n_rows:,} rows: {plural(n_new, 'kernel')}"
            display.note(f"{number} of {len(kinds)} kinds of fits: {what}, {time.monotonic() - start:.1f} s")
    return n_kinds


def _estimators(model: str) -> Iterator[tuple[Any, int]]:
    """Yield an estimator for each criterion or loss of a model, and a number of classes; 0 is for regression."""
    from dtrees.ensemble.objective.registry import registered_losses
    from dtrees.split.criteria.criterion import criteria_for

    size = {} if model == "tree" else {"n_estimators": 1}
    if model == "boosting":
        objectives = [("loss", name, classes) for name, classes, _ in registered_losses()]
    else:
        classification = [("criterion", name, classes) for name in sorted(criteria_for("classification")) for classes in (2, 3)]
        objectives = [*(("criterion", name, 0) for name in sorted(criteria_for("regression"))), *classification]
    for parameter, name, classes in objectives:
        estimator_class = getattr(dtrees, FAMILIES[model].classes["classification" if classes else "regression"])
        yield estimator_class(**size, **{parameter: name}, random_state=0), classes


def _fit(estimator: Any, n_classes: int, table: str, n_rows: int) -> bool:
    """Fit an estimator to a synthetic table; return whether it supports such a table."""
    import numpy as np
    import pandas as pd
    import scipy.sparse
    from sklearn.base import clone

    X = np.random.default_rng(0).random((n_rows, 4))
    y = 1.0 + X[:, 0] + X[:, 1] ** 2
    given: Any = X
    if table == "categories":
        given = pd.DataFrame(X).rename(columns=str).assign(word=np.where(X[:, 2] > 0.5, "a", np.where(X[:, 3] > 0.5, "b", "c")))
    elif table == "sparse":
        given = scipy.sparse.csr_array(np.where(X > 0.7, X, 0.0))
    constraint = {"monotonic_cst": [1, 0, 0, 0]} if table == "monotonic" else {}
    target: Any = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)) if n_classes else y
    target = np.column_stack([target, target[::-1]]) if table == "several targets" else target
    try:
        clone(estimator).set_params(**constraint, max_depth=4).fit(given, target).predict(given[:10])
    except ValueError:  # it does not support such a table
        return False
    return True
