"""Workers that are silent, lost or paused: how this is detected, and how a fit that waits reacts."""

from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Future, get_worker

import dtrees
from dtrees import DecisionTreeRegressor
from dtrees.cluster.errors import NotEnoughMemory, SchedulerLost
from dtrees.cluster.reliability import waiting as module
from dtrees.cluster.reliability.fit import Fit, Settings, coordinating
from dtrees.cluster.reliability.registry import Heartbeats
from dtrees.cluster.reliability.waiting import FutureWaiter, Tasks, WorkerMonitor, task_keys
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import FRAME, REGRESSION, assert_clean, assert_same_model, events, wait_until
from tests.slow import thorough_for

# --- how long workers are silent, and when a fit continues without them ---


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that only advances when it is moved."""
    now = 100.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("dtrees.cluster.reliability.registry.time.monotonic", lambda: now)
    return wait


def test_silence(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=30.0)
    heartbeats.note({"a": 1.0, "b": 1.0})  # by a separate clock
    for i in range(16):
        assert not heartbeats.silent
        wait(2.0)
        heartbeats.note({"a": 2.0 + i, "b": 1.0})
    assert heartbeats.silent == {"b": 32.0}
    assert heartbeats.n_departed == 1
    heartbeats.note({"a": 20.0})
    assert not heartbeats.silent
    assert heartbeats.n_departed == 1


def test_a_silent_worker_counts_again_when_it_is_heard(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for _ in range(9):
        heartbeats.note({"a": 1.0})
        wait(2.0)
    assert heartbeats.silent.keys() == {"a"}
    patience = heartbeats.patience
    heartbeats.note({"a": 2.0})
    assert not heartbeats.silent
    assert heartbeats.patience == patience


@pytest.mark.parametrize("left", [{}, {"a": 1.0}])
def test_no_workers_but_silent_ones(wait: Callable[[float], None], left: dict[str, float]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    heartbeats.note({"a": 1.0})
    for _ in range(20):
        wait(2.0)
        assert not heartbeats.all_lost or heartbeats.silent == {} == left or heartbeats.silent["a"] > 20.0
        heartbeats.note(left)
    assert heartbeats.all_lost


def test_who_listens_is_not_silent(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for _ in range(20):
        heartbeats.note({"a": 1.0, "b": 1.0}, own="a")
        wait(2.0)
    assert heartbeats.silent.keys() == {"b"}
    assert not heartbeats.all_lost


@pytest.mark.parametrize("patience", [1.0, 30.0])
def test_no_worker_is_to_blame_for_the_time_this_process_stood_still(wait: Callable[[float], None], patience: float) -> None:
    heartbeats = Heartbeats(patience)
    heartbeats.note({"a": 1.0})
    wait(1000.0)
    heartbeats.note({"a": 1.0})
    assert not heartbeats.silent


def test_patience_grows_where_workers_are_slow(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    for last_seen in (1.0, 1.0, 1.0, 1.0, 1.0, 2.0):
        heartbeats.note({"a": last_seen})
        wait(2.0)
    assert heartbeats.patience == 32.0


def test_patience_grows_with_workers_that_fall_silent(wait: Callable[[float], None]) -> None:
    heartbeats = Heartbeats(patience=10.0)
    grown = []
    for when in range(4):
        while not heartbeats.silent:
            heartbeats.note({"a": float(when)})
            wait(2.0)
        grown.append(heartbeats.patience)
        heartbeats.note({"a": when + 0.5})
    assert grown == [15.0, 22.5, 30.0, 30.0]


# --- detection of lost workers, and reactions while waiting ---


IMPATIENT = Fit("an impatient fit", Settings(patience=0.5))


def test_fits_that_start_together_on_a_new_worker() -> None:
    """They share the client that the first of them creates."""
    X = np.arange(40.0).reshape(20, 2)
    with cluster_of(0, threads_per_worker=8) as client:
        futures = [client.submit(_fit_in_a_task, X, i) for i in range(8)]
        client.cluster.scale(1)
        assert [future.result(timeout=120) for future in futures] == [True] * 8


def _fit_in_a_task(X: np.ndarray, number: int) -> bool:
    table, target = da.from_array(X, chunks=(5, 2)), da.from_array(X[:, 0], chunks=5)
    return DecisionTreeRegressor(max_depth=number + 1).fit(table, target).get_depth() <= number + 1


def test_results_come_as_they_finish(client: Client) -> None:
    with Tasks(client) as tasks:
        futures = tasks.map("double", int, ["1", "2", "3"])
        assert tasks.waiter.gather(futures) == [1, 2, 3]
        assert sorted(tasks.waiter.as_completed(futures)) == [(0, 1), (1, 2), (2, 3)]
        assert tasks.waiter.gather([]) == []
    assert_clean(client)


def test_errors_of_tasks_come_as_they_are(client: Client) -> None:
    with Tasks(client) as tasks:
        futures = tasks.map("read", open, ["/no/such/file"])
        with pytest.raises(FileNotFoundError):
            tasks.waiter.wait(futures)
    assert_clean(client)


def test_cancelled_tasks(client: Client) -> None:
    with Tasks(client) as tasks:
        future = tasks.submit("wait", _wait_for, "a signal that nobody gives")
        client.cancel([future], force=True)
        with pytest.raises(SchedulerLost, match="cancelled"):
            tasks.waiter.gather([future])
    assert_clean(client)


@pytest.mark.slow
def test_a_task_that_the_scheduler_has_forgotten(client: Client) -> None:
    """Its future would be pending forever."""
    with Tasks(client) as tasks:
        future = tasks.submit("wait", _wait_for, "a signal that nobody gives")
        wait_until(lambda: client.run_on_scheduler(_tasks) == [future.key])
        with coordinating(IMPATIENT):
            watch = FutureWaiter(client)
        client.loop.call_later(1.0, client.run_on_scheduler, _forget, future.key, client.id)
        with pytest.raises(SchedulerLost, match=f"does not know the task {future.key} of this fit any more"):
            watch.gather([future])
    assert_clean(client)


def test_a_task_that_the_scheduler_has_never_known(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.reliability.waiting._SECONDS_TO_BECOME_KNOWN", 1.0)
    with coordinating(IMPATIENT), pytest.raises(SchedulerLost, match="does not know the task dtrees-nothing"):
        FutureWaiter(client).gather([Future("dtrees-nothing", client)])


def _forget(key: str, wanted_by: str, dask_scheduler: Any) -> None:
    dask_scheduler.client_releases_keys([key], wanted_by)


def _wait_for(name: str) -> None:
    from distributed import Event

    Event(name).wait(timeout=5)


def test_kept_futures_outlive_the_block(client: Client) -> None:
    with Tasks(client) as tasks:
        kept, left = tasks.map("double", int, ["1", "2"])
        tasks.keep(kept)
    assert FutureWaiter(client).gather([kept]) == [1]
    assert left.status != "finished" or left.key not in client.futures
    kept.release()
    assert_clean(client)


def test_keys_are_new_every_time() -> None:
    assert not set(task_keys("trees", 2)) & set(task_keys("trees", 2))


def _tasks(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.tasks)


# --- workers that Dask has paused for lack of memory: a fit that waits for them reports it, ends in time, and continues if they do ---


def facts(status: str = "running", written: int = 0, **counts: int) -> dict[str, Any]:
    metrics = {"memory": 900 * 2**20, "task_counts": counts, "spilled_bytes": {"disk": written}}
    return {"status": status, "memory_limit": 2**30, "metrics": metrics}


class Waiting:
    """A fit that waits by an artificial clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self._now)
        with coordinating(Fit("a fit", Settings(patience=10.0))):
            self._monitor: Any = WorkerMonitor(None)  # type: ignore[arg-type]

    def note(self, workers: dict[str, Any], times: int = 1, awaited: object = 0, needed: list[str] | None = None) -> None:
        self._monitor.workers = workers
        for _ in range(times):
            self._now += 2.0
            self._monitor.check_pauses(awaited, needed)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_it_is_said_and_has_an_end(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    workers = {name: facts("paused", memory=1) for name in "abcd"}
    waiting.note(workers, 6)
    assert not caplog.messages
    waiting.note(workers, 40)
    (message,) = caplog.messages
    assert message.startswith("a fit has waited 12 s for workers that Dask has paused: a uses 900.00 MiB of 1.00 GiB; b uses ")
    assert message.endswith("c uses 900.00 MiB of 1.00 GiB; and so on")
    with pytest.raises(
        NotEnoughMemory, match=r"waited 92 s for 4 of 4 workers .*use too much of their memory: a uses .*Give workers more memory"
    ):
        waiting.note(workers)


@pytest.mark.parametrize(
    "state",
    [
        {"a": facts(), "b": facts()},
        {"a": facts("paused", executing=1), "b": facts()},
        {"a": facts("paused"), "b": facts(flight=2)},
        {"a": facts("paused"), "b": facts(**{"long-running": 1})},
        {"a": facts("paused", written=7), "b": facts()},
    ],
    ids=["none is paused", "a paused one is at work", "another fetches", "another fit goes on", "it writes to disk"],
)
def test_what_ends_the_count(waiting: Waiting, state: dict[str, Any]) -> None:
    stuck = {"a": facts("paused"), "b": facts()}
    for _ in range(4):
        waiting.note(stuck, 40)
        waiting.note(state)
    waiting.note(stuck, 40, awaited="less")
    with pytest.raises(NotEnoughMemory, match="1 of 2 workers"):
        waiting.note(stuck, 10, awaited="less")


def test_who_is_needed(waiting: Waiting) -> None:
    workers = {"a": facts("paused"), "b": facts("paused"), "c": facts(executing=1)}
    waiting.note(workers, 100)
    waiting.note(workers, 100, needed=["c", "gone"])
    with pytest.raises(NotEnoughMemory, match="1 of 3 workers .*: b uses "):
        waiting.note(workers, 100, needed=["b"])


def test_the_coordinator_itself_is_no_work(waiting: Waiting) -> None:
    workers = {"a": facts("paused", **{"long-running": 1})}
    waiting.note(workers, 100)
    with coordinating(Fit("a fit", Settings())), pytest.raises(NotEnoughMemory):
        waiting.note(workers, 100)


def test_a_process_that_stood_still_blames_nobody(waiting: Waiting) -> None:
    waiting.note({"a": facts("paused")})
    waiting._now += 3600.0
    waiting.note({"a": facts("paused")}, 40)


# --- workers that are paused ---


@pytest.fixture(scope="module")
def cluster_client() -> Iterator[Client]:
    with dask.config.set({"dtrees.patience": 4.0, "distributed.worker.memory.monitor-interval": "100ms"}), cluster_of(2) as client:
        yield client


@pytest.fixture
def two(cluster_client: Client) -> Iterator[Client]:
    """Two workers with free memory at the beginning and the end; a fit's patience is four seconds, and ends after twelve."""
    cluster_client.run(_hasten)
    yield cluster_client
    relieve(cluster_client)


def _hasten() -> None:
    module._TIMES_PATIENCE = 3.0


def _fill(dask_worker: Any) -> None:
    """Make a worker report more memory than it may use."""
    dask_worker.memory_manager.memory_limit = 1


def _relieve(dask_worker: Any) -> None:
    dask_worker.memory_manager.memory_limit = 2**40


def _statuses(dask_scheduler: Any) -> list[str]:
    return [worker.status.name for worker in dask_scheduler.workers.values()]


def relieve(client: Client) -> None:
    client.run(_relieve)
    wait_until(lambda: client.run_on_scheduler(_statuses) == ["running"] * 2)


def _part(numbers: tuple[int, int], address: str | None) -> pd.DataFrame:
    if address in (None, get_worker().address):
        _fill(get_worker())
    return FRAME.iloc[slice(*numbers)].assign(target=REGRESSION.iloc[slice(*numbers)])


def filling(address: str | None = None) -> tuple[Any, Any]:
    """Return a training set; computing one of its partitions fills the worker, or only the worker at ``address``."""
    meta = FRAME.iloc[:0].assign(target=REGRESSION.iloc[:0])
    frame = dd.from_map(_part, [(0, 100), (100, 200), (200, 300), (300, 420)], address=address, meta=meta)
    return frame.drop(columns="target"), frame["target"]


def boosting() -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=3, max_depth=3, random_state=0)


