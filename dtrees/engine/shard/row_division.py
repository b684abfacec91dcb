"""Division of the rows of a level's nodes in tasks for several threads: marks of the rows that go left, and their new places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import CategorySplits
from dtrees.engine.protocol.nodes import RouteBits
from dtrees.engine.shard.passes import share_by_column
from dtrees.engine.shard.targets.places import bounds_of
from dtrees.engine.threads import Threads
from dtrees.split.compile.kernels import bind
from dtrees.split.node.partition import COPY, DIVIDE, SPREAD, RowPartition, SplitsOfRows, count_left, divide_many, mark_many
from dtrees.split.policy import ROUTE_BYTES, SPREAD_ROWS, THREAD_ROWS
from dtrees.split.search.categories import ORDER, find_subsets, mark_by_sets
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.category_sets import CategorySets

#: The first place of each node, the place after its rows in sample, and the place after all of its rows.
Places = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def mark_by_threshold(
    threads: Threads, columns: AnyColumns, rows: NDArray[np.uint32], splits: SplitsOfRows, by_set: NDArray[Any]
) -> RouteBits:
    """Set the bits of the rows, by place, that splits send left; the bits of splits with a set of categories are not written."""
    n_bytes = (splits.stop - splits.start + 7) // 8
    offsets = bounds_of(n_bytes)
    marks = RouteBits(np.empty(offsets[-1], np.uint8), offsets)
    n_bytes[by_set] = 0
    _mark(threads, columns, splits.column, n_bytes, marks, lambda queue, _, own: mark_many(queue, own, columns, splits, rows, marks))
    return marks


def mark_by_set(
    threads: Threads, columns: AnyColumns, rows: NDArray[np.uint32], splits: SplitsOfRows, sets: CategorySets, marks: RouteBits
) -> None:
    """Set the bits of the rows that splits with one of these sets of categories send left."""
    n_bytes, side = np.diff(marks.offsets)[sets.node], np.empty((threads.n_threads, int(np.diff(columns.offsets).max()) + 1), np.uint8)

    def mark(queue: NDArray[np.int64], thread: int, own: NDArray[np.int64]) -> None:
        mark_by_sets(queue, own, sets, splits, columns, rows, side[thread], marks)

    _mark(threads, columns, splits.column[sets.node], n_bytes, marks, mark)


def _mark(
    threads: Threads, columns: AnyColumns, column: NDArray[Any], n_bytes: NDArray[np.int64], marks: RouteBits, mark: Callable[..., None]
) -> None:
    """Have threads set numbers of bytes of bits, each by a column; a task has the index of a number, and the first and last byte."""
    step = max(ROUTE_BYTES, marks.bits.shape[0] // (2 * threads.n_threads) + 1)
    chunks = [(i, k, min(k + step, n)) for i, n in enumerate(n_bytes.tolist()) for k in range(0, n, step)]
    tasks, most = np.array(chunks, np.int64).reshape(-1, 3), 1 + int(n_bytes.sum()) * 8 // THREAD_ROWS
    share_by_column(threads, columns.codes, column[tasks[:, 0]], mark, [tasks], others=[columns.words], most=most)


def divide_rows(
    threads: Threads, rows: RowPartition, places: Places, marks: RouteBits, spare: RowPartition, rows_only: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide the rows of nodes at these places; return where the left children end, in sample and in all.

    With ``rows_only``, the summands of rows are not moved.
    """
    (start, in_stop, stop), (bits, offsets) = places, marks
    left_in_stop, left_stop, tasks = divide_tasks(places, marks, threads.n_threads)
    summed = start if rows_only else in_stop
    threads.share(
        tasks.shape[0],
        lambda queue, _: divide_many(queue, tasks, bits, offsets, rows, start, summed, stop, spare),
        most=1 + int((stop - start).sum()) // THREAD_ROWS,
    )
    return left_in_stop, left_stop


def divide_tasks(places: Places, marks: RouteBits, n_threads: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the children of nodes, and the tasks that move their rows there.

    Parameters
    ----------
    places : tuple of ndarray of int64, shape (n,)
    marks : RouteBits
    n_threads : int

    Returns
    -------
    left_in_stop, left_stop : ndarray of int64, shape (n,)
        Where the left children end, in sample and in all.
    tasks : ndarray of int64, shape (n_tasks, 6)
        See :func:`~dtrees.split.node.partition.divide_many`.
    """
    (start, in_stop, stop), (bits, offsets) = places, marks
    counts = count_left(bits, offsets, start, in_stop)
    left_in_stop, left_stop = start + counts[:, 0], start + counts[:, 1]
    large = (stop - start >= SPREAD_ROWS) & (n_threads > 1)
    spread: list[NDArray[np.int64]] = []
    for i in np.flatnonzero(large).tolist():
        goes_left = np.unpackbits(bits[offsets[i] : offsets[i + 1]], bitorder="little")
        bounds = np.unique(np.append(np.linspace(start[i], stop[i], n_threads + 1).astype(np.int64), in_stop[i]))
        first, last = bounds[:-1], bounds[1:]
        n_left = np.add.reduceat(goes_left, first - start[i], dtype=np.int64)
        left = start[i] + np.cumsum(n_left) - n_left
        # In the right child, too, rows in sample come first, and the order of rows is preserved.
        right = left_stop[i] + (first - left)
        spread.append(np.stack([np.full_like(first, SPREAD), np.full_like(first, i), first, last, left, right], axis=1))
    copy = [np.where(np.arange(6) == 0, COPY, tasks) for tasks in spread]
    whole = np.flatnonzero(~large)
    divide = np.zeros((whole.shape[0], 6), np.int64)
    divide[:, 0], divide[:, 1] = DIVIDE, whole[np.argsort((start - stop)[whole], kind="stable")]
    return left_in_stop, left_stop, np.concatenate([*spread, divide, *copy])


def find_sets(columns: AnyColumns, places: NDArray[np.int64], rows: NDArray[np.uint32], splits: CategorySplits) -> CategorySets:
    """Return the categories that go left in some splits, found from the rows, by place, that they have sent left.

    ``places`` are the indices of the split columns in ``columns``.
    """
    node, _, number, start, stop = splits
    n = node.shape[0]
    n_codes = columns.offsets[places + 1] - columns.offsets[places] + 1
    side = np.zeros(int(n_codes.max(initial=0)), np.uint8)
    found, offset = np.empty(int(np.fmod(np.abs(number), ORDER).sum()), np.int64), np.empty(n + 1, np.int64)
    find = bind(find_subsets, columns, places, rows, start, stop, number, side, found, offset)
    words = find(columns, places, rows, start, stop, number, side, found, offset)
    return CategorySets(node.astype(np.int32), offset, words)
