"""How the rows of a level's nodes are divided, in tasks for many threads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.split.node.partition import COPY, DIVIDE, SPREAD, count_left
from dtrees.split.policy import SPREAD_ROWS


def divide_tasks(
    start: NDArray[np.int64],
    in_stop: NDArray[np.int64],
    stop: NDArray[np.int64],
    bits: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    n_threads: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Say where the children of nodes will lie, and what is to be done.

    Parameters
    ----------
    start, in_stop, stop : ndarray of int64, shape (n,)
        Places of the nodes.
    bits, offsets : ndarray
        Bit k of node i, counted from byte ``offsets[i]`` on, tells whether the row at its place k goes left.
    n_threads : int

    Returns
    -------
    left_in_stop, left_stop : ndarray of int64, shape (n,)
        Where the left children end, in sample and in all.
    tasks : ndarray of int64, shape (n_tasks, 6)
        See :func:`~dtrees.split.node.partition.divide_many`.
    """
    counts = count_left(bits, offsets, start, in_stop, stop)
    left_in_stop, left_stop = start + counts[:, 0], start + counts[:, 1]
    large = (stop - start >= SPREAD_ROWS) & (n_threads > 1)
    spread: list[NDArray[np.int64]] = []
    for i in np.flatnonzero(large).tolist():
        goes_left = np.unpackbits(bits[offsets[i] : offsets[i + 1]], bitorder="little")
        bounds = np.unique(np.append(np.linspace(start[i], stop[i], n_threads + 1).astype(np.int64), in_stop[i]))
        first, last = bounds[:-1], bounds[1:]
        n_left = np.add.reduceat(goes_left, first - start[i], dtype=np.int64)
        left = start[i] + np.cumsum(n_left) - n_left
        # In the right child, too, rows in sample come first, and rows keep their order.
        right = left_stop[i] + (first - left)
        spread.append(np.stack([np.full_like(first, SPREAD), np.full_like(first, i), first, last, left, right], axis=1))
    copy = [np.where(np.arange(6) == 0, COPY, tasks) for tasks in spread]
    whole = np.flatnonzero(~large)
    divide = np.zeros((whole.shape[0], 6), np.int64)
    divide[:, 0], divide[:, 1] = DIVIDE, whole[np.argsort((start - stop)[whole], kind="stable")]
    return left_in_stop, left_stop, np.concatenate([*spread, divide, *copy])
