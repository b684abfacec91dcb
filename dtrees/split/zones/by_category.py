"""Columns of categories in zone sums, where each category is a zone (:mod:`dtrees.split.zones.sums`).

The sums of a node by category are inherited as all zone sums are. They are all that its search needs, and all that the split found needs to
be applied: nobody has to go through the node's rows. Columns of very many categories are summed row by row.
"""

from __future__ import annotations

from dtrees.split.compile.kernels import ZERO, lean_kernel
from dtrees.split.node.status import CONSTANT
from dtrees.split.search.categories import RARE, choose_kept, choose_sides_of_node, search_categories, search_kept
from dtrees.split.zones.sums import element_of


@lean_kernel
def sum_categories(element, n_distinct, least, groups):
    """Write a node's sums of each category, those of fewer than ``least`` rows together, as the last.

    Returns how many categories there are in the node, missing values included, and how many sums are written.
    """
    weighted = element.shape[1] == 3
    present = m = n_rare = g_rare = h_rare = ZERO()
    for code in range(n_distinct + 1):
        n = element[code, 1] & 0xFFFFFFFF
        if n == 0:
            continue
        present += 1
        h = element[code, 2] if weighted else n
        if n < least:
            n_rare += n
            g_rare += element[code, 0]
            h_rare += h
        else:
            groups.code[m], groups.n[m] = code, n
            groups.sums[m, 0], groups.sums[m, 1] = element[code, 0], h
            m += 1
    if n_rare > 0:
        groups.code[m], groups.n[m] = RARE, n_rare
        groups.sums[m, 0], groups.sums[m, 1] = g_rare, h_rare
        m += 1
    return present, m


@lean_kernel
def search_categories_of_slot(columns, zone_map, j, partition, sums, place, node, node_sums, limits, bar, scratch):
    """Find the best split of a node in a column of categories, at place ``j`` of the zone map; result as of ``search_column``."""
    column, (start, in_stop, slot) = zone_map.which[j], place
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    if zone_map.n_zones[j] < values.shape[0]:
        codes = columns.codes[column]
        return search_categories(column, codes, values, partition, start, in_stop, node_sums, limits, ZERO(), bar, scratch)
    present, m = sum_categories(element_of(sums, slot, j), values.shape[0], limits.categories.least[column], scratch.groups)
    if present < 2:
        return CONSTANT, 0.0, True
    return search_kept(node, column, values, m, limits, ZERO(), bar, scratch.groups, scratch)


@lean_kernel
def choose_sides_of_slot(columns, column, zone_map, partition, sums, place, node, node_sums, limits, number, scratch, side):
    """Write to ``side``, by code, which rows the split of a node that has a slot sends left."""
    start, in_stop, slot = place
    codes, values = columns.codes[column], columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    j = ZERO()
    while zone_map.which[j] != column:
        j += 1
    if zone_map.n_zones[j] < values.shape[0]:
        choose_sides_of_node(column, codes, values, partition, start, in_stop, node_sums, limits, ZERO(), number, scratch, side)
        return
    _, m = sum_categories(element_of(sums, slot, j), values.shape[0], limits.categories.least[column], scratch.groups)
    choose_kept(node, values, m, limits, ZERO(), number, scratch.groups, side)
