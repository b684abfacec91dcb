"""Poisson deviance: the decrease of half the deviance of counts or amounts from the means of both sides, S log(S / W) summed over sides.

The score is the gain itself, written as S_l log(m_l / m) + S_r log(m_r / m) with the means m of the sides and of the node. A side whose
targets are all zero is not allowed, as in scikit-learn: its mean would exclude any positive count.

The bound over a zone
---------------------
S log(S / W) is jointly convex, so within a zone the gain is largest at a corner of any region that contains the left sums. There are two
such regions. In the first, targets are non-negative: S grows from S0 to S1 as the weight grows from W0 to W1, and by at most the largest
target for each unit of weight, which leaves four corners. The second, about a centre as for squared error
(:mod:`dtrees.split.criteria.squares`), has six corners and is tighter if targets differ little from the mean. Corners are bounded by the
bound of one split, below, without logarithms. A looser bound comes first: as log(x) <= x - 1, the gain is at most that of squared error
over the node's mean.

The bound of one split
----------------------
Two logarithms take as long as twenty evaluations of squared error. log(x) is at most (x - 1) (x + 5) / (4 x + 2): the difference is 0 at
1, and its derivative is (x - 1)**3 / (x (2 x + 1)**2). With e = (S_l W_r - S_r W_l) / S, the means of the sides over the node's are 1 +
e / W_l and 1 - e / W_r. Both terms over one denominator, with k = W_l W_r and m = e (3 (W_r - W_l) - 2 e), the gain is at most S e**2 (9
k + m) / (2 k (9 k + 2 m)), which takes one division. From half to twice the mean the bound is at most two hundredths too high, so few
splits have to be scored.

e is computed as S_l W / S - W_l, with W / S the same for all splits of a node. If the right side is so light that e is mostly rounding,
its gain is less than the rounding error of a score, which is added to the bound; e is clipped, so that the other factors are not
negative.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inner_kernel
from dtrees.split.compile.specialised import always
from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.squares import Squares, corners_of
from dtrees.split.numbers.elementary import logarithm

#: Far above the errors of a score, relative to the node's sum: logarithms of ratios of sums are below 44.
_ROUNDING = 2.0**-42
#: The same for a bound from centred sums.
_ROUNDING_OF_BOUNDS = 2.0**-40
#: Far above the relative error of a few roundings of float64.
_ROUNDING_OF_SUMS = 2.0**-44
_SQUARES = Squares(penalty=0.0, factor=1.0, only_gains=False, centred=False)


class PoissonDeviance(Criterion):
    """Half the Poisson deviance of a non-negative target; values are means, measured on the leaves' rows."""

    name = "poisson"
    task = "regression"
    row_statistic = "amount"
    measured = "leaves"

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Poisson()

    def for_targets(self) -> Any:
        """Return the same value; its terms are deviances."""
        return Poisson()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of G."""
        return exponents[0]

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError for targets that are negative, or all zero."""
        if target.size and target.min() < 0:
            raise ValueError(f"criterion='poisson' is for targets that are not negative, but y contains {target.min()}")
        if target.size and not target.any():
            raise ValueError("criterion='poisson' is for targets with a mean above zero, but y is zero wherever a row has a weight")


class Poisson(NamedTuple):
    """The kernel value."""


parts.node_statistic.of(Poisson)(parts.moments_of)


@inner_kernel
def _term(g, h, mean):
    """Return ``g * log(g / h / mean)``, or 0 for g = 0."""
    return g * logarithm((g / h) / mean) if g > 0.0 else 0.0


@parts.score.of(Poisson)
def _(criterion, g, h, other_g, other_h):
    if g <= 0.0 or other_g <= 0.0 or h <= 0.0 or other_h <= 0.0:
        return -1.0
    mean = (g + other_g) / (h + other_h)
    return max(_term(g, h, mean) + _term(other_g, other_h, mean), 0.0)


@parts.class_term.of(Poisson)
def _(criterion, left, right, h, other_h):
    found = parts.score(criterion, float(left), h, float(right), other_h)
    return found if found >= 0.0 else -math.inf


@parts.score_of_terms.of(Poisson)
def _(criterion, terms, h, other_h, h_all, n_classes):
    return terms if terms >= 0.0 else -1.0


@parts.most_in_box.of(Poisson)
def _(criterion, low, high, whole, weights):
    if whole <= 0.0:
        return -math.inf
    most, low, high = 0.0, max(low, 0.0), min(high, whole)
    for end in range(2):
        h, other_h = (weights[0], weights[1]) if end == 0 else (weights[2], weights[3])
        if h <= 0.0 or other_h <= 0.0:
            return math.inf
        mean = whole / (h + other_h)
        most = max(most, _term(low, h, mean) + _term(whole - low, other_h, mean))
        most = max(most, _term(high, h, mean) + _term(whole - high, other_h, mean))
    return most + _ROUNDING_OF_BOUNDS * whole


