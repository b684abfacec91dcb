"""Columns that a parameter names: by position, by a mask, or by the names of a frame."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: In place of the columns, or as one of them: those that hold text or a dtype of categories.
FROM_DTYPE = "from_dtype"


class Chosen(NamedTuple):
    """Which columns hold categories: those that are named, ascending, and, ``by_dtype``, those whose dtype says so."""

    named: tuple[int, ...]
    by_dtype: bool


def columns_of_categories(given: Any, n_columns: int, names: NDArray[Any] | None) -> Chosen:
    """Return the columns that ``categorical_features`` chooses.

    Parameters
    ----------
    given : "from_dtype", None, or array-like
        A mask, positions, or names, of which "from_dtype" may be one.
    n_columns : int
    names : ndarray of str or None
        Of the columns, where they have any.

    Raises
    ------
    ValueError
        If a column is not there, or is named twice.

    Examples
    --------
    >>> columns_of_categories(["from_dtype", "job"], 2, np.array(["age", "job"])), columns_of_categories([True, False], 2, None)
    (Chosen(named=(1,), by_dtype=True), Chosen(named=(0,), by_dtype=False))
    """
    if isinstance(given, str):
        return Chosen((), True)
    if given is None:
        return Chosen((), False)
    array = np.asarray(given)
    if array.ndim != 1:
        raise ValueError(f"categorical_features has shape {array.shape}; wants a list of columns, or a mask of shape ({n_columns},)")
    if array.size == 0:
        return Chosen((), False)
    if FROM_DTYPE in array.tolist():
        rest = [item for item in given if not (isinstance(item, str) and item == FROM_DTYPE)]
        return Chosen(columns_of_categories(rest, n_columns, names).named, True)
    if array.dtype.kind == "b":
        if array.shape[0] != n_columns:
            raise ValueError(f"categorical_features is a mask of {array.shape[0]} columns, but X has {n_columns}")
        return Chosen(tuple(np.flatnonzero(array).tolist()), False)
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
    return Chosen(tuple(sorted(places)), False)
