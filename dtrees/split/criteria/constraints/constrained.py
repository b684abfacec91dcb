"""Criteria under constraints: a split that goes against them is none, or is worth less (:mod:`dtrees.split.criteria.constraints`)."""

from __future__ import annotations

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.criteria import parts
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

#: Far more than the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44


parts.take_from_inside((InOrder, Clipped), (parts.class_term, parts.score_of_terms, parts.is_worthwhile, parts.spread))
parts.take_from_inside((InOrder, Clipped), (parts.is_bounded, parts.is_centred))
parts.take_from_inside((InOrder,), (parts.upper_bound, parts.may_exceed, parts.gain, parts.most_between_groups))
parts.take_from_inside((InOrder,), (parts.flag_zones_by_bound, parts.flag_zones_roughly))


@parts.node_statistic.of(InOrder, Clipped)
def _(criterion, sums, n):
    return parts.node_statistic(criterion.criterion, sums[: sums.shape[0] - n_words(criterion.constraints)], n)


@parts.score.of(InOrder)
def _(criterion, g, h, other_g, other_h):
    found = parts.score(criterion.criterion, g, h, other_g, other_h)
    return found if are_in_order(criterion.constraints.state, mean(g, h), mean(other_g, other_h)) else -1.0


@parts.score.of(Clipped)
def _(criterion, g, h, other_g, other_h):
    # The loss of a side is a parabola: a value that is d from the best costs (h + penalty) * d**2. The score is in units of the gain times
    # the weight of both. What the node's own clipped value costs is added, so that what is left is never negative.
    state, penalty = criterion.constraints.state, criterion.criterion.penalty
    low, high, sign = state[LOW], state[HIGH], state[SIGN]
    found = parts.score(criterion.criterion, g, h, other_g, other_h)
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


@parts.may_exceed.of(Clipped)
def _(criterion, g, h, other_g, other_h, bar):
    return parts.may_exceed(criterion.criterion, g, h, other_g, other_h, _bar_within(criterion, bar))


@parts.gain.of(Clipped)
def _(criterion, score, node):
    return parts.gain(criterion.criterion, score, node) + criterion.constraints.state[MORE]


@parts.flag_zones_by_bound.of(Clipped)
def _(criterion, sums, add, node, bar, slope, slack, total, flags):
    parts.flag_zones_by_bound(criterion.criterion, sums, add, node, _bar_within(criterion, bar), slope, slack, total, flags)


@parts.flag_zones_roughly.of(Clipped)
def _(criterion, sums, add, node, bar, slack, total, flags):
    within = _bar_within(criterion, bar)
    if within < 0.0:
        flags[:] = 1
    else:
        parts.flag_zones_roughly(criterion.criterion, sums, add, node, within, slack, total, flags)
