"""Prediction with trees that split on categories.

The first six levels of a tree are evaluated without walking. Each end of them has a bit of a word, all set at first; a node whose test
fails clears the bits of the ends below its left child, in any order of nodes, and the lowest remaining bit is that of the end that the
row reaches (Lucchese et al. 2015, "QuickScorer"). For a column of categories, the bits that its nodes clear follow from the row's
category: they are looked up in a table, which is built from the sets of each tree. So a column takes one look-up, however many nodes
test it. Several columns of few categories share one look-up.

Lower levels are walked, and so is the whole tree if there are too few rows for tables to pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.compile.memory import lowest_bit, prefetch
from dtrees.split.table.zone_map import join
from dtrees.tree.packing import add_leaves, goes_left, node_record, pack_nodes
from dtrees.tree.tree import Tree

#: Rows of a chunk, which share the tables of a tree, and of a block, which pass its tests together.
_CHUNK, _BLOCK = 2**14, 512
#: Number of nodes and ends of the first levels.
_TOP_NODES, _TOP_ENDS = 63, 64
#: Fewest rows for which tables pay, and the elements of a table that take as long as walking a row.
_TABLE_ROWS, _TABLE_NUMBERS = 64, 64
#: Most entries of the table of several columns: a few tables should fit the first-level cache.
_JOINED_ENTRIES = 512

_NODE = node_record()
_TEST = np.dtype(
    [
        ("threshold", np.float64),
        ("first_word", np.int64),
        ("keeps", np.uint64),  # the bits of the ends that remain if the test fails
        ("n_words", np.int32),
        ("place", np.int32),  # index of the column among those tested by thresholds or by sets
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
        The sets of all nodes, concatenated.
    value : ndarray of float64, shape (n_nodes, n_values)
    roots : ndarray of int64, shape (n_trees + 1,)
        Tree ``t`` has the nodes ``roots[t]:roots[t + 1]``, numbered from 0 in each tree.
    tests : structured ndarray
        The nodes of the first levels of each tree: those with thresholds first, then those with sets, column by column.
    first_test, first_set : ndarray of int64, shape (n_trees + 1,) and (n_trees,)
        Tree ``t`` has the tests ``first_test[t]:first_test[t + 1]``, those with sets from ``first_set[t]`` on.
    ends : ndarray of int32, shape (n_trees, 64)
        The nodes at the ends of the first levels.
    shallow : ndarray of bool, shape (n_trees,)
        Whether these are all leaves.
    fewest : ndarray of int64, shape (n_trees,)
        Fewest rows for which the tests pay for their tables.
    by_threshold, by_set : ndarray of int64
        The columns that are tested by thresholds, and by sets.
    n_words : ndarray of int64, shape (n_by_set,)
        For each column of categories, the most words of a set.
    n_codes, stride, table_of : ndarray of int64, shape (n_by_set,)
        A row's code in such a column is the number of its category; the last two codes are for categories that no set has, and for
        missing values. The sum of codes times strides is the row's index in the joint table of adjacent columns.
    first_entry : ndarray of int64, shape (n_tables + 1,)
        Start of the entries of each table.
    """

    nodes: NDArray[Any]
    words: NDArray[np.uint32]
    value: NDArray[np.float64]
    roots: NDArray[np.int64]
    tests: NDArray[Any]
    first_test: NDArray[np.int64]
    first_set: NDArray[np.int64]
    ends: NDArray[np.int32]
    shallow: NDArray[np.bool_]
    fewest: NDArray[np.int64]
    by_threshold: NDArray[np.int64]
    by_set: NDArray[np.int64]
    n_words: NDArray[np.int64]
    n_codes: NDArray[np.int64]
    stride: NDArray[np.int64]
    table_of: NDArray[np.int64]
    first_entry: NDArray[np.int64]


