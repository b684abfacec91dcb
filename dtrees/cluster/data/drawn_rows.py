"""Some rows of Dask collections, drawn at random and brought to this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from dtrees.cluster.data.partitions import column_names, in_order, is_lazy, joined, partitions_of, whole_rows
from dtrees.ensemble.in_process import drawn_rows
from dtrees.ensemble.input.tables import is_sparse


def draw_rows(n: int | None, seed: int, X: Any, others: Sequence[Any]) -> tuple[int, list[Any]]:
    """Return how many rows X has, and at most ``n`` of them from X and each of the others (lazy or not, or None).

    Collections are computed twice, once to count rows, unless they are persisted; partitions without a drawn row only once.

    Raises
    ------
    ValueError
        If the others have not as many rows as X.
    """
    collections = [whole_rows(X), *others]
    lazy = [collection for collection in collections if is_lazy(collection)]
    parts = partitions_of([_in_rows(collection) for collection in lazy])
    lengths = dask.compute(*[[dask.delayed(_length)(part) for part in group] for group in parts])
    n_rows = sum(lengths[0])
    for given in lengths[1:]:
        if sum(given) != n_rows:
            raise ValueError(f"X has {n_rows} rows but y or sample_weight has {sum(given)}; all must describe the same rows")
    rows = drawn_rows(n_rows, n, seed)
    names = [column_names(collection) if collection.ndim == 2 else None for collection in lazy]
    pieces = dask.compute(*[_pieces(*of, rows) for of in zip(parts, lengths, names, strict=True)])
    found = iter([joined(group) for group in pieces])
    return n_rows, [next(found) if is_lazy(collection) else _local_rows(collection, n_rows, rows) for collection in collections]


def _in_rows(collection: Any) -> Any:
    return whole_rows(collection) if collection.ndim == 2 else collection


def _pieces(parts: Sequence[Any], lengths: Sequence[int], names: list[Any] | None, rows: NDArray[np.int64]) -> list[Any]:
    """Return, as tasks, the drawn rows of each partition that has any; those of the first one where none has."""
    starts = np.concatenate([[0], np.cumsum(lengths)])
    bounds = np.searchsorted(rows, starts)
    take = dask.delayed(_take)
    pieces = [
        take(part, rows[first:last] - start, names)
        for part, start, first, last in zip(parts, starts[:-1].tolist(), bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        if last > first
    ]
    return pieces or [take(parts[0], np.arange(0), names)]


def _take(part: Any, rows: NDArray[np.int64], names: list[Any] | None) -> Any:
    part = in_order(part, names) if names is not None else part
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


def _length(part: Any) -> int:
    return int(part.shape[0]) if is_sparse(part) else len(part)


def _local_rows(values: Any, n_rows: int, rows: NDArray[np.int64]) -> Any:
    """Return rows of what was in this process from the start, or None."""
    if values is None:
        return None
    if len(values) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y or sample_weight has {len(values)}; all must describe the same rows")
    return np.asarray(values)[rows]
