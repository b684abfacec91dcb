"""The best split of a node by its zone sums (:mod:`dtrees.split.zone_sums`).

First comes the best split at a zone's edge (the node's *bar*), then the exact scans of the zones that may hold a better one, best first in
the column of that edge: the better the bar, the less there is to scan in the others. Flagged zones are cut finer before their rows are
sorted; where they hold much of the node, all of the column is (:mod:`dtrees.split.fine`).
"""

from __future__ import annotations

import numpy as np

from dtrees.split.bounds import best_edge, flag_zones, lay_out
from dtrees.split.fine import bar_of, keep, prefers_fine, search_finely
from dtrees.split.kernel import NONE, ZERO, inner_kernel, lean_kernel
from dtrees.split.prefetch import AHEAD, prefetch, prefetch_row
from dtrees.split.search import MAX_PARTS, PICKS, scan_picked
from dtrees.split.sweep import sweep_moments
from dtrees.split.zone_sums import outline, slope_of, unpack
from dtrees.split.zones import last_present

#: Flagged zones of so many rows are cut finer before rows are sorted.
_REFINED_ROWS = 256
_PLACE = np.uint64(0xFFFFFFFF)


@inner_kernel
def scan(columns, column_ids, zone_map, done, last, partition, sums, place, node_sums, limits, bars, i, scratch, out, t):
    """Search a node in columns ``done`` to ``last``; return how far that went.

    Flagged zones are scanned exactly; the rows to be scanned are picked for many columns in one pass, as many as there is room for.
    """
    start, mid, slot = place
    scale = sums.scales[slot]
    node = (node_sums[0], node_sums[1], mid - start)
    zones, flags, picks = scratch.zones, scratch.flags, scratch.picks
    n_picked = 0
    n_fine = ZERO()
    room = scratch.keys.shape[0]
    used = 0
    while done < last and n_picked < PICKS:
        n_zones = zone_map.n_zones[done]
        bar = bar_of(column_ids[zone_map.which[done]], bars[i], out.records[t])
        if zone_map.exact[done]:
            missing = unpack(sums.slots[slot, done], n_zones, scale.shift, zones)
            score = _sweep_values(limits, zones, n_zones, missing, node, bar, scratch)
            keep(columns, column_ids, zone_map.which[done], node, node_sums, limits, score, missing[2] > 0, scratch, bars, i, out, t)
        else:
            missing = outline(sums.slots[slot, done], n_zones, scale.shift, scratch.sums)
            m = flag_zones(limits, scratch.sums, n_zones, missing, node, bar, scale.centre, slope_of(limits, scale), scratch.passes)
            if prefers_fine(m, node[2], zone_map.n_parts[done]):
                for z in range(n_zones):
                    flags[PICKS + n_fine, z] = scratch.passes[z]
                scratch.cuts[n_fine, 0] = done
                n_fine += 1
                if n_fine == 2:
                    search_finely(
                        columns, column_ids, zone_map, n_fine, partition, sums, place, node_sums, limits, bars, i, scratch, out, t
                    )
                    n_fine = ZERO()
            elif m > 0:
                if used + m + 1 > room:
                    break
                for z in range(n_zones):
                    flags[n_picked, z] = scratch.passes[z]
                flags[n_picked, n_zones] = 0
                picks[n_picked, 0], picks[n_picked, 1], picks[n_picked, 2] = done, used, used
                used += m + 1  # one more, for what is written and not kept
                n_picked += 1
        done += 1
    if n_fine > 0:
        search_finely(columns, column_ids, zone_map, n_fine, partition, sums, place, node_sums, limits, bars, i, scratch, out, t)
    _pick(zone_map.zone, partition.rows, start, mid, n_picked, picks, flags, scratch.keys)
    for q in range(n_picked):
        j, low, high = picks[q]
        column = zone_map.which[j]
        codes = columns.codes[column]
        n_zones = zone_map.n_zones[j]
        missing = unpack(sums.slots[slot, j], n_zones, scale.shift, zones)
        for z in range(n_zones):
            zones[z].flag = flags[q, z]
        last_zone = last_present(zones, n_zones)
        keys = scratch.keys[low:high]
        bar = bar_of(column_ids[column], bars[i], out.records[t])
        parts = zones
        if keys.shape[0] >= _REFINED_ROWS:
            parts = scratch.parts
            n_zones, last_zone = _refine(codes, zone_map.first_codes[j], n_zones, last_zone, partition, start, keys, zones, parts, scratch)
            lay_out(parts, n_zones, scratch.sums)
            edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
            if edge > bar:
                bars[i] = max(bars[i], edge)
                bar = bar_of(column_ids[column], bars[i], out.records[t])
            flag_zones(limits, scratch.sums, n_zones, missing, node, bar, ZERO(), limits.slope, scratch.passes)
            for part in range(n_zones):
                parts[part].flag = scratch.passes[part]
            keys = keys[: _keep_flagged(keys, parts, scratch.spare)]
        else:
            _set_codes(codes, partition.rows, start, keys)
        if keys.shape[0] > 0:
            n_distinct = columns.offsets[column + 1] - columns.offsets[column]
            score = scan_picked(
                codes, n_distinct, parts, n_zones, last_zone, partition, start, mid, limits, missing, node, bar, keys, scratch
            )
            keep(columns, column_ids, column, node, node_sums, limits, score, missing[2] > 0, scratch, bars, i, out, t)
    return done


