"""Splits of categories on a shard: which rows they send left, and which categories that comes to when a tree is grown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import RouteBits
from dtrees.engine.shard.shard_columns import ShardColumns
from dtrees.split.search.categories import find_subsets, mark_by_sets
from dtrees.tree.category_sets import CategorySets

_NO_WORDS = np.empty(0, np.uint32)


def find_sets(
    shard_columns: ShardColumns,
    rows: NDArray[np.uint32],
    node: NDArray[np.int64],
    column: NDArray[np.integer],
    start: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> CategorySets:
    """Return the categories that go left in splits of some nodes, by the places of the rows of their left children."""
    places = shard_columns.place_of[column]
    sizes = np.empty(node.shape[0], np.int64)
    find_subsets(shard_columns.columns, places, rows, start, stop, sizes, _NO_WORDS)
    words = np.zeros(int(sizes.sum()), np.uint32)
    if words.shape[0]:
        find_subsets(shard_columns.columns, places, rows, start, stop, sizes, words)
    return CategorySets(node.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), words)


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
