"""Rows of a table that lie in stretches, on one shard or on several: their numbers, and what shards have of them, in one piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The first row of each stretch, and the one after its last: an array of shape (n, 2), or pairs.
Stretches = NDArray[np.int64] | Sequence[tuple[int, int]]


def rows_of(stretches: Stretches) -> NDArray[np.int64]:
    """Return the numbers of the rows in stretches, one after the other.

    Examples
    --------
    >>> rows_of([(5, 7), (1, 2)]).tolist()
    [5, 6, 1]
    """
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last) for first, last in stretches)])


def in_order(pieces: Sequence[NDArray[Any]], stretches: Iterable[Stretches], n_rows: int) -> NDArray[Any]:
    """Return values of all rows of a table, in their order, given what each shard has: each piece is put in its place at once.

    Examples
    --------
    >>> in_order([np.array([5, 6]), np.array([7])], [[(1, 2), (2, 3)], [(0, 1)]], 3).tolist()
    [7, 5, 6]
    """
    whole = np.empty((n_rows, *pieces[0].shape[1:]), np.result_type(*(piece.dtype for piece in pieces)))
    for piece, own in zip(pieces, stretches, strict=True):
        begin = 0
        for first, last in own:
            whole[first:last] = piece[begin : begin + last - first]
            begin += last - first
    return whole
