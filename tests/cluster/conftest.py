"""Clusters that the tests of this folder share: starting one takes longer than most fits."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest
from distributed import Client, LocalCluster


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


@pytest.fixture
def sharded() -> Iterator[None]:
    """Boosting uses all workers, however small the table."""
    with dask.config.set({"dtrees.placement": "sharded"}):
        yield
