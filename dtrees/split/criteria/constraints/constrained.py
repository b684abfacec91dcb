"""Criteria under constraints: a split that goes against them is none, or is worth less (:mod:`dtrees.split.criteria.constraints`)."""

from __future__ import annotations

from typing import Any

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.criteria.constraints.kinds import (
    HIGH,
    LIFT,
    LOW,
    MORE,
    SIGN,
    Clipped,
    InOrder,
    are_in_order,
    mean,
    n_words,
    outside,
    step,
)
from dtrees.split.criteria.parts import (
    class_term,
    flag_zones_by_bound,
    flag_zones_roughly,
    gain,
    is_bounded,
    is_centred,
    is_worthwhile,
    may_exceed,
    most_between_groups,
    node_statistic,
    score,
    score_of_terms,
    spread,
    upper_bound,
)

#: Far more than the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44


def _around(node: Any) -> None:
    """Have a constrained criterion take these parts from the one inside."""

    @node_statistic.of(node)
    def _(criterion, sums, n):
        return node_statistic(criterion.criterion, sums[: sums.shape[0] - n_words(criterion.constraints)], n)

    @class_term.of(node)
    def _(criterion, left, right, h, other_h):
        return class_term(criterion.criterion, left, right, h, other_h)

    @score_of_terms.of(node)
    def _(criterion, terms, h, other_h, h_all, n_classes):
        return score_of_terms(criterion.criterion, terms, h, other_h, h_all, n_classes)

    @is_worthwhile.of(node)
    def _(criterion, gain):
        return is_worthwhile(criterion.criterion, gain)

    @is_bounded.of(node)
    def _(criterion):
        return is_bounded(criterion.criterion)

    @is_centred.of(node)
    def _(criterion):
        return is_centred(criterion.criterion)

    @spread.of(node)
    def _(criterion, y, mean):
        return spread(criterion.criterion, y, mean)


_around(InOrder)
_around(Clipped)


@score.of(InOrder)
def _(criterion, g, h, other_g, other_h):
    found = score(criterion.criterion, g, h, other_g, other_h)
    return found if are_in_order(criterion.constraints.state, mean(g, h), mean(other_g, other_h)) else -1.0


@upper_bound.of(InOrder)
def _(criterion, g, h, other_g, other_h, whole):
    return upper_bound(criterion.criterion, g, h, other_g, other_h, whole)


@may_exceed.of(InOrder)
def _(criterion, g, h, other_g, other_h, bar):
    return may_exceed(criterion.criterion, g, h, other_g, other_h, bar)


@gain.of(InOrder)
def _(criterion, score, node):
    return gain(criterion.criterion, score, node)


@most_between_groups.of(InOrder)
def _(criterion, node, squares):
    return most_between_groups(criterion.criterion, node, squares)


@flag_zones_by_bound.of(InOrder)
def _(criterion, sums, add, node, bar, slope, slack, total, flags):
    flag_zones_by_bound(criterion.criterion, sums, add, node, bar, slope, slack, total, flags)


@flag_zones_roughly.of(InOrder)
def _(criterion, sums, add, node, bar, slack, total, flags):
    flag_zones_roughly(criterion.criterion, sums, add, node, bar, slack, total, flags)


@score.of(Clipped)
def _(criterion, g, h, other_g, other_h):
    # The loss of a side is a parabola: a value that is d from the best costs (h + penalty) * d**2. The score is in units of the gain times
    # the weight of both. What the node's own clipped value costs is added, so that what is left is never negative.
    state, penalty = criterion.constraints.state, criterion.criterion.penalty
    low, high, sign = state[LOW], state[HIGH], state[SIGN]
    found = score(criterion.criterion, g, h, other_g, other_h)
    one, other, a, b = step(g, h, penalty), step(other_g, other_h, penalty), h + penalty, other_h + penalty
    d, other_d = outside(one, low, high), outside(other, low, high)
    one, other = min(max(one, low), high), min(max(other, low), high)
    left = found - (a + b) * (a * (d * d) + b * (other_d * other_d)) + state[LIFT]
    moves = (one != other) | ((d == 0.0) & (other_d == 0.0))
    allowed = (found >= 0.0) & (sign * (one - other) <= 0.0) & moves
    return (left if left > 0.0 else 0.0) if allowed else -1.0


@inlined_kernel
def _bar_within(criterion, bar):
    """Return what the score must reach that splits would have without bounds for theirs to exceed the bar, less than rounding can add."""
    lift = criterion.constraints.state[LIFT]
    return bar if lift == 0.0 else bar - _ROUNDING * abs(bar) - (1.0 + _ROUNDING) * lift


@may_exceed.of(Clipped)
def _(criterion, g, h, other_g, other_h, bar):
    return may_exceed(criterion.criterion, g, h, other_g, other_h, _bar_within(criterion, bar))


@gain.of(Clipped)
def _(criterion, score, node):
    return gain(criterion.criterion, score, node) + criterion.constraints.state[MORE]


@flag_zones_by_bound.of(Clipped)
def _(criterion, sums, add, node, bar, slope, slack, total, flags):
    flag_zones_by_bound(criterion.criterion, sums, add, node, _bar_within(criterion, bar), slope, slack, total, flags)


@flag_zones_roughly.of(Clipped)
def _(criterion, sums, add, node, bar, slack, total, flags):
    within = _bar_within(criterion, bar)
    if within < 0.0:
        flags[:] = 1
    else:
        flag_zones_roughly(criterion.criterion, sums, add, node, within, slack, total, flags)
