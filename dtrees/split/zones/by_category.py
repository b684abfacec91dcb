"""Columns of categories in nodes with zone sums: each category is a zone (:mod:`dtrees.split.zones.sums`).

The sums of a node by category are inherited like all zone sums. They suffice to search the node, without a pass over the node's rows.
Columns with too many categories are summed row by row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.criteria.parts import most_between_groups
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NO_BITS, NO_SPLIT, NodeColumn
from dtrees.split.search.categories import FOUND, search_categories, search_groups
from dtrees.split.search.category_orders import RARE
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.sums import Sums, element_of


class SummedNode(NamedTuple):
    """A node, and its sums by zone.

    Attributes
    ----------
    zone_map : ZoneMap
    ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns in the table.
    sums : Sums
    partition : RowPartition
        The partition of the node's rows.
    place : (start, in_stop, slot)
        The range of its in-sample rows, and its slot in ``sums``.
    node_sums : ndarray of int64, shape (n_sums,)
        The sums of all its rows.
    """

    zone_map: ZoneMap
    ids: NDArray[np.int32]
    sums: Sums
    partition: RowPartition
    place: tuple[int, int, int]
    node_sums: NDArray[np.int64]


@inlined_kernel
def moments_of(summed):
    """Return the sums of a node as moments."""
    start, in_stop, _ = summed.place
    return Moments(summed.node_sums[0], summed.node_sums[1], in_stop - start)


@lean_kernel
def sum_categories(element, n_distinct, least, groups):
    """Write a node's sums of each category; those with fewer than ``least`` rows are merged and come last.

    Returns the number of categories in the node, including missing values, and the number of sums written.
    """
    numbers, n = element.reshape(-1), np.uint64(n_distinct + 1)
    if element.shape[1] == 3:
        present, m, n_rare, g_rare, h_rare = _sum_each(numbers, np.uint64(3), n, least, groups)
    else:
        present, m, n_rare, g_rare, h_rare = _sum_each(numbers, np.uint64(2), n, least, groups)
    if n_rare > 0:
        groups.code[m], groups.n[m] = RARE, n_rare
        groups.sums[m, 0], groups.sums[m, 1] = g_rare, h_rare
        m += 1
    return present, m


@inlined_kernel
def _sum_each(numbers, width, n_codes, least, groups):
    """Write the sums of categories with at least ``least`` rows; return the numbers of all and of these, and the sums of the others.

    Each sum is written after the last one to be kept, and overwritten if it is not: there is no branch to mispredict.
    """
    one, two = np.uint64(1), np.uint64(2)
    present = n_rare = g_rare = h_rare = ZERO()
    at, m = np.uint64(0), np.uint64(0)
    for code in range(n_codes):
        g, n = numbers[at], numbers[at + one] & 0xFFFFFFFF
        h = numbers[at + two] if width > two else n
        at += width
        kept = n >= least
        groups.code[m], groups.n[m] = np.int64(code), n
        groups.sums[m, 0], groups.sums[m, 1] = g, h
        m += np.uint64(kept & (n > 0))
        present += n > 0
        n_rare += 0 if kept else n
        g_rare += 0 if kept else g
        h_rare += 0 if kept else h
    return present, np.int64(m), n_rare, g_rare, h_rare


@lean_kernel
def _squares(element, n_distinct, least, node, terms):
    """Return the sum of squared distances of categories from the node's mean; those with fewer than ``least`` rows are merged."""
    numbers, mean, n_terms = element.reshape(-1), float(node.g) / float(node.h), n_distinct + 1
    if element.shape[1] == 3:
        n_rare, g_rare, h_rare = _square_each(numbers, np.uint64(3), mean, least, terms[:n_terms])
    else:
        n_rare, g_rare, h_rare = _square_each(numbers, np.uint64(2), mean, least, terms[:n_terms])
    total = other = third = fourth = 0.0
    last = n_terms & ~3
    for code in range(0, last, 4):
        total += terms[code]
        other += terms[code + 1]
        third += terms[code + 2]
        fourth += terms[code + 3]
    for code in range(last, n_terms):
        total += terms[code]
    if n_rare > 0:
        d = float(g_rare) - mean * float(h_rare)
        total += d * d / float(h_rare)
    return (total + other) + (third + fourth)


@inlined_kernel
def _square_each(numbers, width, mean, least, terms):
    """Write the squared distances of categories with at least ``least`` rows; return the sums of the others.

    Iterations are independent, and numbers have a constant stride, so the loop is vectorised.
    """
    one, two = np.uint64(1), np.uint64(2)
    n_rare = g_rare = h_rare = ZERO()
    for code in range(np.uint64(terms.shape[0])):
        g, n = numbers[width * code], numbers[width * code + one] & 0xFFFFFFFF
        h = numbers[width * code + two] if width > two else n
        rare = n < least
        n_rare += n if rare else 0
        g_rare += g if rare else 0
        h_rare += h if rare else 0
        d = float(g) - mean * float(h)
        term = d * d / float(h)
        terms[code] = 0.0 if rare | (n == 0) else term
    return n_rare, g_rare, h_rare


@separate_kernel(returns=FOUND)
def search_categories_of_slot(columns, summed, j, node, limits, bar, scratch):
    """Find the best split of a node in a column of categories, number ``j`` of the zone map; the result is that of ``search_column``."""
    column = summed.zone_map.which[j]
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    if summed.zone_map.n_zones[j] < values.shape[0]:
        start, in_stop, _ = summed.place
        pair = NodeColumn(columns.codes[column], values, summed.partition, start, in_stop, summed.node_sums, NO_BITS)
        return search_categories(column, pair, limits, bar, scratch)
    element, least = element_of(summed.sums, summed.place[2], j), limits.categories.least[column]
    if most_between_groups(limits.criterion, node, _squares(element, values.shape[0], least, node, scratch.groups.key)) <= bar:
        return NO_SPLIT, 0.0, True
    counts = sum_categories(element, values.shape[0], least, scratch.groups)
    return search_groups(node, column, values, counts, limits, ZERO(), bar, scratch)