@lean_kernel
def _set_codes(codes, rows, start, keys):
    """Put codes in place of the zones of keys."""
    for k in range(keys.shape[0]):
        if k + AHEAD < keys.shape[0]:
            prefetch(codes, np.int64(rows[start + np.int64(keys[k + AHEAD] & _PLACE)]))
        place = keys[k] & _PLACE
        keys[k] = np.uint64(codes[rows[start + np.int64(place)]]) << np.uint64(32) | place


@lean_kernel
def _refine(codes, first_codes, n_zones, last_zone, partition, start, keys, zones, parts, scratch):
    """Cut the flagged zones into parts and sum the rows of ``keys`` by them.

    Zones of keys become codes, and ``scratch.spare`` tells the part of each key. Returns the number of parts, and the number of that with
    the column's highest values in the node, -1 if there is none.
    """
    n_flagged = 0
    for z in range(n_zones):
        n_flagged += zones[z].flag
    wanted = max(1, min(MAX_PARTS, keys.shape[0] // 4) // n_flagged)
    first_part, shifts = scratch.first_part, scratch.shifts
    n_parts = ZERO()
    for z in range(n_zones):
        if zones[z].flag:
            width = first_codes[z + 1] - first_codes[z]
            shift = 0
            while ((width - 1) >> shift) + 1 > wanted:
                shift += 1
            first_part[z], shifts[z] = n_parts, shift
            n_parts += ((width - 1) >> shift) + 1
    for part in range(n_parts):
        parts[part].a = 0
        parts[part].size = 0
        parts[part].b = 0
        parts[part].n = 0
    rows, a, b = partition.rows, partition.a, partition.b
    weighted = b.shape[0] > 0
    for k in range(keys.shape[0]):
        if k + AHEAD < keys.shape[0]:
            prefetch(codes, np.int64(rows[start + np.int64(keys[k + AHEAD] & _PLACE)]))
        z, place = keys[k] >> np.uint64(32), keys[k] & _PLACE
        i = start + np.int64(place)
        code = codes[rows[i]]
        part_of_key = np.uint64(first_part[z] + ((np.int64(code) - first_codes[z]) >> shifts[z]))
        keys[k] = np.uint64(code) << np.uint64(32) | place
        scratch.spare[k] = part_of_key
        element = parts[part_of_key]
        element.a += a[i]
        element.size += abs(a[i])
        element.b += b[i] if weighted else 1
        element.n += 1
    last_part = NONE()
    for z in range(n_zones):
        if zones[z].flag:
            g, h, n = zones[z].a_before, zones[z].b_before, zones[z].n_before
            for part in range(first_part[z], first_part[z] + ((first_codes[z + 1] - first_codes[z] - 1) >> shifts[z]) + 1):
                element = parts[part]
                element.a_before, element.b_before, element.n_before = g, h, n
                g, h, n = g + element.a, h + element.b, n + element.n
                if z == last_zone and element.n > 0:
                    last_part = part
    return n_parts, last_part


@lean_kernel
def _keep_flagged(keys, parts, part_of):
    """Move the keys of flagged parts to the front; return how many there are."""
    m = 0
    for k in range(keys.shape[0]):
        keys[m] = keys[k]
        m += parts[part_of[k]].flag
    return m


@lean_kernel
def _pick(zone, rows, start, mid, n_picked, picks, flags, keys):
    """Write ``zone << 32 | place`` of the rows in flagged zones, places from 0, two columns at a time."""
    q = 0
    while q < n_picked:
        r = q + 1 if q + 1 < n_picked else q
        j, k = np.uint64(picks[q, 0]), np.uint64(picks[r, 0])
        flags_j, flags_k = flags[q], flags[r]
        at_j, at_k = np.uint64(picks[q, 2]), np.uint64(picks[r, 2])
        for i in range(start, mid):
            if i + AHEAD < mid:
                prefetch_row(zone, np.int64(rows[i + AHEAD]))
            zones = zone[np.uint64(rows[i])]
            zone_j, zone_k = np.uint64(zones[j]), np.uint64(zones[k])
            keys[at_j] = zone_j << np.uint64(32) | np.uint64(i - start)
            at_j += np.uint64(flags_j[zone_j])
            keys[at_k] = zone_k << np.uint64(32) | np.uint64(i - start)
            at_k += np.uint64(flags_k[zone_k])
        picks[q, 2], picks[r, 2] = at_j, at_k
        q += 2


@inner_kernel
def _sweep_values(limits, zones, n_zones, missing, node, bar, scratch):
    """Sweep a column each of whose zones is one value."""
    groups = scratch.groups
    m = ZERO()
    for z in range(n_zones):
        if zones[z].n > 0:
            groups[m].a = zones[z].a
            groups[m].b = zones[z].b
            groups[m].n = zones[z].n
            groups[m].code = z
            m += 1
    return sweep_moments(limits, groups, m, missing, node, bar, scratch.best)
