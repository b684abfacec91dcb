"""Workers that are lost during a fit: the fit continues, and the model equals that of an undisturbed fit, byte for byte.

Here workers are processes, which receive signals. Losses at particular messages are in test_conformance.py.
"""

import contextlib
import functools
import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.errors import WorkerLost
from tests.cluster.faults import Fault, install, stopped, uninstall
from tests.cluster.samples import (
    FRAME,
    TARGETS,
    assert_clean,
    assert_goes_on,
    assert_same_model,
    events,
    going_on,
    training_set,
    wait_until,
)
from tests.slow import one_quick

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("sharded"),
    pytest.mark.filterwarnings("ignore:Some inputs do not have OOB"),
]

MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "regression": ("regression", lambda: dtrees.GradientBoostingRegressor(n_estimators=12, max_depth=4, subsample=0.8, random_state=1)),
    "classes": ("multiclass", lambda: dtrees.GradientBoostingClassifier(n_estimators=5, subsample=0.7, n_iter_no_change=4, random_state=2)),
    "forest": ("regression", lambda: dtrees.RandomForestRegressor(9, random_state=1)),
    "out of bag": (  # without sets of categories, whose nodes are not delegated
        "multiclass",
        lambda: dtrees.RandomForestClassifier(9, oob_score=True, max_samples=0.6, categorical_features=None, random_state=2),
    ),
}
BOOSTING, FORESTS = ["regression", "classes"], ["forest", "out of bag"]


@functools.cache
def fitted_here(name: str) -> Any:
    task, make = MODELS[name]
    return make().fit(FRAME, TARGETS[task])


@pytest.fixture
def client(mortal_client: Client) -> Client:
    """The current client in the test."""
    return mortal_client


def fit(name: str = "regression", **options: Any) -> Any:
    task, make = MODELS[name]
    return make().fit(*training_set(task), **options)


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("regression", [{"kind": "marks", "at": 5}]),
        *(
            pytest.param(name, faults, marks=pytest.mark.slow)
            for name, faults in (
                ("forest", [{"kind": "found", "at": 5}]),
                ("out of bag", [{"kind": "Open"}]),
                ("classes", [{"kind": "marks", "at": 20, "times": 2}]),
                # The coordinator's worker is lost during another recovery.
                ("classes", [{"kind": "marks", "at": 20}, {"kind": "state", "own": True}]),
            )
        ),
    ],
)
def test_some_are_killed(client: Client, tmp_path: Path, name: str, faults: list[dict[str, Any]]) -> None:
    script = [Fault(tmp_path, **fault) for fault in faults]
    install(client, *script)
    assert_same_model(fit(name), fitted_here(name))
    assert len(stopped(script[0])) >= 1
    if len(script) == 1:
        assert len(events(client, "shards lost")) >= 1
    assert_clean(client)


@pytest.mark.parametrize("name", one_quick(BOOSTING))
def test_the_coordinators_worker_is_killed(client: Client, tmp_path: Path, name: str) -> None:
    fault = Fault(tmp_path, "marks", at=40, own=True)
    install(client, fault)
    assert_same_model(fit(name), fitted_here(name))
    assert len(stopped(fault)) == 1
    assert "Replay" in {event["message"] for event in events(client, "exchange")}  # finished trees were not grown again
    assert_clean(client)


@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.slow
def test_the_worker_of_a_forests_coordinator_is_killed(client: Client, tmp_path: Path, name: str) -> None:
    """The fit runs again elsewhere; if only trees are wanted, it finds those that were finished."""
    fault = Fault(tmp_path, "found", at=12, own=True)
    install(client, fault)
    task, make = MODELS[name]
    many = make().set_params(n_estimators=130)
    assert_same_model(many.fit(*training_set(task)), make().set_params(n_estimators=130).fit(FRAME, TARGETS[task]))
    assert len(stopped(fault)) == 1
    assert_clean(client)


@pytest.mark.slow
def test_one_stands_still_and_wakes_up_later(client: Client, tmp_path: Path) -> None:
    fault = Fault(tmp_path, "marks", at=9, number=signal.SIGSTOP)
    install(client, fault)
    with dask.config.set({"dtrees.patience": 3.0}):
        # It resumes while the fit continues without it.
        model = fit(callbacks=[functools.partial(_wake, fault, 9)])
    assert_same_model(model, fitted_here("regression"))
    assert len(stopped(fault)) == 1
    assert_clean(client)
    assert_same_model(fit(), fitted_here("regression"))


def _wake(fault: Fault, at: int, progress: Any) -> None:
    if progress.done == at:
        for process in stopped(fault):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.slow
def test_the_coordinators_worker_stands_still(client: Client, tmp_path: Path, detached: bool) -> None:
    """Also if nobody waits for the fit: the registry of fits detects it."""
    fault = Fault(tmp_path, "marks", at=25, number=signal.SIGSTOP, own=True)
    install(client, fault)
    try:
        with dask.config.set({"dtrees.patience": 3.0}):
            if detached:
                _, make = MODELS["regression"]
                future = dtrees.submit(make(), *training_set(), detached=True)
                model = future.result(timeout=120)
                dtrees.attach(future.key, take_over=True).release()
                future.release()
            else:
                model = fit()
        assert_same_model(model, fitted_here("regression"))
        assert len(stopped(fault)) == 1
    finally:
        _wake(fault, 0, SimpleNamespace(done=0))
    assert_clean(client)


