"""One node and one column: the exact gain between every two neighbouring values.

A sweep goes through the values present in the node in ascending order, keeps the sums of all rows so far, and evaluates the split after
each value with the missing rows on the left and on the right. The first of equals is kept, which makes "lower threshold, then missing
left" the order among equal gains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dtrees.split.criteria import score_classes, score_moments


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
    min_samples: int
    min_weight: int
    min_gain: float


@njit(nogil=True, cache=True)
def sweep_moments(limits, groups, m, missing, node, best):
    """Find the best split of a node in one column (moment layout).

    Parameters
    ----------
    groups : Groups
        Sums of the ``m`` values present in the node, ascending.
    missing, node : tuple of int
        (G, H, count) of the rows where the value is missing, and of the whole node.
    best : ndarray of int64, shape (6,)
        Written if there is a valid split: code before and after the cut, 1 if missing goes left, and the left G, H and count. The
        code after is -1 for the split of all values from the missing ones.

    Returns
    -------
    float
        The score of the best split, -1.0 if there is none.
    """
    codes, a, b, n = groups.codes, groups.a, groups.b, groups.n
    criterion = limits.criterion
    penalty = limits.penalty
    g_miss, h_miss, n_miss = missing
    g_all, h_all, n_all = node
    min_samples = limits.min_samples
    min_weight = limits.min_weight
    top = -1.0
    g = 0
    h = 0
    count = 0
    last = m if n_miss > 0 else m - 1
    for i in range(last):
        g += a[i]
        h += b[i]
        count += n[i]
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
                best[0] = codes[i]
                best[1] = codes[i + 1] if i + 1 < m else -1
                best[2] = 1 - side
                best[3] = gl
                best[4] = hl
                best[5] = nl
    return top


@njit(nogil=True, cache=True)
def sweep_classes(limits, keys, m, classes, weights, missing_code, node, left, missing, best, best_left):
    """Find the best split of a node in one column (class layout).

    Parameters
    ----------
    keys : ndarray of uint64, shape (>= m,)
        ``code << 32 | place`` of the node's rows, ascending; missing ones (``missing_code``) last.
    classes, weights : ndarray of int64, shape (m,)
        By place; ``weights`` is empty where every weight is 1.
    node : ndarray of int64, shape (n_classes,)
        Weight of each class in the node.
    left, missing : ndarray of int64, shape (n_classes,)
        Scratch.
    best : ndarray of int64, shape (6,)
        As in :func:`sweep_moments`; the sums go to ``best_left``, shape (n_classes,).
    """
    n_classes = node.shape[0]
    weighted = weights.shape[0] > 0
    left[:] = 0
    missing[:] = 0
    end = m
    miss_weight = 0
    while end > 0 and (keys[end - 1] >> np.uint64(32)) == missing_code:
        end -= 1
        place = keys[end] & np.uint64(0xFFFFFFFF)
        w = weights[place] if weighted else 1
        missing[classes[place]] += w
        miss_weight += w
    n_miss = m - end
    total_weight = 0
    for k in range(n_classes):
        total_weight += node[k]
    top = -1.0
    left_weight = 0
    for i in range(end):
        key = keys[i]
        code = key >> np.uint64(32)
        place = key & np.uint64(0xFFFFFFFF)
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
                wl, nl = left_weight + miss_weight, i + 1 + n_miss
            else:
                wl, nl = left_weight, i + 1
            valid = nl >= limits.min_samples and m - nl >= limits.min_samples
            if valid and wl >= limits.min_weight and total_weight - wl >= limits.min_weight:
                score = score_classes(limits.criterion, left, node, wl, total_weight)
                if score > top:
                    top = score
                    best[0] = code
                    best[1] = -1 if last_value else keys[i + 1] >> np.uint64(32)
                    best[2] = 1 - side
                    best[5] = nl
                    best_left[:] = left
            if side == 0:
                for k in range(n_classes):
                    left[k] -= missing[k]
    return top
