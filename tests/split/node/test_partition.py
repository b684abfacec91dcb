"""Division of rows: stable, in and out of sample, without touching other nodes.

The rows going left by a split of a sparse column are compared with the dense column.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dtrees.engine.protocol.nodes import RouteBits
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import make_queue
from dtrees.split.node.partition import (
    Cut,
    RowPartition,
    SplitsOfRows,
    add_by_leaf,
    checksum,
    divide,
    gather,
    is_pure,
    mark_left,
    mark_left_sparse,
    mark_many,
    mark_places_sparse,
    number,
)
from dtrees.split.table.columns import presort
from tests.split.tables import random_table, sparse_of


def partition_of(rows: NDArray[np.uint32], weighted: bool) -> RowPartition:
    """Return a partition whose numbers identify the rows."""
    a = rows.astype(np.int64) * 10
    return RowPartition(rows.copy(), a, a + 1 if weighted else np.empty(0, np.int64))


@given(st.integers(1, 70), st.booleans(), st.data())
def test_divide(n: int, weighted: bool, data: st.DataObject) -> None:
    start, in_stop, stop = sorted(data.draw(st.tuples(*[st.integers(0, n)] * 3)))
    goes_left = data.draw(arrays(np.bool_, stop - start))
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    partition = partition_of(rows, weighted)
    bits = np.packbits(goes_left, bitorder="little")
    inside, outside = divide(bits, partition, start, in_stop, stop, partition.spare(partition.rows.shape[0]))

    mine, sides, is_in = rows[start:stop], goes_left, np.arange(start, stop) < in_stop
    parts = [mine[sides & is_in], mine[sides & ~is_in], mine[~sides & is_in], mine[~sides & ~is_in]]
    assert (inside, outside) == (len(parts[0]), len(parts[1]))
    expected = rows.copy()
    expected[start:stop] = np.concatenate(parts)
    assert partition.rows.tolist() == expected.tolist()
    # The numbers move with the in-sample rows; nothing else moves.
    middle = start + inside + outside
    for array, offset in ((partition.g, 0), (partition.h, 1)) if weighted else ((partition.g, 0),):
        for first, last in ((0, start), (start, start + inside), (middle, middle + len(parts[2])), (stop, n)):
            assert array[first:last].tolist() == (partition.rows[first:last].astype(np.int64) * 10 + offset).tolist()


@given(st.integers(1, 50), st.integers(0, 6), st.booleans(), st.data())
def test_mark_left(n: int, n_distinct: int, missing_left: bool, data: st.DataObject) -> None:
    codes = data.draw(arrays(np.uint32, n, elements=st.integers(0, n_distinct)))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))
    cut = data.draw(st.integers(-1, max(n_distinct - 1, -1)))
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    bits = np.full((stop - start + 7) // 8, 0xAA, np.uint8)
    mark_left(codes, Cut(cut, n_distinct, missing_left), rows, start, stop, bits)
    mine = codes[rows[start:stop]].astype(np.int64)
    left = np.where(mine == n_distinct, missing_left, mine <= cut)
    assert bits.tolist() == np.packbits(left, bitorder="little").tolist()


@given(st.integers(0, 9), st.booleans(), st.data())
def test_gather_returns_totals(n: int, weighted: bool, data: st.DataObject) -> None:
    n_in = data.draw(st.integers(0, n))
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    g = data.draw(arrays(np.int64, n, elements=st.integers(-(2**58), 2**58)))
    h = data.draw(arrays(np.int64, n, elements=st.integers(0, 2**58))) if weighted else np.empty(0, np.int64)
    partition = RowPartition(rows, np.empty(n, np.int64), np.empty(h.shape[0], np.int64))
    a, b, size, steepest = gather(partition, 0, n_in, g, h)
    pairs = [(int(g[row]), int(h[row]) if weighted else 1) for row in rows[:n_in]]
    assert (a, b, size) == (sum(x for x, _ in pairs), sum(w for _, w in pairs), sum(abs(x) for x, _ in pairs))
    slopes = [Fraction(abs(x), w) if w else math.inf for x, w in pairs if w or x]
    exact = max(slopes, default=Fraction(0))
    assert exact <= steepest  # a bound, and a close one
    assert steepest == math.inf if exact == math.inf else steepest <= exact * (1 + Fraction(2) ** -40)


@pytest.mark.parametrize("weighted", [False, True])
def test_gather(weighted: bool) -> None:
    rows = np.array([4, 0, 2, 1, 3], np.uint32)
    partition = RowPartition(rows, np.full(5, -1), np.full(5 if weighted else 0, -1))
    gather(partition, 0, 1, np.arange(5) * 10, np.arange(5) * 7)
    gather(partition, 1, 3, np.arange(5) * 10, np.arange(5) * 7)
    assert partition.g.tolist() == [40, 0, 20, -1, -1]
    assert partition.h.tolist() == ([28, 0, 14, -1, -1] if weighted else [])


@given(st.integers(1, 60), st.integers(1, 9), st.booleans(), st.data())
def test_add_by_leaf(n: int, n_chunks: int, in_order: bool, data: st.DataObject) -> None:
    starts = np.array([0, *sorted(data.draw(st.sets(st.integers(1, n), max_size=n)) - {n})], np.int64)
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    total, values = np.arange(n) / 8, np.arange(1.0, starts.shape[0] + 1.0)
    expected = total.copy()
    for leaf, mine in enumerate(np.split(rows, starts[1:])):
        expected[mine] += values[leaf]
    leaf_of = np.full(n if in_order else 0, 0xFF, np.uint8)
    n_tasks = 2 * n_chunks if in_order else n_chunks
    with Threads(2) as threads:
        threads.share(n_tasks, lambda queue, _: add_by_leaf(queue, n_chunks, total, rows, starts, values, leaf_of))
    assert total.tolist() == expected.tolist()


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_number(n: int) -> None:
    rows = np.full(n, 7, np.uint32)
    number(rows)
    assert rows.tolist() == list(range(n))


@given(arrays(np.float64, st.integers(1, 12), elements=st.sampled_from([0.0, 1.0, np.nextafter(1.0, 2.0)])), st.data())
def test_is_pure(target: NDArray[np.float64], data: st.DataObject) -> None:
    n = target.shape[0]
    rows = np.random.default_rng(n).permutation(n).astype(np.uint32)
    start = data.draw(st.integers(0, n - 1))
    in_stop = data.draw(st.integers(start + 1, n))
    assert is_pure(target, rows, start, in_stop) == (len(set(target[rows[start:in_stop]])) == 1)
    assert not is_pure(np.empty(0), rows, start, in_stop)


@pytest.mark.parametrize("weighted", [False, True])
def test_checksum_sees_every_number_and_its_place(weighted: bool) -> None:
    n = 50
    seen = set()
    for name in ("rows", "g", "h"):
        for i in range(n - 1):
            partition = partition_of(np.arange(n, dtype=np.uint32), weighted)
            array = getattr(partition, name)
            if array.shape[0]:
                array[[i, i + 1]] = array[[i + 1, i]]
                seen.add(int(checksum(partition)))
    assert len(seen) == (3 if weighted else 2) * (n - 1)
    whole = partition_of(np.arange(n, dtype=np.uint32), weighted)
    assert int(checksum(whole)) not in seen
    assert int(checksum(whole)) == int(checksum(partition_of(np.arange(n, dtype=np.uint32), weighted)))


@kernel
def mark(columns, column, cut, missing_left, rows, place_of, start, stop, bits):  # type: ignore[no-untyped-def]
    mark_left_sparse(
        columns, column, Cut(cut, columns.offsets[column + 1] - columns.offsets[column], missing_left), rows, place_of, start, stop, bits
    )


@kernel
def mark_by_place(columns, column, cut, missing_left, place_of, start, stop, marks):  # type: ignore[no-untyped-def]
    rule = Cut(cut, columns.offsets[column + 1] - columns.offsets[column], missing_left)
    return mark_places_sparse(columns, column, rule, place_of, start, stop, marks)


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
    marks = np.full(n_rows, 2, np.uint8)
    assert mark_by_place(columns, 1, cut, missing_left, place_of, start, stop, marks) == wanted.sum()
    assert marks.tolist() == [2] * start + wanted.tolist() + [2] * (n_rows - stop)


def test_marks_of_many_splits() -> None:
    X = random_table(500, 3, 0.3, 7)
    columns, dense = sparse_of(X), presort(list(X.T))
    rows = np.random.default_rng(0).permutation(500).astype(np.uint32)
    starts, stops = np.array([0, 203]), np.array([203, 500])
    offsets = np.array([0, 26, 64])
    chunks = np.array([[0, 0, 13], [0, 13, 26], [1, 0, 38]])
    found = []
    for table in (dense, columns):
        bits = np.zeros(64, np.uint8)
        splits = SplitsOfRows(starts, stops, np.array([2, 0]), np.array([0.5, -1.0]), np.array([True, False]))
        mark_many(make_queue(), chunks, table, splits, rows, RouteBits(bits, offsets))
        found.append(bits.tolist())
    assert found[0] == found[1]
    assert any(found[0])
