"""The best split among the rows that shards picked in flagged parts, which the searcher merges and sweeps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import Moments, nothing
from dtrees.split.node.records import NO_SPLIT, NONE_HIGHER, UNKNOWN
from dtrees.split.search.sweep import cut_after
from dtrees.split.zones.over_shards.node_sums import plus_element, rows_of_element, statistic_of
from dtrees.split.zones.over_shards.records import ValueElements, ValueSums, add_value, note_split, open_value
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import element_of, n_elements


@by_reference
class RowsSent(NamedTuple):
    """The rows that shards have sent, and a buffer to merge them in.

    Attributes
    ----------
    runs : ValueSums or ValueElements
        The values of all shards, concatenated.
    begins : ndarray of int64, shape (n_shards, n + 1)
        Ranges of each task.
    offsets : ndarray of int64, shape (n,)
        Start of the buffer in ``merged`` for each task.
    merged : ValueSums or ValueElements
    """

    runs: ValueSums | ValueElements
    begins: NDArray[np.int64]
    offsets: NDArray[np.int64]
    merged: ValueSums | ValueElements


@kernel
def scan_rows(queue, tasks, nodes, limits, scratch, flags, sent, splits, failed):
    """Find the best splits of nodes in columns from the rows that shards picked in flagged parts, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 2)
        A node and a column.
    nodes : SearchedNodes
    flags : Flags
        The flags of a batch; the best scores in it are stored in requests.
    sent : RowsSent
    splits : ColumnSplits
        Written.
    failed : ndarray of int64, shape (1,)
        Set to 1 if the rows do not belong to the sums.
    """
    k, bars = nodes.zone_map.which.shape[0], nodes.bars
    heads = np.empty(sent.begins.shape[0], np.int64)
    for task in claimed(queue, tasks.shape[0]):
        i, j = tasks[task]
        request, t = flags.requests[i, j], i * k + j
        column = np.int64(nodes.column_ids[nodes.zone_map.which[j]])
        begin_column(limits.criterion, nodes.node_sums[i], column)
        base = sent.offsets[task]
        end = base + _merge(sent, task, heads)
        bar = max(request.best, max(request.bar, below(bars[i])) if bars[i] >= 0.0 else request.bar)
        score, cut, above, has_missing = _sweep(sent.merged, base, end, nodes, (i, j), limits, flags, bar, scratch, failed)
        if end - base > 1 and request.best < 0.0:
            splits.candidates.records[t].status = NO_SPLIT
        if score >= 0.0:
            request.best = score
            note_split(nodes, i, column, limits, score, cut, above, has_missing, scratch.found, splits, t)


@lean_kernel
def _least_head(values, heads, ends):
    """Return the least of the next values of ascending runs, and whether any run has values left."""
    least, some = np.inf, False
    for shard in range(heads.shape[0]):
        if heads[shard] < ends[shard] and (not some or values[heads[shard]] < least):
            least, some = values[heads[shard]], True
    return least, some


@lean_kernel
def _merge(sent, task, heads):
    """Merge the ascending runs of a task and combine equal values; return the number of values."""
    runs, merged, ends, base = sent.runs, sent.merged, sent.begins[:, task + 1], sent.offsets[task]
    for shard in range(heads.shape[0]):
        heads[shard] = sent.begins[shard, task]
    at = base
    while True:
        least, some = _least_head(runs.values, heads, ends)
        if not some:
            return at - base
        open_value(merged, at, least)
        for shard in range(heads.shape[0]):
            head = heads[shard]
            if head < ends[shard] and runs.values[head] == least:
                add_value(merged, at, runs, head)
                heads[shard] += 1
        at += 1


@specialised
def _sweep(merged: Any, base: Any, end: Any, nodes: Any, place: Any, limits: Any, flags: Any, bar: Any, scratch: Any, failed: Any) -> Any:
    """Find the best split after a value of the flagged parts ``base:end``, or after parts of a single value.

    ``place`` is a node and a column. Returns its score, -1.0 if none is above the bar, the value before it, the next one (infinite if
    there is none, NaN if it is unknown), and whether values are missing.
    """


@_sweep.of(ValueSums)
def _(merged, base, end, nodes, place, limits, flags, bar, scratch, failed):
    i, j = place
    zone_map, request, found = nodes.zone_map, flags.requests[i, j], scratch.found
    first_codes, shift, flagged = zone_map.first_codes[j], zone_map.fold - nodes.sums.grains[i], flags.parts[request.first : request.last]
    node = Moments(nodes.node_sums[i, 0], nodes.node_sums[i, 1], nodes.n_rows[i])
    missing = Moments(request.missing_g, request.missing_h, request.missing_n)
    weighted, top, best, at, first, present = merged.h.shape[0] > 0, bar, NONE(), base, base, node.n - missing.n
    for p in range(flagged.shape[0]):
        part = flagged[p]
        left, stop = Moments(part.g_before, part.h_before, part.n_before), part.n_before + part.n
        if p == 0 or part.part != flagged[p - 1].part:  # finer parts of one part share its codes
            first = at
        while left.n < stop:
            if at >= end:
                failed[0] = 1
                return -1.0, np.nan, np.nan, False
            n = np.int64(merged.n[at])
            left = Moments(left.g + merged.g[at], left.h + (merged.h[at] if weighted else n), left.n + n)
            code = first_codes[part.part << shift] + (at - first)
            next_code = code + 1 if left.n < stop else NONE_HIGHER if left.n == present else UNKNOWN
            mine = cut_after(limits, left, missing, node, code, next_code, top, found.left, found)
            if mine > top:
                top, best = mine, at
            at += 1
        if left.n > stop:
            failed[0] = 1
            return -1.0, np.nan, np.nan, False
    if at != end:
        failed[0] = 1
    record, score = found.record[0], top if top > bar else -1.0
    part = _part_of_noted(request, first_codes[: zone_map.n_zones[j] << zone_map.fold], shift)
    if part >= 0 and (request.score > score or (request.score == score and request.code < record.code)):
        _restore(request, found)
        return request.score, nodes.upper[j, part], (np.inf if request.next_code == NONE_HIGHER else np.nan), missing.n > 0
    if score < 0.0:
        return score, np.nan, np.nan, False
    next_code = record.next_code
    above = np.inf if next_code == NONE_HIGHER else np.nan if next_code == UNKNOWN else merged.values[best + 1]
    return score, merged.values[best], above, missing.n > 0


@lean_kernel
def _part_of_noted(request, first_codes, shift):
    """Return the finest part before the stored split, -1 if there is none, it is in another batch, or a better one is known."""
    if request.score < 0.0 or request.score <= request.best:
        return NONE()
    part = np.searchsorted(first_codes, request.code, side="right") - 1
    return part if request.first_part <= part >> shift < request.stop_part else NONE()


@lean_kernel
def _restore(request, found):
    """Restore a stored split as the split found."""
    record = found.record[0]
    record.code, record.next_code, record.n_left = request.code, request.next_code, request.n_left
    record.missing_left = request.missing_left
    found.left[0], found.left[1] = request.left_g, request.left_h


@_sweep.of(ValueElements)
def _(merged, base, end, nodes, place, limits, flags, bar, scratch, failed):
    i, j = place
    zone_map, request, found, buffer = nodes.zone_map, flags.requests[i, j], scratch.found, scratch.classes
    first_codes, shift, flagged = zone_map.first_codes[j], zone_map.fold - nodes.sums.grains[i], flags.parts[request.first : request.last]
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(zone_map, nodes.sums, i, j)
    node = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i])
    left, missing = nothing(node, buffer[0]), statistic_of(node, elements[n_parts], buffer[1])
    top, cut, above, at, f, present = bar, np.nan, np.nan, base, ZERO(), node.n - missing.n
    for p in range(min(n_parts, request.stop_part)):
        n = rows_of_element(node, elements[p])
        if n == 0:
            continue
        stop = left.n + n
        if f < flagged.shape[0] and flagged[f].part == p:
            f += 1
            while left.n < stop:
                if at >= end:
                    failed[0] = 1
                    return -1.0, np.nan, np.nan, False
                left = plus_element(left, merged.elements[at])
                next_code = NONE_HIGHER if left.n == present else UNKNOWN
                mine = cut_after(limits, left, missing, node, at, next_code, top, buffer[2], found)
                if mine > top:
                    top, cut = mine, merged.values[at]
                    above = np.inf if left.n == present else merged.values[at + 1] if left.n < stop else np.nan
                at += 1
            if left.n > stop:
                failed[0] = 1
                return -1.0, np.nan, np.nan, False
            continue
        left = plus_element(left, elements[p])
        if p >= request.first_part and first_codes[(p + 1) << shift] - first_codes[p << shift] == 1:
            next_code = NONE_HIGHER if left.n == present else UNKNOWN
            mine = cut_after(limits, left, missing, node, at, next_code, top, buffer[2], found)
            if mine > top:
                top, cut = mine, nodes.upper[j, p << shift]
                above = np.inf if left.n == present else np.nan
    if at != end or f != flagged.shape[0]:
        failed[0] = 1
    return (top if top > bar else -1.0), cut, above, missing.n > 0
