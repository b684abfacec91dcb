"""The deviance of the Poisson distribution, for counts and frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.log_link import LogLink, check_not_negative, deviance_kernels


@dataclass(frozen=True)
class Poisson(LogLink):
    """The Poisson deviance, 2 (y log(y / p) - y + p); the raw prediction is log(p)."""

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError for targets below zero."""
        check_not_negative("poisson", target)

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = p - y and h = p."""
        deviance_kernels().poisson_gradients(target, opened[output], g, h)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's deviance."""
        deviance_kernels().poisson_deviance(target, raw[0], out)
