"""Fits by rows: every byte equals a local fit, for any workers and losses, with data in memory or on workers' disks."""

import errno
import functools
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Worker, WorkerPlugin

import dtrees
from dtrees import GradientBoostingRegressor
from dtrees.cluster.dashboard import FitHistory
from dtrees.cluster.data.rows import EncodedPartition
from dtrees.cluster.transport.peers import PeerLost, Peers
from dtrees.engine.protocol.exchange import Shards
from dtrees.engine.rows import tree as rows_tree
from dtrees.split.table.mmap_arrays import NoSpaceOnDisk, is_on_disk
from tests import cases
from tests.cases import CASES, FIRST_OF_KIND, HELD_OUT, N_ROWS, TARGETS, TRAIN, check
from tests.cluster.faults import Cut, Fault, cut_off, install, stopped
from tests.cluster.samples import assert_clean, events, in_partitions
from tests.slow import thorough_for

pytestmark = pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")

QUICK, SETS, BY_ORDER = "boosting, best first", "boosting with categories", "boosting of several targets"


def fit(name: str) -> Any:
    """Fit a case from seven partitions, some of which are empty."""
    return cases.fit(CASES[name], 7)


@pytest.fixture
def by_rows() -> Iterator[None]:
    with dask.config.set({"dtrees.placement": "rows"}):
        yield


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small nodes are few: most nodes are grown by all shards together; for workers in this process."""
    monkeypatch.setattr("dtrees.engine.rows.tree.SENT_ROWS", N_ROWS // 10)
    monkeypatch.setattr("dtrees.engine.rows.tree.rows_to_send", lambda plan, n_rows, n_shards: N_ROWS // 10)
    monkeypatch.setattr("dtrees.engine.rows.searcher.ROWS_PER_FINER_PART", 1)
    monkeypatch.setattr("dtrees.engine.rows.searcher.FEWEST_FINER_PARTS", 1)


@pytest.fixture
def _on_disk() -> Iterator[None]:
    with dask.config.set({"dtrees.storage": "disk"}):
        yield


class _FewRows(WorkerPlugin):
    """Small nodes are few, in every process of a cluster: also in those that nannies start later, as all shards must agree."""

    def setup(self, worker: Worker) -> None:
        rows_tree.SENT_ROWS = N_ROWS // 10


def test_three_workers(client: Client, by_rows: None) -> None:
    """Rows of a partition are on the worker that had it."""
    model = fit(QUICK)
    check(model, QUICK)
    assert model.placement_.kind == "rows"
    (holding,) = events(client, "holding")
    assert len(holding["workers"]) == 3
    assert sum(holding["rows_of"].values()) == holding["rows"] > max(holding["rows_of"].values())
    assert_clean(client)


def test_a_forest(five_threads: Client, by_rows: None, few_rows: None) -> None:
    model = fit("forest")
    check(model, "forest")
    assert model.placement_.kind == "rows"
    with pytest.raises(AttributeError, match="drawn by weights or classes that are on a cluster"):
        model.estimators_samples_  # noqa: B018
    assert_clean(five_threads, in_processes=False)


#: Reasons why some cases cannot be grown by rows.
NOT_BY_ROWS = {
    "isolation forest, by weight": "sample_weight without bootstrap",
    "tree of absolute error": "criterion='absolute_error'",
    "forest of absolute error": "criterion='absolute_error'",
    "forest by quantile, in order": "criterion='quantile'",
    "tree of medians of several targets": "criterion='absolute_error'",
    "forest of medians in order": "criterion='absolute_error'",
}
#: Cases with steps of their own by rows.
BY_ROWS = {"forest in order", "boosting of classes by an objective", "boosting of several targets by an objective"}
#: Cases whose kernels differ from others in the criterion alone, which is tested by zones (test_bounds.py, test_forests_by_rows.py).
BY_CRITERION = {"tree by entropy", "boosting with an L1 penalty"}


@pytest.mark.slow
@pytest.mark.parametrize("name", thorough_for(CASES.keys() - FIRST_OF_KIND - NOT_BY_ROWS.keys() - BY_ROWS | BY_CRITERION, CASES))
def test_five_workers(five_threads: Client, by_rows: None, few_rows: None, name: str) -> None:
    if name not in NOT_BY_ROWS:
        check(fit(name), name)
        return
    with pytest.raises(ValueError, match=f"placement is 'rows', but {NOT_BY_ROWS[name]}"):
        fit(name)


@pytest.mark.slow
def test_a_row_a_worker(client: Client, by_rows: None) -> None:
    X, y = pd.DataFrame({"a": [1.0, 2.0, 3.0]}), pd.Series([0.0, 0.0, 1.0])
    model = GradientBoostingRegressor(n_estimators=3, min_samples_leaf=1, max_features=None)
    ours = model.fit(in_partitions(X, [1, 1, 1]), in_partitions(y, [1, 1, 1]))
    np.testing.assert_array_equal(ours.predict(X), model.fit(X, y).predict(X))


@pytest.mark.slow
def test_a_fit_that_is_cut_short_goes_on_elsewhere(client: Client, tmp_path: Path) -> None:
    """The checkpoint of a fit by rows equals that of the same fit with any other placement."""
    path, lengths = tmp_path / "checkpoint", [1, 0, N_ROWS - 21, 20]

    def boost(placement: str, n_estimators: int, **options: Any) -> Any:
        model = GradientBoostingRegressor(
            n_estimators=n_estimators, max_depth=4, categorical_features=None, max_features=None, random_state=5
        )
        X, y = in_partitions(TRAIN, lengths), in_partitions(TARGETS["regression"], lengths)
        return model.fit(X, y, checkpoint=path, checkpoint_interval=0.0, placement=placement, **options)

    boost("rows", 6, callbacks=[_after_three])
    (left,) = {path.read_bytes()}
    ours = boost("sharded", 6)
    assert path.read_bytes() != left
    here = GradientBoostingRegressor(n_estimators=6, max_depth=4, categorical_features=None, max_features=None, random_state=5)
    np.testing.assert_array_equal(ours.predict(HELD_OUT), here.fit(TRAIN, TARGETS["regression"]).predict(HELD_OUT))


def _after_three(progress: Any) -> bool:
    return progress.done == 3


#: For each case a message, or step, at which a worker is lost; shards of one process are lost at nearly all (test_lost_shards.py).
#: Detection of a loss does not depend on the message, nor recovery on the kind of loss: only at few messages are workers silent instead
#: of killed, which takes waiting.
LOSSES = [
    *((SETS, Cut(kind)) for kind in ("Open", "held out")),
    *((SETS, Cut(kind, 3)) for kind in ("level", "sums", "delegated")),
    *((QUICK, Cut(kind, 3)) for kind in ("finer flags", "picked of batch 1")),
    *((BY_ORDER, Cut(kind, 3)) for kind in ("deviations", "scores")),
    *(("forest", Cut(kind, at)) for kind, at in (("GrowTrees", 1), ("means", 3))),
    ("forest of several targets of classes", Cut("draws", 3)),
    (SETS, Cut("sums", 3, "unheard")),
    ("forest", Cut("drawn", 3, "unheard")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cut"), LOSSES, ids=str)
def test_a_worker_is_lost(
    five_threads: Client, by_rows: None, few_rows: None, monkeypatch: pytest.MonkeyPatch, name: str, cut: Cut
) -> None:
    monkeypatch.setattr("dtrees.cluster.growing.actors._SECONDS_TO_EXPLAIN", 0.5)  # the scheduler is in this process
    if "of batch" in cut.kind:
        monkeypatch.setattr("dtrees.engine.rows.rows_in_tree.flagged_bytes", lambda n_rows, n_columns: 200)
    with cut_off(cut) as done:
        check(fit(name), name)
    assert done == [cut]
    assert_clean(five_threads, in_processes=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "storage", "faults"),
    [
        ("forest", "memory", [{"kind": "drawn"}]),
        ("forest", "memory", [{"kind": "means", "own": True}]),
        (SETS, "memory", [{"kind": "flags", "at": 9}, {"kind": "Replay"}]),
        (QUICK, "memory", [{"kind": "picked", "at": 5, "number": signal.SIGSTOP}]),
        (SETS, "memory", [{"kind": "bars", "at": 7, "own": True}]),
        *((SETS, "disk", [fault]) for fault in ({"kind": "Open"}, {"kind": "flags", "at": 9})),
        ("forest", "disk", [{"kind": "AddVotes"}]),
    ],
    ids=str,
)
def test_a_process_gets_a_signal(
    mortal_client: Client, by_rows: None, tmp_path: Path, name: str, storage: str, faults: list[dict[str, Any]]
) -> None:
    """A worker is killed, or stopped and resumed later; the coordinator's, or another; one more during replay."""
    script = [Fault(tmp_path, **fault) for fault in faults]
    install(mortal_client, *script)
    mortal_client.register_plugin(_FewRows())
    try:
        with dask.config.set({"dtrees.storage": storage, "dtrees.patience": 3.0 if script[0].number == signal.SIGSTOP else 20.0}):
            model = fit(name)
    finally:
        for process in stopped(*script) if script[0].number == signal.SIGSTOP else []:
            os.kill(process, signal.SIGCONT)
    check(model, name)
    assert model.placement_.storage == storage
    assert len(stopped(*script)) == len(script)
    assert_clean(mortal_client)


