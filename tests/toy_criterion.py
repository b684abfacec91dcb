"""A criterion that the package does not have, in the one file that it takes, registered by the tests that use it.

Splits are ordered by the squared difference of the means of both sides, whatever their weights.
"""

from typing import Any, NamedTuple

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.parts import gain, moments_of, node_statistic, score


class MeanDifference(Criterion):
    """The squared difference of means."""

    name = "mean_difference"
    task = "regression"
    row_statistic = "target"
    measured = "leaves"
    gain_is_decrease = False

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Difference()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of the square of G/H."""
        g, h = exponents
        return 2 * (g - h)


class Difference(NamedTuple):
    """The kernel value."""


node_statistic.of(Difference)(moments_of)


@score.of(Difference)
def _(criterion, g, h, other_g, other_h):  # type: ignore[no-untyped-def]
    if h <= 0.0 or other_h <= 0.0:
        return -1.0
    difference = g / h - other_g / other_h
    return difference * difference


@gain.of(Difference)
def _(criterion, score, node):  # type: ignore[no-untyped-def]
    return score
