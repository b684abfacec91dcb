"""The best split of nodes in columns.

:func:`search_column` is the one place where a split is found: one node, one column, exact or with the random threshold of Extra-Trees.
The level-by-level engine maps :func:`search_many` over threads; the subtree kernel calls :func:`search_column` itself.

A *candidate* is the best split found in one column; :class:`Candidates` holds many, a structure of arrays. Candidates are ordered by
larger gain, then lower column (:func:`is_better`); within a column the sweep sees to the rest of the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dtrees.split.criteria import NEWTON, gain_classes, gain_moments, score_classes, score_moments
from dtrees.split.group import Groups, group_by_bins, group_by_sorting, prefers_bins, sorted_places
from dtrees.split.hashing import draw, uniform
from dtrees.split.sweep import sweep_classes, sweep_moments

#: The column has one value in this node (and none missing, or all).
CONSTANT = 0
#: The column varies, but no split is allowed.
NO_SPLIT = 1
#: There is a split.
SPLIT = 2


class Candidates(NamedTuple):
    """Best splits, one for each pair of a node and a column.

    Attributes
    ----------
    status : ndarray of int8, shape (n,)
        CONSTANT, NO_SPLIT or SPLIT; what follows is defined for SPLIT only.
    column : ndarray of int32, shape (n,)
    gain, threshold : ndarray of float64, shape (n,)
        Gain in fixed-point units; rows with values up to the threshold go left.
    cut : ndarray of int64, shape (n,)
        The highest code of the column whose value is at most the threshold.
    missing_left : ndarray of bool, shape (n,)
    n_left : ndarray of int64, shape (n,)
        In-sample rows going left.
    left : ndarray of int64, shape (n, n_sums)
        Their sums.
    """

    status: NDArray[np.int8]
    column: NDArray[np.int32]
    gain: NDArray[np.float64]
    threshold: NDArray[np.float64]
    cut: NDArray[np.int64]
    missing_left: NDArray[np.bool_]
    n_left: NDArray[np.int64]
    left: NDArray[np.int64]


def empty_candidates(n: int, n_sums: int) -> Candidates:
    """Return room for ``n`` candidates, all CONSTANT."""
    return Candidates(
        np.zeros(n, np.int8),
        np.full(n, -1, np.int32),
        np.zeros(n),
        np.zeros(n),
        np.zeros(n, np.int64),
        np.zeros(n, np.bool_),
        np.zeros(n, np.int64),
        np.zeros((n, n_sums), np.int64),
    )


class Scratch(NamedTuple):
    """What one thread needs to search; reused between calls.

    ``keys`` and ``spare`` have room for the rows that are sorted, ``groups`` for the distinct values of a column and one more.
    """

    groups: Groups
    keys: NDArray[np.uint64]
    spare: NDArray[np.uint64]
    best: NDArray[np.int64]
    classes: NDArray[np.int64]


def make_scratch(n_rows: int, max_distinct: int, n_classes: int) -> Scratch:
    """Return scratch space for nodes of up to ``n_rows`` rows and columns of up to ``max_distinct`` distinct values.

    Columns with many more distinct values than the node has rows are sorted rather than put in bins, so bins never number more than a
    few times the rows.
    """
    n_groups = min(max_distinct, 4 * n_rows) + 1
    n_keys = n_rows if n_classes else min(n_rows, max_distinct // 4 + 1)
    if n_classes:
        n_groups = 0
    groups = Groups(
        np.empty(n_groups, np.uint32), np.empty(n_groups, np.int64), np.empty(n_groups, np.int64), np.empty(n_groups, np.int64)
    )
    return Scratch(
        groups,
        np.empty(n_keys, np.uint64),
        np.empty(n_keys, np.uint64),
        np.zeros(6, np.int64),
        np.zeros((3, n_classes), np.int64),
    )


@njit(nogil=True, cache=True, inline="always")
def midpoint(low, high):
    """Return a threshold t with low <= t < high, halfway if floating point allows."""
    t = low / 2.0 + high / 2.0
    return t if low <= t < high else low


@njit(nogil=True, cache=True)
def highest_code_below(values, low, high, threshold):
    """Return the highest index in low..high with values[index] <= threshold, given that low is one."""
    while low < high:
        middle = (low + high + 1) // 2
        if np.float64(values[middle]) <= threshold:
            low = middle
        else:
            high = middle - 1
    return low


@njit(nogil=True, cache=True)
def search_column(codes, values, column, partition, start, mid, sums, limits, threshold_bits, scratch, out, t):
    """Find the best split of one node in one column and write it to place ``t`` of ``out``.

    Parameters
    ----------
    codes : ndarray of uint32, shape (n_rows,)
    values : ndarray of float32 or float64, shape (n_distinct,)
    column : int
        The column's number in the whole table.
    partition : RowPartition
    start, mid : int
        The node's in-sample rows.
    sums : ndarray of int64, shape (n_sums,)
        The node's.
    limits : Limits
    threshold_bits : uint64
        Random bits for this node and column (random thresholds only).
    scratch : Scratch
    out : Candidates
    """
    n_distinct = values.shape[0]
    out.column[t] = column
    if limits.random:
        found = _random_split(codes, values, partition, start, mid, sums, limits, threshold_bits, scratch, out, t)
    elif limits.n_classes > 0:
        found = _best_of_classes(codes, n_distinct, partition, start, mid, sums, limits, scratch, out, t)
    else:
        found = _best_of_moments(codes, n_distinct, partition, start, mid, sums, limits, scratch, out, t)
    status, score, has_missing = found
    out.status[t] = status
    if status != SPLIT:
        return
    best = scratch.best
    n_all = mid - start
    if not limits.random:
        if best[1] < 0:
            out.threshold[t] = np.inf
            out.cut[t] = n_distinct - 1
        else:
            out.threshold[t] = midpoint(np.float64(values[best[0]]), np.float64(values[best[1]]))
            out.cut[t] = highest_code_below(values, best[0], best[1] - 1, out.threshold[t])
    out.n_left[t] = best[5]
    # Where no value was missing, rows that miss it go with the majority.
    out.missing_left[t] = best[2] == 1 if has_missing else 2 * best[5] > n_all
    if limits.n_classes > 0:
        weight = 0
        for k in range(sums.shape[0]):
            weight += sums[k]
        out.gain[t] = gain_classes(limits.criterion, score, sums, weight)
    else:
        out.gain[t] = gain_moments(limits.criterion, score, float(sums[0]), float(sums[1]), limits.penalty)
    if out.gain[t] < limits.min_gain or (limits.criterion == NEWTON and out.gain[t] <= 0.0):
        out.status[t] = NO_SPLIT


@njit(nogil=True, cache=True)
def _best_of_moments(codes, n_distinct, partition, start, mid, sums, limits, scratch, out, t):
    groups = scratch.groups
    n_all = mid - start
    if prefers_bins(n_all, n_distinct):
        m, g, h, n = group_by_bins(codes, n_distinct, partition, start, mid, groups)
    else:
        m, g, h, n = group_by_sorting(codes, n_distinct, partition, start, mid, groups, scratch.keys, scratch.spare)
    if m == 0 or (m == 1 and n == 0):
        return CONSTANT, 0.0, False
    best = scratch.best
    score = sweep_moments(limits, groups, m, (g, h, n), (sums[0], sums[1], n_all), best)
    out.left[t, 0] = best[3]
    out.left[t, 1] = best[4]
    return SPLIT if score >= 0.0 else NO_SPLIT, score, n > 0


@njit(nogil=True, cache=True)
def _best_of_classes(codes, n_distinct, partition, start, mid, sums, limits, scratch, out, t):
    m = mid - start
    keys = sorted_places(codes, partition.rows, start, mid, scratch.keys, scratch.spare)
    missing_code = np.uint64(n_distinct)
    low = keys[0] >> np.uint64(32)
    high = keys[m - 1] >> np.uint64(32)
    if low == high:
        return CONSTANT, 0.0, False
    b = partition.b
    weights = b[start:mid] if b.shape[0] > 0 else b
    score = sweep_classes(
        limits,
        keys,
        m,
        partition.a[start:mid],
        weights,
        missing_code,
        sums,
        scratch.classes[0],
        scratch.classes[1],
        scratch.best,
        scratch.classes[2],
    )
    out.left[t] = scratch.classes[2]
    return SPLIT if score >= 0.0 else NO_SPLIT, score, high == missing_code


@njit(nogil=True, cache=True)
def _random_split(codes, values, partition, start, mid, sums, limits, bits, scratch, out, t):
    """Try the threshold drawn uniformly between the node's extreme values (Geurts, Ernst and Wehenkel, 2006)."""
    rows, a, b = partition.rows, partition.a, partition.b
    n_distinct = values.shape[0]
    low = n_distinct
    high = -1
    n_miss = 0
    for i in range(start, mid):
        code = np.int64(codes[rows[i]])
        if code == n_distinct:
            n_miss += 1
        else:
            low = min(low, code)
            high = max(high, code)
    if high < 0 or (low == high and n_miss == 0):
        return CONSTANT, 0.0, False
    n_all = mid - start
    threshold = np.inf
    cut = n_distinct - 1
    if low < high:
        v_low = np.float64(values[low])
        v_high = np.float64(values[high])
        u = uniform(bits)
        threshold = v_low * (1.0 - u) + v_high * u
        if not v_low <= threshold < v_high:
            threshold = v_low
        cut = highest_code_below(values, low, high - 1, threshold)
    out.threshold[t] = threshold
    out.cut[t] = cut
    left = scratch.classes[0]
    missing = scratch.classes[1]
    n_classes = limits.n_classes
    left[:] = 0
    missing[:] = 0
    g = h = n = g_miss = h_miss = 0
    for i in range(start, mid):
        code = np.int64(codes[rows[i]])
        w = b[i] if b.shape[0] > 0 else 1
        if code == n_distinct:
            if n_classes > 0:
                missing[a[i]] += w
            else:
                g_miss += a[i]
            h_miss += w
        elif code <= cut:
            if n_classes > 0:
                left[a[i]] += w
            else:
                g += a[i]
            h += w
            n += 1
    total = 0
    if n_classes > 0:
        for k in range(n_classes):
            total += sums[k]
    else:
        total = sums[1]
    best = scratch.best
    top = -1.0
    for side in range(2):
        if side == 0:
            if n_miss == 0 or low == high:
                continue
            gl, hl, nl = g + g_miss, h + h_miss, n + n_miss
            for k in range(n_classes):
                left[k] += missing[k]
        else:
            gl, hl, nl = g, h, n
            if n_miss > 0 and low < high:
                for k in range(n_classes):
                    left[k] -= missing[k]
        if nl < limits.min_samples or n_all - nl < limits.min_samples:
            continue
        if hl < limits.min_weight or total - hl < limits.min_weight:
            continue
        if n_classes > 0:
            score = score_classes(limits.criterion, left, sums, hl, total)
        else:
            score = score_moments(
                limits.criterion, float(gl), float(hl), float(sums[0] - gl), float(total - hl), limits.penalty
            )
        if score > top:
            top = score
            best[2] = 1 - side
            best[5] = nl
            if n_classes > 0:
                out.left[t] = left
            else:
                out.left[t, 0] = gl
                out.left[t, 1] = hl
    return SPLIT if top >= 0.0 else NO_SPLIT, top, n_miss > 0


