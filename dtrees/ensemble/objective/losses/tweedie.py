"""The deviance of the Tweedie distribution: amounts that are zero in many rows, as claims are (Jorgensen 1987)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.log_link import LogLink, check_not_negative, deviance_kernels


@dataclass(frozen=True)
class Tweedie(LogLink):
    """The Tweedie deviance of a variance that grows with this power of the mean, between Poisson (1) and gamma (2)."""

    tweedie_variance_power: float = 1.5

    @property
    def variance_power(self) -> float:
        """That of the distribution."""
        return self.tweedie_variance_power

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError for targets below zero."""
        check_not_negative("tweedie", target)

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = p**(2 - power) - y p**(1 - power), and its derivative by log(p)."""
        deviance_kernels().tweedie_gradients(target, opened[output], self.tweedie_variance_power, g, h)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's deviance."""
        deviance_kernels().tweedie_deviance(target, raw[0], self.tweedie_variance_power, out)
