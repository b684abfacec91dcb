"""Partial dependence of a tree: its mean prediction as a function of some columns.

A point of these columns goes down the tree. At splits on other columns it goes both ways, weighted by the shares of the training rows
that did (Friedman, 2001, section 8.2).

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

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.tree.tree import Tree


def partial_dependence(tree: Tree, grid: ArrayLike, columns: ArrayLike) -> NDArray[np.float64]:
    """Return the mean prediction at each point of a grid.

    Parameters
    ----------
    tree : Tree
    grid : array-like of shape (n_points, n)
        Values of some columns; NaN is missing.
    columns : array-like of int of shape (n,)
        Their numbers.

    Returns
    -------
    ndarray of float64 of shape (n_points, n_values)
    """
    points: NDArray[Any] = np.ascontiguousarray(grid, np.float64)
    numbers = np.asarray(columns, np.int64)
    feature = tree.feature
    place = np.full(max(int(feature.max()), int(numbers.max(initial=0))) + 1, -1, np.int64)
    place[numbers[::-1]] = np.arange(numbers.shape[0])[::-1]  # of a column that is there twice, the first counts
    out = np.zeros((points.shape[0], tree.value.shape[1]))
    sets = tree.categories
    set_of = np.full(tree.node_count, -1, np.int64)
    set_of[sets.node] = np.arange(sets.node.shape[0])
    _add_dependence(
        tree.children_left,
        tree.children_right,
        np.where(feature >= 0, place[np.maximum(feature, 0)], -1),
        tree.threshold,
        tree.missing_go_to_left,
        tree.weighted_n_node_samples,
        tree.value,
        set_of,
        sets.offset,
        sets.words,
        points,
        out,
    )
    return out


@kernel
def _add_dependence(  # type: ignore[no-untyped-def]
    left, right, place, threshold, missing_left, weight, value, set_of, offset, words, points, out
):
    """Add the mean values of the leaves that points come to.

    ``place`` is where in a point the column of a node is, or -1; ``set_of`` which set of categories it has, or -1.
    """
    nodes, shares = np.empty(left.shape[0], np.int64), np.empty(left.shape[0])
    for i in range(points.shape[0]):
        nodes[0], shares[0] = 0, 1.0
        n_stack = 1
        while n_stack > 0:
            n_stack -= 1
            node, share = nodes[n_stack], shares[n_stack]
            if left[node] < 0:
                for k in range(value.shape[1]):
                    out[i, k] += share * value[node, k]
            elif place[node] >= 0:
                x = points[i, place[node]]
                if x != x:
                    goes_left = missing_left[node]
                elif set_of[node] >= 0:
                    goes_left = _is_in(words[offset[set_of[node]] : offset[set_of[node] + 1]], np.int64(x))
                else:
                    goes_left = x <= threshold[node]
                nodes[n_stack] = left[node] if goes_left else right[node]
                n_stack += 1
            else:
                share_left = weight[left[node]] / weight[node]
                nodes[n_stack], shares[n_stack] = right[node], share * (1.0 - share_left)
                nodes[n_stack + 1], shares[n_stack + 1] = left[node], share * share_left
                n_stack += 2


@inner_kernel
def _is_in(words, category):  # type: ignore[no-untyped-def]
    """Tell whether a category is in a set (:class:`~dtrees.tree.category_sets.CategorySets`)."""
    if category < 0 or category >= 32 * words.shape[0]:
        return False
    return (words[category // 32] >> np.uint32(category % 32)) & np.uint32(1) == np.uint32(1)
