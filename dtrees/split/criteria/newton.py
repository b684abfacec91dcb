"""Newton's gain: the decrease of a loss's second-order model by a split, with an L2 penalty (Chen and Guestrin 2016, eq. 7)."""

from __future__ import annotations

from typing import Any

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.squares import Squares


class Newton(Criterion):
    """Newton's gain of gradients and hessians, for boosting; values are Newton steps, computed from the sums."""

    name = "newton"
    task = "boosting"
    row_statistic = "target"
    measured = ""

    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value."""
        return Squares(penalty=penalty, factor=1.0, only_gains=True, centred=False)

    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return that of G^2/H."""
        g, h = exponents
        return 2 * g - h


@inlined_kernel
def soft_threshold(g, l1):
    """Return what an L1 penalty leaves of a sum of gradients: it is moved towards 0, and no further."""
    return g - l1 if g > l1 else g + l1 if g < -l1 else 0.0


@inlined_kernel
def newton_step(g, h, penalty):
    """Return the value of a leaf before shrinkage (Chen and Guestrin 2016, eq. 5), 0 where there is no weight."""
    return -g / (h + penalty) if h + penalty > 0.0 else 0.0


@inlined_kernel
def newton_impurity(g, h, step):
    """Return how much the second-order model falls by a step for each unit of weight."""
    return step * -g / h if h > 0.0 else 0.0
