"""The best split among the rows that shards picked in flagged parts, merged by the searcher."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.found import NONE_HIGHER, UNKNOWN
from dtrees.split.node.status import NO_SPLIT, SPLIT
from dtrees.split.search.thresholds.sweep import cut_after
from dtrees.split.zones.over_shards.requests import note_candidate
from dtrees.split.zones.scan import below


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
            note_candidate(column, cut, node, node_sums[i], limits, score, missing.n > 0, scratch, out, t)
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
def least_head(values, heads, ends):
    """Return the least of the first values left of ascending runs, and whether any run has some left."""
    least, some = np.inf, False
    for shard in range(heads.shape[0]):
        if heads[shard] < ends[shard] and (not some or values[heads[shard]] < least):
            least, some = values[heads[shard]], True
    return least, some


@lean_kernel
def _merge(runs, heads, ends, base, merged):
    """Merge ascending runs, values that several have once; return how many values there are."""
    values, g, h, n = runs
    out_values, out_g, out_h, out_n = merged
    weighted = h.shape[0] > 0
    at = base
    while True:
        least, some = least_head(values, heads, ends)
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
