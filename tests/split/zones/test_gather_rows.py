"""The rows in flagged zones, compared with checking the code of each row."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.policy import FOLD
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from dtrees.split.table.zone_map import map_zones
from dtrees.split.zones.gather_rows import pick_known
from tests.examples import examples

N = 20_000
#: A number of distinct values that is a multiple of 64.
WHOLE_WORDS = 64 * 100


@kernel
def pick_from_python(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, is_kept, kept, scratch):  # type: ignore[no-untyped-def]
    pick_known(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, is_kept, kept, scratch)


#: A script that fails if the mark of a missing value is read beyond the last.
CHECKED = """
import numpy as np
from tests.split.zones.test_gather_rows import N, column, picked
for some in (np.arange(0, 800, 2), np.arange(200, 216)):
    found, wanted = picked("whole words", np.arange(N, dtype=np.uint32), 0, some)
    assert found == wanted
"""


def column(kind: str, seed: int) -> tuple[Any, Any]:
    """A column of 20,000 rows, some of which are missing or tied, and its zones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N).astype(np.float32)
    if kind == "missing":
        x[rng.random(N) < 0.2] = np.nan
    if kind == "ties":
        x = np.round(x, 2)
    if kind == "whole words":  # of marks, without space for the code of missing values
        x = rng.permutation(np.where(np.arange(N) < 0.8 * N, np.arange(N) % WHOLE_WORDS, np.nan)).astype(np.float32)
    columns = presort([x])
    return columns, map_zones(columns)


COLUMNS = {kind: column(kind, seed) for seed, kind in enumerate(["plain", "missing", "ties", "whole words"])}


def node(share: float, contiguous: bool, rng: np.random.Generator) -> NDArray[np.uint32]:
    """Rows of a node, ascending: a range of the table, or drawn at random."""
    n = max(1, int(share * N))
    first = int(rng.integers(N - n + 1))
    return (np.arange(first, first + n) if contiguous else np.sort(rng.choice(N, n, replace=False))).astype(np.uint32)


def picked(
    kind: str, rows: NDArray[np.uint32], shift: int, some: NDArray[np.int64], others: NDArray[np.int64] | None = None
) -> tuple[list[int], list[int]]:
    """Return the picked rows of flagged zones, and the correct ones; in most of a table, others may have been picked before."""
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
    others = others if 2 * rows.size > N else None
    is_kept, kept = np.zeros(0 if others is None else n_zones + 2, np.int64), np.empty(N // 2, np.uint64)

    def pick_of(rows: NDArray[np.uint32], numbers: NDArray[np.int64]) -> None:
        counts = np.bincount(zone[rows], minlength=n_zones)
        before = np.concatenate([[0], np.cumsum(counts)])
        scratch.zones["n_before"][: numbers.size], scratch.zones["n"][: numbers.size] = before[numbers], counts[numbers]
        pick_from_python(codes, n_distinct, zone_map, 0, shift, numbers, rows, scratch.keys, is_kept, kept, scratch)

    if others is not None:
        present = np.unique(zone[codes < n_distinct])
        for together in (present[np.isin(present, others % n_zones)], numbers):
            pick_of(np.arange(N, dtype=np.uint32), together) if together.size else None
            rows_kept = (kept[: is_kept[-2]] & np.uint64(2**32 - 1)).astype(np.int64)
            assert np.array_equal(np.sort(rows_kept), np.flatnonzero(np.isin(zone, np.flatnonzero(is_kept[:-2]))))
    pick_of(rows, numbers)
    wanted = [int(codes[row]) << 32 | place for place, row in enumerate(rows) if zone[row] in set(numbers.tolist())]
    return np.sort(scratch.keys[: len(wanted)]).tolist(), sorted(wanted)


@pytest.mark.slow  # a kernel of its own; large nodes are compared with full scans in every run (test_column.py)
@given(
    st.sampled_from(sorted(COLUMNS)),
    st.sampled_from([0.0001, 0.01, 0.2, 0.5, 0.9, 0.999, 1.0]),
    st.booleans(),
    st.sampled_from([0, FOLD]),
    st.lists(st.one_of(st.integers(0, 10), st.integers(0, 600), st.just(-1)), min_size=1, max_size=40),
    st.integers(0, 2**32),
    st.one_of(st.none(), st.lists(st.integers(0, 600), max_size=100)),
)
@examples(300)
def test_picked_rows(kind: str, share: float, contiguous: bool, shift: int, some: list[int], seed: int, others: list[int] | None) -> None:
    before = None if others is None else np.array(others, np.int64)
    found, wanted = picked(kind, node(share, contiguous, np.random.default_rng(seed)), shift, np.array(some), before)
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize(("share", "contiguous"), [(1.0, True), (0.3, True), (0.9, False), (0.5, False), (0.1, False)])
@pytest.mark.parametrize("n_flagged", [16, 400])
def test_every_way(kind: str, share: float, contiguous: bool, n_flagged: int) -> None:
    """If intervals cover few rows or many, near each other or not."""
    rng = np.random.default_rng(0)
    rows = node(share, contiguous, rng)
    middle = np.arange(200, 200 + n_flagged) if n_flagged < 20 else rng.permutation(800)[:n_flagged]
    found, wanted = picked(kind, rows, 0, middle)
    assert len(wanted) > (20 if share > 0.2 else 1)
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize(("n_first", "others"), [(7_000, range(11_000, N)), (15_500, range(15_500, N, 4))])
def test_uneven_node(kind: str, n_first: int, others: range) -> None:
    """Rows are missing in one place only: interpolation over the whole node is wrong everywhere."""
    rows = np.concatenate([np.arange(n_first), others]).astype(np.uint32)
    found, wanted = picked(kind, rows, 0, np.arange(200, 216))
    assert len(wanted) > 20
    assert found == wanted


@pytest.mark.thorough  # compiles anew; ``.ci/run bounds`` checks bounds in all tests
def test_codes_of_missing_values_are_within_bounds(tmp_path: Path) -> None:
    """In a process whose kernels check bounds."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", CHECKED], env=environment, cwd=Path(__file__).parents[3], check=True, timeout=300)
