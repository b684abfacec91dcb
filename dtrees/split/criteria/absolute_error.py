"""Absolute error: the decrease of the weighted sum of absolute deviations from the median.

No sums tell it: a row carries the number of its target among all in ascending order, and columns are searched by following the medians of
both sides (:mod:`dtrees.split.search.order_statistics`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.parts import gain, moments_of, node_statistic


class AbsoluteError(Criterion):
    """Absolute error of a regression target; values are medians, measured on the rows of every node."""

    name = "absolute_error"
    task = "regression"
    row_statistic = "rank"
    measured = "nodes"
    by_sums = False

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Deviations()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return that of a target times a weight."""
        return sum(exponents)


class Deviations(NamedTuple):
    """The kernel value; scores are gains."""


node_statistic.of(Deviations)(moments_of)


@gain.of(Deviations)
def _(criterion, score, node):
    return score
