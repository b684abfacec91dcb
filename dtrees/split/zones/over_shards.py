"""The best splits of nodes whose rows are spread over shards: sums, flagged parts and rows of several shards put together.

Every shard sums its rows by the same zones and parts, whose edges are values that all shards share. Sums of shards are added up, number by
number, for some columns each, by the shard that *searches* these. That flags the parts that may hold a better split than the bar, as
:mod:`dtrees.split.zones.scan` does; the shards pick their rows in flagged parts, and the searcher merges and sweeps them.

Shards have codes of their own, so what travels are values. In the zone map of a searcher, which is of no rows, codes stand for parts: parts
begin :data:`CODES` apart, those of a single value have one code. A row's code is that of its part, plus its rank among the values there.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.candidate import complete_but_threshold
from dtrees.split.node.found import NONE_HIGHER, UNKNOWN
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.search.sweep import cut_after
from dtrees.split.table.columns import value_of_code
from dtrees.split.table.sorting import sort_keys
from dtrees.split.zones.gather_rows import pick
from dtrees.split.zones.scan import below, flag_column, sweep_values
from dtrees.split.zones.sums import best_edges, element_of, fold, include_columns, n_elements, numbers_of, unpack

#: Codes of a part that has more than one value, in the zone map of a searcher.
CODES = 2**33

_PLACE = np.uint64(0xFFFFFFFF)

#: A column of a node as its searcher left it: its flagged parts are ``first:last`` of all, and have ``n_rows`` rows; ``top`` is which of
#: them has the column's highest values in the node (-1: none). Then follow the sums of missing rows, and the best split after a part of a
#: single value, if its score is not -1.
REQUEST = np.dtype(
    [
        ("first", np.int64),
        ("last", np.int64),
        ("n_rows", np.int64),
        ("top", np.int64),
        ("missing_g", np.int64),
        ("missing_h", np.int64),
        ("missing_n", np.int64),
        ("bar", np.float64),
        ("score", np.float64),
        ("code", np.int64),
        ("next_code", np.int64),
        ("n_left", np.int64),
        ("left_g", np.int64),
        ("left_h", np.int64),
        ("missing_left", np.bool_),
    ],
    align=True,
)

#: A flagged part: its number in the grain of its node, the sums before it, and its number of rows.
FLAGGED = np.dtype([("part", np.int64), ("g", np.int64), ("h", np.int64), ("before", np.int64), ("n", np.int64)], align=True)


@kernel
def sum_nodes(queue, tasks, zone_map, partition, sums):
    """Sum nodes into slots, by several threads.

    ``tasks``, shape (n, 6), are first and last place, slot, first and last column, and whether the slot begins with these places; else they
    are added to what it has.
    """
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, slot, first, last, begins = tasks[k]
        if begins:
            numbers_of(sums, slot, first, last)[:] = 0
        include_columns(zone_map, partition, start, stop, first, last, sums, slot, ZERO() + 1)
        finish(queue)


@kernel
def settle_sums(queue, tasks, zone_map, before, sums, grains, drawn, bars, column_ids, nodes, node_sums, limits, scratch):
    """Have the sums of nodes ready, and find their bars, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 4)
        A node, or -1; its sibling, or -1; the slot of the parent in ``before`` (-1: none); and the slot that holds the sums of one of the
        two: of the first of them, if there is a parent. The other's are then the parent's without these.
    zone_map : ZoneMap
        Of a searcher.
    before, sums : Sums
        Slots of the parents, and of the nodes: node i has slot i.
    grains : ndarray of int64, shape (n_nodes,)
        What nodes are to be searched in.
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns that each is to be searched in.
    bars : ndarray of float64, shape (n_nodes,)
        Written: the best score at an edge of a zone, -1.0 if there is none.
    nodes : ndarray of int64, shape (n_nodes,)
        The number of rows of each.
    """
    n_columns = zone_map.which.shape[0]
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        one, other, parent, slot = tasks[k]
        if other >= 0:
            if before.grains[parent] > sums.grains[slot]:
                fold(zone_map, before, parent, sums.grains[slot])
            sums.grains[other] = sums.grains[slot]
            _subtract(
                numbers_of(before, parent, ZERO(), n_columns),
                numbers_of(sums, slot, ZERO(), n_columns),
                numbers_of(sums, other, ZERO(), n_columns),
            )
        for side in range(2):
            node = other if side else one
            if node < 0:
                continue
            if sums.grains[node] > grains[node]:
                fold(zone_map, sums, node, grains[node])
            place = (ZERO(), nodes[node], node)
            bar = -1.0
            for j in range(n_columns):
                if drawn[node, j]:
                    bar, _ = best_edges(column_ids, zone_map, sums, place, node_sums[node], limits, j, j + 1, bar, scratch)
            bars[node] = bar
        finish(queue)


@lean_kernel
def _subtract(whole, part, rest):
    for i in range(rest.shape[0]):
        rest[i] = whole[i] - part[i]


@kernel
def flag_nodes(
    queue, column_ids, zone_map, upper, sums, nodes, node_sums, limits, drawn, draws, bars, scratch, rooms, requests, flagged, out, above
):
    """Flag the parts of every column of nodes that may hold a better split than the bar, by several threads.

    Parameters
    ----------
    upper : ndarray of float64, shape (k, most parts)
        The highest value of each part.
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns that each node is to be searched in.
    draws : bool
        Whether these are not all, so that it is to be known which are constant in the node.
    rooms : ndarray of int64, shape (n_nodes,)
        Where there is room for the flagged parts of each node.
    requests : ndarray of REQUEST, shape (n_nodes, k)
        Written.
    flagged : ndarray of FLAGGED
        Written.
    out : Candidates
        Of node i in column j at ``i * k + j``: written where no rows are wanted for it.
    above : ndarray of float64, shape (n_nodes * k,)
        The next value above each cut; infinite if there is none, NaN if it is not known.
    """
    k = zone_map.which.shape[0]
    while True:
        i = claim(queue)
        if i >= nodes.shape[0]:
            return
        place, at = (ZERO(), nodes[i], i), rooms[i]
        node, grain, shift = Moments(node_sums[i, 0], node_sums[i, 1], nodes[i]), sums.grains[i], sums.scales[i].shift
        for j in range(k):
            request, t = requests[i, j], i * k + j
            request.first = request.last = at
            request.n_rows, request.score = 0, -1.0
            column = np.int64(column_ids[zone_map.which[j]])
            out.records[t].column, out.records[t].status = column if drawn[i, j] else -1, CONSTANT
            if not drawn[i, j] or not begin_column(limits.criterion, node_sums[i], column):
                continue
            if draws:
                part = _only_part(zone_map, sums, i, j)
                if part >= 0 and (zone_map.exact[j] or part == n_elements(zone_map, sums, i, j)):
                    continue
                if part >= 0 and _is_single(zone_map, sums, i, j, part):
                    continue
                if part >= 0 and bars[i] < 0.0:  # only its rows can tell
                    request.bar, request.n_rows, request.top, request.last = bars[i], nodes[i], 0, at + 1
                    request.missing_g, request.missing_h, request.missing_n = 0, 0, 0
                    flagged[at].part, flagged[at].g, flagged[at].h, flagged[at].before, flagged[at].n = part, 0, 0, 0, nodes[i]
                    at += 1
                    continue
            out.records[t].status = NO_SPLIT
            bar = below(bars[i]) if bars[i] >= 0.0 else bars[i]
            if zone_map.exact[j]:
                n_zones = zone_map.n_zones[j] << grain
                missing = unpack(element_of(sums, i, j), n_zones, shift, scratch.zones)
                score = sweep_values(limits, scratch.zones, n_zones, grain, missing, node, bar, scratch)
                if score >= 0.0:
                    found = scratch.found.record[0]
                    above[t] = np.inf if found.next_code == NONE_HIGHER else upper[j, found.next_code << zone_map.fold]
                    _keep(column, upper[j, found.code << zone_map.fold], node, node_sums[i], limits, score, missing.n > 0, scratch, out, t)
                    if out.records[t].status == SPLIT:
                        bars[i] = max(bars[i], score)
                continue
            n_flagged, n_rows, top, missing, edge, score = flag_column(zone_map, j, sums, place, node, limits, bar, scratch)
            if max(edge, score) > bar:
                bars[i] = max(bars[i], max(edge, score))
                bar = below(max(edge, score))
            request.bar, request.n_rows, request.top = bar, n_rows, top
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


@lean_kernel
def _keep(column, cut, node, node_sums, limits, score, has_missing, scratch, out, t):
    """Make the split found the candidate at place ``t``; its threshold is the value that it is after."""
    complete_but_threshold(ZERO(), column, node.n, node_sums, limits, score, has_missing, scratch.found, out, t)
    out.records[t].threshold = cut


@kernel
def pick_rows(
    queue, tasks, parts, begins, columns, zone_map, partition, scratch, kept, finer, kept_rooms, kept_counts, rooms, values, g, h, n, counts
):
    """Write the values of rows in flagged parts, ascending, each with the sums of its rows, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column of the zone map, by how much parts are shifted, and into how many finer ones flagged parts
        have been cut, 0 if they have not.
    parts, begins : ndarray of int64
        The parts of task k are ``parts[begins[k]:begins[k + 1]]``; finer ones have the numbers that
        :func:`~dtrees.split.zones.finer_parts.sum_finer` gives them.
    zone_map : ZoneMap
        Of the shard's own rows.
    kept, finer, kept_rooms, kept_counts : ndarray
        Where parts have been cut, what :func:`~dtrees.split.zones.finer_parts.sum_finer` has left.
    rooms : ndarray of int64, shape (n,)
        Where there is room for what each task writes to ``values``, ``g``, ``h`` and ``n``.
    counts : ndarray of int64, shape (n,)
        Written: how many values there are.
    """
    weighted = partition.h.shape[0] > 0
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, j, shift, cut = tasks[k]
        column, keys, wanted = zone_map.which[j], scratch.keys, parts[begins[k] : begins[k + 1]]
        first_codes, n_wanted = zone_map.first_codes[j], wanted.shape[0]
        if cut > 0:
            n_keys = _take_flagged(wanted, kept, finer, kept_rooms[k], kept_counts[k], scratch.flags, keys)
        else:
            n_keys = pick_parts(start, stop, j, shift, wanted, columns, zone_map, partition, scratch)
        sort_keys(keys, scratch.spare, n_keys, scratch.counts)
        at, before, p = rooms[k] - 1, NONE(), ZERO()
        for i in range(n_keys):
            code, place = np.int64(keys[i] >> np.uint64(32)), start + np.int64(keys[i] & _PLACE)
            if cut == 0:
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
                values[at], g[at], n[at] = value_of_code(columns, column, code), 0, 0
                if weighted:
                    h[at] = 0
            g[at] += partition.g[place]
            n[at] += np.uint32(1)
            if weighted:
                h[at] += partition.h[place]
        counts[k] = at + 1 - rooms[k]
        finish(queue)


@inner_kernel
def _rows_before(part, n_parts, n_rows):
    """Return how many of a node's rows are in parts before one, by the quantiles that parts end at."""
    return np.int64(n_rows * np.sin(np.pi * part / (2 * n_parts)) ** 2)


