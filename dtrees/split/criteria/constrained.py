"""Criteria under constraints: a split that violates them is excluded or scores less (:mod:`dtrees.split.criteria.constraints`)."""

from __future__ import annotations

import math

from dtrees.split.compile.kernels import inlined_kernel, inner_kernel
from dtrees.split.criteria import constraints, parts
from dtrees.split.criteria.constraints import HIGH, LIFT, LOW, MORE, SIGN, Clipped, InOrder
from dtrees.split.criteria.newton import Thresholded, soft_threshold
from dtrees.split.criteria.squares import corners_of

#: Far more than the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44
#: Far more than the relative error of a score.
_UPWARD = 2.0**-40


parts.take_from_inside((InOrder, Clipped), (parts.class_term, parts.score_of_terms, parts.is_worthwhile, parts.spread))
parts.take_from_inside((InOrder, Clipped), (parts.is_bounded, parts.is_centred, parts.per_gain))
parts.take_from_inside((InOrder,), (parts.upper_bound, parts.may_exceed, parts.gain, parts.most_between_groups))
parts.take_from_inside((InOrder,), (parts.flag_zones_by_bound, parts.flag_zones_roughly))


@parts.node_statistic.of(InOrder, Clipped)
def _(criterion, sums, n):
    return parts.node_statistic(criterion.criterion, sums[: sums.shape[0] - constraints.n_words(criterion.constraints)], n)


@parts.score.of(InOrder)
def _(criterion, g, h, other_g, other_h):
    found = parts.score(criterion.criterion, g, h, other_g, other_h)
    one, other = constraints.mean(g, h), constraints.mean(other_g, other_h)
    return found if constraints.are_in_order(criterion.constraints.state, one, other) else -1.0


@parts.score.of(Clipped)
def _(criterion, g, h, other_g, other_h):
    state, inner = criterion.constraints.state, criterion.criterion
    low, high, sign = state[LOW], state[HIGH], state[SIGN]
    one, other = constraints.step(inner, g, h), constraints.step(inner, other_g, other_h)
    d, other_d = constraints.outside(one, low, high), constraints.outside(other, low, high)
    one, other = min(max(one, low), high), min(max(other, low), high)
    found = parts.score(inner, g, h, other_g, other_h)
    left = constraints.score_within(inner, found, (g, h, d, one), (other_g, other_h, other_d, other)) + state[LIFT]
    moves = (one != other) | ((d == 0.0) & (other_d == 0.0))
    allowed = (found >= 0.0) & (sign * (one - other) <= 0.0) & moves
    return (left if left > 0.0 else 0.0) if allowed else -1.0


@inlined_kernel
def _bar_within(criterion, bar):
    """Return the bar for scores without bounds such that no split whose score within bounds exceeds ``bar`` is missed by rounding."""
    lift = criterion.constraints.state[LIFT]
    return bar if lift == 0.0 else bar - _ROUNDING * abs(bar) - (1.0 + _ROUNDING) * lift


@parts.may_exceed.of(Clipped)
def _(criterion, g, h, other_g, other_h, bar):
    return parts.may_exceed(criterion.criterion, g, h, other_g, other_h, _bar_within(criterion, bar))


@parts.gain.of(Clipped)
def _(criterion, score, node):
    return constraints.gain_within(criterion.criterion, score, node, criterion.constraints.state[MORE])


@parts.flag_zones_by_bound.of(Clipped)
def _(criterion, sums, add, node, bar, order, slope, slack, total, flags):
    state = criterion.constraints.state
    if state[LOW] == -math.inf and state[HIGH] == math.inf:
        parts.flag_zones_by_bound(criterion.criterion, sums, add, node, bar, order, slope, slack, total, flags)
    else:
        _flag_by_corners(criterion.criterion, state, sums, add, node, bar, slope, flags)


#: The state without bounds.
_FREE = (0.0, -math.inf, math.inf, 0.0, 0.0)


@parts.flag_zones_by_bound.of(Thresholded)
def _(criterion, sums, add, node, bar, order, slope, slack, total, flags):
    _flag_by_corners(criterion, _FREE, sums, add, node, bar, slope, flags)


@parts.flag_zones_roughly.of(Clipped)
def _(criterion, sums, add, node, bar, order, slack, total, flags):
    parts.flag_zones_roughly(criterion.criterion, sums, add, node, max(_bar_within(criterion, bar), 0.0), order, slack, total, flags)


@inlined_kernel
def _most_within(s, a, l1, error, inside, low, high):
    """Return the most that a leaf with the real-valued sum ``s`` lowers the model by, doubled, and the size of its terms.

    ``error`` is added to the sum. The reduction is concave in the leaf's value, so it is largest at the clipped step. For each unit of
    the sum it changes by at most twice that value.
    """
    weight = a if a > 0.0 else 1.0
    value = min(max(-soft_threshold(s, l1) / weight, low), high)
    size, beside = abs(value), error / weight
    most = -value * (2.0 * s + weight * value) - 2.0 * l1 * size + 2.0 * error * (size + beside)
    rounding = (abs(s) + error) * (abs(s) + error) / weight + size * (2.0 * (abs(s) + error + l1) + weight * size)
    nothing = math.inf if inside | (abs(s) > error) else 0.0
    return (most if a > 0.0 else nothing), (rounding if a > 0.0 else nothing)


@inlined_kernel
def _may_pass(terms, s, h, error, inside):
    """Return whether the score of real-valued left sums, with ``error`` added, may exceed the bar in a column of this sign."""
    (g_all, h_all), (penalty, l1, factor, moved), (low, high, sign), bar = terms
    a, b = h + penalty, h_all - h + penalty
    most, rounding = _most_within(s, a, l1, error, inside, low, high)
    other, other_rounding = _most_within(g_all - s, b, l1, error, inside, low, high)
    in_order = sign * (s * b - (g_all - s) * a) >= -error * (a + b)
    return in_order & (factor * (most + other) + moved + _UPWARD * (factor * (rounding + other_rounding) + abs(moved)) > bar)


@inner_kernel
def _flag_by_corners(inner, state, sums, add, node, bar, slope, flags):
    """Flag the zones one of whose six corners may exceed the bar (:mod:`dtrees.split.criteria.squares`).

    The reduction by a leaf within bounds is the maximum over values of functions that are linear in the leaf's sums, so it is convex in
    these. Which side has the higher value without bounds is linear in the left sums. With an L1 penalty, bounds may be infinite.
    """
    l1, factor, moved = constraints.terms_of_score(inner, node.g, node.h)
    caution, sign = 2.0**-49 * (node.h + 2.0 * inner.penalty), state[SIGN] if l1 == 0.0 else 0.0
    bounds, of_score = (state[LOW], state[HIGH], sign), (inner.penalty - caution, l1, factor, moved + state[LIFT])
    terms = (node.g, node.h), of_score, bounds, bar
    for z in range(flags.shape[0]):
        error, inside, corners = corners_of(sums, add, node, slope, z)
        passes = False
        for s, h in corners:
            passes |= _may_pass(terms, s, h, error, inside)
        flags[z] |= passes
