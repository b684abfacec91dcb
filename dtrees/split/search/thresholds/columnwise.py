"""Sums over rows for many columns side by side.

A row ``x`` holds its values in some columns, NaN where missing, or their codes. The loops run over columns, none of which depends on
another, so that the compiler turns them into vector instructions. For that, whatever is read is read unconditionally.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.parts import class_term, score, score_of_terms, upper_bound
from dtrees.split.criteria.statistics import Moments, amount_of, n_changed, which_sum


@inlined_kernel
def widen(x, low, high):
    """Take a row's values into the lowest and highest of each column."""
    for j in range(low.shape[0]):
        low[j] = x[j] if x[j] < low[j] else low[j]
        high[j] = x[j] if x[j] > high[j] else high[j]


@lean_kernel
def widen_two(x, y, low, high):
    """Take the values of two rows into the lowest and highest of each column."""
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
    """Add two numbers of a row to the sums of those columns in which its value, or code, is up to ``cut``."""
    for j in range(cut.shape[0]):
        left = x[j] <= cut[j]
        g_left[j] += g if left else 0
        h_left[j] += h if left else 0


@inlined_kernel
def add_two_left(x, y, cut, x_g, y_g, g_left, x_h, y_h, h_left):
    """Add two numbers of each of two rows, as :func:`add_left` does with one row."""
    for j in range(cut.shape[0]):
        x_left, y_left = x[j] <= cut[j], y[j] <= cut[j]
        g_left[j] += (x_g if x_left else 0) + (y_g if y_left else 0)
        h_left[j] += (x_h if x_left else 0) + (y_h if y_left else 0)


@lean_kernel
def add_row_left(node, x, cut, a, weight, more, total, left):
    """Add a row to the sums of those columns in which its value, or code, is up to ``cut``: to ``left``, and ``more`` to ``total``.

    ``node`` tells which sums the row changes; these are added to two at a time.
    """
    last = n_changed(node) - 1
    add_left(x, cut, more, total, amount_of(node, a, 0, weight), left[which_sum(node, a, 0)])
    for t in range(1, last, 2):
        one, other = amount_of(node, a, t, weight), amount_of(node, a, t + 1, weight)
        add_left(x, cut, one, left[which_sum(node, a, t)], other, left[which_sum(node, a, t + 1)])
    if last & 1:
        add_left(x, cut, amount_of(node, a, last, weight), left[which_sum(node, a, last)], np.int64(0), total)


@specialised
def score_columns(node, criterion, left, h, scores):
    """Score a split of each column, -1.0 where it is not defined.

    Parameters
    ----------
    node : Moments, Classes, AmountsOfTargets or ClassesOfTargets
    criterion : named tuple
    left : ndarray of int64, shape (n_quantities, n_columns)
        What goes left: g, or the weight of each class, or the sums of targets.
    h : ndarray of int64, shape (n_columns,)
        The weight that goes left.
    scores : ndarray of float64, shape (n_columns,)
    """


@score_columns.of(Moments)
def _(node, criterion, left, h, scores):
    g = left[0]
    for j in range(scores.shape[0]):
        scores[j] = score(criterion, float(g[j]), float(h[j]), float(node.g - g[j]), float(node.h - h[j]))


@score_columns.otherwise
def _(node, criterion, left, h, scores):
    scores[:] = 0.0
    for k in range(node.sums.shape[0]):
        add_class_terms(criterion, left[k], node.sums[k], h, node.h, scores)
    finish_scores(criterion, h, node, scores)


@lean_kernel
def bound_columns(node, criterion, g, h, bounds):
    """Bound the score of a split of each column, from the moments that go left; see :func:`score_columns`."""
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
    """Turn sums of terms over classes, or over several targets of criteria that are arithmetic, into scores."""
    for j in range(scores.shape[0]):
        one, other = float(h[j]), float(node.h - h[j])
        found = score_of_terms(criterion, scores[j], one, other, node.h, node.sums.shape[0])
        scores[j] = found if (one > 0.0) & (other > 0.0) else -1.0
