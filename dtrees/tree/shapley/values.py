"""Shapley values of many rows: block by block, in threads.

A block of rows goes through all trees while what it needs stays in the cache. Values are added tree by tree, in order, for each row by
itself: they do not depend on blocks or threads.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.tree.shapley.paths import Paths
from dtrees.tree.sparse_rows import SparseRows

#: Rows to be explained.
Table = NDArray[Any] | SparseRows

#: Rows of a block, at most, and the bytes of its intermediate results: with 64 rows, boosting by trees of depth 6 takes twice as long, and
#: a forest of depth 46 a third longer.
_BLOCK, _BLOCK_BYTES = 256, 2**24
#: A block is not made smaller than this for threads' sake: processors take eight rows at once, and more are on the way.
_FEWEST_ROWS = 32
#: The bytes of the tables of trees that rows go through together.
_TABLES_BYTES = 2**26
#: By tables, a row takes so many times as long for each leaf and column of a path as by a pair of rows: measured on trees of depth 6.
_LEAVES_OF_A_PAIR = 300


def add_values(paths: Paths, X: Table, n_threads: int, out: NDArray[np.float64]) -> None:
    """Add path-dependent Shapley values.

    Parameters
    ----------
    paths : Paths
    X : ndarray of float32 or float64, shape (n_rows, n_features), or SparseRows
        NaN is missing.
    n_threads : int
    out : ndarray of float64, shape (n_rows, n_features, n_values)
    """
    from dtrees.tree.shapley.path_dependent import add_path_dependent

    none = np.empty((0, 0, 0, 0))

    def explain(first: int, block: NDArray[np.float64]) -> None:
        found = _zeros(paths, block)
        add_path_dependent(paths, block, found, none)
        _write(out, first, paths, found)

    _over_blocks(explain, paths, X, n_threads, _bytes_of_row(paths))


def add_interaction_values(paths: Paths, X: Table, n_threads: int, out: NDArray[np.float64]) -> None:
    """Add path-dependent interaction values; the rest as in :func:`add_values`.

    ``out`` has shape (n_rows, n_features, n_features, n_values). Each of the two places of a pair gets half of its interaction; on the
    diagonal is what is left of each column's value.
    """
    from dtrees.tree.shapley.path_dependent import add_path_dependent

    n_columns, n_values = len(paths.columns), paths.value.shape[1]
    diagonal = np.arange(n_columns)

    def explain(first: int, block: NDArray[np.float64]) -> None:
        found, pairs = _zeros(paths, block), np.zeros((n_columns, n_columns, n_values, block.shape[1]))
        add_path_dependent(paths, block, found, pairs)
        pairs = (pairs + pairs.swapaxes(0, 1)) / 2
        pairs[diagonal, diagonal] = found - pairs.sum(axis=1)
        out[first : first + block.shape[1], paths.columns[:, np.newaxis], paths.columns] += pairs.transpose(3, 0, 1, 2)

    _over_blocks(explain, paths, X, n_threads, _bytes_of_row(paths) + 8 * 3 * n_columns**2 * n_values)


def add_interventional_values(paths: Paths, X: Table, background: Table, n_threads: int, out: NDArray[np.float64]) -> None:
    """Add interventional Shapley values, means over the rows of ``background``; the rest as in :func:`add_values`."""
    from dtrees.tree.shapley.interventional import add_by_pairs, walk_with_tables

    others = np.hstack([block for _, block in _blocks(background, 0, background.shape[0], paths.columns, _BLOCK)])
    none = np.empty((0, 0, 0))
    for first_tree, last_tree, with_tables in _stretches(paths, others.shape[1]):
        tables = {}
        if with_tables:
            for tree in range(first_tree, last_tree):
                tables[tree] = np.zeros(_table_shape(paths, tree))
                walk_with_tables(paths, tree, others, tables[tree], none)

        def explain(
            first: int, block: NDArray[np.float64], trees: range = range(first_tree, last_tree), tables: dict[int, NDArray[Any]] = tables
        ) -> None:
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


def _stretches(paths: Paths, n_background: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the first and last trees that rows go through together, and whether they have tables, which must not take too much memory."""
    from dtrees.tree.shapley.interventional import MOST_COLUMNS

    starts, kinds, size = [0], [False], 0
    for tree in range(paths.n_trees):
        with_tables, mine = False, 0
        if 0 < paths.n_distinct[tree] <= MOST_COLUMNS:
            n_leaves, n_columns, n_sets = _table_shape(paths, tree)
            with_tables = n_leaves * (n_columns + 2) < _LEAVES_OF_A_PAIR * n_background
            mine = 8 * n_leaves * n_columns * n_sets if with_tables else 0
        if tree == 0:
            kinds[0] = with_tables
        elif with_tables != kinds[-1] or size + mine > _TABLES_BYTES:
            starts.append(tree)
            kinds.append(with_tables)
            size = 0
        size += mine
    for (first, last), with_tables in zip(pairwise([*starts, paths.n_trees]), kinds, strict=True):
        yield first, last, with_tables


def _zeros(paths: Paths, block: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.zeros((block.shape[0], paths.value.shape[1], block.shape[1]))


def _write(out: NDArray[np.float64], first: int, paths: Paths, found: NDArray[np.float64]) -> None:
    """Add what was found for a block of rows, shape (n_columns, n_values, n)."""
    out[first : first + found.shape[2], paths.columns] += found.transpose(2, 0, 1)


def _bytes_of_row(paths: Paths) -> int:
    """Return how many bytes of intermediate results a row has: products, and sums of both children, by depth."""
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
    if isinstance(X, SparseRows):
        for start, block in X.blocks(first, last, columns):
            yield start, np.ascontiguousarray(block.T, np.float64)
        return
    for start in range(first, last, n_block):
        yield start, np.ascontiguousarray(X[start : min(start + n_block, last), columns].T, np.float64)
