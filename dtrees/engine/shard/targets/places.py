"""Places of row ranges in the row partition, and bounds of consecutive ranges in arrays.

These functions run for each level of a tree on arrays of a few numbers, so they use array methods, which take half the time of NumPy's
functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def places_of(first: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of ranges, one range after the other.

    Examples
    --------
    >>> places_of(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    total = int(sizes.sum())
    ends: NDArray[np.int64] = sizes.cumsum()
    places = (first - (ends - sizes)).repeat(sizes)
    places += np.arange(total)
    return places


def bounds_of(sizes: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the start of each of several consecutive ranges, and the end of the last.

    Examples
    --------
    >>> bounds_of(np.array([2, 0, 3]))
    array([0, 2, 2, 5])
    """
    bounds = np.zeros(sizes.shape[0] + 1, np.int64)
    sizes.cumsum(out=bounds[1:])
    return bounds


def as_columns(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Stack arrays of numbers as the columns of one array.

    Examples
    --------
    >>> as_columns(np.array([7, 2]), np.array([2, 3]))
    array([[7, 2],
           [2, 3]])
    """
    table = np.empty((columns[0].shape[0], len(columns)), np.int64)
    for i, column in enumerate(columns):
        table[:, i] = column
    return table
