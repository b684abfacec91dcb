"""Trees packed for Shapley values: shares of weight instead of weights, and what is to be known of a tree before rows go through it.

Terms
-----
share
    of the weight of a node's rows, what goes left. Where a column is unknown, a row goes left with this share of itself.
points
    where the integral of a tree's Shapley values is evaluated (:mod:`dtrees.tree.shapley.path_dependent`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.tree.packing import pack_nodes
from dtrees.tree.tree import Tree

_NODE = np.dtype(
    [
        ("threshold", np.float64),
        ("share", np.float64),
        ("first_word", np.int64),  # of the node's set; -1 where it has a threshold
        ("n_words", np.int32),
        ("feature", np.int32),  # by its place among the columns that trees ask for; -1 at leaves
        ("left", np.int32),
        ("right", np.int32),
        ("missing_left", np.bool_),
    ],
    align=True,
)


@by_reference
class Paths(NamedTuple):
    """Trees in shared arrays.

    Attributes
    ----------
    nodes : structured ndarray, shape (n_nodes,)
    words : ndarray of uint32
        The sets of all nodes, one after the other.
    value : ndarray of float64, shape (n_nodes, n_values)
    roots : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]``, numbered from 0 in each.
    depth : ndarray of int64, shape (n_trees,)
    n_distinct : ndarray of int64, shape (n_trees,)
        The most columns that a path of the tree asks for.
    mean : ndarray of float64, shape (n_trees, n_values)
        The mean of the leaves by weight.
    columns : ndarray of int64, shape (n_columns,)
        The columns that trees ask for, ascending.
    points, weights : ndarray of float64
        Of the rules by Gauss and Legendre for the integral from 0 to 1.
    first_point : ndarray of int64, shape (n_trees,)
        Where those of a tree begin: it has ``(n_distinct + 1) // 2``.
    """

    nodes: NDArray[Any]
    words: NDArray[np.uint32]
    value: NDArray[np.float64]
    roots: NDArray[np.int64]
    depth: NDArray[np.int64]
    n_distinct: NDArray[np.int64]
    mean: NDArray[np.float64]
    columns: NDArray[np.int64]
    points: NDArray[np.float64]
    weights: NDArray[np.float64]
    first_point: NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return int(self.roots.shape[0] - 1)


def pack_paths(trees: Sequence[Tree]) -> Paths:
    """Pack at least one tree; all must have values of the same shape."""
    roots, nodes, words = pack_nodes(trees, _NODE)
    nodes["share"] = np.concatenate([_shares(tree) for tree in trees])
    inner = nodes["feature"] >= 0
    columns, place = np.unique(nodes["feature"][inner], return_inverse=True)
    nodes["feature"][inner] = place
    value = np.concatenate([tree.value for tree in trees])
    depth, n_distinct = np.zeros(len(trees), np.int64), np.zeros(len(trees), np.int64)
    mean = np.zeros((len(trees), value.shape[1]))
    _measure(nodes, value, roots, depth, n_distinct, mean)
    points, weights, first_point = _rules((n_distinct + 1) // 2)
    return Paths(nodes, words, value, roots, depth, n_distinct, mean, columns.astype(np.int64), points, weights, first_point)


def _shares(tree: Tree) -> NDArray[np.float64]:
    """Return the share of each node's weight that goes left; a half where neither side has any."""
    inner = tree.children_left >= 0
    weight = tree.weighted_n_node_samples
    left, right = weight[tree.children_left[inner]], weight[tree.children_right[inner]]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = left / (left + right)
    shares = np.zeros(tree.node_count)
    shares[inner] = np.where((share >= 0) & (share <= 1), share, 0.5)
    return shares


@cache
def _gauss_legendre(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points, ascending, and the weights of the Gauss-Legendre rule of n points on [-1, 1], each rounded once.

    Eigenvalues, which SciPy makes them of, differ in the last bits from one processor to another.
    """
    points, weights = np.zeros(n), np.empty(n)
    with localcontext(prec=40):
        for i in range((n + 1) // 2):
            x, step = Decimal(-math.cos(math.pi * (i + 0.75) / (n + 0.5))), Decimal(1)
            while abs(step) > Decimal("1e-30"):  # Newton's method doubles the digits with each step
                before, value = Decimal(1), x
                for k in range(2, n + 1):
                    before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
                slope = n * (x * value - before) / (x * x - 1)
                step = value / slope
                x -= step
            points[i], points[n - 1 - i] = x, -x
            weights[i] = weights[n - 1 - i] = 2 / ((1 - x * x) * slope * slope)
    if n % 2:
        points[n // 2] = 0.0
    return points, weights


def _rules(n_points: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return the points and weights of the rules with so many points, each once, and where each begins."""
    sizes, which = np.unique(np.maximum(n_points, 1), return_inverse=True)
    rules = [_gauss_legendre(int(size)) for size in sizes]
    points = np.concatenate([(1.0 + at) / 2 for at, _ in rules])
    weights = np.concatenate([weight / 2 for _, weight in rules])
    return points, weights, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)[which]


@kernel
def _measure(nodes, value, roots, depth, n_distinct, mean):
    """Write depth, distinct columns of the longest path and mean value of each tree."""
    for tree in range(roots.shape[0] - 1):
        mine, values = nodes[roots[tree] : roots[tree + 1]], value[roots[tree] : roots[tree + 1]]
        n = mine.shape[0]
        parent, level, distinct, weight = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n)
        for node in range(n):  # parents come first
            feature = mine[node].feature
            if feature < 0:
                depth[tree] = max(depth[tree], level[node])
                n_distinct[tree] = max(n_distinct[tree], distinct[node])
                for k in range(values.shape[1]):
                    mean[tree, k] += weight[node] * values[node, k]
                continue
            above = parent[node]
            while above >= 0 and mine[above].feature != feature:
                above = parent[above]
            for child in (mine[node].left, mine[node].right):
                parent[child], level[child] = node, level[node] + 1
                distinct[child] = distinct[node] + (1 if above < 0 else 0)
            weight[mine[node].left] = weight[node] * mine[node].share
            weight[mine[node].right] = weight[node] * (1.0 - mine[node].share)


@inner_kernel
def goes_left(node, words, x):
    """Tell whether a value goes left at a node."""
    if x != x:
        return node.missing_left
    if node.first_word < 0:
        return x <= node.threshold
    number = np.int64(x)
    word = number >> 5
    return 0 <= word < node.n_words and (words[node.first_word + word] >> np.uint32(number & 31)) & np.uint32(1) == 1


@inner_kernel
def divide(node, words, x, left):
    """Write which rows go left."""
    if node.first_word < 0:
        threshold, missing = node.threshold, node.missing_left
        for r in range(x.shape[0]):
            left[r] = missing if x[r] != x[r] else x[r] <= threshold
    else:
        for r in range(x.shape[0]):
            left[r] = goes_left(node, words, x[r])
