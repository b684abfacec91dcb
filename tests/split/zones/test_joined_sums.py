"""Sums of joined columns of categories, against sums column by column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.compile.kernels import kernel
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import ALL_JOINED, MOST_JOINED, ROWS_PER_JOINED
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import ZoneMap, map_zones, not_joined
from dtrees.split.zones.sums import SCALE, add_rows, include_joined, lay_out_slots


@kernel
def _add_joined(zone_map, partition, start, in_stop, starts, scales, sign, numbers, width):  # type: ignore[no-untyped-def]
    include_joined(zone_map, partition, start, in_stop, starts, scales[0], sign, numbers, width)


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
    _add_joined(zone_map, partition, start, 3999, starts[0], scales, sign, found, width)
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
        (10_000, [20] * 10, 0, 0),  # too many elements for so few rows
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
