"""Workers that Dask has paused for want of memory: a fit that waits for them says so, ends in time, and goes on if they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, get_worker

import dtrees
from dtrees.cluster.errors import NotEnoughMemory
from dtrees.cluster.reliability import waiting as module
from dtrees.cluster.reliability.fit import Fit, Settings, coordinating
from dtrees.cluster.reliability.waiting import Pauses
from tests.cluster.clusters import cluster_of
from tests.cluster.samples import FRAME, REGRESSION, assert_clean, assert_same_model, events, wait_until
from tests.slow import thorough_for


def facts(status: str = "running", written: int = 0, **counts: int) -> dict[str, Any]:
    metrics = {"memory": 900 * 2**20, "task_counts": counts, "spilled_bytes": {"disk": written}}
    return {"status": status, "memory_limit": 2**30, "metrics": metrics}


class Waiting:
    """A fit that waits by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self._now)
        self._pauses = Pauses(Fit("a fit", Settings()))

    def note(self, workers: dict[str, Any], times: int = 1, awaited: object = 0, needed: list[str] | None = None) -> None:
        for _ in range(times):
            self._now += 2.0
            self._pauses.note(workers, 10.0, awaited, needed)


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
    """Two workers, that have room at the beginning and the end; a fit's patience lasts four seconds, and ends after twelve."""
    cluster_client.run(_hasten)
    yield cluster_client
    relieve(cluster_client)


def _hasten() -> None:
    module._TIMES_PATIENCE = 3.0


def _fill(dask_worker: Any) -> None:
    """Have a worker find that it uses more memory than it may."""
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
    """Return a training set; a worker that makes one of its partitions is full then, or one worker alone is."""
    meta = FRAME.iloc[:0].assign(target=REGRESSION.iloc[:0])
    frame = dd.from_map(_part, [(0, 100), (100, 200), (200, 300), (300, 420)], address=address, meta=meta)
    return frame.drop(columns="target"), frame["target"]


def boosting() -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=3, max_depth=3, random_state=0)


@pytest.mark.slow
def test_all_are_paused_before_a_fit_begins(two: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_TIMES_PATIENCE", 2.0)
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
    (told,) = events(two, "workers paused", future.key)
    assert told["workers"]
    assert told["seconds"] > 4.0
    future.release()
    relieve(two)
    assert_clean(two)


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["rows", "sharded"])
def test_one_is_paused_that_others_need(two: Client, placement: str) -> None:
    """And goes on, when it is told of."""
    two.run(_be_patient)
    victim = sorted(two.nthreads())[0]
    future = dtrees.submit(boosting(), *filling(victim), placement=placement)
    wait_until(lambda: bool(events(two, "workers paused", future.key)) or future.done())
    assert all(told["workers"] == (victim,) for told in events(two, "workers paused", future.key))
    wait_until(lambda: bool(two.run(_relieve)) and future.done(), 120)  # each partition that is made there fills it again
    assert_same_model(future.result(timeout=120), boosting().fit(FRAME, REGRESSION))
    future.release()
    assert_clean(two)


def _be_patient() -> None:
    module._TIMES_PATIENCE = 100.0
