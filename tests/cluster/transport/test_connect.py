"""Clusters at hand: embedded ones, and those that run already."""

from __future__ import annotations

import pytest
from distributed import Client, LocalCluster

from dtrees.cluster.transport.connect import connect, local_client


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
