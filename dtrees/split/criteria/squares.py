"""Criteria whose gain is a sum of G^2/H: squared error, Newton's gain, and Gini impurity of two classes.

With L2 penalty r, left sums (x, a) and right sums (y, b), where a and b include r, the usual gain x^2/a + y^2/b - (x+y)^2/(a+b-r) (Chen
and Guestrin 2016, eq. 7, without the factor 1/2) equals

    (x b - y a)^2 / (a b (a + b))  +  G^2/(H + 2r) - G^2/(H + r)

Only the first term differs between the splits of a node, and it has no cancellation, unlike the usual form; the rest is a constant of
the node, zero for r = 0. The score also leaves out the factor 1/(a + b), another constant. It is symmetric in left and right to the last
bit, so mirrored splits tie exactly.

The bound over a zone
---------------------
The score is jointly convex in the sums (S, a) of the left side, as a square over a linear term, so its maximum over a convex region is
at a corner. Let a zone begin with left sums (S0, H0), end with (S1, H1), and have A = sum abs(g). Inside, S lies between S0 - (A - (S1 -
S0)) / 2 and S0 + (A + (S1 - S0)) / 2; and since no row has abs(g) > slope * h, S is at most slope * (H - H0) away from S0 and at most
slope * (H1 - H) from S1. The region has six corners: both ends, and the points where lines of that slope meet the extremes of S. Bounds
are raised by more than rounding can add to a score, so no tie is lost.

Gini impurity
-------------
The weighted probability that two rows of a node are of different classes (Breiman et al. 1984). With two classes the gain is twice that
of squared error with the class as the target, so the statistic is moments. With more, the score is that of squared error, added over
classes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, inner_kernel
from dtrees.split.compile.specialised import always
from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE

#: Below 1 by far more than the relative error of a score.
_CAUTION = 1.0 - 2.0**-40
#: Above 1 by as much.
_UPWARD = 1.0 + 2.0**-40
#: Far above the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44
#: Far above the errors of a few roundings of weights, relative to the weight of the node, and far below the constants above.
_ROUNDING_OF_WEIGHTS = 2.0**-49


class Squares(NamedTuple):
    """The kernel value.

    Attributes
    ----------
    penalty : float
        L2 penalty, in units of H.
    factor : float
        Factor of the gain.
    only_gains : bool
        Whether a split must have a positive gain.
    centred : bool
        Whether sums of targets may be centred.
    """

    penalty: float
    factor: float
    only_gains: bool
    centred: bool


parts.node_statistic.of(Squares)(parts.moments_of)


@parts.score.of(Squares)
def _(criterion, g, h, other_g, other_h):
    a = h + criterion.penalty
    b = other_h + criterion.penalty
    d = g * b - other_g * a
    found = d * d / (a * b)
    return found if (a > 0.0) & (b > 0.0) else -1.0


@parts.may_exceed.of(Squares)
def _(criterion, g, h, other_g, other_h, bar):
    a = h + criterion.penalty
    b = other_h + criterion.penalty
    d = g * b - other_g * a
    return d * d >= bar * _CAUTION * (a * b)


@parts.gain.of(Squares)
def _(criterion, score, node):
    g, h, penalty = float(node.g), float(node.h), criterion.penalty
    found = criterion.factor * (score / (h + 2.0 * penalty))
    if penalty > 0.0:
        found += g * g / (h + 2.0 * penalty) - g * g / (h + penalty)
    return found


@parts.per_gain.of(Squares)
def _(criterion, node):
    return float(node.h) + 2.0 * criterion.penalty


@parts.is_worthwhile.of(Squares)
def _(criterion, gain):
    return gain > 0.0 or not criterion.only_gains


parts.is_arithmetic.of(Squares)(always)


@parts.is_centred.of(Squares)
def _(criterion):
    return criterion.centred


@parts.most_between_groups.of(Squares)
def _(criterion, node, squares):
    # With T = H + 2r and distances from G/T, let u be the sum over the left side's groups minus (G/T) r; the right side's is -u. By the
    # Cauchy inequality u^2/a is at most the left side's squares plus (G/T)^2 r. The score is T^2 u^2 / (a b) = T (u^2/a + u^2/b).
    g, h, penalty = float(node.g), float(node.h), criterion.penalty
    total = h + 2.0 * penalty
    mean, apart = g / total, g / h - g / total
    return _UPWARD * (total * (squares + apart * apart * h + 2.0 * (mean * mean) * penalty))


@inlined_kernel
def corners_of(sums, add, node, slope, z):
    """Return the six corners of the region that contains the left sums inside a zone, each as its sum of g and its weight.

    The first results are the error of such a sum of g, and whether rows lie on both sides of the zone. Differences of large sums lose
    small terms in floating point, so errors are bounded relative to the sums of the node.
    """
    # Slopes are rounded down, so that the corners are never inside the region.
    (g_add, h_add, n_add), run = add, (1.0 - _ROUNDING) / slope if slope > 0.0 else 0.0
    start, end, size = float(sums[G0, z]) + g_add, float(sums[G1, z]) + g_add, float(sums[SIZE, z])
    light, heavy = float(sums[H0, z]) + h_add, float(sums[H1, z]) + h_add
    inside = (sums[N0, z] + n_add > 0) & (sums[N1, z] + n_add < node.n)
    low = start - 0.5 * (size - (end - start))
    high = start + 0.5 * (size + (end - start))
    error = _ROUNDING * (max(abs(low), abs(high)) + abs(node.g))
    first, second = (low, min(light + (start - low) * run, heavy)), (low, max(heavy - (end - low) * run, light))
    third, fourth = (high, min(light + (high - start) * run, heavy)), (high, max(heavy - (high - end) * run, light))
    return error, inside, ((start, light), (end, heavy), first, second, third, fourth)


@inner_kernel
def _may_pass(s, h, g_all, most, lift, error, bar, order, inside):
    """Return whether the score of real-valued left sums in order may exceed the bar; ``error`` is added to the squared quantity."""
    a = h + lift
    b = most - h
    apart = s * b - (g_all - s) * a
    d = error + (apart if order > 0.0 else -apart if order < 0.0 else abs(apart))
    # A side without weight has an unbounded score, unless it is empty.
    passes = (d * d * _UPWARD > bar * (a * b)) & ((a * b > 0.0) | inside | (abs(apart) > error))
    return passes & ((order == 0.0) | (d >= 0.0) | (a * b <= 0.0))


@parts.flag_zones_by_bound.of(Squares)
def _(criterion, sums, add, node, bar, order, slope, slack, total, flags):
    """Flag the zones one of whose six corners may exceed the bar. Corners excluded by the order of the sides have the score 0.

    Differences of large sums, such as the sums to the right of a zone, have rounding errors that are small relative to the node's sums,
    but perhaps not to their own size. So errors are bounded relative to the node's sums, and weights reduced by as much.
    """
    total, lift, most = _total_weights(criterion, node.h)
    for z in range(flags.shape[0]):
        error, inside, corners = corners_of(sums, add, node, slope, z)
        error, passes = error * total + slack, False
        for s, h in corners:
            passes |= _may_pass(s, h, node.g, most, lift, error, bar, order, inside)
        flags[z] |= passes


@inner_kernel
def _total_weights(criterion, h_all):
    """Return the weight of both sides with penalties, the term to add to the left weight, and the total to subtract it from."""
    total = h_all + 2.0 * criterion.penalty
    lift = criterion.penalty - _ROUNDING_OF_WEIGHTS * total
    return total, lift, h_all + lift


@parts.flag_zones_roughly.of(Squares)
def _(criterion, sums, add, node, bar, order, slack, total, flags):
    """Flag zones by a looser bound that takes a quarter of the time.

    The squared quantity is linear in the left sums, so it is largest at a corner of the box that contains them; the divisor is smallest
    at an end.
    """
    g0, h0, g1, h1, sizes = sums[G0], sums[H0], sums[G1], sums[H1], sums[SIZE]
    (g_add, h_add, _), (g_all, h_all, _) = add, node
    total, lift, most = _total_weights(criterion, h_all)
    penalty = criterion.penalty
    for z in range(flags.shape[0]):
        start, end, size = float(g0[z]) + g_add, float(g1[z]) + g_add, float(sizes[z])
        light, heavy = float(h0[z]) + h_add, float(h1[z]) + h_add
        low = start - 0.5 * (size - (end - start))
        high = start + 0.5 * (size + (end - start))
        one, other = g_all * (light + penalty), g_all * (heavy + penalty)
        above, below = high * total - min(one, other), max(one, other) - low * total
        exact = above if order > 0.0 else below if order < 0.0 else max(abs(above), abs(below))
        d = exact + _ROUNDING * (max(abs(low), abs(high)) + abs(g_all)) * total + slack
        least = min((light + lift) * (most - light), (heavy + lift) * (most - heavy))
        flags[z] |= (d * d * _UPWARD > bar * least) & ((order == 0.0) | (d >= 0.0) | (least <= 0.0))


#: Far above the rounding error of a sum of amounts, which is below 2**62.
_ERROR_OF_SUMS = 2.0**17


class Gini(Criterion):
    """Gini impurity; values are the fractions of classes, computed from the sums."""

    name = "gini"
    task = "classification"
    row_statistic = "class"
    measured = ""

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return GiniOfClasses() if n_classes > 2 else Squares(penalty=0.0, factor=2.0, only_gains=False, centred=False)

    def for_targets(self) -> Any:
        """Return the kernel value for any number of classes."""
        return GiniOfClasses()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of the weights."""
        return exponents[1]

    def chance(self, n_rows: int, sums: NDArray[np.int64], squares: float) -> float:
        """Return the mean over classes of the variance of class membership; twice that if scores add up classes."""
        weights = np.array([sums[1] - sums[0], sums[0]] if sums.shape[0] == 2 else sums, np.float64)
        shares = weights / weights.sum()
        return float((shares * (1.0 - shares)).mean() * weights.sum()) / n_rows * (1.0 if sums.shape[0] == 2 else 2.0)

    def impurity(self, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return one minus the sum of squared fractions."""
        result: NDArray[np.float64] = 1.0 - (fractions * fractions).sum(axis=1)
        return result


class GiniOfClasses(NamedTuple):
    """The kernel value for three or more classes."""


parts.node_statistic.of(GiniOfClasses)(parts.classes_of)


@parts.class_term.of(GiniOfClasses)
def _(criterion, left, right, h, other_h):
    d = left * other_h - right * h
    return d * d


@parts.score_of_terms.of(GiniOfClasses)
def _(criterion, terms, h, other_h, h_all, n_classes):
    return terms / (h * other_h)


@parts.gain.of(GiniOfClasses)
def _(criterion, score, node):
    return score / node.h


@parts.per_gain.of(GiniOfClasses)
def _(criterion, node):
    return float(node.h)


parts.has_convex_terms.of(GiniOfClasses)(always)
parts.is_arithmetic.of(GiniOfClasses)(always)


@parts.most_in_box.of(GiniOfClasses)
def _(criterion, low, high, whole, weights):
    most = 0.0
    for end in range(2):
        h, other_h = (weights[0], weights[1]) if end == 0 else (weights[2], weights[3])
        if h <= 0.0 or other_h <= 0.0:
            return math.inf
        d = max(abs(low * other_h - (whole - low) * h), abs(high * other_h - (whole - high) * h)) + _ERROR_OF_SUMS * (h + other_h)
        most = max(most, d * d / (h * other_h))
    return _UPWARD * most


class SquaredError(Criterion):
    """Squared error of a regression target (Breiman et al. 1984); values are means, measured on the leaves' rows."""

    name = "squared_error"
    task = "regression"
    row_statistic = "target"
    measured = "leaves"

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Squares(penalty=0.0, factor=1.0, only_gains=False, centred=True)

    def for_targets(self) -> Any:
        """Return the kernel value of Gini impurity, which adds squared errors over classes."""
        return GiniOfClasses()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of G^2/H."""
        g, h = exponents
        return 2 * g - h
