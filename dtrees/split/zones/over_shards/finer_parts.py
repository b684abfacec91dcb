"""Finer parts for nodes whose rows are spread over shards: sums by them, and the flagged rows that remain.

The scores of a column are often nearly constant around the best split: parts with a tenth of its rows may hold a better one than the
bar. It is faster to divide each flagged part into parts of equal width (by values, so that shards agree), to add sums of these and to
bound them, than to send all its rows. Only rows in finer parts that may exceed the bar are sent. As with zones, edges do not decide the
split.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.memory import prefetch
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.statistics import G0, H0, N0, N1, Moments
from dtrees.split.policy import AHEAD
from dtrees.split.table.columns import lowest_key, value_by_key
from dtrees.split.table.keyed_columns import are_listed, take_listed
from dtrees.split.table.sorting import PLACE
from dtrees.split.zones.bounds import best_edge, flag_zones, part_arrays
from dtrees.split.zones.over_shards.own_rows import pick_parts
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import element_of, slope_of

#: Fewest and most cells that codes between the first and the last flagged part of a column are mapped to, to find their part.
_CELLS = 256, 2**15


class _FinerSums(NamedTuple):
    """The buffers for a task's finer sums, and for the keys of its rows."""

    ranges: NDArray[np.float64]
    cut: np.uint64
    size_shift: int
    keys: NDArray[np.uint64]
    finer: NDArray[np.uint16]
    sums: NDArray[np.int64]


@by_reference
class RefinedParts(NamedTuple):
    """Finer parts that remain flagged.

    Attributes
    ----------
    offsets : ndarray of int64, shape (n_tasks,)
        Start of the buffer of each task.
    numbers : ndarray of uint16
        Numbers of parts, or of finer parts.
    parts : ndarray of FLAGGED
    """

    offsets: NDArray[np.int64]
    numbers: NDArray[np.uint16]
    parts: NDArray[Any]


@kernel
def sum_finer(queue, wanted, ranges, rows, scratch, size_shift, firsts, kept, sums):
    """Sum rows in flagged parts of nodes by finer parts, and store the rows' keys, by several threads.

    Parameters
    ----------
    wanted : PartTasks
        Tasks that are not divided are skipped.
    ranges : ndarray of float64, shape (n_parts, 2)
        The lowest value of each part, and the number of finer parts for each unit of value.
    rows : ShardRows
    size_shift : int
        The shift of sizes that are packed.
    firsts : ndarray of int64, shape (n,)
        Start of the sums of each task.
    kept : StoredRows
        Written, except its offsets.
    sums : ndarray of int64, shape (n_finer, width)
        Elements, as in slots (:mod:`dtrees.split.zones.sums`), that rows are added to.
    """
    lists, begins = rows.lists, wanted.begins
    for k in claimed(queue, wanted.tasks.shape[0]):
        start, stop, j, shift, cut = wanted.tasks[k]
        kept.counts[k] = 0
        if cut > 0 and begins[k] < begins[k + 1]:
            parts, column, offset = wanted.parts[begins[k] : begins[k + 1]], rows.zone_map.which[j], kept.offsets[k]
            own = sums[firsts[k] : firsts[k] + cut * parts.shape[0]]
            to = _FinerSums(ranges[begins[k] : begins[k + 1]], np.uint64(cut), size_shift, kept.keys[offset:], kept.finer[offset:], own)
            if are_listed(lists, column, shift, parts, stop - start):
                take_listed(lists, column, shift, parts, start, stop, scratch.keys, scratch.numbers)
                kept.counts[k] = _sum_listed(scratch.keys, scratch.numbers[: parts.shape[0]], rows, column, start, to)
                continue
            n_keys = pick_parts((start, stop, j, shift), parts, rows, scratch)
            by = _note_parts(rows.zone_map.first_codes[j], shift, parts, n_keys, scratch.cuts, scratch.part_of)
            cuts = scratch.cuts[:, : parts.shape[0]]
            kept.counts[k] = _sum_keys(scratch.keys[:n_keys], cuts, scratch.part_of, by, rows, column, start, to)


