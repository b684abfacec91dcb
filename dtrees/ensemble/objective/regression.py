"""Losses of regression whose raw predictions are the predictions.

Squared error has the mean for its best constant; derivatives are of half of it, so that its hessian is 1 and a sum of hessians is a weight;
scores are the whole. The leaves of the others hold exact quantiles of residuals: where gradients are signs, Newton steps say nothing. Their
splits are found by the gradients, each with a hessian of 1, as those of squared error are (Friedman 2001, algorithms 3 and 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from dtrees.ensemble.objective.loss import ROUNDING, Floats, Integers, OneOutput, Target, kernels


class _Identity(OneOutput):
    """Mixin: the raw prediction is the prediction."""

    def predictions(self, raw: Floats) -> Floats:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return raw[:, 0]

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the values, shape (n, 1)."""
        return predicted[:, np.newaxis]


@dataclass(frozen=True)
class SquaredError(_Identity):
    """Squared error; the raw prediction is the prediction."""

    n_outputs: int = 1
    constant_hessian: bool = True

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the weighted mean, shape (1,)."""
        return np.array([kernels("loss_kernels").weighted_mean(target, np.ones(len(target)) if weight is None else weight)])

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = prediction - target and h = 1, if there is room for it."""
        np.subtract(opened[output], target, out=g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's squared error."""
        kernels("loss_kernels").squared_errors(target, raw[0], out)

    def negligible(self, initial: Floats) -> float:
        """Return the square of a billionth of the prediction."""
        return (ROUNDING * float(np.abs(initial).max())) ** 2


class ByOrder(_Identity):
    """Mixin: the raw prediction is the prediction, hessians are taken to be 1, and leaves are measured."""

    n_outputs: int = 1
    constant_hessian: bool = True
    measures_leaves: ClassVar[bool] = True

    @property
    def quantile(self) -> float:
        """Which quantile of the target is the best constant."""
        return 0.5

    @property
    def residual_quantile(self) -> float | None:
        """As of the target."""
        return self.quantile

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the weighted quantile of the target, shape (1,)."""
        return np.array([kernels("residual_kernels").target_quantile(target, weight, self.quantile)])

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return the kernel that measures leaves, and its parameter."""
        return kernels("residual_kernels").leaf_quantiles, self.quantile

    def measure_leaves(
        self, target: Target, raw: Floats, output: int, weight: Integers, rows: Any, start: Integers, stop: Integers, out: Floats
    ) -> None:
        """Write what is measured of the residuals of each leaf."""
        kernel, parameter = self.leaf_measure()
        kernel(target, raw, weight, rows, start, stop, parameter, out)

    def negligible(self, initial: Floats) -> float:
        """Return a billionth of the prediction."""
        return ROUNDING * float(np.abs(initial).max())


@dataclass(frozen=True)
class AbsoluteError(ByOrder):
    """Absolute error; leaves hold the weighted medians of residuals."""

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g, the sign of prediction - target, and h = 1, if there is room for it."""
        np.sign(np.subtract(opened[output], target, out=g), out=g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's absolute error."""
        np.abs(np.subtract(target, raw[0], out=out), out=out)


@dataclass(frozen=True)
class Quantile(ByOrder):
    """The pinball loss of the ``alpha``-quantile; leaves hold the weighted quantiles of residuals."""

    alpha: float = 0.9

    @property
    def quantile(self) -> float:
        """Return ``alpha``."""
        return self.alpha

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g, 1 - alpha above the target and -alpha below it, and h = 1, if there is room for it."""
        kernels("residual_kernels").pinball_gradients(target, opened[output], self.alpha, g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's pinball loss."""
        kernels("residual_kernels").pinball_loss(target, raw[0], self.alpha, out)


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

    def for_round(self, target: Target, raw: Floats, weight: Integers) -> Self:
        """Return the loss with the ``delta`` of these residuals."""
        return replace(self, delta=float(kernels("residual_kernels").residual_quantile(target, raw[0], weight, self.alpha, True)))

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = prediction - target, cut off at ``delta``, and h = 1, if there is room for it."""
        kernels("residual_kernels").huber_gradients(target, opened[output], self.delta, g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's loss."""
        kernels("residual_kernels").huber_loss(target, raw[0], self.delta, out)

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return what measures the weighted median of residuals, plus the mean of what is left, cut off at ``delta``."""
        return kernels("residual_kernels").leaf_centers, self.delta
