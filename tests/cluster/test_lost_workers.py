"""More workers lost than can be made up for, and schedulers: an error that says so, never a hang. And recovery without nannies."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.tasks import Tasks
from dtrees.cluster.watch import Watch
from tests.cluster.clusters import cluster_of, process
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, events, in_partitions, table, targets, wait_until

FRAME = table()
REGRESSION = targets(FRAME)["regression"]

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("sharded")]


def training_set() -> tuple[Any, Any]:
    return in_partitions(FRAME, LENGTHS[3]), in_partitions(REGRESSION, LENGTHS[3])


@pytest.fixture
def impatient() -> Iterator[None]:
    """A few seconds of silence count as a loss, so that the tests need not wait for longer."""
    with dask.config.set({"dtrees.patience": 3.0}):
        yield


def after(n_done: int, act: Callable[[], Any]) -> Callable[[Any], None]:
    """A callback that acts when so many trees or rounds are done."""

    def callback(progress: Any) -> None:
        if progress.done == n_done:
            act()

    return callback


def test_one_worker_takes_over_and_gives_back(no_nannies: Client, tmp_path: Path) -> None:
    """Without a spare worker, one holds two shards until another worker joins."""
    marker = tmp_path / "stop"
    model = dtrees.GradientBoostingRegressor(n_estimators=10**6, max_depth=3, random_state=0)
    future = dtrees.submit(model, *training_set(), callbacks=[lambda progress: marker.exists()])
    key = future.key
    wait_until(lambda: len(events(no_nannies, "round", key)) > 2)
    (placed,) = events(no_nannies, "placed", key)
    first, second = placed["workers"]
    coordinator = events(no_nannies, "round", key)[0]["worker"]
    victim, other = (second, first) if coordinator == first else (first, second)
    os.kill(no_nannies.run(os.getpid, workers=[victim])[victim], signal.SIGKILL)
    wait_until(lambda: bool(events(no_nannies, "shard moved", key)))
    (moved,) = events(no_nannies, "shard moved", key)
    assert moved["to"] == other
    with process("dask_worker", no_nannies.scheduler.address, "--no-nanny", "--nthreads", "1"):
        wait_until(lambda: len(events(no_nannies, "shard moved", key)) > 1, 40)
        assert events(no_nannies, "shard moved", key)[1]["to"] not in (first, second)
        n_rounds = len(events(no_nannies, "round", key))
        wait_until(lambda: len(events(no_nannies, "round", key)) > n_rounds + 3)
        marker.touch()
        fitted = future.result(timeout=60)
        model.set_params(n_estimators=fitted.n_estimators_)
        assert_same_model(fitted, model.fit(FRAME, REGRESSION))
        future.release()
        assert_clean(no_nannies)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["GradientBoostingRegressor", "RandomForestRegressor"])
def test_no_workers_left(no_nannies: Client, name: str) -> None:
    processes = no_nannies.run(os.getpid)

    def kill_all() -> None:
        for victim in sorted(processes.values(), key=lambda victim: victim == os.getpid()):
            os.kill(victim, signal.SIGKILL)

    with pytest.raises(WorkerLost, match="no workers left"):
        getattr(dtrees, name)(n_estimators=400).fit(*training_set(), callbacks=[after(1, kill_all)])


def test_a_task_that_kills_every_worker() -> None:
    def die(part: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    X, y = training_set()
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}), cluster_of(2) as client:
        with pytest.raises(WorkerLost, match="died 2 times over the same task"):
            dtrees.RandomForestRegressor(4).fit(X.map_partitions(die, meta=FRAME.iloc[:0]), y)
        assert_clean(client)


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
        process_id = scheduler.pid
        kill = after(2, lambda: os.kill(process_id, signal.SIGKILL))
        with pytest.raises(SchedulerLost, match=r"[Rr]un it again"):
            getattr(dtrees, name)(n_estimators=2000).fit(*training_set(), callbacks=[kill])


def test_no_workers_at_all() -> None:
    with cluster_of(0) as client, Tasks(client) as tasks:
        tasks.watch = Watch(client, patience=1.0)
        future = tasks.submit("nothing", int)
        with pytest.raises(WorkerLost, match="no workers"):
            tasks.watch.gather([future])
