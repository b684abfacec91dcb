"""The best split of a node, found by its zone sums (:mod:`dtrees.split.zones.sums`).

First the best split at a zone's edge (the node's *bar*) is found, then zones that may hold a better one are scanned exactly, beginning
with the column of that edge: the higher the bar, the less has to be scanned in other columns. Flagged zones are divided into parts
before their rows are sorted. Zones of a single value are never scanned: the split after them follows from the sums. In this module, a
zone is the unit by which the node is summed: a zone or, in large nodes, a part of one.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, lean_kernel, separate_kernel, shared_kernel
from dtrees.split.compile.memory import prefetch
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE, Moments
from dtrees.split.node.limits import is_categorical
from dtrees.split.node.records import NONE_HIGHER, SPLIT, UNKNOWN, bar_for, complete, copy_found
from dtrees.split.policy import AHEAD, LISTED_PER_PICKED, LONG_SEARCH_SHARE, MAX_PARTS, ROWS_PER_CUT_PART
from dtrees.split.search.sweep import SortedRows, cut_after, sweep_bins, sweep_sorted
from dtrees.split.table.sorting import first_key, lower_bound, sort_keys
from dtrees.split.zones.bounds import best_edge, flag_zones, lay_out, part_arrays, sums_in, zone_arrays
from dtrees.split.zones.by_category import moments_of, search_categories_of_slot
from dtrees.split.zones.gather_rows import known_of, lower_sizes, note_sizes, pick_known
from dtrees.split.zones.sums import count_flagged, element_of, slope_of

_PLACE = np.uint64(0xFFFFFFFF)


@inner_kernel
def below(score):
    """Return the next lower number: the bar that an equal score exceeds."""
    return np.nextafter(score, -np.inf)


@inner_kernel
def bar_of(column, bar, record):
    """Return the bar that the score of a split of a column must exceed. It admits ties if the current best has a higher column."""
    if bar >= 0.0:
        bar = below(bar)
    return max(bar, bar_for(column, record.column, record.score)) if record.status == SPLIT else bar


@inner_kernel
def _keep(columns, summed, column, found, limits, bar, scratch, out, t):
    """Store the split ``found``, its score and whether the column has missing values, as candidate ``t``, if there is one."""
    score, has_missing = found
    if score >= 0.0:
        values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
        n = summed.place[1] - summed.place[0]
        complete(values, np.int64(summed.ids[column]), n, summed.node_sums, limits, score, has_missing, scratch.found, out, t)
        if out.records[t].status == SPLIT:
            bar[0] = max(bar[0], score)


@separate_kernel
def flag_column(zone_map, j, sums, place, node, limits, bar, scratch):
    """Find the zones that may hold a split above the bar in column ``j`` of the zone map.

    First zones are flagged, then, if the node is summed by parts, their parts. These are written to ``scratch.zones``, and their numbers
    to ``scratch.numbers``. The best split after a zone or part of a single value, if it is above the bar, is written to
    ``scratch.found``.

    Returns the number of flagged zones or parts, the number of their rows, the index of the one with the column's highest values in the
    node (-1 if none has them), the sums of missing rows, the best score of a split between parts, if above the bar, and the score of the
    split in ``scratch.found``, -1.0 if there is none.
    """
    slot = place[2]
    grain, scale, n_zones = sums.grains[slot], sums.scales[slot], zone_map.n_zones[j]
    element, outlined, numbers = element_of(sums, slot, j), scratch.sums, scratch.numbers
    missing = zone_arrays(element, n_zones, grain, scale.shift, outlined)
    slope, edge, top, present = slope_of(limits, scale), -1.0, bar, node.n - missing.n
    for z in range(n_zones):
        numbers[z] = z
    n = flag_zones(limits, outlined, n_zones, missing, node, bar, scale.centre, slope, numbers, scratch.flags)
    _note_zones(outlined, n, scratch.zones)
    scratch.found.record[0].code = NONE()
    n, n_rows, last, top = _set_single_values_aside(zone_map.first_codes[j], zone_map.fold, n, present, limits, missing, node, top, scratch)
    count_flagged(sums, place, j, n_rows)
    if n > 0 and grain > 0:
        parts = scratch.cuts[0]
        n = part_arrays(element, 1 << grain, scale.shift, scratch.zones, numbers, n, outlined, parts)
        lower_sizes(known_of(zone_map, sums, slot, node.n, j)[0], element, scale.shift, parts, n, outlined)
        inside = below(top) if top > bar else bar
        edge = best_edge(limits, outlined, n, missing, node, inside, scratch.scores)
        if edge > inside:
            inside = below(edge)
        n = flag_zones(limits, outlined, n, missing, node, inside, scale.centre, slope, parts, scratch.flags)
        _note_zones(outlined, n, scratch.zones)
        for k in range(n):
            numbers[k] = parts[k]
        shift = zone_map.fold - grain
        n, n_rows, last, top = _set_single_values_aside(zone_map.first_codes[j], shift, n, present, limits, missing, node, top, scratch)
    return n, n_rows, last, missing, edge, top if top > bar else -1.0


@inner_kernel
def takes_long(summed, j, limits, bar, scratch):
    """Return whether much of column ``j`` of the zone map has to be scanned to search a node."""
    zone_map = summed.zone_map
    if zone_map.exact[j] or not begin_column(limits.criterion, summed.node_sums, np.int64(summed.ids[zone_map.which[j]])):
        return False
    node = moments_of(summed)
    _, m, _, _, _, _ = flag_column(zone_map, j, summed.sums, summed.place, node, limits, bar, scratch)
    return m > node.n // LONG_SEARCH_SHARE


@inner_kernel
def scan(columns, summed, span, limits, shared_bar, scratch, out, t):
    """Search a node in a range of the columns of the zone map; flagged zones are scanned exactly.

    ``span`` is the first column, the one after the last, and a column to skip, -1 if there is none. ``shared_bar``, shape (1,), is the
    best known score of the node, which other threads may search, too. The split found is written to candidate ``t`` of ``out`` if it is
    better.
    """
    zone_map, column_ids, sums, partition, place, node_sums = summed
    first, last, but = span
    start, in_stop, slot = place
    node = moments_of(summed)
    grain = sums.grains[slot]
    for j in range(first, last):
        column = zone_map.which[j]
        if j == but or not begin_column(limits.criterion, node_sums, np.int64(column_ids[column])):
            continue
        codes, n_distinct = columns.codes[column], columns.offsets[column + 1] - columns.offsets[column]
        bar = bar_of(column_ids[column], shared_bar[0], out.records[t])
        if is_categorical(limits.categories, column):
            status, score, _ = search_categories_of_slot(columns, summed, j, node, limits, bar, scratch)
            _keep(columns, summed, column, (score if status == SPLIT else -1.0, True), limits, shared_bar, scratch, out, t)
            continue
        if zone_map.exact[j]:
            n_zones = zone_map.n_zones[j] << grain
            score, missing = sweep_values(limits, element_of(sums, slot, j), n_zones, grain, node, bar, scratch)
            _keep(columns, summed, column, (score, missing.n > 0), limits, shared_bar, scratch, out, t)
            continue
        n_zones, m, last_zone, missing, edge, score = flag_column(zone_map, j, sums, place, node, limits, bar, scratch)
        if max(edge, score) > bar:
            shared_bar[0] = max(shared_bar[0], max(edge, score))
            bar = below(max(edge, score))
        if n_zones > 0:
            copy_found(scratch.found, scratch.other_found)
            other = _scan_zones(columns, summed, j, (n_zones, m, last_zone, missing), node, limits, bar, shared_bar, scratch)
            if other > score or (other == score and scratch.found.record[0].code < scratch.other_found.record[0].code):
                score = other
            else:
                copy_found(scratch.other_found, scratch.found)
        found = scratch.found.record[0]
        if score >= 0.0 and found.next_code == UNKNOWN:
            if zone_map.lists.shape[1] // (in_stop - start) < in_stop - start and sums.place_of.shape[0] > 0:
                found.next_code = _next_code_by_list(zone_map.lists[j], sums.place_of, start, in_stop, found.code)
            else:
                found.next_code = next_code_by_rows(codes, n_distinct, partition.rows, start, in_stop, found.code)
        _keep(columns, summed, column, (score, missing.n > 0), limits, shared_bar, scratch, out, t)


@inner_kernel
def _scan_zones(columns, summed, j, flagged, node, limits, bar, shared_bar, scratch):
    """Scan the flagged zones of a column; return the best score above the bar, -1.0 if there is none.

    ``flagged`` are the first four results of :func:`flag_column`.
    """
    zone_map, sums, partition, (n_zones, m, last_zone, missing) = summed.zone_map, summed.sums, summed.partition, flagged
    start, in_stop, slot = summed.place
    column, zone_shift = zone_map.which[j], zone_map.fold - sums.grains[slot]
    codes, n_distinct = columns.codes[column], columns.offsets[column + 1] - columns.offsets[column]
    zones, numbers, keys = scratch.zones, scratch.numbers[:n_zones], scratch.keys
    if _is_short(zone_map.firsts[j], zone_shift, numbers, sums.place_of, in_stop - start, m):
        _pick_sorted(zone_map.lists[j], zone_map.firsts[j], zone_shift, numbers, sums.place_of, start, in_stop, keys)
        return _sweep_zones(limits, keys, zones, n_zones, last_zone, missing, summed, node, bar, scratch.found)
    sizes, is_kept = known_of(zone_map, sums, slot, in_stop - start, j)
    rows = partition.rows[start:in_stop]
    pick_known(codes, n_distinct, zone_map, j, zone_shift, numbers, rows, keys, is_kept, sums.kept[j], scratch)
    keys = keys[:m]
    if min(MAX_PARTS, m // ROWS_PER_CUT_PART) >= 2 * n_zones:
        zones = scratch.parts
        n_zones, last_zone = _refine(zone_map, j, zone_shift, n_zones, last_zone, partition, start, keys, scratch)
        note_sizes(sizes, element_of(sums, slot, j), sums.scales[slot].shift, scratch.zones, numbers)
        lay_out(zones, n_zones, scratch.sums)
        edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
        if edge > bar:
            shared_bar[0] = max(shared_bar[0], edge)
            bar = below(edge)
        _flag_each(limits, zones, n_zones, missing, node, bar, scratch)
        keys = keys[: _keep_flagged(keys, zones, scratch.spare)]
    if keys.shape[0] == 0:
        return -1.0
    sort_keys(keys, scratch.spare, keys.shape[0], scratch.counts)
    return _sweep_zones(limits, keys, zones, n_zones, last_zone, missing, summed, node, bar, scratch.found)


@lean_kernel
def _flag_each(limits, zones, n_zones, missing, node, bar, scratch):
    """Set the flag of each zone to 1 if a split inside may score above the bar, otherwise to 0.

    The zones are laid out in ``scratch.sums``, where only the flagged ones remain.
    """
    numbers = scratch.cuts[0]
    for z in range(n_zones):
        numbers[z] = z
        zones[z].flag = 0
    m = flag_zones(limits, scratch.sums, n_zones, missing, node, bar, ZERO(), limits.slope, numbers, scratch.flags)
    for k in range(m):
        zones[numbers[k]].flag = 1


@lean_kernel
def _sweep_zones(limits, keys, zones, n_zones, last_zone, missing, summed, node, bar, found):
    """Sweep the flagged zones, whose sorted rows are ``keys``; return the best score, -1.0 if none is above the bar."""
    partition, start, top = summed.partition, summed.place[0], bar
    first = ZERO()
    for z in range(n_zones):
        zone = zones[z]
        if zone.flag:
            last = first + zone.n
            left = Moments(zone.g_before, zone.h_before, zone.n_before)
            rows = SortedRows(keys, first, last, partition.g, partition.h, start)
            next_code = NONE_HIGHER if z == last_zone else UNKNOWN
            score = sweep_sorted(limits, rows, left, missing, node, next_code, top, found.left, found)
            top = max(top, score)
            first = last
    return top if top > bar else -1.0


@lean_kernel
def next_code_by_rows(codes, n_distinct, rows, start, in_stop, code):
    """Return the lowest code above ``code`` among a node's rows."""
    following = np.int64(n_distinct)
    for i in range(start, in_stop):
        other = np.int64(codes[rows[i]])
        if other > code:
            following = min(following, other)
    return following


