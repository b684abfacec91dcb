"""A node grown to its end, depth first, in one kernel.

Small nodes are not worth a visit of the engine each: the rows of a whole subtree fit the cache, and all of its splits are found here,
by the same :func:`~dtrees.split.search.search_column`, under the same rules and with the same draws as in the engine, so it makes no
difference to the tree where a node was grown. A forest grows whole trees this way, one a thread.

Nodes come out in preorder: a parent, its left subtree, its right subtree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dtrees.split.hashing import LEFT, RIGHT, child_path, draw, draw_columns, undraw_columns
from dtrees.split.partition import divide, is_pure, mark_left
from dtrees.split.search import CONSTANT, SPLIT, copy_candidate, is_better, search_column


class Stops(NamedTuple):
    """When a node is not searched at all.

    Attributes
    ----------
    max_depth : int
    min_samples : int
        Fewest in-sample rows of a node to be split.
    min_weight : int
        Smallest H (weight) of a node to be split.
    max_features : int
        Columns drawn for each node.
    """

    max_depth: int
    min_samples: int
    min_weight: int
    max_features: int


class Nodes(NamedTuple):
    """Nodes of a tree under way, a structure of arrays; leaves have ``column`` -1.

    ``left`` and ``right`` are node numbers, ``start``, ``mid`` and ``stop`` places in the row partition.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    column: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    gain: NDArray[np.float64]
    sums: NDArray[np.int64]
    start: NDArray[np.int64]
    mid: NDArray[np.int64]
    stop: NDArray[np.int64]


def empty_nodes(n: int, n_sums: int) -> Nodes:
    """Return room for ``n`` nodes, uninitialized."""
    return Nodes(
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n, np.int32),
        np.empty(n),
        np.empty(n, np.bool_),
        np.empty(n),
        np.empty((n, n_sums), np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )


@njit(nogil=True, cache=True)
def may_be_split(stops, n_rows, depth, weight):
    """Tell whether a node is to be searched, from its size alone."""
    return depth < stops.max_depth and n_rows >= stops.min_samples and weight >= stops.min_weight


@njit(nogil=True, cache=True)
def search_node(columns, partition, start, mid, sums, path, limits, stops, keys, pool, scratch, best):
    """Find the best split of one node over the columns drawn for it; ``best`` has room for two, the first is the result.

    As in scikit-learn, drawing goes on beyond ``max_features`` while all columns drawn so far are constant in the node.
    """
    best.status[0] = CONSTANT
    n_columns = pool.shape[0]
    node_key, threshold_key = keys
    drawn = 0
    everything = stops.max_features >= n_columns
    while drawn < n_columns and (drawn < stops.max_features or best.status[0] == CONSTANT):
        if not everything:
            draw_columns(node_key, path, pool, drawn, drawn + 1)
        column = pool[drawn]
        search_column(
            columns.codes[column],
            columns.values[columns.offsets[column] : columns.offsets[column + 1]],
            column,
            partition,
            start,
            mid,
            sums,
            limits,
            draw(np.uint64(threshold_key) ^ path, column),
            scratch,
            best,
            1,
        )
        if drawn == 0 or is_better(best, 1, 0):
            copy_candidate(best, 1, best, 0)
        drawn += 1
    if not everything:
        undraw_columns(node_key, path, pool, drawn)


