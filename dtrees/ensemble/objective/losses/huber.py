"""Huber's loss: squared error of small residuals and absolute error of large ones (Friedman 2001, algorithm 4)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.losses.by_order import ByOrder, residual_kernels


@dataclass(frozen=True)
class Huber(ByOrder):
    """Huber's loss. What counts as large, ``delta``, is the ``alpha``-quantile of the residuals' sizes at the beginning of each round."""

    alpha: float = 0.9
    delta: float = math.inf

    @property
    def cut_quantile(self) -> float | None:
        """Return ``alpha``."""
        return self.alpha

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return the loss with this ``delta``."""
        return replace(self, delta=sizes[0])

    def for_round(self, target: NDArray[np.float64], raw: NDArray[np.float64], weight: NDArray[np.int64]) -> Self:
        """Return the loss with the ``delta`` of these residuals."""
        return replace(self, delta=float(residual_kernels().residual_quantile(target, raw[0], weight, self.alpha, True)))

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = prediction - target, cut off at ``delta``, and h = 1, if there is room for it."""
        residual_kernels().huber_gradients(target, opened[output], self.delta, g)
        h.fill(1.0)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's loss."""
        residual_kernels().huber_loss(target, raw[0], self.delta, out)

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return what measures the weighted median of residuals, plus the mean of what is left, cut off at ``delta``."""
        return residual_kernels().leaf_centers, self.delta
