"""Edges of zones from sketches of several shards: every value is in one part, parts of a single value have no other."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.engine.rows import zone_edges
from dtrees.engine.rows.zone_edges import Edges, merge_sketches, own_zone_map, searcher_zone_map, sketch_columns
from dtrees.split.policy import FOLD, MAX_ZONES
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import arrange_rows

RNG = np.random.default_rng(0)
N = 40_000
COLUMNS: dict[str, NDArray[Any]] = {
    "continuous": RNG.normal(size=N),
    "few": RNG.integers(0, 7, N).astype(float),
    "heavy": np.where(RNG.random(N) < 0.6, 0.0, RNG.normal(size=N)),
    "many heavy": np.where(RNG.random(N) < 0.9, RNG.integers(0, 150, N), RNG.normal(size=N) * 100),
    "neighbours": 1.0 + RNG.integers(0, 20_000, N) * 2.0**-52,
    "heavy neighbours": 1.0 + np.where(RNG.random(N) < 0.5, RNG.integers(0, 3, N), RNG.integers(0, 20_000, N)) * 2.0**-52,
    "skewed": np.exp(RNG.normal(0, 100, N)),
    "missing": np.full(N, np.nan),
    "one value": np.ones(N),
    "sorted": np.sort(RNG.normal(size=N)),
    # Keyed columns; the others, except those of few integers, are sorted.
    "float32": RNG.normal(size=N).astype(np.float32),
    "float32, missing": np.where(RNG.random(N) < 0.3, np.nan, RNG.normal(size=N)).astype(np.float32),
    "float32, heavy lowest": np.where(RNG.random(N) < 0.6, 0.0, RNG.random(N)).astype(np.float32),
    "float32 neighbours, far from one": np.where(np.arange(N) == 7, -3e38, 1 + RNG.integers(0, 9000, N) * 2.0**-23).astype(np.float32),
    "float32 of all sizes": RNG.integers(0, 2**32, N, np.uint32).view(np.float32),
}
with np.errstate(invalid="ignore"):
    COLUMNS["float32 of all sizes"][np.isinf(COLUMNS["float32 of all sizes"])] = 0.0


def arranged(column: NDArray[Any]) -> Columns:
    return arrange_rows([[column]].__getitem__, [column.shape[0]], 1)


def edges_of(column: NDArray[np.float64], cuts: list[int]) -> Edges:
    return merge_sketches([sketch_columns(arranged(part)) for part in np.split(column, cuts)])


@pytest.mark.parametrize("name", COLUMNS)
def test_sketches_of_float32_take_half_and_say_the_same(name: str) -> None:
    columns = arranged(COLUMNS[name])
    sketch = sketch_columns(columns)
    (own,) = sketch.columns
    assert own.values.dtype == (np.float32 if columns.is_keyed else np.float64)
    assert own.weights.dtype == np.uint32
    own = own._replace(values=own.values.astype(np.float64), weights=own.weights.astype(np.int64))
    wide = sketch._replace(columns=[own])
    present = COLUMNS[name][~np.isnan(COLUMNS[name])]
    assert np.isin(own.values, present).all()
    assert abs(int(own.weights.sum()) - present.shape[0]) <= 0.05 * N
    # Sketches of shards whose values fit float32 can be merged with others.
    for one, other in zip(merge_sketches([sketch, wide]), merge_sketches([wide, wide]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("cuts", [[], [10_000, 10_000, 39_999]])
@pytest.mark.parametrize("sketched", [zone_edges.SKETCH_ROWS, 12_000])
def test_parts_hold_all_values_in_order(name: str, cuts: list[int], sketched: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zone_edges, "SKETCH_ROWS", sketched)
    column = COLUMNS[name]
    edges = edges_of(column, cuts)
    n_parts = int(edges.n_zones[0]) << FOLD
    assert n_parts >> FOLD < MAX_ZONES
    upper = edges.upper[0, :n_parts]
    assert (upper[1:] >= upper[:-1]).all()
    first = 0
    for some in np.split(column, cuts):
        columns = arranged(some)
        zone_map = own_zone_map(columns, edges)
        part = zone_map.part[:, 0].astype(int)
        assert (part[np.isnan(some)] == n_parts).all()
        present = ~np.isnan(some)
        assert (some[present] <= upper[part[present]]).all()
        below = part[present] > 0
        assert (some[present][below] > upper[part[present][below] - 1]).all()
        codes = columns.codes[0][present]
        assert (zone_map.first_codes[0][part[present]] <= codes).all()
        assert (codes < zone_map.first_codes[0][part[present] + 1]).all()
        alone = edges.alone[0, part[present]]
        assert (some[present][alone] == upper[part[present][alone]]).all()
        first += some.shape[0]
    assert first == N


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("most", [1, 60, 100_000])
def test_rows_at_ends_are_listed(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zone_edges, "_LISTED_AT_ENDS", most)
    column = COLUMNS[name]
    edges, rows = edges_of(column, [10_000]), slice(10_000, N)
    zone_map = own_zone_map(arranged(column[rows]), edges)
    part, n_parts = zone_map.part[:, 0].astype(int), int(edges.n_zones[0]) << FOLD
    low, high, n_low, n_high = zone_map.ends[0].tolist()
    assert zone_map.listed[0, 0, :n_low].tolist() == np.flatnonzero(part < low).tolist()
    assert zone_map.listed[0, 1, :n_high].tolist() == np.flatnonzero((part >= high) & (part < n_parts)).tolist()
    # As many parts as fit, but not those at both ends.
    assert low == n_parts or (part <= low).sum() > most
    assert high == low or ((part >= high - 1) & (part < n_parts)).sum() > most


def test_heavy_values_are_parts_of_their_own() -> None:
    edges = edges_of(COLUMNS["heavy"], [15_000])
    (place,) = np.flatnonzero(edges.alone[0])
    assert edges.upper[0, place] == 0.0
    assert place % (1 << FOLD) == 0
    first_codes = searcher_zone_map(edges).first_codes[0]
    assert first_codes[place + (1 << FOLD)] - first_codes[place] == 1


def test_few_values_are_zones() -> None:
    edges = edges_of(COLUMNS["few"], [100])
    assert edges.exact.tolist() == [True]
    assert edges.upper[0, :: 1 << FOLD].tolist() == list(range(7))
