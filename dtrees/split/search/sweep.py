"""The sweep over one column of a node: the exact score between every two neighbouring values.

A sweep passes over the values present in the node in ascending order, updates the statistic of the rows so far, and evaluates the split
after each value with the missing rows on the left and on the right. The first of equal scores is kept, so the order among them is "lower
threshold, then missing left".

In some columns most rows of a node have the same value: 0 in a sparse column, the absence of a category, or a missing value. Only the
other rows are then listed, sorted and swept. The sums of the rows with the *dominant* code are the node's minus the others', so only
their codes are read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel, lean_kernel, shared_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.constraints import unconstrained
from dtrees.split.criteria.parts import class_term, is_arithmetic, may_exceed, node_statistic, score, score_of_terms
from dtrees.split.criteria.statistics import ClassesOfTargets, Moments, minus, no_moments, nothing, plus, plus_row, weight_at
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.records import CONSTANT, NO_SPLIT, NONE_HIGHER, SPLIT, note_found
from dtrees.split.policy import DOMINANT_HITS, OTHER_CODES_SHARE, PROBED_ROWS, PROBES
from dtrees.split.table.sorting import PLACE, code_of, common_code, first_key, key_of, lower_bound, sort_keys


@optional
def score_above(left, criterion, node, bar):
    """Return the score of a split, given the statistics of its left side and of the node; if not above the bar, any number up to it."""
    h, other_h = float(left.h), float(node.h - left.h)
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    terms = 0.0
    for k in range(node.sums.shape[0]):
        terms += class_term(criterion, left.sums[k], node.sums[k] - left.sums[k], h, other_h)
    return score_of_terms(criterion, terms, h, other_h, node.h, node.sums.shape[0])


@score_above.of(Moments)
def _(left, criterion, node, bar):
    g, other_g, h, other_h = float(left.g), float(node.g - left.g), float(left.h), float(node.h - left.h)
    if not may_exceed(criterion, g, h, other_g, other_h, bar):
        return -1.0
    return score(criterion, g, h, other_g, other_h)


@score_above.of(ClassesOfTargets)
def _(left, criterion, node, bar):
    h, other_h = float(left.h), float(node.h - left.h)
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    total = terms = 0.0
    for t in range(node.first.shape[0] - 1):
        for k in range(node.first[t], node.first[t + 1]):
            terms += class_term(criterion, left.sums[k], node.sums[k] - left.sums[k], h, other_h)
        if not is_arithmetic(unconstrained(criterion)):
            total += score_of_terms(criterion, terms, h, other_h, node.h, node.first[t + 1] - node.first[t])
            terms = 0.0
    return score_of_terms(criterion, terms, h, other_h, node.h, 1) if is_arithmetic(unconstrained(criterion)) else total


@inlined_kernel
def _try_cut(limits, left, node, code, next_code, missing_left, top, found):
    """Evaluate one split; return the best score so far."""
    if is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
        mine = score_above(left, limits.criterion, node, top)
        if mine > top:
            top = mine
            note_found(found, code, next_code, missing_left, left)
    return top


@inlined_kernel
def cut_after(limits, left, missing, node, code, next_code, top, buffer, found):
    """Evaluate the split after a value, missing rows on the left and on the right; return the best score so far.

    Parameters
    ----------
    limits : SplitLimits
    left, missing, node : Moments or Classes
        Statistics of the rows up to the value, of the rows with missing values, and of the node.
    code, next_code : int
        Code of the value, and the next higher one (NONE_HIGHER: there is none).
    top : float
        The best score so far. Only a better split is stored.
    buffer : ndarray of int64, shape (n_classes,)
        Scratch space.
    found : Found
    """
    if missing.n > 0 and next_code != NONE_HIGHER:
        top = _try_cut(limits, plus(left, missing, buffer), node, code, next_code, True, top, found)
    return _try_cut(limits, left, node, code, next_code, False, top, found)


@kernel
def sweep_bins(limits, bins, m, missing, node, bar, found):
    """Find the best split of a node in one column (moments).

    Parameters
    ----------
    limits : SplitLimits
    bins : ndarray of BIN
        Sums of the ``m`` values present in the node, ascending.
    missing, node : Moments
        Moments of the rows with missing values, and of the node.
    bar : float
        Only splits with a larger score are candidates.
    found : Found
        Written if there is one.

    Returns
    -------
    float
        The score of the best split, -1.0 if none is above the bar.
    """
    top = bar
    left = no_moments()
    for i in range(m if missing.n > 0 else m - 1):
        left = Moments(left.g + bins[i].g, left.h + bins[i].h, left.n + np.int64(bins[i].n))
        next_code = np.int64(bins[i + 1].code) if i + 1 < m else NONE_HIGHER
        top = cut_after(limits, left, missing, node, np.int64(bins[i].code), next_code, top, found.left, found)
    return top if top > bar else -1.0


class SortedRows(NamedTuple):
    """Rows of a node sorted by code: all of them, or some.

    Attributes
    ----------
    keys : ndarray of uint64
        ``keys[first:last]`` are the rows' keys (:mod:`dtrees.split.table.sorting`), ascending.
    first, last : int
    a, b : ndarray of int64
        Numbers of the row with place i at ``base + i``; ``b`` is empty if every weight is 1.
    base : int
    """

    keys: NDArray[np.uint64]
    first: int
    last: int
    a: NDArray[np.int64]
    b: NDArray[np.int64]
    base: int


@lean_kernel
def rows_between(rows, first, last):
    """Return a range of sorted rows: those of ``keys[first:last]``."""
    return SortedRows(rows.keys, first, last, rows.a, rows.b, rows.base)


@shared_kernel
def sweep_sorted(limits, rows, left, missing, node, next_of_last, bar, buffer, found):
    """Find the best split after one of the values of sorted rows: all rows of the node, or a range of them.

    Parameters
    ----------
    limits : SplitLimits
    rows : SortedRows
        None of them has a missing value.
    left, missing, node : Moments or Classes
        Statistics of the rows before the range, of the rows with missing values, and of the node. The weights of classes in ``left``
        become those up to the end of the range.
    next_of_last : int
        The code after the last key's: that of another range, NONE_HIGHER or UNKNOWN.
    bar : float
        Only splits with a larger score are candidates.
    buffer : ndarray of int64, shape (n_classes,)
        Scratch space.
    found : Found
        Written if there is one.

    Returns
    -------
    float
        The score of the best split, -1.0 if none is above the bar.
    """
    top, keys = bar, rows.keys
    first, last, base, one = np.uint64(rows.first), np.uint64(rows.last), np.uint64(rows.base), np.uint64(1)
    code = code_of(keys[first])
    for i in range(first, last):  # unsigned: no test for negative indices
        place = base + (keys[i] & PLACE)
        left = plus_row(left, rows.a[place], weight_at(rows.b, place))
        next_code = np.int64(next_of_last)
        if i + one < last:
            next_code = code_of(keys[i + one])
            if next_code == code:
                continue
        top = cut_after(limits, left, missing, node, code, next_code, top, buffer, found)
        code = next_code
    return top if top > bar else -1.0


@lean_kernel
def sum_rows(rows, statistic):
    """Return a statistic plus sorted rows."""
    for i in range(rows.first, rows.last):
        place = rows.base + np.int64(rows.keys[i] & PLACE)
        statistic = plus_row(statistic, rows.a[place], weight_at(rows.b, place))
    return statistic


@lean_kernel
def find_dominant(codes, rows, scratch):
    """Return the code that most of a node's rows probably have, -1 if there is none."""
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
    """Write the keys of the rows of a node with other codes than the dominant one, places from 0, and return their number.

    Returns -1 if they are too many for this method.
    """
    at, dominant = np.uint64(0), np.uint64(dominant)
    for i in range(np.uint64(rows.shape[0])):
        code = np.uint64(codes[rows[i]])
        keys[at] = key_of(code, i)
        at += np.uint64(code != dominant)
    return np.int64(at) if np.int64(at) <= rows.shape[0] // OTHER_CODES_SHARE else NONE()


