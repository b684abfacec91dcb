"""The random threshold of Extra-Trees.

Column by column in large nodes; in the nodes of a block (:mod:`dtrees.split.block`), whose values lie row by row, for all columns side by
side, which the compiler turns into vector instructions.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.columns import highest_code_below
from dtrees.split.criteria import ENTROPY, may_exceed, score_classes, score_moments, score_squares
from dtrees.split.hashing import draw_columns, mix, undraw_columns, uniform
from dtrees.split.kernel import ZERO, inlined_kernel, lean_kernel
from dtrees.split.lanes import add_left, add_missing, add_two_left, widen, widen_two
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.sweep import bar_for

#: Rows of a block's counts; see :func:`search_random_block`.
N_MISSING, N_LEFT, H_LEFT, LEFT = 0, 1, 2, 3


@lean_kernel
def draw_threshold(values, low, high, bits):
    """Draw a threshold between two codes present in a node; return it and the highest code that it sends left."""
    v_low = np.float64(values[low])
    v_high = np.float64(values[high])
    u = uniform(bits)
    threshold = v_low * (1.0 - u) + v_high * u
    if not v_low <= threshold < v_high:
        threshold = v_low
    return threshold, highest_code_below(values, low, high - 1, threshold)


@lean_kernel
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
    left, missing = scratch.classes[0], scratch.classes[1]
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
    top = _better_side(limits, (g, h, n), (g_miss, h_miss, n_miss), n_all, sums, low < high, cut, threshold, bar, scratch)
    return SPLIT if top >= 0.0 else NO_SPLIT, top, n_miss > 0


@lean_kernel
def _better_side(limits, left_sums, missing_sums, n_all, sums, varies, cut, threshold, bar, scratch):
    """Try a threshold with the missing rows on the left and on the right.

    ``left_sums`` and ``missing_sums`` are (G, H, count), in the class layout those by class are in ``scratch.classes[:2]``; ``varies`` is
    false where only the missing rows are split off. The better split goes to ``scratch``. Returns its score, -1.0 if none is above the bar.
    """
    g, h, n = left_sums
    g_miss, h_miss, n_miss = missing_sums
    n_classes = limits.n_classes
    left, missing, best_left = scratch.classes[0], scratch.classes[1], scratch.classes[3]
    total = sums[1] if n_classes == 0 else 0
    for k in range(n_classes):
        total += sums[k]
    best = scratch.best
    top = bar
    for side in range(2):
        if side == 0:
            if n_miss == 0 or not varies:
                continue
            gl, hl, nl = g + g_miss, h + h_miss, n + n_miss
            for k in range(n_classes):
                left[k] += missing[k]
        else:
            gl, hl, nl = g, h, n
            if n_miss > 0 and varies:
                for k in range(n_classes):
                    left[k] -= missing[k]
        if nl < limits.min_samples or n_all - nl < limits.min_samples:
            continue
        if hl < limits.min_weight or total - hl < limits.min_weight:
            continue
        if n_classes > 0:
            score = score_classes(limits.criterion, left, sums, hl, total)
        else:
            x, y, p, q = float(gl), float(sums[0] - gl), float(hl), float(total - hl)
            if not may_exceed(limits.criterion, x, p, y, q, limits.penalty, top):
                continue
            score = score_moments(limits.criterion, x, p, y, q, limits.penalty)
        if score > top:
            top = score
            best[0], best[1], best[2], best[3], best[4], best[5] = cut, -1, 1 - side, gl, hl, nl
            scratch.threshold[0] = threshold
            for k in range(n_classes):
                best_left[k] = left[k]
    return top if top > bar else -1.0


@inlined_kernel
def _find_extremes(cells, places, low, high, n_missing, has_missing):
    """Find the lowest and highest value of each column over some rows, and count the missing ones."""
    low[:] = np.inf
    high[:] = -np.inf
    n_missing[:] = 0
    n = places.shape[0]
    if n & 1:
        widen(cells[places[n - 1]], low, high)
    for i in range(0, n - 1, 2):
        widen_two(cells[places[i]], cells[places[i + 1]], low, high)
    if has_missing:
        for place in places:
            add_missing(cells[place], np.int64(1), n_missing)


@lean_kernel
def _draw_thresholds(low, high, key, identity, threshold):
    """Draw a threshold for each column, uniformly between its extremes; infinity where they are the same."""
    for j in range(threshold.shape[0]):
        u = uniform(mix(key ^ identity[j]))
        t = low[j] * (1.0 - u) + high[j] * u
        t = t if (low[j] <= t) & (t < high[j]) else low[j]
        threshold[j] = t if low[j] < high[j] else np.inf


@lean_kernel
def _sum_plain(cells, a, places, threshold, g_left, n_left):
    n = places.shape[0]
    one = np.int64(1)
    if n & 1:
        place = places[n - 1]
        add_left(cells[place], threshold, a[place], g_left, one, n_left)
    for i in range(0, n - 1, 2):
        x, y = places[i], places[i + 1]
        add_two_left(cells[x], cells[y], threshold, a[x], a[y], g_left, one, one, n_left)


@inlined_kernel
def _sum_sides(block, places, n_classes, has_missing):
    """Sum what goes left and what is missing, for all columns at once."""
    threshold, counts, weighted = block.reals[2], block.counts, block.b.shape[0] > 0
    h_missing = LEFT + max(n_classes, 1)
    counts[1:] = 0
    if n_classes == 0 and not weighted and not has_missing:
        _sum_plain(block.cells, block.a, places, threshold, counts[LEFT], counts[N_LEFT])
    else:
        for place in places:
            x, g = block.cells[place], block.a[place]
            h = block.b[place] if weighted else 1
            if n_classes > 0:
                add_left(x, threshold, np.int64(1), counts[N_LEFT], h, counts[LEFT + g])
            else:
                add_left(x, threshold, np.int64(1), counts[N_LEFT], g, counts[LEFT])
            if weighted:
                add_left(x, threshold, np.int64(0), counts[N_LEFT], h, counts[H_LEFT])
            if has_missing:
                add_missing(x, h, counts[h_missing])
                if n_classes > 0:
                    add_missing(x, h, counts[h_missing + 1 + g])
                else:
                    add_missing(x, g, counts[h_missing + 1])
    if not weighted:
        for j in range(threshold.shape[0]):
            counts[H_LEFT, j] = counts[N_LEFT, j]


@lean_kernel
def _score_moments(limits, sums, g, h, a, b, score):
    for j in range(score.shape[0]):
        a[j] = float(h[j]) + limits.penalty
        b[j] = float(sums[1] - h[j]) + limits.penalty
        score[j] = score_squares(float(g[j]), a[j], float(sums[0] - g[j]), b[j])


@lean_kernel
def _score_classes(total, whole, counts, h, a, b, score):
    for j in range(score.shape[0]):
        a[j] = float(h[j])
        b[j] = float(total - h[j])
        score[j] = 0.0
    for k in range(whole.shape[0]):
        left = counts[LEFT + k]
        for j in range(score.shape[0]):
            d = left[j] * b[j] - (whole[k] - left[j]) * a[j]
            score[j] += d * d
    for j in range(score.shape[0]):
        score[j] /= a[j] * b[j]


@inlined_kernel
def _score_columns(limits, n, sums, total, reals, counts):
    """Score the thresholds of all columns, missing rows on the right, as :func:`_better_side` where none is missing; not for entropy."""
    a, b, score, h, n_left = reals[3], reals[4], reals[5], counts[H_LEFT], counts[N_LEFT]
    if limits.n_classes > 0:
        _score_classes(total, sums, counts, h, a, b, score)
    else:
        _score_moments(limits, sums, counts[LEFT], h, a, b, score)
    least, lightest = limits.min_samples, limits.min_weight
    for j in range(score.shape[0]):
        found = score[j]
        allowed = (n_left[j] >= least) & (n - n_left[j] >= least) & (h[j] >= lightest) & (total - h[j] >= lightest)
        score[j] = found if allowed & (a[j] > 0.0) & (b[j] > 0.0) else -1.0


@lean_kernel
def _try_column(limits, n, sums, block, j, bar, scratch):
    """Try the threshold of one column both ways; see :func:`_better_side`."""
    low, high, threshold, counts = block.reals[0], block.reals[1], block.reals[2], block.counts
    missing = LEFT + max(limits.n_classes, 1)
    for k in range(limits.n_classes):
        scratch.classes[0, k], scratch.classes[1, k] = counts[LEFT + k, j], counts[missing + 1 + k, j]
    left_sums = counts[LEFT, j], counts[H_LEFT, j], counts[N_LEFT, j]
    missing_sums = counts[missing + 1, j], counts[missing, j], counts[N_MISSING, j]
    return _better_side(limits, left_sums, missing_sums, n, sums, low[j] < high[j], ZERO(), threshold[j], bar, scratch)


@inlined_kernel
def search_random_block(limits, max_features, keys, pool, block, first, last, sums, path, scratch):
    """Find the best of the random thresholds of a node of a block (:mod:`dtrees.split.block`), all columns side by side.

    The same thresholds and split as :func:`search_random` finds column by column. ``keys`` are those of the node's columns and of
    its thresholds. Rows of ``block.reals``: lowest and highest value, threshold, and scratch space; of ``block.counts``: missing rows, rows
    going left, their H, their other sums, then H and the other sums of the missing rows.

    Returns
    -------
    status, score, has_missing
        As :func:`~dtrees.split.search.search_column`.
    column : int
        Of the split.
    """
    reals, counts = block.reals, block.counts
    low, high, n_missing, columns_score = reals[0], reals[1], counts[N_MISSING], reals[5]
    places = block.places[first:last]
    n = last - first
    has_missing = block.has_missing[0] > 0
    n_columns = pool.shape[0]
    _find_extremes(block.cells, places, low, high, n_missing, has_missing)
    n_drawn = 0
    varied = False
    while n_drawn < n_columns and (n_drawn < max_features or not varied):
        if max_features < n_columns:
            draw_columns(keys[0], path, pool, n_drawn, n_drawn + 1)
        j = block.place_of[pool[n_drawn]]
        varied |= n_missing[j] < n and (low[j] < high[j] or n_missing[j] > 0)
        n_drawn += 1
    status, score, winner = CONSTANT, -1.0, np.int64(-1)
    if varied:
        status = NO_SPLIT
        total = sums[1] if limits.n_classes == 0 else sums.sum()
        _draw_thresholds(low, high, keys[1] ^ path, block.identity, reals[2])
        _sum_sides(block, places, limits.n_classes, has_missing)
        _score_columns(limits, n, sums, total, reals, counts)
        for d in range(n_drawn):
            column = np.int64(pool[d])
            j = block.place_of[column]
            if n_missing[j] > 0 or limits.criterion == ENTROPY:
                if n_missing[j] == n or (low[j] == high[j] and n_missing[j] == 0):
                    continue
                found = _try_column(limits, n, sums, block, j, bar_for(column, winner, score), scratch)
            else:
                found = columns_score[j] if low[j] < high[j] else -1.0
            if found > score or (found == score and column < winner):
                status, score, winner = SPLIT, found, column
        if winner >= 0:
            _try_column(limits, n, sums, block, block.place_of[winner], -1.0, scratch)
    if max_features < n_columns:
        undraw_columns(keys[0], path, pool, n_drawn)
    return status, score, winner >= 0 and n_missing[block.place_of[winner]] > 0, winner
