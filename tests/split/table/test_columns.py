"""Columns as codes, against ``np.unique``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.compile.kernels import lean_entry
from dtrees.split.table.columns import Assembly, Columns, highest_code_below, presort, presort_column, value_at
from tests.split.strategies import POOLS, columns, tables


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
    """Kernels read them as they are, whatever their precision."""
    values = np.array([0.1, -3.0, np.finfo(dtype).tiny, np.finfo(dtype).max, -np.inf, np.inf], dtype)
    columns = presort([np.zeros(6, dtype), values])
    assert columns.words.dtype == np.float32
    assert columns.values.dtype == dtype
    np.testing.assert_array_equal(columns.distinct(1), np.sort(values))
    assert [_read(columns.words, np.int64(i)) for i in range(1, 7)] == np.sort(values).astype(np.float64).tolist()
    assert Columns.of(*columns._replace(words=columns.values)).words.tobytes() == columns.words.tobytes()
