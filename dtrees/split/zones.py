"""Finding the best split of a large node in a column of many values without scanning all of it.

The codes of a column are cut into up to 256 consecutive *zones*. One pass over the node's rows sums each zone; from the sums follows,
for each zone, an upper bound of the score of any split inside it. Only zones whose bound passes the bar are scanned, exactly. A
database's zone maps do the same. Nothing is decided by zones: they only skip work that cannot change the result, and the bar itself
is always the score of a real split.

The bound
---------
The score is jointly convex in the sums (S, a) of the left side, as a sum of squares over linear terms, or, for entropy, of terms
x log(x / a), so its maximum over a convex region is at a corner. Let a zone begin with left sums (S0, H0), end with (S1, H1), and have
A = sum abs(g). Inside, S lies between S0 - (A - (S1 - S0)) / 2 and S0 + (A + (S1 - S0)) / 2; and since no row has abs(g) > slope * h,
S is at most slope * (H - H0) away from S0 and at most slope * (H1 - H) from S1. The region has six corners: both ends, and where the lines
of that slope meet the extremes of S. Bounds are raised by more than rounding can add to a score, so no tie is lost.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.criteria import ENTROPY, score_moments
from dtrees.split.kernel import NONE, ZERO, inner_kernel, kernel
from dtrees.split.sweep import sweep_sorted

MAX_ZONES = 256
#: The code after a cut is not known yet.
UNKNOWN = -2
#: Far more than the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44
_UPWARD = 1.0 + 2.0**-40

#: One zone: its sums of g, abs(g) and h and its number of rows, those of all zones before it, and whether it must be scanned.
ZONE = np.dtype(
    [
        ("a", np.int64),
        ("size", np.int64),
        ("b", np.int64),
        ("n", np.int64),
        ("a_before", np.int64),
        ("b_before", np.int64),
        ("n_before", np.int64),
        ("flag", np.int64),
    ],
    align=True,
)


@kernel
def prefers_zones(n_rows, n_distinct):
    """Tell whether a node is large enough, and the column varied enough, for zones to pay."""
    return n_rows >= 2048 and n_distinct >= 1024


@kernel
def zone_shift(n_rows, n_distinct):
    """Return by how many bits a code is shifted to give its zone: fewer zones for smaller nodes."""
    wanted = min(MAX_ZONES, max(32, n_rows // 64))
    shift = 0
    while ((n_distinct - 1) >> shift) + 1 > wanted:
        shift += 1
    return shift


@kernel
def sum_zones(codes, n_distinct, shift, partition, start, mid, zones):
    """Sum a node's in-sample rows by zone; missing ones go to the element after the last zone."""
    rows, a, b = partition.rows, partition.a, partition.b
    n_zones = ((n_distinct - 1) >> shift) + 1
    for z in range(n_zones + 1):
        zones[z].a = 0
        zones[z].size = 0
        zones[z].b = 0
        zones[z].n = 0
    if b.shape[0] > 0:
        for i in range(start, mid):
            code = np.int64(codes[rows[i]])
            zone = zones[np.uint64(n_zones if code == n_distinct else code >> shift)]
            g = a[i]
            zone.a += g
            zone.size += abs(g)
            zone.b += b[i]
            zone.n += 1
    else:
        for i in range(start, mid):
            code = np.int64(codes[rows[i]])
            zone = zones[np.uint64(n_zones if code == n_distinct else code >> shift)]
            g = a[i]
            zone.a += g
            zone.size += abs(g)
            zone.n += 1
        for z in range(n_zones + 1):
            zones[z].b = zones[z].n


@kernel
def accumulate_zones(zones, n_zones):
    """Fill in the sums before each zone; return how many zones have rows."""
    g = h = n = present = 0
    for z in range(n_zones):
        zone = zones[z]
        zone.a_before = g
        zone.b_before = h
        zone.n_before = n
        g += zone.a
        h += zone.b
        n += zone.n
        present += zone.n > 0
    return present