@lean_kernel
def _note_parts(first_codes, shift, parts, n_keys, cuts, cells):
    """Write the codes at which parts begin and end to ``cuts``, and the first part that ends in or after each cell to ``cells``.

    Codes that are equal after the returned shift are in one cell; there are more cells if more keys are looked up.
    """
    n = parts.shape[0]
    for p in range(n):
        cuts[0, p], cuts[1, p] = first_codes[parts[p] << shift], first_codes[(parts[p] + 1) << shift]
    first, by, cell, most = cuts[0, 0], ZERO(), ZERO(), max(_CELLS[0], min(n_keys >> 1, _CELLS[1]))
    while (cuts[1, n - 1] - first) >> by >= most:
        by += 1
    for p in range(n):
        end = max(cell, ((cuts[1, p] - first - 1) >> by) + 1)
        for i in range(np.uint64(cell), np.uint64(end)):
            cells[i] = p
        cell = end
    cells[cell] = cells[cell + 1] = n - 1
    return by


@inlined_kernel
def _add_row(to, at, key, number, partition, place):
    """Store a row's key and finer part at an index, and add the row to the sums of that part."""
    sums, g, h = to.sums, partition.g[place], partition.h
    to.keys[at], to.finer[at] = key, number
    sums[number, 0] += g
    sums[number, 1] += (((abs(g) >> to.size_shift) + 1) << 32) + 1
    if h.shape[0] > 0:
        sums[number, 2] += h[place]


@lean_kernel
def _sum_keys(keys, cuts, cells, by, rows, column, start, to):
    """Store the keys in parts, write their finer parts, and add the rows of each; return the number of these keys.

    ``cuts`` are the first code of each part, and the code after it; ``cells`` are written by :func:`_note_parts`.
    """
    at, one, final = np.uint64(0), np.uint64(1), np.uint64(max(1, keys.shape[0]) - 1)
    first, stop, by = np.uint64(cuts[0, 0]), np.uint64(cuts[1, cuts.shape[1] - 1]), np.uint64(by)
    firsts, lasts, ranges, cut = cuts[0], cuts[1], to.ranges, to.cut
    columns, g, start, lowest = rows.columns, rows.partition.g, np.uint64(start), lowest_key(rows.columns, column)
    for k in range(np.uint64(keys.shape[0])):
        prefetch(g, np.int64(start + (keys[min(k + np.uint64(AHEAD), final)] & PLACE)))
        key = keys[k]
        code = key >> np.uint64(32)
        if code < first or code >= stop:
            continue
        cell = (code - first) >> by
        part = np.uint64(cells[cell])
        n = np.uint64(cells[cell + one]) - part
        while n > 0:  # the first part that ends after the code; there is one
            half = (n + one) >> one
            part += half * np.uint64(code >= np.uint64(lasts[part + half - one]))
            n -= half
        if code < np.uint64(firsts[part]):
            continue
        value, place = value_by_key(columns, column, lowest, code), start + (key & PLACE)
        number = part * cut + np.uint64(finer_part(value, ranges[part, 0], ranges[part, 1], cut))
        _add_row(to, at, key, number, rows.partition, place)
        at += one
    return np.int64(at)


@lean_kernel
def _sum_listed(keys, ends, rows, column, start, to):
    """Do the same as :func:`_sum_keys` for keys with rows in place of codes, sorted by part; ``ends`` has the end of each part."""
    at, columns, ranges, cut = np.uint64(0), rows.columns, to.ranges, to.cut
    codes, g, start, lowest = columns.codes[column], rows.partition.g, np.uint64(start), lowest_key(columns, column)
    n = np.uint64(ends[ends.shape[0] - 1])
    final = n - np.uint64(1)
    for p in range(ends.shape[0]):
        low, scale, first = ranges[p, 0], ranges[p, 1], np.uint64(p) * cut
        for i in range(at, np.uint64(ends[p])):
            ahead = keys[min(i + np.uint64(AHEAD), final)]
            prefetch(g, np.int64(start + (ahead & PLACE)))
            prefetch(codes, np.int64(ahead >> np.uint64(32)))
            place, code = keys[i] & PLACE, np.uint64(codes[keys[i] >> np.uint64(32)])
            number = first + np.uint64(finer_part(value_by_key(columns, column, lowest, code), low, scale, cut))
            _add_row(to, i, code << np.uint64(32) | place, number, rows.partition, start + place)
        at = np.uint64(ends[p])
    return np.int64(n)


