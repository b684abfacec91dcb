"""Prediction with trees that split on categories: every row walks down by itself.

The first levels of such trees are not evaluated whole, as those of other trees are (:mod:`dtrees.tree.predict`): to look a category up in a
set takes a memory access of its own, and most would be looked up in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.tree.tree import Tree

#: Rows that go through a tree one after the other, while it is in the cache.
_BLOCK = 512

_NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("first_word", np.int64),  # of the node's set; -1 where it has a threshold
        ("n_words", np.int32),
        ("feature", np.int32),  # -1 at leaves
        ("left", np.int32),
        ("right", np.int32),
        ("missing_left", np.bool_),
    ],
    align=True,
)


@by_reference
class PackedWithSets(NamedTuple):
    """Trees in shared arrays.

    Attributes
    ----------
    nodes : structured ndarray, shape (n_nodes,)
    words : ndarray of uint32
        The sets of all nodes, one after the other.
    value : ndarray of float64, shape (n_nodes, n_values)
    roots : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]``, numbered from 0 in each.
    """

    nodes: NDArray[Any]
    words: NDArray[np.uint32]
    value: NDArray[np.float64]
    roots: NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return int(self.roots.shape[0] - 1)


def pack_with_sets(trees: Sequence[Tree]) -> PackedWithSets:
    """Pack at least one tree; all must have values of the same shape."""
    roots = np.concatenate([[0], np.cumsum([tree.node_count for tree in trees])]).astype(np.int64)
    nodes = np.empty(roots[-1], _NODE)
    nodes["first_word"], nodes["n_words"] = -1, 0
    n_words = 0
    for tree, first in zip(trees, roots.tolist(), strict=False):
        mine = nodes[first : first + tree.node_count]
        mine["threshold"], mine["missing_left"] = tree.threshold, tree.missing_go_to_left
        mine["feature"] = np.maximum(tree.feature, -1)
        mine["left"], mine["right"] = tree.children_left, tree.children_right
        sets = tree.categories
        mine["first_word"][sets.node] = n_words + sets.offset[:-1]
        mine["n_words"][sets.node] = np.diff(sets.offset)
        n_words += sets.words.shape[0]
    words = np.concatenate([tree.categories.words for tree in trees])
    return PackedWithSets(nodes, words, np.concatenate([tree.value for tree in trees]), roots)


@inner_kernel
def _leaf_of(packed, X, row, root):  # type: ignore[no-untyped-def]
    """Return the number, within its tree, of the leaf that a row falls in."""
    at = np.int64(0)
    while True:
        node = packed.nodes[root + at]
        if node.feature < 0:
            return at
        x = X[row, node.feature]
        if x != x:
            left = node.missing_left
        elif node.first_word >= 0:
            number = np.int64(x)
            word = number >> 5
            left = 0 <= word < node.n_words and (packed.words[node.first_word + word] >> np.uint32(number & 31)) & np.uint32(1) == 1
        else:
            left = x <= node.threshold
        at = np.int64(node.left) if left else np.int64(node.right)


@kernel
def add_values_with_sets(packed, X, first, last, start, stop, out):  # type: ignore[no-untyped-def]
    """Add the values of the trees ``start:stop`` to ``out``, for the rows ``first:last``."""
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        for tree in range(start, stop):
            root = packed.roots[tree]
            for row in range(begin, end):
                leaf = root + _leaf_of(packed, X, row, root)
                for k in range(out.shape[1]):
                    out[row, k] += packed.value[leaf, k]


@kernel
def leaf_numbers_with_sets(packed, X, first, last, out):  # type: ignore[no-untyped-def]
    """Write the leaf of each tree that the rows ``first:last`` fall in."""
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        for tree in range(packed.roots.shape[0] - 1):
            for row in range(begin, end):
                out[row, tree] = _leaf_of(packed, X, row, packed.roots[tree])
