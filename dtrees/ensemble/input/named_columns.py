"""Columns that a parameter names: by position, by a mask, or by the names of a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def columns_of_categories(given: Any, n_columns: int, names: NDArray[Any] | None) -> tuple[int, ...] | None:
    """Return the columns that ``categorical_features`` names, ascending; None where their dtype is to tell.

    Parameters
    ----------
    given : "from_dtype", None, or array-like
        A mask, positions, or names.
    n_columns : int
    names : ndarray of str or None
        Of the columns, where they have any.

    Raises
    ------
    ValueError
        If a column is not there, or is named twice.

    Examples
    --------
    >>> columns_of_categories(["job"], 2, np.array(["age", "job"])), columns_of_categories([True, False], 2, None)
    ((1,), (0,))
    """
    if isinstance(given, str):
        return None
    if given is None:
        return ()
    array = np.asarray(given)
    if array.ndim != 1:
        raise ValueError(f"categorical_features has shape {array.shape}; wants a list of columns, or a mask of shape ({n_columns},)")
    if array.size == 0:
        return ()
    if array.dtype.kind == "b":
        if array.shape[0] != n_columns:
            raise ValueError(f"categorical_features is a mask of {array.shape[0]} columns, but X has {n_columns}")
        return tuple(np.flatnonzero(array).tolist())
    places = []
    for item in array.tolist():
        if isinstance(item, str):
            if names is None:
                raise ValueError(f"categorical_features names the column {item!r:.60}, but the columns of X have no names; pass positions")
            found = np.flatnonzero(names == item)
            if not found.size:
                raise ValueError(f"categorical_features names the column {item!r:.60}, which X does not have; it has {list(names)!r:.200}")
            places.append(int(found[0]))
        elif isinstance(item, int) and 0 <= item < n_columns:
            places.append(item)
        else:
            raise ValueError(
                f"categorical_features holds {item!r:.60}; wants names of columns, positions from 0 to {n_columns - 1}, or a mask of bool"
            )
    if len(set(places)) < len(places):
        raise ValueError(f"categorical_features is {given!r:.200}, which names a column twice")
    return tuple(sorted(places))
