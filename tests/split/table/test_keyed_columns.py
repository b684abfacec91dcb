"""Keyed columns: the codes of presorted ones are their ranks, and what they stand for is what was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.table.columns import Columns, presort
from dtrees.split.table.keyed_columns import arrange_rows

float32s = st.floats(width=32, allow_infinity=False) | st.sampled_from([0.0, -0.0, np.nan, 1.0, 1.0 + 2.0**-23, -1.0, 1e-45, -1e-45])


def arranged(*pieces: list[NDArray[Any]]) -> Columns:
    return arrange_rows(pieces.__getitem__, [len(piece[0]) for piece in pieces], len(pieces[0]))


@given(st.lists(float32s, min_size=1, max_size=60), st.lists(float32s, min_size=1, max_size=60), st.lists(st.floats(allow_nan=False)))
def test_codes_are_in_the_order_of_values(first: list[float], second: list[float], others: list[float]) -> None:
    both = np.array(first + second, np.float32)
    n = len(both)
    constant = np.full(n, 7.0)
    pieces = [[np.array(some, np.float32), constant[: len(some)]] for some in (first, second)]
    columns, sorted_ = arranged(*pieces), presort([both, constant])
    assert columns.is_keyed or columns.words.shape == (2, 1)
    np.testing.assert_array_equal(np.unique(columns.codes[0], return_inverse=True)[1], np.unique(sorted_.codes[0], return_inverse=True)[1])
    np.testing.assert_array_equal(columns.values_of(0, columns.codes[0]), both)
    assert not np.signbit(columns.values_of(0, columns.codes[0])[both == 0.0]).any()
    np.testing.assert_array_equal(np.isnan(both), columns.codes[0] == columns.missing(0))
    # A row is up to a value, by its code, where its own value is.
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
    """Two columns of two codes together, but none for one of them."""
    columns = arranged([np.array([np.nan, np.nan]), np.array([1.0, 1.0 + 2.0**-23])])
    assert columns.is_keyed
    np.testing.assert_array_equal(columns.values_of(0, columns.codes[0]), [np.nan, np.nan])
    np.testing.assert_array_equal(columns.values_of(1, columns.codes[1]), [1.0, 1.0 + 2.0**-23])
    assert arranged([np.empty(0), np.empty(0)]).n_rows == 0
