"""Sparse tables as users pass them: those of scipy.sparse, in any format.

CSR and CSC are taken as they are, other formats are converted as scikit-learn converts them. A cell that is not stored is 0, and a stored 0
is the same; cells that are stored more than once are added up; NaN is missing. Nothing here makes a table dense.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def is_sparse(X: Any) -> bool:
    """Return whether ``X`` is an array or a matrix of scipy.sparse."""
    return bool(sparse.issparse(X))


def sparse_table(X: Any) -> Any:
    """Return a sparse ``X`` as CSR or CSC of shape (n, n_columns), of float32, float64, integers or bool; n may be 0.

    Raises
    ------
    ValueError
        If X is not 2-D, has no columns, or holds complex numbers.
    """
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X is sparse, of shape {X.shape}; wants shape (n, n_features).")
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: X is sparse, of dtype {X.dtype}; wants real numbers")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X is sparse, of dtype {X.dtype}; wants numbers")
    if X.shape[1] == 0:
        raise ValueError(f"X has 0 feature(s) (shape={X.shape}) while a minimum of 1 is required.")
    if X.format not in ("csr", "csc"):
        X = X.tocsr()
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float32 if X.dtype.itemsize == 2 else np.float64)
    return X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("="))


def by_columns(X: Any) -> Any:
    """Return what :func:`sparse_table` returned as CSC: rows ascending within a column, each once, and no stored zero."""
    X = _canonical(X, "csc")
    if np.count_nonzero(X.data) < X.data.shape[0]:
        X = X.copy()
        X.eliminate_zeros()
    return X


def by_rows(X: Any) -> Any:
    """Return what :func:`sparse_table` returned as CSR: columns ascending within a row, each once."""
    return _canonical(X, "csr")


def _canonical(X: Any, form: str) -> Any:
    """Return a table in a format, with cells in order, each once; the user's stays as it is.

    A conversion sorts cells, and those of the same place stay in their order: they are added up in the order in which ``toarray`` does.
    """
    if X.format == form and not X.has_canonical_format:
        X = X.tocsc() if form == "csr" else X.tocsr()
    converted = X.asformat(form)
    if not converted.has_canonical_format:
        converted = converted.copy() if converted is X else converted
        converted.sum_duplicates()
    return converted
