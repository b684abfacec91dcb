"""Clusters that the tests of this folder share: starting one takes longer than most fits."""

import contextlib
import os
from collections.abc import Iterator

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.comm.tcp import TCP

from dtrees.cluster import compat
from dtrees.cluster.transport.clients import threads_of_workers
from tests.cluster.clusters import cluster_of, process
from tests.cluster.faults import uninstall
from tests.cluster.samples import wait_until


def _cluster(n_workers: int, threads_per_worker: int) -> LocalCluster:
    return LocalCluster(n_workers=n_workers, threads_per_worker=threads_per_worker, host="127.0.0.1", dashboard_address="127.0.0.1:0")


@pytest.fixture(scope="session")
def cluster_of_3() -> Iterator[LocalCluster]:
    with _cluster(3, 1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_of_1() -> Iterator[LocalCluster]:
    with _cluster(1, 2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster_of_3: LocalCluster) -> Iterator[Client]:
    """The current client in the test, of three workers with a thread each."""
    with Client(cluster_of_3, set_as_default=False) as client, client.as_current():
        yield client


@pytest.fixture(scope="module")
def mortal_cluster() -> Iterator[LocalCluster]:
    """Three workers that are restarted by their nannies."""
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "200ms"}), _cluster(3, 1) as cluster:
        yield cluster


@pytest.fixture
def mortal_client(mortal_cluster: LocalCluster) -> Iterator[Client]:
    """The current client in a test that loses workers: all three are there when it begins, and work normally when it ends."""
    with Client(mortal_cluster, set_as_default=False) as client, client.as_current():
        # A worker that Dask itself has removed ends, and so does its nanny: the cluster has to start another.
        wait_until(lambda: mortal_cluster.scale(3) or len(client.run(os.getpid, on_error="ignore")) == 3, 60)
        try:
            yield client
        finally:
            uninstall(client)


@pytest.fixture(params=["plain", "carried"])
def connections(client: Client, request: pytest.FixtureRequest) -> Iterator[None]:
    """How actors are reached: by "plain" TCP, or "carried" by event loops, as for encrypted connections."""
    kind = None if request.param == "carried" else TCP
    _take(kind)
    client.run(_take, kind)
    yield
    _take(TCP)
    client.run(_take, TCP)


def _take(kind: type | None) -> None:
    compat.TCP = kind  # type: ignore[misc]


@pytest.fixture
def no_nannies() -> Iterator[Client]:
    """Two workers that are not restarted."""
    with cluster_of(0) as client, contextlib.ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(process("dask_worker", client.scheduler.address, "--no-nanny", "--nthreads", "1"))
        client.wait_for_workers(2, timeout=30)
        yield client


@pytest.fixture
def sharded() -> Iterator[None]:
    """Boosting uses all workers, however small the table."""
    with dask.config.set({"dtrees.placement": "sharded"}):
        yield


@pytest.fixture(scope="module")
def cluster_of_threads() -> Iterator[LocalCluster]:
    """Five workers that are threads of this process, each with the machine's memory, as a worker's memory is the process's."""
    options = {"processes": False, "memory_limit": 1.0, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "200ms"}),
        LocalCluster(n_workers=5, threads_per_worker=1, **options) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def client_of_threads(cluster_of_threads: LocalCluster) -> Iterator[Client]:
    """The client that the workers use, too, since it is in their process. It must not close when a worker ends."""
    with Client(cluster_of_threads) as client:
        yield client


@pytest.fixture
def five_threads(cluster_of_threads: LocalCluster, client_of_threads: Client) -> Client:
    wait_until(lambda: cluster_of_threads.scale(5) or len(threads_of_workers(client_of_threads)) == 5, 60)
    return client_of_threads
