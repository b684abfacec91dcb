"""Sums for many columns side by side, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.split.compile.kernels import kernel
from dtrees.split.search.thresholds import columnwise as lanes


@kernel
def _all(x, y, cut, low, high, missing, sums):  # type: ignore[no-untyped-def]
    lanes.widen(x, low[0], high[0])
    lanes.add_missing(x, 3, missing)
    lanes.add_left(x, cut, 5, sums[0], -7, sums[1])
    lanes.add_two_left(x, y, cut, 5, 11, sums[2], -7, -13, sums[3])


@pytest.mark.parametrize("n_columns", [1, 2, 7, 8, 31, 64])
def test_lanes(n_columns: int) -> None:
    rng = np.random.default_rng(n_columns)
    x, y = rng.integers(-2, 3, (2, n_columns)).astype(float)
    x[rng.random(n_columns) < 0.3] = np.nan
    y[rng.random(n_columns) < 0.3] = np.nan
    cut = rng.integers(-2, 3, n_columns).astype(float)
    low, high = np.tile(rng.normal(size=n_columns), (1, 1)), np.tile(rng.normal(size=n_columns), (1, 1))
    old_low, old_high = low[0].copy(), high[0].copy()
    missing, sums = np.full(n_columns, 100), np.full((4, n_columns), 1000)
    _all(x, y, cut, low, high, missing, sums)
    assert np.array_equal(low, [np.fmin(old_low, x)])
    assert np.array_equal(high, [np.fmax(old_high, x)])
    assert np.array_equal(missing, 100 + 3 * np.isnan(x))
    assert np.array_equal(sums[0], 1000 + 5 * (x <= cut))
    assert np.array_equal(sums[1], 1000 - 7 * (x <= cut))
    assert np.array_equal(sums[2], 1000 + 5 * (x <= cut) + 11 * (y <= cut))
    assert np.array_equal(sums[3], 1000 - 7 * (x <= cut) - 13 * (y <= cut))
