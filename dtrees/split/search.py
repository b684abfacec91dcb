"""The best split of nodes in columns.

:func:`search_column` is the one place where a split is found: one node, one column, exact or with the random threshold of Extra-Trees.
The level-by-level engine maps :func:`search_many` over threads; the subtree kernel calls :func:`search_column` itself.

A *candidate* is the best split of a node found so far; :class:`Candidates` holds many, a structure of arrays. The splits of a node are
ordered by larger score, then lower column; within a column the sweep sees to the rest of the order. While a node's columns are searched
one after the other, the score of the best so far is the *bar* that others have to pass (:func:`~dtrees.split.sweep.bar_for`), and the
best is kept in :class:`Scratch` until :func:`complete` makes a candidate of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.absolute import Absolute, make_absolute, search_absolute
from dtrees.split.bounds import best_edge, flag_zones, lay_out
from dtrees.split.common import find_common, list_others, search_others
from dtrees.split.criteria import ENTROPY, NEWTON, gain_classes, gain_moments
from dtrees.split.group import GROUP, RADIX, group_by_bins, prefers_bins, sort_keys, sort_places
from dtrees.split.hashing import draw
from dtrees.split.kernel import NONE, ZERO, inlined_kernel, kernel, lean_kernel
from dtrees.split.mapped import mapped
from dtrees.split.random_split import search_random
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.stretch import Stretch, make_stretch, sums_squares, sweep_complete, sweep_squares
from dtrees.split.sweep import first_above, sum_classes, sum_rows, sweep_classes, sweep_moments, sweep_sorted
from dtrees.split.zones import (
    UNKNOWN,
    ZONE,
    accumulate_zones,
    code_after,
    is_constant,
    last_present,
    pick_rows,
    prefers_zones,
    scan_zones,
    sum_zones,
    zone_shift,
)

#: Most parts of a column: of all its zones, and those that flagged zones or parts are cut into.
MAX_PARTS = 4096
#: A column's codes are shifted to be fewer than this where parts are looked up by them: few enough for tables to stay in the cache.
MAX_CELLS = 2**17
#: The same for columns with a value that many rows have, which is to be told from its neighbours.
MAX_SINGLE_CELLS = 2**20
#: Most bins of a column, each of one value: those of the largest node that is not searched by zones.
_MOST_BINS = 2**13
_NO_LEVELS = np.empty(0, np.int64)
#: In place of the code after a cut: the threshold is in ``Scratch.threshold``.
KNOWN = -3
#: One candidate, all but its sums.
CANDIDATE = np.dtype(
    [
        ("status", np.int8),
        ("missing_left", np.bool_),
        ("column", np.int32),
        ("score", np.float64),
        ("gain", np.float64),
        ("threshold", np.float64),
        ("cut", np.int64),
        ("n_left", np.int64),
    ],
    align=True,
)


class Candidates(NamedTuple):
    """Best splits, one for each pair of a node and a column.

    Attributes
    ----------
    records : ndarray of CANDIDATE, shape (n,)
        ``status`` is CONSTANT, NO_SPLIT or SPLIT; but for ``column``, what follows is defined for SPLIT only. ``score`` orders the splits
        of one node (:mod:`dtrees.split.criteria`), ``gain`` those of a tree, both in fixed-point units. Rows with values up to
        ``threshold`` go left; ``cut`` is the highest code of such a value in the node, ``n_left`` the number of in-sample rows going left.
    left : ndarray of int64, shape (n, n_sums)
        Sums of the rows going left.
    """

    records: NDArray[Any]
    left: NDArray[np.int64]

    def take(self, which: NDArray[Any] | slice) -> Candidates:
        """Return some of the candidates."""
        return Candidates(self.records[which], self.left[which])


def empty_candidates(n: int, n_sums: int) -> Candidates:
    """Return room for ``n`` candidates, all CONSTANT, of column -1."""
    records = np.zeros(n, CANDIDATE)
    records["column"] = -1
    return Candidates(records, np.zeros((n, n_sums), np.int64))


class Scratch(NamedTuple):
    """What one thread needs to search; reused between calls.

    ``keys`` and ``spare`` have room for the rows that are sorted, ``counts`` for the sort, ``groups`` for a column's distinct values and
    one more. ``best`` is as in :func:`~dtrees.split.sweep.sweep_moments`; ``threshold`` goes with it for random splits and where KNOWN, the
    last of ``classes`` holds the left sums of the class layout. ``sums``, ``scores`` and ``flags`` are for :mod:`dtrees.split.bounds`,
    ``marks``, ``numbers``, ``cuts`` and ``part_of`` for :mod:`dtrees.split.zone_scan` and :mod:`dtrees.split.pick`.
    """

    groups: NDArray[Any]
    keys: NDArray[np.uint64]
    spare: NDArray[np.uint64]
    zones: NDArray[Any]
    parts: NDArray[Any]
    sums: NDArray[np.int64]
    scores: NDArray[np.float64]
    flags: NDArray[np.uint8]
    marks: NDArray[np.uint64]
    numbers: NDArray[np.int64]
    cuts: NDArray[np.int64]
    part_of: NDArray[np.uint16]
    best: NDArray[np.int64]
    threshold: NDArray[np.float64]
    classes: NDArray[np.int64]
    counts: NDArray[np.int64]
    absolute: Absolute | None
    stretch: Stretch


def make_scratch(n_rows: int, max_distinct: int, n_classes: int, levels: NDArray[np.int64] = _NO_LEVELS) -> Scratch:
    """Return scratch space for nodes of up to ``n_rows`` rows and columns of up to ``max_distinct`` distinct values.

    Columns with many more distinct values than the node has rows are sorted rather than put in bins, and larger nodes are searched by
    zones, so bins are few. ``levels`` are the targets of absolute error.
    """
    n_groups = min(max_distinct, 4 * n_rows, _MOST_BINS) + 1
    n_keys = n_rows + 1
    n_cells = max(MAX_CELLS, -(-min(max_distinct, MAX_SINGLE_CELLS) // 64) * 64)
    if n_classes:
        n_groups = 0
    return Scratch(
        np.empty(n_groups, GROUP),
        mapped(n_keys, np.uint64),
        mapped(n_keys, np.uint64),
        np.empty(MAX_PARTS + 1, ZONE),
        np.empty(MAX_PARTS, ZONE),
        np.empty((7, MAX_PARTS), np.int64),
        np.empty(MAX_PARTS),
        np.empty(MAX_PARTS, np.uint8),
        np.zeros(n_cells // 64, np.uint64),
        np.empty(MAX_PARTS, np.int64),
        np.empty((2, MAX_PARTS), np.int64),
        mapped(n_cells, np.uint16, large_pages=False),
        np.zeros(6, np.int64),
        np.zeros(1),
        np.zeros((4, n_classes), np.int64),
        np.empty(RADIX, np.int64),
        make_absolute(n_rows, levels) if levels.shape[0] else None,
        make_stretch(),
    )


@kernel
def midpoint(low, high):
    """Return a threshold t with low <= t < high, halfway if floating point allows."""
    t = low / 2.0 + high / 2.0
    return t if low <= t < high else low


@lean_kernel
def search_column(absolute, codes, values, partition, start, mid, sums, limits, threshold_bits, bar, scratch):
    """Find the best split of one node in one column.

    Parameters
    ----------
    absolute : Absolute or None
        That of ``scratch``.
    codes : ndarray of uint32, shape (n_rows,)
    values : ndarray of float32 or float64, shape (n_distinct,)
    partition : RowPartition
    start, mid : int
        The node's in-sample rows.
    sums : ndarray of int64, shape (n_sums,)
        The node's.
    limits : Limits
    threshold_bits : uint64
        Random bits for this node and column (random thresholds only).
    bar : float
        Only splits of a larger score count.
    scratch : Scratch
        The split is left here if there is one, and nothing is changed otherwise.

    Returns
    -------
    status : int
        CONSTANT, NO_SPLIT or SPLIT.
    score : float
    has_missing : bool
        Whether the column has missing values in this node.
    """
    if absolute is not None:  # decided by type: what absolute error needs is compiled only where it is wanted
        return search_absolute(codes, values, partition, start, mid, limits, threshold_bits, bar, scratch)
    n_distinct = values.shape[0]
    if limits.random:
        return search_random(codes, values, partition, start, mid, sums, limits, threshold_bits, bar, scratch)
    common = find_common(codes, partition.rows[start:mid], scratch)
    if common >= 0:
        m = list_others(codes, partition.rows[start:mid], common, scratch.keys)
        if m >= 0:
            return search_others(n_distinct, partition, start, mid, common, m, sums, limits, bar, scratch)
    n = mid - start
    if limits.n_classes == 0 and prefers_zones(n, n_distinct):
        return search_zones(codes, n_distinct, partition, start, mid, sums, limits, bar, scratch)
    if limits.n_classes == 0 and prefers_bins(n, n_distinct):
        m, g, h, n_miss = group_by_bins(codes, n_distinct, partition, start, mid, scratch.groups)
        if m == 0 or (m == 1 and n_miss == 0):
            return CONSTANT, 0.0, False
        score = sweep_moments(limits, scratch.groups, m, (g, h, n_miss), (sums[0], sums[1], n), bar, scratch.best)
        return SPLIT if score >= 0.0 else NO_SPLIT, score, n_miss > 0
    sort_places(codes, partition.rows, start, mid, scratch.keys, scratch.spare, scratch.counts)
    return search_sorted(scratch.keys, ZERO(), n, n_distinct, partition.a, partition.b, start, sums, limits, bar, scratch)


@lean_kernel
def search_zones(codes, n_distinct, partition, start, mid, sums, limits, bar, scratch):
    """Do the same, scanning only those zones of the column in which a split may pass the bar (:mod:`dtrees.split.zones`)."""
    shift = zone_shift(mid - start, n_distinct)
    n_zones = ((n_distinct - 1) >> shift) + 1
    zones = scratch.zones
    sum_zones(codes, n_distinct, shift, partition, start, mid, zones)
    missing = (zones[n_zones].a, zones[n_zones].b, zones[n_zones].n)
    node = (sums[0], sums[1], mid - start)
    present = accumulate_zones(zones, n_zones)
    if present == 0:
        return CONSTANT, 0.0, False
    lay_out(zones, n_zones, scratch.sums)
    edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
    bar_inside = np.nextafter(edge, -np.inf) if edge > bar else bar
    if flag_each(limits, zones, n_zones, missing, node, bar_inside, scratch) == 0:
        if present == 1 and is_constant(codes, partition.rows, start, mid):
            return CONSTANT, 0.0, False
        return NO_SPLIT, -1.0, missing[2] > 0
    m = pick_rows(codes, n_distinct, shift, partition.rows, start, mid, zones, scratch.keys)
    keys = scratch.keys[:m]
    last_zone = last_present(zones, n_zones)
    score = scan_picked(
        codes, n_distinct, zones, n_zones, last_zone, partition, start, mid, limits, missing, node, bar_inside, keys, scratch
    )
    if score < 0.0:
        if present == 1 and is_constant(codes, partition.rows, start, mid):
            return CONSTANT, 0.0, False
        return NO_SPLIT, score, missing[2] > 0
    return SPLIT, score, missing[2] > 0


@lean_kernel
def flag_each(limits, zones, n_zones, missing, node, bar, scratch):
    """Write 1 to the flag of each zone where a split may score above the bar, otherwise 0; return how many there are.

    The zones are laid out in ``scratch.sums``, of which only the flagged ones are left.
    """
    numbers = scratch.cuts[0]
    for z in range(n_zones):
        numbers[z] = z
        zones[z].flag = 0
    m = flag_zones(limits, scratch.sums, n_zones, missing, node, bar, ZERO(), limits.slope, numbers, scratch.flags)
    for k in range(m):
        zones[numbers[k]].flag = 1
    return m


@lean_kernel
def scan_picked(codes, n_distinct, zones, n_zones, last_zone, partition, start, mid, limits, missing, node, bar, keys, scratch):
    """Scan the rows of a column's flagged zones exactly, given by ``keys``, ``code << 32 | place`` with places ascending.

    The split goes to ``scratch``. Returns its score, -1.0 if none is above the bar. Zones are as of
    :func:`~dtrees.split.zones.scan_zones`.
    """
    sort_keys(keys, scratch.spare, keys.shape[0], scratch.counts)
    score = scan_zones(limits, keys, zones, n_zones, last_zone, partition, start, missing, node, bar, scratch.best)
    if score >= 0.0 and scratch.best[1] == UNKNOWN:
        scratch.best[1] = code_after(codes, n_distinct, partition.rows, start, mid, scratch.best[0])
    return score


@inlined_kernel
def search_sorted(keys, first, last, n_distinct, a, b, base, sums, limits, bar, scratch):
    """Do the same over rows that are sorted already; see :func:`~dtrees.split.sweep.sweep_sorted` for what they are."""
    low = keys[first] >> np.uint64(32)
    high = keys[last - 1] >> np.uint64(32)
    if low == high:
        return CONSTANT, 0.0, False
    has_missing = high == np.uint64(n_distinct)
    best = scratch.best
    if limits.n_classes > 0:
        left, missing, best_left = scratch.classes[0], scratch.classes[1], scratch.classes[3]
        if not has_missing and sums_squares(limits, sums):
            score = sweep_squares(limits, keys, first, last, a, b, base, sums, left, bar, best, best_left, scratch.stretch)
            return SPLIT if score >= 0.0 else NO_SPLIT, score, False
        end = first_above(keys, first, last, n_distinct - 1)
        left[:] = 0
        before, n_missing, n_node = (ZERO(), ZERO()), sum_classes(keys, end, last, a, b, base, missing), (sums.sum(), last - first)
        score = sweep_classes(
            limits, keys, first, end, a, b, base, left, before, missing, n_missing, sums, n_node, NONE(), bar, best, best_left
        )
    else:
        node = (sums[0], sums[1], last - first)
        if not has_missing and limits.criterion != ENTROPY:
            score = sweep_complete(limits, keys, first, last, a, b, base, node, bar, best, scratch.stretch)
            return SPLIT if score >= 0.0 else NO_SPLIT, score, False
        end = first_above(keys, first, last, n_distinct - 1)
        missing_sums = sum_rows(keys, end, last, a, b, base)
        score = sweep_sorted(limits, keys, first, end, a, b, base, (ZERO(), ZERO(), ZERO()), missing_sums, node, NONE(), bar, best)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, has_missing


@inlined_kernel
def complete(values, column, n_all, sums, limits, score, has_missing, scratch, out, t):
    """Write the split kept in ``scratch``, of a node of ``n_all`` rows, as a candidate to place ``t`` of ``out``."""
    n_distinct = values.shape[0]
    best = scratch.best
    record = out.records[t]
    record.column = column
    record.score = score
    if limits.random or best[1] == KNOWN:
        record.threshold = scratch.threshold[0]
        record.cut = best[0]
    elif best[1] < 0:
        record.threshold = np.inf
        record.cut = n_distinct - 1
    else:
        record.threshold = midpoint(np.float64(values[best[0]]), np.float64(values[best[1]]))
        record.cut = best[0]
    record.n_left = best[5]
    # Where no value was missing, rows that miss it go with the majority.
    record.missing_left = best[2] == 1 if has_missing else 2 * best[5] > n_all
    if limits.n_classes > 0:
        weight = 0
        for k in range(sums.shape[0]):
            weight += sums[k]
            out.left[t, k] = scratch.classes[3, k]
        record.gain = gain_classes(limits.criterion, score, sums, weight)
    else:
        out.left[t, 0] = best[3]
        out.left[t, 1] = best[4]
        record.gain = gain_moments(limits.criterion, score, float(sums[0]), float(sums[1]), limits.penalty)
    too_little = record.gain < limits.min_gain or (limits.criterion == NEWTON and record.gain <= 0.0)
    record.status = NO_SPLIT if too_little else SPLIT


@kernel
def search_many(columns, column_ids, tasks, first, last, partition, starts, mids, sums, limits, key, paths, scratch, out):
    """Search the pairs of node and column ``tasks[first:last]`` and write each candidate at its place in ``out``.

    Parameters
    ----------
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns in the whole table.
    tasks : ndarray of int64, shape (n_tasks, 2)
        Node (index into ``starts``) and column (index into ``columns``).
    starts, mids : ndarray of int64, shape (n_nodes,)
    sums : ndarray of int64, shape (n_nodes, n_sums)
    key : uint64
        Of the tree's stream of random thresholds.
    paths : ndarray of uint64, shape (n_nodes,)
    """
    for t in range(first, last):
        node, j = tasks[t, 0], tasks[t, 1]
        column = np.int64(column_ids[j])
        values = columns.values[columns.offsets[j] : columns.offsets[j + 1]]
        start, mid = starts[node], mids[node]
        bits = draw(np.uint64(key) ^ paths[node], column)
        status, score, has_missing = search_column(
            scratch.absolute, columns.codes[j], values, partition, start, mid, sums[node], limits, bits, -1.0, scratch
        )
        out.records[t].column = column
        out.records[t].status = status
        if status == SPLIT:
            complete(values, column, mid - start, sums[node], limits, score, has_missing, scratch, out, t)


@kernel
def best_by_node(candidates, nodes, best):
    """Reduce candidates to the best of each node: candidate i belongs to node ``nodes[i]``, an index into ``best``.

    ``best`` starts with :func:`empty_candidates` or an earlier result.
    """
    for i in range(nodes.shape[0]):
        mine, theirs = best.records[nodes[i]], candidates.records[i]
        if mine.column < 0:
            better = True
        elif mine.status == SPLIT and theirs.status == SPLIT:
            better = theirs.column < mine.column if theirs.score == mine.score else theirs.score > mine.score
        else:
            better = theirs.status > mine.status
        if better:
            best.records[nodes[i]] = theirs
            best.left[nodes[i]] = candidates.left[i]