@lean_kernel
def _note_zones(sums, n, zones):
    """Write flagged zones to ``zones``."""
    for z in range(n):
        zone = zones[z]
        zone.g_before, zone.h_before, zone.n_before = sums[G0, z], sums[H0, z], sums[N0, z]
        zone.g, zone.h, zone.n = sums[G1, z] - sums[G0, z], sums[H1, z] - sums[H0, z], sums[N1, z] - sums[N0, z]
        zone.abs_g = sums[SIZE, z]
        zone.flag = 1


@shared_kernel
def _set_single_values_aside(first_codes, shift, n, present, limits, missing, node, top, scratch):
    """Keep only those flagged zones with more than one value: in others, the only split is scored already.

    If it scores above ``top``, or equally with a lower value, it is written to ``scratch.found``. If most rows have one value, such as 0
    in a sparse column, their zone need not be sorted.

    Returns the number of remaining zones, the number of their rows, the index of the one with the column's highest values in the node
    (which has ``present`` non-missing rows), -1 if none has them, and the best score.
    """
    zones, numbers, found = scratch.zones, scratch.numbers, scratch.found
    m, n_rows, last = ZERO(), ZERO(), NONE()
    for k in range(n):
        zone, z = zones[k], numbers[k]
        code, before = first_codes[z << shift], zone.n_before
        is_last = before + zone.n == present
        if first_codes[(z + 1) << shift] - code == 1:
            left, next_code = Moments(zone.g_before + zone.g, zone.h_before + zone.h, before + zone.n), NONE_HIGHER if is_last else UNKNOWN
            least = below(top) if code < found.record[0].code else top  # the lower of equal scores wins
            score = cut_after(limits, left, missing, node, code, next_code, least, found.left, found)
            top = max(top, score)
            continue
        if is_last:
            last = m
        if m < k:
            zones[m], numbers[m] = zone, z
        n_rows += zone.n
        m += 1
    return m, n_rows, last, top


