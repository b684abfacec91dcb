"""Rows listed part by part, against rows looked at one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.split.compile.work_queue import make_queue
from dtrees.split.table.keyed_columns import NO_LISTS, are_listed, list_parts, take_listed
from dtrees.split.zones.sums import note_places

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
