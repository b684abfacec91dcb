"""What counts as a lost worker, and what is done about it while waiting."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, Status

from dtrees import DecisionTreeRegressor
from dtrees.cluster.errors import FitCancelled, SchedulerLost
from dtrees.cluster.fits import Fit, Settings
from dtrees.cluster.placement import spread, worker_for_all
from dtrees.cluster.questions import ask, connected
from dtrees.cluster.tasks import Tasks, task_keys
from dtrees.cluster.tree_log import ClusterTreeLog
from dtrees.cluster.watch import Heartbeats, Watch
from dtrees.engine.messages import Scores
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import assert_clean, wait_until


def seen(**workers: float) -> dict[str, dict[str, Any]]:
    return {worker: {"last_seen": when} for worker, when in workers.items()}


def test_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("dtrees.cluster.watch.time.monotonic", lambda: now)
    heartbeats = Heartbeats(patience=30.0)
    heartbeats.note(seen(a=1.0, b=1.0))  # by a clock of its own
    for i in range(16):
        assert not heartbeats.silent()
        now += 2.0
        heartbeats.note(seen(a=2.0 + i, b=1.0))
    assert heartbeats.silent() == {"b": 32.0}
    assert heartbeats.n_departed == 0
    heartbeats.note(seen(a=20.0))
    assert not heartbeats.silent()
    assert heartbeats.n_departed == 1
    for _ in range(16):
        assert not heartbeats.all_lost
        heartbeats.note({})
        now += 2.0
    heartbeats.note({})
    assert heartbeats.all_lost


def test_nobody_is_to_blame_for_the_time_this_process_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("dtrees.cluster.watch.time.monotonic", lambda: now)
    for patience in (1.0, 30.0):
        heartbeats = Heartbeats(patience)
        heartbeats.note(seen(a=1.0))
        now += 1000.0
        heartbeats.note(seen(a=1.0))
        assert not heartbeats.silent()


def test_patience_grows_where_workers_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("dtrees.cluster.watch.time.monotonic", lambda: now)
    heartbeats = Heartbeats(patience=10.0)
    for last_seen in (1.0, 1.0, 1.0, 1.0, 1.0, 2.0):
        heartbeats.note(seen(a=last_seen))
        now += 2.0
    assert heartbeats.patience == 32.0


def test_patience_grows_with_workers_that_are_struck_off() -> None:
    heartbeats = Heartbeats(patience=10.0)
    grown = []
    for _ in range(4):
        heartbeats.struck_off()
        grown.append(heartbeats.patience)
    assert grown == [15.0, 22.5, 30.0, 30.0]


def test_a_client_that_another_thread_is_making_is_waited_for() -> None:
    states = iter(["newly-created", "connecting", "connecting", "running"])

    class Client:
        @property
        def status(self) -> str:
            return next(states)

    client = Client()
    assert connected(client) is client
    assert next(states, None) is None


def test_fits_that_start_together_on_a_new_worker() -> None:
    """They share the client that the first of them makes."""
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
        assert tasks.watch.gather(futures) == [1, 2, 3]
        assert sorted(tasks.watch.as_completed(futures)) == [(0, 1), (1, 2), (2, 3)]
        assert tasks.watch.gather([]) == []
    assert_clean(client)


def test_errors_of_tasks_come_as_they_are(client: Client) -> None:
    with Tasks(client) as tasks:
        futures = tasks.map("read", open, ["/no/such/file"])
        with pytest.raises(FileNotFoundError):
            tasks.watch.wait(futures)
    assert_clean(client)


def test_cancelled_tasks(client: Client) -> None:
    with Tasks(client) as tasks:
        future = tasks.submit("wait", _wait_for, "a signal that nobody gives")
        client.cancel([future], force=True)
        with pytest.raises(SchedulerLost, match="cancelled"):
            tasks.watch.gather([future])
    assert_clean(client)


def _wait_for(name: str) -> None:
    from distributed import Event

    Event(name).wait(timeout=5)


def test_a_scheduler_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.questions.SCHEDULER_PATIENCE", 0.5)
    assert sorted(ask(client, client.scheduler.ncores).values()) == [1, 1, 1]
    with pytest.raises(SchedulerLost, match=r"does not answer \(waited 0 s\)"):
        ask(client, asyncio.Event().wait)


def test_kept_futures_outlive_the_block(client: Client) -> None:
    with Tasks(client) as tasks:
        kept, left = tasks.map("double", int, ["1", "2"])
        tasks.keep(kept)
    assert Watch(client).gather([kept]) == [1]
    assert left.status != "finished" or left.key not in client.futures
    kept.release()
    assert_clean(client)


def test_keys_are_new_every_time() -> None:
    assert not set(task_keys("trees", 2)) & set(task_keys("trees", 2))


def test_columns_are_spread_by_size_and_threads() -> None:
    placed = spread([1.0] * 12, {"a": 1, "b": 2, "c": 1})
    assert {worker: len(items) for worker, items in placed.items()} == {"a": 3, "b": 6, "c": 3}
    assert sorted(item for items in placed.values() for item in items) == list(range(12))
    assert spread([3.0, 1.0, 1.0, 1.0], {"a": 1, "b": 1}) == {"a": [0], "b": [1, 2, 3]}


def test_small_tables_stay_on_one_worker() -> None:
    assert worker_for_all(10**9, 1000, {"a": 1}) == "a"
    assert worker_for_all(10**4, 10, {"a": 1, "b": 4, "c": 2}) == "b"
    assert worker_for_all(10**6, 1000, {"a": 4, "b": 4, "c": 4}) is None


def test_tables_of_few_columns_stay_on_one_worker() -> None:
    """However long they are: each worker divides all rows."""
    for n_rows in (10**4, 10**6, 10**8):
        assert worker_for_all(n_rows, 4, {"a": 1, "b": 1}) == "b"
    assert worker_for_all(10**8, 100, {"a": 1, "b": 1}) is None


def test_who_was_given_up_keeps_no_more_trees(client: Client) -> None:
    """A coordinator that stood still, and wakes up when its fit has been run elsewhere and is over."""
    fit = Fit("dtrees-fit-awake", Settings(), submitted=True)
    known = next(iter(client.nthreads()))
    running = SimpleNamespace(tasks={"dtrees-fit-awake": SimpleNamespace(state="executing")})
    fit._worker = worker = SimpleNamespace(address=known, state=running, status=Status.running)  # type: ignore[assignment]
    fit._task = "dtrees-fit-awake"
    tree = DecisionTreeRegressor(max_depth=1).fit([[0.0], [1.0]], [0.0, 1.0]).tree_
    with contextlib.suppress(FitCancelled), ClusterTreeLog(client, fit) as log:
        log.keep(tree, Scores(0.0, np.nan))
        wait_until(lambda: len(client.run_on_scheduler(_tasks)) == 1)
        fit._known_at -= 20.0  # it stood still for so long
        worker.address = "tcp://127.0.0.1:1"
        with pytest.raises(FitCancelled, match="given up"):
            log.keep(tree, Scores(0.0, np.nan))
        raise FitCancelled("as the fit is then")
    assert_clean(client)


def test_trees_are_kept_where_messages_wait_to_be_sent(
    client: Client, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The scheduler is told to keep a tree when it knows the tree, not before: else it would warn, and keep nothing."""
    send = client._send_to_scheduler

    def send_late(message: dict[str, Any]) -> None:
        client.loop.call_later(0.2 if message["op"] == "update-graph" else 0.0, send, message)

    monkeypatch.setattr(client, "_send_to_scheduler", send_late)
    tree = DecisionTreeRegressor(max_depth=1).fit([[0.0], [1.0]], [0.0, 1.0]).tree_
    with ClusterTreeLog(client, Fit("dtrees-fit-busy", Settings())) as log:
        for _ in range(3):
            log.keep(tree, Scores(0.0, np.nan))
        wait_until(lambda: len(client.run_on_scheduler(_wanted, "dtrees-fit-busy-trees")) == 3)
    assert not [warning for warning in recwarn if "key is unknown" in str(warning.message)]
    assert_clean(client)


def _tasks(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.tasks)


def _wanted(holder: str, dask_scheduler: Any) -> list[str]:
    state = dask_scheduler.clients.get(holder)
    return [] if state is None else [task.key for task in state.wants_what]
