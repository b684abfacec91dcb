"""Splits that are ruled out since the values of both sides are not in order, or not within the bounds of the node."""

from __future__ import annotations

from typing import Any

from dtrees.split.compile.kernels import inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.constraints.kinds import HIGH, LOW, MIDDLE, SIGN, Clipped, InOrder, mean, step


@specialised
def forget_mirrored(criterion: Any, n_before: Any, scores: Any) -> None:
    """Take back the scores at edges before all values, which missing rows alone are on the left of.

    Splits are tried with missing rows alone on the right. Without constraints, both score the same.
    """


@forget_mirrored.otherwise
def _(criterion, n_before, scores):
    pass


@forget_mirrored.of(Clipped)
@forget_mirrored.of(InOrder)
def _(criterion, n_before, scores):
    for z in range(scores.shape[0]):
        scores[z] = scores[z] if n_before[z] > 0 else -1.0


@specialised
def compares_sides(criterion: Any) -> Any:
    """Tell whether splits of the column that is searched are ruled out by the values of both sides."""


@compares_sides.otherwise
def _(criterion):
    return False


@compares_sides.of(InOrder)
def _(criterion):
    return criterion.constraints.state[SIGN] != 0.0


@specialised
def forbid_out_of_order(criterion: Any, node: Any, g: Any, h: Any, signs: Any, scores: Any) -> None:
    """Take back scores, or bounds, that heed no signs, of splits of many columns whose sides have values out of order.

    Parameters
    ----------
    criterion : named tuple
    node : Moments
    g, h : ndarray of int64
        What goes left.
    signs, scores : ndarray of float64
        Of each column.
    """


@forbid_out_of_order.otherwise
def _(criterion, node, g, h, signs, scores):
    pass


@forbid_out_of_order.of(InOrder)
def _(criterion, node, g, h, signs, scores):
    _forbid_means(criterion.constraints.state, node, g, h, signs, scores)


@forbid_out_of_order.of(Clipped)
def _(criterion, node, g, h, signs, scores):
    _forbid_steps(criterion.constraints.state, criterion.criterion.penalty, node, g, h, signs, scores)


@lean_kernel
def _forbid_means(state, node, g, h, signs, scores):
    low, high = state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@lean_kernel
def _forbid_steps(state, penalty, node, g, h, signs, scores):
    low, high = state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        one, other = step(g[j], h[j], penalty), step(node.g - g[j], node.h - h[j], penalty)
        one, other = min(max(one, low), high), min(max(other, low), high)
        scores[j] = found if sign * (one - other) <= 0.0 else -1.0


@specialised
def forbid_in_column(criterion: Any, node: Any, g: Any, h: Any, scores: Any) -> None:
    """Take back bounds of splits of the column that is searched whose sides are out of order. Scores of clipped values have none."""


@forbid_in_column.otherwise
def _(criterion, node, g, h, scores):
    pass


@forbid_in_column.of(InOrder)
def _(criterion, node, g, h, scores):
    if criterion.constraints.state[SIGN] != 0.0:
        _forbid_means_in_column(criterion.constraints.state, node, g, h, scores)


@lean_kernel
def _forbid_means_in_column(state, node, g, h, scores):
    sign, low, high = state[SIGN], state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        found = scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@specialised
def allows_quantiles(criterion: Any, one: Any, other: Any) -> Any:
    """Tell whether both sides of a split may have these quantiles."""


@allows_quantiles.otherwise
def _(criterion, one, other):
    return True


@allows_quantiles.of(InOrder)
def _(criterion, one, other):
    return are_in_order(criterion.constraints.state, one, other)


@specialised
def note_quantiles(criterion: Any, one: Any, other: Any) -> None:
    """Note the quantiles of both sides of the best split so far."""


@note_quantiles.otherwise
def _(criterion, one, other):
    pass


@note_quantiles.of(InOrder)
def _(criterion, one, other):
    criterion.constraints.state[MIDDLE] = one / 2.0 + other / 2.0


@inlined_kernel
def are_in_order(state, one, other):
    """Tell whether the column that is searched may have these values on its lower and its higher side."""
    return _are_in_order(state[SIGN], state[LOW], state[HIGH], one, other)


@inlined_kernel
def _are_in_order(sign, low, high, one, other):
    return ((sign * (one - other) <= 0.0) & (min(one, other) >= low) & (max(one, other) <= high)) | (sign == 0.0)
