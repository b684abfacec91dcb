"""The rows of a growing tree, ordered by node.

``rows`` is a permutation of all row numbers in which every node owns a range. In the range the rows that the tree learns from come first
(in sample), then those that it only routes (out of sample: not drawn, held out, or of weight zero), both ascending. The numbers to be
summed are stored in the same order, so scans read them in sequence::

    rows   [ left: in | left: out | right: in | right: out ]
           start                   start + n_left           stop
    g, h   numbers of row rows[i] at place i (h is empty where every weight is 1)

A split is stable: both children have their rows in ascending order, whatever the number of threads or workers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.memory import count_bits, prefetch
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claimed, wait_for
from dtrees.split.numbers.fixed_point import add_up
from dtrees.split.policy import AHEAD
from dtrees.split.table.columns import Columns, are_keyed, highest_code_below
from dtrees.split.table.sorting import lower_bound
from dtrees.split.table.sparse_columns import SparseColumns, n_steps

#: Number of a kind of task of :func:`divide_many`.
DIVIDE = 0
SPREAD = 1
COPY = 2
#: The place of a row that the tree does not have.
NOWHERE = np.uint32(2**32 - 1)


class RowPartition(NamedTuple):
    """The rows of a growing tree, ordered by node, and the numbers that each row carries.

    Attributes
    ----------
    rows : ndarray of uint32, shape (n_rows,)
    g : ndarray of int64, shape (n_rows,)
        The number that a row adds to the sums: its g, or its class (:mod:`dtrees.split.criteria.statistics`).
    h : ndarray of int64, shape (n_rows,) or (0,)
        The weight of each row (its hessian, in boosting); empty where every weight is 1.
    """

    rows: NDArray[np.uint32]
    g: NDArray[np.int64]
    h: NDArray[np.int64]

    def part(self, start: int, stop: int) -> RowPartition:
        """Return a view of a range of places."""
        return RowPartition(self.rows[start:stop], self.g[start:stop], self.h[start:stop])

    def spare(self, size: int) -> RowPartition:
        """Return scratch space of the same types for ``size`` rows."""
        spare_b: NDArray[Any] = np.empty(size if self.h.shape[0] else 0, np.int64)
        return RowPartition(np.empty(size, np.uint32), np.empty(size, np.int64), spare_b)


def no_rows() -> RowPartition:
    """Return an empty partition."""
    return RowPartition(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.int64))


@kernel
def number(rows):
    """Write 0, 1, 2, ..."""
    for i in range(rows.shape[0]):
        rows[i] = i


@kernel
def gather(partition, first, last, target_a, target_b):
    """Write the numbers of the rows at some places in the order of ``rows``, from arrays indexed by row number; return their totals.

    These are the result of :func:`~dtrees.split.numbers.fixed_point.add_up`.
    """
    rows, a, b = partition.rows, partition.g, partition.h
    if b.shape[0] > 0:
        for i in range(first, last):
            row = rows[i]
            a[i], b[i] = target_a[row], target_b[row]
    else:
        for i in range(first, last):
            a[i] = target_a[rows[i]]
    return add_up(a[first:last], b[first:last])


class Cut(NamedTuple):
    """A rule: rows with codes up to ``cut`` go left, and rows without a value (code ``missing``) if ``missing_left``."""

    cut: Any
    missing: Any
    missing_left: Any


class Sides(NamedTuple):
    """A rule for categories: rows with a code whose element of ``side`` is 1 go left."""

    side: NDArray[np.uint8]


@specialised
def goes_left(rule: Any, code: Any) -> Any:
    """Return 1 if a row with this code goes left, otherwise 0."""


@goes_left.of(Cut)
def _(rule, code):
    code = np.int64(code)
    return np.uint64((code <= rule.cut) | (rule.missing_left & (code == rule.missing)))


@goes_left.of(Sides)
def _(rule, code):
    return np.uint64(rule.side[np.uint64(code)])


@kernel
def mark_left(codes, rule, rows, start, stop, bits):
    """Set bit ``i - start`` of ``bits`` (little endian) if the row at place i goes left by a rule, a Cut or Sides.

    ``bits`` is uint8 of shape (ceil((stop - start) / 8),). Full bytes are computed without a branch for each row.
    """
    n_full = (stop - start) >> 3
    for byte in range(n_full):
        first = np.uint64(start + 8 * byte)
        if byte + 3 <= n_full:
            for k in range(8):
                prefetch(codes, np.int64(rows[first + np.uint64(AHEAD + k)]))
        value = np.uint64(0)
        for k in range(8):
            value |= goes_left(rule, codes[np.uint64(rows[first + np.uint64(k)])]) << np.uint64(k)
        bits[byte] = value
    if n_full < bits.shape[0]:
        first, value = start + 8 * n_full, np.uint64(0)
        for i in range(first, stop):
            value |= goes_left(rule, codes[rows[i]]) << np.uint64(i - first)
        bits[n_full] = value


@lean_kernel
def mark_places(codes, rule, rows, marks):
    """Write 1 to ``marks`` for each row that goes left by a rule, 0 for others; return the number of rows going left."""
    n, total = np.uint64(rows.shape[0]), ZERO()
    for i in range(n):
        prefetch(codes, rows[min(i + np.uint64(AHEAD), n - np.uint64(1))])
        left = goes_left(rule, codes[rows[i]])
        marks[i] = left
        total += np.int64(left)
    return total


@kernel
def divide(bits, partition, start, in_stop, stop, spare):
    """Apply a split to the node at places start..stop, of which start..in_stop are in sample.

    ``spare`` is as large as the partition; only the node's range of it is used. Returns the numbers of rows going left, in sample and
    out of sample.
    """
    rows, a, b = partition.rows, partition.g, partition.h
    has_b = b.shape[0] > 0
    spare_rows, spare_a, spare_b = spare.rows[start:stop], spare.g[start:stop], spare.h[start : stop if has_b else start]
    place, n_spare, one = np.uint64(start), np.uint64(0), np.uint64(1)
    # Unsigned indices spare the check for negative indices that Numba adds for others. Each row is written to both sides, and the next
    # row overwrites one of them: there is no branch to predict.
    for i in range(np.uint64(start), np.uint64(in_stop)):
        k = i - np.uint64(start)
        goes_left = (np.uint64(bits[k >> np.uint64(3)]) >> (k & np.uint64(7))) & one
        row, g = rows[i], a[i]
        rows[place], spare_rows[n_spare] = row, row
        a[place], spare_a[n_spare] = g, g
        if has_b:
            h = b[i]
            b[place], spare_b[n_spare] = h, h
        place += goes_left
        n_spare += one - goes_left
    n_left_in = np.int64(place) - start
    n_right_in = n_spare
    for i in range(np.uint64(in_stop), np.uint64(stop)):
        k = i - np.uint64(start)
        goes_left = (np.uint64(bits[k >> np.uint64(3)]) >> (k & np.uint64(7))) & one
        row = rows[i]
        rows[place], spare_rows[n_spare] = row, row
        place += goes_left
        n_spare += one - goes_left
    for i in range(n_spare):
        rows[place + i] = spare_rows[i]
    for i in range(n_right_in):
        a[place + i] = spare_a[i]
        if has_b:
            b[place + i] = spare_b[i]
    return n_left_in, np.int64(place) - start - n_left_in


@kernel
def divide_many(queue, tasks, bits, offsets, partition, starts, in_stops, stops, spare):
    """Apply splits to many nodes, like :func:`divide` for one node; several threads may call it.

    Large nodes are divided in chunks, by way of ``spare``.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n_tasks, 6)
        Kind, node, first and last place, and two more places. DIVIDE a node at once; SPREAD a chunk of a node to ``spare``, to these two
        places on for the rows going left and right; COPY a chunk of a node back, after all SPREAD tasks.
    bits, offsets : ndarray
        As in :class:`~dtrees.engine.protocol.nodes.RouteBits`.
    partition, spare : RowPartition
    starts, in_stops, stops : ndarray of int64, shape (n,)
    """
    n_before = ZERO()
    for k in range(tasks.shape[0]):
        n_before += tasks[k, 0] != COPY
    for k in claimed(queue, tasks.shape[0]):
        kind, i, first, last, left, right = tasks[k]
        used = bits[offsets[i] : offsets[i + 1]]
        if kind == DIVIDE:
            divide(used, partition, starts[i], in_stops[i], stops[i], spare)
        elif kind == SPREAD:
            _spread(used, partition, starts[i], in_stops[i], first, last, left, right, spare)
        else:
            wait_for(queue, n_before)
            partition.rows[first:last] = spare.rows[first:last]
            partition.g[first:last] = spare.g[first:last]
            if partition.h.shape[0] > 0:
                partition.h[first:last] = spare.h[first:last]


@inner_kernel
def _spread(bits, partition, start, in_stop, first, last, left, right, spare):
    """Copy the rows of a chunk to their final places in ``spare``."""
    rows, a, b = partition.rows, partition.g, partition.h
    has_b = b.shape[0] > 0
    for i in range(first, last):
        k = i - start
        goes_left = (bits[k >> 3] >> np.uint8(k & 7)) & np.uint8(1)
        place = left if goes_left else right
        spare.rows[place] = rows[i]
        if i < in_stop:
            spare.g[place] = a[i]
            if has_b:
                spare.h[place] = b[i]
        left += goes_left
        right += 1 - goes_left


@kernel
def count_left(bits, offsets, starts, in_stops):
    """Count the rows going left, in sample and in total, from the bits of many splits; int64 of shape (n, 2)."""
    counts = np.zeros((starts.shape[0], 2), np.int64)
    for i in range(starts.shape[0]):
        mine = bits[offsets[i] : offsets[i + 1]]
        whole, rest = (in_stops[i] - starts[i]) >> 3, (in_stops[i] - starts[i]) & 7
        inside = _count_ones(mine[:whole])
        counts[i, 1] = inside + _count_ones(mine[whole:])
        if rest > 0:
            inside += count_bits(np.uint64(mine[whole] & np.uint8((1 << rest) - 1)))
        counts[i, 0] = inside
    return counts


@inner_kernel
def _count_ones(bytes):
    n = ZERO()
    for i in range(bytes.shape[0]):
        n += count_bits(np.uint64(bytes[i]))
    return n


@kernel
def add_by_number(total, numbers, values):
    """Add to ``total`` the value that each row's number refers to."""
    for row in range(total.shape[0]):
        total[row] += values[np.uint64(numbers[row])]


