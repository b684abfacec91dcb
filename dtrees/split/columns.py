"""A table as codes: what every scan reads.

Terms
-----
distinct values
    the values a column takes, ascending, missing ones apart.
code
    the index of a row's value among its column's distinct values; a missing value has the code after the last one.

Codes keep everything a decision tree can see of a column: a split between two neighbouring values is a split between two codes, so
kernels compare integers and never floats, and columns with few distinct values are summed value by value without any sorting. The
distinct values are needed only to turn a chosen split into a threshold. Columns are never written to once made, and are shared by all
trees and threads.

Use
---
>>> import numpy as np
>>> columns = presort([np.array([0.5, np.nan, -1.0, 0.5])])
>>> columns.codes
array([[1, 2, 0, 1]], dtype=uint32)
>>> columns.values
array([-1. ,  0.5])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Rows are numbered by uint32; the highest numbers are kept free.
MAX_ROWS = 2**32 - 2**16


class Columns(NamedTuple):
    """Presorted columns of the same rows.

    Attributes
    ----------
    codes : ndarray of uint32, shape (n_columns, n_rows)
        Index of each row's value among the distinct values of its column; their number if the value is missing.
    values : ndarray of float32 or float64, shape (n_distinct,)
        The distinct values of all columns, one column after the other, each ascending.
    offsets : ndarray of int64, shape (n_columns + 1,)
        Column ``j`` has the distinct values ``values[offsets[j]:offsets[j + 1]]``.
    """

    codes: NDArray[np.uint32]
    values: NDArray[Any]
    offsets: NDArray[np.int64]

    @property
    def n_columns(self) -> int:
        return int(self.codes.shape[0])

    @property
    def n_rows(self) -> int:
        return int(self.codes.shape[1])

    def distinct(self, column: int) -> NDArray[Any]:
        """Return the distinct values of a column, ascending."""
        return self.values[self.offsets[column] : self.offsets[column + 1]]


def presort_column(values: NDArray[Any], codes: NDArray[np.uint32] | None = None) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """Sort one column.

    Parameters
    ----------
    values : ndarray, shape (n_rows,)
        Booleans, integers within ±2**53, float32 or float64; NaN is missing.
    codes : ndarray of uint32, shape (n_rows,), optional
        Where to write the codes.

    Returns
    -------
    codes : ndarray of uint32, shape (n_rows,)
    distinct : ndarray of float32 or float64, shape (n_distinct,)
        float32 where that holds every value of the column's dtype, float64 elsewhere.
    """
    n = values.shape[0]
    if n > MAX_ROWS:
        raise ValueError(f"X has {n} rows; dtrees numbers rows with 32 bits and takes at most {MAX_ROWS}.")
    if codes is None:
        codes = np.empty(n, dtype=np.uint32)
    dtype = np.float32 if np.can_cast(values.dtype, np.float32) else np.float64
    values = np.ascontiguousarray(values, dtype=dtype)
    order = np.argsort(values)  # NaN last
    ordered = values[order]
    n_valid = n - _count_trailing_nan(ordered)
    starts = np.empty(n_valid, dtype=bool)
    starts[:1] = True
    np.not_equal(ordered[1:n_valid], ordered[: max(n_valid - 1, 0)], out=starts[1:])
    distinct = ordered[:n_valid][starts] + dtype(0.0)  # -0.0 and 0.0 are one value: show it as 0.0
    numbers = np.full(n, distinct.shape[0], dtype=np.uint32)
    np.cumsum(starts, dtype=np.uint32, out=numbers[:n_valid])
    numbers[:n_valid] -= np.uint32(1)
    codes[order] = numbers
    return codes, distinct


def _count_trailing_nan(ordered: NDArray[Any]) -> int:
    """Return how many NaN end an array sorted by NumPy."""
    return int(ordered.shape[0] - np.searchsorted(ordered, np.nan, side="left"))


def presort(
    columns: Sequence[NDArray[Any]], map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map
) -> Columns:
    """Sort many columns of the same rows.

    Parameters
    ----------
    columns : sequence of ndarray, each of shape (n_rows,)
        See :func:`presort_column`.
    map : callable, default=map
        How to map over columns; a thread pool's ``map`` sorts them in parallel.
    """
    codes = np.empty((len(columns), columns[0].shape[0] if columns else 0), dtype=np.uint32)
    distinct = list(map(lambda j: presort_column(columns[j], codes[j])[1], range(len(columns))))
    return Columns(codes, *_join(distinct))


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Put columns of the same rows side by side."""
    distinct = [part.distinct(j) for part in parts for j in range(part.n_columns)]
    return Columns(np.concatenate([part.codes for part in parts]), *_join(distinct))


def _join(distinct: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    offsets = np.zeros(len(distinct) + 1, dtype=np.int64)
    np.cumsum([d.shape[0] for d in distinct], out=offsets[1:])
    return np.concatenate(distinct) if distinct else np.empty(0), offsets
