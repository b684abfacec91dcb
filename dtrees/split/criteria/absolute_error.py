"""Absolute error and quantiles: the decrease of the weighted sum of deviations from the median, or from another quantile.

It cannot be computed from sums: a row carries the rank of its target among all targets, and columns are searched by following the
medians of both sides (:mod:`dtrees.split.search.order_statistics`).

For a quantile, the pinball loss takes the place of absolute error (Koenker and Bassett 1978). A deviation from the ``alpha``-quantile
has the factor ``alpha`` above it and ``1 - alpha`` below. So that deviations are integers, ``alpha`` is a fraction: deviations are
multiplied by its numerator above, and by its denominator minus its numerator below. Absolute error is the case of the factors 1 and 1.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.parts import gain, moments_of, node_statistic


class Deviations(NamedTuple):
    """The kernel value: the factors of deviations from a quantile; scores are gains times ``unit``.

    A share of ``above / (above + below)`` of the weight is below the quantile.

    Attributes
    ----------
    above, below : int
        The factors of deviations of targets above the quantile and below it.
    unit : int
        The factor by which the sums of these deviations are too large.
    """

    above: int
    below: int
    unit: int

    @property
    def largest(self) -> int:
        """The larger factor of a deviation."""
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
        """Return the same value; deviations are added over targets."""
        return self.for_kernels(0, 0.0)

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the exponent of a target times a weight."""
        return sum(exponents)


node_statistic.of(Deviations)(moments_of)


@gain.of(Deviations)
def _(criterion, score, node):
    return score / float(criterion.unit)


#: The largest denominator: every share of up to four decimals is exact. The factors of deviations take their bits from the 84 that ranks
#: of targets and weights have together (:mod:`dtrees.split.search.deviations`).
FINEST = 10_000


class Quantile(AbsoluteError):
    """Pinball loss of a regression target; values are ``alpha``-quantiles, measured on the rows of every node.

    Examples
    --------
    >>> Quantile().at(0.9).for_kernels(0, 0.0)
    Deviations(above=9, below=1, unit=10)
    """

    name = "quantile"

    def __init__(self, alpha: float = 0.5) -> None:
        self._share = Fraction(alpha).limit_denominator(FINEST)
        if not 1 / FINEST <= alpha <= 1 - 1 / FINEST:
            raise ValueError(f"alpha={alpha!r} cannot be used with criterion='quantile'; wants {1 / FINEST} to {1 - 1 / FINEST}")

    def at(self, alpha: float) -> Quantile:
        """Return the criterion for a quantile."""
        return _quantile(alpha)

    def for_kernels(self, n_classes: int, penalty: float) -> Deviations:
        """Return the kernel value."""
        above, unit = self._share.as_integer_ratio()
        return Deviations(above, unit - above, unit)


_quantile = lru_cache(maxsize=8)(Quantile)
