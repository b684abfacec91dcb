"""A large node's column, summed finer than by zones.

A zone hides what the order of its rows may do to a sum, which grows with its rows; noise in the sums of a node grows with the square root
of the node's rows. So for a node of a million rows of noise, as those of late boosting trees are, 255 zones rule out nothing. Where many
rows are in flagged zones, the column is therefore summed once more, by up to 2047 *parts* (:mod:`dtrees.split.zone_map`). Only those parts
are scanned that may hold a better split, and share values with a flagged zone.

To pick the rows of flagged zones costs a few times as much for each row as to sum all rows by parts, two columns at a time.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.bounds import best_edge, flag_zones
from dtrees.split.kernel import ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.prefetch import AHEAD, prefetch
from dtrees.split.search import MAX_PARTS, PICKS, complete, scan_picked
from dtrees.split.status import SPLIT
from dtrees.split.sweep import bar_for
from dtrees.split.zone_sums import outline, slope_of, unpack
from dtrees.split.zones import last_present

#: Fewest rows of a node for each part: to bound one costs as much as to sum so many.
_ROWS_TO_BOUND = 4
#: The share of a node's rows in flagged zones from which a column is summed by parts: one in so many.
_FLAGGED = 8


@kernel
def prefers_fine(n_flagged, n_rows, n_parts):
    """Tell whether a column is to be summed by parts, where so many of a node's rows are in flagged zones."""
    return n_flagged > n_rows // _FLAGGED and n_rows >= _ROWS_TO_BOUND * n_parts


@inner_kernel
def is_searched_finely(j, zone_map, sums, place, node_sums, limits, bar, scratch):
    """Tell whether a column, at place ``j`` of the zone map, is to be summed by parts to search a node."""
    start, mid, slot = place
    n_zones = zone_map.n_zones[j]
    if zone_map.exact[j]:
        return False
    scale, node = sums.scales[slot], (node_sums[0], node_sums[1], mid - start)
    missing = outline(sums.slots[slot, j], n_zones, scale.shift, scratch.sums)
    m = flag_zones(limits, scratch.sums, n_zones, missing, node, bar, scale.centre, slope_of(limits, scale), scratch.passes)
    return prefers_fine(m, mid - start, zone_map.n_parts[j])


@lean_kernel
def _sum_parts(codes, other_codes, part_of, other_part_of, cuts, partition, start, mid, size_shift, centre, width, parts, other_parts):
    """Sum in-sample rows by the parts of two columns, packed as zone sums are: ``width`` numbers a part.

    A row of ``cuts`` is the place of a column in the zone map, its shift and its number of values. Sizes are about ``centre``, None for 0.
    """
    rows, a, b = partition.rows, partition.a, partition.b
    shift, other_shift, width = np.uint64(cuts[0, 1]), np.uint64(cuts[1, 1]), np.uint64(width)
    parts[:] = 0
    other_parts[:] = 0
    weighted = b.shape[0] > 0
    one, two = np.uint64(1), np.uint64(2)
    for i in range(start, mid):
        if i + AHEAD < mid:
            ahead = np.int64(rows[i + AHEAD])
            prefetch(codes, ahead)
            prefetch(other_codes, ahead)
        row = np.uint64(rows[i])
        g = a[i]
        if centre is None:  # noqa: SIM108  (decided by type: to move sizes takes time that most nodes need not spend)
            size = abs(g)
        else:
            size = abs(g - centre * (b[i] if weighted else 1))
        packed = (((size >> size_shift) + 1) << 32) + 1
        k = np.uint64(part_of[np.uint64(codes[row]) >> shift]) * width
        parts[k] += g
        parts[k + one] += packed
        other_k = np.uint64(other_part_of[np.uint64(other_codes[row]) >> other_shift]) * width
        other_parts[other_k] += g
        other_parts[other_k + one] += packed
        if weighted:
            parts[k + two] += b[i]
            other_parts[other_k + two] += b[i]


@lean_kernel
def _part_missing(parts, n_parts, last, missing):
    """Have missing rows, whose sums are ``missing`` and which are among those of part ``last``, in the element after the last part."""
    if last < n_parts:
        for k in range(parts.shape[1]):
            parts[last, k] -= missing[k]
    for k in range(parts.shape[1]):
        parts[n_parts, k] = missing[k]


