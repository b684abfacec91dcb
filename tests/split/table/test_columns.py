"""Columns as codes, dense, keyed and sparse, and tables of some of their rows, compared with NumPy."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import lean_entry
from dtrees.split.table.columns import (
    MAX_ROWS,
    Assembly,
    Columns,
    highest_code_below,
    presort,
    presort_column,
    take_rows,
    take_table,
    value_at,
)
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.sorting import lower_bound
from dtrees.split.table.sparse_columns import n_steps, presort_sparse
from tests.split.strategies import POOLS, columns, tables
from tests.split.tables import random_table, sparse_of

# --- columns as codes, against ``np.unique`` ---


@lean_entry
def _read(words, i):
    return value_at(words, i)


def naive_presort(column: NDArray[Any]) -> tuple[list[int], list[float]]:
    values = column.astype(np.float64)
    missing = np.isnan(values)
    distinct, inverse = np.unique(values[~missing], return_inverse=True)
    codes = np.full(values.shape[0], distinct.shape[0])
    codes[~missing] = inverse
    return codes.tolist(), distinct.tolist()


@given(st.integers(0, 60).flatmap(columns))
def test_presort_column(column: NDArray[Any]) -> None:
    before = column.copy()
    codes, distinct = presort_column(column)
    assert (codes.tolist(), distinct.astype(np.float64).tolist()) == naive_presort(column)
    assert codes.dtype == np.uint32
    assert not np.any(np.signbit(distinct) & (distinct == 0))
    assert column.tobytes() == before.tobytes()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("few", np.float64),
        ("float32 neighbours", np.float32),
        ("float16", np.float32),
        ("bool", np.float32),
        ("uint8", np.float32),
        ("int16", np.float32),
        ("int64", np.float64),
    ],
)
def test_distinct_values_keep_every_value(kind: str, dtype: type) -> None:
    _, distinct = presort_column(POOLS[kind])
    assert distinct.dtype == dtype
    assert distinct.tolist() == sorted(float(x) for x in set(POOLS[kind].tolist()))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_wide_integers_are_not_cut(dtype: type) -> None:
    largest = np.iinfo(dtype).max
    _, distinct = presort_column(np.array([largest - 1, largest], dtype))
    assert distinct.tolist() == [largest - 1, largest]


def test_strided_column() -> None:
    matrix = np.arange(12.0).reshape(4, 3)[::-1]
    codes, distinct = presort_column(matrix[:, 1])
    assert codes.tolist() == [3, 2, 1, 0]
    assert distinct.tolist() == [1.0, 4.0, 7.0, 10.0]


def test_large_column() -> None:
    rng = np.random.default_rng(0)
    column = rng.integers(0, 30_000, 100_000) / 7
    column[rng.random(100_000) < 0.1] = np.nan
    codes, distinct = presort_column(column)
    assert (codes.tolist(), distinct.tolist()) == naive_presort(column)


@given(tables(max_rows=20, max_columns=6))
def test_presort_of_many_columns(table: list[NDArray[Any]]) -> None:
    one = presort(table)
    with ThreadPoolExecutor(3) as pool:
        threaded = presort(table, pool.map)
    assembly = Assembly(table[0].shape[0], len(table))
    assembly.take(range(1, len(table)), presort(table[1:]))
    assembly.sort(0, table[0])
    assembled = assembly.finished()
    assert (one.n_columns, one.n_rows) == (len(table), table[0].shape[0])
    for j, column in enumerate(table):
        codes, distinct = naive_presort(column)
        for columns_ in (one, threaded, assembled):
            assert columns_.codes[j].tolist() == codes
            assert columns_.distinct(j).tolist() == distinct


def test_no_columns_and_no_rows() -> None:
    assert presort([]).n_columns == 0
    empty = presort([np.empty(0), np.empty(0, bool)])
    assert (empty.n_columns, empty.n_rows, empty.values.shape) == (2, 0, (0,))


def test_too_many_rows() -> None:
    with pytest.raises(ValueError, match=r"X has 4294967296 rows.*at most"):
        presort_column(np.broadcast_to(np.zeros(1), 2**32))


def test_highest_code_below() -> None:
    for dtype in (np.float32, np.float64):
        values = np.array([-1.0, 0.0, 2.1, 5.0], dtype)
        words = presort([values]).words
        for threshold in (-1.0, -0.5, 0.0, 1.9, 2.1, float(np.float32(2.1)), 4.0, 5.0, np.inf):
            assert highest_code_below(words, 0, 3, threshold) == np.searchsorted(values.astype(np.float64), threshold, "right") - 1
        assert highest_code_below(words, -1, 3, -2.0) == -1
        assert highest_code_below(words, 1, 2, 9.0) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distinct_values(dtype: type) -> None:
    """Kernels read them unchanged, whatever their precision."""
    values = np.array([0.1, -3.0, np.finfo(dtype).tiny, np.finfo(dtype).max, -np.inf, np.inf], dtype)
    columns = presort([np.zeros(6, dtype), values])
    assert columns.words.dtype == np.float32
    assert columns.values.dtype == dtype
    np.testing.assert_array_equal(columns.distinct(1), np.sort(values))
    assert [_read(columns.words, np.int64(i)) for i in range(1, 7)] == np.sort(values).astype(np.float64).tolist()
    assert Columns.of(*columns._replace(words=columns.values)).words.tobytes() == columns.words.tobytes()


# --- keyed columns: codes have the order of presorted ones, and map to the given values ---


float32s = st.floats(width=32, allow_infinity=False) | st.sampled_from([0.0, -0.0, np.nan, 1.0, 1.0 + 2.0**-23, -1.0, 1e-45, -1e-45])


def arranged(*chunks: list[NDArray[Any]]) -> Columns:
    return arrange_rows(chunks.__getitem__, [len(chunk[0]) for chunk in chunks], len(chunks[0]))


@given(st.lists(float32s, min_size=1, max_size=60), st.lists(float32s, min_size=1, max_size=60), st.lists(st.floats(allow_nan=False)))
def test_codes_are_in_the_order_of_values(first: list[float], second: list[float], others: list[float]) -> None:
    both = np.array(first + second, np.float32)
    n = len(both)
    constant = np.full(n, 7.0)
    chunks = [[np.array(some, np.float32), constant[: len(some)]] for some in (first, second)]
    columns, sorted_ = arranged(*chunks), presort([both, constant])
    assert columns.is_keyed or columns.words.shape == (2, 1)
    np.testing.assert_array_equal(np.unique(columns.codes[0], return_inverse=True)[1], np.unique(sorted_.codes[0], return_inverse=True)[1])
    np.testing.assert_array_equal(columns.values_of(0, columns.codes[0]), both)
    assert not np.signbit(columns.values_of(0, columns.codes[0])[both == 0.0]).any()
    np.testing.assert_array_equal(np.isnan(both), columns.codes[0] == columns.missing(0))
    # A row is up to a value, by its code, if its own value is.
    wanted = np.array([*others, *first, *both.tolist(), np.inf, -np.inf])
    wanted = wanted[~np.isnan(wanted)]
    present = ~np.isnan(both)
    for some in (columns, sorted_):
        up_to = some.codes[0][present] <= some.codes_up_to(0, wanted)[:, None]
        np.testing.assert_array_equal(up_to, both[present].astype(float) <= wanted[:, None])
        column_of = np.arange(wanted.shape[0]) % 2
        together = some.codes_up_to(column_of, wanted)
        for column in (0, 1):
            np.testing.assert_array_equal(together[column_of == column], some.codes_up_to(column, wanted[column_of == column]))


@pytest.mark.parametrize("given", [np.array([2, 2**24 + 1, 0]), np.array([0.1, np.nan, 2.0]), np.array([1e300, 1.0, 0.0])])
def test_what_float32_does_not_hold_is_sorted(given: NDArray[Any]) -> None:
    columns = arranged([given[:1], np.ones(1)], [given[1:], np.ones(len(given) - 1)])
    assert not columns.is_keyed
    np.testing.assert_array_equal(columns.codes, presort([given, np.ones(len(given))]).codes)
    np.testing.assert_array_equal(columns.values_of(0, columns.codes[0]), given)


def test_two_kinds_are_told_apart() -> None:
    """Two columns with two codes in total, but none for one of them."""
    columns = arranged([np.array([np.nan, np.nan]), np.array([1.0, 1.0 + 2.0**-23])])
    assert columns.is_keyed
    np.testing.assert_array_equal(columns.values_of(0, columns.codes[0]), [np.nan, np.nan])
    np.testing.assert_array_equal(columns.values_of(1, columns.codes[1]), [1.0, 1.0 + 2.0**-23])
    assert arranged([np.empty(0), np.empty(0)]).n_rows == 0


# --- sparse columns against the dense columns of the same table ---


@given(st.integers(1, 40), st.integers(1, 6), st.sampled_from([0.0, 0.2, 0.9, 1.0]), st.integers(0, 10**6), st.data())
def test_codes_are_those_of_the_dense_table(n_rows: int, n_columns: int, density: float, seed: int, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int64, np.bool_]))
    X = random_table(n_rows, n_columns, density, seed)
    X = (X if dtype in (np.float32, np.float64) else np.nan_to_num(X)).astype(dtype)
    columns, dense = sparse_of(X), presort(list(X.T))
    assert (columns.n_rows, columns.n_columns) == X.shape
    assert columns.values.dtype == dense.values.dtype
    np.testing.assert_array_equal(columns.values, dense.values)
    np.testing.assert_array_equal(columns.offsets, dense.offsets)
    by_columns, by_rows = (np.repeat(columns.zero_code[:, np.newaxis], n_rows, axis=1) for _ in range(2))
    for j in range(n_columns):
        mine = slice(columns.starts[j], columns.starts[j + 1])
        by_columns[j, columns.rows[mine]] = columns.codes[mine]
    for i in range(n_rows):
        mine = slice(columns.row_starts[i], columns.row_starts[i + 1])
        by_rows[columns.row_columns[mine], i] = columns.row_codes[mine]
        assert (np.diff(columns.row_columns[mine]) > 0).all()
    np.testing.assert_array_equal(by_columns, dense.codes)
    np.testing.assert_array_equal(by_rows, dense.codes)


@given(st.lists(st.integers(0, 30), unique=True, max_size=20), st.integers(0, 31))
def test_lower_bound(rows: list[int], row: int) -> None:
    X = np.zeros((31, 2))
    X[rows, 1] = 1.0
    columns: Any = sparse_of(X)
    found: NDArray[Any] = np.sort(rows)
    assert lower_bound.py_func(columns.rows, columns.starts[1], columns.starts[2], row) == np.searchsorted(found, row)


def test_steps() -> None:
    assert [n_steps.py_func(n) for n in (0, 1, 2, 3, 4, 1000)] == [1, 1, 2, 2, 3, 10]


def test_too_many_rows_of_sparse_columns() -> None:
    nothing = np.empty(0)
    with pytest.raises(ValueError, match="at most"):
        presort_sparse(nothing, nothing, np.zeros(2), MAX_ROWS + 1)


# --- tables of some rows, compared with sorting the values of these rows ---


@given(table=tables(200), data=st.data())
def test_an_excerpt_is_what_sorting_its_rows_gives(table: list[NDArray[Any]], data: st.DataObject) -> None:
    n = table[0].shape[0]
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=2 * n)), np.uint32)
    which = np.array(sorted(data.draw(st.sets(st.integers(0, len(table) - 1)))), np.int64)
    whole = presort(table)
    found = take_rows(whole, which, rows)
    assert found.values.dtype == whole.values.dtype
    wanted = presort([table[j][rows] for j in which])
    np.testing.assert_array_equal(found.codes, wanted.codes.reshape(which.shape[0], rows.shape[0]))
    np.testing.assert_array_equal(found.values, wanted.values)
    np.testing.assert_array_equal(found.offsets, wanted.offsets)
    assembly = Assembly(rows.shape[0], which.shape[0])
    assembly.take(range(which.shape[0]), found)
    assert assembly.finished().codes.dtype == np.uint32
    wanted, own = presort([values[rows] for values in table]), take_table(whole, rows, lambda j, distinct: distinct)
    for ours, theirs in zip(own, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@pytest.mark.parametrize(("n", "dtype"), [(2**16 - 1, np.uint16), (2**16, np.uint32)])
def test_codes_are_as_narrow_as_can_be(n: int, dtype: type) -> None:
    """65,535 distinct values and the code for missing ones are 65,536 codes."""
    values = np.arange(n, dtype=np.float32)
    values[-1] = np.nan
    found = take_rows(presort([values]), np.array([0]), np.arange(n, dtype=np.uint32))
    assert found.codes.dtype == dtype
    assert found.codes[0].tolist() == list(range(n))
