"""What a fit has told: bounded, and right whatever happens to the fit."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import Any

import pytest

from dtrees.callbacks import Progress
from dtrees.cluster.dashboard import Curve, FitHistory


def round_event(done: int, total: int = 100, **facts: Any) -> dict[str, Any]:
    progress = Progress(done, total, 10.0 + 0.5 * done, train_score=1.0 / done, evaluation={"new": {"mae": 2.0}})
    return {"fit": "fit", "what": "round", "round": done, "progress": asdict(progress), **facts}


def test_a_curve_is_bounded() -> None:
    curve = Curve()
    for done in range(1, 100_001):
        curve.add(done, float(done))
    points = curve.shown()
    assert 200 <= len(points) <= 401
    assert points[0][0] == 1
    assert points[-1] == (100_000, 100_000.0)
    assert all(x == y for x, y in points)
    assert sorted(points) == points


def test_rounds_that_are_told_again_replace_those_before() -> None:
    curve = Curve()
    for done in (1, 2, 3, 4, 2, 3):
        curve.add(done, 10.0 * done)
    assert curve.shown() == [(1, 10.0), (2, 20.0), (3, 30.0)]


def test_a_fit_from_its_beginning_to_its_end() -> None:
    history = FitHistory("fit")
    assert history.outcome == "waiting"
    history.note_state("processing")
    history.take({"what": "began", "turn": 1, "worker": "a"})
    assert history.outcome == "loading"
    history.take({"what": "placed", "placement": "sharded", "reason": "it was asked for", "workers": ["a", "b"], "bytes": 1})
    history.take({"what": "holding", "rows": 1000, "columns": 5, "workers": {"a": (3, 600), "b": (2, 400)}})
    history.take(round_event(1, scan={"a": 1.0, "b": 0.5}, wait={"a": 0.0, "b": 0.5}, sent={"a": 10}, received={"b": 20}, communicate=0.25))
    assert history.remaining is None
    history.take(round_event(3))
    assert history.outcome == "growing"
    assert history.remaining == pytest.approx(0.5 * 97)
    assert history.curves["train loss"].shown() == [(1, 1.0), (3, 1.0 / 3)]
    assert set(history.curves) == {"train loss", "new mae"}
    assert [(share.columns, share.bytes, share.scan) for share in history.workers.values()] == [(3, 600, 1.0), (2, 400, 0.5)]
    assert (history.workers["b"].wait, history.workers["a"].sent, history.workers["b"].received, history.communicate) == (0.5, 10, 20, 0.25)
    assert history.snapshot()["progress"]["done"] == 3
    history.note_state("memory")
    assert history.outcome == "finished"
    history.note_state("released")
    history.note_state("forgotten")
    assert history.outcome == "finished"
    assert history.remaining is None


def test_a_fit_that_waits_for_kernels_says_so() -> None:
    compiling: set[str] = set()
    history = FitHistory("fit", compiling=compiling)
    compiling.add("a")
    assert history.outcome == "waiting"
    history.note_state("processing")
    assert history.outcome == history.snapshot()["outcome"] == "compiling kernels (first use)"
    compiling.clear()
    assert history.outcome == "loading"
    compiling.add("b")  # another kernel, or another fit
    history.take(round_event(1))
    assert history.outcome == "growing"


def test_lost_workers_are_counted_once_and_made_up_for() -> None:
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take({"what": "holding", "rows": 10, "columns": 2, "workers": {"a": (1, 1), "b": (1, 1)}})
    history.take(round_event(1))
    history.lose(["elsewhere"])
    assert history.n_lost == 0
    history.lose(["b"])
    history.take({"what": "shards lost", "shards": [1], "workers": ["b"]})
    assert (history.n_lost, history.n_recovered) == (1, 0)
    history.take({"what": "shard moved", "shard": 1, "to": "a"})
    history.take({"what": "holding", "rows": 10, "columns": 2, "workers": {"a": (2, 2)}})
    history.take(round_event(2))
    assert (history.n_lost, history.n_recovered) == (1, 1)
    assert (history.workers["b"].lost, history.workers["b"].columns, history.workers["a"].columns) == (True, 0, 2)
    history.take({"what": "placed", "placement": "rows", "reason": "as asked", "workers": ["a"], "bytes": {}})
    history.take({"what": "shard moved", "shard": 1, "to": "a"})
    said = ["lost b", "columns of a lost worker are loaded again on a", "goes on from round 2", "placed rows: as asked"]
    assert [line for _, line in history.lines] == [*said, "rows of a lost worker are loaded again on a"]


def test_messages_count_for_workers_that_were_there() -> None:
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take(round_event(1, scan={"a": 1.0, "b": 1.0}, communicate=0.5))
    history.lose(["b"])
    history.take(round_event(2, scan={"a": 2.0, "b": 1.0, "c": 0.5}, communicate=4.0))
    history.take(round_event(3, scan={"a": 3.0, "b": 1.0, "c": 1.5}, communicate=5.0))
    assert {worker: share.communicate for worker, share in history.workers.items()} == {"a": 5.0, "b": 0.5, "c": 1.0}
    history.take(round_event(3, scan={"a": 0.5, "c": 0.5}, communicate=0.25))  # taken over by another coordinator
    assert {worker: share.communicate for worker, share in history.workers.items()} == {"a": 5.25, "b": 0.5, "c": 1.25}


@pytest.mark.parametrize(("states", "outcome"), [(("erred",), "failed"), (("processing", "released", "forgotten"), "cancelled")])
def test_fits_that_end_otherwise(states: tuple[str, ...], outcome: str) -> None:
    history = FitHistory("fit")
    for state in states:
        history.note_state(state)
    assert history.outcome == outcome


def test_batches_of_a_forest_add_up() -> None:
    history = FitHistory("fit")
    for seconds in (1.0, 2.0):
        history.take({"what": "batch", "worker": "a", "seconds": seconds, "trees": 4})
    assert (history.workers["a"].scan, history.workers["a"].trees) == (3.0, 8)


def test_it_stays_small() -> None:
    history = FitHistory("fit")
    for done in range(1, 5000):
        progress = Progress(done, 5000, float(done), evaluation={f"set {i}": {"mae": 1.0} for i in range(30)})
        history.take({"what": "round", "progress": asdict(progress)})
        history.take({"what": "shard moved", "to": "somewhere"})
        history.take({"what": "something new"})
    assert len(pickle.dumps(history)) < 200_000