@lean_kernel
def _flag(parts, n_parts, part_of, shift, passes, zone_flags, first_codes, n_zones, flags):
    """Flag those parts that pass and share a code with a flagged zone; return how many rows they have."""
    flags[:] = 0
    for z in range(n_zones):
        if zone_flags[z]:
            for part in range(part_of[first_codes[z] >> shift], part_of[(first_codes[z + 1] - 1) >> shift] + 1):
                flags[part] = passes[part]
    n_rows = ZERO()
    for part in range(n_parts):
        n_rows += parts[part, 1] & 0xFFFFFFFF if flags[part] else 0
    return n_rows


@lean_kernel
def _pick_parts(codes, other_codes, part_of, other_part_of, cut, other_cut, rows, start, mid, flags, other_flags, keys, at, other_at):
    """Write ``code << 32 | place`` of the rows in flagged parts of two columns, places from 0, from ``keys[at]`` and ``keys[other_at]`` on.

    The last part may have the code of missing values, which are not picked.
    """
    shift, n_distinct, other_shift, other_distinct = np.uint64(cut[1]), cut[2], np.uint64(other_cut[1]), other_cut[2]
    for i in range(start, mid):
        if i + AHEAD < mid:
            ahead = np.int64(rows[i + AHEAD])
            prefetch(codes, ahead)
            prefetch(other_codes, ahead)
        row = np.uint64(rows[i])
        code, other_code = np.uint64(codes[row]), np.uint64(other_codes[row])
        if flags[part_of[code >> shift]] and np.int64(code) < n_distinct:
            keys[at] = code << np.uint64(32) | np.uint64(i - start)
            at += 1
        if other_flags[other_part_of[other_code >> other_shift]] and np.int64(other_code) < other_distinct:
            keys[other_at] = other_code << np.uint64(32) | np.uint64(i - start)
            other_at += 1


@lean_kernel
def _are_listed(flags, ends, n_parts):
    """Tell whether all flagged parts are among those whose rows are listed."""
    for part in range(ends[0], min(ends[1], n_parts)):  # noqa: SIM110
        if flags[part]:
            return False
    return True


@lean_kernel
def _pick_listed(codes, part_of, shift, listed, ends, rows, start, mid, flags, keys, at):
    """Write the same as :func:`_pick_parts` for one column, given that no others of its rows are in flagged parts than are listed."""
    for side in range(2):
        for k in range(ends[2 + side]):
            row = listed[side, k]
            low, high = start, mid
            while low < high:  # a node's rows ascend
                middle = (low + high) // 2
                if rows[middle] < row:
                    low = middle + 1
                else:
                    high = middle
            if low < mid and rows[low] == row and flags[part_of[codes[row] >> shift]]:
                keys[at] = np.uint64(codes[row]) << np.uint64(32) | np.uint64(low - start)
                at += 1


@inner_kernel
def bar_of(column, bar, record):
    """Return what the score of a split of a column must exceed. Ties with the bar pass, as it may be of a higher column."""
    if bar >= 0.0:
        bar = np.nextafter(bar, -np.inf)
    return max(bar, bar_for(column, record.column, record.score)) if record.status == SPLIT else bar


@inner_kernel
def keep(columns, column_ids, column, node, node_sums, limits, score, has_missing, scratch, bars, i, out, t):
    """Make the split found, if one was, the candidate of operation ``t``."""
    if score >= 0.0:
        values = columns.values[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, np.int64(column_ids[column]), node[2], node_sums, limits, score, has_missing, scratch, out, t)
        if out.records[t].status == SPLIT:
            bars[i] = max(bars[i], score)


@inner_kernel
def _bound(q, columns, column_ids, zone_map, sums, place, node_sums, limits, bars, i, scratch, out, t):
    """Flag the parts of the ``q``-th of two columns, which are summed, in which a split may be the best; return how many rows they have."""
    start, mid, slot = place
    scale, node = sums.scales[slot], (node_sums[0], node_sums[1], mid - start)
    j, shift, n_distinct = scratch.cuts[q]
    column, n_zones, first_codes = zone_map.which[j], zone_map.n_zones[j], zone_map.first_codes[j]
    parts, n_parts, part_of = _parts_of(scratch, sums, q), zone_map.n_parts[j], zone_map.part_of[j]
    _part_missing(parts, n_parts, part_of[n_distinct >> shift], sums.slots[slot, j, n_zones])
    missing = outline(parts, n_parts, scale.shift, scratch.sums)
    bar = bar_of(column_ids[column], bars[i], out.records[t])
    edge = best_edge(limits, scratch.sums, n_parts, missing, node, bar, scratch.scores)
    if edge > bar:
        bars[i] = max(bars[i], edge)
        bar = bar_of(column_ids[column], bars[i], out.records[t])
    flag_zones(limits, scratch.sums, n_parts, missing, node, bar, scale.centre, slope_of(limits, scale), scratch.passes)
    return _flag(parts, n_parts, part_of, shift, scratch.passes, scratch.flags[PICKS + q], first_codes, n_zones, scratch.part_flags[q])


