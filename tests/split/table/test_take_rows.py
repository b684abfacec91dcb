"""Excerpts of tables, against sorting the values of their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.table.columns import Assembly, presort, take_rows
from tests.split.strategies import tables


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


@pytest.mark.parametrize(("n", "dtype"), [(2**16 - 1, np.uint16), (2**16, np.uint32)])
def test_codes_are_as_narrow_as_can_be(n: int, dtype: type) -> None:
    """65,535 distinct values and the code for missing ones are 65,536 codes."""
    values = np.arange(n, dtype=np.float32)
    values[-1] = np.nan
    found = take_rows(presort([values]), np.array([0]), np.arange(n, dtype=np.uint32))
    assert found.codes.dtype == dtype
    assert found.codes[0].tolist() == list(range(n))
