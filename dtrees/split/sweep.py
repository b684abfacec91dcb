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
def first_above(keys, first, last, code):
    """Return where codes above ``code`` begin among the sorted ``keys[first:last]``."""
    low, high, bound = first, last, np.uint64(code + 1) << np.uint64(32)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def sum_rows(keys, first, last, a, b, base):
    """Return the (G, H, count) of the rows of ``keys[first:last]``."""
    g = h = 0
    for i in range(first, last):
        place = base + np.int64(keys[i] & np.uint64(0xFFFFFFFF))
        g += a[place]
        h += b[place] if b.shape[0] > 0 else 1
    return g, h, last - first


@kernel
def sum_classes(keys, first, last, classes, weights, base, sums):
    """Write the weight of each class among the rows of ``keys[first:last]`` to ``sums``; return their weight and count."""
    sums[:] = 0
    weight = 0
    for i in range(first, last):
        place = base + np.int64(keys[i] & np.uint64(0xFFFFFFFF))
        w = weights[place] if weights.shape[0] > 0 else 1
        sums[classes[place]] += w
        weight += w
    return weight, last - first


@inlined_kernel
def cut_after_class(limits, left, n_left, missing, n_missing, node, n_node, code, following, top, best, best_left):
    """Do the same as :func:`cut_after` in the class layout.

    ``left``, ``missing`` and ``node`` hold the weight of each class, ``n_left``, ``n_missing`` and ``n_node`` are (weight, count). The left
    sums of the split go to ``best_left``.
    """
    weight, n = n_left
    weight_missing, rows_missing = n_missing
    weight_all, n_all = n_node
    both = rows_missing > 0 and following != -1
    for side in range(2):
        if side == 0:
            if not both:
                continue
            for k in range(node.shape[0]):
                left[k] += missing[k]
            wl, nl = weight + weight_missing, n + rows_missing
        else:
            for k in range(node.shape[0] if both else 0):
                left[k] -= missing[k]
            wl, nl = weight, n
        if min(nl, n_all - nl) < limits.min_samples or min(wl, weight_all - wl) < limits.min_weight:
            continue
        score = score_classes(limits.criterion, left, node, wl, weight_all)
        if score > top:
            top = score
            best[0], best[1], best[2], best[5] = code, following, 1 - side, nl
            for k in range(node.shape[0]):
                best_left[k] = left[k]
    return top


@kernel
def sweep_classes(
    limits, keys, first, last, classes, weights, base, left, before, missing, n_missing, node, n_node, following_last, bar, best, best_left
):
    """Do the same as :func:`sweep_sorted` in the class layout.

    Parameters
    ----------
    keys, first, last, base
        As there.
    classes, weights : ndarray of int64
        Class and weight of the row with place i at ``base + i``; ``weights`` is empty where every weight is 1.
    left, missing, node : ndarray of int64, shape (n_classes,)
        Weight of each class in the rows before the stretch (which becomes that up to its end), in those where the value is missing, and in
        the whole node.
    before, n_missing, n_node : tuple of int
        The same in all classes together: (weight, count).
    following_last : int
    bar : float
    best : ndarray of int64, shape (6,)
        As there; the sums go to ``best_left``, shape (n_classes,).
    """
    weighted = weights.shape[0] > 0
    weight, n_before = before
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    top = bar
    for i in range(first, last):
        place = base + np.int64(keys[i] & mask)
        w = weights[place] if weighted else 1
        left[classes[place]] += w
        weight += w
        code, following = np.int64(keys[i] >> shift), following_last
        if i < last - 1:
            following = np.int64(keys[i + 1] >> shift)
            if following == code:
                continue
        n_left = weight, n_before + i + 1 - first
        top = cut_after_class(limits, left, n_left, missing, n_missing, node, n_node, code, following, top, best, best_left)
    return top if top > bar else -1.0
