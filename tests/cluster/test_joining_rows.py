"""Workers that join a fit by rows take partitions over; the model is that of the undisturbed fit, byte for byte."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

import dtrees
from dtrees.cluster.data import row_blocks
from dtrees.cluster.data.memory import Sizes
from dtrees.cluster.data.row_blocks import RowBlock
from dtrees.cluster.growing.shards.joining import newcomers as settling
from dtrees.cluster.growing.shards.joining import rows as rows_joining
from dtrees.cluster.growing.shards.joining.rows import RowNewcomers
from dtrees.engine.rows import tree as rows_tree
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.mmap_arrays import is_on_disk, mapped, on_disk
from tests.cluster.faults import Fault, install, stopped
from tests.cluster.running import Running, joining, lose_at
from tests.cluster.samples import wait_until
from tests.slow import one_of_each, one_quick

#: Rows of partitions.
LENGTHS = [60, 0, 60, 1, 99, 70, 70, 60]

pytestmark = pytest.mark.timeout(240)

MODELS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "squared error": (
        "regression",
        lambda n: dtrees.GradientBoostingRegressor(  # without sets of categories, which have kernels of their own
            n_estimators=n,
            max_depth=4,
            subsample=0.8,
            max_features=0.7,
            learning_rate=0.01,
            n_iter_no_change=10**6,
            categorical_features=None,
            random_state=0,
        ),
    ),
    "two classes": (
        "binary",
        lambda n: dtrees.GradientBoostingClassifier(
            n_estimators=n, max_leaf_nodes=6, learning_rate=0.01, n_iter_no_change=10**6, random_state=1
        ),
    ),
    "classes": (
        "multiclass",
        lambda n: dtrees.GradientBoostingClassifier(n_estimators=n, max_depth=2, colsample_bytree=0.7, learning_rate=0.01, random_state=2),
    ),
    "absolute error": (
        "regression",
        lambda n: dtrees.GradientBoostingRegressor(loss="absolute_error", n_estimators=n, max_depth=3, learning_rate=0.01, random_state=3),
    ),
}


def start(client: Client, name: str, folder: Path, *, weighted: bool = True) -> Running:
    client.run(_grow_together)
    return Running(client, *MODELS[name], folder, placement="rows", lengths=LENGTHS, weighted=weighted)


def _grow_together() -> None:
    """Have nodes grown by all shards together, but for small ones."""
    rows_tree.SENT_ROWS = 50


def has_spread(running: Running, times: int = 1) -> None:
    """Wait until workers that joined have rows, so many times."""
    wait_until(lambda: len(running.events("rows spread")) == times, 120)


def held_rows(running: Running) -> dict[str, int]:
    """What each worker has last been told to hold, in bytes."""
    return {worker: n_bytes for worker, (_, n_bytes) in running.events("holding")[-1]["workers"].items()}


@pytest.mark.parametrize("name", one_quick([*MODELS]))
def test_a_worker_that_joins_has_rows_from_the_next_tree_on(no_nannies: Client, tmp_path: Path, name: str) -> None:
    running = start(no_nannies, name, tmp_path, weighted=name != "classes")
    before = max(held_rows(running).values())
    with joining(no_nannies) as newcomer:
        has_spread(running)
        (spread,) = running.events("rows spread")
        assert list(spread["to"]) == [newcomer]
        assert spread["partitions"] >= 2
        assert 100 <= spread["rows"] <= 180, "about a third of 420"
        wait_until(lambda: running.shards() == 3, 30)
        held = held_rows(running)
        assert newcomer in held
        assert max(held.values()) < before
        running.goes_on()
        running.finish()


@pytest.mark.slow
def test_cells_on_disk_are_handed_over_too(no_nannies: Client, tmp_path: Path) -> None:
    with dask.config.set({"dtrees.storage": "disk"}):
        running = start(no_nannies, "squared error", tmp_path)
    assert running.events("placed")[-1]["storage"] == "disk"
    with joining(no_nannies):
        has_spread(running)
        wait_until(lambda: running.shards() == 3, 30)
        running.goes_on()
        running.finish()


@pytest.mark.slow
def test_two_workers_join_late_one_after_the_other(no_nannies: Client, tmp_path: Path) -> None:
    running = start(no_nannies, "squared error", tmp_path)
    no_nannies.run(_have_it_soon_again)
    wait_until(lambda: any(event["round"] > 200 for event in running.events("round")[-1:]))
    with joining(no_nannies) as first:
        has_spread(running)
        with joining(no_nannies) as second:
            has_spread(running, 2)
            assert [list(event["to"]) for event in running.events("rows spread")] == [[first], [second]]
            wait_until(lambda: running.shards() == 4, 30)
            running.goes_on()
            running.finish()


@pytest.mark.slow
def test_two_workers_join_together(no_nannies: Client, tmp_path: Path) -> None:
    running = start(no_nannies, "classes", tmp_path)
    with running.held(), contextlib.ExitStack() as stack:
        newcomers = [stack.enter_context(joining(no_nannies)) for _ in range(2)]
        keep = stack.pop_all()
    with keep:
        has_spread(running)
        assert sorted(running.events("rows spread")[0]["to"]) == sorted(newcomers)
        wait_until(lambda: running.shards() == 4, 30)
        running.goes_on()
        running.finish()


def _have_it_soon_again() -> None:
    settling._TIMES_AS_LONG = 0.1


@pytest.mark.parametrize(
    ("kind", "joined"), [("Introduce", True), ("Introduce", False), ("Replay", True), ("Replay", False), ("flags", True)]
)
@pytest.mark.slow
def test_one_dies_as_soon_as_rows_are_spread(no_nannies: Client, tmp_path: Path, kind: str, joined: bool) -> None:
    """Whose rows it then had are loaded again, on one of the others."""
    running = start(no_nannies, "two classes", tmp_path)
    workers = list(no_nannies.nthreads())
    fault = Fault(tmp_path, kind)
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(no_nannies))
            install(no_nannies, fault, workers=[newcomer] if joined else workers)
        wait_until(lambda: len(stopped(fault)) == 1, 120)
        wait_until(lambda: bool(running.events("shard moved")), 60)
        has_spread(running)
        assert (newcomer in no_nannies.nthreads()) != joined
        running.goes_on()
        running.finish()


@pytest.mark.parametrize(("number", "joined"), one_of_each([signal.SIGKILL, signal.SIGSTOP], [True, False], others=pytest.mark.thorough))
@pytest.mark.slow
def test_one_is_lost_while_rows_are_handed_over(no_nannies: Client, tmp_path: Path, number: signal.Signals, joined: bool) -> None:
    """Then they stay where they are; those of a lost worker are loaded by the newcomer."""
    running = start(no_nannies, "squared error", tmp_path)
    before = set(no_nannies.nthreads())
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(no_nannies))
            no_nannies.run(_lose, tmp_path / "lost", number, joined, workers=[newcomer] if joined else list(before))
        wait_until((tmp_path / "lost").exists, 120)
        if joined:
            running.goes_on()
            wait_until(lambda: newcomer not in no_nannies.nthreads() or number == signal.SIGSTOP, 60)
        else:
            wait_until(lambda: bool(running.events("shard moved")), 120)
        assert not running.events("rows spread")
        running.goes_on()
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "lost").read_text()), signal.SIGKILL)
        running.finish()


def _lose(marker: Path, number: signal.Signals, joined: bool) -> None:
    """Have a worker that is not the coordinator's get a signal when it is to load rows, or to give some."""
    lose_at(row_blocks if joined else rows_joining, "_load" if joined else "_only", marker, number)


