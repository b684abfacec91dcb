"""Fixtures of all tests: hypothesis profiles, and the real data, if available.

The timeout of every test is set in pyproject.toml (``timeout``, by pytest-timeout), and so is the exclusion of slow and thorough tests
unless they are requested (``-m slow``, ``-m thorough``).
"""

import gc
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import dask
import pytest
from distributed.utils import get_mp_context
from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.kernel_cache import compile_kernels

# Garbage collection over all imported and collected objects would take a fifth of the time; tests leave little garbage.
gc.disable()
gc.set_threshold(50_000)

# Test processes and workers import the same packages many times: bytecode is written even if the environment disables it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell makes background processes ignore Ctrl-C, which some tests use.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Workers are forked from a process with all imports.
if "forkserver" in multiprocessing.get_all_start_methods():
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(["tests.preloaded"])

# About ten clusters exist until the tests end, and mostly wait. Their profiles are not used, and taking a hundred samples a second, and
# measuring memory ten times a second in all their processes, would take as long as many of the tests.
dask.config.set(
    {
        "distributed.worker.profile.enabled": False,
        "distributed.worker.memory.monitor-interval": "1s",
        "distributed.admin.system-monitor.interval": "1s",
        "distributed.admin.tick.interval": "5s",
    }
)

# There are as many test processes as the machine supports, each of which compiles its kernels.
os.environ["DTREES_HELPER"] = "0"

# No deadline: the first example of a test may compile kernels. In CI the examples are the same in every run.
in_ci = bool(os.environ.get("CI"))
settings.register_profile(
    "dtrees",
    examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=in_ci,
    print_blob=in_ci,
)
settings.load_profile("dtrees")

#: It loads all kernels when it is imported, for the processes of clusters.
collect_ignore = ["preloaded.py"]

#: The environment variable with the folder of real data; without it, a folder beside the checkout is tried.
DATA_VARIABLE = "DTREES_DATA"


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of test processes for ``-n logical``: two more than processors, since tests of clusters mostly wait."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 2


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before tests are distributed to processes, compile the kernels that all would wait for, each within its timeout."""
    if not hasattr(session.config, "workerinput") and session.config.option.dist != "no":
        gc.enable()
        compile_kernels()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect thorough tests in slow runs, also if only their parameters are thorough and their function or module is slow."""
    if config.option.markexpr == "slow":
        thorough = [item for item in items if item.get_closest_marker("thorough")]
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=thorough)


def pytest_collection_finish() -> None:
    """Exclude the objects before the first test from garbage collections: half a million objects, a third of a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


def real_data(name: str) -> Path:
    """Return the path of a file of real data, or skip the test."""
    folders = [os.environ[DATA_VARIABLE]] if DATA_VARIABLE in os.environ else [Path(__file__).parents[2] / "shared" / "data"]
    for folder in folders:
        path = Path(folder) / name
        if path.is_file():
            return path
    pytest.skip(f"{name} is not at hand; set {DATA_VARIABLE} to the folder that holds it")


@pytest.fixture(scope="session")
def california_housing() -> Path:
    """20,640 rows; regression on ``median_house_value``; one text column, missing values."""
    return real_data("california_housing.csv")


@pytest.fixture(scope="session")
def adult_train() -> Path:
    """32,561 rows; classification on ``income``; eight text columns, missing values."""
    return real_data("adult_train.csv")


@pytest.fixture(scope="session")
def adult_test() -> Path:
    """The 16,281 test rows that belong to ``adult_train``."""
    return real_data("adult_test.csv")
