"""Squared error: the decrease of the weighted sum of squares about the mean."""

from __future__ import annotations

from typing import Any

from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.gini import GiniOfClasses
from dtrees.split.criteria.squares import Squares


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
        """Return that of Gini impurity, which adds up squared errors over classes."""
        return GiniOfClasses()

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return that of G^2/H."""
        g, h = exponents
        return 2 * g - h
