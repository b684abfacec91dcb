"""Workers that join a fit under way have columns from the next tree on; the model is that of the undisturbed fit, byte for byte."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, get_task_stream
from hypothesis import given
from hypothesis import strategies as st

import dtrees
from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.growing.by_tasks import forest_fit as forest
from dtrees.cluster.growing.shards.joining import columns as columns_joining
from dtrees.cluster.growing.shards.joining import newcomers
from dtrees.cluster.growing.shards.joining.columns import ColumnNewcomers
from dtrees.cluster.growing.shards.joining.newcomers import share
from tests.cluster.faults import Fault, install, stopped
from tests.cluster.running import FRAME, TARGETS, Running, hasten, joining, lose_at
from tests.cluster.samples import LENGTHS, assert_clean, assert_same_model, in_partitions, wait_until
from tests.slow import one_quick

pytestmark = pytest.mark.timeout(240)


def training_set(task: str = "regression") -> tuple[Any, Any]:
    return in_partitions(FRAME, LENGTHS[3]), in_partitions(TARGETS[task], LENGTHS[3])


MODELS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "boosting": ("regression", lambda n: dtrees.GradientBoostingRegressor(n_estimators=n, max_depth=3, subsample=0.8, random_state=0)),
    "boosting of classes": (
        "multiclass",
        lambda n: dtrees.GradientBoostingClassifier(n_estimators=n, max_depth=2, max_features=2, learning_rate=0.01, random_state=1),
    ),
    "out of bag": ("multiclass", lambda n: dtrees.RandomForestClassifier(n, max_depth=2, oob_score=True, random_state=3)),
}


def start(client: Client, name: str, folder: Path) -> Running:
    return Running(client, *MODELS[name], folder)


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.parametrize("name", one_quick(["boosting of classes", "out of bag"]))
def test_a_worker_that_joins_has_columns_from_the_next_tree_on(no_nannies: Client, tmp_path: Path, name: str) -> None:
    running = start(no_nannies, name, tmp_path)
    with joining(no_nannies) as newcomer:
        wait_until(lambda: bool(running.events("columns spread")), 120)
        (spread,) = running.events("columns spread")
        assert list(spread["to"]) == [newcomer]
        assert spread["columns"] >= 1
        wait_until(lambda: running.shards() == 3, 30)
        running.finish()


@pytest.mark.slow
def test_one_without_room_for_its_columns_twice_gives_of_them_where_they_lie(no_nannies: Client, tmp_path: Path) -> None:
    running = start(no_nannies, "boosting of classes", tmp_path)
    no_nannies.run(_have_no_room_for_columns)
    with joining(no_nannies):
        wait_until(lambda: bool(running.events("columns spread")), 120)
        wait_until(lambda: running.shards() == 3, 30)
        running.goes_on()
        running.finish()


def _have_no_room_for_columns() -> None:
    """Have all shards of a fit that this process coordinates keep what they keep in place, and in no other way."""
    joining_workers: Any = newcomers
    of_columns: Any = columns_joining
    share = joining_workers.share
    of_columns._only = None

    def share_in_place(*args: Any) -> Any:
        return share(*args[:5], range(len(args[0])), args[6])

    joining_workers.share = share_in_place


def numbers() -> list[Any]:
    return [pytest.param(number, id=number.name) for number in (signal.SIGKILL, signal.SIGSTOP)]


@pytest.mark.parametrize("number", numbers())
@pytest.mark.slow
def test_another_dies_in_the_same_tree(no_nannies: Client, tmp_path: Path, number: signal.Signals) -> None:
    """It is then the newcomer that takes its shard over."""
    running = start(no_nannies, "boosting", tmp_path)
    fault = Fault(tmp_path, "Start", number=number)
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(no_nannies))
            install(no_nannies, fault)
        wait_until(lambda: bool(running.events("shard moved")), 120)
        assert [event["to"] for event in running.events("shard moved")] == [newcomer]
        assert not running.events("columns spread")
        (process,) = stopped(fault)
        _end(process)
        running.finish()


def _end(process: int) -> None:
    """End a process that stands still, and would never answer, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize(("kind", "own"), [("Renew", False), ("Renew", True), ("Adopt", False)])
