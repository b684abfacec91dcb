"""Rows added to zone sums, or taken from them (:mod:`dtrees.split.zones.sums`): the innermost loop of the search of large nodes.

Columns of categories may be joined (:mod:`dtrees.split.table.joined_columns`): from the sums by these follow those of each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dtrees.split.compile.kernels import inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.policy import AHEAD, ROWS_PER_JOINED_SUM


@intrinsic
def add_pair(typing_context: Any, array: Any, i: Any, one: Any, other: Any) -> Any:
    """Add two numbers to ``array[i]`` and ``array[i + 1]``, by one load, one addition and one store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], values, [arguments[1]])
        pair = ir.VectorType(ir.IntType(64), 2)
        pointer = builder.bitcast(pointer, pair.as_pointer())
        numbers = ir.Constant(pair, ir.Undefined)
        for k in range(2):
            numbers = builder.insert_element(numbers, arguments[2 + k], ir.Constant(ir.IntType(32), k))
        builder.store(builder.add(builder.load(pointer, align=8), numbers), pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.int64, types.int64), generate


@lean_kernel
def add_rows(parts, partition, start, in_stop, first, last, starts, shifts, scale, sign, sums, width):
    """Add in-sample rows to the sums of the columns ``first`` to ``last``, or take them from these.

    Two rows at a time; unsigned indices spare the test for negative ones.

    Parameters
    ----------
    parts : ndarray of uint16, shape (n_rows, k)
    partition : RowPartition
    start, in_stop : int
    first, last : int
    starts : ndarray of int64
        Where each column begins in ``sums``.
    shifts : ndarray of uint64
        The parts of each column are shifted right by so much.
    scale : SCALE
    sign : int
        1 or -1.
    sums : ndarray of int64
        Of the columns, elements of ``width`` numbers.
    width : int
    """
    rows, a, b = partition.rows, partition.g, partition.h
    shift, centre = scale.shift, scale.centre
    last_place, first, last = in_stop - 1, np.uint64(first), np.uint64(last)
    for i in range(start, in_stop, 2):
        if i + AHEAD < last_place:
            prefetch_row(parts, np.int64(rows[i + AHEAD]))
            prefetch_row(parts, np.int64(rows[i + AHEAD + 1]))
        other = min(i + 1, last_place)
        second = sign if other > i else np.int64(0)
        parts_0, parts_1 = parts[np.uint64(rows[i])], parts[np.uint64(rows[other])]
        if width == 3:
            size_0, size_1 = abs(a[i] - centre * b[i]), abs(a[other] - centre * b[other])
            g_0, packed_0, h_0 = sign * a[i], sign * ((((size_0 >> shift) + 1) << 32) + 1), sign * b[i]
            g_1, packed_1, h_1 = second * a[other], second * ((((size_1 >> shift) + 1) << 32) + 1), second * b[other]
            for j in range(first, last):
                column, shift_of_parts = np.uint64(starts[j]), shifts[j]
                at = column + (np.uint64(parts_0[j]) >> shift_of_parts) * np.uint64(3)
                add_pair(sums, at, g_0, packed_0)
                sums[at + np.uint64(2)] += h_0
                at = column + (np.uint64(parts_1[j]) >> shift_of_parts) * np.uint64(3)
                add_pair(sums, at, g_1, packed_1)
                sums[at + np.uint64(2)] += h_1
        else:
            g_0, packed_0 = sign * a[i], sign * ((((abs(a[i] - centre) >> shift) + 1) << 32) + 1)
            g_1, packed_1 = second * a[other], second * ((((abs(a[other] - centre) >> shift) + 1) << 32) + 1)
            for j in range(first, last):
                column, shift_of_parts = np.uint64(starts[j]), shifts[j]
                add_pair(sums, column + ((np.uint64(parts_0[j]) >> shift_of_parts) << np.uint64(1)), g_0, packed_0)
                add_pair(sums, column + ((np.uint64(parts_1[j]) >> shift_of_parts) << np.uint64(1)), g_1, packed_1)


