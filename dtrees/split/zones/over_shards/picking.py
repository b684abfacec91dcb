"""The rows of a shard in flagged parts of its nodes, as values in ascending order."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.table.columns import value_of_code
from dtrees.split.table.part_lists import are_listed, take_listed
from dtrees.split.table.sorting import sort_keys
from dtrees.split.zones.gather_rows import pick

_PLACE = np.uint64(0xFFFFFFFF)


@kernel
def pick_rows(
    queue, tasks, parts, begins, columns, zone_map, lists, partition, scratch, kept, finer, kept_rooms, kept_counts, rooms, values, g, h, n,
    counts,
):  # fmt: skip
    """Write the values of rows in flagged parts, ascending, each with the sums of its rows, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column of the zone map, by how much parts are shifted, and into how many finer ones flagged parts
        have been cut, 0 if they have not.
    parts, begins : ndarray of int64
        The parts of task k are ``parts[begins[k]:begins[k + 1]]``; finer ones have the numbers that
        :func:`~dtrees.split.zones.over_shards.finer_parts.sum_finer` gives them.
    zone_map : ZoneMap
        Of the shard's own rows.
    lists : PartLists
        Of these, or none.
    kept, finer, kept_rooms, kept_counts : ndarray
        Where parts have been cut, what :func:`~dtrees.split.zones.over_shards.finer_parts.sum_finer` has left.
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
        elif are_listed(lists, column, shift, wanted, stop - start):
            n_keys = take_listed(lists, column, shift, wanted, start, stop, keys, scratch.numbers)
            _put_codes(keys[:n_keys], columns.codes[column])
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


@lean_kernel
def _put_codes(keys, codes):
    """Put the code of each row in its place in keys."""
    for i in range(keys.shape[0]):
        keys[i] = np.uint64(codes[keys[i] >> np.uint64(32)]) << np.uint64(32) | (keys[i] & _PLACE)


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
