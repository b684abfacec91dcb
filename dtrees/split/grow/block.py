"""Growth of a small node to its leaves in a compact copy of its rows.

The node's rows are copied into a *block* that fits the cache, once with their codes row by row, once sorted by each column. A split then
divides the sorted lists of all columns stably (like SPRINT: Shafer, Agrawal and Mehta, 1996), so no descendant has to be sorted again::

    cells[place]          the codes of a row in the tree's columns, MISSING where it has no value
    keys[j, first:last]   keys (code and place), ascending, of a node's in-sample rows by column j (nodes of more than TINY_ROWS rows)
    places[first:last]    the same rows in ascending order of their place (row number)

``place`` counts the block's in-sample rows; ``g`` and ``h`` are read by place and never move. Rows out of sample are only routed.

If the node has all rows of the table, these are the same for every tree: their cells are reused, and their keys are sorted once.

Splits are found by the same sweep over sorted rows as elsewhere, and in nodes of few rows from the cells
(:mod:`dtrees.split.search.tiny_node`). For random thresholds (:mod:`dtrees.split.search.random_threshold`) nothing is sorted, and cells
are values, NaN for missing ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch
from dtrees.split.compile.specialised import specialised
from dtrees.split.node.limits import BestThreshold, RandomThreshold
from dtrees.split.node.partition import Sides, goes_left
from dtrees.split.numbers.hashing import mix_each
from dtrees.split.policy import BLOCK_CELLS, BLOCK_ROWS, COMPARED_OUTSIDE, MOST_BLOCK_ROWS, ROWS_AT_ONCE, TINY_ROWS, VECTOR
from dtrees.split.table.columns import Columns, highest_code_below, value_at
from dtrees.split.table.sorting import MISSING, code_in, place_in, sort_places


@by_reference
class Block(NamedTuple):
    """Reusable buffers for one block.

    Attributes
    ----------
    keys, places, cells
        The copy of the node's rows, as shown above.
    rows : ndarray of uint32
        Row numbers by place.
    outside : ndarray of uint32
        Row numbers of the rows out of sample, node by node.
    g, h : ndarray of int64
        Numbers of each row by place; ``h`` is empty if every weight is 1.
    target : ndarray of float64
        By place, if pure nodes are detected by it.
    goes_left, spare
        Scratch space of a split.
    place_of : ndarray of int32
        The index of each column of the table among the tree's columns; ``column_at`` is the inverse.
    has_missing : ndarray of int64, shape (1,)
        1 if any cell is missing.
    whole : ndarray of int64, shape (1,)
        1 if the cells are those of all rows of the table.
    sorted : ndarray of uint64, shape (n_columns, n_rows) or (n_columns, 0)
        The keys of these cells, if they are those of all rows and keys are needed.
    identity : ndarray of uint64
        A hash of each of the tree's columns.
    counters, swaps : ndarray of uint64
        For drawing columns, see :func:`~dtrees.split.numbers.hashing.draw_first_columns`.
    reals, counts
        Scratch space for a search of all columns: a row for each quantity, a column for each of the tree's columns.
    tile, some_places, chosen, again
        Scratch space for nodes of few rows: their cells, their places, the drawn columns, and those to be searched again.
    """

    keys: NDArray[np.uint64]
    places: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    outside: NDArray[np.uint32]
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    target: NDArray[np.float64]
    goes_left: NDArray[np.uint8]
    spare: NDArray[np.uint32]
    place_of: NDArray[np.int32]
    cells: NDArray[Any]
    has_missing: NDArray[np.int64]
    whole: NDArray[np.int64]
    sorted: NDArray[np.uint64]
    identity: NDArray[np.uint64]
    counters: NDArray[np.uint64]
    swaps: NDArray[np.uint64]
    reals: NDArray[np.float64]
    counts: NDArray[np.int64]
    tile: NDArray[np.int64]
    some_places: NDArray[np.uint64]
    chosen: NDArray[np.uint64]
    column_at: NDArray[np.int32]
    again: NDArray[np.int64]


def block_rows(random: bool, max_features: int, n_columns: int) -> int:
    """Return the largest number of rows of a node that is grown in a block.

    Random thresholds are searched in all columns together, which is wasteful if very few are drawn; but their blocks, which are not
    sorted, may exceed the cache.
    """
    most = max(BLOCK_ROWS, BLOCK_CELLS // n_columns)
    if not random:
        return min(most, MOST_BLOCK_ROWS)
    return 0 if 16 * max_features < n_columns else most


def make_block(
    n_rows: int,
    n_outside: int,
    weighted: bool,
    pool: NDArray[np.int32],
    columns: Columns,
    random: bool,
    n_classes: int,
    most_unsorted: int = TINY_ROWS,
) -> Block:
    """Return buffers for blocks of up to ``n_rows`` in-sample rows and ``n_outside`` out-of-sample rows.

    ``n_classes`` is 0 for moments, and the number of sums for several targets; nodes of up to ``most_unsorted`` rows are searched in all
    columns side by side.
    """
    width = pool.shape[0]
    lanes = width if random else -(-width // VECTOR) * VECTOR
    n_counts = max(9 + n_classes, 4 + 2 * n_classes)  # for a tiny node, for random thresholds
    may_be_whole = not random and n_rows >= columns.n_rows
    place_of = np.full(columns.n_columns, -1, np.int32)
    place_of[pool] = np.arange(pool.shape[0], dtype=np.int32)
    return Block(
        np.empty((width, 0 if random else n_rows), np.uint64),
        np.empty(n_rows, np.uint32),
        np.empty(n_rows, np.uint32),
        np.empty(n_outside, np.uint32),
        np.empty(n_rows, np.int64),
        np.empty(n_rows if weighted else 0, np.int64),
        np.empty(n_rows),
        np.empty(n_rows, np.uint8),
        np.empty(max(n_rows, n_outside), np.uint32),
        place_of,
        np.empty((n_rows, width), np.float64 if random else np.uint32),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.empty((width, columns.n_rows if may_be_whole else 0), np.uint64),
        mix_each(pool),
        mix_each(np.arange(width, dtype=np.int32)),
        np.empty(width, np.uint64),
        np.empty((4 if random else 3 + most_unsorted, lanes)),
        np.empty((n_counts, lanes), np.int64),
        np.empty((most_unsorted, lanes), np.int64),
        np.empty(most_unsorted, np.uint64),
        np.empty(width, np.uint64),
        pool.copy(),
        np.empty(width + 1, np.int64),
    )


@separate_kernel(returns=types.none)
def fill_block(columns, task, start, in_stop, stop):
    """Copy a node's rows into the block and, except for random thresholds, sort them by every column of the tree."""
    m, block, partition, target = in_stop - start, task.block, task.partition, task.target
    rows, a, b = partition.rows, partition.g, partition.h
    for i in range(m):
        block.rows[i] = rows[start + i]
        block.places[i] = i
        block.g[i] = a[start + i]
    if b.shape[0] > 0:
        for i in range(m):
            block.h[i] = b[start + i]
    if target.shape[0] > 0:
        for i in range(m):
            block.target[i] = target[rows[start + i]]
    for i in range(stop - in_stop):
        block.outside[i] = rows[in_stop + i]
    whole = m == columns.codes.shape[1]
    if whole and block.whole[0] == 1:
        for j in range(block.sorted.shape[0]):
            for i in range(block.sorted.shape[1]):
                block.keys[j, i] = block.sorted[j, i]
        return
    block.whole[0] = whole
    block.has_missing[0] = 0
    _fill_cells(task.limits.thresholds, columns, task.pool, rows[start:in_stop], block, task.scratch)
    if whole:
        for j in range(block.sorted.shape[0]):
            for i in range(block.sorted.shape[1]):
                block.sorted[j, i] = block.keys[j, i]


