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
from typing import Any, Literal

import dask
import pytest
from distributed import Client

from dtrees.engine.protocol.messages import Calls
from dtrees.engine.shard.tree_state import TreeState
from tests.cluster.cases import CASES, N_ROWS, SLOW, fit, outcome
from tests.cluster.faults import Cut, cut_off
from tests.cluster.samples import assert_clean
from tests.slow import slow_for, thorough_for

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")


@dataclass(frozen=True)
class Place:
    """Where to fit: on how many workers, with which placement, from how many partitions."""

    n_workers: int
    placement: str
    n_parts: int


#: The last but one is the place of every run, the last that of the largest cluster.
BOOSTING = [Place(1, "one-worker", 1), Place(1, "sharded", 3), Place(3, "one-worker", 7), Place(3, "sharded", 3), Place(5, "sharded", 7)]
FORESTS = [Place(1, "replicated", 7), Place(3, "replicated", 1), Place(3, "sharded", 7), Place(5, "sharded", 3)]


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


#: Sparse tables beside several targets have kernels of their own (of one of each kind, see test_targets_of_trees.py).
RARE_IN_SPARSE = {"extra trees of several targets", "tree of medians of several targets"}


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    "name", slow_for(SLOW, [name for name, case in CASES.items() if case.array and not case.is_constrained], RARE_IN_SPARSE)
)
def test_from_a_sparse_table(name: str, n_jobs: int) -> None:
    check(fit(CASES[name], n_jobs=n_jobs, sparse=True), name)


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


@pytest.mark.parametrize("name", slow_for(SLOW, CASES))
def test_four_threads(name: str) -> None:
    check(fit(CASES[name], n_jobs=4), name)


def _kind(name: str) -> tuple[Any, ...]:
    """Return what decides how trees of a case are grown: criterion, loss, whether targets are many."""
    case = CASES[name]
    estimator = case.make()
    loss = getattr(estimator, "loss", "")
    has_penalty = getattr(estimator, "reg_alpha", 0.0) > 0.0
    return case.boosts, estimator.criterion, callable(loss) or loss, has_penalty, case.task.startswith("several")


#: The first case of each kind.
FIRST_OF_KIND = {*{_kind(name): name for name in reversed(CASES)}.values()}


def _id(value: Any) -> str:
    return f"{value.n_workers} workers, {value.placement}" if isinstance(value, Place) else str(value)


#: What cases have that cannot be grown where rows stay where they are.
NOT_BY_ROWS = {
    "tree of absolute error": "criterion='absolute_error'",
    "tree by quantile": "criterion='quantile'",
    "forest of absolute error": "criterion='absolute_error'",
    "forest by quantile, in order": "criterion='quantile'",
    "tree of medians of several targets": "criterion='absolute_error'",
    "forest of medians in order": "criterion='absolute_error'",
}