@pytest.mark.parametrize("interval", [0, 3600])
@pytest.mark.slow
def test_the_coordinators_worker_is_killed_with_a_checkpoint(client: Client, tmp_path: Path, interval: float) -> None:
    """Trees of the checkpoint are used, and the others are grown again; the file equals that of an undisturbed fit."""
    _, make = MODELS["regression"]
    make().fit(FRAME, TARGETS["regression"], checkpoint=tmp_path / "here", checkpoint_interval=interval)
    fault = Fault(tmp_path, "marks", at=25, own=True)
    install(client, fault)
    assert_same_model(fit(checkpoint=tmp_path / "there", checkpoint_interval=interval), fitted_here("regression"))
    assert len(stopped(fault)) == 1
    assert ("Replay" in {event["message"] for event in events(client, "exchange")}) == (interval == 0)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()
    assert_clean(client)


def test_a_worker_leaves_in_good_order(client: Client, tmp_path: Path) -> None:
    """As at the end of its ``--lifetime``; a worker that runs a shard can only leave this way, since Dask does not move actors."""
    marker = tmp_path / "running"
    future, coordinator = going_on(client, marker)
    key = future.key
    (placed,) = events(client, "placed", key)
    leaving = next(worker for worker in placed["workers"] if worker != coordinator)
    assert client.retire_workers([leaving]) == {}
    client.run(_leave, workers=[leaving])
    wait_until(lambda: len(events(client, "shard moved", key)) > 0)
    wait_until(lambda: leaving not in client.nthreads())
    assert_goes_on(client, future, marker)
    del future
    assert_clean(client)


def _leave(dask_worker: Any) -> None:
    dask_worker.loop.call_later(0.0, dask_worker.close_gracefully)


def test_too_many_are_lost(client: Client, tmp_path: Path) -> None:
    install(client, Fault(tmp_path, "marks", at=3), Fault(tmp_path, "found", at=9))
    with (
        dask.config.set({"dtrees.max-restarts": 1}),
        pytest.raises(WorkerLost, match=r"Lost tcp.* \(which held 2 of 6 columns, 0 MB\)\. .* 1 times already .* max_restarts"),
    ):
        fit()
    assert_clean(client)
    uninstall(client)
    assert_same_model(fit(), fitted_here("regression"))


def test_the_one_worker_that_boosts_is_killed(client: Client, tmp_path: Path) -> None:
    with dask.config.set({"dtrees.placement": "one-worker"}):
        assert_same_model(fit(callbacks=[functools.partial(_die_once, tmp_path / "died", 6)]), fitted_here("regression"))
    assert (tmp_path / "died").exists()
    assert_clean(client)


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have resumed, and ended by itself
        os.kill(process, signal.SIGKILL)


def _die_once(marker: Path, at: int, progress: Any) -> None:
    if progress.done == at:
        _be_lost_once(marker, signal.SIGKILL)


def _be_lost_once(marker: Path, number: signal.Signals) -> None:
    """Send a signal to the first process that gets here; the marker stores which it was."""
    with contextlib.suppress(FileExistsError):
        place = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(place, str(os.getpid()).encode())
        os.close(place)
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.slow
def test_lost_while_loading(client: Client, tmp_path: Path, number: signal.Signals) -> None:
    marker = tmp_path / "died"

    def read(part: Any) -> Any:
        _be_lost_once(marker, number)
        return part

    X, y = training_set()
    _, make = MODELS["regression"]
    try:
        with dask.config.set({"dtrees.patience": 3.0 if number == signal.SIGSTOP else 20.0}):
            model = make().fit(X.map_partitions(read, meta=FRAME.iloc[:0]), y)
    finally:
        if number == signal.SIGSTOP:
            _end(int(marker.read_text()))
    assert_same_model(model, fitted_here("regression"))
    assert_clean(client)


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("data.columns:_sort", signal.SIGKILL),
        ("data.columns:_sort", signal.SIGSTOP),
        ("data.columns:_take", signal.SIGKILL),
        pytest.param("data.columns:_take", signal.SIGSTOP, marks=pytest.mark.thorough),  # as at the task above
        ("growing.fits:_grow_batch", signal.SIGKILL),
        ("growing.fits:_grow_batch", signal.SIGSTOP),
        ("growing.fits:_sum_out_of_bag", signal.SIGKILL),
    ],
)
@pytest.mark.slow
def test_lost_at_a_task(client: Client, tmp_path: Path, where: str, number: signal.Signals) -> None:
    """For a forest whose columns are on every worker; the worker may be the coordinator's."""
    marker = tmp_path / "lost"
    # A worker of the previous test may be about to end.
    wait_until(lambda: len(client.run(_lose_one_at, where, marker, number, on_error="ignore")) == 3, 60)
    forest = dtrees.RandomForestRegressor(40, oob_score=True, random_state=0)
    try:
        with dask.config.set({"dtrees.placement": "replicated", "dtrees.patience": 3.0 if number == signal.SIGSTOP else 20.0}):
            forest.fit(*training_set())
    finally:
        _end(int(marker.read_text()))  # first, as a stopped process would never answer
        client.run(_lose_no_more, where, on_error="ignore")
    assert_same_model(forest, dtrees.RandomForestRegressor(40, oob_score=True, random_state=0).fit(FRAME, TARGETS["regression"]))
    assert_clean(client)


def _lose_one_at(where: str, marker: Path, number: signal.Signals) -> None:
    """Send a signal to the first process that calls a function."""
    _lose_no_more(where)
    module, name = where.split(":")
    owner = importlib.import_module(f"dtrees.cluster.{module}")
    original = getattr(owner, name)

    def lost(*args: Any) -> Any:
        _be_lost_once(marker, number)
        return original(*args)

    lost.original = original  # type: ignore[attr-defined]
    setattr(owner, name, lost)


def _lose_no_more(where: str) -> None:
    module, name = where.split(":")
    owner = importlib.import_module(f"dtrees.cluster.{module}")
    setattr(owner, name, getattr(getattr(owner, name), "original", getattr(owner, name)))