@lean_kernel
def search_around_dominant(keys, dominant, pair, limits, bar, scratch):
    """Find the best split of a node in a column from the ``keys`` of the rows with other codes than the dominant one.

    Other parameters and the result are those of :func:`~dtrees.split.search.column.search_column`.
    """
    m, n_distinct = keys.shape[0], pair.values.shape[0]
    if m == 0:
        return CONSTANT, 0.0, False
    sort_keys(keys, scratch.spare, m, scratch.counts)
    n_present = lower_bound(keys, ZERO(), m, first_key(n_distinct))
    n_lower = lower_bound(keys, ZERO(), n_present, first_key(dominant + 1))
    has_missing = dominant == n_distinct or n_present < m
    node = node_statistic(limits.criterion, pair.sums, pair.in_stop - pair.start)
    rows = SortedRows(keys, ZERO(), m, pair.partition.g, pair.partition.h, pair.start)
    score = _sweep_around(limits, rows, n_lower, n_present, dominant, dominant == n_distinct, node, bar, scratch)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, has_missing


@lean_kernel
def _sweep_around(limits, rows, n_lower, n_present, dominant, are_missing, node, bar, scratch):
    """Sweep lower codes, then the dominant one, then higher ones; ``are_missing`` says whether the dominant rows have no value.

    The best split is written to ``scratch.found``; returns its score.
    """
    found, buffer = scratch.found, scratch.classes
    none = nothing(node, buffer[0])
    if are_missing:
        present = rows_between(rows, ZERO(), n_present)
        missing = minus(node, sum_rows(present, nothing(node, buffer[1])), buffer[1])
        return sweep_sorted(limits, present, none, missing, node, NONE_HIGHER, bar, buffer[2], found)
    lower, higher = rows_between(rows, ZERO(), n_lower), rows_between(rows, n_lower, n_present)
    missing = sum_rows(rows_between(rows, n_present, rows.last), nothing(node, buffer[1]))
    top = bar
    if n_lower > 0:
        top = max(top, sweep_sorted(limits, lower, none, missing, node, dominant, top, buffer[2], found))
    left = minus(minus(node, missing, buffer[2]), sum_rows(higher, nothing(node, buffer[0])), buffer[0])
    next_code = code_of(rows.keys[n_lower]) if n_lower < n_present else NONE_HIGHER
    top = cut_after(limits, left, missing, node, dominant, next_code, top, buffer[2], found)
    if n_lower < n_present:
        top = max(top, sweep_sorted(limits, higher, left, missing, node, NONE_HIGHER, top, buffer[2], found))
    return top if top > bar else -1.0
