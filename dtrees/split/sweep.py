"""One node and one column: the exact gain between every two neighbouring values.

A sweep goes through the values present in the node in ascending order, keeps the sums of all rows so far, and evaluates the split after
each value with the missing rows on the left and on the right. The first of equals is kept, which makes "lower threshold, then missing
left" the order among equal gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtrees.split.criteria import may_exceed, score_classes, score_moments
from dtrees.split.kernel import inlined_kernel, kernel


class Limits(NamedTuple):
    """What a split must respect, in the units of the sums.

    Attributes
    ----------
    criterion : int
    n_classes : int
        0 for the moment layout.
    random : bool
        One random threshold a column (Extra-Trees).
    penalty : float
        L2 penalty, in units of H.
    slope : float
        The largest abs(G) / H of a row.
    min_samples : int
        Fewest in-sample rows of a child.
    min_weight : int
        Smallest H (weight) of a child.
    min_gain : float
        Smallest gain, in units of gains.
    """

    criterion: int
    n_classes: int
    random: bool
    penalty: float
    slope: float
    min_samples: int
    min_weight: int
    min_gain: float


@kernel
def bar_for(column, best_column, best_score):
    """Return what the score of a split of ``column`` must exceed to come before the best split so far."""
    if best_score >= 0.0 and column < best_column:
        return np.nextafter(best_score, -np.inf)  # the lower column wins a tie
    return best_score


@kernel
def sweep_moments(limits, groups, m, missing, node, bar, best):
    """Find the best split of a node in one column (moment layout).

    Parameters
    ----------
    groups : ndarray of GROUP
        Sums of the ``m`` values present in the node, ascending.
    missing, node : tuple of int
        (G, H, count) of the rows where the value is missing, and of the whole node.
    bar : float
        Only splits of a larger score count.
    best : ndarray of int64, shape (6,)
        Written if there is one: code before and after the cut, 1 if missing goes left, and the left G, H and count. The code after is
        -1 for the split of all values from the missing ones.

    Returns
    -------
    float
        The score of the best split, -1.0 if none is above the bar.
    """
    criterion = limits.criterion
    penalty = limits.penalty
    g_miss, h_miss, n_miss = missing
    g_all, h_all, n_all = node
    min_samples = limits.min_samples
    min_weight = limits.min_weight
    top = bar
    g = h = count = np.int64(0)
    last = m if n_miss > 0 else m - 1
    for i in range(last):
        g += groups[i].a
        h += groups[i].b
        count += np.int64(groups[i].n)
        for side in range(2):
            if side == 0:
                if n_miss == 0 or i == m - 1:
                    continue
                gl, hl, nl = g + g_miss, h + h_miss, count + n_miss
            else:
                gl, hl, nl = g, h, count
            if nl < min_samples or n_all - nl < min_samples or hl < min_weight or h_all - hl < min_weight:
                continue
            score = score_moments(criterion, float(gl), float(hl), float(g_all - gl), float(h_all - hl), penalty)
            if score > top:
                top = score
                best[0] = groups[i].code
                best[1] = np.int64(groups[i + 1].code) if i + 1 < m else -1
                best[2] = 1 - side
                best[3] = gl
                best[4] = hl
                best[5] = nl
    return top if top > bar else -1.0


@inlined_kernel
def cut_after(limits, left, missing, node, code, following, top, best):
    """Evaluate the split after a value, with the sums (G, H, count) of the rows up to it; return the best score so far.

    Above ``top``, the split goes to ``best``, as of :func:`sweep_moments`. ``following`` is the code after the cut, -1 if the node has
    none.
    """
    criterion, penalty, min_samples, min_weight = limits.criterion, limits.penalty, limits.min_samples, limits.min_weight
    g, h, count = left
    g_miss, h_miss, n_miss = missing
    g_all, h_all, n_all = node
    if n_miss > 0 and following != -1:
        nl, hl = count + n_miss, h + h_miss
        if nl >= min_samples and n_all - nl >= min_samples and hl >= min_weight and h_all - hl >= min_weight:
            gl = g + g_miss
            x, y, p, q = float(gl), float(g_all - gl), float(hl), float(h_all - hl)
            if may_exceed(criterion, x, p, y, q, penalty, top):
                score = score_moments(criterion, x, p, y, q, penalty)
                if score > top:
                    top = score
                    best[0], best[1], best[2], best[3], best[4], best[5] = code, following, 1, gl, hl, nl
    if count >= min_samples and n_all - count >= min_samples and h >= min_weight and h_all - h >= min_weight:
        x, y, p, q = float(g), float(g_all - g), float(h), float(h_all - h)
        if may_exceed(criterion, x, p, y, q, penalty, top):
            score = score_moments(criterion, x, p, y, q, penalty)
            if score > top:
                top = score
                best[0], best[1], best[2], best[3], best[4], best[5] = code, following, 0, g, h, count
    return top


@kernel
def sweep_sorted(limits, keys, first, last, a, b, base, before, missing, node, following_last, bar, best):
    """Do the same over rows sorted by code, all of the node's or a stretch of them.

    Parameters
    ----------
    keys : ndarray of uint64
        ``keys[first:last]`` are ``code << 32 | place`` of the rows, ascending, none of them missing.
    a, b : ndarray of int64
        Sums of the row with place i at ``base + i``; ``b`` is empty where every weight is 1.
    before, missing, node : tuple of int
        (G, H, count) of the rows before the stretch, of those where the value is missing, and of the whole node.
    following_last : int
        What to write for the code after the last key's; -1 if the node has none.
    """
    weighted = b.shape[0] > 0
    g, h, n_before = before
    mask = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    top = bar
    code = keys[first] >> shift
    for i in range(first, last):
        place = base + np.int64(keys[i] & mask)
        g += a[place]
        h += b[place] if weighted else 1
        following = following_last
        if i < last - 1:
            next_code = keys[i + 1] >> shift
            if next_code == code:
                continue
            following = np.int64(next_code)
        top = cut_after(limits, (g, h, n_before + i + 1 - first), missing, node, np.int64(code), following, top, best)
        code = keys[i + 1] >> shift if i < last - 1 else code
    return top if top > bar else -1.0


@kernel
def split_off_missing(keys, first, last, missing_code, a, b, base):
    """Return where the missing rows at the end of ``keys[first:last]`` begin, and their (G, H, count)."""
    g = h = 0
    end = last
    while end > first and (keys[end - 1] >> np.uint64(32)) == missing_code:
        end -= 1
        place = base + np.int64(keys[end] & np.uint64(0xFFFFFFFF))
        g += a[place]
        h += b[place] if b.shape[0] > 0 else 1
    return end, (g, h, last - end)


@kernel
def sweep_classes(limits, keys, first, last, classes, weights, base, missing_code, node, left, missing, bar, best, best_left):
    """Find the best split of a node in one column (class layout).

    Parameters
    ----------
    keys, first, last, base
        As in :func:`sweep_sorted`, but with the missing rows, which have ``missing_code``, last.
    classes, weights : ndarray of int64
        Class and weight of the row with place i at ``base + i``; ``weights`` is empty where every weight is 1.
    node : ndarray of int64, shape (n_classes,)
        Weight of each class in the node.
    left, missing : ndarray of int64, shape (n_classes,)
        Scratch.
    bar : float
    best : ndarray of int64, shape (6,)
        As in :func:`sweep_moments`; the sums go to ``best_left``, shape (n_classes,).
    """
    n_classes = node.shape[0]
    weighted = weights.shape[0] > 0
    left[:] = 0
    missing[:] = 0
    m = last - first
    end = last
    miss_weight = 0
    while end > first and (keys[end - 1] >> np.uint64(32)) == missing_code:
        end -= 1
        place = base + np.int64(keys[end] & np.uint64(0xFFFFFFFF))
        w = weights[place] if weighted else 1
        missing[classes[place]] += w
        miss_weight += w
    n_miss = last - end
    total_weight = 0
    for k in range(n_classes):
        total_weight += node[k]
    top = bar
    left_weight = 0
    for i in range(first, end):
        key = keys[i]
        code = key >> np.uint64(32)
        place = base + np.int64(key & np.uint64(0xFFFFFFFF))
        w = weights[place] if weighted else 1
        left[classes[place]] += w
        left_weight += w
        last_value = i == end - 1
        if last_value:
            if n_miss == 0:
                break
        elif (keys[i + 1] >> np.uint64(32)) == code:
            continue
        for side in range(2):
            if side == 0:
                if n_miss == 0 or last_value:
                    continue
                for k in range(n_classes):
                    left[k] += missing[k]
                wl, nl = left_weight + miss_weight, i + 1 - first + n_miss
            else:
                wl, nl = left_weight, i + 1 - first
            valid = nl >= limits.min_samples and m - nl >= limits.min_samples
            if valid and wl >= limits.min_weight and total_weight - wl >= limits.min_weight:
                score = score_classes(limits.criterion, left, node, wl, total_weight)
                if score > top:
                    top = score
                    best[0] = code
                    best[1] = -1 if last_value else keys[i + 1] >> np.uint64(32)
                    best[2] = 1 - side
                    best[5] = nl
                    for k in range(n_classes):
                        best_left[k] = left[k]
            if side == 0:
                for k in range(n_classes):
                    left[k] -= missing[k]
    return top if top > bar else -1.0
