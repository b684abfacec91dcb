"""Sparse columns against the dense columns of the same table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.table.columns import MAX_ROWS, presort
from dtrees.split.table.sparse_columns import find_row, n_steps, presort_sparse
from tests.split.tables import random_table, sparse_of


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
def test_find_row(rows: list[int], row: int) -> None:
    X = np.zeros((31, 2))
    X[rows, 1] = 1.0
    columns: Any = sparse_of(X)
    found: NDArray[Any] = np.sort(rows)
    assert find_row.py_func(columns, columns.starts[1], columns.starts[2], row) == np.searchsorted(found, row)


def test_steps() -> None:
    assert [n_steps.py_func(n) for n in (0, 1, 2, 3, 4, 1000)] == [1, 1, 2, 2, 3, 10]


def test_too_many_rows() -> None:
    nothing = np.empty(0)
    with pytest.raises(ValueError, match="at most"):
        presort_sparse(nothing, nothing, np.zeros(2), MAX_ROWS + 1)