@inner_kernel
def _parts_of(scratch, sums, q):
    width = sums.slots.shape[3]
    return scratch.fine[q, : (MAX_PARTS + 1) * width].reshape(MAX_PARTS + 1, width)


@inner_kernel
def search_finely(columns, column_ids, zone_map, n, partition, sums, place, node_sums, limits, bars, i, scratch, out, t):
    """Search one or two columns of a node, whose places in the zone map begin the rows of ``scratch.cuts``, by parts.

    The flags of their zones are the last two of ``scratch.flags``. All else is as of :func:`~dtrees.split.zone_scan.scan`.
    """
    start, mid, slot = place
    node = (node_sums[0], node_sums[1], mid - start)
    scale = sums.scales[slot]
    rows, keys, cuts, flags, zones = partition.rows, scratch.keys, scratch.cuts, scratch.part_flags, scratch.parts
    cuts[1, 0] = cuts[n - 1, 0]
    for q in range(2):
        column = zone_map.which[cuts[q, 0]]
        cuts[q, 2] = columns.offsets[column + 1] - columns.offsets[column]
        cuts[q, 1] = zone_map.part_shift[cuts[q, 0]]
    codes, other_codes = columns.codes[zone_map.which[cuts[0, 0]]], columns.codes[zone_map.which[cuts[1, 0]]]
    part_of, other_part_of = zone_map.part_of[cuts[0, 0]], zone_map.part_of[cuts[1, 0]]
    width = sums.slots.shape[3]
    parts, other_parts, size_shift, centre = scratch.fine[0], scratch.fine[1], scale.shift, scale.centre
    if centre == 0:
        _sum_parts(codes, other_codes, part_of, other_part_of, cuts, partition, start, mid, size_shift, None, width, parts, other_parts)
    else:
        _sum_parts(codes, other_codes, part_of, other_part_of, cuts, partition, start, mid, size_shift, centre, width, parts, other_parts)
    n_rows = _bound(ZERO(), columns, column_ids, zone_map, sums, place, node_sums, limits, bars, i, scratch, out, t)
    n_other = ZERO()
    if n > 1:
        n_other = _bound(ZERO() + 1, columns, column_ids, zone_map, sums, place, node_sums, limits, bars, i, scratch, out, t)
    listed = _are_listed(flags[0], zone_map.ends[cuts[0, 0]], zone_map.n_parts[cuts[0, 0]])
    listed = listed and (n_other == 0 or _are_listed(flags[1], zone_map.ends[cuts[1, 0]], zone_map.n_parts[cuts[1, 0]]))
    together = n_rows + n_other <= keys.shape[0] and not listed
    if together:
        _pick_parts(
            codes, other_codes, part_of, other_part_of, cuts[0], cuts[1], rows, start, mid, flags[0], flags[3 - n], keys, ZERO(), n_rows
        )
    for q in range(n):
        first, last = (ZERO(), n_rows) if q == 0 else (n_rows, n_rows + n_other)
        if first == last:
            continue
        j, shift, n_distinct = cuts[q]
        column, part_of = zone_map.which[j], zone_map.part_of[j]
        codes = columns.codes[column]
        if not together:
            first, last = ZERO(), last - first
            if listed:
                _pick_listed(codes, part_of, shift, zone_map.listed[j], zone_map.ends[j], rows, start, mid, flags[q], keys, ZERO())
            else:
                _pick_parts(codes, codes, part_of, part_of, cuts[q], cuts[q], rows, start, mid, flags[q], flags[2], keys, ZERO(), ZERO())
        n_parts = zone_map.n_parts[j]
        missing = unpack(_parts_of(scratch, sums, q), n_parts, scale.shift, zones)
        for part in range(n_parts):
            zones[part].flag = flags[q, part]
        score = scan_picked(
            codes, n_distinct, zones, n_parts, last_present(zones, n_parts), partition, start, mid, limits, missing, node,
            bar_of(column_ids[column], bars[i], out.records[t]), keys[first:last], scratch,
        )  # fmt: skip
        keep(columns, column_ids, column, node, node_sums, limits, score, missing[2] > 0, scratch, bars, i, out, t)
