"""One node and one column: the exact score between every two neighbouring values.

A sweep goes through the values present in the node in ascending order, keeps the statistic of all rows so far, and evaluates the split
after each value with the missing rows on the left and on the right. The first of equals is kept, which makes "lower threshold, then
missing left" the order among equal scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inlined_kernel, kernel, lean_kernel, shared_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.constraints.kinds import unconstrained
from dtrees.split.criteria.parts import class_term, is_arithmetic, may_exceed, score, score_of_terms
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments, no_moments, plus, plus_row, weight_at
from dtrees.split.node.found import NONE_HIGHER, note_found
from dtrees.split.node.limits import is_allowed
from dtrees.split.table.keys import PLACE, code_of, first_key


@specialised
def nothing(statistic, room):
    """Return the statistic of no rows, of the kind of another one; weights of classes are in ``room``."""


@nothing.of(Moments)
def _(statistic, room):
    return no_moments()


@nothing.of(Classes)
def _(statistic, room):
    room[:] = 0
    return Classes(room, ZERO(), ZERO())


@nothing.of(AmountsOfTargets)
def _(statistic, room):
    room[:] = 0
    return AmountsOfTargets(statistic.rows, room, ZERO(), ZERO())


@nothing.of(ClassesOfTargets)
def _(statistic, room):
    room[:] = 0
    return ClassesOfTargets(statistic.rows, statistic.first, room, ZERO(), ZERO())


@specialised
def score_above(left, criterion, node, bar):
    """Return the score of a split by the statistics of its left side and of the node; a number up to the bar if it is not above it."""


@score_above.of(Moments)
def _(left, criterion, node, bar):
    g, other_g, h, other_h = float(left.g), float(node.g - left.g), float(left.h), float(node.h - left.h)
    if not may_exceed(criterion, g, h, other_g, other_h, bar):
        return -1.0
    return score(criterion, g, h, other_g, other_h)


@score_above.of(Classes)
def _(left, criterion, node, bar):
    h, other_h = float(left.h), float(node.h - left.h)
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    terms = 0.0
    for k in range(node.weights.shape[0]):
        terms += class_term(criterion, left.weights[k], node.weights[k] - left.weights[k], h, other_h)
    return score_of_terms(criterion, terms, h, other_h, node.h, node.weights.shape[0])


@score_above.of(AmountsOfTargets)
def _(left, criterion, node, bar):
    h, other_h = float(left.h), float(node.h - left.h)
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    terms = 0.0
    for t in range(node.sums.shape[0]):
        terms += class_term(criterion, left.sums[t], node.sums[t] - left.sums[t], h, other_h)
    return score_of_terms(criterion, terms, h, other_h, node.h, 1)


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
def cut_after(limits, left, missing, node, code, next_code, top, room, found):
    """Evaluate the split after a value, missing rows on the left and on the right; return the best score so far.

    Parameters
    ----------
    limits : SplitLimits
    left, missing, node : Moments or Classes
        The rows up to the value, those where it is missing, and all of the node.
    code, next_code : int
        Of the value, and of the next higher one (NONE_HIGHER: there is none).
    top : float
        The best score so far. Only a better one is noted.
    room : ndarray of int64, shape (n_classes,)
        Scratch space.
    found : Found
    """
    if missing.n > 0 and next_code != NONE_HIGHER:
        top = _try_cut(limits, plus(left, missing, room), node, code, next_code, True, top, found)
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
        The rows where the value is missing, and the whole node.
    bar : float
        Only splits of a larger score count.
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
        ``keys[first:last]`` are the rows' keys (:mod:`dtrees.split.table.keys`), ascending.
    first, last : int
    a, b : ndarray of int64
        Of the row with place i at ``base + i``; ``b`` is empty where every weight is 1.
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
    """Return some of sorted rows: those of ``keys[first:last]``."""
    return SortedRows(rows.keys, first, last, rows.a, rows.b, rows.base)


@shared_kernel
def sweep_sorted(limits, rows, left, missing, node, next_of_last, bar, room, found):
    """Find the best split after one of the values of rows sorted by code: all of the node's, or a stretch of them.

    Parameters
    ----------
    limits : SplitLimits
    rows : SortedRows
        None of them missing.
    left, missing, node : Moments or Classes
        The rows before the stretch, those where the value is missing, and the whole node. The weights of classes in ``left`` become those
        up to the end of the stretch.
    next_of_last : int
        The code after the last key's: another stretch's, NONE_HIGHER or UNKNOWN.
    bar : float
        Only splits of a larger score count.
    room : ndarray of int64, shape (n_classes,)
        Scratch space.
    found : Found
        Written if there is one.

    Returns
    -------
    float
        The score of the best split, -1.0 if none is above the bar.
    """
    top, keys, last = bar, rows.keys, rows.last
    code = code_of(keys[rows.first])
    for i in range(rows.first, last):
        place = rows.base + np.int64(keys[i] & PLACE)
        left = plus_row(left, rows.a[place], weight_at(rows.b, place))
        next_code = np.int64(next_of_last)
        if i < last - 1:
            next_code = code_of(keys[i + 1])
            if next_code == code:
                continue
        top = cut_after(limits, left, missing, node, code, next_code, top, room, found)
        code = next_code
    return top if top > bar else -1.0


@kernel
def first_above(keys, first, last, code):
    """Return where codes above ``code`` begin among the sorted ``keys[first:last]``."""
    low, high, bound = first, last, first_key(code + 1)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@lean_kernel
def sum_rows(rows, statistic):
    """Return a statistic with sorted rows added."""
    for i in range(rows.first, rows.last):
        place = rows.base + np.int64(rows.keys[i] & PLACE)
        statistic = plus_row(statistic, rows.a[place], weight_at(rows.b, place))
    return statistic
