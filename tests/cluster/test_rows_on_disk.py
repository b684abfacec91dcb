"""Boosting over rows whose cells are on workers' disks: the same model, also of tables that no memory holds, and if workers are lost."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

import dtrees
from dtrees import GradientBoostingRegressor
from dtrees.cluster.data.tables import Piece
from dtrees.split.table.mmap_arrays import NoRoomOnDisk, is_on_disk
from tests.cluster.cases import N_ROWS, TARGETS, TRAIN
from tests.cluster.faults import Fault, install, stopped
from tests.cluster.samples import assert_clean, events, in_partitions
from tests.cluster.test_rows import CASES, PARTS, _grow_together, check, fit
from tests.slow import thorough_for

#: To what reads the cells, these are the same as others.
LIKE_OTHERS = {"classes", "rows and columns drawn, in order", "forest of several targets", "Poisson, evaluated"}


@pytest.fixture
def _on_disk() -> Any:
    with dask.config.set({"dtrees.storage": "disk"}):
        yield


@pytest.mark.usefixtures("_on_disk")
def test_cells_on_disk(client: Client) -> None:
    model = fit(CASES["squared error"], PARTS[7])
    check(model, "squared error")
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


@pytest.mark.slow
@pytest.mark.usefixtures("_on_disk")
@pytest.mark.parametrize("name", thorough_for(LIKE_OTHERS, CASES))
def test_cells_on_disk_of_five_workers(five_threads: Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("dtrees.engine.rows.tree.SENT_ROWS", N_ROWS // 10)
    monkeypatch.setattr("dtrees.engine.rows.passes.DISK_BYTES", 1024)
    check(fit(CASES[name], PARTS[7]), name)


@pytest.mark.slow
@pytest.mark.usefixtures("_on_disk")
@pytest.mark.parametrize(
    ("name", "kind", "at"),
    [
        ("squared error", "Open", 1), ("squared error", "flags", 9), ("squared error", "GrowTree", 3),
        ("forest", "Open", 1), ("forest", "flags", 3), ("forest", "AddVotes", 1),
    ],
)  # fmt: skip
def test_rows_of_a_lost_worker_are_put_on_another_disk(mortal_client: Client, tmp_path: Path, name: str, kind: str, at: int) -> None:
    fault = Fault(tmp_path, kind, at=at)
    install(mortal_client, fault)
    mortal_client.run(_grow_together)
    model = fit(CASES[name], PARTS[7])
    check(model, name)
    assert len(stopped(fault)) == 1
    assert model.placement_.storage == "disk"
    assert_clean(mortal_client)


@pytest.mark.usefixtures("_on_disk")
def test_a_full_disk(five_threads: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", _is_full)
    with pytest.raises(NoRoomOnDisk, match=r"the folder \S+ has no room for a file of [\d,]+ bytes \(No space left on device\)"):
        fit(CASES["squared error"], PARTS[4])
    assert_clean(five_threads, in_processes=False)


def _is_full(file: int, offset: int, n: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_piece_that_moves_is_in_memory(client: Client) -> None:
    columns = [np.arange(5, dtype=np.int8), np.array([0.5, np.nan, 1.0, 2.0, 3.0]), np.zeros(5, np.float32)]
    one, other, _ = client.nthreads()
    piece = client.submit(Piece, columns, workers=[one], pure=False)
    assert client.submit(_is_there, piece, columns, on_disk=True, workers=[one], pure=False).result(timeout=60)
    assert client.submit(_is_there, piece, columns, on_disk=False, workers=[other], pure=False).result(timeout=60)


def _is_there(piece: Piece, columns: list[Any], on_disk: bool) -> bool:
    for mine, column in zip(piece.columns, columns, strict=True):
        np.testing.assert_array_equal(mine, column)
        assert mine.dtype == column.dtype
        assert is_on_disk(mine) == on_disk
    assert sys.getsizeof(piece) < 100 + (not on_disk) * sum(column.nbytes for column in columns)
    return True


def test_settings_of_storage(client: Client) -> None:
    X, y = in_partitions(TRAIN, PARTS[1]), in_partitions(TARGETS["regression"], PARTS[1])
    with dask.config.set({"dtrees.storage": "tape"}), pytest.raises(ValueError, match="storage is 'tape'; wants one of auto, memory, disk"):
        dtrees.submit(GradientBoostingRegressor(), X, y)
    with (
        dask.config.set({"dtrees.storage": "disk"}),
        pytest.raises(ValueError, match="storage is 'disk', and placement is 'sharded': cells are on disk only where rows stay"),
    ):
        dtrees.submit(GradientBoostingRegressor(), X, y, placement="sharded")
    assert_clean(client)
