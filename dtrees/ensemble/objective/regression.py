"""Losses of regression.

The best constant of squared error is the mean; derivatives are those of half of it, so that its hessian is 1 and a sum of hessians is a
weight; scores are not halved. For absolute error, quantiles and Huber's loss, leaves have exact quantiles of residuals: since gradients are
signs, Newton steps are not useful. Their splits are found by gradients with a hessian of 1, like those of squared error (Friedman 2001,
algorithms 3 and 4). For all of these, raw predictions are the predictions.

Deviances are losses of positive predictions, whose logarithms are the raw predictions. They are zero for a perfect prediction. Derivatives
are those of half of the deviance. Poisson is for counts and frequencies, gamma for amounts whose spread grows with their mean, Tweedie
(Jorgensen 1987) for amounts with many zeros, such as claims.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from dtrees.ensemble.objective.loss import ROUNDING, Floats, Integers, LinkedLoss, OneOutput, SeveralTargets, Target, kernels


class Identity(OneOutput):
    """Mixin: the raw prediction is the prediction."""

    def predictions(self, raw: Floats) -> Floats:
        """Return the predicted values, shape (n,), from raw predictions of shape (n, 1)."""
        return raw[:, 0]

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the values, shape (n, 1)."""
        return predicted[:, np.newaxis]


