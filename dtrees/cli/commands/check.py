"""``dtrees check``: whether an installation, and a cluster, are fit for work."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import time
from collections.abc import Mapping

import dtrees
from dtrees.cli.clusters import cluster
from dtrees.cli.terminal.display import Display, plural
from dtrees.cli.terminal.errors import CommandError
from dtrees.version import DISTRIBUTION, pip_install

#: On which results, messages or pickles depend.
_PACKAGES = ("dtrees", "numpy", "numba", "llvmlite", "scikit-learn", "dask", "distributed", "cloudpickle", "pandas")


def run(*, scheduler: str | None, as_json: bool, display: Display | None = None) -> None:
    """Carry out the command; the arguments are its options.

    Raises
    ------
    CommandError
        If versions on a cluster differ.
    """
    display = display or Display(as_json=as_json)
    here = versions()
    found = {"here": here}
    if scheduler is not None:
        with cluster(display, scheduler) as client:
            found |= {f"worker {address}": told for address, told in sorted(client.run(versions).items())}
            found["scheduler"] = client.run_on_scheduler(versions)
    groups = _alike(found)
    display.table([(name, *(told[name] for told in groups.values())) for name in here], ("", *groups))
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        other = importlib.metadata.version("dtrees")
        display.warn(
            f"the package dtrees {other} is installed, too. It is another project's, or an old version of this one, and has files of the "
            f"same names: pip uninstall dtrees {DISTRIBUTION}, then {pip_install()}."
        )
    differing = sorted({name for told in found.values() for name in here if told.get(name) != here[name]} - {"kernels"})
    with display.stage("Compiling kernels, or reading compiled ones"):
        start = time.monotonic()
        _fit_a_little()
        seconds = time.monotonic() - start
    display.document({"versions": found, "differing": differing, "seconds_of_kernels": seconds, "ok": not differing})
    if differing:
        raise CommandError(f"Versions differ: {', '.join(differing)}. Install the same everywhere, lest results or messages do.")
    display.result("All is well." if scheduler is None else f"All is well: {plural(len(found) - 2, 'worker')} and the scheduler.")


def versions() -> dict[str, str]:
    """Return the versions of this process, and what its compiled kernels are named by: it depends on the kind of processor, too."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = dtrees.__version__ if name == "dtrees" else importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    from dtrees.split.compile.cache import kernel_version

    return {**found, "kernels": kernel_version()}


def _alike(found: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Return versions by who has them, those of workers that have the same in one.

    >>> _alike({"here": {"a": "1"}, "worker x": {"a": "2"}, "worker y": {"a": "2"}, "worker z": {"a": "3"}})
    {'here': {'a': '1'}, '2 workers, such as x': {'a': '2'}, 'worker z': {'a': '3'}}
    """
    groups: dict[str, Mapping[str, str]] = {}
    waiting = list(found.items())
    while waiting:
        name, told = waiting.pop(0)
        same = [other for other, others in waiting if name.startswith("worker ") and other.startswith("worker ") and others == told]
        waiting = [pair for pair in waiting if pair[0] not in same]
        groups[f"{len(same) + 1} workers, such as {name.removeprefix('worker ')}" if same else name] = told
    return groups


def _fit_a_little() -> None:
    """Fit models that need most kernels of tables of numbers."""
    import numpy as np

    X = np.random.default_rng(0).random((5000, 4))
    y = X[:, 0] + X[:, 1] ** 2
    dtrees.GradientBoostingRegressor(n_estimators=2).fit(X, y).predict(X[:10])
    dtrees.GradientBoostingClassifier(n_estimators=2).fit(X, y > 1).predict(X[:10])
    dtrees.RandomForestRegressor(2).fit(X, y).predict(X[:10])
    dtrees.RandomForestClassifier(2).fit(X, y > 1).predict(X[:10])
