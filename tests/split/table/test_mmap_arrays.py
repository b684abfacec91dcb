"""Arrays whose memory goes back to the system."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from dtrees.split.table.mmap_arrays import Reused, mapped


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
