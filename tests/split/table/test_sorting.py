"""Rows sorted, summed by value and listed part by part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.keyed_columns import NO_LISTS, are_listed, list_parts, take_listed
from dtrees.split.table.sorting import BIN, RADIX, fill_bins, prefers_bins, sort_places
from dtrees.split.zones.sums import note_places

# --- sums by distinct value, against a dictionary; and the sort, against a stable one ---


def groups_of(
    codes: NDArray[np.uint32], n_distinct: int, partition: RowPartition, start: int, in_stop: int
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    garbage = np.full(n_distinct + 1, 7, BIN)
    m, missing = fill_bins(codes, n_distinct, partition, start, in_stop, garbage)
    return garbage[["code", "g", "h", "n"]][:m].tolist(), tuple(int(x) for x in missing)


def naive_groups(
    codes: NDArray[np.uint32], n_distinct: int, partition: RowPartition, start: int, in_stop: int
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    sums: dict[int, list[int]] = {}
    for place in range(start, in_stop):
        mine = sums.setdefault(int(codes[partition.rows[place]]), [0, 0, 0])
        mine[0] += int(partition.g[place])
        mine[1] += int(partition.h[place]) if partition.h.shape[0] else 1
        mine[2] += 1
    missing = tuple(sums.pop(n_distinct, [0, 0, 0]))
    return [(code, *sums[code]) for code in sorted(sums)], missing


def make(n: int, n_distinct: int, weighted: bool, missing: float, seed: int) -> tuple[NDArray[np.uint32], RowPartition]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, max(n_distinct, 1), n).astype(np.uint32)
    codes[rng.random(n) < missing] = n_distinct
    if n_distinct == 0:
        codes[:] = 0
    a = rng.integers(-(2**60) // n, 2**60 // n, n)
    b = rng.integers(0, 2**60 // n, n) if weighted else np.empty(0, np.int64)
    return codes, RowPartition(rng.permutation(n).astype(np.uint32), a, b)


@given(
    st.integers(1, 70),
    st.sampled_from([0, 1, 2, 3, 30, 70, 500]),
    st.booleans(),
    st.sampled_from([0.0, 0.2, 0.9, 1.0]),
    st.integers(0, 2**20),
)
def test_bins(n: int, n_distinct: int, weighted: bool, missing: float, seed: int) -> None:
    codes, partition = make(n, n_distinct, weighted, missing, seed)
    for start, in_stop in ((0, n), (n // 3, n - n // 4)):
        assert groups_of(codes, n_distinct, partition, start, in_stop) == naive_groups(codes, n_distinct, partition, start, in_stop)


@kernel
def sort(codes, rows, start, in_stop, keys, spare, counts):  # type: ignore[no-untyped-def]
    """Call parts of kernels, which Python cannot call."""
    sort_places(codes, rows, start, in_stop, keys, spare, counts)


@pytest.mark.parametrize("n", [0, 1, 2, 23, 24, 25, 26, 500, 1023, 1024, 5000])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 6), (0, 255), (0, 256), (1000, 1255), (0, 2047), (7, 70_000), (0, 2**32 - 1)])
def test_sort_places(n: int, low: int, high: int) -> None:
    """Insertion sort, no pass at all, and one to four passes of the radix sort; stable."""
    rng = np.random.default_rng(n)
    check_sort(rng.integers(low, high + 1, n + 10).astype(np.uint32), n, low, high, rng)


@pytest.mark.parametrize("n", [511, 512, 513, 5000])
@pytest.mark.parametrize("share", [0.4, 0.5, 0.7, 0.99, 1.0])
@pytest.mark.parametrize(
    ("low", "high", "common"),
    [(0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 70_000, 0), (7, 70_000, 300), (7, 70_000, 70_000), (0, 2**32 - 1, 2**32 - 1)],
)
def test_sort_where_many_have_one_code(n: int, share: float, low: int, high: int, common: int) -> None:
    rng = np.random.default_rng(n)
    codes = rng.integers(low, high + 1, n + 10).astype(np.uint32)
    codes[rng.random(n + 10) < share] = common
    check_sort(codes, n, low, high, rng)


def check_sort(codes: NDArray[np.uint32], n: int, low: int, high: int, rng: np.random.Generator) -> None:
    start = 4
    rows = rng.permutation(codes.shape[0]).astype(np.uint32)
    codes[rows[start : start + 2]] = high, low
    keys, spare = np.empty(n + 1, np.uint64), np.empty(n + 1, np.uint64)
    sort(codes, rows, start, start + n, keys, spare, np.empty(RADIX, np.int64))
    sorted_keys = keys[:n]
    mine = codes[rows[start : start + n]]
    order = np.argsort(mine, kind="stable")
    assert (sorted_keys & np.uint64(0xFFFFFFFF)).tolist() == order.tolist()
    assert (sorted_keys >> np.uint64(32)).tolist() == mine[order].tolist()


def test_bins_are_never_many_times_the_rows() -> None:
    """The size of scratch space depends on it."""
    assert prefers_bins(10, 40)
    assert not prefers_bins(10, 41)


# --- rows listed part by part, compared with reading rows one by one ---


N_PARTS = np.array([64, 16, 0])


@pytest.mark.parametrize("n", [0, 1, 5000, 2**16, 2**16 + 3, 140_000])
def test_rows_of_a_node_in_parts(n: int) -> None:
    rng = np.random.default_rng(n)
    part = np.stack([rng.integers(0, most + 1, n) for most in N_PARTS], axis=1).astype(np.uint16)
    lists = list_parts(part, N_PARTS, lambda n_tasks, work: work(make_queue(), 0))
    place_of, rows = lists.place_of, rng.permutation(n)[: n // 2].astype(np.uint32)
    place_of[:] = 0xFFFFFFFF
    note_places(place_of, rows, 0, rows.shape[0])
    start, stop = n // 8, n // 4
    for column, shift, wanted in ((0, 0, [3, 4, 60]), (0, 2, [0, 15]), (1, 1, [7]), (1, 0, [])):
        keys, ends, parts = np.zeros(n + 1, np.uint64), np.zeros(3, np.int64), np.array(wanted, np.int64)
        with np.errstate(over="ignore"):
            n_keys = take_listed.py_func(lists, column, shift, parts, start, stop, keys, ends)
        found = [sorted((int(key) >> 32, int(key) % 2**32) for key in some) for some in np.split(keys[:n_keys], ends[: len(wanted)])]
        mine = part[rows[start:stop], column] >> shift
        expected = [sorted((int(rows[start + i]), i) for i in np.flatnonzero(mine == one).tolist()) for one in wanted]
        assert found == [*expected, []]


def test_lists_are_used_where_few_rows_are_listed() -> None:
    n = 10_000
    part = np.zeros((n, 1), np.uint16)
    part[: n // 2, 0] = 1
    part[:20, 0] = 2
    lists = list_parts(part, np.array([3]), lambda n_tasks, work: work(make_queue(), 0))
    for parts, n_rows, expected in (([2], n, True), ([2], 200, True), ([2], 50, False), ([0, 1], n, True), ([0, 1], n // 8, False)):
        assert are_listed.py_func(lists, 0, 0, np.array(parts), n_rows) == expected
        assert not are_listed.py_func(NO_LISTS, 0, 0, np.array(parts), n_rows)