@separate_kernel
def _refine(zone_map, j, zone_shift, n_zones, last_zone, partition, start, keys, scratch):
    """Divide the flagged zones of a column into parts and sum the rows of ``keys`` by them.

    Parts are looked up by shifted codes, in a table: reading the zones of the rows would cause cache misses.

    ``scratch.spare`` receives the part of each key. Returns the number of parts, and the number of the part with the column's highest
    values in the node, -1 if there is none. The sizes of the zones become the bounds given by their parts.
    """
    first_codes, zones = zone_map.first_codes[j], scratch.zones
    wanted = max(1, min(MAX_PARTS, keys.shape[0] // ROWS_PER_CUT_PART) // n_zones)
    first_part, shifts, numbers, parts = scratch.cuts[0], scratch.cuts[1], scratch.numbers, scratch.parts
    part_of, cell_shift = scratch.part_of, zone_map.shift[j]
    n_parts = ZERO()
    for k in range(n_zones):
        z = numbers[k]
        first = first_codes[z << zone_shift]
        width = first_codes[(z + 1) << zone_shift] - first
        shift = cell_shift
        while ((width - 1) >> shift) + 1 > wanted:
            shift += 1
        first_part[z], shifts[z] = n_parts, shift
        for cell in range(((width - 1) >> cell_shift) + 1):
            part_of[(first >> cell_shift) + cell] = n_parts + (cell >> (shift - cell_shift))
        n_parts += ((width - 1) >> shift) + 1
    for part in range(n_parts):
        parts[part].g = 0
        parts[part].abs_g = 0
        parts[part].h = 0
        parts[part].n = 0
    a, b = partition.g, partition.h
    weighted = b.shape[0] > 0
    base, code_shift = np.uint64(start), np.uint64(32 + cell_shift)
    n_keys = np.uint64(keys.shape[0])
    for k in range(n_keys):
        prefetch(a, np.int64(base + (keys[min(k + np.uint64(AHEAD), n_keys - np.uint64(1))] & _PLACE)))
        i = base + (keys[k] & _PLACE)
        part_of_key = np.uint64(part_of[keys[k] >> code_shift])
        scratch.spare[k] = part_of_key
        element = parts[part_of_key]
        element.g += a[i]
        element.abs_g += abs(a[i])
        element.h += b[i] if weighted else 1
        element.n += 1
    last_part = NONE()
    for k in range(n_zones):
        z = numbers[k]
        g, h, n = zones[k].g_before, zones[k].h_before, zones[k].n_before
        high = low = twice = ZERO()
        width = first_codes[(z + 1) << zone_shift] - first_codes[z << zone_shift]
        for part in range(first_part[z], first_part[z] + ((width - 1) >> shifts[z]) + 1):
            element = parts[part]
            element.g_before, element.h_before, element.n_before = g, h, n
            g, h, n = g + element.g, h + element.h, n + element.n
            high = max(high, twice + element.abs_g + element.g)
            low = max(low, element.abs_g - element.g - twice)
            twice += 2 * element.g
            if k == last_zone and element.n > 0:
                last_part = part
        zones[k].abs_g = max(high - (twice >> 1), low + (twice >> 1))
    return n_parts, last_part


@lean_kernel
def _keep_flagged(keys, parts, part_of):
    """Move the keys of flagged parts to the front; return their number."""
    m = np.uint64(0)
    for k in range(np.uint64(keys.shape[0])):
        keys[m] = keys[k]
        m += np.uint64(parts[part_of[k]].flag)
    return m


@lean_kernel
def _is_short(firsts, shift, numbers, place_of, n_rows, n_picked):
    """Return whether the flagged zones of a column have so few rows in the whole table that picking them from its list is faster."""
    if place_of.shape[0] == 0:
        return False
    n_listed = ZERO()
    for z in numbers:
        n_listed += firsts[(z + 1) << shift] - firsts[z << shift]
    return n_listed <= n_rows + LISTED_PER_PICKED * n_picked


@lean_kernel
def _pick_sorted(rows, firsts, shift, numbers, place_of, start, in_stop, keys):
    """Write ``code << 32 | place`` for the rows in flagged zones of a column, with places from 0, ascending."""
    at, start, n = np.uint64(0), np.uint64(start), np.uint64(in_stop - start)
    for z in numbers:
        for k in range(np.uint64(firsts[z << shift]), np.uint64(firsts[(z + 1) << shift])):  # unsigned: no test for negative indices
            row = rows[k] & _PLACE
            place = np.uint64(place_of[row]) - start
            keys[at] = (rows[k] - row) | (place & _PLACE)
            at += np.uint64(place < n)


@lean_kernel
def _next_code_by_list(rows, place_of, start, in_stop, code):
    """Return the lowest code above ``code`` among a node's rows, from the list of a column; one exists."""
    at = lower_bound(rows, ZERO(), rows.shape[0], first_key(code + 1))
    while not start <= np.int64(place_of[rows[at] & _PLACE]) < in_stop:
        at += 1
    return np.int64(rows[at] >> np.uint64(32))


@inner_kernel
def sweep_values(limits, element, n_zones, grain, node, bar, scratch):
    """Sweep a column each of whose zones, or first parts of zones, is one value; return the best score, and missing rows."""
    bins, m = scratch.bins, ZERO()
    for z in range(n_zones):
        g, h, n = sums_in(element, z)
        if n > 0:
            bins[m].g, bins[m].h, bins[m].n, bins[m].code = g, h, n, z >> grain
            m += 1
    missing = sums_in(element, n_zones)
    return sweep_bins(limits, bins, m, missing, node, bar, scratch.found), missing
