"""Exact Shapley values of predictions: the contribution of each column of a row, over all orders in which columns may become known.

Trees are packed with shares of weight instead of weights, and with data of each tree that is computed before rows pass through it. A
block of rows passes through all trees while its buffers stay in the cache. Values are added tree by tree, in order, separately for each
row, so they do not depend on blocks or threads.

Terms
-----
share
    the part of the weight of a node's rows that goes left. If a column is unknown, this share of a row goes left.
points
    where the integral of a tree's Shapley values is evaluated (:mod:`dtrees.tree.shapley_by_path`).
"""

from __future__ import annotations

import concurrent.futures
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from functools import cache
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import kernel
from dtrees.tree.packing import node_record, pack_nodes
from dtrees.tree.predict import Table, dense_blocks
from dtrees.tree.tree import Tree

#: A node, whose column is numbered among those that trees use.
_NODE = node_record(share=np.float64)


@by_reference
class Paths(NamedTuple):
    """Trees in shared arrays.

    Attributes
    ----------
    nodes : structured ndarray, shape (n_nodes,)
    words : ndarray of uint32
        The sets of all nodes, concatenated.
    value : ndarray of float64, shape (n_nodes, n_values)
    roots : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]``, numbered from 0 in each tree.
    depth : ndarray of int64, shape (n_trees,)
    n_distinct : ndarray of int64, shape (n_trees,)
        The most distinct columns of a path of the tree.
    mean : ndarray of float64, shape (n_trees, n_values)
        The weighted mean of the leaves.
    columns : ndarray of int64, shape (n_columns,)
        The columns that trees use, ascending.
    points, weights : ndarray of float64
        Points and weights of the Gauss-Legendre rules for the integral from 0 to 1.
    first_point : ndarray of int64, shape (n_trees,)
        Start of the points of each tree; there are ``(n_distinct + 1) // 2``.
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
    """Return the share of each node's weight that goes left, one half if the node has no weight."""
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

    SciPy computes them from eigenvalues, which differ in the last bits between processors.
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
    """Return the points and weights of the rules with these numbers of points, without repetition, and the start of each."""
    sizes, which = np.unique(np.maximum(n_points, 1), return_inverse=True)
    rules = [_gauss_legendre(int(size)) for size in sizes]
    points = np.concatenate([(1.0 + at) / 2 for at, _ in rules])
    weights = np.concatenate([weight / 2 for _, weight in rules])
    return points, weights, np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)[which]


@kernel
def _measure(nodes, value, roots, depth, n_distinct, mean):
    """Write depth, most distinct columns of a path and mean value of each tree."""
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


#: Rows of a block, at most, and the bytes of its intermediate results: with 64 rows, boosting with trees of depth 6 takes twice as long,
#: and a forest of depth 46 a third longer.
_BLOCK, _BLOCK_BYTES = 256, 2**24
#: Fewest rows of a block when rows are divided among threads: processors take eight rows at once, with more in flight.
_FEWEST_ROWS = 32
#: Bytes of the tables of trees that rows pass through together.
_TABLES_BYTES = 2**26
#: Time of a row with tables, for each leaf and column of a path, relative to that of a pair of rows: measured on trees of depth 6.
_LEAVES_OF_A_PAIR = 300


def add_values(paths: Paths, X: Table, n_threads: int, out: NDArray[np.float64]) -> None:
    """Add path-dependent Shapley values, or interaction values.

    Parameters
    ----------
    paths : Paths
    X : ndarray of float32 or float64, shape (n_rows, n_features), or a sparse table
        NaN is missing.
    n_threads : int
    out : ndarray of float64, shape (n_rows, n_features, n_values), of interactions (n_rows, n_features, n_features, n_values)
        Each of the two elements of a pair gets half of its interaction; the diagonal has the remainder of each column's value.
    """
    from dtrees.tree.shapley_by_path import add_path_dependent

    n_columns, n_values = len(paths.columns) if out.ndim == 4 else 0, paths.value.shape[1]
    diagonal = np.arange(n_columns)

    def explain(first: int, block: NDArray[np.float64]) -> None:
        found, pairs = _zeros(paths, block), np.zeros((n_columns, n_columns, n_values, block.shape[1]))
        add_path_dependent(paths, block, found, pairs)
        if out.ndim == 3:
            _write(out, first, paths, found)
            return
        pairs = (pairs + pairs.swapaxes(0, 1)) / 2
        pairs[diagonal, diagonal] = found - pairs.sum(axis=1)
        out[first : first + block.shape[1], paths.columns[:, np.newaxis], paths.columns] += pairs.transpose(3, 0, 1, 2)

    _over_blocks(explain, paths, X, n_threads, _bytes_of_row(paths) + 8 * 3 * n_columns**2 * n_values)


