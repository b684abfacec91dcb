"""Absolute error: the decrease of the weighted sum of absolute deviations from the median.

No sums tell it: a row carries the number of its target among all in ascending order, and columns are searched by following the medians of
both sides (:mod:`dtrees.split.search.order_statistics`). Quantiles are followed likewise
(:mod:`dtrees.split.criteria.quantile`).
"""

from __future__ import annotations

from typing import NamedTuple

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.parts import gain, moments_of, node_statistic


class Deviations(NamedTuple):
    """The kernel value: what deviations from a quantile count; scores are gains times ``unit``.

    The quantile is the one below which there is ``above / (above + below)`` of the weight.

    Attributes
    ----------
    above, below : int
        What each unit of deviation counts, of targets above the quantile and below it.
    unit : int
        By what deviations that are counted so are too large.
    """

    above: int
    below: int
    unit: int

    @property
    def largest(self) -> int:
        """The most that a unit of deviation counts."""
        return max(self.above, self.below)


class AbsoluteError(Criterion):
    """Absolute error of a regression target; values are medians, measured on the rows of every node."""

    name = "absolute_error"
    task = "regression"
    row_statistic = "rank"
    measured = "nodes"
    by_sums = False

    def for_kernels(self, n_classes: int, penalty: float) -> Deviations:
        """Return the kernel value."""
        return Deviations(1, 1, 1)

    def for_targets(self) -> Deviations:
        """Return the same; deviations are added up."""
        return self.for_kernels(0, 0.0)

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return that of a target times a weight."""
        return sum(exponents)


node_statistic.of(Deviations)(moments_of)


@gain.of(Deviations)
def _(criterion, score, node):
    return score / float(criterion.unit)