@lean_kernel
def _take_flagged(wanted, kept, finer, first, n, flags, keys):
    """Copy those of ``n`` kept keys that are in finer parts wanted to ``keys``; return how many there are."""
    if wanted.shape[0] == 0:
        return ZERO()
    flags[:] = 0
    for part in wanted:
        flags[part] = 1
    at = np.uint64(0)
    for i in range(np.uint64(first), np.uint64(first + n)):
        keys[at] = kept[i]
        at += np.uint64(flags[finer[i]])
    return np.int64(at)


@inner_kernel
def pick_parts(start, stop, j, shift, parts, columns, zone_map, partition, scratch):
    """Write ``code << 32 | place`` of a node's rows in parts of a column to ``scratch.keys``, places from 0; return how many there are.

    Others with the same shifted codes may be among them.
    """
    column = zone_map.which[j]
    first_codes, n_distinct = zone_map.first_codes[j], columns.offsets[column + 1] - columns.offsets[column]
    n_parts, m = zone_map.n_zones[j] << zone_map.fold >> shift, ZERO()
    for part in parts:
        first, last = first_codes[part << shift], first_codes[(part + 1) << shift]
        if last > first:
            # Where rows lie is not known here: the node's are taken to be spread like all.
            zone = scratch.zones[m]
            zone.n_before = _rows_before(part, n_parts, stop - start)
            zone.n = _rows_before(part + 1, n_parts, stop - start) - zone.n_before
            scratch.numbers[m] = part
            m += 1
    if m == 0 or stop == start:
        return ZERO()
    return pick(
        columns.codes[column], n_distinct, zone_map, j, shift, scratch.numbers[:m], partition.rows[start:stop], scratch.keys, scratch
    )


