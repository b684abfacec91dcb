"""One node and one column in which most rows have one value: 0 in a sparse column, the absence of a category, or none.

Only the other rows are listed, sorted and swept. The sums of those of the *dominant* code are the node's without the others', so that
nothing but their codes is looked at.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, lean_kernel
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import minus
from dtrees.split.node.found import NONE_HIGHER
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.policy import DOMINANT_HITS, OTHER_CODES_SHARE, PROBED_ROWS, PROBES
from dtrees.split.search.thresholds.sweep import SortedRows, cut_after, first_above, nothing, rows_between, sum_rows, sweep_sorted
from dtrees.split.table.keys import code_of, first_key, key_of
from dtrees.split.table.sorting import common_code, sort_keys


@lean_kernel
def find_dominant(codes, rows, scratch):
    """Return the code that most of a node's rows seem to have, -1 if none does."""
    n = rows.shape[0]
    if n < PROBED_ROWS:
        return NONE()
    probed = scratch.keys[:PROBES]
    for k in range(PROBES):
        probed[k] = first_key(codes[rows[n * k // PROBES]])
    code, n_equal = common_code(probed, PROBES)
    return np.int64(code) if n_equal >= DOMINANT_HITS else NONE()


@lean_kernel
def list_others(codes, rows, dominant, keys):
    """Write the keys of the rows of a node with other codes, places from 0, and return how many there are.

    Returns -1 if they are too many to be searched this way.
    """
    at, dominant = np.uint64(0), np.uint64(dominant)
    for i in range(np.uint64(rows.shape[0])):
        code = np.uint64(codes[rows[i]])
        keys[at] = key_of(code, i)
        at += np.uint64(code != dominant)
    return np.int64(at) if np.int64(at) <= rows.shape[0] // OTHER_CODES_SHARE else NONE()


@lean_kernel
def search_around_dominant(keys, dominant, pair, limits, bar, scratch):
    """Find the best split of a node in a column from the ``keys`` of the rows that have other codes than the dominant one.

    Parameters and result are otherwise as of :func:`~dtrees.split.search.column.search_column`.
    """
    m, n_distinct = keys.shape[0], pair.values.shape[0]
    if m == 0:
        return CONSTANT, 0.0, False
    sort_keys(keys, scratch.spare, m, scratch.counts)
    n_present = first_above(keys, ZERO(), m, n_distinct - 1)
    n_lower = first_above(keys, ZERO(), n_present, dominant)
    has_missing = dominant == n_distinct or n_present < m
    node = node_statistic(limits.criterion, pair.sums, pair.in_stop - pair.start)
    rows = SortedRows(keys, ZERO(), m, pair.partition.g, pair.partition.h, pair.start)
    score = _sweep(limits, rows, n_lower, n_present, dominant, dominant == n_distinct, node, bar, scratch)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, has_missing


@lean_kernel
def _sweep(limits, rows, n_lower, n_present, dominant, are_missing, node, bar, scratch):
    """Sweep lower codes, then the dominant one, then higher ones; ``are_missing`` says whether its rows have no value.

    The best split goes to ``scratch.found``, its score is returned.
    """
    found, room = scratch.found, scratch.classes
    none = nothing(node, room[0])
    if are_missing:
        present = rows_between(rows, ZERO(), n_present)
        missing = minus(node, sum_rows(present, nothing(node, room[1])), room[1])
        return sweep_sorted(limits, present, none, missing, node, NONE_HIGHER, bar, room[2], found)
    lower, higher = rows_between(rows, ZERO(), n_lower), rows_between(rows, n_lower, n_present)
    missing = sum_rows(rows_between(rows, n_present, rows.last), nothing(node, room[1]))
    top = bar
    if n_lower > 0:
        top = max(top, sweep_sorted(limits, lower, none, missing, node, dominant, top, room[2], found))
    left = minus(minus(node, missing, room[2]), sum_rows(higher, nothing(node, room[0])), room[0])
    next_code = code_of(rows.keys[n_lower]) if n_lower < n_present else NONE_HIGHER
    top = cut_after(limits, left, missing, node, dominant, next_code, top, room[2], found)
    if n_lower < n_present:
        top = max(top, sweep_sorted(limits, higher, left, missing, node, NONE_HIGHER, top, room[2], found))
    return top if top > bar else -1.0