@pytest.mark.slow
def test_rows_stay_where_they_are_if_the_newcomer_cannot_load_them(no_nannies: Client, tmp_path: Path) -> None:
    running = start(no_nannies, "squared error", tmp_path)
    with contextlib.ExitStack() as stack:
        with running.held():
            newcomer = stack.enter_context(joining(no_nannies))
            no_nannies.run(_load_nothing, tmp_path / "tried", workers=[newcomer])
        wait_until((tmp_path / "tried").exists, 120)
        running.goes_on()
        running.goes_on()
        assert not running.events("rows spread")
        assert running.shards() == 2
        running.finish()


def _load_nothing(marker: Path) -> None:
    def load(*args: Any) -> Any:
        marker.touch()
        raise OSError("this machine cannot read the table")

    module: Any = row_blocks
    module._load = load


# --- what is planned, and what is left ---


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("places", [[0, 1, 2, 3], [1, 3], [0], [2], []])
@pytest.mark.parametrize("disk", [False, True], ids=["in memory", "on disk"])
def test_a_block_of_some_partitions_is_that_of_their_rows(tmp_path: Path, dtype: Any, places: list[int], disk: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(dtype)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, 1] = np.round(X[:, 1])
    stretches, y = [(0, 10), (15, 16), (20, 20), (30, 59)], rng.normal(size=40)
    ends = np.cumsum([0, 10, 1, 0, 29])

    room = partial(on_disk, str(tmp_path)) if disk else mapped

    def block(some: list[int]) -> RowBlock:
        rows = np.concatenate([np.empty(0, np.int64), *(np.arange(ends[i], ends[i + 1]) for i in some)])
        columns = arrange_rows([list(X[rows].T)].__getitem__, [rows.shape[0]], 3, map, room)
        return RowBlock(columns, [stretches[i] for i in some], y[rows], 2 * y[rows])

    found, wanted = block([0, 1, 2, 3]).of_partitions(places), block(places)
    assert found.stretches == wanted.stretches
    assert is_on_disk(found.columns.codes) == (disk and bool(found.columns.n_rows))
    np.testing.assert_array_equal(found.target, wanted.target)
    np.testing.assert_array_equal(found.weight, wanted.weight)
    for j in range(3):
        values = [one.columns.values_of(j, one.columns.codes[j]) for one in (found, wanted)]
        np.testing.assert_array_equal(*values)
    if dtype is np.float64 and found.columns.n_rows:  # of what is gone, nothing is kept
        for name in ("codes", "words", "offsets"):
            np.testing.assert_array_equal(getattr(found.columns, name), getattr(wanted.columns, name))


