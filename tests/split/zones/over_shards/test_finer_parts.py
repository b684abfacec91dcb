"""Flagged parts cut into finer ones, against rows looked at one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.rows.zone_edges import merge_sketches, own_zone_map, sketch_columns
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import FOLD
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from dtrees.split.table.keyed_columns import NO_LISTS, list_parts
from dtrees.split.zones.over_shards.finer_parts import finer_part, sum_finer
from dtrees.split.zones.over_shards.records import KeptRows, PartTasks, ShardRows
from dtrees.split.zones.sums import note_places

_KINDS = ("normal", "ties", "neighbours", "heavy-tailed", "missing", "float32")


def make_column(kind: str, n: int, rng: np.random.Generator) -> NDArray[Any]:
    x = rng.normal(size=n)
    match kind:
        case "ties":
            return np.round(x, 2)
        case "neighbours":
            return 1.0 + rng.permutation(n) * 2.0**-52
        case "heavy-tailed":
            return np.exp(40 * x)
        case "missing":
            return np.where(rng.random(n) < 0.3, np.nan, x)
        case "float32":
            return x.astype(np.float32)
    return x


@given(
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20),
    low=st.floats(allow_nan=False, allow_infinity=False),
    scale=st.floats(min_value=0.0, allow_nan=False),
    n=st.integers(1, 4096),
)
def test_finer_parts_ascend_with_values(values: list[float], low: float, scale: float, n: int) -> None:
    with np.errstate(all="ignore"):
        numbers = [int(finer_part.py_func(np.float64(value), low, scale, n)) for value in sorted(values)]
    assert numbers == sorted(numbers)
    assert min(numbers) >= 0
    assert max(numbers) < n


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sums_and_rows_kept(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    n, shift, cut = data.draw(st.integers(500, 3000)), data.draw(st.integers(0, FOLD)), data.draw(st.integers(1, 9))
    values = make_column(data.draw(st.sampled_from(_KINDS)), n, rng)
    columns = presort([rng.normal(size=n), values])
    edges = merge_sketches([sketch_columns(columns)])
    zone_map = own_zone_map(columns, edges)
    g, h = rng.integers(-(2**40), 2**40, n), rng.integers(1, 2**30, n) if data.draw(st.booleans()) else np.empty(0, np.int64)
    rows = np.sort(rng.permutation(n)[: data.draw(st.integers(1, n))]).astype(np.uint32)
    partition = RowPartition(rows, g[rows], h[rows] if h.shape[0] else h)
    n_parts = int(edges.n_zones[1]) << FOLD >> shift
    flagged = np.flatnonzero(rng.random(n_parts) < data.draw(st.sampled_from([0.02, 0.3, 1.0])))[: 4096 // cut].astype(np.int64)
    m, width = flagged.shape[0], 3 if h.shape[0] else 2
    every = np.full(m, 1)
    ranges = edges.ranges(every.astype(np.int32), flagged, shift * every, cut * every)
    tasks = np.array([[0, rows.shape[0], 1, shift, 0], [0, rows.shape[0], 1, shift, cut]])
    kept, finer, counts = np.empty(n, np.uint64), np.empty(n, np.uint16), np.empty(2, np.int64)
    sums = np.zeros((m * cut, width), np.int64)
    size_shift, none, lists = 12, np.zeros(2, np.int64), NO_LISTS
    if data.draw(st.booleans()):
        lists = list_parts(zone_map.part, edges.n_zones << FOLD, lambda n_tasks, work: work(make_queue(), 0))
        lists.place_of[:] = 0xFFFFFFFF
        note_places(lists.place_of, rows, 0, rows.shape[0])
    shard_rows = ShardRows(columns, zone_map, lists, partition, np.empty((0, 0), np.int64), 0)
    tasks_of_parts, rows_kept = PartTasks(tasks, np.array([0, 0, m]), flagged), KeptRows(kept, finer, none, counts)
    sum_finer(make_queue(), tasks_of_parts, ranges, shard_rows, make_scratch(n, n, 0), size_shift, none, rows_kept, sums)

    wanted = np.zeros_like(sums)
    expected = {}
    numbers = {part: p for p, part in enumerate(flagged.tolist())}
    upper = edges.upper[1, : int(edges.n_zones[1]) << FOLD]
    for place, row in enumerate(rows.tolist()):
        value = np.float64(values[row])
        p = -1 if np.isnan(value) else numbers.get(int(np.searchsorted(upper, value)) >> shift, -1)
        if p < 0:
            continue
        with np.errstate(all="ignore"):
            number = p * cut + int(finer_part.py_func(value, *ranges[p], cut))
        expected[place] = int(columns.codes[1, row]), number
        size = ((abs(int(g[row])) >> size_shift) + 1 << 32) + 1
        wanted[number] += [g[row], size, *h[row : row + 1]]
    assert counts.tolist() == [0, len(expected)]
    keys = kept[: counts[1]].tolist()
    assert {key % 2**32: (key >> 32, part) for key, part in zip(keys, finer[: counts[1]].tolist(), strict=True)} == expected
    assert np.array_equal(sums, wanted)