@dataclass(frozen=True)
class SquaredError(Identity):
    """Squared error; the raw prediction is the prediction."""

    constant_hessian: ClassVar[bool] = True

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the weighted mean, shape (1,)."""
        return np.array([kernels().weighted_mean(target, np.ones(len(target)) if weight is None else weight)])

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = prediction - target and h = 1, if ``h`` is not empty."""
        np.subtract(opened[output], target, out=g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's squared error."""
        kernels().squared_errors(target, raw[0], out)

    def negligible(self, initial: Floats) -> float:
        """Return the square of a billionth of the prediction."""
        return (ROUNDING * float(np.abs(initial).max())) ** 2


class ByOrder(Identity):
    """Mixin: the raw prediction is the prediction, hessians are treated as 1, and leaf values are measured."""

    constant_hessian: ClassVar[bool] = True
    measures_leaves: ClassVar[bool] = True
    #: The quantile of the target that is the best constant.
    quantile: ClassVar[float] = 0.5

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:  # type: ignore[override]
        """The same quantile as for the target."""
        return (self.quantile,)

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the weighted quantile of the target, shape (1,)."""
        return np.array([kernels().target_quantile(target, weight, self.quantile)])

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return the kernel that measures leaves, and its parameter."""
        return kernels().leaf_quantiles, self.quantile

    def measure_leaves(
        self, target: Target, raw: Floats, output: int, weight: Integers, rows: Any, start: Integers, stop: Integers, out: Floats
    ) -> None:
        """Write the values measured on the residuals of each leaf."""
        kernel, parameter = self.leaf_measure()
        kernel(target, raw, weight, rows, start, stop, parameter, out)

    def negligible(self, initial: Floats) -> float:
        """Return a billionth of the prediction."""
        return ROUNDING * float(np.abs(initial).max())


@dataclass(frozen=True)
class AbsoluteError(ByOrder):
    """Absolute error; leaves have the weighted medians of residuals."""

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g, the sign of prediction - target, and h = 1, if ``h`` is not empty."""
        np.sign(np.subtract(opened[output], target, out=g), out=g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's absolute error."""
        np.abs(np.subtract(target, raw[0], out=out), out=out)


@dataclass(frozen=True)
class Quantile(ByOrder):
    """The pinball loss of the ``alpha``-quantile; leaves have the weighted quantiles of residuals."""

    alpha: float = 0.9

    @property
    def quantile(self) -> float:  # type: ignore[override]
        """Return ``alpha``."""
        return self.alpha

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g, 1 - alpha above the target and -alpha below it, and h = 1, if ``h`` is not empty."""
        kernels().pinball_gradients(target, opened[output], self.alpha, g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's pinball loss."""
        kernels().pinball_loss(target, raw[0], self.alpha, out)


@dataclass(frozen=True)
class SeveralQuantiles(SeveralTargets):
    """The mean of the pinball losses of several quantiles of one target, each with its own trees.

    Predictions are the raw predictions of a row in ascending order, so that quantiles do not cross. Sorting never increases the loss
    (Chernozhukov, Fernandez-Val and Galichon, "Quantile and probability curves without crossing", Econometrica 78(3), 2010).
    """

    losses: tuple[Quantile, ...]

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:  # type: ignore[override]
        """Empty, as there is one target."""
        return ()

    def _target(self, target: Target, k: int) -> Target:
        return target

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's mean loss, with quantiles in ascending order."""
        super().pointwise(target, np.sort(raw, axis=0), out)

    def predictions(self, raw: Floats) -> Floats:
        """Return the quantiles in ascending order, shape (n, K), from raw predictions of that shape."""
        return np.sort(raw, axis=1)

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the quantiles."""
        return predicted


def quantile_loss(alpha: float | tuple[float, ...]) -> Quantile | SeveralQuantiles:
    """Return the loss of one or several quantiles.

    Raises
    ------
    ValueError
        Unless several quantiles are at least two, between 0 and 1, and ascending.
    """
    if not isinstance(alpha, tuple):
        return Quantile(alpha)
    if len(alpha) < 2 or not all(one < other for one, other in pairwise((0.0, *alpha, 1.0))):
        raise ValueError(f"alpha is {list(alpha)}; wants a number between 0 and 1, or at least two of them in ascending order")
    return SeveralQuantiles(tuple(map(Quantile, alpha)))


def share_of(alpha: float | tuple[float, ...]) -> float:
    """Return the share of residuals that Huber's loss treats as small; raise ValueError for several."""
    if isinstance(alpha, tuple):
        raise ValueError(f"alpha is {list(alpha)}; wants one number with loss='huber', as several are for loss='quantile'")
    return alpha


@dataclass(frozen=True)
class Huber(ByOrder):
    """Huber's loss. The threshold ``delta`` is the ``alpha``-quantile of the absolute residuals at the beginning of each round."""

    alpha: float = 0.9
    delta: float = math.inf

    @property
    def cut_quantile(self) -> float | None:  # type: ignore[override]
        """Return ``alpha``."""
        return self.alpha

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return the loss with this ``delta``."""
        return replace(self, delta=sizes[0])

    def for_round(self, target: Target, raw: Floats, weight: Integers) -> Self:
        """Return the loss with the ``delta`` of these residuals."""
        return replace(self, delta=kernels().residual_quantile(target, raw[0], weight, self.alpha, True))

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = prediction - target, clipped at ``delta``, and h = 1, if ``h`` is not empty."""
        np.clip(np.subtract(opened[output], target, out=g), -self.delta, self.delta, out=g)
        h.fill(1.0)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's loss."""
        kernels().huber_loss(target, raw[0], self.delta, out)

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return the kernel for the weighted median of residuals plus the mean clipped deviation from it, and ``delta``."""
        return kernels().leaf_centers, self.delta


class LogLink(OneOutput):
    """Mixin: a loss whose raw prediction is the logarithm of the prediction."""

    def predictions(self, raw: Floats) -> Floats:
        """Return the predicted values, shape (n,), from raw predictions of shape (n, 1)."""
        return kernels().exp(raw[:, 0])

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the logarithms, shape (n, 1).

        Raises
        ------
        ValueError
            If a prediction is not positive.
        """
        if predicted.size and not predicted.min() > 0.0:
            raise ValueError(
                f"the estimator passed as init predicts {predicted.min()}, but the loss wants predictions above zero; pass one that is for "
                "such targets (sklearn.linear_model.PoissonRegressor, for example), or init=None"
            )
        return kernels().log(predicted)[:, np.newaxis]


class Deviance(LogLink):
    """Mixin: a loss of positive amounts."""

    #: The distribution of targets, part of the names of kernels.
    distribution: ClassVar[str]
    #: The power of the mean in which the variance of targets grows, and the parameters of the distribution in calls of kernels.
    variance_power: ClassVar[float] = 1.0
    _parameters: ClassVar[tuple[float, ...]] = ()

    def check(self, target: Target) -> None:
        """Raise a ValueError for negative targets."""
        if target.size and target.min() < 0:
            raise ValueError(f"loss={self.distribution!r} is for targets that are not negative, but y contains {target.min()}")

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives of half the deviance with respect to log(p): g = p**(2 - power) - y p**(1 - power), and that of g."""
        kernels().deviance_gradients(target, opened[output], self.variance_power, g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's deviance."""
        getattr(kernels(), f"{self.distribution}_deviance")(target, raw[0], *self._parameters, out)

    def limit_steps(self, values: Floats, learning_rate: float) -> None:
        """Shorten, in place, steps that overshoot the smallest loss of their leaves, if the second derivative vanishes on the way.

        With q the power of the variance, the derivatives of a leaf at a step s are a exp((2 - q) s) - b exp((1 - q) s), so the loss is
        smallest at log(b / a). The Newton step v at 0 is -(a - b) / ((2 - q) a + (q - 1) b), or less with a penalty: thus log(b / a) =
        log(1 + (2 - q) v) - log(1 - (q - 1) v).
        """
        log, up, down = kernels().log, 2.0 - self.variance_power, self.variance_power - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):  # if all targets of a leaf are 0, no step is too long
            steps = values / learning_rate
            best = log(1.0 + up * steps) - log(1.0 - down * steps)
            np.copyto(values, learning_rate * best, where=np.abs(best) < np.abs(steps))

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the logarithm of the weighted mean, shape (1,)."""
        mean = kernels().weighted_mean(target, np.ones(len(target)) if weight is None else weight)
        if mean == 0.0:
            raise ValueError("y is zero wherever a row has a weight; a loss of positive predictions wants a mean above zero")
        return kernels().log(np.array([mean]))

    def negligible(self, initial: Floats) -> float:
        """Return a billionth of the larger of the prediction and 1."""
        return ROUNDING * max(1.0, float(self.predictions(initial[np.newaxis])[0]))


@dataclass(frozen=True)
class Poisson(Deviance):
    """The Poisson deviance, 2 (y log(y / p) - y + p); the raw prediction is log(p)."""

    distribution: ClassVar[str] = "poisson"


@dataclass(frozen=True)
class Gamma(Deviance):
    """The gamma deviance, 2 (y / p - log(y / p) - 1); the raw prediction is log(p)."""

    distribution: ClassVar[str] = "gamma"
    variance_power: ClassVar[float] = 2.0

    def check(self, target: Target) -> None:
        """Raise a ValueError for targets that are not positive."""
        if target.size and target.min() <= 0:
            raise ValueError(f"loss='gamma' is for targets above zero, but y contains {target.min()}")


@dataclass(frozen=True)
class Tweedie(Deviance):
    """The Tweedie deviance, whose variance grows with a power of the mean between 1 (Poisson) and 2 (gamma)."""

    distribution: ClassVar[str] = "tweedie"
    tweedie_variance_power: float = 1.5

    @property
    def variance_power(self) -> float:  # type: ignore[override]
        """The power of the distribution."""
        return self.tweedie_variance_power

    @property
    def _parameters(self) -> tuple[float, ...]:  # type: ignore[override]
        return (self.tweedie_variance_power,)
