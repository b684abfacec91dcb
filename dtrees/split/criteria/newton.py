"""Newton's gain: the decrease of a loss's second-order model by a split, with an L2 penalty (Chen and Guestrin 2016, eq. 7).

In addition to the L2 penalty on leaf values there may be an L1 penalty: XGBoost's ``reg_alpha``. With L1 penalty t and L2 penalty r, a
leaf with the sums G and H has the value -T(G) / (H + r), where T moves G towards 0 by t, but not beyond (soft threshold). It lowers the
loss's second-order model by half of T(G)^2 / (H + r). The score of a split is twice the reduction by its two leaves; the gain is the
score minus twice the reduction by the node itself. A gain that rounding alone may explain counts as zero.

T(S)^2 / a is jointly convex in S and a: abs(T(S)) is convex and non-negative, and a square over a linear term is convex and increases
with the number that is squared. So within a zone the score is bounded as under constraints (:mod:`dtrees.split.criteria.constrained`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.compile.specialised import always
from dtrees.split.criteria import constraints, parts
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.squares import Squares
from dtrees.split.criteria.statistics import G0, G1, H0, H1, SIZE


class Newton(Criterion):
    """Newton's gain of gradients and hessians, for boosting; values are Newton steps, computed from the sums."""

    name = "newton"
    task = "boosting"
    row_statistic = "target"
    measured = ""

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Squares(penalty=penalty, factor=1.0, only_gains=True, centred=False)

    def chance(self, n_rows: int, sums: NDArray[np.int64], squares: float) -> float:
        """Return the variance of gradients over their mean hessian, which decreases as trees are added."""
        g, h = float(sums[0]), float(sums[1])
        return max(0.0, squares - g * g / n_rows) / h if h > 0.0 else 0.0

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of G^2/H."""
        g, h = exponents
        return 2 * g - h


@inlined_kernel
def soft_threshold(g, l1):
    """Return a sum of gradients after an L1 penalty: moved towards 0, but not beyond."""
    return g - l1 if g > l1 else g + l1 if g < -l1 else 0.0


@inlined_kernel
def newton_step(g, h, penalty):
    """Return the value of a leaf before shrinkage (Chen and Guestrin 2016, eq. 5), 0 without weight."""
    return -g / (h + penalty) if h + penalty > 0.0 else 0.0


@inlined_kernel
def newton_impurity(g, h, step):
    """Return the reduction of the second-order model by a step, for each unit of weight."""
    return step * -g / h if h > 0.0 else 0.0


#: Above 1 by far more than the relative error of a score.
_UPWARD = 1.0 + 2.0**-40
#: Far above the relative error of a few roundings of float64.
_ROUNDING = 2.0**-44


class NewtonL1(Newton):
    """Newton's gain with an L1 penalty, for boosting; values are Newton steps, computed from the sums."""

    name = "newton_l1"

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value without its L1 penalty, in units of gradients, which is filled in later."""
        return Thresholded(penalty=penalty, l1=0.0)


class Thresholded(NamedTuple):
    """The kernel value: the L2 penalty, in units of H, and the L1 penalty, in units of G."""

    penalty: float
    l1: float


parts.node_statistic.of(Thresholded)(parts.moments_of)


@inlined_kernel
def _beyond(g, l1):
    """Return the excess of the size of a sum over the threshold, 0 if it is smaller."""
    return max(abs(g) - l1, 0.0)


@parts.score.of(Thresholded)
def _(criterion, g, h, other_g, other_h):
    a = h + criterion.penalty
    b = other_h + criterion.penalty
    x = _beyond(g, criterion.l1)
    y = _beyond(other_g, criterion.l1)
    found = x * x / a + y * y / b
    return found if (a > 0.0) & (b > 0.0) else -1.0


@parts.gain.of(Thresholded)
def _(criterion, score, node):
    return constraints.gain_within(criterion, score, node, 0.0)


@constraints.step.of(Thresholded)
def _(criterion, g, h):
    return -soft_threshold(float(g), criterion.l1) / (float(h) + criterion.penalty)


@inlined_kernel
def _lowered(value, g, a, l1):
    """Return the reduction of the model by a leaf of this value, doubled."""
    return -value * (2.0 * g + a * value) - 2.0 * l1 * abs(value)


@constraints.score_within.of(Thresholded)
def _(criterion, found, one, other):
    (g, h, d, value), (other_g, other_h, other_d, other_value) = one, other
    left = _lowered(value, g, h + criterion.penalty, criterion.l1)
    right = _lowered(other_value, other_g, other_h + criterion.penalty, criterion.l1)
    return found if d + other_d == 0.0 else left + right


@constraints.lift.of(Thresholded)
def _(criterion, g, h, low, high):
    # Both sides may have the value that is best for the whole node.
    both, a, l1, added, more = h + 2.0 * criterion.penalty, h + criterion.penalty, criterion.l1, 0.0, 0.0
    if both > 0.0:
        value = min(max(-soft_threshold(g, 2.0 * l1) / both, low), high)
        added = max(0.0, -_lowered(value, g, both, 2.0 * l1))
    if a > 0.0:
        free = -soft_threshold(g, l1) / a
        x, value = _beyond(g, l1), min(max(free, low), high)
        more = x * x / a - _lowered(value, g, a, l1) if value != free else 0.0
    return added, more - added


@constraints.gain_within.of(Thresholded)
def _(criterion, score, node, more):
    x, a = _beyond(float(node.g), criterion.l1), float(node.h) + criterion.penalty
    found = score - x * x / a + more
    return found if found > _ROUNDING * score else 0.0


@constraints.terms_of_score.of(Thresholded)
def _(criterion, g, h):
    return criterion.l1, 1.0, 0.0


@parts.is_worthwhile.of(Thresholded)
def _(criterion, gain):
    return gain > 0.0


parts.is_arithmetic.of(Thresholded)(always)


@parts.flag_zones_roughly.of(Thresholded)
def _(criterion, sums, add, node, bar, order, slack, total, flags):
    """Flag zones by the box that contains the left sums: both sizes and both weights are extreme at an end, and so is their order."""
    g0, h0, g1, h1, sizes, l1 = sums[G0], sums[H0], sums[G1], sums[H1], sums[SIZE], criterion.l1
    (g_add, h_add, _), (g_all, h_all, _) = add, node
    of_both = h_all + 2.0 * criterion.penalty
    lift = criterion.penalty - 2.0**-49 * of_both
    for z in range(flags.shape[0]):
        start, end, size = float(g0[z]) + g_add, float(g1[z]) + g_add, float(sizes[z])
        low, high = start - 0.5 * (size - (end - start)), start + 0.5 * (size + (end - start))
        a, b = float(h0[z]) + h_add + lift, h_all - float(h1[z]) - h_add + lift
        error = _ROUNDING * (max(abs(low), abs(high)) + abs(g_all))
        x, y = _beyond(max(abs(low), abs(high)) + error, l1), _beyond(max(abs(g_all - low), abs(g_all - high)) + error, l1)
        one, other = (high, g_all - high) if order > 0.0 else (-low, low - g_all)
        one, other = soft_threshold(one + error, l1), soft_threshold(other - error, l1)
        in_order = max(one * (of_both - a) - other * a, one * b - other * (of_both - b)) >= -error * of_both
        flags[z] |= ((a <= 0.0) | (b <= 0.0) | ((x * x / a + y * y / b) * _UPWARD > bar)) & ((order == 0.0) | in_order)