@kernel
def best_edge(limits, zones, n_zones, missing, node, bar):
    """Return the highest score of the allowed splits between two zones, -1.0 if none is above the bar."""
    g_miss, h_miss, n_miss = missing
    g_all, h_all, n_all = node
    top = bar
    for z in range(1, n_zones):
        zone = zones[z]
        n = zone.n_before
        if zone.n == 0 or n == 0:
            continue
        for side in range(2 if n_miss > 0 else 1):
            gl, hl, nl = zone.a_before, zone.b_before, n
            if side == 1:
                gl, hl, nl = gl + g_miss, hl + h_miss, nl + n_miss
            if nl < limits.min_samples or n_all - nl < limits.min_samples:
                continue
            if hl < limits.min_weight or h_all - hl < limits.min_weight:
                continue
            score = score_moments(limits.criterion, float(gl), float(hl), float(g_all - gl), float(h_all - hl), limits.penalty)
            top = max(top, score)
    return top if top > bar else -1.0


@inner_kernel
def _may_pass(s, h, g_all, h_all, penalty, error, bar):
    """Tell whether the score of real-valued left sums, with ``error`` added to what is squared, may exceed the bar."""
    a = h + penalty
    b = h_all - h + penalty
    d = abs(s * b - (g_all - s) * a) + error
    return (d * d * _UPWARD > bar * (a * b)) & (a * b > 0.0)


@inner_kernel
def _bound_squares(limits, bounds, n_zones, g_add, h_add, g_all, h_all, bar):
    """Set the flags of ``bounds``; written so that the compiler can take several zones at a time."""
    penalty = limits.penalty
    # Rounded down, so that the corners are never too far in.
    run = (1.0 - _ROUNDING) / limits.slope if limits.slope > 0.0 else 0.0
    for z in range(n_zones):
        s0, h0 = bounds[0, z] + g_add, bounds[1, z] + h_add
        s1, h1 = bounds[2, z] + g_add, bounds[3, z] + h_add
        size = bounds[4, z]
        low = s0 - 0.5 * (size - (s1 - s0))
        high = s0 + 0.5 * (size + (s1 - s0))
        left = max(abs(low), abs(high)) * (h_all - h0 + penalty)
        right = max(abs(g_all - low), abs(g_all - high)) * (h1 + penalty)
        error = _ROUNDING * (left + right)
        passes = _may_pass(s0, h0, g_all, h_all, penalty, error, bar) | _may_pass(s1, h1, g_all, h_all, penalty, error, bar)
        passes |= _may_pass(low, min(h0 + (s0 - low) * run, h1), g_all, h_all, penalty, error, bar)
        passes |= _may_pass(high, min(h0 + (high - s0) * run, h1), g_all, h_all, penalty, error, bar)
        passes |= _may_pass(low, max(h1 - (s1 - low) * run, h0), g_all, h_all, penalty, error, bar)
        passes |= _may_pass(high, max(h1 - (high - s1) * run, h0), g_all, h_all, penalty, error, bar)
        bounds[5, z] += 1.0 if passes else 0.0


@inner_kernel
def _bound_entropy(limits, bounds, n_zones, g_add, h_add, g_all, h_all, bar):
    """Set the flags of ``bounds`` for entropy, where S is the weight of class 1.

    Within a zone that class comes first, last, or in between: the corners are both ends and those two extremes.
    """
    for z in range(n_zones):
        s0, h0 = bounds[0, z] + g_add, bounds[1, z] + h_add
        s1, h1 = bounds[2, z] + g_add, bounds[3, z] + h_add
        for corner in range(4):
            if corner == 0:
                s, h = s0, h0
            elif corner == 1:
                s, h = s1, h0 + (s1 - s0)
            elif corner == 2:
                s, h = s1, h1
            else:
                s, h = s0, h1 - (s1 - s0)
            if 0.0 < h < h_all:
                score = score_moments(ENTROPY, s, h, g_all - s, h_all - h, 0.0)
                if score + _ROUNDING * h_all > bar:
                    bounds[5, z] += 1.0