@njit(nogil=True, cache=True)
def grow_subtree(
    columns, partition, spare, target, start, mid, stop, depth, path, sums, limits, stops, keys, pool, scratch, best, bits, nodes
):
    """Grow the subtree of a node.

    Parameters
    ----------
    columns : Columns
        All columns of the table.
    partition, spare : RowPartition
        The stretch start..stop is rearranged; ``spare`` has room for it.
    target : ndarray, shape (n_rows,) or (0,)
        By which pure nodes are known.
    depth : int
    path : uint64
    sums : ndarray of int64, shape (n_sums,)
    limits : Limits
    stops : Stops
    keys : tuple of uint64
        Of the tree's streams of node columns and random thresholds.
    pool : ndarray of int32
        The tree's columns.
    bits : ndarray of uint8
        Scratch, with room for a bit a row.
    nodes : Nodes
        Written; room for every node there can be.

    Returns
    -------
    int
        The number of nodes.
    """
    n_sums = sums.shape[0]
    capacity = min(stops.max_depth - depth, mid - start) + 2
    todo = np.empty((capacity, 6), np.int64)  # start, mid, stop, depth, parent, side
    todo_path = np.empty(capacity, np.uint64)
    todo_sums = np.empty((capacity, n_sums), np.int64)
    todo[0] = np.array([start, mid, stop, depth, -1, 0])
    todo_path[0] = path
    todo_sums[0] = sums
    n_todo = 1
    n_nodes = 0
    while n_todo > 0:
        n_todo -= 1
        start, mid, stop, depth, parent, side = todo[n_todo]
        path = todo_path[n_todo]
        node = n_nodes
        n_nodes += 1
        nodes.sums[node] = todo_sums[n_todo]
        node_sums = nodes.sums[node]
        nodes.start[node], nodes.mid[node], nodes.stop[node] = start, mid, stop
        nodes.column[node] = nodes.left[node] = nodes.right[node] = -1
        nodes.gain[node] = 0.0
        if parent >= 0:
            if side == 0:
                nodes.left[parent] = node
            else:
                nodes.right[parent] = node
        weight = node_weight(limits, node_sums)
        if not may_be_split(stops, mid - start, depth, weight) or is_pure(target, partition.rows, start, mid):
            continue
        search_node(columns, partition, start, mid, node_sums, path, limits, stops, keys, pool, scratch, best)
        if best.status[0] != SPLIT:
            continue
        column = best.column[0]
        nodes.column[node] = column
        nodes.threshold[node] = best.threshold[0]
        nodes.missing_left[node] = best.missing_left[0]
        nodes.gain[node] = best.gain[0]
        missing_code = columns.offsets[column + 1] - columns.offsets[column]
        used = bits[: (stop - start + 7) // 8]
        mark_left(columns.codes[column], best.cut[0], missing_code, best.missing_left[0], partition.rows, start, stop, used)
        n_left_in, n_left_out = divide(used, partition, start, mid, stop, spare)
        middle = start + n_left_in + n_left_out
        right_mid = middle + (mid - start) - n_left_in
        todo[n_todo] = np.array([middle, right_mid, stop, depth + 1, node, 1])
        todo_path[n_todo] = child_path(path, RIGHT)
        todo[n_todo + 1] = np.array([start, start + n_left_in, middle, depth + 1, node, 0])
        todo_path[n_todo + 1] = child_path(path, LEFT)
        for k in range(n_sums):
            todo_sums[n_todo, k] = node_sums[k] - best.left[0, k]
            todo_sums[n_todo + 1, k] = best.left[0, k]
        n_todo += 2
    return n_nodes


@njit(nogil=True, cache=True, inline="always")
def node_weight(limits, sums):
    """Return the weight of a node from its sums."""
    if limits.n_classes > 0:
        weight = 0
        for k in range(sums.shape[0]):
            weight += sums[k]
        return weight
    return sums[1]


@njit(nogil=True, cache=True)
def leaf_means(rows, b, target, starts, mids, means, spreads):
    """Compute the weighted mean of the target in each leaf, and the weighted sum of squares about it.

    In float64, over each leaf's rows in ascending order: leaves keep the full precision of the target whatever the range of the table.
    Where all targets are equal the mean is that target exactly.
    """
    for i in range(starts.shape[0]):
        first = target[rows[starts[i]]]
        total = 0.0
        weight = 0.0
        for place in range(starts[i], mids[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            total += w * (target[rows[place]] - first)
            weight += w
        mean = first + total / weight if weight > 0.0 else first
        spread = 0.0
        for place in range(starts[i], mids[i]):
            w = float(b[place]) if b.shape[0] > 0 else 1.0
            d = target[rows[place]] - mean
            spread += w * d * d
        means[i] = mean
        spreads[i] = spread
