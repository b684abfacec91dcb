"""Which rows the splits of a level send left, in tasks for many threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.splits import RouteBits
from dtrees.engine.shard.levels.node_table import NodeTable
from dtrees.engine.shard.shard_columns import ShardColumns
from dtrees.engine.threads import Threads
from dtrees.split.node.limits import SplitLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.sparse_division import mark_many_of
from dtrees.split.policy import ROUTE_BYTES, THREAD_ROWS
from dtrees.split.search.categories.marking import mark_by_category, mark_by_sets
from dtrees.split.search.scratch import Scratch
from dtrees.tree.category_sets import CategorySets


class SplitsOfRows(NamedTuple):
    """Splits of nodes, and where the rows lie that they divide.

    Attributes
    ----------
    start, stop : ndarray of int64, shape (n,)
        Places of the nodes.
    column : ndarray of int32, shape (n,)
    threshold : ndarray of float64, shape (n,)
        Of splits on categories, a number in place of it, while a tree grows (:mod:`dtrees.split.search.categories`).
    missing_left : ndarray of bool, shape (n,)
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    column: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]


def mark_by_threshold(
    threads: Threads,
    shard_columns: ShardColumns,
    rows: NDArray[np.uint32],
    splits: SplitsOfRows,
    by_set: NDArray[np.int64],
) -> RouteBits:
    """Mark the rows that splits send left, but for those splits that have a set of categories: their bits are not written.

    Parameters
    ----------
    threads : Threads
    shard_columns : ShardColumns
    rows : ndarray of uint32
        By place.
    splits : SplitsOfRows
    by_set : ndarray of int64
        Which splits have a set.
    """
    start, stop, column, threshold, missing_left = splits
    n_bytes = (stop - start + 7) // 8
    offsets = np.concatenate([[0], np.cumsum(n_bytes)]).astype(np.int64)
    bits = np.empty(offsets[-1], np.uint8)
    step = max(ROUTE_BYTES, int(offsets[-1]) // (2 * threads.n_threads) + 1)
    n_bytes[by_set] = 0
    pieces = [(i, k, min(k + step, n)) for i, n in enumerate(n_bytes.tolist()) for k in range(0, n, step)]
    tasks = np.array(pieces, np.int64).reshape(-1, 3)
    places, columns = shard_columns.place_of[column], shard_columns.columns
    threshold, missing_left = np.ascontiguousarray(threshold), np.ascontiguousarray(missing_left)
    mark_many = mark_many_of(columns)
    threads.share(
        tasks.shape[0],
        lambda queue, _: mark_many(queue, tasks, columns, places, threshold, missing_left, rows, start, stop, bits, offsets),
        most=1 + bits.shape[0] * 8 // THREAD_ROWS,
    )
    return RouteBits(bits, offsets)


def mark_by_number(
    threads: Threads,
    shard_columns: ShardColumns,
    rows: RowPartition,
    splits: SplitsOfRows,
    table: NodeTable,
    nodes: NDArray[np.int64],
    by_set: NDArray[np.int64],
    limits: SplitLimits,
    key: np.uint64,
    scratch: Sequence[Scratch],
    marks: RouteBits,
) -> None:
    """Mark the rows that splits of categories send left, which are numbers while a tree grows.

    Parameters
    ----------
    threads : Threads
    shard_columns : ShardColumns
    rows : RowPartition
    splits : SplitsOfRows
    table : NodeTable
    nodes : ndarray of int64, shape (n,)
        The nodes that are split.
    by_set : ndarray of int64
        Which splits have a set.
    limits : SplitLimits
    key : uint64
        Of the tree's stream of random thresholds.
    scratch : sequence of Scratch
        Of each thread.
    marks : RouteBits
        Written for these splits.
    """
    start, stop, column, number, _ = splits
    places, column = shard_columns.place_of[column], np.ascontiguousarray(column)
    in_stop, sums, path = (getattr(table, name)[nodes] for name in ("in_stop", "sums", "path"))
    threads.share(
        by_set.shape[0],
        lambda queue, thread: mark_by_category(
            queue, by_set, shard_columns.columns, places, number, rows, start, in_stop, stop, sums, limits, key, path, column,
            scratch[thread], *marks,
        ),
        most=min(by_set.shape[0], 1 + int((stop - start)[by_set].sum()) // THREAD_ROWS),
    )  # fmt: skip


def mark_by_known_sets(
    shard_columns: ShardColumns, rows: NDArray[np.uint32], splits: SplitsOfRows, sets: CategorySets, marks: RouteBits
) -> None:
    """Mark the rows that splits of categories send left, whose sets are known.

    Parameters
    ----------
    shard_columns : ShardColumns
    rows : ndarray of uint32
        By place.
    splits : SplitsOfRows
    sets : CategorySets
        Whose nodes are places among ``splits``.
    marks : RouteBits
        Written for these splits.
    """
    columns = shard_columns.columns
    side = np.empty(int(np.diff(columns.offsets).max(initial=0)) + 1, np.uint8)
    mark_by_sets(
        sets.node.astype(np.int64), sets.offset, sets.words, columns, shard_columns.place_of[splits.column],
        np.ascontiguousarray(splits.missing_left), rows, splits.start, splits.stop, side, marks.bits, marks.offsets,
    )  # fmt: skip
