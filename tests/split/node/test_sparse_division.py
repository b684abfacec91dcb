"""Which rows a split in a sparse column sends left, against the dense column."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dtrees.engine.protocol.splits import RouteBits
from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.marking import SplitsOfRows, mark_many
from dtrees.split.node.sparse_division import mark_left_sparse
from dtrees.split.table.columns import presort
from tests.split.tables import random_table, sparse_of


@kernel
def mark(columns, column, cut, missing_left, rows, place_of, start, stop, bits):  # type: ignore[no-untyped-def]
    mark_left_sparse(columns, column, cut, missing_left, rows, place_of, start, stop, bits)


@given(st.integers(1, 200), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.booleans(), st.integers(0, 10**6))
def test_marks(n_rows: int, density: float, missing_left: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = random_table(n_rows, 2, density, seed)
    columns, dense = sparse_of(X), presort(list(X.T))
    rows = rng.permutation(n_rows).astype(np.uint32)
    place_of = np.argsort(rows).astype(np.uint32)
    start, stop = np.sort(rng.integers(0, n_rows + 1, 2))
    rows[start:stop].sort()
    place_of[rows] = np.arange(n_rows)
    n_distinct = len(dense.distinct(1))
    cut = int(rng.integers(-1, n_distinct + 1))
    bits = np.full((stop - start + 7) // 8, 0xAA, np.uint8)
    mark(columns, 1, cut, missing_left, rows, place_of, start, stop, bits)
    codes = dense.codes[1, rows[start:stop]].astype(np.int64)
    wanted = (codes <= cut) | (missing_left & (codes == n_distinct))
    assert np.unpackbits(bits, bitorder="little")[: stop - start].tolist() == wanted.tolist()


def test_marks_of_many_splits() -> None:
    X = random_table(500, 3, 0.3, 7)
    columns, dense = sparse_of(X), presort(list(X.T))
    rows = np.random.default_rng(0).permutation(500).astype(np.uint32)
    starts, stops = np.array([0, 203]), np.array([203, 500])
    offsets = np.array([0, 26, 64])
    pieces = np.array([[0, 0, 13], [0, 13, 26], [1, 0, 38]])
    found = []
    for table in (dense, columns):
        bits = np.zeros(64, np.uint8)
        splits = SplitsOfRows(starts, stops, np.array([2, 0]), np.array([0.5, -1.0]), np.array([True, False]))
        mark_many(make_queue(), pieces, table, splits, rows, RouteBits(bits, offsets))
        found.append(bits.tolist())
    assert found[0] == found[1]
    assert any(found[0])
