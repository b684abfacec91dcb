"""Partial dependence of a tree: its mean prediction as a function of some columns.

A point of these columns walks down the tree. At splits on other columns it takes both branches, weighted by the shares of the training
rows in each (Friedman, 2001, section 8.2).

>>> import numpy as np
>>> from dtrees.tree.predict import stump
>>> tree = stump()
>>> tree.value[1:, 0] = 2.0, 4.0
>>> partial_dependence(tree, np.array([[-1.0], [1.0]]), np.array([0])).tolist()
[[2.0], [4.0]]
>>> partial_dependence(tree, np.array([[7.0]]), np.array([1])).tolist()
[[3.0]]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.tree.packing import goes_left, node_record, pack_nodes
from dtrees.tree.tree import Tree

#: A node, and the index of its column in a point, or -1.
_NODE = node_record(place=np.int64)


def partial_dependence(tree: Tree, grid: ArrayLike, columns: ArrayLike) -> NDArray[np.float64]:
    """Return the mean prediction at each point of a grid.

    Parameters
    ----------
    tree : Tree
    grid : array-like of shape (n_points, n)
        Values of the columns; NaN is missing.
    columns : array-like of int of shape (n,)
        Numbers of the columns.

    Returns
    -------
    ndarray of float64 of shape (n_points, n_values)
    """
    points: NDArray[Any] = np.ascontiguousarray(grid, np.float64)
    numbers = np.asarray(columns, np.int64)
    feature = tree.feature
    place = np.full(max(int(feature.max()), int(numbers.max(initial=0))) + 1, -1, np.int64)
    place[numbers[::-1]] = np.arange(numbers.shape[0])[::-1]  # the first occurrence of a repeated column counts
    out = np.zeros((points.shape[0], tree.value.shape[1]))
    _, nodes, words = pack_nodes([tree], _NODE)
    nodes["place"] = np.where(feature >= 0, place[np.maximum(feature, 0)], -1)
    _add_dependence(nodes, words, tree.weighted_n_node_samples, tree.value, points, out)
    return out


@kernel
def _add_dependence(nodes, words, weight, value, points, out):  # type: ignore[no-untyped-def]
    """Add the mean values of the leaves that points reach."""
    open_nodes, shares = np.empty(nodes.shape[0], np.int64), np.empty(nodes.shape[0])
    for i in range(points.shape[0]):
        open_nodes[0], shares[0] = 0, 1.0
        n_stack = 1
        while n_stack > 0:
            n_stack -= 1
            at, share = open_nodes[n_stack], shares[n_stack]
            node = nodes[at]
            if node.feature < 0:
                for k in range(value.shape[1]):
                    out[i, k] += share * value[at, k]
            elif node.place >= 0:
                open_nodes[n_stack] = node.left if goes_left(node, words, points[i, node.place]) else node.right
                n_stack += 1
            else:
                share_left = weight[node.left] / weight[at]
                open_nodes[n_stack], shares[n_stack] = node.right, share * (1.0 - share_left)
                open_nodes[n_stack + 1], shares[n_stack + 1] = node.left, share * share_left
                n_stack += 2
