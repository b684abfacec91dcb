"""Workers that join fits which stop early, leave checkpoints, go on from earlier trees, are forests, or have many workers already."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.growing.shards.joining import newcomers
from dtrees.engine.rows import tree as rows_tree
from tests.cluster.faults import Fault, install, stopped
from tests.cluster.running import FRAME, TARGETS, WEIGHTS, Running, joining
from tests.cluster.samples import wait_until
from tests.slow import one_of_each, thorough_for

#: Rows of partitions.
LENGTHS = [60, 0, 60, 1, 99, 70, 70, 60]

pytestmark = pytest.mark.timeout(240)


@contextlib.contextmanager
def spread(running: Running, what: str = "rows") -> Iterator[str]:
    """A worker that joins while the fit is held, until it has got something: its address."""
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(running.client))
        wait_until(lambda: bool(running.events(f"{what} spread")) or running.future.done(), 120)
        assert [list(event["to"]) for event in running.events(f"{what} spread")] == [[newcomer]]
        yield newcomer


def _prepare() -> None:
    """Have nodes grown by all shards together, but for small ones; and newcomers be given something, however few trees are left."""
    rows_tree.SENT_ROWS = 50
    newcomers.WORTH = -1e9


def start(client: Client, make: Callable[[int], Any], folder: Path, task: str = "regression", **options: Any) -> Running:
    client.run(_prepare)
    return Running(client, task, make, folder, lengths=LENGTHS, weighted=True, **{"placement": "rows", **options})


def boosting(n: int, **parameters: Any) -> Any:
    return dtrees.GradientBoostingRegressor(n_estimators=n, max_depth=3, learning_rate=0.1, random_state=0, **parameters)


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "by"), one_of_each(["rows", "sharded"], ["rows held out", "a set"], others=pytest.mark.thorough))
def test_a_fit_ends_by_stopping_early_after_a_worker_joined(no_nannies: Client, tmp_path: Path, placement: str, by: str) -> None:
    stopping = {"n_iter_no_change": 5} if by == "rows held out" else {"early_stopping_rounds": 5}
    sets = {} if by == "rows held out" else {"eval_set": [(FRAME[:100], TARGETS["regression"][:100] + np.arange(100) % 3)]}

    def make(n: int) -> Any:
        return boosting(n, subsample=0.8, **stopping)

    running = start(no_nannies, make, tmp_path, placement=placement, pause=0.04, **sets)
    with spread(running, "rows" if placement == "rows" else "columns"):
        wait_until(lambda: running.shards() == 3, 60)
        fitted = running.future.result(timeout=180)
        assert 30 < len(fitted._trees.groups[0]) < 10**5, "it ended by itself"
        running.check(fitted, make(10**5))


@pytest.mark.slow
@pytest.mark.parametrize("placement", thorough_for({"sharded"}, ["rows", "sharded"]))
def test_a_checkpoint_of_a_fit_that_a_worker_joined(no_nannies: Client, tmp_path: Path, placement: str) -> None:
    """What it leaves when it is cut short is gone on from, by a fit that another worker joins, to the model of an unbroken run."""
    path = tmp_path / "checkpoint"
    n_trees = 150
    options: dict[str, Any] = {"placement": placement, "checkpoint": path, "checkpoint_interval": 0.0}
    running = start(no_nannies, boosting, tmp_path, pause=0.03, n_trees=n_trees, **options)
    what = "rows" if placement == "rows" else "columns"
    with spread(running, what):
        running.goes_on()
        left = len(running.end()._trees.groups[0])
        assert 1 < left < n_trees
        running.future.release()
        (tmp_path / "again").mkdir()
        again = start(no_nannies, boosting, tmp_path / "again", pause=0.03, n_trees=n_trees, **options)
        with spread(again, what):
            replayed, grown = ("Replay", "GrowTree") if placement == "rows" else ("Route", "Start")
            sent = [event["message"] for event in again.events("exchange")]
            assert sent[: sent.index(grown)].count(replayed) >= left
            fitted = again.future.result(timeout=180)
            assert len(fitted._trees.groups[0]) == n_trees
            path.unlink()
            again.check(fitted, boosting(n_trees))


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["rows", "sharded"])
def test_a_fit_that_goes_on_from_earlier_trees(no_nannies: Client, tmp_path: Path, placement: str) -> None:
    earlier = boosting(7, warm_start=True, subsample=0.8).fit(FRAME, TARGETS["regression"], WEIGHTS)

    def make(n: int) -> Any:
        return copy.deepcopy(earlier).set_params(n_estimators=n)

    running = start(no_nannies, make, tmp_path, placement=placement)
    with spread(running, "rows" if placement == "rows" else "columns"):
        wait_until(lambda: running.shards() == 3, 60)
        running.goes_on()
        running.finish()


FORESTS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "out of bag": ("regression", lambda n: dtrees.RandomForestRegressor(n, max_depth=4, oob_score=True, random_state=8)),
    "classes": ("binary", lambda n: dtrees.RandomForestClassifier(n, min_samples_leaf=9, max_features=2, random_state=9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORESTS)
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
def test_a_worker_joins_a_forest_by_rows(no_nannies: Client, tmp_path: Path, name: str) -> None:
    task, make = FORESTS[name]
    running = start(no_nannies, make, tmp_path, task)
    with spread(running):
        wait_until(lambda: running.shards() == 3, 60)
        running.goes_on()
        running.finish()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "joined"), one_of_each(["Open", "AddVotes", "drawn"], [True, False], others=pytest.mark.thorough))
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
def test_one_dies_as_soon_as_rows_of_a_forest_are_spread(no_nannies: Client, tmp_path: Path, kind: str, joined: bool) -> None:
    task, make = FORESTS["out of bag"]
    running = start(no_nannies, make, tmp_path, task)
    workers = list(no_nannies.nthreads())
    fault = Fault(tmp_path, kind)
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(no_nannies))
            install(no_nannies, fault, workers=[newcomer] if joined else workers)
        wait_until(lambda: len(stopped(fault)) == 1, 120)
        wait_until(lambda: bool(running.events("shard moved")), 60)
        running.goes_on()
        running.finish()
