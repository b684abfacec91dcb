"""The exponential loss of two classes, which AdaBoost minimises (Friedman, Hastie and Tibshirani 2000)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import OneOutput
from dtrees.ensemble.objective.losses.log_link import deviance_kernels
from dtrees.ensemble.objective.losses.log_loss import BinaryLogLoss


@dataclass(frozen=True)
class Exponential(OneOutput):
    """exp(-raw) for the second class and exp(raw) for the first; the raw prediction is half the log odds of the second."""

    n_outputs: int = 1
    constant_hessian: bool = False

    def initial(self, target: NDArray[np.int32], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return half the log odds of the weighted class shares, shape (1,)."""
        return 0.5 * BinaryLogLoss().initial(target, weight)

    def gradients(
        self, target: NDArray[np.int32], opened: NDArray[np.float64], output: int, g: NDArray[np.float64], h: NDArray[np.float64]
    ) -> None:
        """Write g, the loss with the sign of the class that the row is not, and h, the loss."""
        deviance_kernels().exponential_gradients(target, opened[output], g, h)

    def pointwise(self, target: NDArray[np.int32], raw: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Write each row's loss."""
        deviance_kernels().exponential_loss(target, raw[0], out)

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return class probabilities, shape (n, 2), from raw predictions of shape (n, 1)."""
        return BinaryLogLoss().predictions(2.0 * raw)

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return half the log odds of class 1, shape (n, 1), from probabilities of shape (n, 2)."""
        return 0.5 * BinaryLogLoss().raw_predictions(predicted)
