"""Shards whose cells are on disk: they are read in sequence."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtrees.engine.shard import passes
from dtrees.engine.shard.passes import by_column, by_rows
from dtrees.split.table.mmap_arrays import on_disk
from tests.engine.problems import read_little_at_a_time


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays that are forgotten, in order."""
    seen: list[Any] = []
    monkeypatch.setattr(passes, "forget", lambda *arrays: seen.extend(arrays))
    return seen


@pytest.mark.parametrize("n_bytes", [1, 2 * 4 * 50, 2**20])
def test_columns_are_read_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: list[Any], n_bytes: int) -> None:
    read_little_at_a_time(monkeypatch, n_bytes)
    codes = on_disk(str(tmp_path), 6 * 50, np.uint32).reshape(6, 50)
    codes[:] = np.arange(6)[:, None]
    column = np.array([5, 0, 2, 5, 0, 3, 2])
    groups = list(by_column(codes, column))
    assert sorted(np.concatenate(groups).tolist()) == list(range(7))  # each task once
    read = [set(column[group].tolist()) for group in groups]
    assert all(max(one) < min(other) for one, other in itertools.pairwise(read))
    at_once = {1: 1, 400: 2, 2**20: 6}[n_bytes]
    assert len(groups) == len(set((column // at_once).tolist()))
    for some, rows in zip(read, forgotten, strict=True):
        assert some <= set(rows[:, 0].tolist())
        assert rows.shape[0] <= at_once
    assert list(by_column(codes, column[:0])) == []
    assert list(by_column(codes.copy(), column)) == [slice(None)]


@pytest.mark.parametrize("n_bytes", [1, 100, 2**20])
def test_rows_are_read_by_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_bytes: int) -> None:
    read_little_at_a_time(monkeypatch, n_bytes)
    rng, n_rows = np.random.default_rng(0), 97
    parts = on_disk(str(tmp_path), n_rows * 3, np.uint16).reshape(n_rows, 3)
    side = rng.integers(0, 3, n_rows)
    rows = np.concatenate([np.flatnonzero(side == i) for i in range(3)]).astype(np.uint32)
    stop = np.cumsum(np.bincount(side, minlength=3))
    start = np.concatenate([[0], stop[:-1]])
    found: list[list[int]] = [[], [], []]
    last = -1
    for begin, end in by_rows(parts, n_rows, rows, start, stop):
        span = [rows[a:b].tolist() for a, b in zip(begin, end, strict=True)]
        mine = sorted(row for some in span for row in some)
        assert not mine or mine[0] > last
        assert not mine or (mine[-1] - mine[0] + 1) * 6 <= max(6, n_bytes)
        last = mine[-1] if mine else last
        for i, some in enumerate(span):
            found[i] += some
    assert found == [rows[a:b].tolist() for a, b in zip(start, stop, strict=True)]
    ((begin, end),) = by_rows(parts.copy(), n_rows, rows, start, stop)
    assert begin is start
    assert end is stop