@pytest.mark.slow
def test_one_dies_as_soon_as_columns_are_spread(no_nannies: Client, tmp_path: Path, kind: str, own: bool) -> None:
    running = start(no_nannies, "boosting of classes", tmp_path)
    fault = Fault(tmp_path, kind, own=own)
    with contextlib.ExitStack() as stack:
        with running.held():
            stack.enter_context(joining(no_nannies))
            no_nannies.run(hasten)
            install(no_nannies, fault)
        wait_until(lambda: len(stopped(fault)) == 1, 120)
        assert running.events("columns spread")
        running.goes_on()
        running.finish()


@pytest.mark.parametrize("number", numbers())
@pytest.mark.slow
def test_one_is_lost_while_it_gives_columns(no_nannies: Client, tmp_path: Path, number: signal.Signals) -> None:
    """Then they stay where they are, and its shard is made anew where there is room for it."""
    running = start(no_nannies, "boosting", tmp_path)
    with contextlib.ExitStack() as stack:
        with running.held():
            stack.enter_context(joining(no_nannies))
            no_nannies.run(_lose_who_gives, tmp_path / "lost", number)
        wait_until(lambda: bool(running.events("shard moved")), 120)
        assert not running.events("columns spread")
        running.goes_on()
        _end(int((tmp_path / "lost").read_text()))
        running.finish()


def _lose_who_gives(marker: Path, number: signal.Signals) -> None:
    """Have a worker that is not the coordinator's get a signal when it is to give columns."""
    lose_at(columns_joining, "_some", marker, number)


def test_a_worker_that_joins_grows_trees_of_a_forest_whose_columns_are_on_each(no_nannies: Client, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    no_nannies.run(_grow_when, go_on)
    make = functools.partial(dtrees.RandomForestClassifier, 64, max_depth=3, random_state=0)
    with dask.config.set({"dtrees.placement": "replicated"}):
        future = dtrees.submit(make(), *training_set("multiclass"))
    with joining(no_nannies) as newcomer, get_task_stream(no_nannies) as stream:
        wait_until(lambda: any(str(key).startswith("dtrees-trees-") for key in no_nannies.processing()[newcomer]), 60)
        go_on.touch()
        assert_same_model(future.result(timeout=60), make().fit(FRAME, TARGETS["multiclass"]))
    grown = {str(task["key"]) for task in stream.data if task["worker"] == newcomer and str(task["key"]).startswith("dtrees-trees-")}
    assert grown
    future.release()
    assert_clean(no_nannies)


def _grow_when(marker: Path) -> None:
    """Have this process grow no trees of a forest until there is a file."""
    grow = forest._grow_batch

    def wait_and_grow(*args: Any) -> Any:
        wait_until(marker.exists)
        return grow(*args)

    forest._grow_batch = wait_and_grow


# --- what is planned ---


@given(st.data())
def test_columns_are_shared_so_that_the_busiest_has_less(data: st.DataObject) -> None:
    n_shards, n_new = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=n_shards, max_size=12))
    spread = [data.draw(st.integers(0, n_shards - 1)) for _ in sizes[n_shards:]]
    ids = [[shard] + [n_shards + i for i, of in enumerate(spread) if of == shard] for shard in range(n_shards)]
    owners = [data.draw(st.sampled_from("abc")) for _ in ids]
    newcomers = {worker: data.draw(st.integers(0, 100)) for worker in "xyz"[:n_new]}
    threads = {worker: data.draw(st.integers(1, 3)) for worker in "abcxyz"}
    in_place, closed = (data.draw(st.sets(st.integers(0, n_shards - 1))) for _ in range(2))
    handover = share(ids, owners, sizes, threads, newcomers, in_place, closed)

    taken = handover.taken()
    kept = dict(enumerate(ids)) | handover.kept(ids)
    assert sorted(j for columns in [*kept.values(), *taken.values()] for j in columns) == list(range(len(sizes)))
    assert all(kept.values())
    assert all(kept[shard] == ids[shard][: len(kept[shard])] for shard in in_place)
    assert all(kept[shard] == ids[shard] for shard in closed)
    load = dict.fromkeys(owners, 0)
    for columns, owner in zip(ids, owners, strict=True):
        load[owner] += sum(sizes[j] for j in columns)
    assert handover.before == max(load[worker] / threads[worker] for worker in load)
    load = {worker: sum(sizes[j] for j in columns) for worker, columns in taken.items()}
    assert all(load[worker] <= newcomers[worker] for worker in load)
    for shard, columns in kept.items():
        load[owners[shard]] = load.get(owners[shard], 0) + sum(sizes[j] for j in columns)
    assert handover.after == max(load[worker] / threads[worker] for worker in load)
    assert handover.after <= handover.before
    assert handover.moved == sum(sizes[j] for columns in taken.values() for j in columns)
    assert handover.n_pieces == sum(map(len, taken.values()))