@parts.may_exceed.of(Poisson)
def _(criterion, g, h, other_g, other_h, bar):
    one, other, total = g * other_h, other_g * h, g + other_g
    d = abs(one - other) + _ROUNDING_OF_SUMS * (one + other)
    may = d * d >= (bar - _ROUNDING * total) * (h * other_h) * total
    return may and parts.upper_bound(criterion, g, h, other_g, other_h, (total, h + other_h)) >= bar


parts.is_bounded.of(Poisson)(always)


@parts.upper_bound.of(Poisson)
def _(criterion, g, h, other_g, other_h, whole):
    total, weight = whole
    e, k = g * (weight / total) - h, h * other_h
    e = e if e < other_h else other_h
    m = e * (3.0 * (other_h - h) - (e + e))
    larger = 9.0 * k + m
    bound = (0.5 * total) * (e * e * larger / (k * (larger + m))) + _ROUNDING * total
    return bound if (g > 0.0) & (other_g > 0.0) & (k > 0.0) else -1.0


@parts.gain.of(Poisson)
def _(criterion, score, node):
    return score


@parts.spread.of(Poisson)
def _(criterion, y, mean):
    return y * logarithm(y / mean) if y > 0.0 else 0.0


parts.is_centred.of(Poisson)(always)


@parts.most_between_groups.of(Poisson)
def _(criterion, node, squares):
    # As log(x) <= x - 1, the gain is at most that of squared error over the mean, which is at most the value between all groups.
    return squares * (float(node.h) / float(node.g)) * (1.0 + _ROUNDING_OF_SUMS) + _ROUNDING * float(node.g)


@parts.flag_zones_roughly.of(Poisson)
def _(criterion, sums, add, node, bar, order, slack, total, flags):
    parts.flag_zones_roughly(_SQUARES, sums, add, node, (bar - _ROUNDING * total) * total, order, slack, total, flags)


@parts.flag_zones_by_bound.of(Poisson)
def _(criterion, sums, add, node, bar, order, slope, slack, total, flags):
    _flag_by_corners(sums, add, node, bar - _ROUNDING_OF_BOUNDS * total, slope, total, flags)


@inner_kernel
def _reaches(e, w, h, total, least):
    """Return whether the bound of a split reaches ``least``; ``e`` is defined above, ``w`` and ``h`` are the weights of both sides."""
    k = w * h
    m, nine = e * (3.0 * (h - w) - 2.0 * e), 9.0 * k
    return (0.5 * total) * (e * e) * (nine + m) >= least * (k * (nine + 2.0 * m))


@inner_kernel
def _may_pass(s, w, g_all, h_all, scale, total, least):
    """Return whether the bound at real-valued left sums reaches ``least``, or the sums are impossible for non-negative targets."""
    other, h = g_all - s, h_all - w
    e = (s * h - other * w) * scale
    inside = (w > 0.0) & (h > 0.0) & (e >= -w) & (e <= h)
    nothing = ((w <= 0.0) & (s == 0.0)) | ((h <= 0.0) & (other == 0.0))
    return (inside & _reaches(e, w, h, total, least)) | ~(inside | nothing)


@inner_kernel
def _may_pass_beside(s, w, g_all, h_all, scale, total, least):
    """Return the same for left sums that are possible for non-negative targets, up to rounding."""
    other, h = g_all - s, h_all - w
    e = (s * h - other * w) * scale
    e = e if e > -w else -w
    e = e if e < h else h
    return (w > 0.0) & (h > 0.0) & _reaches(e, w, h, total, least)


@inner_kernel
def _flag_by_corners(sums, add, node, least, slope, total, flags):
    """Flag the zones one of whose six corners may reach the bar, and one of the other four."""
    g_all, h_all, _ = node
    scale, centre = 1.0 / total, (total - g_all) / h_all
    # Rounded down, so that the corners are never inside the region.
    run_of_all = (1.0 - _ROUNDING_OF_SUMS) / (slope + centre) if slope + centre > 0.0 else 0.0
    for z in range(flags.shape[0]):
        passes, (_, _, corners) = False, corners_of(sums, add, node, slope, z)
        for s, w in corners:
            passes |= _may_pass(s, w, g_all, h_all, scale, total, least)
        (start, light), (end, heavy) = corners[0], corners[1]
        step = ((end - start) + centre * (heavy - light)) * run_of_all
        first, last = min(light + step, heavy), max(heavy - step, light)  # all targets at the beginning, or at the end
        beside = _may_pass_beside(start, light, g_all, h_all, scale, total, least)
        beside |= _may_pass_beside(end, heavy, g_all, h_all, scale, total, least)
        beside |= _may_pass_beside(end - centre * (first - heavy), first, g_all, h_all, scale, total, least)
        beside |= _may_pass_beside(start + centre * (light - last), last, g_all, h_all, scale, total, least)
        # If slopes are unknown, one side of a corner may have no weight: it bounds nothing.
        beside |= (first <= 0.0) | (last >= h_all)
        flags[z] |= passes & beside
