"""The nodes of a tree under way: what is known of each, what a search of one gets, and values of leaves that are measured on their rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, kernel
from dtrees.split.criteria.parts import spread
from dtrees.split.node.partition import RowPartition

#: One node, all but its sums. Leaves have ``left``, ``right`` and ``column`` -1; ``start``, ``in_stop`` and ``stop`` are places. There are
#: up to two nodes a row, so no byte is spent on alignment.
NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("gain", np.float64),
        ("left", np.int32),
        ("right", np.int32),
        ("column", np.int32),
        ("start", np.uint32),
        ("in_stop", np.uint32),
        ("stop", np.uint32),
        ("missing_left", np.bool_),
    ]
)


class Nodes(NamedTuple):
    """Nodes of a tree under way.

    Attributes
    ----------
    records : ndarray of NODE, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
        Or (n, 0), where no value of the finished tree is computed from them.
    """

    records: NDArray[Any]
    sums: NDArray[np.int64]


def empty_nodes(n: int, n_sums: int) -> Nodes:
    """Return room for ``n`` nodes, uninitialized."""
    return Nodes(np.empty(n, NODE), np.empty((n, n_sums), np.int64))


@inlined_kernel
def make_leaf(record, start, in_stop, stop):
    """Write a node that has not been split."""
    record.start, record.in_stop, record.stop = start, in_stop, stop
    record.column, record.left, record.right = -1, -1, -1
    record.threshold, record.gain, record.missing_left = 0.0, 0.0, False


@inlined_kernel
def note_split(record, split):
    """Make a leaf an inner node by its split."""
    record.column = split.column
    record.threshold = split.threshold
    record.missing_left = split.missing_left
    record.gain = split.gain


@inlined_kernel
def link(records, parent, side, node):
    """Tell a parent, if there is one (-1: none), the number of its left (side 0) or right child."""
    if parent >= 0:
        if side == 0:
            records[parent].left = node
        else:
            records[parent].right = node


@kernel
def leaf_means(criterion, rows, b, target, starts, in_stops, means, spreads):
    """Compute the weighted mean of the target in each leaf, and its impurity about it, times its weight.

    In float64, over each leaf's rows in ascending order: leaves keep the full precision of the target whatever the range of the table.
    Where all targets are equal the mean is that target exactly.
    """
    for i in range(starts.shape[0]):
        first = target[rows[starts[i]]]
        total = 0.0
        weight = 0.0
        for place in range(starts[i], in_stops[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            total += w * (target[rows[place]] - first)
            weight += w
        mean = first + total / weight if weight > 0.0 else first
        total = 0.0
        for place in range(starts[i], in_stops[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            total += w * spread(criterion, target[rows[place]], mean)
        means[i] = mean
        spreads[i] = max(total, 0.0)


@kernel
def add_values(records, values, total, rows):
    """Add to ``total``, by row, the value of its leaf; ``rows`` are the rows by place, ``values`` of shape (n, 1) those of the nodes."""
    for i in range(records.shape[0]):
        record = records[i]
        if record.column < 0:
            for place in range(record.start, record.stop):
                total[rows[place]] += values[i, 0]


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
