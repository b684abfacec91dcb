"""Sparse partitions, put together and presorted: the columns of the whole table, in memory for what is stored."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dtrees.cluster.data.tables import _cells, _presort_cells
from dtrees.ensemble.input.column import Column
from dtrees.ensemble.input.schema import Schema
from dtrees.split.table.sparse_columns import presort_sparse


def test_sparse_partitions_are_never_dense() -> None:
    """Dense, the table would take 16 GB; cells come in no order, some twice, some as zeros."""
    random = np.random.default_rng(0)
    n_rows, n_columns, n_cells = 2_000, 1_000_000, 500
    rows, columns = random.integers(0, n_rows, n_cells), random.integers(0, n_columns, n_cells)
    rows[:50], columns[:50] = rows[50:100], columns[50:100]
    values = random.integers(-2, 3, n_cells).astype(np.float64)
    values[0] = np.nan
    table = sparse.coo_array((values, (rows, columns)), shape=(n_rows, n_columns)).tocsr()
    schema = Schema((Column(None, "numeric", "float64"),) * n_columns)
    pieces = [_cells(part, schema) for part in (table[:700].tocsc(), table[700:700], table[700:])]
    found = _presort_cells(pieces, n_rows)
    cells = schema.cells(table)
    for own, wanted in zip(found, presort_sparse(cells.data, cells.indices, cells.indptr, n_rows), strict=True):
        np.testing.assert_array_equal(own, wanted)
        assert own.dtype == wanted.dtype
