"""Finding the best split of a large node in a column of many values without scanning all of it.

The codes of a column are cut into up to 256 consecutive *zones*. One pass over the node's rows sums each zone; from the sums follows, for
each zone, an upper bound of the score of any split inside it. Only zones whose bound passes the bar are scanned, exactly. A database's zone
maps do the same. Nothing is decided by zones: they only skip work that cannot change the result, and the bar itself is always the score of
a real split. Bounds are part of the criterion (:func:`~dtrees.split.criteria.parts.flag_zones_by_bound`).
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, kernel
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.found import NONE_HIGHER, UNKNOWN
from dtrees.split.policy import FEWEST_SHIFTED_ZONES, MAX_ZONES, ROWS_PER_SHIFTED_ZONE, SHIFTED_ZONES_DISTINCT, SHIFTED_ZONES_ROWS
from dtrees.split.search.sweep import sweep_sorted
from dtrees.split.table.keys import key_of

#: One zone: its sums of g, abs(g) and h and its number of rows, those of all zones before it, and whether it must be scanned.
ZONE = np.dtype(
    [
        ("g", np.int64),
        ("abs_g", np.int64),
        ("h", np.int64),
        ("n", np.int64),
        ("g_before", np.int64),
        ("h_before", np.int64),
        ("n_before", np.int64),
        ("flag", np.int64),
    ],
    align=True,
)


@kernel
def prefers_zones(n_rows, n_distinct):
    """Tell whether a node is large enough, and the column varied enough, for zones to pay."""
    return n_rows >= SHIFTED_ZONES_ROWS and n_distinct >= SHIFTED_ZONES_DISTINCT


@kernel
def zone_shift(n_rows, n_distinct):
    """Return by how many bits a code is shifted to give its zone: fewer zones for smaller nodes."""
    wanted = min(MAX_ZONES, max(FEWEST_SHIFTED_ZONES, n_rows // ROWS_PER_SHIFTED_ZONE))
    shift = 0
    while ((n_distinct - 1) >> shift) + 1 > wanted:
        shift += 1
    return shift


@kernel
def sum_zones(codes, n_distinct, shift, partition, start, in_stop, zones):
    """Sum a node's in-sample rows by zone; missing ones go to the element after the last zone."""
    rows, a, b = partition.rows, partition.g, partition.h
    n_zones = ((n_distinct - 1) >> shift) + 1
    for z in range(n_zones + 1):
        zones[z].g = 0
        zones[z].abs_g = 0
        zones[z].h = 0
        zones[z].n = 0
    if b.shape[0] > 0:
        for i in range(start, in_stop):
            code = np.int64(codes[rows[i]])
            zone = zones[np.uint64(n_zones if code == n_distinct else code >> shift)]
            g = a[i]
            zone.g += g
            zone.abs_g += abs(g)
            zone.h += b[i]
            zone.n += 1
    else:
        for i in range(start, in_stop):
            code = np.int64(codes[rows[i]])
            zone = zones[np.uint64(n_zones if code == n_distinct else code >> shift)]
            g = a[i]
            zone.g += g
            zone.abs_g += abs(g)
            zone.n += 1
        for z in range(n_zones + 1):
            zones[z].h = zones[z].n


@kernel
def accumulate_zones(zones, n_zones):
    """Fill in the sums before each zone; return how many zones have rows."""
    g = h = n = present = 0
    for z in range(n_zones):
        zone = zones[z]
        zone.g_before = g
        zone.h_before = h
        zone.n_before = n
        g += zone.g
        h += zone.h
        n += zone.n
        present += zone.n > 0
    return present


@kernel
def pick_rows(codes, n_distinct, shift, rows, start, in_stop, zones, keys):
    """Write the keys of the rows in flagged zones to ``keys``; return their number."""
    n_zones = ((n_distinct - 1) >> shift) + 1
    zones[n_zones].flag = 0
    m = 0
    for i in range(start, in_stop):
        code = np.int64(codes[rows[i]])
        keys[m] = key_of(code, i - start)
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
def scan_zones(limits, keys, zones, n_zones, last_zone, partition, start, missing, node, bar, found):
    """Sweep the flagged zones, whose rows are ``keys`` sorted; return the best score, -1.0 if none is above the bar.

    ``last_zone`` is the one with the column's highest values in the node, -1 if that is not among the zones.
    """
    top = bar
    first = ZERO()
    for z in range(n_zones):
        zone = zones[z]
        if zone.flag:
            last = first + zone.n
            left = Moments(zone.g_before, zone.h_before, zone.n_before)
            a, b, next_code = partition.g, partition.h, NONE_HIGHER if z == last_zone else UNKNOWN
            score = sweep_sorted(limits, keys, first, last, a, b, start, left, missing, node, next_code, top, found.left, found)
            top = max(top, score)
            first = last
    return top if top > bar else -1.0


@kernel
def code_after(codes, n_distinct, rows, start, in_stop, code):
    """Return the lowest code above ``code`` among a node's rows."""
    following = np.int64(n_distinct)
    for i in range(start, in_stop):
        other = np.int64(codes[rows[i]])
        if other > code:
            following = min(following, other)
    return following


@kernel
def is_constant(codes, rows, start, in_stop):
    """Tell whether all rows of a node have the same code."""
    first = codes[rows[start]]
    for i in range(start + 1, in_stop):  # noqa: SIM110
        if codes[rows[i]] != first:
            return False
    return True
