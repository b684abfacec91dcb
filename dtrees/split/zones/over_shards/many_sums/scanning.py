"""The best split among the rows of flagged parts, where many numbers are summed; see :mod:`dtrees.split.zones.over_shards.many_sums`."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.node.found import NONE_HIGHER, UNKNOWN
from dtrees.split.search.thresholds.sweep import cut_after, nothing
from dtrees.split.zones.over_shards.many_sums.elements import plus_element, rows_of_element, statistic_of
from dtrees.split.zones.sums import element_of, n_elements


def sweep_elements(merged, base, end, nodes, place, limits, flags, bar, scratch, failed):
    """Find the best split: the version of ``_sweep`` of :mod:`dtrees.split.zones.over_shards.scanning` for such sums."""
    i, j = place
    zone_map, request, found, room = nodes.zone_map, flags.requests[i, j], scratch.found, scratch.classes
    first_codes, shift, flagged = zone_map.first_codes[j], zone_map.fold - nodes.sums.grains[i], flags.parts[request.first : request.last]
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(zone_map, nodes.sums, i, j)
    node = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i])
    left, missing = nothing(node, room[0]), statistic_of(node, elements[n_parts], room[1])
    top, cut, above, at, f, present = bar, np.nan, np.nan, base, ZERO(), node.n - missing.n
    for p in range(min(n_parts, request.stop_part)):
        n = rows_of_element(node, elements[p])
        if n == 0:
            continue
        stop = left.n + n
        if f < flagged.shape[0] and flagged[f].part == p:
            f += 1
            while left.n < stop:
                if at >= end:
                    failed[0] = 1
                    return -1.0, np.nan, np.nan, False
                left = plus_element(left, merged.elements[at])
                next_code = NONE_HIGHER if left.n == present else UNKNOWN
                mine = cut_after(limits, left, missing, node, at, next_code, top, room[2], found)
                if mine > top:
                    top, cut = mine, merged.values[at]
                    above = np.inf if left.n == present else merged.values[at + 1] if left.n < stop else np.nan
                at += 1
            if left.n > stop:
                failed[0] = 1
                return -1.0, np.nan, np.nan, False
            continue
        left = plus_element(left, elements[p])
        if p >= request.first_part and first_codes[(p + 1) << shift] - first_codes[p << shift] == 1:
            next_code = NONE_HIGHER if left.n == present else UNKNOWN
            mine = cut_after(limits, left, missing, node, at, next_code, top, room[2], found)
            if mine > top:
                top, cut = mine, nodes.upper[j, p << shift]
                above = np.inf if left.n == present else np.nan
    if at != end or f != flagged.shape[0]:
        failed[0] = 1
    return (top if top > bar else -1.0), cut, above, missing.n > 0