@kernel
def flag_zones(limits, zones, n_zones, missing, node, bar, bounds):
    """Flag the zones in which (or at whose upper edge) a split may score above the bar; return how many rows they have.

    ``bounds`` is scratch space, float64 of shape (6, >= n_zones).
    """
    g_miss, h_miss, n_miss = float(missing[0]), float(missing[1]), missing[2]
    g_all, h_all = float(node[0]), float(node[1])
    for z in range(n_zones):
        bounds[0, z] = zones[z].a_before
        bounds[1, z] = zones[z].b_before
        bounds[2, z] = zones[z].a_before + zones[z].a
        bounds[3, z] = zones[z].b_before + zones[z].b
        bounds[4, z] = zones[z].size
        bounds[5, z] = 0.0
    if limits.criterion == ENTROPY:
        _bound_entropy(limits, bounds, n_zones, 0.0, 0.0, g_all, h_all, bar)
        if n_miss > 0:
            _bound_entropy(limits, bounds, n_zones, g_miss, h_miss, g_all, h_all, bar)
    else:
        _bound_squares(limits, bounds, n_zones, 0.0, 0.0, g_all, h_all, bar)
        if n_miss > 0:
            _bound_squares(limits, bounds, n_zones, g_miss, h_miss, g_all, h_all, bar)
    n_rows = 0
    for z in range(n_zones):
        zones[z].flag = bounds[5, z] > 0.0 and zones[z].n > 0
        n_rows += zones[z].n if zones[z].flag else 0
    return n_rows


@kernel
def pick_rows(codes, n_distinct, shift, rows, start, mid, zones, keys):
    """Write ``code << 32 | place`` of the rows in flagged zones to ``keys``; return their number."""
    n_zones = ((n_distinct - 1) >> shift) + 1
    zones[n_zones].flag = 0
    m = 0
    for i in range(start, mid):
        code = np.int64(codes[rows[i]])
        keys[m] = np.uint64(code) << np.uint64(32) | np.uint64(i - start)
        m += zones[n_zones if code == n_distinct else code >> shift].flag
    return m


@kernel
def last_present(zones, n_zones):
    """Return the number of the last zone that has rows, -1 if none has."""
    z = n_zones - 1
    while z >= 0 and zones[z].n == 0:
        z -= 1
    return z


@kernel
def scan_zones(limits, keys, zones, n_zones, last_zone, partition, start, missing, node, bar, best):
    """Sweep the flagged zones, whose rows are ``keys`` sorted; return the best score, -1.0 if none is above the bar.

    ``last_zone`` is the one with the column's highest values in the node, -1 if that is not among the zones.
    """
    top = bar
    first = ZERO()
    for z in range(n_zones):
        zone = zones[z]
        if zone.flag:
            last = first + zone.n
            before = (zone.a_before, zone.b_before, zone.n_before)
            following = NONE() if z == last_zone else np.int64(UNKNOWN)
            score = sweep_sorted(limits, keys, first, last, partition.a, partition.b, start, before, missing, node, following, top, best)
            top = max(top, score)
            first = last
    return top if top > bar else -1.0


@kernel
def code_after(codes, n_distinct, rows, start, mid, code):
    """Return the lowest code above ``code`` among a node's rows."""
    following = np.int64(n_distinct)
    for i in range(start, mid):
        other = np.int64(codes[rows[i]])
        if other > code:
            following = min(following, other)
    return following


@kernel
def is_constant(codes, rows, start, mid):
    """Tell whether all rows of a node have the same code."""
    first = codes[rows[start]]
    for i in range(start + 1, mid):  # noqa: SIM110
        if codes[rows[i]] != first:
            return False
    return True
