"""The random threshold of Extra-Trees."""

from __future__ import annotations

import numpy as np

from dtrees.split.columns import highest_code_below
from dtrees.split.criteria import score_classes, score_moments
from dtrees.split.hashing import uniform
from dtrees.split.kernel import inner_kernel, kernel
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT


@inner_kernel
def draw_threshold(values, low, high, bits):
    """Draw a threshold between two codes present in a node; return it and the highest code that it sends left."""
    v_low = np.float64(values[low])
    v_high = np.float64(values[high])
    u = uniform(bits)
    threshold = v_low * (1.0 - u) + v_high * u
    if not v_low <= threshold < v_high:
        threshold = v_low
    return threshold, highest_code_below(values, low, high - 1, threshold)


@kernel
def search_random(codes, values, partition, start, mid, sums, limits, bits, bar, scratch):
    """Try the threshold drawn uniformly between the node's extreme values (Geurts, Ernst and Wehenkel, 2006).

    Parameters and result as of :func:`~dtrees.split.search.search_column`; ``bits`` are the random bits.
    """
    rows, a, b = partition.rows, partition.a, partition.b
    n_distinct = values.shape[0]
    low = np.int64(n_distinct)
    high = np.int64(-1)
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
        threshold, cut = draw_threshold(values, low, high, bits)
    n_classes = limits.n_classes
    left, missing, best_left = scratch.classes[0], scratch.classes[1], scratch.classes[3]
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
    top = bar
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
            score = score_moments(limits.criterion, float(gl), float(hl), float(sums[0] - gl), float(total - hl), limits.penalty)
        if score > top:
            top = score
            best[0], best[1], best[2], best[3], best[4], best[5] = cut, -1, 1 - side, gl, hl, nl
            scratch.threshold[0] = threshold
            for k in range(n_classes):
                best_left[k] = left[k]
    if top > bar:
        return SPLIT, top, n_miss > 0
    return NO_SPLIT, -1.0, n_miss > 0