#: What by rows has steps of its own.
BY_ROWS = {"forest in order", "boosting of classes by an objective", "boosting of several targets by an objective"}


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_for(CASES.keys() - FIRST_OF_KIND - NOT_BY_ROWS.keys() - BY_ROWS, CASES))
def test_where_rows_stay(five_threads: Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("dtrees.engine.rows.tree.SENT_ROWS", N_ROWS // 10)
    monkeypatch.setattr("dtrees.engine.rows.fit.rows_to_send", lambda plan, n_rows, n_shards: N_ROWS // 10)
    case = CASES[name]
    with dask.config.set({"dtrees.placement": "rows"}):
        if name not in NOT_BY_ROWS:
            ours, theirs = found(fit(case, 7)), found(fit(case, n_jobs=1))
            assert ours.keys() == theirs.keys()
            assert [key for key in theirs if ours[key] != theirs[key]] == []
            return
        with pytest.raises(ValueError, match=f'placement="rows" does not take {NOT_BY_ROWS[name]}'):
            fit(case, 7)


#: Messages that shards are sent, and cases in which they are; where it takes a loss to come about, what is lost first.
SENT = {
    "boosting": ["Begin", "Start", "Advance", "Finish"],
    "boosting that goes on": ["Search", "Route", "Evaluate"],
    "boosting of classes": ["Renew", "Adopt"],
    "boosting of quantiles, best first": ["MeasureSteps"],
    "boosting by gradients alone": ["MeasureSteps"],
    "boosting of classes by an objective": ["Advance"],
    "boosting of several targets": ["MeasureSteps"],
    "boosting of several targets by an objective": ["Advance"],
    "boosting of scores": ["Begin", "Advance"],
    "boosting with categories": ["FindSets"],
    "forest": ["Many", "ShareRows", "GrowDelegated", "MeasureLeaves", "Finish", "Renew", "Adopt"],
    "forest with categories": ["GrowDelegated"],
    "forest of absolute error": ["MeasureNodes"],
    "forest, best first": ["Merge"],
    "forest of several targets": ["GrowDelegated", "MeasureLeaves"],
    "forest of several targets by sets": ["FindSets", "Advance"],
    "forest in order": ["GrowDelegated", "Advance"],
    "boosting in order": ["Start", "Advance"],
}
FIRST = {
    ("boosting of classes", "Renew"): [Cut("Advance", 31)],
    # The shards of two in one round: one of their successors is not on the coordinator's worker.
    ("boosting of classes", "Adopt"): [Cut("Advance", 31), Cut("Advance", 1)],
    ("forest", "Renew"): [Cut("Finish")],
    ("forest", "Adopt"): [Cut("Finish"), Cut("Many")],
}
#: Of the messages of a kind, the one to be lost at: not the very first, where there are enough. (Trees of a forest grow side by side.)
AT = {
    "boosting of quantiles, best first": 2,
    "boosting by gradients alone": 2,
    "boosting of classes by an objective": 31,  # the second or third tree of a round
    "boosting of several targets": 2,  # within a round, too
    "boosting of several targets by an objective": 31,
    "boosting with categories": 2,
    "forest": 2,
    "forest with categories": 2,
    "forest of absolute error": 1,
    "forest, best first": 2,
    "forest of several targets": 2,
    "forest of several targets by sets": 1,  # its trees grow side by side
}
#: What may go to the coordinator's own worker alone, which is never cut off. (It is killed at it in test_recovery.py, where workers are
#: processes.)
SPARED = {"Fetch"}


#: What is done about a lost worker does not depend on how it was lost: of those not heard of any more, a few are enough.
UNHEARD_AT = {"Begin", "Advance", "GrowDelegated"}


#: Of those killed, the ones of every run, in which shards of one process are lost at all messages (test_recovery.py, test_lockstep.py).
QUICK_LOSSES = {("boosting", "Start"), ("forest", "GrowDelegated")}
assert not QUICK_LOSSES - {(name, kind) for name, kinds in SENT.items() for kind in kinds}


def _losses() -> Iterator[Any]:
    """Give each kind of message and each case that has it: the worker is killed; once for each of some kinds, it is not heard of any more.

    Slow tests have the first of each kind, of boosting and of forests, thorough ones the rest.
    """
    seen: set[str] = set()
    had: set[Any] = set()
    for name, kinds in SENT.items():
        for kind in kinds:
            own = kind, CASES[name].boosts
            rest = pytest.mark.slow if own not in had else pytest.mark.thorough
            yield pytest.param(name, kind, "killed", marks=() if (name, kind) in QUICK_LOSSES else rest)
            if kind not in seen:
                yield pytest.param(name, kind, "unheard", marks=pytest.mark.slow if kind in UNHEARD_AT else pytest.mark.thorough)
            had.add(own)
            seen.add(kind)


#: Cases that lose a worker in quick or slow tests.
LOSING = {loss.values[0] for loss in _losses() if not any(mark.name == "thorough" for mark in loss.marks)}


#: Cases that differ from others in what a shard does by itself: on clusters they are fitted in slow runs.
ALONE = {
    "tree",
    "tree by quantile",
    "extra tree of classes",
    "forest, pruned",
    "forest of one column a node",
    "boosting, best first",
    "boosting by columns of levels",
    "boosting, pruned",
    "boosting by Huber's loss",
    "boosting of quantiles, pruned",
    "boosting of counts",
    "boosting by the exponential loss",
    "boosting of classes that stops early",
}


def _places() -> Iterator[Any]:
    """Give each case three places: the usual one, the largest cluster, and one of the others.

    Every run has some cases at the first. Slow tests have one of each kind in the largest cluster, one at each of the last, and of the
    others at the first those that do not lose a worker there (below). Thorough ones have the rest.
    """
    tried: set[Place] = set()
    for number, (name, case) in enumerate(CASES.items()):
        places = BOOSTING if case.boosts else FORESTS
        usual, largest, another = places[-2], places[-1], places[number % (len(places) - 2)]
        is_slow, is_first = name in SLOW | ALONE, name in FIRST_OF_KIND
        by_itself = pytest.mark.thorough if name in LOSING or (is_slow and is_first) else pytest.mark.slow if is_slow else ()
        yield pytest.param(usual, name, marks=by_itself)
        yield pytest.param(largest, name, marks=pytest.mark.slow if is_first else pytest.mark.thorough)
        yield pytest.param(another, name, marks=pytest.mark.slow if is_first and another not in tried else pytest.mark.thorough)
        tried |= {another} if is_first else set()


@pytest.mark.parametrize(("place", "name"), list(_places()), ids=_id)
def test_on_a_cluster(client: Client, name: str, place: Place) -> None:
    with dask.config.set({"dtrees.placement": place.placement}):
        check(fit(CASES[name], place.n_parts), name)


@pytest.mark.parametrize(("name", "kind", "how"), list(_losses()))
def test_a_worker_is_lost_at_every_message(
    five_threads: Client, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, how: Literal["killed", "unheard"]
) -> None:
    monkeypatch.setattr("dtrees.cluster.growing.actors._SECONDS_TO_EXPLAIN", 0.5)  # the scheduler is in this process
    first = FIRST.get((name, kind), [])
    cuts = [*first, Cut(kind, 1 if first or kind == "Begin" else AT.get(name, 7), how)]
    with cut_off(*cuts) as done, dask.config.set({"dtrees.placement": "sharded"}):
        check(fit(CASES[name], 3), name)
    assert done == cuts
    assert_clean(five_threads, in_processes=False)  # a worker that was killed here leaves what it had to this process


def test_every_message_is_lost_somewhere() -> None:
    of_tree = {name for name in vars(TreeState) if not name.startswith("_")} - {"boost", "grow", "take_columns"}
    kinds = {Calls("", 0, (0,), ((name,),)).kind for name in of_tree | {"begin", "renew", "fetch", "adopt"}}
    assert {kind for kinds in SENT.values() for kind in kinds} == (kinds | {"Many"}) - SPARED