def add_interventional_values(paths: Paths, X: Table, background: Table, n_threads: int, out: NDArray[np.float64]) -> None:
    """Add interventional Shapley values, means over the rows of ``background``; other parameters are those of :func:`add_values`."""
    from dtrees.tree.shapley_by_background import add_by_pairs, walk_with_tables

    others = np.hstack([block for _, block in _blocks(background, 0, background.shape[0], paths.columns, _BLOCK)])
    none = np.empty((0, 0, 0))
    for trees, with_tables in _chunks(paths, others.shape[1]):
        tables = {tree: np.zeros(_table_shape(paths, tree)) for tree in trees if with_tables}
        for tree, table in tables.items():
            walk_with_tables(paths, tree, others, table, none)

        def explain(first: int, block: NDArray[np.float64], trees: list[int] = trees, tables: dict[int, NDArray[Any]] = tables) -> None:
            found = _zeros(paths, block)
            for tree in trees:
                if tree in tables:
                    walk_with_tables(paths, tree, block, tables[tree], found)
                else:
                    add_by_pairs(paths, tree, block, others, found)
            _write(out, first, paths, found)

        _over_blocks(explain, paths, X, n_threads, 1)


def _table_shape(paths: Paths, tree: int) -> tuple[int, int, int]:
    n_leaves, n_columns = (paths.roots[tree + 1] - paths.roots[tree] + 1) // 2, paths.n_distinct[tree]
    return int(n_leaves), int(n_columns), 1 << int(n_columns)


def _chunks(paths: Paths, n_background: int) -> Iterator[tuple[list[int], bool]]:
    """Yield trees that rows pass through together, and whether they have tables, which must not take too much memory."""
    from dtrees.tree.shapley_by_background import MOST_COLUMNS

    shapes = [_table_shape(paths, tree) for tree in range(len(paths.depth))]
    with_tables = [0 < n <= MOST_COLUMNS and n_leaves * (n + 2) < _LEAVES_OF_A_PAIR * n_background for n_leaves, n, _ in shapes]
    n_bytes = list(accumulate(8 * math.prod(shape) if own else 0 for shape, own in zip(shapes, with_tables, strict=True)))
    for (own, _), trees in groupby(range(len(shapes)), lambda tree: (with_tables[tree], n_bytes[tree] // _TABLES_BYTES)):
        yield list(trees), own


def _zeros(paths: Paths, block: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.zeros((block.shape[0], paths.value.shape[1], block.shape[1]))


def _write(out: NDArray[np.float64], first: int, paths: Paths, found: NDArray[np.float64]) -> None:
    """Add the results for a block of rows, shape (n_columns, n_values, n)."""
    out[first : first + found.shape[2], paths.columns] += found.transpose(2, 0, 1)


def _bytes_of_row(paths: Paths) -> int:
    """Return the bytes of a row's intermediate results: products, and sums of both children, by depth."""
    n_points, n_values = max(1, (int(paths.n_distinct.max()) + 1) // 2), paths.value.shape[1]
    return 8 * (int(paths.depth.max()) + 1) * n_points * (1 + 2 * n_values)


def _over_blocks(explain: Callable[[int, NDArray[np.float64]], None], paths: Paths, X: Table, n_threads: int, row_bytes: int) -> None:
    """Call a function with the first row of each block, and its columns, shape (n_columns, n), in threads."""
    n_rows = X.shape[0]
    if len(paths.columns) == 0 or n_rows == 0:
        return
    n_block = max(1, min(_BLOCK, _BLOCK_BYTES // row_bytes))
    if n_threads > 1 and n_rows < n_threads * n_block:
        n_block = min(n_block, max(_FEWEST_ROWS, -(-n_rows // n_threads)))

    def run(first: int) -> None:
        for start, block in _blocks(X, first, min(first + n_block, n_rows), paths.columns, n_block):
            explain(start, block)

    starts = range(0, n_rows, n_block)
    if n_threads == 1 or len(starts) == 1:
        for first in starts:
            run(first)
        return
    with concurrent.futures.ThreadPoolExecutor(min(n_threads, len(starts))) as pool:
        list(pool.map(run, starts))


def _blocks(X: Table, first: int, last: int, columns: NDArray[np.int64], n_block: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the rows ``first:last`` of some columns as arrays of shape (n_columns, n), each with the number of its first row."""
    if issparse(X):
        for start, block in dense_blocks(X, first, last, columns):
            yield start, np.ascontiguousarray(block.T, np.float64)
        return
    for start in range(first, last, n_block):
        yield start, np.ascontiguousarray(X[start : min(start + n_block, last), columns].T, np.float64)
