"""Loops over several columns, or several rows, without dependencies, which the compiler vectorises.

*Columns side by side*, in small nodes: a row ``x`` holds its values in some columns, NaN for missing ones, or their codes, and loops run
over columns. All reads are unconditional.

*Rows side by side*: in a plain sweep (:mod:`dtrees.split.search.sweep`) every row depends on the sums of the one before. In nodes
without missing values, a chunk of rows is read twice: first for the running sums, then for the scores, in which rows do not depend on
each other. This is for criteria whose scores are plain arithmetic, or have a bound that is: then only rows whose bound exceeds the bar
are scored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.constraints import Clipped, InOrder, forbid_in_column
from dtrees.split.criteria.parts import class_term, is_arithmetic, is_bounded, score, score_of_terms, take_from_inside, upper_bound
from dtrees.split.criteria.several import SeveralClasses
from dtrees.split.criteria.squares import GiniOfClasses
from dtrees.split.criteria.statistics import AmountsOfTargets, Moments, amount_of, n_changed, nothing, weight_at, which_sum
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.records import note_found
from dtrees.split.numbers.elementary import float_of
from dtrees.split.policy import CHUNK
from dtrees.split.search.sweep import SortedRows, rows_between, sum_rows
from dtrees.split.table.sorting import code_in, code_of, place_in


@inlined_kernel
def widen(x, low, high):
    """Update the lowest and highest value of each column with a row."""
    for j in range(low.shape[0]):
        low[j] = x[j] if x[j] < low[j] else low[j]
        high[j] = x[j] if x[j] > high[j] else high[j]


@lean_kernel
def widen_two(x, y, low, high):
    """Update the lowest and highest value of each column with two rows."""
    for j in range(low.shape[0]):
        lowest, highest = low[j], high[j]
        lowest = x[j] if x[j] < lowest else lowest
        highest = x[j] if x[j] > highest else highest
        low[j] = y[j] if y[j] < lowest else lowest
        high[j] = y[j] if y[j] > highest else highest


@lean_kernel
def add_missing(x, g, g_missing):
    """Add a number to the sums of those columns in which a row has no value."""
    for j in range(g_missing.shape[0]):
        g_missing[j] += g if x[j] != x[j] else 0


@lean_kernel
def add_left(x, cut, g, g_left, h, h_left):
    """Add two numbers of a row to the sums of those columns in which its value, or code, is at most ``cut``."""
    for j in range(cut.shape[0]):
        left = x[j] <= cut[j]
        g_left[j] += g if left else 0
        h_left[j] += h if left else 0


@inlined_kernel
def add_two_left(x, y, cut, x_g, y_g, g_left, x_h, y_h, h_left):
    """Add two numbers of each of two rows, like :func:`add_left` for one row."""
    for j in range(cut.shape[0]):
        x_left, y_left = x[j] <= cut[j], y[j] <= cut[j]
        g_left[j] += (x_g if x_left else 0) + (y_g if y_left else 0)
        h_left[j] += (x_h if x_left else 0) + (y_h if y_left else 0)


@lean_kernel
def add_row_left(node, x, cut, a, weight, more, total, left):
    """Add a row to the sums of those columns in which its value, or code, is at most ``cut``: to ``left``, and ``more`` to ``total``.

    ``node`` determines which sums the row changes; these are added to two at a time.
    """
    last = n_changed(node) - 1
    add_left(x, cut, more, total, amount_of(node, a, 0, weight), left[which_sum(node, a, 0)])
    for t in range(1, last, 2):
        one, other = amount_of(node, a, t, weight), amount_of(node, a, t + 1, weight)
        add_left(x, cut, one, left[which_sum(node, a, t)], other, left[which_sum(node, a, t + 1)])
    if last & 1:
        add_left(x, cut, amount_of(node, a, last, weight), left[which_sum(node, a, last)], np.int64(0), total)


@optional
def score_columns(node, criterion, left, h, scores):
    """Score a split of each column, -1.0 if it is not defined.

    Parameters
    ----------
    node : Moments, Classes, AmountsOfTargets or ClassesOfTargets
    criterion : named tuple
    left : ndarray of int64, shape (n_quantities, n_columns)
        Sums of the left side: g, or the weight of each class, or the sums of targets.
    h : ndarray of int64, shape (n_columns,)
        Weight of the left side.
    scores : ndarray of float64, shape (n_columns,)
    """
    scores[:] = 0.0
    for k in range(node.sums.shape[0]):
        add_class_terms(criterion, left[k], node.sums[k], h, node.h, scores)
    finish_scores(criterion, h, node, scores)


@score_columns.of(Moments)
def _(node, criterion, left, h, scores):
    g = left[0]
    for j in range(scores.shape[0]):
        scores[j] = score(criterion, float(g[j]), float(h[j]), float(node.g - g[j]), float(node.h - h[j]))


@lean_kernel
def bound_columns(node, criterion, g, h, bounds):
    """Bound the score of a split of each column, given the moments of the left side; see :func:`score_columns`."""
    whole = float(node.g), float(node.h)
    for j in range(bounds.shape[0]):
        bounds[j] = upper_bound(criterion, float(g[j]), float(h[j]), float(node.g - g[j]), float(node.h - h[j]), whole)


@lean_kernel
def add_class_terms(criterion, left, whole, h, h_all, terms):
    """Add the terms of one class, of weight ``whole`` in the node and ``left[j]`` left of the split of column j."""
    for j in range(terms.shape[0]):
        terms[j] += class_term(criterion, left[j], whole - left[j], float(h[j]), float(h_all - h[j]))


@lean_kernel
def finish_scores(criterion, h, node, scores):
    """Turn sums of terms over classes, or over several targets of arithmetic criteria, into scores."""
    for j in range(scores.shape[0]):
        one, other = float(h[j]), float(node.h - h[j])
        found = score_of_terms(criterion, scores[j], one, other, node.h, node.sums.shape[0])
        scores[j] = found if (one > 0.0) & (other > 0.0) else -1.0


@lean_kernel
def forbid(limits, n_left, n, h, total, score):
    """Discard the scores of splits that are not allowed."""
    for j in range(score.shape[0]):
        found = score[j]
        score[j] = found if is_allowed(limits, n_left[j], n - n_left[j], h[j], total - h[j]) else -1.0


#: Largest weight of a node whose sums of squares are below 2**53: floats hold them exactly, whatever the order of the additions.
EXACT_WEIGHT = 13_777
#: Limit of the fourth power of the weight of a node with several targets, times their number, for the same purpose.
_EXACT_POWER = 2.0**55


@by_reference
class Chunk(NamedTuple):
    """Scratch space: running sums and scores of a chunk of rows; ``bits`` is a view of ``scores``."""

    sums: NDArray[np.int64]
    scores: NDArray[np.float64]
    bits: NDArray[np.int64]


def make_chunk() -> Chunk:
    """Return buffers for a chunk."""
    scores = np.empty(CHUNK)
    return Chunk(np.empty((3, CHUNK), np.int64), scores, scores.view(np.int64))


@optional
def sweeps_chunks(criterion, node):
    """Return whether :func:`sweep_chunks` supports a node of this statistic."""
    return is_arithmetic(criterion) or is_bounded(criterion)


take_from_inside((Clipped, InOrder), (sweeps_chunks,))


@sweeps_chunks.of(GiniOfClasses)
def _(criterion, node):
    return node.h <= EXACT_WEIGHT


@sweeps_chunks.of(SeveralClasses)
def _(criterion, node):
    square = float(node.h) * float(node.h)
    return is_arithmetic(criterion) and square * square * node.rows.shape[1] < _EXACT_POWER


@optional
def sweep_chunks(node, limits, rows, bar, buffer, found, chunk):
    """Find the best split of a node from its rows sorted by code, without missing values.

    Parameters and result are those of :func:`~dtrees.split.search.sweep.sweep_sorted`; ``chunk`` is scratch space.
    """
    top, cut, before, first, last = bar, NONE(), (ZERO(), ZERO(), ZERO()), rows.first, rows.last
    buffer[:] = 0
    for start in range(first, last, CHUNK):
        m = min(last - start, CHUNK)
        n = min(m, last - 1 - start)  # there is no split after the last row
        before = _score_chunk(node, limits, rows, start, m, n, before, buffer, chunk)
        where = highest(chunk, n, top)
        if where >= 0:
            top = chunk.scores[where]
            cut = start + where
    return _note_cut(node, rows, cut, top, buffer, found)


@optional
def _score_chunk(node, limits, rows, start, m, n, before, buffer, chunk):
    """Score the splits after the first ``n`` of the ``m`` rows from ``keys[start]`` on; return the totals of all rows so far.

    ``before`` are the totals of earlier rows, whose sums are in ``buffer``. A statistic without a version of its own is scored by the
    squares of its sums.
    """
    node_square = ZERO()
    for k in range(node.sums.shape[0]):
        node_square += node.sums[k] * node.sums[k]
    squares, products, h = chunk.sums[0, :m], chunk.sums[1, :m], chunk.sums[2, :m]
    totals = _sum_squares(node, _chunk_of(rows, start, m), buffer, before, squares, products, h)
    keys, scores = rows.keys[start : start + n + 1], chunk.scores[:n]
    _score_squares(limits, keys, start - rows.first, squares[:n], products[:n], h[:n], node_square, node, scores)
    return totals


@lean_kernel
def _chunk_of(rows, start, m):
    """Return a view of ``m`` sorted rows, from ``keys[start]`` on."""
    return SortedRows(rows.keys[start : start + m], ZERO(), m, rows.a, rows.b, rows.base)


@lean_kernel
def _sum_moments(rows, before, g, h):
    """Write the running sums of g and h over rows sorted by code."""
    total_g, total_h = before
    for i in range(g.shape[0]):
        place = np.uint64(rows.base) + place_in(rows.keys[i])
        total_g += rows.a[place]
        total_h += weight_at(rows.b, place)
        g[i] = total_g
        h[i] = total_h
    return total_g, total_h


@lean_kernel
def _score_moments(limits, keys, n_before, g, h, node, scores):
    """Bound the scores of the splits after each row, except within a value; ``keys`` has one more row."""
    whole = float(node.g), float(node.h)
    for i in range(scores.shape[0]):
        other_h, n = node.h - h[i], n_before + i + 1
        mine = upper_bound(limits.criterion, float(g[i]), float(h[i]), float(node.g - g[i]), float(other_h), whole)
        allowed = (code_in(keys[i]) != code_in(keys[i + 1])) & is_allowed(limits, n, node.n - n, h[i], other_h)
        scores[i] = mine if allowed else -1.0


@lean_kernel
def highest(chunk, n, top):
    """Return the first place of the highest of the first ``n`` scores, if it is above ``top``; otherwise -1.

    Scores are -1 or non-negative, so they have the order of their bits, and the maximum of integers is vectorised.
    """
    bits, largest, where = chunk.bits[:n], NONE(), ZERO()
    for i in range(bits.shape[0]):
        largest = max(largest, bits[i])
    if largest < 0 or float_of(largest) <= top:
        return NONE()
    while bits[where] != largest:
        where += 1
    return where


@lean_kernel
def _highest_score(limits, g, h, node, chunk, first, top):
    """Return the first place of the highest score above ``top``, given bounds, and the score; -1 if there is none.

    The score at ``first``, the place of the highest bound, is computed first, so that few others have to be.
    """
    where, criterion = NONE(), limits.criterion
    mine = score(criterion, float(g[first]), float(h[first]), float(node.g - g[first]), float(node.h - h[first]))
    if mine > top:
        top, where = mine, first
    for i in range(g.shape[0]):
        if chunk.scores[i] >= top and i != first:
            mine = score(criterion, float(g[i]), float(h[i]), float(node.g - g[i]), float(node.h - h[i]))
            if mine > top or (mine == top and i < where):
                top, where = mine, i
    return where, top


@sweep_chunks.of(Moments)
def _(node, limits, rows, bar, buffer, found, chunk):
    top, keys, first, last = bar, rows.keys, rows.first, rows.last
    sums = ZERO(), ZERO()
    for start in range(first, last, CHUNK):
        m = min(last - start, CHUNK)
        g, h = chunk.sums[0, :m], chunk.sums[1, :m]
        sums = _sum_moments(_chunk_of(rows, start, m), sums, g, h)
        m = min(m, last - 1 - start)  # there is no split after the last row
        if m <= 0:
            continue
        _score_moments(limits, keys[start : start + m + 1], start - first, g[:m], h[:m], node, chunk.scores[:m])
        forbid_in_column(limits.criterion, node, g[:m], h[:m], chunk.scores[:m])
        where = highest(chunk, m, top)
        if is_bounded(limits.criterion):
            if where >= 0:
                where, top = _highest_score(limits, g[:m], h[:m], node, chunk, where, top)
        elif where >= 0:
            top = chunk.scores[where]
        if where >= 0:
            i = start + where
            left = Moments(g[where], h[where], i + 1 - first)
            note_found(found, code_of(keys[i]), code_of(keys[i + 1]), False, left)
    return top if top > bar else -1.0


@lean_kernel
def _note_cut(node, rows, cut, top, buffer, found):
    """Store the split after a row, if there is one (-1: none); return its score."""
    if cut < 0:
        return -1.0
    left = sum_rows(rows_between(rows, rows.first, cut + 1), nothing(node, buffer))
    note_found(found, code_of(rows.keys[cut]), code_of(rows.keys[cut + 1]), False, left)
    return top


@lean_kernel
def _sum_weights(rows, total, numbers, h):
    """Write the numbers of rows sorted by code, and the running sum of their weights; return the total."""
    for i in range(h.shape[0]):
        place = np.uint64(rows.base) + place_in(rows.keys[i])
        numbers[i] = rows.a[place]
        total += weight_at(rows.b, place)
        h[i] = total
    return total


@lean_kernel
def _sum_amounts(amounts, t, numbers, total, g):
    """Write the running sum of one target over rows; return the total."""
    for i in range(g.shape[0]):
        total += amounts[numbers[i], t]
        g[i] = total
    return total


@lean_kernel
def _finish_scores(limits, keys, n_before, h, node, scores):
    """Turn the terms of splits after each row into scores, except within a value; ``keys`` has one more row."""
    for i in range(scores.shape[0]):
        a, b, n = h[i], node.h - h[i], n_before + i + 1
        mine = score_of_terms(limits.criterion, scores[i], float(a), float(b), node.h, 1)
        allowed = (code_in(keys[i]) != code_in(keys[i + 1])) & is_allowed(limits, n, node.n - n, a, b) & (a > 0) & (b > 0)
        scores[i] = mine if allowed else -1.0


@_score_chunk.of(AmountsOfTargets)
def _(node, limits, rows, start, m, n, before, buffer, chunk):
    """A chunk of rows is read once for each target."""
    h, g, numbers, scores = chunk.sums[0, :m], chunk.sums[1, :m], chunk.sums[2, :m], chunk.scores[:n]
    weight = _sum_weights(_chunk_of(rows, start, m), before[0], numbers, h)
    scores[:] = 0.0
    for t in range(node.sums.shape[0]):
        buffer[t] = _sum_amounts(node.rows, t, numbers, buffer[t], g)
        add_class_terms(limits.criterion, g[:n], node.sums[t], h[:n], node.h, scores)
    _finish_scores(limits, rows.keys[start : start + n + 1], start - rows.first, h[:n], node, scores)
    return weight, ZERO(), ZERO()


@lean_kernel
def _sum_squares(node, rows, left, before, squares, products, h):
    """Write the running sums over classes of left**2 and left * node, and of the weight, over rows sorted by code."""
    square, product, total = before
    for i in range(h.shape[0]):
        place = np.uint64(rows.base) + place_in(rows.keys[i])
        a, w = rows.a[place], weight_at(rows.b, place)
        for t in range(n_changed(node)):
            k = which_sum(node, a, t)
            square += w * (2 * left[k] + w)
            product += w * node.sums[k]
            left[k] += w
        total += w
        squares[i] = square
        products[i] = product
        h[i] = total
    return square, product, total


@lean_kernel
def _score_squares(limits, keys, n_before, squares, products, h, node_square, node, scores):
    """Score the splits after each row, except within a value, by Gini impurity.

    sum((left b - right a)**2) = W**2 sum(left**2) - 2 W a sum(left node) + a**2 sum(node**2), with a and b the weights of both sides and
    W that of the node.
    """
    total = node.h
    for i in range(scores.shape[0]):
        a, b, n = h[i], total - h[i], n_before + i + 1
        mine = float(total * (total * squares[i] - 2 * a * products[i]) + a * a * node_square) / (float(a) * float(b))
        allowed = (code_in(keys[i]) != code_in(keys[i + 1])) & is_allowed(limits, n, node.n - n, a, b) & (a > 0) & (b > 0)
        scores[i] = mine if allowed else -1.0