@pytest.mark.slow
def test_all_are_paused_before_a_fit_begins(two: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMES_PATIENCE", 2.0)
    two.run(_fill)
    wait_until(lambda: two.run_on_scheduler(_statuses) == ["paused"] * 2)
    with pytest.raises(NotEnoughMemory, match="for 2 of 2 workers of the Dask cluster. Dask has paused them"):
        boosting().fit(*filling())
    relieve(two)
    assert_clean(two)


@pytest.mark.slow
@pytest.mark.parametrize("placement", thorough_for({"one-worker"}, ["rows", "sharded", "one-worker"]))
def test_all_are_paused_while_it_loads(two: Client, placement: str) -> None:
    future = dtrees.submit(boosting(), *filling(), placement=placement)
    with pytest.raises(NotEnoughMemory, match=r"for \d of 2 workers of the Dask cluster. .*tcp://.* uses .*Give workers more memory"):
        future.result(timeout=120)
    (event,) = events(two, "workers paused", future.key)
    assert event["workers"]
    assert event["seconds"] > 4.0
    future.release()
    relieve(two)
    assert_clean(two)


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["rows", "sharded"])
def test_one_is_paused_that_others_need(two: Client, placement: str) -> None:
    """It continues, once an event of it is sent."""
    two.run(_be_patient)
    victim = sorted(two.nthreads())[0]
    future = dtrees.submit(boosting(), *filling(victim), placement=placement)
    wait_until(lambda: bool(events(two, "workers paused", future.key)) or future.done())
    assert all(event["workers"] == (victim,) for event in events(two, "workers paused", future.key))
    wait_until(lambda: bool(two.run(_relieve)) and future.done(), 120)  # each partition computed there fills it again
    assert_same_model(future.result(timeout=120), boosting().fit(FRAME, REGRESSION))
    future.release()
    assert_clean(two)


def _be_patient() -> None:
    module._TIMES_PATIENCE = 100.0
