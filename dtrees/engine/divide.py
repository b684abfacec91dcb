"""How the rows of a level's nodes are divided, in tasks for many threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.partition import COPY, DIVIDE, SPREAD

#: Nodes of fewer rows are divided by one thread.
_LARGE_ROWS = 32_768


def divide_tasks(
    start: NDArray[np.int64], mid: NDArray[np.int64], stop: NDArray[np.int64], bits: NDArray[np.uint8], offsets: NDArray[Any], n_threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Say where the children of nodes will lie, and what is to be done.

    Parameters
    ----------
    start, mid, stop : ndarray of int64, shape (n,)
        Places of the nodes.
    bits, offsets : ndarray
        Bit k of node i, counted from byte ``offsets[i]`` on, tells whether the row at its place k goes left.
    n_threads : int

    Returns
    -------
    left_mid, left_stop : ndarray of int64, shape (n,)
        Where the left children end, in sample and in all.
    tasks : ndarray of int64, shape (n_tasks, 6)
        See :func:`~dtrees.split.partition.divide_many`.
    """
    counts = np.concatenate([[0], np.cumsum(np.bitwise_count(bits), dtype=np.int64)])
    padded = np.append(bits, np.uint8(0))

    def going_left(node: Any, place: Any) -> Any:
        """Count the rows going left among those of a node before a place."""
        k = place - start[node]
        byte = offsets[node] + (k >> 3)
        part = padded[byte] & ((1 << (k & 7)) - 1).astype(np.uint8)
        return counts[byte] - counts[offsets[node]] + np.bitwise_count(part)

    every = np.arange(start.shape[0])
    left_mid = start + going_left(every, mid)
    left_stop = start + going_left(every, stop)
    in_pieces = (stop - start >= _LARGE_ROWS) & (n_threads > 1)
    spread: list[NDArray[np.int64]] = []
    copy: list[NDArray[np.int64]] = []
    for i in np.flatnonzero(in_pieces).tolist():
        bounds = np.unique(np.append(np.linspace(start[i], stop[i], n_threads + 1).astype(np.int64), mid[i]))
        first, last = bounds[:-1], bounds[1:]
        left = start[i] + going_left(i, first)
        # In the right child, too, rows in sample come first, and rows keep their order.
        right = left_stop[i] + (first - left)
        tasks = np.stack([np.full_like(first, SPREAD), np.full_like(first, i), first, last, left, right], axis=1)
        spread.append(tasks)
        copy.append(np.where(np.arange(6) == 0, COPY, tasks))
    whole = np.flatnonzero(~in_pieces)
    whole = whole[np.argsort(start[whole] - stop[whole], kind="stable")]
    divide = np.zeros((whole.shape[0], 6), np.int64)
    divide[:, 0], divide[:, 1] = DIVIDE, whole
    return left_mid, left_stop, np.concatenate([*spread, divide, *copy]).astype(np.int64)
