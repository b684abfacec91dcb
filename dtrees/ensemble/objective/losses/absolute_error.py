"""Absolute error, whose best constant is the median."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.by_order import ByOrder


@dataclass(frozen=True)
class AbsoluteError(ByOrder):
    """Absolute error; leaves hold the weighted medians of residuals."""

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g, the sign of prediction - target, and h = 1, if there is room for it."""
        np.sign(np.subtract(opened[output], target, out=g), out=g)
        h.fill(1.0)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's absolute error."""
        np.abs(np.subtract(target, raw[0], out=out), out=out)
