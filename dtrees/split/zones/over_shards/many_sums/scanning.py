"""Rows that shards pick in flagged parts, where many numbers are summed; see :mod:`dtrees.split.zones.over_shards.many_sums`."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.node.candidate import complete_but_threshold
from dtrees.split.node.found import NONE_HIGHER, UNKNOWN
from dtrees.split.node.status import NO_SPLIT, SPLIT
from dtrees.split.search.thresholds.sweep import cut_after, nothing
from dtrees.split.table.columns import value_of_code
from dtrees.split.table.sorting import sort_keys
from dtrees.split.zones.over_shards.many_sums.elements import add_row, plus_element, rows_of_element, statistic_of
from dtrees.split.zones.over_shards.picking import pick_parts
from dtrees.split.zones.over_shards.scanning import least_head
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import element_of, n_elements

_PLACE = np.uint64(0xFFFFFFFF)


@kernel
def pick_many(queue, tasks, parts, begins, columns, zone_map, partition, scratch, rooms, values, elements, counts, targets, n_classes):
    """Write the values of rows in flagged parts, ascending, each with the element of its rows, by several threads.

    Parameters are those of :func:`~dtrees.split.zones.over_shards.picking.pick_rows`, but for these.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 4)
        First and last place of a node, a column of the zone map, and by how much parts are shifted.
    elements : ndarray of int64, shape (room, width)
        Sums of the rows of each value.
    targets : ndarray of int64, shape (n_rows, n_targets)
        Of several targets, as of :func:`~dtrees.split.zones.over_shards.many_sums.elements.sum_many`; of one, shape (0, 0).
    n_classes : int
        Of all targets; 0 of amounts.
    """
    weighted = partition.h.shape[0] > 0
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, j, shift = tasks[k]
        column, keys, wanted = zone_map.which[j], scratch.keys, parts[begins[k] : begins[k + 1]]
        first_codes, n_wanted = zone_map.first_codes[j], wanted.shape[0]
        n_keys = pick_parts(start, stop, j, shift, wanted, columns, zone_map, partition, scratch)
        sort_keys(keys, scratch.spare, n_keys, scratch.counts)
        at, before, p = rooms[k] - 1, NONE(), ZERO()
        for i in range(n_keys):
            code, place = np.int64(keys[i] >> np.uint64(32)), start + np.int64(keys[i] & _PLACE)
            # Codes that are equal when shifted are picked together, and may be in several parts.
            while p < n_wanted and code >= first_codes[(wanted[p] + 1) << shift]:
                p += 1
            if p == n_wanted:
                break
            if code < first_codes[wanted[p] << shift]:
                continue
            if code != before:
                at += 1
                before = code
                values[at] = value_of_code(columns, column, code)
                elements[at] = 0
            add_row(elements[at], partition.g[place], partition.h[place] if weighted else ZERO() + 1, weighted, targets, n_classes)
        counts[k] = at + 1 - rooms[k]
        finish(queue)


@kernel
def scan_many(
    queue, tasks, column_ids, zone_map, upper, sums, nodes, node_sums, limits, bars, scratch, requests, flagged, runs, begins, rooms,
    merged, out, above, failed,
):  # fmt: skip
    """Find the best splits of nodes in columns by the rows that shards picked in flagged parts, by several threads.

    Parameters are those of :func:`~dtrees.split.zones.over_shards.scanning.scan_rows`, but for these.

    Parameters
    ----------
    runs : tuple of ndarray
        Values, and elements of sums, of all shards, one after the other.
    flagged : ndarray of int64
        The numbers of parts.
    """
    k = zone_map.which.shape[0]
    n_shards = begins.shape[0]
    heads = np.empty(n_shards, np.int64)
    while True:
        task = claim(queue)
        if task >= tasks.shape[0]:
            return
        i, j = tasks[task]
        request, t = requests[i, j], i * k + j
        column = np.int64(column_ids[zone_map.which[j]])
        begin_column(limits.criterion, node_sums[i], column)
        for shard in range(n_shards):
            heads[shard] = begins[shard, task]
        base = rooms[task]
        end = base + _merge(runs, heads, begins[:, task + 1], base, merged)
        bar = max(request.bar, below(bars[i])) if bars[i] >= 0.0 else request.bar
        score, has_missing, cut, next_value = _sweep_parts(
            limits, element_of(sums, i, j), n_elements(zone_map, sums, i, j), upper[j], zone_map.first_codes[j],
            zone_map.fold - sums.grains[i], flagged[request.first : request.last], merged, base, end, node_sums[i], nodes[i], bar,
            scratch.classes, scratch.found, failed,
        )  # fmt: skip
        if end - base > 1:
            out.records[t].status = NO_SPLIT
        if score >= 0.0:
            complete_but_threshold(ZERO(), column, nodes[i], node_sums[i], limits, score, has_missing, scratch.found, out, t)
            out.records[t].threshold, above[t] = cut, next_value
            if out.records[t].status == SPLIT:
                bars[i] = max(bars[i], score)
        finish(queue)


@lean_kernel
def _merge(runs, heads, ends, base, merged):
    """Merge ascending runs, values that several have once; return how many values there are."""
    values, weights = runs
    out_values, out_weights = merged
    at = base
    while True:
        least, some = least_head(values, heads, ends)
        if not some:
            return at - base
        out_values[at] = least
        out_weights[at] = 0
        for shard in range(heads.shape[0]):
            head = heads[shard]
            if head < ends[shard] and values[head] == least:
                for k in range(weights.shape[1]):
                    out_weights[at, k] += weights[head, k]
                heads[shard] += 1
        at += 1


@lean_kernel
def _sweep_parts(
    limits, elements, n_parts, upper, first_codes, shift, flagged, merged, base, end, node_sums, n_rows, bar, room, found, failed
):
    """Find the best split after a value in flagged parts, and after parts of a single value.

    Returns its score, -1.0 if none is above the bar, whether values are missing, the value that it is after, and the next one: infinite if
    there is none, NaN if it is not known.
    """
    values, weights = merged
    node = node_statistic(limits.criterion, node_sums, n_rows)
    left, missing = nothing(node, room[0]), statistic_of(node, elements[n_parts], room[1])
    top, cut, above, at, f, present = bar, np.nan, np.nan, base, ZERO(), node.n - missing.n
    for p in range(n_parts):
        n = rows_of_element(node, elements[p])
        if n == 0:
            continue
        stop = left.n + n
        if f < flagged.shape[0] and flagged[f] == p:
            f += 1
            while left.n < stop:
                if at >= end:
                    failed[0] = 1
                    return -1.0, False, cut, above
                left = plus_element(left, weights[at])
                next_code = NONE_HIGHER if left.n == present else UNKNOWN
                mine = cut_after(limits, left, missing, node, at, next_code, top, room[2], found)
                if mine > top:
                    top, cut = mine, values[at]
                    above = np.inf if left.n == present else values[at + 1] if left.n < stop else np.nan
                at += 1
            if left.n > stop:
                failed[0] = 1
                return -1.0, False, cut, above
            continue
        left = plus_element(left, elements[p])
        if first_codes[(p + 1) << shift] - first_codes[p << shift] == 1:
            next_code = NONE_HIGHER if left.n == present else UNKNOWN
            mine = cut_after(limits, left, missing, node, at, next_code, top, room[2], found)
            if mine > top:
                top, cut = mine, upper[p << shift]
                above = np.inf if left.n == present else np.nan
    if at != end or f != flagged.shape[0]:
        failed[0] = 1
    return (top if top > bar else -1.0), missing.n > 0, cut, above
