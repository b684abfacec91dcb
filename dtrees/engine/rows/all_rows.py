"""Numbers and row ranges of the rows of a whole table that are spread over shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays

#: The first row of each range and the row after its last: an array of shape (n, 2), or pairs.
Ranges = NDArray[np.int64] | Sequence[tuple[int, int]]


def rows_of(ranges: Ranges) -> NDArray[np.int64]:
    """Return the numbers of the rows in ranges, one after the other.

    Examples
    --------
    >>> rows_of([(5, 7), (1, 2)]).tolist()
    [5, 6, 1]
    """
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last) for first, last in ranges)])


def in_order(chunks: Sequence[NDArray[Any]], ranges: Iterable[Ranges], n_rows: int) -> NDArray[Any]:
    """Return values of all rows of a table in row order, given the values that each shard has.

    Examples
    --------
    >>> in_order([np.array([5, 6]), np.array([7])], [[(1, 2), (2, 3)], [(0, 1)]], 3).tolist()
    [7, 5, 6]
    """
    whole = np.empty((n_rows, *chunks[0].shape[1:]), np.result_type(*(chunk.dtype for chunk in chunks)))
    for chunk, own in zip(chunks, ranges, strict=True):
        begin = 0
        for first, last in own:
            whole[first:last] = chunk[begin : begin + last - first]
            begin += last - first
    return whole


class AllRows:
    """Targets and weights of all rows, or of some, by which predictions of shards are combined and scored.

    Parameters
    ----------
    target, weight : ndarray
        Values of all rows, targets as losses take them; ``weight`` may be None.
    rows : sequence of ndarray of int64
        The rows of each shard.
    some : ndarray of bool, shape (n_rows,), optional
        The rows that are used; by default all.
    """

    def __init__(
        self,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        rows: Sequence[NDArray[np.int64]],
        some: NDArray[np.bool_] | None = None,
    ) -> None:
        self.target, self.weight, self.places = target, weight, list(rows)
        if some is not None:
            self.target, self.weight = target[..., some], None if weight is None else weight[some]
            place = np.cumsum(some) - 1
            self.places = [place[mine[some[mine]]] for mine in rows]

    def together(self, sent: Sequence[Arrays]) -> NDArray[np.float64]:
        """Combine the raw predictions that the shards sent for their own rows; shape (K, n)."""
        raw = np.empty((sent[0][0].shape[0], self.target.shape[-1]))
        for places, (own,) in zip(self.places, sent, strict=True):
            raw[:, places] = own
        return raw


def pure_in_all(pure: Sequence[NDArray[np.bool_]], first: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """Return which nodes have a constant target over the rows of all shards, given the results of each shard.

    Examples
    --------
    >>> yes, nan = np.array([True, True, True]), np.nan
    >>> pure_in_all([yes, yes], [np.array([1.0, 1.0, nan]), np.array([1.0, 2.0, 3.0])]).tolist()
    [True, False, True]
    """
    low, high = np.fmin.reduce(first), np.fmax.reduce(first)
    found: NDArray[np.bool_] = np.all(pure, axis=0) & ~(low < high)
    return found
