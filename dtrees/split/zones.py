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

from dtrees.split.kernel import NONE, ZERO, kernel
from dtrees.split.sweep import sweep_sorted

MAX_ZONES = 256
#: The code after a cut is not known yet.
UNKNOWN = -2

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
