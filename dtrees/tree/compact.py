"""Compact form of trees, without arrays that follow from the others: a third of the bytes, for pickles and messages.

In preorder, a node's left child comes next, and its right child after all descendants of the left one: so it is enough to store which
nodes are leaves. The rows of an inner node are those of its leaves together.

>>> import numpy as np
>>> nodes = {
...     "children_left": np.array([1, -1, -1], np.int32), "children_right": np.array([2, -1, -1], np.int32),
...     "feature": np.array([0, -2, -2], np.int32), "threshold": np.array([0.5, -2.0, -2.0]),
...     "missing_go_to_left": np.array([True, False, False]), "impurity": np.array([0.25, 0.0, 0.0]), "gain": np.array([1.0, 0.0, 0.0]),
...     "n_node_samples": np.array([4, 2, 2]), "weighted_n_node_samples": np.array([4.0, 2.0, 2.0]),
...     "value": np.array([[0.5], [0.0], [1.0]])}
>>> small = compact(nodes)
>>> small.n_node_samples.dtype, small.weighted_n_node_samples.tolist(), small.threshold.tolist()
(dtype('uint8'), [2, 2], [0.5])
>>> all(np.array_equal(array, nodes[name]) for name, array in expanded(small).items())
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel

Arrays = dict[str, NDArray[Any]]


class CompactTree(NamedTuple):
    """The arrays from which all arrays of a tree (:class:`~dtrees.tree.tree.Tree`) follow.

    Attributes
    ----------
    feature : ndarray of the smallest signed integers that hold it, shape (n,)
    threshold, gain : ndarray of float64, shape (n_inner,)
    missing_go_to_left : ndarray of bool, shape (n_inner,)
    ndarray of float64, shape (n,), or (n_inner,) if that of each leaf is 0
    n_node_samples : ndarray of the smallest unsigned integers that hold it, shape (n_leaves,)
    weighted_n_node_samples : the same if all are integers, otherwise ndarray of float64, shape (n_leaves,)
    value : ndarray of float64, shape (n, n_values)
    """

    feature: NDArray[Any]
    threshold: NDArray[np.float64]
    gain: NDArray[np.float64]
    missing_go_to_left: NDArray[np.bool_]
    impurity: NDArray[np.float64]
    n_node_samples: NDArray[Any]
    weighted_n_node_samples: NDArray[Any]
    value: NDArray[np.float64]


def compact(arrays: Mapping[str, NDArray[Any]]) -> CompactTree | None:
    """Return the compact form of a tree; None if it does not reproduce the arrays exactly, as for some trees of other libraries."""
    feature, impurity = arrays["feature"], arrays["impurity"]
    complete = np.cumsum(np.where(feature < 0, 1, -1)[::-1])  # number of complete subtrees from each node to the end
    if complete.min() < 1 or complete[-1] != 1:
        return None
    inner, leaf = np.flatnonzero(feature >= 0), np.flatnonzero(feature < 0)
    small = CompactTree(
        feature.astype(np.promote_types(np.int8, np.min_scalar_type(-1 - int(feature.max())))),
        arrays["threshold"][inner],
        arrays["gain"][inner],
        arrays["missing_go_to_left"][inner],
        impurity if impurity.view(np.int64)[leaf].any() else impurity[inner],
        _smallest(arrays["n_node_samples"][leaf]),
        _smallest(arrays["weighted_n_node_samples"][leaf]),
        arrays["value"],
    )
    return small if all(array.tobytes() == arrays[name].tobytes() for name, array in expanded(small).items()) else None


def expanded(small: CompactTree) -> Arrays:
    """Return all arrays of a tree."""
    feature = small.feature.astype(np.int32)
    inner = feature >= 0
    of_leaves = np.stack([small.n_node_samples, small.weighted_n_node_samples], axis=1).astype(np.float64)
    left, right, sums = add_up(feature, of_leaves)  # numbers of rows have 32 bits, so their sums are exact in float64
    return {
        "children_left": left,
        "children_right": right,
        "feature": feature,
        "threshold": _spread(small.threshold, inner, -2.0),
        "missing_go_to_left": _spread(small.missing_go_to_left, inner, False),
        "impurity": _spread(small.impurity, inner, 0.0) if small.impurity.shape[0] < feature.shape[0] else small.impurity,
        "gain": _spread(small.gain, inner, 0.0),
        "n_node_samples": sums[:, 0].astype(np.int64),
        "weighted_n_node_samples": sums[:, 1].copy(),
        "value": small.value,
    }


def _smallest(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers as the smallest unsigned integers that hold them; unchanged if they are not such integers."""
    low, high = numbers.min(), numbers.max()
    if not (low >= 0 and high < 2**32) or (numbers.dtype.kind == "f" and not np.array_equal(np.trunc(numbers), numbers)):
        return numbers
    return numbers.astype(np.min_scalar_type(int(high)))


def _spread(values: NDArray[Any], where: NDArray[np.bool_], other: Any) -> NDArray[Any]:
    """Return an array with ``values`` in order where the mask is true, and ``other`` elsewhere."""
    array = np.full(where.shape[0], other, values.dtype)
    array[where] = values
    return array


@kernel
def add_up(feature, of_leaves):  # type: ignore[no-untyped-def]
    """Return the children of nodes in preorder, and for each node the sum over its leaves, of shape (n_nodes, n_numbers).

    Nodes are processed from last to first: a node's sum is that of its children.
    """
    n, n_numbers = feature.shape[0], of_leaves.shape[1]
    left, right = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    totals = np.empty((n, n_numbers), of_leaves.dtype)
    leaf = n // 2 + 1
    roots = np.empty(leaf, np.int64)  # of complete subtrees whose parents come later, the first one last
    n_roots = 0
    for i in range(n - 1, -1, -1):
        if feature[i] < 0:
            leaf -= 1
            for k in range(n_numbers):
                totals[i, k] = of_leaves[leaf, k]
        else:
            n_roots -= 2
            left[i], right[i] = roots[n_roots + 1], roots[n_roots]
            for k in range(n_numbers):
                totals[i, k] = totals[left[i], k] + totals[right[i], k]
        roots[n_roots] = i
        n_roots += 1
    return left, right, totals