@kernel
def add_by_leaf(queue, n_chunks, total, rows, starts, values, leaf_of):
    """Add to ``total`` the value of each row's leaf; several threads may call it (:mod:`dtrees.split.compile.work_queue`).

    Rows of a leaf are scattered over the table. In a large table, small numbers of leaves are scattered first, and then the table is
    read once in sequence, which takes half the time.

    Parameters
    ----------
    queue : ndarray of int64
    n_chunks : int
        Number of tasks for all rows; there are as many again if ``leaf_of`` is not empty.
    total : ndarray of float64, shape (n_rows,)
    rows : ndarray of uint32, shape (n_rows,)
        Leaf i has the places from ``starts[i]`` to the start of the next.
    starts : ndarray of int64, shape (n_leaves,)
        Ascending.
    values : ndarray of float64, shape (n_leaves,)
    leaf_of : ndarray of an unsigned type, shape (n_rows,) or (0,)
        Scratch space: the number of each row's leaf.
    """
    n, in_order = rows.shape[0], leaf_of.shape[0] > 0
    for k in claimed(queue, (2 if in_order else 1) * n_chunks):
        if k < n_chunks:
            first, last = n * k // n_chunks, n * (k + 1) // n_chunks
            leaf, beyond = ZERO(), starts.shape[0]
            while beyond - leaf > 1:
                middle = (leaf + beyond) // 2
                leaf, beyond = (middle, beyond) if starts[middle] <= first else (leaf, middle)
            while first < last:
                end = min(starts[leaf + 1], last) if leaf + 1 < starts.shape[0] else last
                if in_order:
                    for i in range(first, end):
                        leaf_of[np.uint64(rows[i])] = leaf
                else:
                    for i in range(first, end):
                        if i + AHEAD < last:
                            prefetch(total, np.int64(rows[i + AHEAD]))
                        total[np.uint64(rows[i])] += values[leaf]
                first = end
                leaf += 1
        else:
            wait_for(queue, n_chunks)
            for row in range(n * (k - n_chunks) // n_chunks, n * (k + 1 - n_chunks) // n_chunks):
                total[row] += values[np.uint64(leaf_of[row])]


@kernel
def is_pure(target, rows, start, in_stop):
    """Return whether all in-sample rows of a node have the same target (False if ``target`` is empty)."""
    if target.shape[0] == 0:
        return False
    first = target[rows[start]]
    for i in range(start + 1, in_stop):  # noqa: SIM110
        if target[rows[i]] != first:
            return False
    return True


@kernel
def checksum(partition):
    """Return a hash of a row partition and its numbers, to compare replicas (FNV-1a, a number at a time)."""
    h = np.uint64(14695981039346656037)
    return _hash(partition.h, _hash(partition.g, _hash(partition.rows, h)))


@inner_kernel
def _hash(array, h):
    """Continue a hash: with four independent hashes, of every fourth number each, and then with these four."""
    one, other, third, fourth = h, h + np.uint64(1), h + np.uint64(2), h + np.uint64(3)
    n = array.shape[0] - array.shape[0] % 4
    for i in range(0, n, 4):
        one, other = _mix(one, array[i]), _mix(other, array[i + 1])
        third, fourth = _mix(third, array[i + 2]), _mix(fourth, array[i + 3])
    for i in range(n, array.shape[0]):
        one = _mix(one, array[i])
    return _mix(_mix(_mix(one, other), third), fourth)


@inner_kernel
def _mix(h, number):
    return (h ^ np.uint64(number)) * np.uint64(1099511628211)


class SplitsOfRows(NamedTuple):
    """Splits of nodes, and the places of the rows that they divide.

    Attributes
    ----------
    start, stop : ndarray of int64, shape (n,)
        Places of the nodes.
    column : ndarray of integers, shape (n,)
        For kernels, positions among the columns that they receive.
    threshold : ndarray of float64, shape (n,)
        For keyed columns, in kernels, the highest codes that go left. For splits on categories, a number of a set, while a tree grows
        (:mod:`dtrees.split.search.categories`).
    missing_left : ndarray of bool, shape (n,)
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    column: NDArray[np.integer]
    threshold: NDArray[np.float64]
    missing_left: NDArray[np.bool_]


@kernel
def mark_many(queue, chunks, columns, splits, rows, marks):
    """Mark the rows going left by many splits, like :func:`mark_left` for one split; several threads may call it.

    Parameters
    ----------
    queue : ndarray of int64
    chunks : ndarray of int64, shape (n_chunks, 3)
        A split, and the first and last byte of its bits to set.
    columns : Columns or SparseColumns
    splits : SplitsOfRows
    rows : ndarray of uint32
    marks : RouteBits
        Written.
    """
    bits, offsets = marks
    for k in claimed(queue, chunks.shape[0]):
        i, first, last = chunks[k]
        mine = rows[splits.start[i] + 8 * first : min(splits.start[i] + 8 * last, splits.stop[i])]
        used = bits[offsets[i] + first : offsets[i] + last]
        _mark_chunk(columns, splits.column[i], splits.threshold[i], splits.missing_left[i], mine, used)


@specialised
def _mark_chunk(columns, column, threshold, missing_left, rows, bits):
    """Set bit i of ``bits`` if the i-th row goes left."""


@_mark_chunk.of(Columns)
def _(columns, column, threshold, missing_left, rows, bits):
    missing = columns.offsets[column + 1] - columns.offsets[column]
    cut = np.int64(threshold) if are_keyed(columns) else _highest_code(columns, column, threshold)
    mark_left(columns.codes[column], Cut(cut, missing, missing_left), rows, ZERO(), rows.shape[0], bits)


@_mark_chunk.of(SparseColumns)
def _(columns, column, threshold, missing_left, rows, bits):
    missing = columns.offsets[column + 1] - columns.offsets[column]
    mark_rows(columns, column, Cut(_highest_code(columns, column, threshold), missing, missing_left), rows, bits)


@inlined_kernel
def _highest_code(columns, column, threshold):
    """Return the highest code of a column whose value goes left."""
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    return highest_code_below(values, NONE(), np.int64(values.shape[0]) - 1, threshold)


@lean_kernel
def mark_left_sparse(columns, column, rule, rows, place_of, start, stop, bits):
    """Set bit ``i - start`` of ``bits`` if the row at place i goes left, like :func:`mark_left`.

    Rows without a stored cell all go to the same side. ``place_of`` holds the places of all rows, as uint32.
    """
    first, last = columns.starts[column], columns.starts[column + 1]
    if (stop - start) * n_steps(last - first) < last - first:
        mark_rows(columns, column, rule, rows[start:stop], bits)
        return
    zeros = np.uint8(0xFF) if goes_left(rule, columns.zero_code[column]) else np.uint8(0)
    for byte in range(bits.shape[0]):
        bits[byte] = zeros
    for k in range(first, last):
        place = np.int64(place_of[columns.rows[k]]) - start
        if 0 <= place < stop - start:
            bit = np.uint8(1 << (place & 7))
            if goes_left(rule, columns.codes[k]):
                bits[place >> 3] |= bit
            else:
                bits[place >> 3] &= ~bit


@lean_kernel
def mark_places_sparse(columns, column, rule, place_of, start, stop, marks):
    """Write 1 to ``marks`` for each place of a range whose row goes left, 0 for others; return the number of rows going left."""
    zeros = np.int64(goes_left(rule, columns.zero_code[column]))
    marks[start:stop] = zeros
    total = zeros * (stop - start)
    for k in range(columns.starts[column], columns.starts[column + 1] if start < stop else ZERO()):
        place = np.int64(place_of[columns.rows[k]])
        if start <= place < stop:
            left = np.int64(goes_left(rule, columns.codes[k]))
            marks[place] = left
            total += left - zeros
    return total


@lean_kernel
def mark_rows(columns, column, rule, rows, bits):
    """Set bit i of ``bits`` if the i-th row goes left, for any rows; each is looked up among the cells of the column."""
    first, last = columns.starts[column], columns.starts[column + 1]
    for byte in range(bits.shape[0]):
        bits[byte] = 0
    for i in range(rows.shape[0]):
        k = lower_bound(columns.rows, first, last, rows[i])
        stored = k < last and columns.rows[k] == rows[i]
        code = np.int64(columns.codes[k]) if stored else columns.zero_code[column]
        bits[i >> 3] |= np.uint8(goes_left(rule, code)) << np.uint8(i & 7)
