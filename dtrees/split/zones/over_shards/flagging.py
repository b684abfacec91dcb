"""Parts of columns that may hold a better split than the bar, flagged by the searcher."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.found import NONE_HIGHER
from dtrees.split.node.status import CONSTANT, NO_SPLIT
from dtrees.split.zones.over_shards.requests import ALL_PARTS, note_split
from dtrees.split.zones.scan import below, flag_column, sweep_values
from dtrees.split.zones.sums import element_of, n_elements, unpack


@kernel
def flag_nodes(queue, nodes, limits, drawn, draws, scratch, rooms, flags, splits):
    """Flag the parts of every column of nodes that may hold a better split than the bar, by several threads.

    Parameters
    ----------
    nodes : SearchedNodes
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns that each node is to be searched in.
    draws : bool
        Whether these are not all, so that it is to be known which are constant in the node.
    rooms : ndarray of int64, shape (n_nodes,)
        Where there is room for the flagged parts of each node.
    flags : Flags
        Written.
    splits : ColumnSplits
        Written where no rows are wanted for it.
    """
    zone_map, sums, upper, bars = nodes.zone_map, nodes.sums, nodes.upper, nodes.bars
    k, flagged, records = zone_map.which.shape[0], flags.parts, splits.candidates.records
    while True:
        i = claim(queue)
        if i >= nodes.n_rows.shape[0]:
            return
        node_sums, n_rows = nodes.node_sums[i], nodes.n_rows[i]
        place, at = (ZERO(), n_rows, i), rooms[i]
        node, grain, shift = Moments(node_sums[0], node_sums[1], n_rows), sums.grains[i], sums.scales[i].shift
        for j in range(k):
            request, t = flags.requests[i, j], i * k + j
            request.first = request.last = at
            request.n_rows, request.score = 0, -1.0
            request.first_part, request.stop_part, request.best = 0, ALL_PARTS, -1.0
            column = np.int64(nodes.column_ids[zone_map.which[j]])
            records[t].column, records[t].status = column if drawn[i, j] else -1, CONSTANT
            if not drawn[i, j] or not begin_column(limits.criterion, node_sums, column):
                continue
            if draws:
                part = _only_part(zone_map, sums, i, j)
                if part >= 0 and (zone_map.exact[j] or part == n_elements(zone_map, sums, i, j)):
                    continue
                if part >= 0 and _is_single(zone_map, sums, i, j, part):
                    continue
                if part >= 0 and bars[i] < 0.0:  # only its rows can tell
                    request.bar, request.n_rows, request.last = bars[i], n_rows, at + 1
                    request.missing_g, request.missing_h, request.missing_n = 0, 0, 0
                    flagged[at].part, flagged[at].g, flagged[at].h, flagged[at].before, flagged[at].n = part, 0, 0, 0, n_rows
                    at += 1
                    continue
            records[t].status = NO_SPLIT
            bar = below(bars[i]) if bars[i] >= 0.0 else bars[i]
            if zone_map.exact[j]:
                n_zones = zone_map.n_zones[j] << grain
                missing = unpack(element_of(sums, i, j), n_zones, shift, scratch.zones)
                score = sweep_values(limits, scratch.zones, n_zones, grain, missing, node, bar, scratch)
                if score >= 0.0:
                    found = scratch.found.record[0]
                    cut = upper[j, found.code << zone_map.fold]
                    above = np.inf if found.next_code == NONE_HIGHER else upper[j, found.next_code << zone_map.fold]
                    note_split(nodes, i, column, limits, score, cut, above, missing.n > 0, scratch.found, splits, t)
                continue
            n_flagged, n_in_parts, _, missing, edge, score = flag_column(zone_map, j, sums, place, node, limits, bar, scratch)
            if max(edge, score) > bar:
                bars[i] = max(bars[i], max(edge, score))
                bar = below(max(edge, score))
            request.bar, request.n_rows = bar, n_in_parts
            request.missing_g, request.missing_h, request.missing_n = missing.g, missing.h, missing.n
            request.score = score
            if score >= 0.0:
                found = scratch.found.record[0]
                request.code, request.next_code, request.n_left = found.code, found.next_code, found.n_left
                request.missing_left = found.missing_left
                request.left_g, request.left_h = scratch.found.left[0], scratch.found.left[1]
            for z in range(n_flagged):
                zone, part = scratch.zones[z], flagged[at]
                part.part, part.g, part.h, part.before, part.n = scratch.numbers[z], zone.g_before, zone.h_before, zone.n_before, zone.n
                at += 1
            request.last = at
        finish(queue)


@lean_kernel
def _only_part(zone_map, sums, slot, j):
    """Return the one part that has all rows of a node, -1 if several have; missing values count as the last."""
    element, only = element_of(sums, slot, j), NONE()
    for z in range(n_elements(zone_map, sums, slot, j) + 1):
        if element[z, 1] != 0:
            if only >= 0:
                return NONE()
            only = z
    return only


@lean_kernel
def _is_single(zone_map, sums, slot, j, part):
    """Tell whether a part has a single value."""
    shift, first_codes = zone_map.fold - sums.grains[slot], zone_map.first_codes[j]
    return first_codes[(part + 1) << shift] - first_codes[part << shift] == 1
