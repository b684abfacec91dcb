"""The same cases on every executor: the result of a fit is equal in every byte, wherever it ran and whichever workers were lost.

The reference is the fit in this process with one thread. Cases are in :mod:`tests.cases`; an executor is a number of workers and a
placement. Workers of the larger cluster are threads of this process that communicate by TCP, which start quickly; those of the others
are processes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
import pytest
from distributed import Client

from tests.cases import CASES, FIRST_OF_KIND, RARE_IN_SPARSE, SLOW, check, fit
from tests.cluster.faults import Cut, cut_off
from tests.cluster.samples import assert_clean

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


@dataclass(frozen=True)
class Place:
    """An executor: the number of workers, the placement, and the number of partitions."""

    n_workers: int
    placement: str
    n_parts: int


#: Every run uses the last but one, and the last for the largest cluster.
BOOSTING = [Place(1, "one-worker", 1), Place(1, "sharded", 3), Place(3, "one-worker", 7), Place(3, "sharded", 3), Place(5, "sharded", 7)]
FORESTS = [Place(1, "replicated", 7), Place(3, "replicated", 1), Place(3, "sharded", 7), Place(5, "sharded", 3)]


#: Cases of sparse blocks that are quick.
QUICK = ("extra trees", "boosting of several targets that stops early")


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough if name in RARE_IN_SPARSE else pytest.mark.slow)
        for name, case in CASES.items()
        if case.array and not case.is_constrained
    ],
)
def test_from_sparse_blocks(five_threads: Client, name: str) -> None:
    with dask.config.set({"dtrees.placement": "one-worker" if CASES[name].boosts else "replicated"}):
        check(fit(CASES[name], 7, sparse=True), name)


@pytest.fixture
def client(request: pytest.FixtureRequest, place: Place) -> Iterator[Client]:
    """The client of a place."""
    if place.n_workers == 5:
        yield request.getfixturevalue("five_threads")
        return
    cluster = request.getfixturevalue(f"cluster_of_{place.n_workers}")
    with Client(cluster, set_as_default=False) as client, client.as_current():
        yield client


def _id(value: Any) -> str:
    return f"{value.n_workers} workers, {value.placement}" if isinstance(value, Place) else str(value)


#: Cases, and lost workers in each: one or several in sequence. The first losses of "boosting" and "forest" belong to every run, in which
#: shards of one process are lost at all messages (tests/engine/test_lost_shards_of_columns.py). Recovery does not depend on how a worker
#: was lost, so few of them are merely silent. (Trees of a forest grow side by side.)
LOSSES: dict[str, list[list[Cut]]] = {
    "boosting": [
        *([Cut("rows", 7)], [Cut("Open")], [Cut("Open", 1, "unheard")], [Cut("standing")]),
        *([Cut("marks", 7)], [Cut("marks", 7, "unheard")], [Cut("GrowTree", 7)]),
    ],
    "boosting that goes on": [[Cut("further columns", 7)], [Cut("Replay", 7)], [Cut("marks", 3)]],
    # Two shards in one round: one of their successors is not on the coordinator's worker.
    "boosting of classes": [[Cut("marks", 31), Cut("Open")], [Cut("marks", 31), Cut("marks"), Cut("state")]],
    "boosting with dropout": [[Cut("marks", 31)]],
    "boosting with categories": [[Cut("sets", 2)]],
    "forest": [
        *([Cut("subtrees", 2)], [Cut("subtrees", 2, "unheard")], [Cut("GrowTrees", 2)], [Cut("delegated", 2)]),
        *([Cut("leaves", 2)], [Cut("AddVotes")], [Cut("AddVotes"), Cut("Open")], [Cut("AddVotes"), Cut("standing")]),
    ],
    "forest of absolute error": [[Cut("leaves")]],
    "forest of several targets by sets": [[Cut("sets")], [Cut("marks")]],
}


def _losses() -> Iterator[Any]:
    for name, losses in LOSSES.items():
        for number, cuts in enumerate(losses):
            yield pytest.param(name, cuts, marks=() if number == 0 and name in ("boosting", "forest") else pytest.mark.slow)


#: Cases that differ from others only within a shard (tests/engine/test_conformance.py grows the like on shards of one process): on
#: clusters they belong to thorough runs, unless they are the first of their kind.
ALONE = {
    "tree",
    "forest, best first",
    "forest, pruned",
    "boosting, best first",
    "boosting, pruned",
    "boosting of parallel trees",
    "boosting of rows drawn by gradients",
    "boosting of quantiles, best first",
    "boosting of quantiles, pruned",
    "boosting by Tweedie deviance",
    "boosting of classes that stops early",
}


def _places() -> Iterator[Any]:
    """Yield the usual place for cases that lose no worker, and others for the first case of each kind: the largest if it is slow."""
    tried: set[Place] = set()
    for number, (name, case) in enumerate(CASES.items()):
        places = BOOSTING if case.boosts else FORESTS
        usual, largest, another = places[-2], places[-1], places[number % (len(places) - 2)]
        is_slow, is_first = name in SLOW | ALONE, name in FIRST_OF_KIND
        if name not in LOSSES and not (is_slow and is_first):
            rare = pytest.mark.slow if name in ("forest in order", "extra trees of classes") else pytest.mark.thorough
            yield pytest.param(usual, name, marks=rare if is_slow else ())
        # The largest cluster also loses its workers in many cases.
        for place in [place for place in ((largest, another) if is_slow else (another,)) if is_first and place not in tried]:
            yield pytest.param(place, name, marks=pytest.mark.slow)
        tried |= {another} if is_first else set()


@pytest.mark.parametrize(("place", "name"), list(_places()), ids=_id)
def test_on_a_cluster(client: Client, name: str, place: Place) -> None:
    with dask.config.set({"dtrees.placement": place.placement}):
        check(fit(CASES[name], place.n_parts), name)


@pytest.mark.parametrize(("name", "cuts"), list(_losses()), ids=str)
def test_a_worker_is_lost(five_threads: Client, monkeypatch: pytest.MonkeyPatch, name: str, cuts: list[Cut]) -> None:
    monkeypatch.setattr("dtrees.cluster.growing.actors._SECONDS_TO_EXPLAIN", 0.5)  # the scheduler is in this process
    with cut_off(*cuts) as done, dask.config.set({"dtrees.placement": "sharded"}):
        check(fit(CASES[name], 3), name)
    assert done == cuts
    assert_clean(five_threads, in_processes=False)  # a worker that was killed here leaves its memory to this process