@lean_kernel
def finer_part(value, low, scale, n):
    """Return which of ``n`` finer parts a value is in. It increases with the value for any scale that is not negative."""
    x = (value - low) * scale
    return np.int64(min(x, n - 1.0)) if x > 0.0 else ZERO()


@kernel
def refine_nodes(queue, tasks, nodes, limits, scratch, flags, finer, refined, failed):
    """Flag finer parts by their sums, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 3)
        A node, a column, and the number of finer parts of each flagged part, 0 if they are not divided: these are bounded again, as the
        best known score may have increased. So they should come last.
    nodes : SearchedNodes
    flags : Flags
        The parts flagged first. Requests are updated: their flagged parts, and the bar.
    finer : tuple of ndarray of int64
        Start of the finer parts of each task, and the sums of all shards by finer parts, in the form of :func:`sum_finer`.
    refined : RefinedParts
        Written, except its offsets.
    failed : ndarray of int64, shape (1,)
        Set to 1 if the sums by finer parts do not belong to the rows of the parts.
    """
    zone_map, sums, bars, (firsts, totals) = nodes.zone_map, nodes.sums, nodes.bars, finer
    for t in claimed(queue, tasks.shape[0]):
        i, j, cut = tasks[t]
        request, at = flags.requests[i, j], refined.offsets[t]
        some = flags.parts[request.first : request.last]
        node = Moments(nodes.node_sums[i, 0], nodes.node_sums[i, 1], nodes.n_rows[i])
        missing = Moments(request.missing_g, request.missing_h, request.missing_n)
        outlined, numbers, shift = scratch.sums, scratch.numbers, sums.scales[i].shift
        if some.shape[0] > 0 and (request.bar < 0.0 or zone_map.by_category[j]):
            for p in range(some.shape[0]):  # all parts in turn
                refined.parts[at + p], refined.numbers[at + p] = some[p], some[p].part
            request.first, request.last = at, at + some.shape[0]
        else:
            begin_column(limits.criterion, nodes.node_sums[i], np.int64(nodes.column_ids[zone_map.which[j]]))
            bar = max(request.bar, below(bars[i])) if bars[i] >= 0.0 else request.bar
            parts, first = scratch.cuts[0], firsts[t]
            for p in range(some.shape[0]):
                parts[p] = p if cut > 0 else some[p].part
            element = totals[first : first + cut * some.shape[0]] if cut > 0 else element_of(sums, i, j)
            n = part_arrays(element, max(1, cut), shift, some, parts, some.shape[0], outlined, numbers)
            if n < 0:
                failed[0], n = 1, ZERO()
            if cut > 0:
                edge = best_edge(limits, outlined, n, missing, node, bar, scratch.scores)
                if edge > bar:
                    bars[i] = max(bars[i], edge)
                    bar = below(edge)
            n = flag_zones(limits, outlined, n, missing, node, bar, ZERO(), slope_of(limits, sums.scales[i]), numbers, scratch.flags)
            request.first, request.last, request.bar, request.n_rows = at, at + n, bar, 0
            for z in range(n):
                one, before = refined.parts[at + z], outlined[N0, z]
                refined.numbers[at + z], one.part = numbers[z], some[numbers[z] // cut].part if cut > 0 else numbers[z]
                one.g_before, one.h_before, one.n_before, one.n = outlined[G0, z], outlined[H0, z], before, outlined[N1, z] - before
                request.n_rows += one.n
