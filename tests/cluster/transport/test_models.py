"""Models that have come from another process."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from numpy.typing import NDArray
from scipy.sparse import csr_array

import dtrees
from dtrees.split.compile import kernels


def n_compiled() -> int:
    return sum(len(kernel.overloads) for kernel in kernels._kernels.values())


def received(thing: Any) -> Any:
    """Return what arrives: arrays that must not be written to, somewhere in memory."""
    header, frames = serialize(thing)
    return deserialize(header, [memoryview(b"." + bytes(frame))[1:] for frame in frames])


def tables(X: NDArray[np.float64]) -> tuple[Any, ...]:
    """Return a table, of whatever numbers of rows and columns sparse blocks have."""
    return X, X[:1], csr_array(X), csr_array(X[:1]), csr_array(X[:, :1] * np.ones(2))


def received_table(table: Any) -> Any:
    """Return a table as it arrives, of arrays that are neither aligned nor to be written to."""
    if isinstance(table, csr_array):
        parts = [received_table(part) for part in (table.data, table.indices, table.indptr)]
        sparse = csr_array(tuple(parts), shape=table.shape, copy=False)
        assert not sparse.data.flags.aligned
        return sparse
    read_only = np.array(table)
    read_only.flags.writeable = False
    there = received(read_only)
    assert not there.flags.writeable
    assert not there.flags.aligned
    return there


@pytest.mark.parametrize("n_rows", [60, 3000])
def test_no_kernel_is_compiled_for_where_arrays_lie(n_rows: int) -> None:
    """Neither for those of trees, small or pickled compactly, nor for those of tables."""
    X = np.random.default_rng(0).random((n_rows, 2))
    model = dtrees.DecisionTreeRegressor().fit(X, X[:, 0])
    expected = [(model.predict(table), model.apply(table)) for table in tables(X)]
    pickle.loads(pickle.dumps(model)).apply(X)
    before = n_compiled()
    other = received(pickle.loads(pickle.dumps(received(model))))
    if n_rows < 1000:
        assert not other.tree_.threshold.flags.writeable
    for table, (values, leaves) in zip(map(received_table, tables(X)), expected, strict=True):
        np.testing.assert_array_equal(other.predict(table), values)
        np.testing.assert_array_equal(other.apply(table), leaves)
    pickle.dumps(other)
    assert n_compiled() == before
