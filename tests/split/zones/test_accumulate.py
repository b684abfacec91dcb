"""Rows added to zone sums and taken from them, against NumPy's sums."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.compile.kernels import kernel
from dtrees.split.node.partition import RowPartition
from dtrees.split.zones.accumulate import add_rows
from dtrees.split.zones.sums import SCALE


@kernel
def _add(parts, partition, start, in_stop, first, last, starts, shifts, scales, sign, sums, width):  # type: ignore[no-untyped-def]
    add_rows(parts, partition, start, in_stop, first, last, starts, shifts, scales[0], sign, sums, width)


@given(st.integers(1, 9), st.integers(1, 4), st.booleans(), st.sampled_from([1, -1]), st.data())
def test_add_rows(n: int, k: int, weighted: bool, sign: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shifts = rng.integers(0, 4, k).astype(np.uint64)
    parts = rng.integers(0, 24, (2 * n, k)).astype(np.uint16)
    rows = np.sort(rng.permutation(2 * n)[:n]).astype(np.uint32)
    a, b = rng.integers(-(2**45), 2**45, n), rng.integers(1, 2**20, n if weighted else 0)
    start, in_stop = sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, k)] * 2)))
    centre, shift, width = int(rng.integers(-9, 9)), 20, 3 if weighted else 2
    old = rng.integers(-(2**40), 2**40, (k, 24, width))
    found = old.copy()
    scales = np.array([(shift, centre, 0.0)], SCALE)
    starts = np.arange(k + 1) * 24 * width
    _add(parts, RowPartition(rows, a, b), start, in_stop, first, last, starts, shifts, scales, sign, found.reshape(-1), width)

    weight = b if weighted else np.ones(n, np.int64)
    packed = (((np.abs(a - centre * weight) >> shift) + 1) << 32) + 1
    numbers = np.column_stack([a, packed, weight])[start:in_stop, :width]
    for j in range(first, last):
        np.add.at(old[j], parts[rows[start:in_stop], j] >> shifts[j], sign * numbers)
    assert found.tolist() == old.tolist()