@kernel
def scan_rows(
    queue, tasks, column_ids, zone_map, upper, sums, nodes, node_sums, limits, bars, scratch, requests, flagged, runs, begins, rooms,
    merged, out, above, failed,
):  # fmt: skip
    """Find the best splits of nodes in columns by the rows that shards picked in flagged parts, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 2)
        A node and a column.
    runs : tuple of ndarray
        Values, sums of g, sums of h (empty where every weight is 1) and numbers of rows, of all shards, one after the other.
    begins : ndarray of int64, shape (n_shards, n + 1)
        Where those of each task begin and end.
    rooms : ndarray of int64, shape (n,)
        Where there is room in ``merged`` for those of each task.
    merged : tuple of ndarray
        As ``runs``.
    failed : ndarray of int64, shape (1,)
        Set to 1 where rows are not those that the sums are of.
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
        node, column = Moments(node_sums[i, 0], node_sums[i, 1], nodes[i]), np.int64(column_ids[zone_map.which[j]])
        begin_column(limits.criterion, node_sums[i], column)
        missing = Moments(request.missing_g, request.missing_h, request.missing_n)
        for shard in range(n_shards):
            heads[shard] = begins[shard, task]
        base = rooms[task]
        end = base + _merge(runs, heads, begins[:, task + 1], base, merged)
        bar = max(request.bar, below(bars[i])) if bars[i] >= 0.0 else request.bar
        shift = zone_map.fold - sums.grains[i]
        score, best = _sweep_parts(
            limits, zone_map.first_codes[j], shift, flagged[request.first : request.last], request.top, merged, base, end, missing, node,
            bar, scratch.found, failed,
        )  # fmt: skip
        found = scratch.found.record[0]
        if request.score > score or (request.score == score and score >= 0.0 and request.code < found.code):
            score = request.score
            _restore(request, scratch.found)
            part = np.searchsorted(zone_map.first_codes[j, : zone_map.n_zones[j] << zone_map.fold], request.code, side="right") - 1
            cut = upper[j, part]
            above[t] = np.inf if request.next_code == NONE_HIGHER else np.nan
        elif score >= 0.0:
            cut = merged[0][best]
            above[t] = np.inf if found.next_code == NONE_HIGHER else np.nan if found.next_code == UNKNOWN else merged[0][best + 1]
        if end - base > 1:
            out.records[t].status = NO_SPLIT
        if score >= 0.0:
            _keep(column, cut, node, node_sums[i], limits, score, missing.n > 0, scratch, out, t)
            if out.records[t].status == SPLIT:
                bars[i] = max(bars[i], score)
        finish(queue)


@lean_kernel
def _restore(request, found):
    """Have a split found again that was noted."""
    record = found.record[0]
    record.code, record.next_code, record.n_left = request.code, request.next_code, request.n_left
    record.missing_left = request.missing_left
    found.left[0], found.left[1] = request.left_g, request.left_h


@lean_kernel
def _merge(runs, heads, ends, base, merged):
    """Merge ascending runs, values that several have once; return how many values there are."""
    values, g, h, n = runs
    out_values, out_g, out_h, out_n = merged
    weighted = h.shape[0] > 0
    at = base
    while True:
        least, some = np.inf, False
        for shard in range(heads.shape[0]):
            if heads[shard] < ends[shard] and (not some or values[heads[shard]] < least):
                least, some = values[heads[shard]], True
        if not some:
            return at - base
        out_values[at], out_g[at], out_n[at] = least, 0, 0
        if weighted:
            out_h[at] = 0
        for shard in range(heads.shape[0]):
            head = heads[shard]
            if head < ends[shard] and values[head] == least:
                out_g[at] += g[head]
                out_n[at] += n[head]
                if weighted:
                    out_h[at] += h[head]
                heads[shard] += 1
        at += 1


@lean_kernel
def _sweep_parts(limits, first_codes, shift, flagged, top_part, merged, base, end, missing, node, bar, found, failed):
    """Find the best split after a value in flagged parts; return its score, -1.0 if none is above the bar, and which value it is."""
    _, g, h, n = merged
    weighted = h.shape[0] > 0
    top, best, at, first = bar, NONE(), base, base
    for p in range(flagged.shape[0]):
        part = flagged[p]
        left, stop = Moments(part.g, part.h, part.before), part.before + part.n
        if p == 0 or part.part != flagged[p - 1].part:  # finer parts of one share its codes
            first = at
        while left.n < stop:
            if at >= end:
                failed[0] = 1
                return -1.0, NONE()
            left = Moments(left.g + g[at], left.h + (h[at] if weighted else np.int64(n[at])), left.n + np.int64(n[at]))
            code = first_codes[part.part << shift] + (at - first)
            next_code = code + 1 if left.n < stop else NONE_HIGHER if p == top_part else UNKNOWN
            mine = cut_after(limits, left, missing, node, code, next_code, top, found.left, found)
            if mine > top:
                top, best = mine, at
            at += 1
        if left.n > stop:
            failed[0] = 1
            return -1.0, NONE()
    if at != end:
        failed[0] = 1
    return (top if top > bar else -1.0), best


@kernel
def next_codes(queue, nodes, columns, rows, cuts, out):
    """Write the lowest code above a cut among the rows of nodes, the number of distinct values if there is none, by several threads.

    ``nodes``, shape (n, 3), are first and last place and column.
    """
    while True:
        k = claim(queue)
        if k >= nodes.shape[0]:
            return
        start, stop, column = nodes[k]
        codes = columns.codes[column]
        lowest, cut = np.int64(columns.offsets[column + 1] - columns.offsets[column]), cuts[k]
        for i in range(start, stop):
            code = np.int64(codes[rows[i]])
            if code > cut:
                lowest = min(lowest, code)
        out[k] = lowest
        finish(queue)


@kernel
def walk_rows(queue, pieces, codes, missing, left, right, column, cuts, missing_left, values, rows, total):
    """Add to ``total``, by row, the value of the leaf of a finished tree that the row comes to, by several threads.

    Parameters
    ----------
    pieces : ndarray of int64, shape (n, 2)
        Stretches of ``rows``.
    codes : ndarray of uint32, shape (n_columns, n_rows)
    missing : ndarray of int64, shape (n_columns,)
        The code of missing values.
    left, right, column, missing_left, values : ndarray
        Of the tree's nodes.
    cuts : ndarray of int64
        The highest code that goes left.
    """
    while True:
        k = claim(queue)
        if k >= pieces.shape[0]:
            return
        for i in range(pieces[k, 0], pieces[k, 1]):
            row, node = rows[i], ZERO()
            while left[node] >= 0:
                code = np.int64(codes[column[node], row])
                goes_left = missing_left[node] if code == missing[column[node]] else code <= cuts[node]
                node = np.int64(left[node] if goes_left else right[node])
            total[row] += values[node]
        finish(queue)


@kernel
def add_in_order(x, first_row, n_rows, lanes):
    """Add absolute values of a stretch of rows to the sums that :func:`~dtrees.split.numbers.fixed_point.absolute_sum` makes of all."""
    whole = n_rows - n_rows % 4
    for i in range(x.shape[0]):
        row = first_row + i
        lanes[row % 4 if row < whole else 0] += abs(x[i])
