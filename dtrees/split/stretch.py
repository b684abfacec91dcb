"""One node and one column, rows sorted by code: the sweep of :mod:`dtrees.split.sweep`, several rows at a time.

In a plain sweep every row waits for the sums of the one before. Here a stretch of rows is gone through twice: first the running sums, then
the scores, in which no row depends on another, so that the compiler can turn them into vector instructions. For nodes in which no value is
missing, and all criteria but entropy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.criteria import GINI, score_squares
from dtrees.split.kernel import NONE, ZERO, inlined_kernel, lean_kernel

#: Rows of a stretch.
STRETCH = 256
#: Largest weight of a node whose sums of squares are below 2**53: floats hold them exactly, whatever the order of the additions.
EXACT_WEIGHT = 13_777


class Stretch(NamedTuple):
    """Scratch space: running sums and scores of a stretch of rows; ``bits`` are those of ``scores``, the same memory."""

    sums: NDArray[np.int64]
    scores: NDArray[np.float64]
    bits: NDArray[np.int64]


def make_stretch() -> Stretch:
    """Return room for a stretch."""
    scores = np.empty(STRETCH + 1)
    return Stretch(np.empty((3, STRETCH), np.int64), scores, scores.view(np.int64))


@lean_kernel
def _sum_stretch(keys, a, b, base, before, g, h):
    """Write the running sums of G and H over rows sorted by code."""
    mask = np.uint64(0xFFFFFFFF)
    total_g, total_h = before
    weighted = b.shape[0] > 0
    for i in range(g.shape[0]):
        place = np.uint64(base) + (keys[i] & mask)
        total_g += a[place]
        total_h += b[place] if weighted else 1
        g[i] = total_g
        h[i] = total_h
    return total_g, total_h


@lean_kernel
def _score_stretch(limits, keys, g, h, node_g, node_h, scores):
    """Score the splits after each row but those within a value; ``keys`` goes one row further."""
    shift = np.uint64(32)
    penalty, lightest = limits.penalty, limits.min_weight
    for i in range(scores.shape[0]):
        right_h = node_h - h[i]
        p, q = float(h[i]) + penalty, float(right_h) + penalty
        score = score_squares(float(g[i]), p, float(node_g - g[i]), q)
        allowed = (keys[i] >> shift != keys[i + 1] >> shift) & (h[i] >= lightest) & (right_h >= lightest) & (p > 0.0) & (q > 0.0)
        scores[i] = score if allowed else -1.0


@lean_kernel
def highest(stretch, low, high, top):
    """Return the place of the first of the highest of the scores ``low:high``, if it is above ``top``; otherwise -1.

    Scores are -1 or not negative, and then in the order of their bits: the largest of integers is found several at a time.
    """
    bits = stretch.bits[low:high]
    largest = NONE()
    for i in range(bits.shape[0]):
        largest = max(largest, bits[i])
    if largest < 0:
        return NONE()
    stretch.bits[STRETCH] = largest
    if stretch.scores[STRETCH] <= top:
        return NONE()
    where = low
    while stretch.bits[where] != largest:
        where += 1
    return where


@inlined_kernel
def sweep_complete(limits, keys, first, last, a, b, base, node, bar, best, stretch):
    """Find the best split of a node without missing values: as :func:`sweep_sorted` over all its rows, but for entropy.

    In stretches of a few rows: first the sums, then the scores, in which no row depends on the one before, so that the compiler can take
    several at a time. ``stretch`` is scratch space.
    """
    top = bar
    margin = max(limits.min_samples, 1)
    sums = ZERO(), ZERO()
    for start in range(first, last, STRETCH):
        m = min(last - start, STRETCH)
        g, h = stretch.sums[0, :m], stretch.sums[1, :m]
        sums = _sum_stretch(keys[start : start + m], a, b, base, sums, g, h)
        low, high = max(first + margin - 1 - start, 0), min(last - margin - start, m)  # where enough rows are left on both sides
        if low >= high:
            continue
        scores = stretch.scores[low:high]
        _score_stretch(limits, keys[start + low : start + high + 1], g[low:high], h[low:high], node[0], node[1], scores)
        where = highest(stretch, low, high, top)
        if where >= 0:
            top = stretch.scores[where]
            i = start + where
            best[0], best[1], best[2] = np.int64(keys[i] >> np.uint64(32)), np.int64(keys[i + 1] >> np.uint64(32)), 0
            best[3], best[4], best[5] = g[where], h[where], i + 1 - first
    return top if top > bar else -1.0


@lean_kernel
def _sum_squares(keys, classes, weights, base, node, left, before, squares, products, h):
    """Write the running sums over classes of left**2 and left * node, and of the weight, over rows sorted by code."""
    mask = np.uint64(0xFFFFFFFF)
    square, product, total = before
    weighted = weights.shape[0] > 0
    for i in range(h.shape[0]):
        place = base + np.int64(keys[i] & mask)
        k = classes[place]
        w = weights[place] if weighted else 1
        square += w * (2 * left[k] + w)
        product += w * node[k]
        total += w
        left[k] += w
        squares[i] = square
        products[i] = product
        h[i] = total
    return square, product, total


@lean_kernel
def _score_classes_stretch(limits, keys, squares, products, h, node_square, total, scores):
    """Score as :func:`_score_stretch`: sum((left b - right a)**2) = W**2 sum(left**2) - 2 W a sum(left node) + a**2 sum(node**2)."""
    shift = np.uint64(32)
    lightest = limits.min_weight
    for i in range(scores.shape[0]):
        a, b = h[i], total - h[i]
        score = float(total * (total * squares[i] - 2 * a * products[i]) + a * a * node_square) / (float(a) * float(b))
        allowed = (keys[i] >> shift != keys[i + 1] >> shift) & (a >= lightest) & (b >= lightest) & (a > 0) & (b > 0)
        scores[i] = score if allowed else -1.0


@inlined_kernel
def sweep_squares(limits, keys, first, last, classes, weights, base, node, left, bar, best, best_left, stretch):
    """Find the best split by Gini impurity of a node of weight up to EXACT_WEIGHT without missing values, as :func:`sweep_classes`."""
    top = bar
    margin = max(limits.min_samples, 1)
    total = node_square = np.int64(0)
    for k in range(node.shape[0]):
        total += node[k]
        node_square += node[k] * node[k]
        left[k] = 0
    sums = ZERO(), ZERO(), ZERO()
    cut = np.int64(-1)
    for start in range(first, last, STRETCH):
        m = min(last - start, STRETCH)
        squares, products, h = stretch.sums[0, :m], stretch.sums[1, :m], stretch.sums[2, :m]
        sums = _sum_squares(keys[start : start + m], classes, weights, base, node, left, sums, squares, products, h)
        low, high = max(first + margin - 1 - start, 0), min(last - margin - start, m)
        if low >= high:
            continue
        scores = stretch.scores[low:high]
        _score_classes_stretch(
            limits, keys[start + low : start + high + 1], squares[low:high], products[low:high], h[low:high], node_square, total, scores
        )
        where = highest(stretch, low, high, top)
        if where >= 0:
            top = stretch.scores[where]
            cut = start + where
    if cut < 0:
        return -1.0
    best[0], best[1], best[2] = np.int64(keys[cut] >> np.uint64(32)), np.int64(keys[cut + 1] >> np.uint64(32)), 0
    best[5] = cut + 1 - first
    for k in range(node.shape[0]):
        best_left[k] = 0
    for i in range(first, cut + 1):
        place = base + np.int64(keys[i] & np.uint64(0xFFFFFFFF))
        best_left[classes[place]] += weights[place] if weights.shape[0] > 0 else 1
    return top


@lean_kernel
def sums_squares(limits, node):
    """Tell whether :func:`sweep_squares` may be used."""
    if limits.criterion != GINI:
        return False
    total = 0
    for k in range(node.shape[0]):
        total += node[k]
    return total <= EXACT_WEIGHT