@njit(nogil=True, cache=True)
def search_many(columns, column_ids, tasks, first, last, partition, starts, mids, sums, limits, key, paths, scratch, out):
    """Search the pairs of node and column ``tasks[first:last]`` and write each candidate at its place in ``out``.

    Parameters
    ----------
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns in the whole table.
    tasks : ndarray of int64, shape (n_tasks, 2)
        Node (index into ``starts``) and column (index into ``columns``).
    starts, mids : ndarray of int64, shape (n_nodes,)
    sums : ndarray of int64, shape (n_nodes, n_sums)
    key : uint64
        Of the tree's stream of random thresholds.
    paths : ndarray of uint64, shape (n_nodes,)
    """
    for t in range(first, last):
        node, j = tasks[t, 0], tasks[t, 1]
        column = column_ids[j]
        search_column(
            columns.codes[j],
            columns.values[columns.offsets[j] : columns.offsets[j + 1]],
            column,
            partition,
            starts[node],
            mids[node],
            sums[node],
            limits,
            draw(np.uint64(key) ^ paths[node], column),
            scratch,
            out,
            t,
        )


@njit(nogil=True, cache=True, inline="always")
def is_better(candidates, i, j):
    """Tell whether candidate i comes before j in the order of splits."""
    if candidates.status[i] != SPLIT or candidates.status[j] != SPLIT:
        return candidates.status[i] > candidates.status[j]
    if candidates.gain[i] != candidates.gain[j]:
        return candidates.gain[i] > candidates.gain[j]
    return candidates.column[i] < candidates.column[j]


@njit(nogil=True, cache=True)
def copy_candidate(source, i, target, j):
    """Copy one candidate."""
    target.status[j] = source.status[i]
    target.column[j] = source.column[i]
    target.gain[j] = source.gain[i]
    target.threshold[j] = source.threshold[i]
    target.cut[j] = source.cut[i]
    target.missing_left[j] = source.missing_left[i]
    target.n_left[j] = source.n_left[i]
    for k in range(source.left.shape[1]):
        target.left[j, k] = source.left[i, k]


@njit(nogil=True, cache=True)
def best_by_node(candidates, nodes, best):
    """Reduce candidates to the best of each node: candidate i belongs to node ``nodes[i]``, an index into ``best``.

    ``best`` starts with :func:`empty_candidates` or an earlier result.
    """
    for i in range(nodes.shape[0]):
        k = nodes[i]
        if best.column[k] < 0:
            better = True
        elif candidates.status[i] == SPLIT and best.status[k] == SPLIT:
            same = candidates.gain[i] == best.gain[k]
            better = candidates.column[i] < best.column[k] if same else candidates.gain[i] > best.gain[k]
        else:
            better = candidates.status[i] > best.status[k]
        if better:
            copy_candidate(candidates, i, best, k)
