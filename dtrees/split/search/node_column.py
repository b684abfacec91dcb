"""A pair of a node and a column, as the functions that search it get it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.node.partition import RowPartition

#: In place of random bits where none are needed.
NO_BITS = np.uint64(0)


class NodeColumn(NamedTuple):
    """A node, and a column that its best split is looked for in.

    Attributes
    ----------
    codes : ndarray of uint32, shape (n_rows,)
    values : ndarray of float32, shape (n_distinct, n_words)
        The column's distinct values; see :func:`~dtrees.split.table.columns.value_at`.
    partition : RowPartition
    start, in_stop : int
        The node's in-sample rows.
    sums : ndarray of int64, shape (n_sums,)
        The node's.
    bits : uint64
        Random bits for this node and column (random thresholds only).
    """

    codes: NDArray[np.uint32]
    values: NDArray[np.float32]
    partition: RowPartition
    start: int
    in_stop: int
    sums: NDArray[np.int64]
    bits: np.uint64


class NodesOfTree(NamedTuple):
    """Nodes of a tree, which are searched in some columns.

    Attributes
    ----------
    partition : RowPartition
    start, in_stop : ndarray of int64, shape (n,)
        Their in-sample rows.
    sums : ndarray of int64, shape (n, n_sums)
    path : ndarray of uint64, shape (n,)
    key : uint64
        Of the tree's stream of random thresholds.
    """

    partition: RowPartition
    start: NDArray[np.int64]
    in_stop: NDArray[np.int64]
    sums: NDArray[np.int64]
    path: NDArray[np.uint64]
    key: np.uint64
