"""The pinball loss, whose best constant is a quantile (Koenker and Bassett 1978)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.by_order import ByOrder, residual_kernels


@dataclass(frozen=True)
class Quantile(ByOrder):
    """The pinball loss of the ``alpha``-quantile; leaves hold the weighted quantiles of residuals."""

    alpha: float = 0.9

    @property
    def quantile(self) -> float:
        """Return ``alpha``."""
        return self.alpha

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g, 1 - alpha above the target and -alpha below it, and h = 1, if there is room for it."""
        residual_kernels().pinball_gradients(target, opened[output], self.alpha, g)
        h.fill(1.0)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's pinball loss."""
        residual_kernels().pinball_loss(target, raw[0], self.alpha, out)
