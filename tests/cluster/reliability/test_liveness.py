"""What counts as a lost worker, and what is done about it while waiting."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, Future

from dtrees import DecisionTreeRegressor
from dtrees.cluster.errors import SchedulerLost
from dtrees.cluster.reliability.waiting import FutureWaiter, Tasks, task_keys
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import assert_clean, wait_until


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
    """Its future would be pending for ever."""
    with Tasks(client) as tasks:
        future = tasks.submit("wait", _wait_for, "a signal that nobody gives")
        wait_until(lambda: client.run_on_scheduler(_tasks) == [future.key])
        watch = FutureWaiter(client, patience=0.5)
        client.loop.call_later(1.0, client.run_on_scheduler, _forget, future.key, client.id)
        with pytest.raises(SchedulerLost, match=f"does not know the task {future.key} of this fit any more"):
            watch.gather([future])
    assert_clean(client)


def test_a_task_that_the_scheduler_has_never_known(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.reliability.waiting._SECONDS_TO_BECOME_KNOWN", 1.0)
    with pytest.raises(SchedulerLost, match="does not know the task dtrees-nothing"):
        FutureWaiter(client, patience=0.5).gather([Future("dtrees-nothing", client)])


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
