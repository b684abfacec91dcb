"""Which categories splits send left, found from the rows that they have sent there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import CategorySplits
from dtrees.split.compile.kernels import bind
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
    n = node.shape[0]
    n_codes = columns.offsets[places + 1] - columns.offsets[places] + 1
    side = np.zeros(int(n_codes.max(initial=0)), np.uint8)
    found, counts, offset = np.empty(int(np.fmod(np.abs(number), ORDER).sum()), np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    find = bind(find_subsets, columns, places, rows, start, stop, number, side, found, counts, offset)
    find(columns, places, rows, start, stop, number, side, found, counts, offset)
    words = np.zeros(int(offset[-1]), np.uint32)
    bind(write_sets, found, counts, offset, words)(found, counts, offset, words)
    return CategorySets(node.astype(np.int32), offset, words)
