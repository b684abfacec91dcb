"""Workers, and schedulers, that are lost during a fit: an error that says so, or the same forest all the same. Never a hang."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster
from dtrees.cluster.one_worker import boost_on

import dtrees
from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.executor import DaskExecutor
from dtrees.cluster.tasks import Tasks
from dtrees.cluster.watch import Watch
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, in_partitions, table, targets, wait_until

FRAME = table()
REGRESSION = targets(FRAME)["regression"]

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("sharded")]


def training_set() -> tuple[Any, Any]:
    return in_partitions(FRAME, LENGTHS[3]), in_partitions(REGRESSION, LENGTHS[3])


@contextlib.contextmanager
def cluster_of(n_workers: int) -> Iterator[Client]:
    """A cluster of its own for a test, and the current client of it."""
    with contextlib.ExitStack() as stack:
        cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0")
        client = Client(stack.enter_context(cluster), set_as_default=False)
        stack.enter_context(stack.enter_context(client).as_current())
        yield client


@pytest.fixture
def two_workers() -> Iterator[Client]:
    """Two workers that their nannies start again."""
    with cluster_of(2) as client:
        yield client


@contextlib.contextmanager
def process(module: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Dask's commands, killed at the end of the block."""
    path = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-m", f"distributed.cli.{module}", "--host", "127.0.0.1", "--no-dashboard", *options]
    command = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
    try:
        yield command
    finally:
        command.kill()
        command.wait()


@pytest.fixture
def no_nannies() -> Iterator[Client]:
    """Two workers that nobody starts again."""
    with cluster_of(0) as client, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(process("dask_worker", client.scheduler.address, "--no-nanny", "--nthreads", "1"))
        client.wait_for_workers(2, timeout=30)
        yield client


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds of silence count as a loss, so that the tests need not wait for longer."""
    monkeypatch.setattr("dtrees.cluster.tasks.Watch", functools.partial(Watch, patience=3.0))
    monkeypatch.setattr("dtrees.cluster.boosting.DaskExecutor", functools.partial(DaskExecutor, patience=3.0))
    monkeypatch.setattr("dtrees.cluster.one_worker.boost_on", functools.partial(boost_on, patience=3.0))


def signal_one(client: Client, number: signal.Signals, which: int = 0) -> str:
    """Send a signal to one worker; return its address."""
    processes = client.run(os.getpid)
    worker = sorted(processes)[which]
    os.kill(processes[worker], number)
    return worker


def after(n_done: int, act: Callable[[], Any]) -> Callable[[Any], None]:
    """A callback that acts once, when so many trees or rounds are done."""

    def callback(progress: Any) -> None:
        if progress.done == n_done:
            act()

    return callback


@pytest.mark.parametrize("cluster", ["two_workers", "no_nannies"])
def test_boosting_says_which_worker_was_killed(request: pytest.FixtureRequest, cluster: str) -> None:
    client: Client = request.getfixturevalue(cluster)
    killed: list[str] = []
    model = dtrees.GradientBoostingRegressor(n_estimators=1000)
    kill = after(2, lambda: killed.append(signal_one(client, signal.SIGKILL)))
    began = time.monotonic()
    with pytest.raises(WorkerLost, match=r"held one of 2 shards.*Run it again") as caught:
        model.fit(*training_set(), callbacks=[kill])
    assert time.monotonic() - began < 60
    assert killed[0] in str(caught.value)
    wait_until(lambda: killed[0] not in client.scheduler_info(n_workers=-1)["workers"])
    client.wait_for_workers(2 if cluster == "two_workers" else 1, timeout=30)
    assert_clean(client)
    again = dtrees.GradientBoostingRegressor(n_estimators=3)
    assert_same_model(again.fit(*training_set()), dtrees.GradientBoostingRegressor(n_estimators=3).fit(FRAME, REGRESSION))


def test_the_one_worker_that_boosts_is_killed(two_workers: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.placement.CELLS_PER_LEVEL", 10**9)

    def kill_the_one() -> None:
        (worker,) = two_workers.run_on_scheduler(lambda dask_scheduler: [w.address for w in dask_scheduler.workers.values() if w.actors])
        os.kill(two_workers.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)

    with pytest.raises(WorkerLost, match="held all columns"):
        dtrees.GradientBoostingRegressor(n_estimators=1000).fit(*training_set(), callbacks=[after(2, kill_the_one)])
    assert_clean(two_workers)


def test_a_forest_goes_on_without_the_worker_killed(two_workers: Client) -> None:
    model = dtrees.RandomForestRegressor(40, oob_score=True, random_state=0)
    kill = after(2, lambda: signal_one(two_workers, signal.SIGKILL))
    model.fit(*training_set(), callbacks=[kill])
    assert_same_model(model, dtrees.RandomForestRegressor(40, oob_score=True, random_state=0).fit(FRAME, REGRESSION))
    assert_clean(two_workers)


@pytest.mark.usefixtures("impatient")
def test_no_workers_left(no_nannies: Client) -> None:
    def kill_both() -> None:
        processes = no_nannies.run(os.getpid)
        for process in processes.values():
            os.kill(process, signal.SIGKILL)

    with pytest.raises(WorkerLost, match="no workers left"):
        dtrees.RandomForestRegressor(400).fit(*training_set(), callbacks=[after(1, kill_both)])


def test_a_task_that_kills_every_worker() -> None:
    def die(part: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    X, y = training_set()
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), cluster_of(2) as client:
        with pytest.raises(WorkerLost, match="died 2 times over the same task"):
            dtrees.RandomForestRegressor(4).fit(X.map_partitions(die, meta=FRAME.iloc[:0]), y)
        assert_clean(client)


@pytest.mark.usefixtures("impatient")
def test_a_worker_that_falls_silent(no_nannies: Client) -> None:
    stopped: list[str] = []
    stop = after(2, lambda: stopped.append(signal_one(no_nannies, signal.SIGSTOP)))
    with pytest.raises(WorkerLost, match=r"has been silent for \d+ s") as caught:
        dtrees.GradientBoostingRegressor(n_estimators=1000).fit(*training_set(), callbacks=[stop])
    assert stopped[0] in str(caught.value)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["GradientBoostingRegressor", "RandomForestRegressor"])
def test_the_scheduler_is_lost(name: str, tmp_path: Path) -> None:
    file = str(tmp_path / "scheduler.json")
    options = ["--scheduler-file", file]
    with (
        process("dask_scheduler", "--port", "0", *options) as scheduler,
        process("dask_worker", "--no-nanny", *options),
        Client(scheduler_file=file, set_as_default=False, timeout=5) as client,
        client.as_current(),
    ):
        client.wait_for_workers(1, timeout=30)
        with pytest.raises(SchedulerLost, match=r"[Rr]un it again"):
            getattr(dtrees, name)(n_estimators=2000).fit(*training_set(), callbacks=[after(2, scheduler.kill)])


def test_no_workers_at_all() -> None:
    with cluster_of(0) as client, Tasks(client) as tasks:
        tasks.watch = Watch(client, patience=1.0)
        future = tasks.submit("nothing", int)
        with pytest.raises(WorkerLost, match="no workers"):
            tasks.watch.gather([future])
