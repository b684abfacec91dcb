"""Scores at the edges of zones, and bounds of the scores inside, as defined by the criterion.

The values of a column are divided into consecutive *zones*. The sums over the rows of a zone give an upper bound of the score of any
split inside it. Only zones whose bound exceeds the bar are scanned, exactly, as with the zone maps of databases. Zones never decide a
split: they only skip work that cannot change the result, and the bar itself is always the score of a real split. Bounds are part of the
criterion (:func:`~dtrees.split.criteria.parts.flag_zones_by_bound`).

The sums of a column's zones are stored quantity by quantity, as the rows of an array, and loops have no branches, so they are
vectorised.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.criteria.constraints import forget_mirrored, order_of_sides
from dtrees.split.criteria.parts import flag_zones_by_bound, flag_zones_roughly, is_bounded, score, upper_bound
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE, Moments, no_moments
from dtrees.split.node.limits import is_allowed
from dtrees.split.numbers.elementary import bits_of, float_of

#: Far above the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44


@inner_kernel
def lay_out(zones, n_zones, sums):
    """Write the sums of zones (ZONE), quantity by quantity."""
    for z in range(n_zones):
        zone = zones[z]
        sums[G0, z], sums[H0, z], sums[N0, z] = zone.g_before, zone.h_before, zone.n_before
        sums[G1, z], sums[H1, z], sums[N1, z] = zone.g_before + zone.g, zone.h_before + zone.h, zone.n_before + zone.n
        sums[SIZE, z] = zone.abs_g


@inner_kernel
def _score_edges(limits, g0, h0, n0, add, node, scores):
    """Score the splits between zones, -1.0 if they are not allowed, or bound the scores, if the criterion has bounds."""
    bounded, whole = is_bounded(limits.criterion), (float(node.g), float(node.h))
    for z in range(scores.shape[0]):
        g, h, n = g0[z] + add.g, h0[z] + add.h, n0[z] + add.n
        other_g, other_h, other_n = node.g - g, node.h - h, node.n - n
        if bounded:
            found = upper_bound(limits.criterion, float(g), float(h), float(other_g), float(other_h), whole)
        else:
            found = score(limits.criterion, float(g), float(h), float(other_g), float(other_h))
        allowed = is_allowed(limits, n, other_n, h, other_h) & (n >= 1) & (other_n >= 1)
        scores[z] = found if allowed & (found >= 0.0) else -1.0


@inner_kernel
def _highest(scores):
    """Return the highest of scores, -1.0 if there is none; scores are -1.0 or non-negative, so they have the order of their bits."""
    bits, top = scores.view(np.int64), bits_of(-1.0)
    for z in range(bits.shape[0]):
        top = max(top, bits[z])
    return float_of(top)


@inner_kernel
def _highest_edge(limits, g0, h0, add, node, bounds, top):
    """Return the highest score of splits between zones, given their bounds, or ``top`` if that is higher."""
    largest = _highest(bounds)
    if largest <= top:
        return top
    for turn in range(2):  # the highest bounds first, so that few others have to be scored
        for z in range(bounds.shape[0]):
            if bounds[z] > top and (bounds[z] == largest) == (turn == 0):
                g, h = g0[z] + add.g, h0[z] + add.h
                top = max(top, score(limits.criterion, float(g), float(h), float(node.g - g), float(node.h - h)))
    return top


@kernel
def best_edge(limits, sums, n_zones, missing, node, bar, scores):
    """Return the highest score of the allowed splits between two zones, -1.0 if none is above the bar.

    ``missing`` and ``node`` are the moments of the rows with missing values, and of the node; ``scores`` is scratch space.
    """
    scores = scores[:n_zones]
    g0, h0, n0 = sums[G0], sums[H0], sums[N0]
    top = bar
    for side in range(2 if missing.n > 0 else 1):
        add = missing if side == 1 else no_moments()
        _score_edges(limits, g0, h0, n0, add, node, scores)
        forget_mirrored(limits.criterion, n0, scores)
        top = _highest_edge(limits, g0, h0, add, node, scores, top) if is_bounded(limits.criterion) else max(top, _highest(scores))
    return top if top > bar else -1.0


@inner_kernel
def _keep_some(marks, sums, numbers):
    """Move the zones with a mark to the front, and return their number. ``marks`` has a size that is a multiple of eight."""
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
    """Replace sums of g by ``g + by * h``."""
    for z in range(n_zones):
        sums[G0, z] += by * sums[H0, z]
        sums[G1, z] += by * sums[H1, z]


@inner_kernel
def _centred(sums, centre):
    """Return moments with g shifted to a centre, as floats."""
    return Moments(float(sums.g - centre * sums.h), float(sums.h), sums.n)


@separate_kernel
def flag_zones(limits, sums, n_zones, missing, node, bar, centre, slope, numbers, marks):
    """Keep the zones where a split inside, or at the upper edge, may score above the bar: move them to the front of ``sums``.

    Returns their number; none of them is empty.

    Parameters
    ----------
    limits : SplitLimits
    sums : ndarray of int64
        Sizes are sums of ``abs(g - centre * h)``.
    missing, node : Moments
        As in :func:`best_edge`.
    centre : int
        Not 0 only if the criterion is centred (:func:`~dtrees.split.criteria.parts.is_centred`).
    slope : float
        The largest ``abs(g - centre * h) / h`` of a row of the node.
    numbers : ndarray of int64
        Moved together with the zones.
    marks : ndarray of uint8
        Scratch space; its size is a multiple of eight.
    """
    slack = 0.0
    if centre != 0:
        # Scores are computed from sums that are not centred, and have their rounding errors.
        slack = _ROUNDING * 2.0 * abs(float(centre)) * float(node.h) * float(node.h)
        _move(sums, n_zones, -centre)
    whole, nothing, total, order = _centred(node, centre), Moments(0.0, 0.0, ZERO()), float(node.g), order_of_sides(limits.criterion)
    for narrowly in range(0 if bar >= 0.0 else 1, 2):  # the looser bound leaves few zones, and is invalid for a negative bar
        used = marks[: (n_zones + 7) // 8 * 8]
        used[:] = 0
        flags = used[:n_zones]
        for side in range(2 if missing.n > 0 else 1):
            add = _centred(missing, centre) if side == 1 else nothing
            if narrowly:
                flag_zones_by_bound(limits.criterion, sums, add, whole, bar, order, slope, slack, total, flags)
            else:
                flag_zones_roughly(limits.criterion, sums, add, whole, bar, order, slack, total, flags)
        if narrowly:
            for z in range(n_zones):
                flags[z] &= sums[N1, z] > sums[N0, z]
        n_zones = _keep_some(used, sums, numbers)
    if centre != 0:
        _move(sums, n_zones, centre)
    return n_zones


@inner_kernel
def zone_arrays(element, n_zones, grain, size_shift, sums):
    """Write a column's sums of zones of ``2**grain`` elements each, up to sixteen; return the sums of missing values."""
    _outline(element.reshape(-1), np.uint64(element.shape[1]), n_zones, np.uint64(grain), size_shift, sums)
    return sums_in(element, n_zones << grain)


