"""Sums of zones, of joined columns, of finer parts and of several targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.engine.rows.zone_edges import merge_sketches, own_zone_map, sketch_columns
from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.criteria.criterion import criterion_named
from dtrees.split.criteria.parts import class_term, most_in_box, score_of_terms
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import ALL_JOINED, FOLD, MOST_JOINED, ROWS_PER_JOINED
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from dtrees.split.table.keyed_columns import NO_LISTS, list_parts
from dtrees.split.table.zone_map import ZoneMap, map_zones, not_joined
from dtrees.split.zones.bounds import zone_arrays
from dtrees.split.zones.over_shards.finer_parts import finer_part, sum_finer
from dtrees.split.zones.over_shards.records import PartTasks, ShardRows, StoredRows
from dtrees.split.zones.sums import SCALE, Sums, _capacity, add_rows, element_of, fold, include_joined, lay_out_slots, note_places

# --- sums of zones, quantity by quantity, compared with sums by NumPy; and parts folded to larger ones ---


@kernel
def write_outline(element, n_zones, grain, size_shift, sums):
    return zone_arrays(element, n_zones, grain, size_shift, sums)


@kernel
def elements_of(sums, slot, j):
    return element_of(sums, slot, j)


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("grain", range(FOLD + 1))
@pytest.mark.parametrize("n_zones", [0, 1, 7, 255])
def test_outline(width: int, grain: int, n_zones: int) -> None:
    random = np.random.default_rng(n_zones)
    n = (n_zones << grain) + 1
    element = random.integers(-(2**40), 2**40, (n, width))
    counts, sizes = random.integers(0, 9, n), random.integers(0, 2**20, n)
    element[:, 1] = sizes << 32 | counts
    sums = np.full((7, 300), -1)
    missing = write_outline(element, np.int64(n_zones), np.int64(grain), np.int64(5), sums)
    weights = element[:, 2] if width == 3 else counts
    assert missing == (element[-1, 0], weights[-1], counts[-1])
    for before, after, numbers in (G0, G1, element[:, 0]), (H0, H1, weights), (N0, N1, counts):
        ends = np.cumsum(numbers[:-1].reshape(n_zones, 1 << grain).sum(axis=1))
        np.testing.assert_array_equal(sums[after, :n_zones], ends)
        np.testing.assert_array_equal(sums[before, :n_zones], np.concatenate([[0], ends])[:n_zones])
    np.testing.assert_array_equal(sums[SIZE, :n_zones], sizes[:-1].reshape(n_zones, 1 << grain).sum(axis=1) << 5)
    assert (sums[:, n_zones:] == -1).all()


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("grain", range(FOLD + 1))
def test_fold(width: int, grain: int) -> None:
    random = np.random.default_rng(grain)
    X = random.integers(0, [5000, 300, 40], (3000, 3)).astype(np.float64)
    zone_map = map_zones(presort(list(X.T)), categorical=(1,))
    assert zone_map.which.tolist() == [1, 0, 2]
    assert zone_map.n_zones.tolist()[::2] == [300, 40]
    most_zones = int(zone_map.n_zones[1:].max())
    starts, shifts = lay_out_slots(zone_map, width)
    slots = random.integers(-(2**40), 2**40, (2, starts[FOLD, -1]))
    sums = Sums(
        slots, np.full(2, FOLD), np.zeros(2, SCALE), np.zeros(1, SCALE), starts, shifts, width, FOLD, 0, np.zeros(2, np.int64),
        np.empty(0, np.uint32), np.empty((2, 301), np.uint8), np.empty((2, 0, 0), np.int64), np.empty((3, 0), np.uint64),
    )  # fmt: skip
    other = slots[0].copy()
    fine = [elements_of(sums, np.int64(1), np.int64(j)).copy() for j in range(3)]
    fold(zone_map, sums, np.int64(1), np.int64(grain))
    coarse = [elements_of(sums, np.int64(1), np.int64(j)) for j in range(3)]
    assert coarse[1].shape[0] == coarse[2].shape[0] > most_zones << grain
    for j in (1, 2):
        n_zones = zone_map.n_zones[j]
        parts = fine[j][: n_zones << FOLD].reshape(n_zones << grain, -1, width)
        np.testing.assert_array_equal(coarse[j][: n_zones << grain], parts.sum(axis=1))
        np.testing.assert_array_equal(coarse[j][n_zones << grain], fine[j][n_zones << FOLD])
    np.testing.assert_array_equal(coarse[0], fine[0])  # categories have no parts
    np.testing.assert_array_equal(slots[0], other)


@pytest.mark.parametrize("width", [2, 3])
def test_columns_are_not_a_multiple_of_4_kb_apart(width: int) -> None:
    """The same zones of all these columns fit the cache; those 4 kB apart would compete for a few places."""
    for most_zones in range(1, 256):
        for grain in range(FOLD + 1):
            places = np.arange(32) * 8 * width * _capacity(most_zones << grain, width) % 4096
            assert np.unique(places).size == 32
            assert np.bincount(places // 64).max() <= 5


# --- sums of joined columns of categories, compared with sums column by column ---


@kernel
def _add_joined(zone_map, partition, start, in_stop, starts, shifts, scales, sign, numbers, width):  # type: ignore[no-untyped-def]
    include_joined(zone_map, partition, start, in_stop, starts, shifts, scales[0], sign, numbers, width)


@kernel
def _add(zone_map, partition, start, in_stop, last, starts, shifts, scales, sign, numbers, width):  # type: ignore[no-untyped-def]
    add_rows(zone_map.part, partition, start, in_stop, 0, last, starts, shifts, scales[0], sign, numbers, width)


def map_categories(n_rows: int, n_categories: list[int], n_numbers: int) -> ZoneMap:
    random = np.random.default_rng(0)
    columns = [random.normal(size=n_rows) for _ in range(n_numbers)]
    for n in n_categories:
        columns.append(np.where(random.random(n_rows) < 0.1, np.nan, random.integers(0, n, n_rows)))
    return map_zones(presort(columns), categorical=range(n_numbers, len(columns)))


@given(st.integers(0, 2000), st.booleans(), st.sampled_from([1, -1]), st.booleans(), st.integers(0, 9))
def test_sums_are_those_of_each_column(start: int, weighted: bool, sign: int, some: bool, seed: int) -> None:
    zone_map, random = map_categories(4000, [3, 20, 1, 3, 7, 300, 19, 2], 2), np.random.default_rng(seed)
    if some:
        zone_map = zone_map.take(np.array([2, 4, 5, 6, 9]))
    joined = zone_map.joined
    n, width = joined.stride.shape[0], 3 if weighted else 2
    assert n == (5 if some else 7)
    assert joined.elements.shape[1] < n
    assert (joined.elements.min(axis=0) >= joined.begins[:-1]).all()
    assert (joined.elements.max(axis=0) < joined.begins[1:]).all()
    starts, shifts = lay_out_slots(zone_map, width)
    rows, g = random.permutation(4000).astype(np.uint32), random.integers(-(2**45), 2**45, 4000)
    partition = RowPartition(rows, g, random.integers(1, 2**20, 4000 if weighted else 0))
    scales = np.array([(20, int(random.integers(-9, 9)), 0.0)], SCALE)
    size = int(starts[0, -1])
    wanted = random.integers(-(2**40), 2**40, size + width * joined.n_elements)
    found = wanted.copy()
    _add(zone_map, partition, start, 3999, n, starts[0], shifts[0], scales, sign, wanted, width)
    _add_joined(zone_map, partition, start, 3999, starts[0], shifts[0], scales, sign, found, width)
    np.testing.assert_array_equal(found[:size], wanted[:size])


def test_columns_taken_of_joined_ones() -> None:
    zone_map = map_categories(100_000, [20] * 10, 0)
    some = zone_map.take(np.array([0, 1, 2])).joined
    assert some.elements.shape[1] == 2
    assert some.n_elements == 2 * 441
    for none in (zone_map.take(np.array([0, 2, 4])).joined, not_joined(100_000)):
        assert none.elements.shape == (100_000, 0)
        assert none.n_elements == 0


@pytest.mark.parametrize(
    ("n_rows", "n_categories", "n_numbers", "n_tables"),
    [
        (100_000, [20] * 10, 0, 5),
        (100_000, [5] * 10, 0, 4),
        (10_000, [20] * 10, 0, 0),  # too many elements for the number of rows
        (5_000, [5] * 10, 0, 5),
        (100_000, [100] * 10, 0, 0),
        (100_000, [20] * 8, 3, 4),
        (100_000, [20] * 6, 3, 0),  # saves too little
        (100_000, [2, 3, 1, 1], 0, 1),
        (100_000, [300, 4, 9, 2, 6, 8, 5, 5], 0, 3),
        (100_000, [], 3, 0),
    ],
)
def test_columns_joined(n_rows: int, n_categories: list[int], n_numbers: int, n_tables: int) -> None:
    joined = map_categories(n_rows, n_categories, n_numbers).joined
    assert joined.elements.shape[1] == n_tables
    assert joined.n_elements <= min(ALL_JOINED, n_rows // ROWS_PER_JOINED)
    assert (np.diff(joined.begins) <= MOST_JOINED[0]).all()


# --- flagged parts divided into finer ones, compared with reading rows one by one ---


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
    tasks_of_parts, rows_kept = PartTasks(tasks, np.array([0, 0, m]), flagged), StoredRows(kept, finer, none, counts)
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


# --- elements of several numbers, compared with adding rows one by one, and bounds of several targets, with all splits ---


def draw_amounts(kind: str, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    match kind:
        case "near the limit":
            return rng.integers(-(2**61) // n, 2**61 // n, n)
        case "heavy-tailed":
            return np.rint(rng.normal(size=n) * np.exp(rng.normal(0, 8, n))).astype(np.int64)
        case "all the same":
            return np.full(n, 12_345)
    return rng.integers(-1000, 1000, n)


@pytest.mark.slow  # compiles kernels
@pytest.mark.parametrize("criterion", ["squared_error", "poisson"])
@pytest.mark.parametrize("kind", ["small", "near the limit", "heavy-tailed", "all the same"])
def test_no_split_inside_a_part_scores_above_its_bound(kind: str, criterion: str) -> None:
    rng, value = np.random.default_rng(3), criterion_named(criterion).for_targets()
    n_finite = 0
    for _ in range(60):
        n = int(rng.integers(3, 40))
        amounts, weights = draw_amounts(kind, n, rng), rng.integers(1, 2 ** int(rng.integers(1, 20)), n)
        if criterion == "poisson":
            amounts = np.abs(amounts)
        first, last = sorted(rng.integers(0, n + 1, 2).tolist())
        own, whole, all_weights = amounts[first:last], int(amounts.sum()), int(weights.sum())
        start, inside, size = float(amounts[:first].sum()), float(own.sum()), float(np.abs(own).sum())
        light, heavy = int(weights[:first].sum()), int(weights[:last].sum())
        corners = float(light), float(all_weights - light), float(heavy), float(all_weights - heavy)
        bound = most_in_box(value, start - (size - inside) / 2, start + (size + inside) / 2, float(whole), corners)
        n_finite += bool(np.isfinite(bound))
        for end in range(max(first, 1), min(last, n - 1) + 1):
            left, h = int(amounts[:end].sum()), float(weights[:end].sum())
            term = class_term(value, left, whole - left, h, all_weights - h)
            score = score_of_terms(value, term, h, all_weights - h, float(all_weights), 1)
            assert score < 0.0 or score <= bound
    assert n_finite > 20
