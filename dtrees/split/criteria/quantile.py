"""Quantile: the decrease of the weighted pinball loss about the quantile (Koenker and Bassett 1978).

A deviation from the ``alpha``-quantile counts ``alpha`` above it and ``1 - alpha`` below. So that deviations are integers, ``alpha`` is
taken to be a fraction, and deviations count its numerator above and what is left of its denominator below. All else is as with absolute
error, where they count 1 on both sides.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from dtrees.split.criteria.absolute_error import AbsoluteError, Deviations

#: The largest denominator: every share of up to four decimals is met exactly. What deviations count takes its bits from the 84 that levels
#: and weights have together (:mod:`dtrees.split.search.order_statistics.deviations`).
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
        """Return the criterion of a quantile."""
        return _quantile(alpha)

    def for_kernels(self, n_classes: int, penalty: float) -> Deviations:
        """Return the kernel value."""
        above, unit = self._share.as_integer_ratio()
        return Deviations(above, unit - above, unit)


_quantile = lru_cache(maxsize=8)(Quantile)