@inlined_kernel
def are_joined(zone_map, n_rows):
    """Tell whether so many rows are to be summed by joined columns."""
    joined = zone_map.joined
    return joined.elements.shape[1] > 0 and n_rows >= ROWS_PER_JOINED_SUM * joined.begins[joined.elements.shape[1]]


@separate_kernel
def include_joined(zone_map, partition, start, in_stop, starts, scale, sign, numbers, width):
    """Add in-sample rows to the sums of joined columns in a slot, or take them from these.

    Parameters
    ----------
    zone_map : ZoneMap
    partition : RowPartition
    start, in_stop : int
    starts : ndarray of int64
        Where each column begins in ``numbers``.
    scale : SCALE
    sign : int
        1 or -1.
    numbers : ndarray of int64
        The slot, at whose end there is room for the sums by joined columns.
    width : int
        Numbers of an element.
    """
    joined = zone_map.joined
    by_element = numbers[numbers.shape[0] - width * joined.begins[joined.elements.shape[1]] :]
    for i in range(by_element.shape[0]):
        by_element[i] = 0
    _add_rows(joined.elements, partition, start, in_stop, scale, sign, by_element, np.uint64(width))
    for j in range(joined.stride.shape[0]):
        table = joined.table_of[j]
        mine = by_element[width * joined.begins[table] : width * joined.begins[table + 1]]
        _add_by_code(mine, zone_map.n_zones[j] + 1, joined.stride[j] * width, width, numbers[starts[j] : starts[j + 1]])


@lean_kernel
def _add_rows(elements, partition, start, in_stop, scale, sign, sums, width):
    """Add rows to the sums of their ``elements``, as :func:`~dtrees.split.zones.accumulate.add_rows` does."""
    rows, a, b = partition.rows, partition.g, partition.h
    shift, centre, last_place, n_tables = scale.shift, scale.centre, in_stop - 1, np.uint64(elements.shape[1])
    for i in range(start, in_stop, 2):
        if i + AHEAD < last_place:
            prefetch_row(elements, np.int64(rows[i + AHEAD]))
            prefetch_row(elements, np.int64(rows[i + AHEAD + 1]))
        other = min(i + 1, last_place)
        second = sign if other > i else np.int64(0)
        elements_0, elements_1 = elements[np.uint64(rows[i])], elements[np.uint64(rows[other])]
        h_0, h_1 = (b[i], b[other]) if width > np.uint64(2) else (np.int64(1), np.int64(1))
        g_0, packed_0 = sign * a[i], sign * ((((abs(a[i] - centre * h_0) >> shift) + 1) << 32) + 1)
        g_1, packed_1 = second * a[other], second * ((((abs(a[other] - centre * h_1) >> shift) + 1) << 32) + 1)
        if width > np.uint64(2):
            h_0, h_1 = sign * h_0, second * h_1
            for t in range(n_tables):
                at = np.uint64(elements_0[t]) * np.uint64(3)
                add_pair(sums, at, g_0, packed_0)
                sums[at + np.uint64(2)] += h_0
                at = np.uint64(elements_1[t]) * np.uint64(3)
                add_pair(sums, at, g_1, packed_1)
                sums[at + np.uint64(2)] += h_1
        else:
            for t in range(n_tables):
                add_pair(sums, np.uint64(elements_0[t]) << np.uint64(1), g_0, packed_0)
                add_pair(sums, np.uint64(elements_1[t]) << np.uint64(1), g_1, packed_1)


@lean_kernel
def _add_by_code(joined, n_codes, step, width, numbers):
    """Add the sums of elements to those of the codes of one column, which is another one every ``step`` numbers."""
    at = np.uint64(0)
    while at < np.uint64(joined.shape[0]):
        for code in range(np.uint64(n_codes)):
            place = code * np.uint64(width)
            for _ in range(0, step, width):
                for k in range(np.uint64(width)):
                    numbers[place + k] += joined[at + k]
                at += np.uint64(width)
