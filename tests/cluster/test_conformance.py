"""One set of cases over every executor: what comes of a fit is the same in every byte, wherever it ran and whatever was lost on the way.

The reference is the fit in this process with one thread. Cases are in :mod:`tests.cluster.cases`; an executor is a number of workers and a
placement. Workers of the larger cluster are threads of this process that talk over TCP, which start in no time; those of the others are
processes.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from tests.cluster.cases import CASES, fit, outcome

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


@dataclass(frozen=True)
class Place:
    """Where to fit: on how many workers, with which placement, from how many partitions."""

    n_workers: int
    placement: str
    n_parts: int


BOOSTING = [Place(1, "one-worker", 1), Place(1, "sharded", 3), Place(3, "one-worker", 7), Place(3, "sharded", 3), Place(5, "sharded", 7)]
FORESTS = [Place(1, "auto", 7), Place(3, "auto", 1), Place(5, "auto", 3)]


@functools.cache
def wanted(name: str) -> dict[str, bytes]:
    """Return what comes of a case with one thread."""
    return found(fit(CASES[name], n_jobs=1))


def found(model: Any) -> dict[str, bytes]:
    assert any(tree.node_count > 1 for group in model._trees.groups for tree in group)
    with tempfile.TemporaryDirectory() as folder:
        return outcome(model, Path(folder))


def check(model: Any, name: str) -> None:
    ours, theirs = found(model), wanted(name)
    assert ours.keys() == theirs.keys()
    assert [key for key in theirs if ours[key] != theirs[key]] == []


@pytest.fixture(scope="module")
def cluster_of_5() -> Iterator[LocalCluster]:
    with LocalCluster(5, processes=False, threads_per_worker=1, protocol="tcp://", host="127.0.0.1", dashboard_address="127.0.0.1:0") as it:
        yield it


@pytest.mark.parametrize("name", CASES)
def test_four_threads(name: str) -> None:
    check(fit(CASES[name], n_jobs=4), name)


def _id(value: Any) -> str:
    return f"{value.n_workers} workers, {value.placement}" if isinstance(value, Place) else str(value)


@pytest.mark.parametrize(
    ("place", "name"), [(place, name) for name, case in CASES.items() for place in (BOOSTING if case.boosts else FORESTS)], ids=_id
)
def test_on_a_cluster(request: pytest.FixtureRequest, name: str, place: Place) -> None:
    cluster = request.getfixturevalue(f"cluster_of_{place.n_workers}")
    with Client(cluster, set_as_default=False) as client, client.as_current(), dask.config.set({"dtrees.placement": place.placement}):
        check(fit(CASES[name], place.n_parts), name)
