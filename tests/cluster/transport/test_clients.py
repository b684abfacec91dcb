"""Dask clients: of clusters started here or that run already; and questions to the scheduler, which end with an answer or an error."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dtrees.cluster.errors import SchedulerLost
from dtrees.cluster.transport.clients import ask, connect, connected, in_loop, local_client


def test_an_embedded_cluster() -> None:
    with local_client(n_workers=2, threads_per_worker=1) as client:
        assert sorted(client.nthreads().values()) == [1, 1]
        assert all(worker.startswith("tcp://127.0.0.1:") for worker in client.nthreads())
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3
        with local_client(n_workers=1, threads_per_worker=1) as second:  # the dashboard's usual port is taken by now
            assert second.dashboard_link != client.dashboard_link
    assert client.status == "closed"


@pytest.mark.parametrize("argument", ["n_workers", "threads_per_worker"])
def test_numbers_below_one(argument: str) -> None:
    with pytest.raises(ValueError, match=f"{argument} is 0; give at least 1"), local_client(**{argument: 0}):
        pass


def test_connecting_leaves_the_cluster_running(cluster_of_3: LocalCluster) -> None:
    with connect(cluster_of_3.scheduler_address) as client:
        assert len(client.nthreads()) == 3
    with connect(cluster_of_3.scheduler_address.removeprefix("tcp://")) as client:
        assert client.submit(sum, [1, 2]).result(timeout=30) == 3


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "No Dask scheduler answers at '127.0.0.1:1' (waited 0.5 s)"),
        ("tcp://no-such-host.invalid:8786", "No Dask scheduler answers"),
        ("somewhere", "'somewhere' is not a scheduler's address"),
        ("http://127.0.0.1:8787", "is not a scheduler's address"),
    ],
)
def test_no_scheduler_there(address: str, message: str) -> None:
    with pytest.raises(ConnectionError) as caught, connect(address, timeout=0.5):
        pass
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_scheduler_without_workers(caplog: pytest.LogCaptureFixture) -> None:
    """Its workers may come when there is work: an adaptive cluster's, or those that wait in a queue."""
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        connect(cluster.scheduler_address, timeout=5),
    ):
        assert "distributed.scheduler.no-workers-timeout" in caplog.text


def test_no_client_is_left_behind() -> None:
    with pytest.raises(ConnectionError), connect("127.0.0.1:1", timeout=0.2):
        pass
    with pytest.raises(ValueError, match="No clients found"):
        Client.current()


def test_a_loop_that_ends() -> None:
    """As that of a process does which exits: no question waits on, nor is one left that nobody has run."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    client: Any = SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), asynchronous=False)
    assert in_loop(client, asyncio.sleep, 0, "answer") == "answer"
    threading.Timer(0.3, loop.call_soon_threadsafe, [loop.stop]).start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(SchedulerLost, match="was closed"):
                in_loop(client, asyncio.sleep, 60)
        gc.collect()
    thread.join()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
    loop.close()


def test_from_the_loop_itself(client: Client) -> None:
    """It would wait for itself."""

    async def ask_here() -> Any:
        return ask(client, client.scheduler.ncores)

    with pytest.raises(RuntimeError, match="event loop"):
        in_loop(client, ask_here)


def test_a_client_that_another_thread_is_making_is_waited_for() -> None:
    states = iter(["newly-created", "connecting", "connecting", "running"])

    class Client:
        @property
        def status(self) -> str:
            return next(states)

    client = Client()
    assert connected(client) is client
    assert next(states, None) is None


def test_a_scheduler_that_does_not_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.transport.clients.SCHEDULER_PATIENCE", 0.5)
    assert sorted(ask(client, client.scheduler.ncores).values()) == [1, 1, 1]
    with pytest.raises(SchedulerLost, match=r"does not answer \(waited 0 s\)"):
        ask(client, asyncio.Event().wait)