GIGABYTES = 10**9


def planned(
    n_left: int,
    seconds_a_tree: float,
    free: tuple[float, float, float] = (9, 9, 9),
    n_trees: int = 1000,
    *,
    on_disk: bool = False,
    replays: bool = True,
) -> Any:
    """What newcomer ``c`` is given of six partitions of ten million rows each, half of them on ``a``, half on ``b``."""
    workers = {
        worker: {"nthreads": 1, "memory_limit": 10 * GIGABYTES / 0.8, "metrics": {"memory": (10 - space) * GIGABYTES}}
        for worker, space in zip("abc", free, strict=True)
    }
    million = 10**6
    # Ten bytes a cell, 10 columns.
    sizes = Sizes(60 * million, (600 * million,) * 10, 480 * million, GIGABYTES)
    stretches = [[(i * 10 * million, (i + 1) * 10 * million) for i in some] for some in ([0, 2, 4], [1, 3, 5])]
    encoding = SimpleNamespace(is_on_disk=on_disk)
    rows: Any = SimpleNamespace(stretches=stretches, workers=["a", "b"], n_rows=60 * million, n_columns=10, sizes=sizes, encoding=encoding)
    newcomers = RowNewcomers(n_trees, replays=replays)
    newcomers.have_settled("c", n_left + 10, {})
    return newcomers.plan(rows, workers, n_left, {"a": 10 * seconds_a_tree, "b": seconds_a_tree})


def test_it_has_to_be_worth_while_and_there_has_to_be_room() -> None:
    assert planned(990, 3.0).given == {"c": {0: [4], 1: [5]}}
    assert planned(990, 3.0).moved == 20 * 10**6
    assert planned(990, 3.0, free=(2, 9, 9)) is None, "what a giving worker keeps would be there twice for a moment"
    assert planned(990, 3.0, free=(9, 9, 3)) is None, "the newcomer can take one partition only, which leaves another as busy"
    assert planned(990, 3.0, free=(9, 9, 5), on_disk=True) is not None, "it has no cells in memory"
    assert planned(990, 3.0, free=(9, 9, 5)) is None
    assert planned(990, 0.03) is None, "it would save 9 seconds, and take some 30"
    assert planned(20, 3.0, n_trees=30) is None, "there are few trees left"
    assert planned(200, 3.0, n_trees=210) is not None
    assert planned(200, 3.0, n_trees=5000) is None, "4800 trees would have to be replayed"
    assert planned(200, 3.0, n_trees=5000, replays=False) is not None, "trees of a forest are not"