def pack_with_sets(trees: Sequence[Tree]) -> PackedWithSets:
    """Pack at least one tree; all must have values of the same shape."""
    roots, nodes, words = pack_nodes(trees, _NODE)
    inner, has_set = nodes["feature"] >= 0, nodes["first_word"] >= 0
    by_threshold, by_set = (np.unique(nodes["feature"][inner & some]).astype(np.int64) for some in (~has_set, has_set))
    n_codes, n_words = _count_codes(nodes[has_set], words, by_set)
    order = np.argsort(n_codes, kind="stable")
    by_set, n_codes, n_words = by_set[order], n_codes[order], n_words[order]
    table_of, stride, sizes = join(n_codes, _JOINED_ENTRIES)
    place_of = np.zeros((2, int(nodes["feature"].max(initial=0)) + 1), np.int32)
    for kind, columns in enumerate((by_threshold, by_set)):
        place_of[kind, columns] = np.arange(columns.shape[0])
    n_trees = len(trees)
    buffers, ends = np.zeros((n_trees, _TOP_NODES), _TEST), np.empty((n_trees, _TOP_ENDS), np.int32)
    n_tests = np.empty((n_trees, 2), np.int64)
    _take_first_levels(nodes, roots, place_of, buffers, ends, n_tests)
    counts = n_tests.sum(axis=1)
    tests, tree_of = buffers[np.arange(_TOP_NODES) < counts[:, np.newaxis]], np.repeat(np.arange(n_trees), counts)
    tests = tests[np.lexsort((tests["place"], tests["first_word"] >= 0, tree_of))]
    first_test = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return PackedWithSets(
        nodes,
        words,
        np.concatenate([tree.value for tree in trees]),
        roots,
        tests,
        first_test,
        first_test[:-1] + n_tests[:, 0],
        ends,
        np.all(nodes["feature"][roots[:-1, np.newaxis] + ends] < 0, axis=1),
        _fewest_rows(tests, tree_of, n_trees, n_words, table_of, sizes),
        by_threshold,
        by_set,
        n_words,
        n_codes,
        stride,
        table_of,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )


