"""The best splits of all nodes of a level, with zone sums inherited from their parents.

Where every node is searched in every column, the zone sums (:mod:`dtrees.split.zones`) of a node are those of its two children added up. So
they are kept, in *slots*, and only the smaller child of each split is summed; the larger one's are its parent's minus its sibling's,
exactly, as all sums are integers. To sum many columns in one pass, the zones of a row's columns are stored side by side.

A thread does everything for some columns: sums, then the best split at a zone's edge for each node, then the exact scans of the zones that
may hold a better one. What threads share is only the best score known of each node; seeing it late costs time, never the result.

Packed sums
-----------
A zone's element of a slot is (sum of g, size and count packed, sum of h): the packed number holds, in its upper half, the sum of
``(abs(g) >> size_shift) + 1``, from which follows an upper bound of the sum of abs(g), and the count in its lower half.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.columns import Columns
from dtrees.split.kernel import ZERO, inner_kernel, kernel
from dtrees.split.search import PICKS, complete, scan_picked
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.sweep import sweep_moments
from dtrees.split.zones import MAX_ZONES, accumulate_zones, best_edge, flag_zones, is_constant

#: Rows beyond which sizes and counts cannot be packed.
MAX_PACKED_ROWS = 2**30


class ZoneMap(NamedTuple):
    """The zones of every row, for all columns.

    Attributes
    ----------
    zone : ndarray of uint8, shape (n_rows, n_columns)
        Missing values have the number after the last zone.
    shift : ndarray of int64, shape (n_columns,)
        By how many bits a code is shifted to give its zone.
    n_zones : ndarray of int64, shape (n_columns,)
        At most 255.
    """

    zone: NDArray[np.uint8]
    shift: NDArray[np.int64]
    n_zones: NDArray[np.int64]


def map_zones(columns: Columns, map: Any = map) -> ZoneMap:
    """Cut every column into zones; ``map`` as in :func:`~dtrees.split.columns.presort`."""
    n_distinct = np.diff(columns.offsets)
    last = np.maximum(n_distinct - 1, 0)
    shift = np.zeros(columns.n_columns, np.int64)
    while np.any(too_many := (last >> shift) + 1 >= MAX_ZONES):
        shift[too_many] += 1
    zone = np.empty((columns.n_rows, columns.n_columns), np.uint8)
    n_zones = np.where(n_distinct > 0, (last >> shift) + 1, 0)
    step = max(4096, columns.n_rows // 64)
    pieces = range(0, columns.n_rows, step)
    list(map(lambda i: _write_zones(columns, shift, n_zones, i, min(i + step, columns.n_rows), zone), pieces))
    return ZoneMap(zone, shift, n_zones)


@kernel
def _write_zones(columns, shift, n_zones, first, last, zone):
    for block in range(first, last, 512):
        end = min(block + 512, last)
        for j in range(shift.shape[0]):
            codes = columns.codes[j]
            missing = columns.offsets[j + 1] - columns.offsets[j]
            for i in range(block, end):
                code = np.int64(codes[i])
                zone[i, j] = n_zones[j] if code == missing else code >> shift[j]


class Sums(NamedTuple):
    """How the nodes of a level get their zone sums.

    Attributes
    ----------
    slots : ndarray of int64, shape (n_slots, n_columns, 256, 2 or 3)
    size_shift : int
    summed : ndarray of int64, shape (n, 3)
        Nodes to be summed: first and last in-sample place, slot.
    subtracted : ndarray of int64, shape (n, 2)
        Slots from which another is taken away: the larger child's (its parent's until then), the smaller child's.
    """

    slots: NDArray[np.int64]
    size_shift: int
    summed: NDArray[np.int64]
    subtracted: NDArray[np.int64]


@inner_kernel
def _sum_node(zone_map, which, partition, start, mid, slot, size_shift):
    """Sum a node's in-sample rows by the zones of some columns."""
    zone, rows, a, b = zone_map.zone, partition.rows, partition.a, partition.b
    for j in which:
        slot[j, : zone_map.n_zones[j] + 1] = 0
    if slot.shape[2] == 3:
        for i in range(start, mid):
            row = rows[i]
            g, h = a[i], b[i]
            packed = (((abs(g) >> size_shift) + 1) << 32) + 1
            for j in which:
                element = slot[j, zone[row, j]]
                element[0] += g
                element[1] += packed
                element[2] += h
    else:
        for i in range(start, mid):
            row = rows[i]
            g = a[i]
            packed = (((abs(g) >> size_shift) + 1) << 32) + 1
            for j in which:
                element = slot[j, zone[row, j]]
                element[0] += g
                element[1] += packed


