"""Splits of categories on a shard: which rows they send left, and which categories that comes to when a tree is grown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import RouteBits
from dtrees.engine.shard.shard_columns import ShardColumns
from dtrees.split.search.categories.marking import find_subsets, mark_by_sets, write_sets
from dtrees.split.search.categories.subsets import ORDER
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.category_sets import CategorySets


def find_sets(
    shard_columns: ShardColumns,
    rows: NDArray[np.uint32],
    node: NDArray[np.int64],
    column: NDArray[np.integer],
    number: NDArray[np.float64],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> CategorySets:
    """Return the categories that go left in splits of some nodes, by their numbers and the places of the rows of their left children."""
    return sets_of_rows(shard_columns.columns, shard_columns.place_of[column], rows, node, number, start, stop)


def sets_of_rows(
    columns: AnyColumns,
    places: NDArray[np.int64],
    rows: NDArray[np.uint32],
    node: NDArray[np.int64],
    number: NDArray[np.float64],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> CategorySets:
    """Return sets as :func:`find_sets` does; ``places`` are those of the columns of the splits."""
    n_distinct = columns.offsets[places + 1] - columns.offsets[places]
    side = np.zeros(int(n_distinct.max(initial=0)) + 1, np.uint8)
    found, sizes = np.empty(int(np.fmod(np.abs(number), ORDER).sum()), np.int64), np.empty((node.shape[0], 2), np.int64)
    find_subsets(columns, places, rows, start, stop, number, side, found, sizes)
    offset = np.zeros(node.shape[0] + 1, np.int64)
    np.cumsum(sizes[:, 1], out=offset[1:])
    words = np.zeros(int(offset[-1]), np.uint32)
    write_sets(found, sizes, words)
    return CategorySets(node.astype(np.int32), offset, words)


def mark_sets(
    shard_columns: ShardColumns,
    sets: CategorySets,
    column: NDArray[np.int32],
    missing_left: NDArray[np.bool_],
    rows: NDArray[np.uint32],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
    marks: RouteBits,
) -> None:
    """Mark the rows that splits with known sets send left."""
    columns = shard_columns.columns
    side: NDArray[Any] = np.empty(int(np.diff(columns.offsets).max(initial=0)) + 1, np.uint8)
    mark_by_sets(
        sets.node.astype(np.int64), sets.offset, sets.words, columns, shard_columns.place_of[column],
        np.ascontiguousarray(missing_left), rows, start, stop, side, marks.bits, marks.offsets,
    )  # fmt: skip