def _fewest_rows(
    tests: NDArray[Any],
    tree_of: NDArray[np.int64],
    n_trees: int,
    n_words: NDArray[np.int64],
    table_of: NDArray[np.int64],
    sizes: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return the number of rows from which the tests of each tree pay for their tables."""
    by_set = tests["first_word"] >= 0
    trees, places = tree_of[by_set], tests["place"][by_set]
    n_numbers = np.bincount(trees, 32 * tests["n_words"][by_set], n_trees)
    for which, size in (places, 32 * n_words), (table_of[places], sizes):
        tree, one = np.divmod(np.unique(trees * size.shape[0] + which), size.shape[0])
        n_numbers += np.bincount(tree, size[one], n_trees)
    return np.maximum(_TABLE_ROWS, n_numbers.astype(np.int64) // _TABLE_NUMBERS)


def _count_codes(nodes: NDArray[Any], words: NDArray[np.uint32], columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of codes of each column, two more than the categories up to the highest in any set, and the most words of a set.

    The last words of a set may be 0, in a model from another library.
    """
    n_codes, n_words = np.full(columns.shape[0], 2), np.zeros(columns.shape[0], np.int64)
    some = nodes[nodes["n_words"] > 0]
    column, last = np.searchsorted(columns, some["feature"]), some["n_words"].astype(np.int64) - 1
    n_bits = np.frexp(words[some["first_word"] + last])[1]
    np.maximum.at(n_codes, column, 32 * last + n_bits + 2)
    np.maximum.at(n_words, column, last + 1)
    return n_codes, n_words


@kernel
def _take_first_levels(nodes, roots, place_of, tests, ends, n_tests):  # type: ignore[no-untyped-def]
    """Write the tests of the first levels of trees, their ends, and the numbers of tests with thresholds and with sets."""
    at = np.zeros(127, np.int64)  # the node at each position of a complete tree, the root at 0; below a leaf, the leaf
    n_tests[:] = 0
    for t in range(tests.shape[0]):
        root = roots[t]
        for i in range(63):
            node = nodes[root + at[i]]
            at[2 * i + 1] = node.left if node.feature >= 0 else at[i]
            at[2 * i + 2] = node.right if node.feature >= 0 else at[i]
        for i in range(64):
            ends[t, i] = at[63 + i]
        first, width = 0, 64
        for i in range(63):
            if i == 2 * first + 1:  # the next level
                first, width = i, width // 2
            node = nodes[root + at[i]]
            if node.feature >= 0:
                kind = 1 if node.first_word >= 0 else 0
                test = tests[t, n_tests[t, 0] + n_tests[t, 1]]
                left = (np.uint64(1) << np.uint64(width // 2)) - np.uint64(1)
                test.keeps = ~(left << np.uint64((i - first) * width))
                test.threshold, test.first_word, test.n_words = node.threshold, node.first_word, node.n_words
                test.place, test.missing_left = place_of[kind, node.feature], node.missing_left
                n_tests[t, kind] += 1


@inner_kernel
def _leaf_of(packed, X, row, root):  # type: ignore[no-untyped-def]
    """Return the number, within its tree, of the leaf that a row falls into."""
    at = np.int64(0)
    while True:
        node = packed.nodes[root + at]
        if node.feature < 0:
            return at
        at = np.int64(node.left) if goes_left(node, packed.words, X[row, node.feature]) else np.int64(node.right)


@inner_kernel
def _allocate(packed, X, n):  # type: ignore[no-untyped-def]
    """Return buffers for a chunk: numbers and table indices of rows, by column or table; tables and one of a column; bits, leaves."""
    n_tables = packed.first_entry.shape[0] - 1
    return (
        np.empty((packed.by_threshold.shape[0], n), X.dtype),
        np.empty((n_tables, n), np.uint32),
        (np.empty(packed.first_entry[n_tables], np.uint64), np.empty(32 * packed.n_words.max() + 2, np.uint64)),
        np.empty(min(n, _BLOCK), np.uint64),
        np.empty((2, n), np.int32),
        np.empty(n, np.int32),
        np.empty(n_tables, np.int64),
    )


@inner_kernel
def _fill(packed, X, first, n, numbers, entries):  # type: ignore[no-untyped-def]
    """Copy rows column by column, and write their indices in tables."""
    for start in range(0, n, _BLOCK):  # rows stay in the cache from column to column
        stop = min(start + _BLOCK, n)
        for k in range(numbers.shape[0]):
            column = packed.by_threshold[k]
            for i in range(start, stop):
                numbers[k, i] = X[first + i, column]
        entries[:, start:stop] = np.uint32(0)
        for k in range(packed.by_set.shape[0]):
            column, missing, stride, mine = packed.by_set[k], packed.n_codes[k] - 1, packed.stride[k], entries[packed.table_of[k]]
            for i in range(start, stop):
                x = X[first + i, column]
                mine[i] += np.uint32(stride) * (np.uint32(x) if 0 <= x < missing - 1 else np.uint32(missing if x != x else missing - 1))


@inner_kernel
def _make_tables(packed, tree, buffers, used):  # type: ignore[no-untyped-def]
    """Build the tables of the columns that a tree tests by sets, of the bits that remain; return how many tables are ``used``."""
    tables, of_column = buffers
    k, stop, n_used = packed.first_set[tree], packed.first_test[tree + 1], 0
    while k < stop:
        place = packed.tests[k].place
        table = packed.table_of[place]
        entries = tables[packed.first_entry[table] : packed.first_entry[table + 1]]
        if n_used == 0 or used[n_used - 1] != table:
            used[n_used] = table
            n_used += 1
            entries[:] = ~np.uint64(0)
        k = _make_table(packed, place, k, stop, of_column)
        at, stride = 0, packed.stride[place]
        while at < entries.shape[0]:
            for code in range(packed.n_codes[place]):
                for _ in range(stride):
                    entries[at] &= of_column[code]
                    at += 1
    return n_used


@inner_kernel
def _make_table(packed, place, k, stop, table):  # type: ignore[no-untyped-def]
    """Write the bits that remain after the tests of one column, by code, from test ``k`` on; return the next test."""
    n_codes, others, missing = packed.n_codes[place], ~np.uint64(0), ~np.uint64(0)
    table[:] = others
    while k < stop and packed.tests[k].place == place:
        test = packed.tests[k]
        keeps = test.keeps
        for word in range(test.n_words):
            bits = np.uint64(packed.words[test.first_word + word])
            mine = table[32 * word : 32 * word + 32]
            for b in range(np.uint64(32)):
                mine[b] &= keeps | (np.uint64(0) - ((bits >> b) & np.uint64(1)))
        for code in range(32 * test.n_words, n_codes - 2):
            table[code] &= keeps
        others &= keeps
        if not test.missing_left:
            missing &= keeps
        k += 1
    table[n_codes - 2], table[n_codes - 1] = others, missing
    return k


@inner_kernel
def _table_of(packed, tables, entries, table, first, n):  # type: ignore[no-untyped-def]
    """Return a table, and the indices of a block's rows in it."""
    return tables[packed.first_entry[table] : packed.first_entry[table + 1]], entries[table, first : first + n]


@inner_kernel
def _keep(packed, tree, numbers, entries, tables, used, first, bits):  # type: ignore[no-untyped-def]
    """Write the bits of the first levels' ends that remain for the rows of a block; ``used`` are the tables to look up."""
    n = bits.shape[0]
    all_ends = ~np.uint64(0)
    bits[:] = all_ends
    for k in range(packed.first_test[tree], packed.first_set[tree]):
        test = packed.tests[k]
        keeps, threshold, mine = test.keeps, test.threshold, numbers[test.place, first : first + n]
        if test.missing_left:
            for i in range(n):
                bits[i] &= keeps if mine[i] > threshold else all_ends
        else:
            for i in range(n):
                bits[i] &= all_ends if mine[i] <= threshold else keeps
    in_fours = used.shape[0] & ~3
    for k in range(0, in_fours, 4):  # four look-ups for each read and write of the bits
        one, a = _table_of(packed, tables, entries, used[k], first, n)
        two, b = _table_of(packed, tables, entries, used[k + 1], first, n)
        three, c = _table_of(packed, tables, entries, used[k + 2], first, n)
        four, d = _table_of(packed, tables, entries, used[k + 3], first, n)
        for i in range(n):
            bits[i] &= one[np.uint64(a[i])] & two[np.uint64(b[i])] & three[np.uint64(c[i])] & four[np.uint64(d[i])]
    for k in range(in_fours, used.shape[0]):
        one, a = _table_of(packed, tables, entries, used[k], first, n)
        for i in range(n):
            bits[i] &= one[np.uint64(a[i])]


@inner_kernel
def _find_leaves(packed, X, begin, n, tree, buffers):  # type: ignore[no-untyped-def]
    """Write the leaves of a tree that the rows of a chunk fall into."""
    numbers, entries, tables, bits, walking, leaf, used = buffers
    root = packed.roots[tree]
    if n < packed.fewest[tree]:
        for i in range(n):
            leaf[i] = _leaf_of(packed, X, begin + i, root)
        return
    used = used[: _make_tables(packed, tree, tables, used)]
    ends = packed.ends[tree]
    for first in range(0, n, _BLOCK):
        m = min(_BLOCK, n - first)
        _keep(packed, tree, numbers, entries, tables[0], used, first, bits[:m])
        for i in range(m):
            leaf[first + i] = ends[lowest_bit(bits[i])]
    if not packed.shallow[tree]:
        _walk_on(packed, X, begin, n, root, leaf, walking)


@inner_kernel
def _walk_on(packed, X, begin, n, root, leaf, walking):  # type: ignore[no-untyped-def]
    """Move rows from nodes to leaves, level by level, so that the processor waits for many nodes at a time."""
    row, at = walking
    n_walking = 0
    for i in range(n):
        row[n_walking], at[n_walking] = i, leaf[i]
        n_walking += packed.nodes[root + leaf[i]].feature >= 0
    while n_walking > 0:
        n_left = 0
        for k in range(n_walking):
            i = row[k]
            node = packed.nodes[root + at[k]]
            child = node.left if goes_left(node, packed.words, X[begin + i, node.feature]) else node.right
            prefetch(packed.nodes, root + np.int64(child))
            leaf[i] = child
            row[n_left], at[n_left] = i, child
            n_left += 1
        n_walking = n_left
        n_left = 0
        for k in range(n_walking):
            i, node = row[k], at[k]
            row[n_left], at[n_left] = i, node
            n_left += packed.nodes[root + node].feature >= 0
        n_walking = n_left


@kernel
def visit_with_sets(packed, X, first, last, start, stop, out, numbers):  # type: ignore[no-untyped-def]
    """Add the values of the trees ``start:stop`` for the rows ``first:last`` or, if ``numbers`` has rows, write the leaves' numbers."""
    buffers = _allocate(packed, X, min(_CHUNK, last - first))
    leaf = buffers[5]
    for begin in range(first, last, _CHUNK):
        n = min(_CHUNK, last - begin)
        _fill(packed, X, begin, n, buffers[0], buffers[1])
        for tree in range(start, stop):
            _find_leaves(packed, X, begin, n, tree, buffers)
            if numbers.shape[0] > 0:
                numbers[begin : begin + n, tree] = leaf[:n]
            else:
                add_leaves(packed.value[packed.roots[tree] : packed.roots[tree + 1]], leaf[:n], out[begin : begin + n])