@inner_kernel
def _subtract(zone_map, which, larger, smaller):
    for j in which:
        for z in range(zone_map.n_zones[j] + 1):
            for k in range(larger.shape[2]):
                larger[j, z, k] -= smaller[j, z, k]


@inner_kernel
def _unpack(element, n_zones, merge, size_shift, zones):
    """Write a column's zone sums, ``1 << merge`` zones taken together, to ``zones``; return how many zones, and the missing sums."""
    n = ((n_zones - 1) >> merge) + 1
    for z in range(n):
        zones[z].a = 0
        zones[z].size = 0
        zones[z].b = 0
        zones[z].n = 0
    weighted = element.shape[1] == 3
    for z in range(n_zones):
        zone = zones[z >> merge]
        packed = element[z, 1]
        count = packed & 0xFFFFFFFF
        zone.a += element[z, 0]
        zone.size += (packed >> 32) << size_shift
        zone.b += element[z, 2] if weighted else count
        zone.n += count
    n_miss = element[n_zones, 1] & 0xFFFFFFFF
    return n, (element[n_zones, 0], element[n_zones, 2] if weighted else n_miss, n_miss)


@inner_kernel
def _merge_of(n_rows, n_zones):
    """Return by how many bits zones are merged: a node of few rows does well with few."""
    merge = 0
    while merge < 3 and (n_zones >> merge) > 32 and (n_zones >> merge) * 4 > n_rows:
        merge += 1
    return merge


@kernel
def search_level(columns, column_ids, zone_map, which, partition, sums, nodes, node_sums, limits, bars, scratch, out):
    """Find the best splits of nodes in some columns.

    Parameters
    ----------
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
    zone_map : ZoneMap
    which : ndarray of int64
        The columns to search.
    partition : RowPartition
    sums : Sums
    nodes : ndarray of int64, shape (n_nodes, 3)
        First and last in-sample place, and slot, of the nodes to be searched.
    node_sums : ndarray of int64, shape (n_nodes, 2)
    limits : Limits
    bars : ndarray of float64, shape (n_nodes,)
        The best score known of each node, -1.0 at first; shared by all threads.
    scratch : Scratch
    out : Candidates
        Candidate of node i and column j at ``i * n_columns + j``.
    """
    slots = sums.slots
    for i in range(sums.summed.shape[0]):
        start, mid, slot = sums.summed[i]
        _sum_node(zone_map, which, partition, start, mid, slots[slot], sums.size_shift)
    for i in range(sums.subtracted.shape[0]):
        larger, smaller = sums.subtracted[i]
        _subtract(zone_map, which, slots[larger], slots[smaller])
    n_columns = zone_map.shift.shape[0]
    zones = scratch.zones
    for i in range(nodes.shape[0]):
        start, mid, slot = nodes[i]
        node = (node_sums[i, 0], node_sums[i, 1], mid - start)
        for j in which:
            t = i * n_columns + j
            record = out.records[t]
            column = np.int64(column_ids[j])
            record.column = column
            record.status = CONSTANT
            if zone_map.n_zones[j] == 0:
                continue
            merge = _merge_of(mid - start, zone_map.n_zones[j])
            n_zones, missing = _unpack(slots[slot, j], zone_map.n_zones[j], merge, sums.size_shift, zones)
            present = accumulate_zones(zones, n_zones)
            exact = zone_map.shift[j] + merge == 0
            if present + (missing[2] > 0) < 2 and (exact or is_constant(columns.codes[j], partition.rows, start, mid)):
                continue
            record.status = NO_SPLIT
            if exact:
                score = _sweep_values(limits, zones, n_zones, missing, node, scratch)
                if score >= 0.0:
                    values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
                    complete(values, column, node[2], node_sums[i], limits, score, missing[2] > 0, scratch, out, t)
                    if record.status == SPLIT:
                        bars[i] = max(bars[i], score)
            else:
                bars[i] = max(bars[i], best_edge(limits, zones, n_zones, missing, node, bars[i]))
    for i in range(nodes.shape[0]):
        done = ZERO()
        while done < which.shape[0]:
            done = _scan_columns(
                columns, column_ids, zone_map, which, done, partition, sums, nodes[i], node_sums[i], limits, bars, i, scratch, out
            )


