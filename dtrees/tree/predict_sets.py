"""Prediction with trees that split on categories.

The first six levels of a tree are evaluated without walking. Each end of them is a bit of a word, all set at first; a node whose test fails
clears the bits of the ends below its left child, in any order of nodes, and the lowest bit that is left is that of the end that the row
comes to (Lucchese et al. 2015, "QuickScorer"). What all nodes of a column of categories clear follows from the row's category alone: it is
looked up in a table, which is made of the sets for each tree. So a column takes one look-up, however many nodes test it.

What lies below is walked, as is all of a tree where rows are so few that tables do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.compile.prefetch import prefetch
from dtrees.tree.packing import pack_nodes
from dtrees.tree.tree import Tree

#: Rows of a stretch, which share the tables of a tree, and those of a block, which go through its tests together.
_STRETCH, _BLOCK = 2**14, 512
#: Nodes and ends of the first levels.
_TOP_NODES, _TOP_ENDS = 63, 64
#: Fewest rows that are worth tables, and how many numbers of a table take as long as a row that walks.
_TABLE_ROWS, _TABLE_NUMBERS = 64, 64

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
_TEST = np.dtype(
    [
        ("threshold", np.float64),
        ("first_word", np.int64),
        ("keeps", np.uint64),  # the bits of the ends that are left if the test fails
        ("n_words", np.int32),
        ("place", np.int32),  # of the column, among those that are tested by thresholds or by sets
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
    tests : structured ndarray
        The nodes of the first levels of each tree: those with thresholds first, then those with sets, column by column.
    first_test, first_set : ndarray of int64, shape (n_trees + 1,) and (n_trees,)
        Tree ``t`` has the tests ``first_test[t]:first_test[t + 1]``, those with sets from ``first_set[t]`` on.
    ends : ndarray of int32, shape (n_trees, 64)
        The nodes that the ends of the first levels are.
    shallow : ndarray of bool, shape (n_trees,)
        Whether these are all leaves.
    fewest : ndarray of int64, shape (n_trees,)
        From how many rows on the tests are worth their tables.
    by_threshold, by_set : ndarray of int64
        The columns that are tested in either way.
    first_code : ndarray of int64, shape (n_by_set + 1,)
        Where the table of each column of categories begins: a number for each of its codes.
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
    first_code: NDArray[np.int64]

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return int(self.roots.shape[0] - 1)


def pack_with_sets(trees: Sequence[Tree]) -> PackedWithSets:
    """Pack at least one tree; all must have values of the same shape."""
    roots, nodes, words = pack_nodes(trees, _NODE)
    inner, has_set = nodes["feature"] >= 0, nodes["first_word"] >= 0
    by_threshold, by_set = (np.unique(nodes["feature"][inner & some]).astype(np.int64) for some in (~has_set, has_set))
    most_words = np.zeros(by_set.shape[0], np.int64)
    np.maximum.at(most_words, np.searchsorted(by_set, nodes["feature"][has_set]), nodes["n_words"][has_set])
    place_of = np.zeros((2, int(nodes["feature"].max(initial=0)) + 1), np.int32)
    for kind, columns in enumerate((by_threshold, by_set)):
        place_of[kind, columns] = np.arange(columns.shape[0])
    n_trees = len(trees)
    tests, ends = np.zeros((n_trees, _TOP_NODES), _TEST), np.empty((n_trees, _TOP_ENDS), np.int32)
    n_tests, fewest = np.empty((n_trees, 2), np.int64), np.empty(n_trees, np.int64)
    for t in range(n_trees):
        _take_first_levels(nodes[roots[t] : roots[t + 1]], place_of, tests[t], ends[t], n_tests[t])
        mine = tests[t, : n_tests[t].sum()]
        mine[:] = mine[np.lexsort((mine["place"], mine["first_word"] >= 0))]
        n_codes = 32 * (mine["n_words"].sum() + most_words[np.unique(mine["place"][mine["first_word"] >= 0])].sum())
        fewest[t] = max(_TABLE_ROWS, n_codes // _TABLE_NUMBERS)
    first_test = np.concatenate([[0], np.cumsum(n_tests.sum(axis=1))]).astype(np.int64)
    return PackedWithSets(
        nodes,
        words,
        np.concatenate([tree.value for tree in trees]),
        roots,
        np.concatenate([tests[t, :n] for t, n in enumerate(n_tests.sum(axis=1).tolist())]),
        first_test,
        first_test[:-1] + n_tests[:, 0],
        ends,
        np.all(nodes["feature"][roots[:-1, np.newaxis] + ends] < 0, axis=1),
        fewest,
        by_threshold,
        by_set,
        np.concatenate([[0], np.cumsum(32 * most_words + 2)]).astype(np.int64),
    )


@kernel
def _take_first_levels(nodes, place_of, tests, ends, n_tests):  # type: ignore[no-untyped-def]
    """Write the tests of a tree's first levels, where they end, and how many there are with thresholds and with sets."""
    at = np.zeros(127, np.int64)  # the node at each place of a complete tree, the root at 0; below a leaf, the leaf
    for i in range(63):
        node = nodes[at[i]]
        at[2 * i + 1] = node.left if node.feature >= 0 else at[i]
        at[2 * i + 2] = node.right if node.feature >= 0 else at[i]
    for i in range(64):
        ends[i] = at[63 + i]
    first, width = 0, 64
    n_tests[:] = 0
    for i in range(63):
        if i == 2 * first + 1:  # another level
            first, width = i, width // 2
        node = nodes[at[i]]
        if node.feature >= 0:
            kind = 1 if node.first_word >= 0 else 0
            test = tests[n_tests[0] + n_tests[1]]
            left = (np.uint64(1) << np.uint64(width // 2)) - np.uint64(1)
            test.keeps = ~(left << np.uint64((i - first) * width))
            test.threshold, test.first_word, test.n_words = node.threshold, node.first_word, node.n_words
            test.place, test.missing_left = place_of[kind, node.feature], node.missing_left
            n_tests[kind] += 1


@inner_kernel
def _goes_left(packed, node, x):  # type: ignore[no-untyped-def]
    """Tell whether a row goes left at a node, by its number or category."""
    if x != x:
        return node.missing_left
    if node.first_word < 0:
        return x <= node.threshold
    number = np.int64(x)
    word = number >> 5
    return 0 <= word < node.n_words and (packed.words[node.first_word + word] >> np.uint32(number & 31)) & np.uint32(1) == 1


@inner_kernel
def _leaf_of(packed, X, row, root):  # type: ignore[no-untyped-def]
    """Return the number, within its tree, of the leaf that a row falls in."""
    at = np.int64(0)
    while True:
        node = packed.nodes[root + at]
        if node.feature < 0:
            return at
        at = np.int64(node.left) if _goes_left(packed, node, X[row, node.feature]) else np.int64(node.right)


@inner_kernel
def _make_room(packed, X, n):  # type: ignore[no-untyped-def]
    """Return room for a stretch of rows: its numbers and codes, column by column, tables of a tree, words of bits, leaves, and columns."""
    return (
        np.empty((packed.by_threshold.shape[0], n), X.dtype),
        np.empty((packed.by_set.shape[0], n), np.uint32),
        np.empty(packed.first_code[packed.first_code.shape[0] - 1], np.uint64),
        np.empty(min(n, _BLOCK), np.uint64),
        np.empty((2, n), np.int32),
        np.empty(n, np.int32),
        np.empty(packed.by_set.shape[0], np.int64),
    )


@inner_kernel
def _fill(packed, X, first, n, numbers, codes):  # type: ignore[no-untyped-def]
    """Copy rows column by column. The last two codes of a column are those of categories that no set has, and of missing values."""
    for k in range(numbers.shape[0]):
        column = packed.by_threshold[k]
        for i in range(n):
            numbers[k, i] = X[first + i, column]
    for k in range(codes.shape[0]):
        column, last = packed.by_set[k], packed.first_code[k + 1] - packed.first_code[k] - 1
        for i in range(n):
            x = X[first + i, column]
            codes[k, i] = np.uint32(x) if 0 <= x < last - 1 else np.uint32(last if x != x else last - 1)


@inner_kernel
def _make_tables(packed, tree, tables, places):  # type: ignore[no-untyped-def]
    """Write, for each code of the columns that a tree tests by sets, the bits that these tests keep; return how many columns these are."""
    k, n_places = packed.first_set[tree], 0
    stop = packed.first_test[tree + 1]
    while k < stop:
        place = packed.tests[k].place
        places[n_places] = place
        n_places += 1
        table = tables[packed.first_code[place] : packed.first_code[place + 1]]
        table[:] = ~np.uint64(0)
        missing = table.shape[0] - 1
        while k < stop and packed.tests[k].place == place:
            test = packed.tests[k]
            keeps = test.keeps
            for word in range(test.n_words):
                bits = np.uint64(packed.words[test.first_word + word])
                mine = table[32 * word : 32 * word + 32]
                for b in range(np.uint64(32)):
                    mine[b] &= keeps | (np.uint64(0) - ((bits >> b) & np.uint64(1)))
            for code in range(32 * test.n_words, missing):
                table[code] &= keeps
            if not test.missing_left:
                table[missing] &= keeps
            k += 1
    return n_places


@inner_kernel
def _table_of(packed, tables, codes, place, first, n):  # type: ignore[no-untyped-def]
    """Return the table of a column, and the codes of the rows of a block."""
    return tables[packed.first_code[place] : packed.first_code[place + 1]], codes[place, first : first + n]


@inner_kernel
def _keep(packed, tree, numbers, codes, tables, places, first, bits):  # type: ignore[no-untyped-def]
    """Write which ends of the first levels are left for the rows of a block; ``places`` are the columns tested by sets."""
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
    in_fours = places.shape[0] & ~3
    for k in range(0, in_fours, 4):  # four look-ups for each time that bits are read and written
        one, a = _table_of(packed, tables, codes, places[k], first, n)
        two, b = _table_of(packed, tables, codes, places[k + 1], first, n)
        three, c = _table_of(packed, tables, codes, places[k + 2], first, n)
        four, d = _table_of(packed, tables, codes, places[k + 3], first, n)
        for i in range(n):
            bits[i] &= one[np.uint64(a[i])] & two[np.uint64(b[i])] & three[np.uint64(c[i])] & four[np.uint64(d[i])]
    for k in range(in_fours, places.shape[0]):
        one, a = _table_of(packed, tables, codes, places[k], first, n)
        for i in range(n):
            bits[i] &= one[np.uint64(a[i])]


@inner_kernel
def _lowest(word):  # type: ignore[no-untyped-def]
    """Return the number of the lowest bit that is set."""
    x = (word & (~word + np.uint64(1))) - np.uint64(1)
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@inner_kernel
def _find_leaves(packed, X, begin, n, tree, room):  # type: ignore[no-untyped-def]
    """Write the leaves of a tree that the rows of a stretch fall in."""
    numbers, codes, tables, bits, walking, leaf, places = room
    root = packed.roots[tree]
    if n < packed.fewest[tree]:
        for i in range(n):
            leaf[i] = _leaf_of(packed, X, begin + i, root)
        return
    places = places[: _make_tables(packed, tree, tables, places)]
    ends = packed.ends[tree]
    for first in range(0, n, _BLOCK):
        m = min(_BLOCK, n - first)
        _keep(packed, tree, numbers, codes, tables, places, first, bits[:m])
        for i in range(m):
            leaf[first + i] = ends[_lowest(bits[i])]
    if not packed.shallow[tree]:
        _walk_on(packed, X, begin, n, root, leaf, walking)


@inner_kernel
def _walk_on(packed, X, begin, n, root, leaf, walking):  # type: ignore[no-untyped-def]
    """Have rows walk from nodes to leaves, level by level, so that the processor waits for many nodes at a time."""
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
            child = node.left if _goes_left(packed, node, X[begin + i, node.feature]) else node.right
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
def add_values_with_sets(packed, X, first, last, start, stop, out):  # type: ignore[no-untyped-def]
    """Add the values of the trees ``start:stop`` to ``out``, for the rows ``first:last``."""
    room = _make_room(packed, X, min(_STRETCH, last - first))
    leaf = room[5]
    for begin in range(first, last, _STRETCH):
        n = min(_STRETCH, last - begin)
        _fill(packed, X, begin, n, room[0], room[1])
        for tree in range(start, stop):
            _find_leaves(packed, X, begin, n, tree, room)
            value = packed.value[packed.roots[tree] : packed.roots[tree + 1]]
            for i in range(n):
                for k in range(out.shape[1]):
                    out[begin + i, k] += value[leaf[i], k]


@kernel
def leaf_numbers_with_sets(packed, X, first, last, out):  # type: ignore[no-untyped-def]
    """Write the leaf of each tree that the rows ``first:last`` fall in."""
    room = _make_room(packed, X, min(_STRETCH, last - first))
    leaf = room[5]
    for begin in range(first, last, _STRETCH):
        n = min(_STRETCH, last - begin)
        _fill(packed, X, begin, n, room[0], room[1])
        for tree in range(packed.roots.shape[0] - 1):
            _find_leaves(packed, X, begin, n, tree, room)
            for i in range(n):
                out[begin + i, tree] = leaf[i]
