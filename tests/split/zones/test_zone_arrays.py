"""Sums of zones, quantity by quantity, against sums by NumPy; and parts folded to larger ones."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.split.compile.kernels import kernel
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE
from dtrees.split.policy import FOLD
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import map_zones
from dtrees.split.zones.bounds import zone_arrays
from dtrees.split.zones.sums import SCALE, Sums, _room, element_of, fold, lay_out_slots


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
        np.empty(0, np.uint32), np.empty((2, 301), np.uint8),
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
    """The same zones of so many columns all have places in the cache, in which those that are 4 kB apart compete for a few."""
    for most_zones in range(1, 256):
        for grain in range(FOLD + 1):
            places = np.arange(32) * 8 * width * _room(most_zones << grain, width) % 4096
            assert np.unique(places).size == 32
            assert np.bincount(places // 64).max() <= 5
