"""Passes over the rows of one shard that search nothing: the next code above a cut, rows that sets send left, leaves of trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.node.partition import mark_left_by_side


@by_reference
class WalkedTree(NamedTuple):
    """A finished tree, for rows that are known by their codes.

    Attributes
    ----------
    left, right, column, missing_left, values : ndarray, shape (n_nodes,)
        Of its nodes.
    cuts : ndarray of int64, shape (n_nodes,)
        The highest code that goes left.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    column: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    values: NDArray[np.float64]
    cuts: NDArray[np.int64]


@by_reference
class SplitsBySets(NamedTuple):
    """Splits by sets, of nodes whose rows are to be divided, and the sets of all splits of a level.

    Attributes
    ----------
    begins, words : ndarray
        As of :class:`~dtrees.tree.category_sets.CategorySets`.
    columns : ndarray of int64, shape (n,)
    missing_left : ndarray of bool, shape (n,)
    start, stop : ndarray of int64, shape (n,)
        First and last place of each node.
    offsets : ndarray of int64, shape (n + 1,)
        Where the bits of each begin.
    """

    begins: NDArray[np.int64]
    words: NDArray[np.uint32]
    columns: NDArray[np.int64]
    missing_left: NDArray[np.bool_]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    offsets: NDArray[np.int64]


@by_reference
class SetsOfTree(NamedTuple):
    """The sets of a finished tree, and the categories of rows.

    Attributes
    ----------
    place_of : ndarray of int64, shape (n_columns,)
        Of the columns of the table, in ``categories``.
    categories : ndarray of uint32, shape (k, n_rows)
    set_of : ndarray of int64, shape (n_nodes,)
        The set of each node, -1 if it has none.
    begins, words : ndarray
        As of :class:`~dtrees.tree.category_sets.CategorySets`.
    """

    place_of: NDArray[np.int64]
    categories: NDArray[np.uint32]
    set_of: NDArray[np.int64]
    begins: NDArray[np.int64]
    words: NDArray[np.uint32]


@kernel
def next_codes(queue, nodes, columns, rows, cuts, out):
    """Write the lowest code above a cut among the rows of nodes, the number of distinct values if there is none, by several threads.

    ``nodes``, shape (n, 3), are first and last place and column.
    """
    while True:
        k = claim(queue)
        if k >= nodes.shape[0]:
            return
        start, stop, column = nodes[k]
        codes = columns.codes[column]
        lowest, cut = np.int64(columns.offsets[column + 1] - columns.offsets[column]), cuts[k]
        for i in range(start, stop):
            code = np.int64(codes[rows[i]])
            if code > cut:
                lowest = min(lowest, code)
        out[k] = lowest
        finish(queue)


@kernel
def walk_rows(queue, pieces, codes, missing, tree, rows, total):
    """Add to ``total``, by row, the value of the leaf of a finished tree that the row comes to, by several threads.

    Parameters
    ----------
    pieces : ndarray of int64, shape (n, 2)
        Stretches of ``rows``.
    codes : ndarray of uint32, shape (n_columns, n_rows)
    missing : ndarray of int64, shape (n_columns,)
        The code of missing values.
    tree : WalkedTree
    """
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        for i in range(pieces[k, 0], pieces[k, 1]):
            row, node = rows[i], ZERO()
            while tree.left[node] >= 0:
                column = tree.column[node]
                code = np.int64(codes[column, row])
                goes_left = tree.missing_left[node] if code == missing[column] else code <= tree.cuts[node]
                node = np.int64(tree.left[node] if goes_left else tree.right[node])
            total[row] += tree.values[node]
        finish(queue)


@kernel
def mark_by_words(queue, pieces, splits, codes, missing, rows, side, bits):
    """Mark the rows that splits by sets send left, by several threads.

    Parameters
    ----------
    pieces : ndarray of int64, shape (n, 4)
        A set, its split, and the first and last byte of the split's bits.
    splits : SplitsBySets
    codes : ndarray of uint32, shape (n_columns, n_rows)
    missing : ndarray of int64, shape (n_columns,)
        The code of missing values.
    side : ndarray of uint8
        Room for all codes of a column.
    """
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        which, i, first, last = pieces[k]
        j, mine = splits.columns[i], splits.words[splits.begins[which] : splits.begins[which + 1]]
        for code in range(missing[j]):
            word = code >> 5
            side[code] = (mine[word] >> np.uint32(code & 31)) & np.uint32(1) if word < mine.shape[0] else np.uint32(0)
        side[missing[j]] = splits.missing_left[i]
        begin, offset = splits.start[i] + 8 * first, splits.offsets[i]
        end = min(splits.start[i] + 8 * last, splits.stop[i])
        mark_left_by_side(codes[j], side, rows, begin, end, bits[offset + first : offset + last])
        finish(queue)


@kernel
def walk_rows_by_sets(queue, pieces, codes, missing, tree, sets, rows, total):
    """Add the values of leaves as :func:`walk_rows` does, in a tree with sets of categories."""
    begins = sets.begins
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        for i in range(pieces[k, 0], pieces[k, 1]):
            row, node = rows[i], ZERO()
            while tree.left[node] >= 0:
                j, which = tree.column[node], sets.set_of[node]
                code = np.int64(codes[j, row])
                if code == missing[j]:
                    goes_left = tree.missing_left[node]
                elif which >= 0:
                    category = np.int64(sets.categories[sets.place_of[j], row])
                    word = begins[which] + (category >> 5)
                    goes_left = word < begins[which + 1] and (sets.words[word] >> np.uint32(category & 31)) & np.uint32(1) != np.uint32(0)
                else:
                    goes_left = code <= tree.cuts[node]
                node = np.int64(tree.left[node] if goes_left else tree.right[node])
            total[row] += tree.values[node]
        finish(queue)


@kernel
def add_in_order(x, first_row, n_rows, lanes):
    """Add absolute values of a stretch of rows to the sums that :func:`~dtrees.split.numbers.fixed_point.absolute_sum` makes of all."""
    whole = n_rows - n_rows % 4
    for i in range(x.shape[0]):
        row = first_row + i
        lanes[row % 4 if row < whole else 0] += abs(x[i])
