"""``import dtrees`` is light, and everything it promises is there."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

import dtrees

HEAVY = {"numba", "llvmlite", "dask", "distributed", "pandas", "pyarrow", "sklearn", "rich"}
ESTIMATORS = "from dtrees import RandomForestClassifier, GradientBoostingRegressor"


@functools.cache
def modules_after(statement: str) -> frozenset[str]:
    """Which modules a fresh interpreter has after a statement, but those of dtrees."""
    script = f"{statement}\nimport sys\nprint(*[name for name in sys.modules if not name.startswith('dtrees')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    assert modules_after("import dtrees").isdisjoint(HEAVY)


def test_command_line_starts_without_heavy_packages() -> None:
    assert modules_after("import dtrees.cli.main").isdisjoint(HEAVY)


def test_estimators_load_neither_compiler_nor_cluster() -> None:
    assert modules_after(ESTIMATORS).isdisjoint({"numba", "llvmlite", "dask", "distributed"})


@pytest.mark.slow
def test_estimators_load_no_more_than_scikit_learn_does() -> None:
    """So they are imported about as fast as its ensembles are, and faster by what these have of others."""
    ours, theirs = modules_after(ESTIMATORS), modules_after("import sklearn.ensemble")
    assert ours <= theirs
    large = {"sklearn.metrics", "sklearn.preprocessing", "sklearn.tree", "sklearn.ensemble", "sklearn.model_selection"}
    assert ours.isdisjoint(large)
    assert large <= theirs


def test_a_loaded_model_predicts_without_what_only_fits_need(tmp_path: Path) -> None:
    """But functions of scikit-learn's that ask for its own classes take the model."""
    path = tmp_path / "model"
    dtrees.save(dtrees.DecisionTreeRegressor().fit([[0.0], [1.0]], [0.0, 1.0]), path)
    predicting = f"import dtrees\nmodel = dtrees.load({str(path)!r})\nmodel.predict([[0.0]])"
    modules = modules_after(predicting)
    assert modules.isdisjoint({"sklearn.ensemble", "sklearn.tree", "sklearn.metrics", "sklearn.model_selection", "dask", "distributed"})
    assert "sklearn.tree" in modules_after(f"{predicting}\nfrom sklearn.tree import export_text\nexport_text(model)")


@pytest.mark.parametrize("name", [name for name in dtrees.__all__ if name != "__version__"])
def test_every_export_is_there(name: str) -> None:
    assert getattr(dtrees, name).__name__ == name
    assert name in dir(dtrees)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RandomForrest'"):
        dtrees.RandomForrest  # noqa: B018


@pytest.mark.slow
def test_an_unpickled_estimator_serves_dask_collections() -> None:
    """Unpickling imports the class from its own module, past the exports of the package.

    The header of an array takes no frames: a worker that coordinates a fit on Dask Arrays would need 27 MB more.
    """
    script = """
import sys
import dask.array as da
from dtrees.ensemble.in_process import backend_for
array = da.zeros((7, 2), dtype="float32")
backend = backend_for(array)
assert type(backend).__name__ == "DaskBackend"
header = backend.header(array)
assert header.shape == (0, 2) and header.dtype == "float32"
assert "dask.dataframe" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
