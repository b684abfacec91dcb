"""Arrays whose memory returns to the system.

Arrays on disk: they have the same content as arrays in memory, leave nothing behind, and report missing space.
"""

import errno
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dtrees.split.table import mmap_arrays
from dtrees.split.table.keyed_columns import arrange_rows, write_parts
from dtrees.split.table.mmap_arrays import NoSpaceOnDisk, Reused, beside, forget, is_on_disk, mapped, on_disk


@pytest.mark.parametrize("n", [0, 1, 7, 2**16, 2**21 + 3])
@pytest.mark.parametrize("dtype", [np.uint16, np.float64])
@pytest.mark.parametrize("large_pages", [False, True])
def test_mapped_arrays_are_as_others(n: int, dtype: type, large_pages: bool) -> None:
    array, other = mapped(n, dtype, large_pages), mapped(n, dtype, large_pages)
    assert array.shape == (n,)
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.aligned
    assert array.flags.writeable
    array[:] = np.arange(n) % 1000
    other[:] = 1001
    assert np.array_equal(array, (np.arange(n) % 1000).astype(dtype))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")
def test_memory_of_a_thread_goes_back() -> None:
    def resident() -> int:
        return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:"))

    def use(_: int) -> int:
        arrays = [mapped(2**21, np.float64) for _ in range(4)]
        for array in arrays:
            array[:] = 1.0
        return resident()

    with ThreadPoolExecutor(1) as pool:
        list(pool.map(use, [0]))
        before = resident()
        during = next(iter(pool.map(use, [0])))
        after = resident()
    assert during - before > 60_000
    assert after - before < 10_000


def test_reused_ones_are_used_by_one_at_a_time() -> None:
    made: list[list[int]] = []

    def make() -> list[int]:
        made.append([])
        return made[-1]

    things = Reused(make)
    with things.one() as first, things.one() as second:
        assert first is not second
    with things.one() as third:
        assert any(third is thing for thing in (first, second))
    assert len(made) == 2
    things.forget()
    with things.one() as fourth:
        assert fourth is made[2]


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
    """For the system, its pages would then be zeros."""
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
        NoSpaceOnDisk, match=rf"{tmp_path} has no room for a file of 1,180,591,620,717,411,303,424 bytes|{tmp_path}"
    ) as error:
        on_disk(str(tmp_path), 2**60, np.uint8)
    assert "local-directory" in str(error.value)
    with pytest.raises(NoSpaceOnDisk, match="nowhere has no room"):
        on_disk(str(tmp_path / "nowhere"), 8, np.uint8)


def test_more_files_than_a_process_may_have_open_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, tries = mmap_arrays._make_file, []

    def fail(folder: str, n_bytes: int) -> Any:
        tries.append(n_bytes)
        if len(tries) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return make(folder, n_bytes)

    monkeypatch.setattr(mmap_arrays, "_make_file", fail)
    monkeypatch.setattr(mmap_arrays, "_allow_more_files", lambda: False)
    with pytest.raises(NoSpaceOnDisk, match="Too many open files"):
        on_disk(str(tmp_path), 8, np.uint8)
    tries.clear()
    monkeypatch.setattr(mmap_arrays, "_allow_more_files", lambda: True)
    assert on_disk(str(tmp_path), 8, np.uint8).shape == (8,)


TABLES = {
    "keyed": [np.array([1.5, np.nan, -0.0, 0.0, 7.0]), np.arange(5), np.full(5, np.nan)],
    "sorted": [np.array([1.1, np.nan, 0.0, -0.0, 1.1]), np.arange(5) * 2**40, np.array([1, 0, 1, 0, 0], np.float32)],
}


@pytest.mark.parametrize("name", TABLES)
def test_columns_on_disk_are_those_in_memory(tmp_path: Path, name: str) -> None:
    table = TABLES[name]
    cut: list[list[NDArray[Any]]] = [[column[some] for column in table] for some in (slice(0, 2), slice(2, 2), slice(2, 5))]
    there = arrange_rows(cut.__getitem__, [2, 0, 3], 3, allocate=partial(on_disk, str(tmp_path)))
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
