"""Which rows the splits of many nodes send left, and the sets of categories that finished trees read off their rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.node.partition import Sides, mark_left
from dtrees.split.node.records import NodeColumn
from dtrees.split.numbers.hashing import draw
from dtrees.split.search.categories.subsets import choose_sides_of_node, n_categories_left
from dtrees.split.table.columns import value_at


class NodesByCategory(NamedTuple):
    """What is known, besides their splits, of nodes that are split, some of them by categories.

    Attributes
    ----------
    which : ndarray of int64
        Those that are split by categories.
    column : ndarray of int32, shape (n,)
        The number of the column of each split in the whole table.
    in_stop : ndarray of int64, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
    path : ndarray of uint64, shape (n,)
    """

    which: NDArray[np.int64]
    column: NDArray[np.int32]
    in_stop: NDArray[np.int64]
    sums: NDArray[np.int64]
    path: NDArray[np.uint64]


@kernel
def mark_by_category(queue, nodes, splits, columns, partition, limits, key, scratch, marks):
    """Mark the rows that splits of categories send left; several threads may.

    Parameters
    ----------
    queue : ndarray of int64
        See :mod:`dtrees.split.compile.work_queue`.
    nodes : NodesByCategory
    splits : SplitsOfRows
        Of all these nodes.
    columns : Columns
    partition : RowPartition
    limits : SplitLimits
    key : uint64
        Of the tree's stream of random thresholds.
    scratch : Scratch
    marks : RouteBits
        Written for splits by categories.
    """
    bits, offsets = marks
    while True:
        k = claim(queue)
        if k >= nodes.which.shape[0]:
            return
        i = nodes.which[k]
        j, start = splits.column[i], splits.start[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        random_bits = draw(np.uint64(key) ^ nodes.path[i], np.int64(nodes.column[i]))
        pair, side = NodeColumn(codes, values, partition, start, nodes.in_stop[i], nodes.sums[i], random_bits), scratch.groups.side
        choose_sides_of_node(j, pair, limits, splits.threshold[i], scratch, side)
        mark_left(codes, Sides(side), partition.rows, start, splits.stop[i], bits[offsets[i] : offsets[i + 1]])
        finish(queue)


@kernel
def mark_by_sets(sets, splits, columns, rows, side, marks):
    """Mark the rows that splits send left whose sets of categories are known.

    ``sets`` is a :class:`~dtrees.tree.category_sets.CategorySets` whose nodes are those of the ``splits`` that have a set; ``side`` has
    room for a number for each distinct value of a column and one more. The others are those of :func:`mark_by_category`.
    """
    bits, offsets = marks
    for k in range(sets.node.shape[0]):
        i = sets.node[k]
        j = splits.column[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        mine = sets.words[sets.offset[k] : sets.offset[k + 1]]
        for code in range(values.shape[0]):
            number = np.int64(value_at(values, code))
            word = number >> 5
            side[code] = (mine[word] >> np.uint32(number & 31)) & np.uint32(1) if word < mine.shape[0] else np.uint32(0)
        side[values.shape[0]] = splits.missing_left[i]
        mark_left(codes, Sides(side), rows, splits.start[i], splits.stop[i], bits[offsets[i] : offsets[i + 1]])


#: How many of a node's rows are looked at first, and how much closer to each other these are each time: rows of a node that was split
#: further lie in the order of its leaves, so that those that follow each other have few categories.
_FIRST_LOOKS, _CLOSER = 64, 8


@kernel
def find_subsets(columns, places, rows, starts, stops, numbers, side, found, counts, offsets):
    """Find the categories that go left in each of some splits: those of the rows of the left child.

    Rows are looked at until all that are to be found are. Rows out of sample change nothing: they go left only with a category that rows in
    sample go left with.

    Parameters
    ----------
    columns : Columns
        The distinct values of columns of categories are their numbers.
    places : ndarray of int64, shape (n,)
        The column of each split.
    rows : ndarray of uint32
    starts, stops : ndarray of int64, shape (n,)
        Where the rows of the left children are.
    numbers : ndarray of float64, shape (n,)
        The splits, as numbers.
    side : ndarray of uint8
        Room for a number for each distinct value of a column and one more, all 0, as they are again in the end.
    found : ndarray of int64
        Written: the numbers of the categories, of all splits in turn, -1 for missing values.
    counts : ndarray of int64, shape (n,)
        Written: how many of these there are of each split.
    offsets : ndarray of int64, shape (n + 1,)
        Written: where the set of each split begins, in words of 32 bits up to the last that is not 0, and where the last one ends.
    """
    at = offsets[0] = ZERO()
    for i in range(places.shape[0]):
        j = places[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        n_found, highest = _find_codes(codes, rows, starts[i], stops[i], n_categories_left(numbers[i]), side, found, at), NONE()
        for k in range(at, at + n_found):
            code = found[k]
            side[code] = 0
            found[k] = np.int64(value_at(values, code)) if code < values.shape[0] else NONE()
            highest = max(highest, found[k])
        counts[i], offsets[i + 1] = n_found, offsets[i] + (highest + 32) // 32
        at += n_found


@inner_kernel
def _find_codes(codes, rows, start, stop, n_wanted, side, found, at):
    """Write the codes of some rows, of which so many are wanted, to ``found`` from ``at`` on; return how many there are."""
    n_found, step = ZERO(), ZERO() + 1
    while step * _FIRST_LOOKS < stop - start:
        step *= _CLOSER
    while step > 0 and n_found < n_wanted:
        k = start
        while n_found < n_wanted and k < stop:
            code = np.int64(codes[rows[k]])
            k += step
            if side[code] == 0:
                side[code] = 1
                found[at + n_found] = code
                n_found += 1
        step //= _CLOSER
    return n_found


@kernel
def write_sets(found, counts, offsets, words):
    """Set bit ``c % 32`` of word ``c // 32`` of each split's words for the categories c that :func:`find_subsets` found."""
    at = ZERO()
    for i in range(counts.shape[0]):
        for k in range(at, at + counts[i]):
            if found[k] >= 0:
                words[offsets[i] + (found[k] >> 5)] |= np.uint32(1) << np.uint32(found[k] & 31)
        at += counts[i]
