"""The rows of a shard in flagged parts of its nodes, as values in ascending order."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.table.columns import value_of_code
from dtrees.split.table.part_lists import are_listed, take_listed
from dtrees.split.table.sorting import sort_keys
from dtrees.split.zones.gather_rows import pick
from dtrees.split.zones.over_shards.value_sums import add_shard_row, open_value

_PLACE = np.uint64(0xFFFFFFFF)


@kernel
def pick_rows(queue, wanted, rows, scratch, kept, rooms, out, counts):
    """Write the values of rows in flagged parts, ascending, each with the sums of its rows, by several threads.

    Parameters
    ----------
    wanted : PartTasks
    rows : ShardRows
    kept : KeptRows
        Where parts have been cut, what :func:`~dtrees.split.zones.over_shards.finer_parts.sum_finer` has left.
    rooms : ndarray of int64, shape (n,)
        Where there is room for what each task writes to ``out``.
    out : ValueSums or ValueElements
        Written.
    counts : ndarray of int64, shape (n,)
        Written: how many values there are.
    """
    columns, zone_map, keys = rows.columns, rows.zone_map, scratch.keys
    while True:
        k = claim(queue)
        if k >= wanted.tasks.shape[0]:
            return
        start, stop, j, shift, cut = wanted.tasks[k]
        column, parts = zone_map.which[j], wanted.parts[wanted.begins[k] : wanted.begins[k + 1]]
        first_codes, n_parts = zone_map.first_codes[j], parts.shape[0]
        if cut > 0:
            n_keys = _take_flagged(parts, kept, k, scratch.flags, keys)
        elif are_listed(rows.lists, column, shift, parts, stop - start):
            n_keys = take_listed(rows.lists, column, shift, parts, start, stop, keys, scratch.numbers)
            _put_codes(keys[:n_keys], columns.codes[column])
        else:
            n_keys = pick_parts((start, stop, j, shift), parts, rows, scratch)
        sort_keys(keys, scratch.spare, n_keys, scratch.counts)
        at, before, p = rooms[k] - 1, NONE(), ZERO()
        for i in range(n_keys):
            code, place = np.int64(keys[i] >> np.uint64(32)), start + np.int64(keys[i] & _PLACE)
            if cut == 0:
                # Codes that are equal when shifted are picked together, and may be in several parts.
                while p < n_parts and code >= first_codes[(parts[p] + 1) << shift]:
                    p += 1
                if p == n_parts:
                    break
                if code < first_codes[parts[p] << shift]:
                    continue
            if code != before:
                at += 1
                before = code
                open_value(out, at, value_of_code(columns, column, code))
            add_shard_row(out, at, rows, place)
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
def _take_flagged(wanted, kept, task, flags, keys):
    """Copy those of the keys kept of a task that are in finer parts wanted to ``keys``; return how many there are."""
    if wanted.shape[0] == 0:
        return ZERO()
    flags[:] = 0
    for part in wanted:
        flags[part] = 1
    at, first = np.uint64(0), kept.rooms[task]
    for i in range(np.uint64(first), np.uint64(first + kept.counts[task])):
        keys[at] = kept.keys[i]
        at += np.uint64(flags[kept.finer[i]])
    return np.int64(at)


@inner_kernel
def pick_parts(task, parts, rows, scratch):
    """Write ``code << 32 | place`` of a node's rows in parts of a column to ``scratch.keys``, places from 0; return how many there are.

    Others with the same shifted codes may be among them. ``task`` are the first four numbers of a task of
    :class:`~dtrees.split.zones.over_shards.shard_rows.PartTasks`.
    """
    start, stop, j, shift = task
    zone_map, column = rows.zone_map, rows.zone_map.which[j]
    first_codes, n_distinct = zone_map.first_codes[j], rows.columns.offsets[column + 1] - rows.columns.offsets[column]
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
        rows.columns.codes[column], n_distinct, zone_map, j, shift, scratch.numbers[:m], rows.partition.rows[start:stop], scratch.keys,
        scratch,
    )  # fmt: skip
