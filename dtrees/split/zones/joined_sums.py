"""Sums by columns of categories that are joined (:mod:`dtrees.split.table.joined_columns`), from which follow those of each of them."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.compile.prefetch import prefetch_row
from dtrees.split.policy import AHEAD, ROWS_PER_JOINED_SUM
from dtrees.split.zones.accumulate import add_pair


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
