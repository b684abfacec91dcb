"""What is drawn, and what is pure, for many nodes at a time."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import kernel
from dtrees.split.node.partition import is_pure
from dtrees.split.node.status import CONSTANT
from dtrees.split.numbers.hashing import draw_columns, undraw_columns
from dtrees.split.search.column import search_many


@kernel
def find_pure(target, rows, starts, in_stops):
    """Tell which nodes have the same target in all in-sample rows; see :func:`~dtrees.split.node.partition.is_pure`."""
    pure = np.empty(starts.shape[0], np.bool_)
    for i in range(starts.shape[0]):
        pure[i] = is_pure(target, rows, starts[i], in_stops[i])
    return pure


@kernel
def pair_drawn(key, paths, pool, n_drawn, place_of):
    """Draw columns for nodes; return pairs of a node (index into ``paths``) and the place of a column drawn, where that is known.

    Parameters
    ----------
    key : uint64
        Of the tree's stream of node columns.
    paths : ndarray of uint64, shape (n_nodes,)
    pool : ndarray of int32
        The tree's columns; in another order meanwhile, so no other thread may use the array.
    n_drawn : int
    place_of : ndarray of int64
        By column; -1 where unknown.

    Returns
    -------
    ndarray of int64, shape (n_pairs, 2)
    """
    pairs = np.empty((paths.shape[0] * n_drawn, 2), np.int64)
    n = 0
    for i in range(paths.shape[0]):
        draw_columns(key, paths[i], pool, np.int64(0), n_drawn)
        for k in range(n_drawn):
            place = place_of[pool[k]]
            if place >= 0:
                pairs[n, 0], pairs[n, 1] = i, place
                n += 1
        undraw_columns(key, paths[i], pool, n_drawn)
    return pairs[:n].copy()


@kernel
def search_on(columns, column_ids, key, pool, skip, place_of, nodes, limits, scratch, out, first):
    """Search nodes column by column, from the ``skip``-th drawn on, until one that is known varies.

    The candidates are written to ``out``, and to ``first`` which column drawn each is of: their number where none varies. Parameters are
    those of :func:`pair_drawn` and :func:`~dtrees.split.search.column.search_many`.
    """
    n_columns, paths = pool.shape[0], nodes.path
    task = np.zeros((paths.shape[0], 2), np.int64)
    for i in range(paths.shape[0]):
        draw_columns(key, paths[i], pool, np.int64(0), n_columns)
        task[i, 0] = i
        first[i] = n_columns
        for k in range(skip, n_columns):
            task[i, 1] = place_of[pool[k]]
            if task[i, 1] < 0:
                continue
            search_many(columns, column_ids, task, i, i + 1, nodes, limits, scratch, out)
            if out.records[i].status != CONSTANT:
                first[i] = k
                break
        undraw_columns(key, paths[i], pool, n_columns)
