"""Rows drawn from Dask collections are those that are drawn from the same tables in memory."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dtrees.cluster.backend import DaskBackend
from dtrees.ensemble.in_process import LOCAL

X = pd.DataFrame({"a": np.arange(100), "b": [f"t{k % 7}" for k in range(100)]})
Y, WEIGHT = pd.Series(np.arange(100) * 2.0), np.arange(100) / 3


@pytest.mark.parametrize("n", [None, 1, 17, 100, 1000])
def test_rows_of_frames(n):
    n_rows, (x, y, weight, none) = LOCAL.draw_rows(n, 5, X, Y, WEIGHT, None)
    assert n_rows == 100
    assert none is None
    assert len(x) == len(y) == min(n or 100, 100)
    assert (x["a"] * 2 == y).all()
    np.testing.assert_array_equal(weight, x["a"] / 3)
    lazy = dd.from_pandas(X, npartitions=4), dd.from_pandas(Y, npartitions=3), WEIGHT, None
    found = DaskBackend().draw_rows(n, 5, *lazy)
    assert found[0] == 100
    pd.testing.assert_frame_equal(found[1][0].astype({"b": str}), x.astype({"b": str}))
    pd.testing.assert_series_equal(found[1][1], y)
    np.testing.assert_array_equal(found[1][2], weight)
    assert found[1][3] is None


def test_rows_of_arrays():
    values = np.random.default_rng(0).normal(size=(60, 4))
    lazy = da.from_array(values, chunks=(7, 2)), da.from_array(values[:, :2], chunks=(20, 1))
    n_rows, (x, y) = DaskBackend().draw_rows(9, 0, *lazy)
    _, (wanted, _) = LOCAL.draw_rows(9, 0, values, values[:, 0])
    assert n_rows == 60
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(y, wanted[:, :2])


def test_rows_that_do_not_match():
    for backend, x, y in (
        (LOCAL, X, Y[:9]),
        (DaskBackend(), dd.from_pandas(X, npartitions=2), dd.from_pandas(Y[:9], npartitions=2)),
        (DaskBackend(), dd.from_pandas(X, npartitions=2), WEIGHT[:9]),
    ):
        with pytest.raises(ValueError, match="X has 100 rows but y or sample_weight has 9"):
            backend.draw_rows(5, 0, x, y)
