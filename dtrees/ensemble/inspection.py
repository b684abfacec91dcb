"""Looking into trees: paths of rows and importances of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from dtrees.tree.tree import Tree


def decision_path_matrix(tree: Tree, leaves: NDArray[np.int32]) -> Any:
    """Return which nodes rows pass through on the way to their leaves.

    Parameters
    ----------
    tree : Tree
    leaves : ndarray of int of shape (n,)

    Returns
    -------
    scipy.sparse.csr_matrix of int64 of shape (n, tree.node_count)
        1 where a row passes through a node.
    """
    parent = np.full(tree.node_count, -1, dtype=np.int64)
    inner = np.flatnonzero(tree.children_left >= 0)
    parent[tree.children_left[inner]] = inner
    parent[tree.children_right[inner]] = inner
    ends = np.cumsum(tree.node_depth[leaves] + 1)
    indices = np.empty(ends[-1] if len(ends) else 0, dtype=np.int64)
    # Backwards from the leaf to the root: in preorder a parent's number is smaller, so each row's indices come out sorted.
    node, place = leaves.astype(np.int64), ends - 1
    while node.size:
        indices[place] = node
        node = parent[node]
        on_the_way = node >= 0
        node, place = node[on_the_way], place[on_the_way] - 1
    indptr = np.concatenate([[0], ends])
    return csr_matrix((np.ones(len(indices), dtype=np.int64), indices, indptr), shape=(len(leaves), tree.node_count))


def gains_by_column(tree: Tree, n_columns: int) -> NDArray[np.float64]:
    """Return the summed gains of the splits on each column, shape (n_columns,)."""
    inner = tree.feature >= 0
    return np.bincount(tree.feature[inner], weights=tree.gain[inner], minlength=n_columns).astype(np.float64)


def normalised(gains: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return gains as shares of their sum; zeros if that is zero."""
    total = gains.sum()
    return gains / total if total > 0 else np.zeros(len(gains))