@inner_kernel
def sums_in(element, z):
    """Return the sums of a zone, or of missing values."""
    n = element[z, 1] & 0xFFFFFFFF
    return Moments(element[z, 0], element[z, 2] if element.shape[1] == 3 else n, n)


@lean_kernel
def _outline(numbers, width, n_zones, grain, size_shift, sums):
    """Write the arrays of zones by vectorised loops; only the running sums depend on each other."""
    g, n = ZERO(), ZERO()
    at, one = np.uint64(0), np.uint64(1)
    for z in range(np.uint64(n_zones)):
        own, packed = numbers[at], numbers[at + one]
        k = at
        if grain >= 1:
            k += width
            own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 2:
            for _ in range(2):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 3:
            for _ in range(4):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        if grain >= 4:
            for _ in range(8):
                k += width
                own, packed = own + numbers[k], packed + numbers[k + one]
        at = k + width
        sums[G0, z], sums[N0, z], sums[SIZE, z] = g, n, (packed >> 32) << size_shift
        g += own
        n += packed & 0xFFFFFFFF
    _follow(sums[G0], g, sums[G1], n_zones)
    _follow(sums[N0], n, sums[N1], n_zones)
    if width == 2:
        _copy(sums[N0], sums[H0], n_zones)
        _copy(sums[N1], sums[H1], n_zones)
        return
    h = ZERO()
    at = np.uint64(2)
    for z in range(np.uint64(n_zones)):
        sums[H0, z] = h
        for _ in range(one << grain):
            h += numbers[at]
            at += width
    _follow(sums[H0], h, sums[H1], n_zones)


@lean_kernel
def _follow(before, last, after, n):
    """Write the sums at the ends of zones, given those before each and the total."""
    for z in range(n - 1):
        after[z] = before[z + 1]
    if n > 0:
        after[n - 1] = last


@lean_kernel
def _copy(source, target, n):
    for z in range(n):
        target[z] = source[z]


@inner_kernel
def part_arrays(element, width, size_shift, zones, numbers, n_zones, sums, part_numbers):
    """Write the sums and the numbers of the non-empty parts of some zones of ``width`` parts each; return how many there are.

    ``zones`` are of ZONE, or FLAGGED of :mod:`dtrees.split.zones.over_shards.records`. Returns -1 if their rows are not those of parts.
    """
    n_parts = ZERO()
    for z in range(n_zones):
        g, h, n = zones[z].g_before, zones[z].h_before, zones[z].n_before
        for part in range(numbers[z] * width, (numbers[z] + 1) * width):
            own = sums_in(element, part)
            if own.n > 0:
                part_numbers[n_parts] = part
                sums[G0, n_parts], sums[H0, n_parts], sums[N0, n_parts] = g, h, n
                g, h, n = g + own.g, h + own.h, n + own.n
                sums[G1, n_parts], sums[H1, n_parts], sums[N1, n_parts] = g, h, n
                sums[SIZE, n_parts] = (element[part, 1] >> 32) << size_shift
                n_parts += 1
        if n != zones[z].n_before + zones[z].n:
            return NONE()
    return n_parts
