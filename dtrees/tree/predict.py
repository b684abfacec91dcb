"""Prediction: rows through trees.

Trees are packed one after the other into shared arrays (:class:`Packed`), and a block of rows goes through all of them. Values are added
tree by tree, in order, for each row by itself: predictions do not depend on blocks or threads.

Values are compared as float64, which holds every float32 and every integer up to 2**53 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.kernel import inner_kernel, kernel
from dtrees.tree.tree import Tree

_BLOCK = 512


class Packed(NamedTuple):
    """Trees in shared arrays.

    Attributes
    ----------
    right : ndarray of int32, shape (n_nodes,)
        Node number of the right child; the left one is the next node.
    feature : ndarray of int32, shape (n_nodes,)
        -2 at leaves.
    threshold : ndarray of float64, shape (n_nodes,)
    missing_left : ndarray of bool, shape (n_nodes,)
    value : ndarray of float64, shape (n_nodes, n_values)
    roots : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]``.
    """

    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]
    value: NDArray[np.float64]
    roots: NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return int(self.roots.shape[0] - 1)


def pack(trees: Sequence[Tree]) -> Packed:
    """Pack at least one tree; all must have values of the same shape."""
    roots = np.zeros(len(trees) + 1, np.int64)
    np.cumsum([tree.node_count for tree in trees], out=roots[1:])
    if roots[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"the ensemble has {roots[-1]} nodes; at most {np.iinfo(np.int32).max} can be used for prediction at once")
    return Packed(
        np.concatenate([tree.children_right + np.int32(root) for tree, root in zip(trees, roots, strict=False)]),
        np.concatenate([tree.feature for tree in trees]),
        np.concatenate([tree.threshold for tree in trees]),
        np.concatenate([tree.missing_go_to_left for tree in trees]),
        np.concatenate([tree.value for tree in trees]),
        roots,
    )


@inner_kernel
def _leaf(packed, X, row, tree):
    node = packed.roots[tree]
    feature = packed.feature[node]
    while feature >= 0:
        x = np.float64(X[row, feature])
        if packed.missing_left[node] if x != x else x <= packed.threshold[node]:
            node += 1
        else:
            node = np.int64(packed.right[node])
        feature = packed.feature[node]
    return node


@kernel
def _add_values(packed, X, first, last, start, stop, out):
    n_values = packed.value.shape[1]
    for block in range(first, last, _BLOCK):
        end = min(block + _BLOCK, last)
        for tree in range(start, stop):
            for row in range(block, end):
                node = _leaf(packed, X, row, tree)
                for k in range(n_values):
                    out[row, k] += packed.value[node, k]


@kernel
def _find_leaves(packed, X, first, last, out):
    for block in range(first, last, _BLOCK):
        end = min(block + _BLOCK, last)
        for tree in range(packed.roots.shape[0] - 1):
            for row in range(block, end):
                out[row, tree] = _leaf(packed, X, row, tree) - packed.roots[tree]


def _over_rows(kernel: Callable[[int, int], Any], n_rows: int, work: int, n_threads: int) -> None:
    """Run ``kernel(first, last)`` over stretches of rows, in threads where there is enough to do."""
    n_threads = min(n_threads, max(1, n_rows // _BLOCK)) if work > 50_000 else 1
    if n_threads == 1:
        kernel(0, n_rows)
        return
    step = -(-n_rows // (4 * n_threads) // _BLOCK) * _BLOCK
    starts = range(0, n_rows, max(step, _BLOCK))
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(lambda first: kernel(first, min(first + starts.step, n_rows)), starts))


def sum_values(packed: Packed, X: NDArray[Any], n_threads: int = 1, start: int = 0, stop: int | None = None) -> NDArray[np.float64]:
    """Add up the values of the leaves that rows fall in.

    Parameters
    ----------
    packed : Packed
    X : ndarray of float32 or float64, shape (n_rows, n_features)
        NaN is missing.
    n_threads : int, default=1
    start, stop : int, optional
        Use trees ``start:stop`` only.

    Returns
    -------
    ndarray of float64, shape (n_rows, n_values)
    """
    out = np.zeros((X.shape[0], packed.value.shape[1]))
    last = packed.n_trees if stop is None else stop
    _over_rows(lambda i, j: _add_values(packed, X, i, j, start, last, out), X.shape[0], X.shape[0] * (last - start), n_threads)
    return out


def add_tree(packed: Packed, X: NDArray[Any], tree: int, out: NDArray[np.float64], n_threads: int = 1) -> None:
    """Add the values of one tree to ``out``, shape (n_rows, n_values)."""
    _over_rows(lambda i, j: _add_values(packed, X, i, j, tree, tree + 1, out), X.shape[0], X.shape[0], n_threads)


def apply(packed: Packed, X: NDArray[Any], n_threads: int = 1) -> NDArray[np.int32]:
    """Return the number of the leaf that each row falls in, within each tree, shape (n_rows, n_trees)."""
    out = np.empty((X.shape[0], packed.n_trees), np.int32)
    _over_rows(lambda i, j: _find_leaves(packed, X, i, j, out), X.shape[0], X.shape[0] * packed.n_trees, n_threads)
    return out