def test_the_time_of_a_slow_worker_is_told_as_its_own(five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the events of rounds and the dashboard: a worker that takes longer for each of its steps than the others."""
    original, slept = Shards.step, [0.0]

    def step_slowly(self: Shards, *arguments: Any) -> Any:
        if self.shard == 1:
            time.sleep(0.02)
            slept[0] += 0.02
        return original(self, *arguments)

    monkeypatch.setattr(Shards, "step", step_slowly)
    check(fit(QUICK), QUICK)
    event = events(five_threads, "round")[-1]
    history = FitHistory("fit", "GradientBoostingRegressor", "round")
    history.take(event)
    slow = max(event["scan"], key=lambda worker: event["scan"][worker])
    assert slept[0] > 0.1
    assert event["scan"][slow] >= slept[0], "what it took itself is not waiting"
    assert history.workers[slow].scan == event["scan"][slow]
    assert set(event["wait"]) == set(event["scan"])


@pytest.mark.slow
def test_a_connection_that_breaks_costs_a_tree(five_threads: Client, by_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that live but could not reach each other once are asked again."""
    original, broken = Peers.send, []

    def send(self: Peers, calls: Any) -> None:
        if calls and not broken:
            broken.append(self)
            raise PeerLost("the cable is out")
        original(self, calls)

    monkeypatch.setattr(Peers, "send", send)
    check(fit(SETS), SETS)
    assert broken
    monkeypatch.setattr(Peers, "send", functools.partialmethod(_fails))
    with (
        pytest.raises(dtrees.cluster.errors.WorkerLost, match="could not reach one another 4 times"),
        dask.config.set({"dtrees.max-restarts": 3}),
    ):
        fit(SETS)


def _fails(self: Any, calls: Any) -> None:
    raise PeerLost("there is no cable")


def test_what_rows_cannot_do(client: Client) -> None:
    X, y = in_partitions(TRAIN, [N_ROWS]), in_partitions(TARGETS["regression"], [N_ROWS])
    n_events = len(client.get_events("dtrees"))
    with pytest.raises(ValueError, match="'rows', but criterion='absolute_error' .*; wants one of auto, one-worker, replicated, sharded$"):
        dtrees.ExtraTreesRegressor(2, criterion="absolute_error").fit(X, y, placement="rows")
    assert len(client.get_events("dtrees")) == n_events  # the fit is not submitted


@pytest.mark.slow
def test_auto_takes_rows_where_they_are_fastest_and_can_be(five_threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtrees.cluster.data.memory.seconds_by_rows", lambda rows, n_columns, threads: 1e-9)
    model = fit(SETS)
    assert model.placement_.kind == "rows"
    assert model.placement_.predicted["rows"] == 1e-9 < model.placement_.predicted["one-worker"]
    assert "predicted seconds a tree: one-worker " in str(model.placement_)
    check(model, SETS)
    monkeypatch.setattr("dtrees.split.zones.sums.MAX_PACKED_ROWS", N_ROWS)
    assert fit(SETS).placement_.kind != "rows"
    with (
        dask.config.set({"dtrees.placement": "rows"}),
        pytest.raises(ValueError, match=f"'rows', but X has {N_ROWS} rows, .* below {N_ROWS}; wants one of auto, one-worker, sharded$"),
    ):
        fit(SETS)


# --- cells on workers' disks ---


@pytest.mark.usefixtures("_on_disk")
def test_cells_on_disk(client: Client) -> None:
    model = fit(QUICK)
    check(model, QUICK)
    assert model.placement_.storage == "disk"
    assert str(model.placement_) == "rows on 3 workers, with cells on disk: as asked for by placement"
    assert events(client, "placed")[-1]["storage"] == "disk"
    assert_clean(client)
    assert set(client.run(_open_files).values()) == {0}


def _open_files(dask_worker: Any) -> int:
    """Return how many files without a name this worker has in its folder."""
    folder = Path("/proc/self/fd")
    links = [os.readlink(file) for file in folder.iterdir() if file.exists() or file.is_symlink()] if folder.exists() else []
    return sum(link.startswith(dask_worker.local_directory) and link.endswith("(deleted)") for link in links)


@pytest.mark.usefixtures("_on_disk")
def test_a_full_disk(five_threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", _is_full)
    with pytest.raises(NoSpaceOnDisk, match=r"the folder \S+ has no room for a file of [\d,]+ bytes \(No space left on device\)"):
        fit(SETS)
    assert_clean(five_threads, in_processes=False)


def _is_full(file: int, offset: int, n: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_chunk_that_moves_is_in_memory(client: Client) -> None:
    columns = [np.arange(5, dtype=np.int8), np.array([0.5, np.nan, 1.0, 2.0, 3.0]), np.zeros(5, np.float32)]
    one, other, _ = client.nthreads()
    encoded = client.submit(EncodedPartition, columns, workers=[one], pure=False)
    assert client.submit(_is_there, encoded, columns, on_disk=True, workers=[one], pure=False).result(timeout=60)
    assert client.submit(_is_there, encoded, columns, on_disk=False, workers=[other], pure=False).result(timeout=60)


def _is_there(encoded: EncodedPartition, columns: list[Any], on_disk: bool) -> bool:
    for mine, column in zip(encoded.columns, columns, strict=True):
        np.testing.assert_array_equal(mine, column)
        assert mine.dtype == column.dtype
        assert is_on_disk(mine) == on_disk
    assert sys.getsizeof(encoded) < 100 + (not on_disk) * sum(column.nbytes for column in columns)
    return True


def test_settings_of_storage(client: Client) -> None:
    X, y = in_partitions(TRAIN, [N_ROWS]), in_partitions(TARGETS["regression"], [N_ROWS])
    with dask.config.set({"dtrees.storage": "tape"}), pytest.raises(ValueError, match="storage is 'tape'; wants one of auto, memory, disk"):
        dtrees.submit(GradientBoostingRegressor(), X, y)
    with (
        dask.config.set({"dtrees.storage": "disk"}),
        pytest.raises(ValueError, match="storage is 'disk', and placement is 'sharded': cells are on disk only where rows stay"),
    ):
        dtrees.submit(GradientBoostingRegressor(), X, y, placement="sharded")
    assert_clean(client)
