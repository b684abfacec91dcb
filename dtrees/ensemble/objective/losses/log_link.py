"""What losses of positive predictions have in common: raw predictions are the logarithms of these.

Losses are deviances: zero for a perfect prediction. Derivatives are of half of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import ROUNDING, OneOutput, kernels


@cache
def deviance_kernels() -> Any:
    """Return :mod:`~dtrees.ensemble.objective.arithmetic.deviance_kernels`, imported on first use."""
    from dtrees.ensemble.objective.arithmetic import deviance_kernels as module

    return module


class LogLink(OneOutput):
    """Mixin: a loss whose raw prediction is the logarithm of a mean."""

    n_outputs: int = 1
    constant_hessian: bool = False

    @property
    def variance_power(self) -> float:
        """The power of the mean that the variance of targets grows with."""
        return 1.0

    def limit_steps(self, values: NDArray[np.float64], learning_rate: float) -> None:
        """Shorten, in place, steps that lead past the smallest loss of their leaves, where the second derivative vanishes on their way.

        With q the power of the variance, the derivatives of a leaf at a step s are a exp((2 - q) s) - b exp((1 - q) s), so the loss is
        smallest at log(b / a). The Newton step v at 0 is -(a - b) / ((2 - q) a + (q - 1) b), or less if it is penalised: thus
        log(b / a) = log(1 + (2 - q) v) - log(1 - (q - 1) v).
        """
        log, up, down = kernels().log, 2.0 - self.variance_power, self.variance_power - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):  # where all targets of a leaf are 0, no step is too long
            steps = values / learning_rate
            best = log(1.0 + up * steps) - log(1.0 - down * steps)
            np.copyto(values, learning_rate * best, where=np.abs(best) < np.abs(steps))

    def initial(self, target: NDArray[np.float64], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the logarithm of the weighted mean, shape (1,)."""
        mean = kernels().weighted_mean(target, np.ones(len(target)) if weight is None else weight)
        if mean == 0.0:
            raise ValueError("y is zero wherever a row has a weight; a loss of positive predictions wants a mean above zero")
        return kernels().log(np.array([mean]))

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return kernels().exp(raw[:, 0])

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the logarithms, shape (n, 1).

        Raises
        ------
        ValueError
            If a prediction is not above zero.
        """
        if predicted.size and not predicted.min() > 0.0:
            raise ValueError(
                f"the estimator passed as init predicts {predicted.min()}, but the loss wants predictions above zero; pass one that is for "
                "such targets (sklearn.linear_model.PoissonRegressor, for example), or init=None"
            )
        return kernels().log(predicted)[:, np.newaxis]

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return a billionth of the prediction, or of one."""
        return ROUNDING * max(1.0, float(self.predictions(initial[np.newaxis])[0]))


def check_not_negative(loss: str, target: NDArray[np.float64]) -> None:
    """Raise a ValueError for targets below zero."""
    if target.size and target.min() < 0:
        raise ValueError(f"loss={loss!r} is for targets that are not negative, but y contains {target.min()}")
