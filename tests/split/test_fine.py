"""Columns summed by parts, against the scan of every row, and proof that each way to pick rows is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.columns import presort
from dtrees.split.criteria import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from dtrees.split.fine import prefers_fine
from dtrees.split.level import BAR, SCAN, SUM, search_level
from dtrees.split.partition import RowPartition
from dtrees.split.queue import make_queue
from dtrees.split.search import MAX_PARTS, empty_candidates, make_scratch
from dtrees.split.zone_map import ZoneMap, map_zones
from dtrees.split.zone_sums import SCALE, Sums, size_shift
from tests import naive
from tests.split.nodes import best_of, comparable, package_limits, same, search_of, slope_of
from tests.split.strategies import Task, as_lists
from tests.split.test_level import COLUMNS, make_case, search_in_levels

#: What was done with a column: too little was flagged, no part was, only parts whose rows are listed, others as well.
ZONES, NONE, LISTED, PICKED = range(4)
_SENTINEL = 7


def search_by_parts(task: Task, together: int) -> tuple[Any, list[int]]:
    """Search the node, so many columns in one scan; return the best split and, of scans of one column, what was done."""
    columns = presort(task.table)
    zone_map, k = map_zones(columns), columns.n_columns
    rows = np.flatnonzero(task.inside).astype(np.uint32)
    n = rows.shape[0]
    a, b = task.a[rows], task.b[rows] if task.b.shape[0] else task.b
    slots = np.zeros((1, k, int(zone_map.n_zones.max()) + 1, 3 if b.shape[0] else 2), np.int64)
    sums = Sums(slots, np.array([(size_shift(int(np.abs(a).sum())), 0, np.inf)], SCALE))
    node_sums = np.array([[a.sum(), b.sum() if b.shape[0] else n]])
    operations = [(SUM, 0, n, 0), (BAR, 0, 0, 0), *((SCAN, 0, j, min(j + together, k)) for j in range(0, k, together))]
    limits = package_limits(task.limits, slope_of(task))
    scratch, bars = make_scratch(n, int(np.diff(columns.offsets).max()), 0), np.full(1, -1.0)
    found = empty_candidates(len(operations), 2)
    done = []
    for t, operation in enumerate(operations):
        scratch.part_flags[:2] = _SENTINEL
        out = empty_candidates(1, 2)
        search_level(
            make_queue(), np.array([[0, 1, 0]]), np.array([operation]), columns, np.arange(k, dtype=np.int32), zone_map,
            RowPartition(rows, a, b), sums, np.array([[0, n, 0]]), node_sums, limits, bars, scratch, out,
        )  # fmt: skip
        found.records[t], found.left[t] = out.records[0], out.left[0]
        if operation[0] == SCAN:
            done.append(_way(scratch.part_flags[0], zone_map, operation[2]))
    return best_of(found.take(slice(2, None))), done


def _way(flags: NDArray[np.uint8], zone_map: ZoneMap, j: int) -> int:
    flagged = np.flatnonzero(flags[: zone_map.n_parts[j]])
    if (flags == _SENTINEL).any():
        return ZONES
    if flagged.shape[0] == 0:
        return NONE
    first, end = zone_map.ends[j, :2]
    return PICKED if ((flagged >= first) & (flagged < end)).any() else LISTED


def noise(n: int, seed: int, criterion: int, weighted: bool) -> Task:
    """A large node that tells nothing, but for a little in the first column."""
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=n) for _ in range(5)]
    x[1][rng.random(n) < 0.1] = np.nan
    x[2] = np.round(x[2], 2)
    signal = rng.normal(size=n) + 0.02 * (x[0] > 0.1)
    b = rng.integers(1, 2**10, n) if weighted else np.empty(0, np.int64)
    in_classes = criterion in (GINI, ENTROPY)
    a = (signal > 0).astype(np.int64) * (b if weighted else 1) if in_classes else np.rint(signal * 2.0**35).astype(np.int64)
    penalty = 1.0 if criterion == NEWTON else 0.0
    return Task(list(x), a, b, rng.random(n) < 0.9, naive.Limits(criterion, penalty=penalty, min_samples=1 + 30 * (seed % 2)))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("criterion", [SQUARED_ERROR, GINI, ENTROPY, NEWTON])
def test_every_way_is_taken(criterion: int, weighted: bool) -> None:
    seen = set()
    for seed in range(3):
        task = noise(200_000, seed, criterion, weighted)
        expected = best_of(search_of(task))
        found, done = search_by_parts(task, 1)
        assert same(found, expected)
        seen |= set(done)
        for together in (2, 5):
            assert same(search_by_parts(task, together)[0], expected)
    assert {PICKED} <= seen if criterion == ENTROPY else {LISTED, PICKED} <= seen


@pytest.mark.parametrize("criterion", [SQUARED_ERROR, GINI, ENTROPY, NEWTON])
@pytest.mark.parametrize("weighted", [False, True])
def test_turns(criterion: int, weighted: bool) -> None:
    """Values that take turns: every zone and every part hides more than there is to find, so that all rows are picked."""
    table, a, b = make_case(["continuous"], "turns", criterion, weighted, 1500, 1)
    x = table[0]
    rng = np.random.default_rng(0)
    table = [x, -x, np.round(x, 2), np.where(rng.random(1500) < 0.3, np.nan, x), np.where(x > 0, 0.5, x)]
    for min_samples in (1, 40):
        limits = naive.Limits(criterion, penalty=3.0 if criterion == NEWTON else 0.0, min_samples=min_samples)
        task = Task(table, a, b, np.ones(1500, np.bool_), limits)
        expected = comparable(
            naive.best_split(as_lists(table), range(5), list(range(1500)), a.tolist(), b.tolist() or None, limits, [0.0] * 5)
        )
        found, done = search_by_parts(task, 1)
        assert same(found, expected)
        assert PICKED in done
        # Two columns have more flagged rows than there is room for; five leave one without another.
        for together in (2, 5):
            assert same(search_by_parts(task, together)[0], expected)


@given(
    st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4),
    st.sampled_from(["turns", "noise", "ties", "heavy tails", "far off", "outlier"]),
    st.sampled_from([SQUARED_ERROR, GINI, ENTROPY, NEWTON]),
    st.booleans(),
    st.integers(1100, 2000),
    st.integers(0, 2**20),
    st.sampled_from([0.0, 1.0, 1e9]),
    st.sampled_from([1, 60]),
    st.sampled_from([1, 3]),
)
@settings(max_examples=40, deadline=None)
def test_levels_of_large_nodes(
    kinds: list[str], target: str, criterion: int, weighted: bool, n: int, seed: int, penalty: float, min_samples: int, n_threads: int
) -> None:
    table, a, b = make_case(["continuous", *kinds], target, criterion, weighted, n, seed)
    limits = naive.Limits(criterion, penalty=penalty if criterion == NEWTON else 0.0, min_samples=min_samples)
    search_in_levels(table, a, b, limits, seed, n_threads)


@pytest.mark.parametrize("n", [1, 700, 40_000])
@pytest.mark.parametrize("kind", COLUMNS)
def test_parts_of_a_column(kind: str, n: int) -> None:
    columns = presort([COLUMNS[kind](np.random.default_rng(0), n)])
    zones = map_zones(columns)
    if zones.exact[0]:
        return
    codes, n_distinct = columns.codes[0].astype(np.int64), int(columns.offsets[1])
    part_of, n_parts = zones.part_of[0], int(zones.n_parts[0])
    parts = part_of[np.arange(n_distinct) >> zones.part_shift[0]].astype(int)
    assert 1 <= n_parts < MAX_PARTS
    assert set(np.diff(parts)) <= {0, 1}
    assert (parts[0], parts[-1]) == (0, n_parts - 1)
    assert part_of[n_distinct >> zones.part_shift[0]] in (n_parts - 1, n_parts)
    part_of_row = np.append(parts, -1)[codes]
    low, high, n_low, n_high = zones.ends[0]
    present = codes < n_distinct
    assert zones.listed[0, 0, :n_low].tolist() == np.flatnonzero(present & (part_of_row < low)).tolist()
    assert zones.listed[0, 1, :n_high].tolist() == np.flatnonzero(present & (part_of_row >= high)).tolist()
    assert 0 <= low <= high <= n_parts
    if kind == "continuous" and n > 700:
        assert 0 < low < 40
        assert 0 < n_parts - high < 40
        assert min(n_low, n_high) > 50
        assert part_of.shape[0] < n / 4


def test_few_flagged_rows_are_picked_by_zones() -> None:
    assert prefers_fine(200, 1100, 256)
    assert not prefers_fine(100, 1100, 256)
    assert not prefers_fine(1000, 1000, 256)