class Clock:
    """Time that goes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("dtrees.cluster.growing.shards.joining.newcomers.time.monotonic", lambda: self.now)


def test_newcomers_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    newcomers = ColumnNewcomers([], 0)
    told = []
    for there in ["", "c", "cd", "cd", "cd"]:
        told.append(newcomers.have_settled(there, 100, {}))
        clock.now += 3.0
    assert told == [False, False, False, False, True]
    # Not for ever, where they keep coming.
    newcomers = ColumnNewcomers([], 0)
    told = []
    for i in range(12):
        told.append(newcomers.have_settled(range(i + 1), 100, {}))  # type: ignore[arg-type]
        clock.now += 3.0
    assert told == [False] * 10 + [True, True]


def test_columns_are_not_spread_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    newcomers = ColumnNewcomers([], 0)
    newcomers.note_handover(seconds=2.0, n_left=100)
    told = {}
    for n_left in range(100, 80, -1):
        clock.now += 5.0
        told[n_left] = newcomers.have_settled("c", n_left, {})
    assert [n_left for n_left, it_is_time in told.items() if it_is_time] == list(range(90, 80, -1))
    newcomers.note_handover(seconds=60.0, n_left=80)
    for n_left in range(60, 30, -1):
        clock.now += 39.0
        told[n_left] = newcomers.have_settled("c", n_left, {})
    assert not told[31]
    clock.now += 39.0
    assert newcomers.have_settled("c", 29, {})


GIGABYTES = 10**9


def planned(n_left: int, seconds_a_tree: float, free: tuple[float, float, float]) -> Any:
    """What newcomer ``c`` is given of six columns of a gigabyte each, half of them on ``a``, half on ``b``."""
    workers = {
        worker: {"nthreads": 1, "memory_limit": 10 * GIGABYTES / 0.8, "metrics": {"memory": (10 - space) * GIGABYTES}}
        for worker, space in zip("abc", free, strict=True)
    }
    columns = ClusterColumns(None, None, [], [[0, 1, 2], [3, 4, 5]], ["a", "b"], 10**6, None, None, {}, [])  # type: ignore[arg-type]
    newcomers = ColumnNewcomers([GIGABYTES] * 6, 10**6)
    newcomers.have_settled("c", n_left + 10, {})
    return newcomers.plan(columns, workers, n_left, {"a": 10 * seconds_a_tree, "b": seconds_a_tree})


def test_it_has_to_be_worth_while_and_there_has_to_be_room() -> None:
    assert planned(1000, 1.0, (5, 5, 5)).given == {"c": {0: [2], 1: [5]}}
    assert not planned(1000, 1.0, (5, 5, 5)).in_place
    short = planned(1000, 1.0, (1.5, 5, 5))
    assert short.given == {"c": {0: [2], 1: [5]}}
    assert short.in_place == {0}, "what a giving worker keeps would be there twice for a moment"
    assert planned(1000, 1.0, (0.1, 0.1, 5)).in_place == {0, 1}
    assert planned(1000, 1.0, (0.001, 0.1, 5)) is None, "zones of what it keeps are there twice as well"
    assert planned(1000, 1.0, (5, 5, 1.5)) is None, "one column less on one worker leaves the other as busy"
    assert planned(1000, 1.0, (5, 5, 0.5)) is None
    assert planned(1000, 0.01, (5, 5, 5)) is None, "it would save 3 seconds, and take 20"
    assert planned(20, 1.0, (5, 5, 5)) is None, "there are few trees left"
