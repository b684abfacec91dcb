"""Arrays on disk: they hold what arrays in memory do, leave nothing behind, and say what is wrong where there is no room."""

from __future__ import annotations

import errno
import mmap
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dtrees.split.table import disk_arrays
from dtrees.split.table.disk_arrays import NoRoomOnDisk, beside, forget, is_on_disk, on_disk
from dtrees.split.table.keyed_columns import arrange_rows, write_parts
from dtrees.split.table.mmap_arrays import mapped


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    array = on_disk(str(tmp_path), 1000, np.float64)
    array[:] = np.arange(1000)
    assert list(tmp_path.iterdir()) == []
    before = os.stat(tmp_path).st_mtime_ns
    del array
    assert list(tmp_path.iterdir()) == []
    assert os.stat(tmp_path).st_mtime_ns == before


@pytest.mark.parametrize("some", [slice(None), slice(3, 4), slice(5000, 9000), slice(9999, 10000), slice(0, 0)])
def test_what_is_forgotten_is_still_there(tmp_path: Path, some: slice) -> None:
    array = on_disk(str(tmp_path), 3 * 10_000, np.uint32).reshape(3, -1)
    array[:] = np.arange(30_000).reshape(3, -1)
    forget(array[1, some], array[2][some].view(np.float32), np.arange(4))
    np.testing.assert_array_equal(array, np.arange(30_000).reshape(3, -1))


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="pages cannot be given back here")
def test_what_is_forgotten_takes_no_memory(tmp_path: Path) -> None:
    n = 2**26
    process, array = psutil.Process(), on_disk(str(tmp_path), n, np.uint8)
    before = process.memory_info().rss
    array[:] = 1
    assert process.memory_info().rss > before + 0.9 * n
    forget(array[: n // 2])
    assert process.memory_info().rss < before + 0.6 * n
    forget(array)
    assert process.memory_info().rss < before + 0.1 * n
    assert array.all()


def test_memory_is_not_forgotten() -> None:
    """To the system, its pages would be zeros then."""
    array = mapped(2**20, np.int64)
    array[:] = 7
    forget(array)
    assert (array == 7).all()
    assert not is_on_disk(array)
    assert beside(array) is mapped


def test_where_arrays_are(tmp_path: Path) -> None:
    array = on_disk(str(tmp_path), 10, np.uint32)
    assert is_on_disk(array)
    assert is_on_disk(array.reshape(2, 5)[1].view(np.float32))
    assert not is_on_disk(array.copy())
    assert is_on_disk(beside(array[2:])(5, np.uint16))
    assert on_disk(str(tmp_path), 0, np.float32).shape == (0,)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NoRoomOnDisk, match=rf"{tmp_path} has no room for a file of 1,180,591,620,717,411,303,424 bytes|{tmp_path}"
    ) as error:
        on_disk(str(tmp_path), 2**60, np.uint8)
    assert "local-directory" in str(error.value)
    with pytest.raises(NoRoomOnDisk, match="nowhere has no room"):
        on_disk(str(tmp_path / "nowhere"), 8, np.uint8)


def test_more_files_than_a_process_may_have_open_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, tries = disk_arrays._make_file, []

    def fail(folder: str, n_bytes: int) -> Any:
        tries.append(n_bytes)
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return make(folder, n_bytes)

    monkeypatch.setattr(disk_arrays, "_make_file", fail)
    monkeypatch.setattr(disk_arrays, "_allow_more_files", lambda: False)
    with pytest.raises(NoRoomOnDisk, match="Too many open files"):
        on_disk(str(tmp_path), 8, np.uint8)
    tries.clear()
    monkeypatch.setattr(disk_arrays, "_allow_more_files", lambda: True)
    assert on_disk(str(tmp_path), 8, np.uint8).shape == (8,)


TABLES = {
    "keyed": [np.array([1.5, np.nan, -0.0, 0.0, 7.0]), np.arange(5), np.full(5, np.nan)],
    "sorted": [np.array([1.1, np.nan, 0.0, -0.0, 1.1]), np.arange(5) * 2**40, np.array([1, 0, 1, 0, 0], np.float32)],
}


@pytest.mark.parametrize("name", TABLES)
def test_columns_on_disk_are_those_in_memory(tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    cut: list[list[NDArray[Any]]] = [[column[some] for column in table] for some in (slice(0, 2), slice(2, 2), slice(2, 5))]
    there = arrange_rows(cut.__getitem__, [2, 0, 3], 3, room=partial(on_disk, str(tmp_path)))
    here = arrange_rows(cut.__getitem__, [2, 0, 3], 3)
    assert is_on_disk(there.codes)
    assert there.is_keyed == here.is_keyed == (name == "keyed")
    assert is_on_disk(there.words) == (name == "sorted")
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
    first_codes, n_parts = np.array([[0, 1, here.missing(j)] for j in range(3)]), np.array([2, 2, 0])
    parts = write_parts(there, first_codes, n_parts)
    assert is_on_disk(parts)
    np.testing.assert_array_equal(parts, write_parts(here, first_codes, n_parts))
