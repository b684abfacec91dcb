"""Tables and numbers for tests of the split core."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.table.sparse_columns import SparseColumns, presort_sparse


def random_table(n_rows: int, n_columns: int, density: float, seed: int) -> NDArray[np.float64]:
    """Return a table with ties, negative and missing values, and some columns of many values."""
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n_rows, n_columns)) < 0.5, rng.integers(-3, 4, (n_rows, n_columns)), rng.normal(size=(n_rows, n_columns)))
    X[rng.random(X.shape) < rng.choice([0.0, 0.1])] = np.nan
    return np.where(rng.random(X.shape) < density, X, 0.0)


def sparse_of(X: NDArray[Any]) -> SparseColumns:
    """Return the columns of a dense table as sparse ones."""
    columns, rows = np.nonzero(X.T)
    starts = np.append(0, np.cumsum(np.bincount(columns, minlength=X.shape[1])))
    return presort_sparse(X[rows, columns], rows, starts, X.shape[0])