@specialised
def _fill_cells(thresholds, columns, pool, rows, block, scratch):
    """Fill the cells of the block, and its keys if they are needed; store whether values are missing."""


@_fill_cells.of(BestThreshold)
def _(thresholds, columns, pool, rows, block, scratch):
    m = rows.shape[0]
    for column in pool:
        j = block.place_of[column]
        keys = block.keys[j]
        sort_places(columns.codes[column], rows, ZERO(), m, keys, scratch.spare, scratch.counts)
        missing = np.uint64(columns.offsets[column + 1] - columns.offsets[column])
        present = m
        while present > 0 and code_in(keys[present - 1]) == missing:
            present -= 1
            block.cells[place_in(keys[present]), j] = MISSING
            block.has_missing[0] = 1
        for i in range(present):
            block.cells[place_in(keys[i]), j] = code_in(keys[i])


@_fill_cells.of(RandomThreshold)
def _(thresholds, columns, pool, rows, block, scratch):
    m = rows.shape[0]
    for first in range(0, m, ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, m)
        for column in pool:
            j = block.place_of[column]
            codes = columns.codes[column]
            values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
            first_words = values[:, 0]
            for i in range(first, last):
                prefetch(first_words, np.int64(codes[rows[i]]))
            for i in range(first, last):
                code = codes[rows[i]]
                if code == values.shape[0]:
                    block.cells[i, j] = np.nan
                    block.has_missing[0] = 1
                else:
                    block.cells[i, j] = value_at(values, code)


@inlined_kernel
def write_back(partition, block, start, first, last, out_first, out_last):
    """Write the rows of a leaf back to the partition, from place ``start`` on; other arguments are those of :func:`divide_block`."""
    rows, b = partition.rows, partition.h
    for k in range(last - first):
        i = block.places[first + k]
        rows[start + k] = block.rows[i]
        if b.shape[0] > 0:
            b[start + k] = block.h[i]
    in_stop = start + last - first
    for k in range(out_last - out_first):
        rows[in_stop + k] = block.outside[out_first + k]


