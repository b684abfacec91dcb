"""What zones may hide: scores at their edges, and bounds of the scores inside (:mod:`dtrees.split.zones` gives the reasons).

Here the sums of a column's zones lie quantity by quantity, the rows of an array, so that the compiler takes several zones at a time; the
loops are free of branches for that.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.criteria import ENTROPY, score_moments, score_squares
from dtrees.split.kernel import ZERO, inner_kernel, kernel

#: Rows of the array of sums: g, h and number of rows before each zone, the same at its end, and its sum of abs(g).
G0, H0, N0, G1, H1, N1, SIZE = 0, 1, 2, 3, 4, 5, 6
#: Far more than the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44
_UPWARD = 1.0 + 2.0**-40
#: Far more than the errors of a few roundings of weights, relative to that of the node; so far below the above that it hides what they do.
_ROUNDING_OF_WEIGHTS = 2.0**-49


@inner_kernel
def lay_out(zones, n_zones, sums):
    """Write the sums of zones (ZONE) quantity by quantity."""
    for z in range(n_zones):
        zone = zones[z]
        sums[G0, z], sums[H0, z], sums[N0, z] = zone.a_before, zone.b_before, zone.n_before
        sums[G1, z], sums[H1, z], sums[N1, z] = zone.a_before + zone.a, zone.b_before + zone.b, zone.n_before + zone.n
        sums[SIZE, z] = zone.size


@inner_kernel
def _score_squares(limits, g0, h0, n0, missing, node, scores):
    g_add, h_add, n_add = missing
    g_all, h_all, n_all = node
    penalty = limits.penalty
    min_samples, min_weight = max(limits.min_samples, 1), limits.min_weight
    for z in range(scores.shape[0]):
        g, h, n = g0[z] + g_add, h0[z] + h_add, n0[z] + n_add
        a, b = float(h) + penalty, float(h_all - h) + penalty
        score = score_squares(float(g), a, float(g_all - g), b)
        allowed = (n >= min_samples) & (n_all - n >= min_samples) & (h >= min_weight) & (h_all - h >= min_weight)
        scores[z] = score if allowed & (a > 0.0) & (b > 0.0) & (score >= 0.0) else -1.0


@inner_kernel
def _score_entropy(limits, g0, h0, n0, missing, node, scores):
    g_add, h_add, n_add = missing
    g_all, h_all, n_all = node
    for z in range(scores.shape[0]):
        g, h, n = g0[z] + g_add, h0[z] + h_add, n0[z] + n_add
        scores[z] = -1.0
        if n >= max(limits.min_samples, 1) <= n_all - n and h >= limits.min_weight <= h_all - h:
            scores[z] = score_moments(ENTROPY, float(g), float(h), float(g_all - g), float(h_all - h), 0.0)


@inner_kernel
def _highest(scores):
    """Return the highest of scores, which are ordered as their bits are: -1.0 or not negative, none NaN; -1.0 if there is none."""
    if scores.shape[0] == 0:
        return -1.0
    bits = scores.view(np.int64)
    top, best = bits[0], ZERO()
    for z in range(scores.shape[0]):
        top = max(top, bits[z])
    for z in range(scores.shape[0]):
        if bits[z] == top:
            best = z
            break
    return scores[best]


@kernel
def best_edge(limits, sums, n_zones, missing, node, bar, scores):
    """Return the highest score of the allowed splits between two zones, -1.0 if none is above the bar.

    ``missing`` and ``node`` are (G, H, count) of the rows where the value is missing, and of the whole node; ``scores`` is scratch space.
    """
    scores = scores[:n_zones]
    g0, h0, n0 = sums[G0], sums[H0], sums[N0]
    top = bar
    for side in range(2 if missing[2] > 0 else 1):
        add = missing if side == 1 else (ZERO(), ZERO(), ZERO())
        if limits.criterion == ENTROPY:
            _score_entropy(limits, g0, h0, n0, add, node, scores)
        else:
            _score_squares(limits, g0, h0, n0, add, node, scores)
        top = max(top, _highest(scores))
    return top if top > bar else -1.0


@inner_kernel
def _may_pass(s, h, g_all, most, lift, error, bar, inside):
    """Tell whether the score of real-valued left sums, with ``error`` added to what is squared, may exceed the bar."""
    a = h + lift
    b = most - h
    exact = abs(s * b - (g_all - s) * a)
    d = exact + error
    # Without weight on a side, the score is out of all bounds, unless nothing is there.
    return (d * d * _UPWARD > bar * (a * b)) & ((a * b > 0.0) | inside | (exact > error))


@inner_kernel
def _flag_squares(limits, sums, add, node, bar, slope, slack, flags):
    """Flag the zones one of whose corners passes.

    Large sums are rounded when they become floats, and their differences, such as what lies to the right, have errors that are small in
    terms of the node's sums but perhaps not of their own. So errors are bounded in terms of the node's, and weights taken less by as much.
    """
    g0, h0, n0, g1, h1, n1, sizes = sums[G0], sums[H0], sums[N0], sums[G1], sums[H1], sums[N1], sums[SIZE]
    (g_add, h_add, n_add), (g_all, h_all, n_all) = add, node
    total, lift, most = _total_weights(limits, h_all)
    # Rounded down, so that the corners are never too far in.
    run = (1.0 - _ROUNDING) / slope if slope > 0.0 else 0.0
    for z in range(flags.shape[0]):
        start, end, size = float(g0[z]) + g_add, float(g1[z]) + g_add, float(sizes[z])
        light, heavy = float(h0[z]) + h_add, float(h1[z]) + h_add
        inside = (n0[z] + n_add > 0) & (n1[z] + n_add < n_all)
        low = start - 0.5 * (size - (end - start))
        high = start + 0.5 * (size + (end - start))
        error = _ROUNDING * (max(abs(low), abs(high)) + abs(g_all)) * total + slack
        passes = _may_pass(start, light, g_all, most, lift, error, bar, inside)
        passes |= _may_pass(end, heavy, g_all, most, lift, error, bar, inside)
        passes |= _may_pass(low, min(light + (start - low) * run, heavy), g_all, most, lift, error, bar, inside)
        passes |= _may_pass(high, min(light + (high - start) * run, heavy), g_all, most, lift, error, bar, inside)
        passes |= _may_pass(low, max(heavy - (end - low) * run, light), g_all, most, lift, error, bar, inside)
        passes |= _may_pass(high, max(heavy - (high - end) * run, light), g_all, most, lift, error, bar, inside)
        flags[z] |= passes


@inner_kernel
def _total_weights(limits, h_all):
    """Return the weight of both sides, the penalty of each included, what to add to that of the left one, and from what to take it."""
    total = h_all + 2.0 * limits.penalty
    lift = limits.penalty - _ROUNDING_OF_WEIGHTS * total
    return total, lift, h_all + lift


@inner_kernel
def _flag_squares_widely(limits, sums, add, node, bar, slack, flags):
    """Do it by a bound that is wider, and takes a quarter of the time.

    What is squared is linear in the left sums, so it is largest at a corner of the box that these are in, and what it is divided by is
    smallest at an end.
    """
    g0, h0, g1, h1, sizes = sums[G0], sums[H0], sums[G1], sums[H1], sums[SIZE]
    (g_add, h_add, _), (g_all, h_all, _) = add, node
    total, lift, most = _total_weights(limits, h_all)
    penalty = limits.penalty
    for z in range(flags.shape[0]):
        start, end, size = float(g0[z]) + g_add, float(g1[z]) + g_add, float(sizes[z])
        light, heavy = float(h0[z]) + h_add, float(h1[z]) + h_add
        low = start - 0.5 * (size - (end - start))
        high = start + 0.5 * (size + (end - start))
        one, other = g_all * (light + penalty), g_all * (heavy + penalty)
        exact = max(abs(high * total - min(one, other)), abs(low * total - max(one, other)))
        d = exact + _ROUNDING * (max(abs(low), abs(high)) + abs(g_all)) * total + slack
        flags[z] |= d * d * _UPWARD > bar * min((light + lift) * (most - light), (heavy + lift) * (most - heavy))


@inner_kernel
def _flag_entropy(sums, add, node, bar, flags):
    """Do it for entropy, where S is the weight of class 1.

    Within a zone that class comes first, last, or in between: the corners are both ends and those two extremes.
    """
    g0, h0, g1, h1 = sums[G0], sums[H0], sums[G1], sums[H1]
    (g_add, h_add, _), (g_all, h_all, _) = add, node
    for z in range(flags.shape[0]):
        start, light = float(g0[z]) + g_add, float(h0[z]) + h_add
        end, heavy = float(g1[z]) + g_add, float(h1[z]) + h_add
        for corner in range(4):
            if corner == 0:
                s, h = start, light
            elif corner == 1:
                s, h = end, light + (end - start)
            elif corner == 2:
                s, h = end, heavy
            else:
                s, h = start, heavy - (end - start)
            if 0.0 < h < h_all:
                score = score_moments(ENTROPY, s, h, g_all - s, h_all - h, 0.0)
                if score + _ROUNDING * h_all > bar:
                    flags[z] = 1


@inner_kernel
def _keep_some(marks, sums, numbers):
    """Move the zones with a mark to the front, and return how many there are. ``marks`` has room for a multiple of eight."""
    words = marks.view(np.uint64)
    m = ZERO()
    for word in range(words.shape[0]):
        if words[word] == 0:
            continue
        for z in range(8 * word, 8 * word + 8):
            if marks[z]:
                for quantity in range(sums.shape[0]):
                    sums[quantity, m] = sums[quantity, z]
                numbers[m] = numbers[z]
                m += 1
    return m


@inner_kernel
def _move(sums, n_zones, by):
    """Make sums of g those of ``g + by * h``."""
    for z in range(n_zones):
        sums[G0, z] += by * sums[H0, z]
        sums[G1, z] += by * sums[H1, z]


@inner_kernel
def _centred(sums, centre):
    """Return sums (g, h, count) with g moved by a centre, as floats."""
    return float(sums[0] - centre * sums[1]), float(sums[1]), sums[2]


@kernel
def flag_zones(limits, sums, n_zones, missing, node, bar, centre, slope, numbers, marks):
    """Keep the zones where a split inside, or at the upper edge, may score above the bar: move them to the front of ``sums``.

    Returns how many there are, none of which is empty.

    Parameters
    ----------
    limits : Limits
    sums : ndarray of int64
        Its sizes are sums of ``abs(g - centre * h)``.
    missing, node : tuple of int
        As of :func:`best_edge`.
    centre : int
        Other than 0 for squared error only, whose scores do not change when all targets are moved.
    slope : float
        The largest ``abs(g - centre * h) / h`` of a row of the node.
    numbers : ndarray of int64
        Moved as the zones are.
    marks : ndarray of uint8
        Scratch space, for a multiple of eight zones.
    """
    slack = 0.0
    if centre != 0:
        # Scores are computed from sums that are not centred, and have their rounding errors.
        slack = _ROUNDING * 2.0 * abs(float(centre)) * float(node[1]) * float(node[1])
        _move(sums, n_zones, -centre)
    whole, nothing = _centred(node, centre), (0.0, 0.0, ZERO())
    by_squares = limits.criterion != ENTROPY
    for narrowly in range(0 if by_squares and bar >= 0.0 else 1, 2):  # the wider bound leaves few zones, and does not hold below zero
        used = marks[: (n_zones + 7) // 8 * 8]
        used[:] = 0
        flags = used[:n_zones]
        for side in range(2 if missing[2] > 0 else 1):
            add = _centred(missing, centre) if side == 1 else nothing
            if not by_squares:
                _flag_entropy(sums, add, whole, bar, flags)
            elif narrowly:
                _flag_squares(limits, sums, add, whole, bar, slope, slack, flags)
            else:
                _flag_squares_widely(limits, sums, add, whole, bar, slack, flags)
        if narrowly:
            for z in range(n_zones):
                flags[z] &= sums[N1, z] > sums[N0, z]
        n_zones = _keep_some(used, sums, numbers)
    if centre != 0:
        _move(sums, n_zones, centre)
    return n_zones
