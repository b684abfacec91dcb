"""The rows in flagged zones, against a look at the code of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.columns import presort
from dtrees.split.kernel import kernel
from dtrees.split.pick import pick
from dtrees.split.search import make_scratch
from dtrees.split.zone_map import FOLD, map_zones

N = 20_000


@kernel
def pick_from_python(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, scratch):  # type: ignore[no-untyped-def]
    pick(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, scratch)


def column(kind: str, seed: int) -> tuple[Any, Any]:
    """A column of 20,000 rows, some of which are missing or tied, and its zones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N).astype(np.float32)
    if kind == "missing":
        x[rng.random(N) < 0.2] = np.nan
    if kind == "ties":
        x = np.round(x, 2)
    columns = presort([x])
    return columns, map_zones(columns)


COLUMNS = {kind: column(kind, seed) for seed, kind in enumerate(["plain", "missing", "ties"])}


def node(share: float, contiguous: bool, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Rows of a node, ascending: a stretch of the table, or drawn at random."""
    n = max(1, int(share * N))
    first = int(rng.integers(N - n + 1))
    return (np.arange(first, first + n) if contiguous else np.sort(rng.choice(N, n, replace=False))).astype(np.uint32)


def picked(kind: str, rows: NDArray[np.uint32], shift: int, some: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """What is picked of flagged zones, and what should be."""
    columns, zone_map = COLUMNS[kind]
    codes, n_distinct = columns.codes[0], columns.values.shape[0]
    n_zones = int(zone_map.n_zones[0]) << FOLD >> shift
    zone = np.searchsorted(zone_map.first_codes[0, :: 1 << shift][:n_zones], codes, side="right") - 1
    zone[codes == n_distinct] = n_zones
    counts = np.bincount(zone[rows], minlength=n_zones)
    numbers = np.unique(some % n_zones)
    numbers = numbers[counts[numbers] > 0]  # an empty zone is never flagged
    if not numbers.size:
        return [], []
    scratch = make_scratch(N, n_distinct, 0)
    before = np.concatenate([[0], np.cumsum(counts)])
    scratch.zones["n_before"][: numbers.size], scratch.zones["n"][: numbers.size] = before[numbers], counts[numbers]
    pick_from_python(codes, n_distinct, zone_map, 0, shift, numbers, rows, scratch.keys, scratch)
    wanted = [int(codes[row]) << 32 | place for place, row in enumerate(rows) if zone[row] in set(numbers.tolist())]
    return np.sort(scratch.keys[: len(wanted)]).tolist(), sorted(wanted)


@given(
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from([0.0001, 0.01, 0.2, 0.5, 0.9, 0.999, 1.0]),
    st.booleans(),
    st.sampled_from([0, FOLD]),
    st.lists(st.one_of(st.integers(0, 10), st.integers(0, 600), st.just(-1)), min_size=1, max_size=40),
    st.integers(0, 2**32),
)
@settings(deadline=None, max_examples=300)
def test_picked_rows(kind: str, share: float, contiguous: bool, shift: int, some: list[int], seed: int) -> None:
    found, wanted = picked(kind, node(share, contiguous, np.random.default_rng(seed)), shift, np.array(some))
    assert found == wanted


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize(("share", "contiguous"), [(1.0, True), (0.3, True), (0.9, False), (0.5, False), (0.1, False)])
@pytest.mark.parametrize("n_flagged", [16, 400])
def test_every_way(kind: str, share: float, contiguous: bool, n_flagged: int) -> None:
    """Whether intervals cover few rows, and whether these are near each other."""
    rng = np.random.default_rng(0)
    rows = node(share, contiguous, rng)
    middle = np.arange(200, 200 + n_flagged) if n_flagged < 20 else rng.permutation(800)[:n_flagged]
    found, wanted = picked(kind, rows, 0, middle)
    assert len(wanted) > (20 if share > 0.2 else 1)
    assert found == wanted


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize(("n_first", "others"), [(7_000, range(11_000, N)), (15_500, range(15_500, N, 4))])
def test_uneven_node(kind: str, n_first: int, others: range) -> None:
    """Rows are missing in one place only: how many lie between two is never what the whole node makes expect."""
    rows = np.concatenate([np.arange(n_first), others]).astype(np.uint32)
    found, wanted = picked(kind, rows, 0, np.arange(200, 216))
    assert len(wanted) > 20
    assert found == wanted