@inlined_kernel
def is_pure_block(target, block, first, last):
    """Return whether all in-sample rows of a node of the block have the same target (False if ``target`` is empty)."""
    if target.shape[0] == 0:
        return False
    value = block.target[block.places[first]]
    for i in range(first + 1, last):  # noqa: SIM110
        if block.target[block.places[i]] != value:
            return False
    return True


@lean_kernel
def _move_left(keys, goes_left, spare):
    """Move the keys, or the places themselves, of rows going left to the front, in their order; return their number."""
    one = np.uint64(1)
    left = right = np.uint64(0)  # an unsigned index spares Numba's check of its sign
    for i in range(keys.shape[0]):
        key = keys[i]
        side = np.uint64(goes_left[place_in(key)])
        keys[left] = key
        spare[right] = key
        left += side
        right += one - side
    for i in range(right):
        keys[left + i] = spare[i]
    return left


@specialised
def _goes_left(thresholds, cell, split):
    """Return whether a row with this cell in the split column goes left."""


@_goes_left.of(BestThreshold)
def _(thresholds, cell, split):
    return split.missing_left if cell == MISSING else cell <= np.uint32(split.cut)


@_goes_left.of(RandomThreshold)
def _(thresholds, cell, split):
    return split.missing_left if cell != cell else cell <= split.threshold


class _Threshold(NamedTuple):
    """A rule: rows with codes up to ``cut`` go left, or, if before ``first_right``, with values up to the threshold; or missing ones."""

    cut: int
    first_right: int
    missing: int
    missing_left: bool
    values: NDArray[np.float32]
    threshold: float


@goes_left.of(_Threshold)
def _(rule, code):
    code = np.int64(code)
    left = code <= rule.cut or (code < rule.first_right and value_at(rule.values, code) <= rule.threshold)
    return np.uint64(rule.missing_left if code == rule.missing else left)


@inlined_kernel
def divide_block(columns, block, thresholds, spare_keys, pool, split, node, keep_sorted):
    """Apply a split (a CANDIDATE) to a node of the block; return the start of the right child, in and out of sample.

    If ``keep_sorted`` is false, no child needs sorted lists, and they are not divided.
    """
    first, last, out_first, out_last = node
    column, cut = split.column, split.cut
    j, missing = block.place_of[column], columns.offsets[column + 1] - columns.offsets[column]
    for place in block.places[first:last]:
        block.goes_left[place] = _goes_left(thresholds, block.cells[place, j], split)
    divided = NONE() if block.has_missing[0] else np.int64(j)  # by this column, rows are already divided
    # Values of rows out of sample may lie between those in sample. The code of the threshold is looked up if there are many of them.
    values, first_right = columns.words[columns.offsets[column] : columns.offsets[column + 1]], missing
    if out_last - out_first > COMPARED_OUTSIDE:
        cut = highest_code_below(values, cut, missing - 1, split.threshold)
        first_right = cut + 1
    rule = _Threshold(cut, first_right, missing, split.missing_left, values, split.threshold)
    return _divide(block, pool, divided, columns.codes[column], rule, node, spare_keys, keep_sorted)


@lean_kernel
def divide_block_by_side(columns, block, side, spare_keys, pool, split, node, keep_sorted):
    """Apply a split like :func:`divide_block`; ``side`` says for each code whether rows go left."""
    codes = columns.codes[split.column]
    for place in block.places[node[0] : node[1]]:
        block.goes_left[place] = side[codes[block.rows[place]]]
    return _divide(block, pool, NONE(), codes, Sides(side), node, spare_keys, keep_sorted)


@inlined_kernel
def _divide(block, pool, divided, codes, rule, node, spare_keys, keep_sorted):
    """Divide the marked in-sample rows of a node, and others by a rule; return the start of the right child, in and out of sample.

    All sorted lists but number ``divided`` are divided, if they are still needed.
    """
    first, last, out_first, out_last = node
    middle = _divide_inside(block, pool, divided, first, last, spare_keys, keep_sorted)
    outside, spare = block.outside, block.spare
    out_middle, n_spare = out_first, 0
    for i in range(out_first, out_last):
        row = outside[i]
        if goes_left(rule, codes[row]):
            outside[out_middle] = row
            out_middle += 1
        else:
            spare[n_spare] = row
            n_spare += 1
    for i in range(n_spare):
        outside[out_middle + i] = spare[i]
    return middle, out_middle


@lean_kernel
def _divide_inside(block, pool, divided, first, last, spare_keys, keep_sorted):
    if keep_sorted:
        for k in range(pool.shape[0]):
            if k != divided:
                _move_left(block.keys[k, first:last], block.goes_left, spare_keys)
    return first + np.int64(_move_left(block.places[first:last], block.goes_left, block.spare))
