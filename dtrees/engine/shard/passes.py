"""The order in which a shard reads its cells: in passes if they are on disk, in any order if they are in memory.

The rows of a node are in ascending order, but far apart, so reading each node of a level separately would read most of a table on disk each
time. All nodes of a level are therefore read together and in order: codes column by column, and parts, which are stored row by row, by
chunks of rows. Memory that has been read is released (:mod:`dtrees.split.table.mmap_arrays`), so that a shard holds one column, or one
chunk, at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.threads import Threads
from dtrees.split.policy import DISK_BYTES
from dtrees.split.table.columns import Columns, write_values
from dtrees.split.table.mmap_arrays import forget, is_on_disk


def by_column(codes: NDArray[np.uint32], column: NDArray[np.integer[Any]], *others: NDArray[Any]) -> Iterator[Any]:
    """Yield which tasks to carry out at a time: all, or, on disk, those of one or a few columns; no empty selections.

    Parameters
    ----------
    codes : ndarray of uint32, shape (n_columns, n_rows)
    column : ndarray of int, shape (n_tasks,)
        The column that each task reads.
    *others : ndarray
        Other arrays that the tasks read.

    Yields
    ------
    slice or ndarray of int64
        An index of tasks; ascending within a column.
    """
    if not is_on_disk(codes):
        yield slice(None)
        return
    n_rows, order = codes.shape[1], np.argsort(column, kind="stable")
    at_once = max(1, DISK_BYTES // (codes.itemsize * n_rows))
    group = column[order] // at_once
    for some in np.split(order, np.flatnonzero(np.diff(group)) + 1):
        if some.shape[0]:
            yield some
            forget(codes[column[some[0]] : column[some[-1]] + 1], *others)


def share_by_column(
    threads: Threads,
    codes: NDArray[np.uint32],
    column: NDArray[np.integer[Any]],
    function: Callable[..., None],
    inputs: Sequence[NDArray[Any]],
    outputs: Sequence[NDArray[Any]] = (),
    others: Sequence[NDArray[Any]] = (),
    most: int | None = None,
) -> None:
    """Have at most ``most`` threads call a kernel with tasks, in the batches of :func:`by_column`.

    ``function`` gets the queue, its thread number, and the elements of ``inputs`` and ``outputs`` of these tasks; ``outputs`` are written.
    """
    for some in by_column(codes, column, *others):
        own, found = [of[some] for of in inputs], [of[some] for of in outputs]

        def call(queue: NDArray[np.int64], thread: int, own: Any = own, found: Any = found) -> None:
            function(queue, thread, *own, *found)

        threads.share(own[0].shape[0], call, most)
        for of, mine in zip(outputs, found, strict=True):
            of[some] = mine


def by_rows(
    cells: NDArray[Any], n_rows: int, rows: NDArray[np.uint32], start: NDArray[np.int64], stop: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield which places of nodes to read at a time: all, or, on disk, those with rows in one chunk.

    Parameters
    ----------
    cells : ndarray
        The cells of ``n_rows`` rows in all columns.
    rows : ndarray of uint32
        The row at each place; ascending within each node.
    start, stop : ndarray of int64, shape (n,)
        The first place of each node, and the place after its last.

    Yields
    ------
    start, stop : ndarray of int64, shape (n,)
        A range of the places of each node, in ascending order.
    """
    if not is_on_disk(cells):
        yield start, stop
        return
    at, step = start, max(1, DISK_BYTES * n_rows // cells.nbytes)
    for end in range(step, n_rows + step, step):
        last = np.uint32(min(end, n_rows))
        bounds = zip(at.tolist(), stop.tolist(), strict=True)
        until = np.array([first + np.searchsorted(rows[first:some], last) for first, some in bounds], np.int64)
        yield at, until
        forget(cells)
        at = until


def values_of_rows(columns: Columns, which: NDArray[np.int32], rows: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the values of some rows in some columns, NaN if missing; shape (n_columns, n_rows)."""
    values = np.empty((which.shape[0], rows.shape[0]))
    if not is_on_disk(columns.codes):
        write_values(columns, which, rows, values)
        return values
    order = np.argsort(rows)
    for some in by_column(columns.codes, which, columns.words):
        found = np.empty((some.shape[0], rows.shape[0]))
        write_values(columns, which[some], rows[order], found)
        values[np.ix_(some, order)] = found
    return values


def take_tasks(some: Any, tasks: NDArray[np.int64], begins: NDArray[np.int64], *of_parts: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return some of the tasks, the bounds of their parts, and the given arrays of parts.

    Examples
    --------
    >>> take_tasks(np.array([1, 0]), np.array([10, 20]), np.array([0, 2, 3]), np.array([5, 6, 7]))
    (array([20, 10]), array([0, 1, 3]), array([7, 5, 6]))
    """
    if isinstance(some, slice):
        return tasks, begins, *of_parts
    sizes = np.diff(begins)[some]
    at = places_of(begins[:-1][some], sizes)
    return tasks[some], np.append(0, np.cumsum(sizes)), *(array[at] for array in of_parts)
