"""Which categories splits send left, found from the rows that they have sent there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import CategorySplits
from dtrees.split.search.categories.marking import find_subsets, write_sets
from dtrees.split.search.categories.subsets import ORDER
from dtrees.split.table.sparse_columns import AnyColumns
from dtrees.tree.category_sets import CategorySets


def find_sets(columns: AnyColumns, places: NDArray[np.int64], rows: NDArray[np.uint32], splits: CategorySplits) -> CategorySets:
    """Return the categories that go left in some splits.

    Parameters
    ----------
    columns : Columns or SparseColumns
    places : ndarray of int64
        Of the columns that are split, among ``columns``.
    rows : ndarray of uint32
        By place.
    splits : CategorySplits
    """
    node, _, number, start, stop = splits
    n_distinct = columns.offsets[places + 1] - columns.offsets[places]
    side = np.zeros(int(n_distinct.max(initial=0)) + 1, np.uint8)
    found, sizes = np.empty(int(np.fmod(np.abs(number), ORDER).sum()), np.int64), np.empty((node.shape[0], 2), np.int64)
    find_subsets(columns, places, rows, start, stop, number, side, found, sizes)
    offset = np.zeros(node.shape[0] + 1, np.int64)
    np.cumsum(sizes[:, 1], out=offset[1:])
    words = np.zeros(int(offset[-1]), np.uint32)
    write_sets(found, sizes, words)
    return CategorySets(node.astype(np.int32), offset, words)
