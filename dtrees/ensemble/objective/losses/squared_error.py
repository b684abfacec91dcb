"""Squared error. Derivatives are of half of it, so that its hessian is 1 and a sum of hessians is a weight; scores are the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import ROUNDING, OneOutput, kernels


@dataclass(frozen=True)
class SquaredError(OneOutput):
    """Squared error; the raw prediction is the prediction."""

    n_outputs: int = 1
    constant_hessian: bool = True

    def initial(self, target: NDArray[np.float64], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the weighted mean, shape (1,)."""
        return np.array([kernels().weighted_mean(target, np.ones(len(target)) if weight is None else weight)])

    def gradients(
        self, target: NDArray[np.float64], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g = prediction - target and h = 1, if there is room for it."""
        np.subtract(opened[output], target, out=g)
        h.fill(1.0)

    def pointwise(self, target: NDArray[np.float64], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's squared error."""
        kernels().squared_errors(target, raw[0], out)

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return raw[:, 0]

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values, shape (n, 1)."""
        return predicted[:, np.newaxis]

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return the square of a billionth of the prediction."""
        return (ROUNDING * float(np.abs(initial).max())) ** 2
