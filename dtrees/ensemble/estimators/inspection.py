"""Looking into trees: paths of rows and importances of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from dtrees.tree.tree import Tree


class FittedTree:
    """A fitted tree as arrays of nodes, in the shapes of scikit-learn's ``tree_``.

    Nodes are numbered in preorder, the root is 0. The arrays are read-only: a fitted tree cannot be changed through them.

    Attributes
    ----------
    node_count : int
    n_features, n_outputs, max_n_classes : int
        Columns at fit; 1; classes, or 1 for regression.
    n_classes : ndarray of int of shape (1,)
        Classes, or 1 for regression.
    children_left, children_right : ndarray of int32 of shape (node_count,)
        Node numbers; -1 at leaves.
    feature : ndarray of int32 of shape (node_count,)
        The column a node splits on; -2 at leaves.
    threshold : ndarray of float64 of shape (node_count,)
        Rows with ``x <= threshold`` go left; +inf sends every value left and missing ones right. -2 at leaves.
    missing_go_to_left : ndarray of bool of shape (node_count,)
        Where rows go whose value is missing.
    impurity, gain : ndarray of float64 of shape (node_count,)
        The impurity of a node's rows, and the decrease of impurity times weight by its split.
    n_node_samples : ndarray of int64 of shape (node_count,)
    weighted_n_node_samples : ndarray of float64 of shape (node_count,)
        The weight of a node's rows; of boosted trees, the sum of their hessians.
    value : ndarray of float64 of shape (node_count, 1, k)
        The prediction of a node: the mean or median of the target, or the shares of the k classes.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier().fit([[1.0], [2.0], [3.0]], ["no", "no", "yes"]).tree_
    >>> tree.node_count, tree.value.shape, tree.value[0, 0].round(2).tolist()
    (3, (3, 1, 2), [0.67, 0.33])
    """

    children_left: NDArray[np.int32]
    children_right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.bool_]
    impurity: NDArray[np.float64]
    gain: NDArray[np.float64]
    n_node_samples: NDArray[np.int64]
    weighted_n_node_samples: NDArray[np.float64]
    value: NDArray[np.float64]

    def __init__(self, tree: Tree, n_features: int) -> None:
        for name in Tree.ARRAYS:
            array = getattr(tree, name)
            array = array[:, np.newaxis] if name == "value" else array.view()
            array.flags.writeable = False
            setattr(self, name, array)
        self._tree = tree
        self.node_count = tree.node_count
        self.n_features, self.n_outputs, self.max_n_classes = n_features, 1, self.value.shape[2]
        self.n_classes = np.array([self.max_n_classes])

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self._tree.n_leaves

    @property
    def max_depth(self) -> int:
        """Depth of the deepest leaf."""
        return self._tree.max_depth

    @property
    def node_depth(self) -> NDArray[np.int64]:
        """Depth of every node; the root's is 0."""
        depth = self._tree.node_depth.view()
        depth.flags.writeable = False
        return depth


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