@inner_kernel
def _scan_columns(columns, column_ids, zone_map, which, done, partition, sums, place, node_sums, limits, bars, i, scratch, out):
    """Scan the flagged zones of one node in some columns, from ``which[done]`` on; return how many are done then.

    The rows to be scanned are picked for all these columns in one pass.
    """
    start, mid, slot = place
    node = (node_sums[0], node_sums[1], mid - start)
    zones, flags, picks = scratch.zones, scratch.flags, scratch.picks
    n_columns = zone_map.shift.shape[0]
    n_picked = 0
    room = scratch.keys.shape[0]
    used = 0
    while done < which.shape[0] and n_picked < PICKS:
        j = which[done]
        merge = _merge_of(mid - start, zone_map.n_zones[j])
        if out.records[i * n_columns + j].status != CONSTANT and zone_map.shift[j] + merge > 0:
            n_zones, missing = _unpack(sums.slots[slot, j], zone_map.n_zones[j], merge, sums.size_shift, zones)
            accumulate_zones(zones, n_zones)
            m = flag_zones(limits, zones, n_zones, missing, node, _below(bars[i]), scratch.bounds)
            if m > 0:
                if used + m + 1 > room:
                    break
                for z in range(zone_map.n_zones[j]):
                    flags[n_picked, z] = zones[z >> merge].flag
                flags[n_picked, zone_map.n_zones[j]] = 0
                picks[n_picked, 0], picks[n_picked, 1], picks[n_picked, 2] = j, used, used
                used += m + 1  # one more, for what is written and not kept
                n_picked += 1
        done += 1
    if n_picked == 0:
        return done
    keys, rows, zone = scratch.keys, partition.rows, zone_map.zone
    for k in range(start, mid):
        row = rows[k]
        for q in range(n_picked):
            keys[picks[q, 2]] = k - start
            picks[q, 2] += flags[q, zone[row, picks[q, 0]]]
    for q in range(n_picked):
        j, first, last = picks[q]
        codes = columns.codes[j]
        values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
        for k in range(first, last):
            keys[k] |= np.uint64(codes[rows[start + np.int64(keys[k])]]) << np.uint64(32)
        merge = _merge_of(mid - start, zone_map.n_zones[j])
        n_zones, missing = _unpack(sums.slots[slot, j], zone_map.n_zones[j], merge, sums.size_shift, zones)
        accumulate_zones(zones, n_zones)
        shift = zone_map.shift[j] + merge
        score = scan_picked(
            codes, values.shape[0], shift, partition, start, mid, limits, missing, node, _below(bars[i]), keys[first:last], scratch
        )
        if score >= 0.0:
            t = i * n_columns + j
            complete(values, np.int64(column_ids[j]), node[2], node_sums, limits, score, missing[2] > 0, scratch, out, t)
            bars[i] = max(bars[i], score)
    return done


@inner_kernel
def _below(bar):
    """Return a bar that a tie passes: it may be in a lower column."""
    return np.nextafter(bar, -np.inf) if bar >= 0.0 else bar


@inner_kernel
def _sweep_values(limits, zones, n_zones, missing, node, scratch):
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
    return sweep_moments(limits, groups, m, missing, node, -1.0, scratch.best)
