"""Which rows are held out for the test.

A row's number (its position among all rows, from 0) and the seed decide, nothing else: the same rows are held out however the data is
cut into partitions, and no worker needs to know of another's rows. The share is met on average, not to the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def held_out(first: int, n_rows: int, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Return which of the rows ``first, first + 1, ...`` are for the test.

    Parameters
    ----------
    first : int
        Number of the first row.
    n_rows : int
        How many rows.
    fraction : float
        Share of rows for the test, in [0, 1].
    seed : int
        Another seed holds out other rows.

    Returns
    -------
    ndarray of bool, shape (n_rows,)

    Examples
    --------
    >>> whole = held_out(0, 1000, 0.2, seed=7)
    >>> int(whole.sum())
    172
    >>> bool((whole[600:] == held_out(600, 400, 0.2, seed=7)).all())
    True
    """
    rows = np.arange(first, first + n_rows, dtype=np.uint64)
    start = _mix(np.array([seed], dtype=np.uint64))
    return (_mix(start ^ _mix(rows)) >> np.uint64(11)) * 2.0**-53 < fraction


def split(frame: Any, fraction: float, seed: int) -> tuple[Any, Any]:
    """Return the training rows and the test rows of a Dask DataFrame, both lazy and with its partitions.

    Counting the rows of the partitions is computed at once; nothing else comes to the client.
    """
    import dask
    import dask.dataframe as dd

    parts = frame.to_delayed()
    lengths = dask.compute(*[dask.delayed(len)(part) for part in parts])
    starts = np.concatenate([[0], np.cumsum(lengths)])[: len(parts)]

    def select(test: bool) -> Any:
        pieces = [dask.delayed(_select)(part, int(start), fraction, seed, test) for part, start in zip(parts, starts, strict=True)]
        return dd.from_delayed(pieces, meta=frame._meta, verify_meta=False, prefix="dtrees-test-rows" if test else "dtrees-train-rows")

    return select(False), select(True)


def _select(part: Any, start: int, fraction: float, seed: int, test: bool) -> Any:
    return part[held_out(start, len(part), fraction, seed) == test]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the result depends on every bit of ``x``."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
