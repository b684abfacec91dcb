"""The deviance of the gamma distribution, for amounts whose spread grows with their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.log_link import LogLink, deviance_kernels


@dataclass(frozen=True)
class Gamma(LogLink):
    """The gamma deviance, 2 (y / p - log(y / p) - 1); the raw prediction is log(p)."""

    @property
    def variance_power(self) -> float:
        """2."""
        return 2.0

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError for targets that are not above zero."""
        if target.size and target.min() <= 0:
            raise ValueError(f"loss='gamma' is for targets above zero, but y contains {target.min()}")

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = 1 - y / p and h = y / p."""
        deviance_kernels().gamma_gradients(target, opened[output], g, h)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's deviance."""
        deviance_kernels().gamma_deviance(target, raw[0], out)
