"""Deviances: losses of positive predictions, whose raw predictions are the logarithms of these.

They are zero for a perfect prediction. Derivatives are of half of them. Poisson's is for counts and frequencies, that of the gamma
distribution for amounts whose spread grows with their mean, Tweedie's (Jorgensen 1987) for amounts, many of which are zero, as of claims.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dtrees.ensemble.objective.loss import ROUNDING, Floats, OneOutput, Target, kernels


class LogLink(OneOutput):
    """Mixin: a loss whose raw prediction is the logarithm of a mean."""

    n_outputs: int = 1
    constant_hessian: bool = False

    @property
    def variance_power(self) -> float:
        """The power of the mean that the variance of targets grows with."""
        return 1.0

    def limit_steps(self, values: Floats, learning_rate: float) -> None:
        """Shorten, in place, steps that lead past the smallest loss of their leaves, where the second derivative vanishes on their way.

        With q the power of the variance, the derivatives of a leaf at a step s are a exp((2 - q) s) - b exp((1 - q) s), so the loss is
        smallest at log(b / a). The Newton step v at 0 is -(a - b) / ((2 - q) a + (q - 1) b), or less if it is penalised: thus
        log(b / a) = log(1 + (2 - q) v) - log(1 - (q - 1) v).
        """
        log, up, down = kernels("loss_kernels").log, 2.0 - self.variance_power, self.variance_power - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):  # where all targets of a leaf are 0, no step is too long
            steps = values / learning_rate
            best = log(1.0 + up * steps) - log(1.0 - down * steps)
            np.copyto(values, learning_rate * best, where=np.abs(best) < np.abs(steps))

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the logarithm of the weighted mean, shape (1,)."""
        mean = kernels("loss_kernels").weighted_mean(target, np.ones(len(target)) if weight is None else weight)
        if mean == 0.0:
            raise ValueError("y is zero wherever a row has a weight; a loss of positive predictions wants a mean above zero")
        return kernels("loss_kernels").log(np.array([mean]))

    def predictions(self, raw: Floats) -> Floats:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return kernels("loss_kernels").exp(raw[:, 0])

    def raw_predictions(self, predicted: Floats) -> Floats:
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
        return kernels("loss_kernels").log(predicted)[:, np.newaxis]

    def negligible(self, initial: Floats) -> float:
        """Return a billionth of the prediction, or of one."""
        return ROUNDING * max(1.0, float(self.predictions(initial[np.newaxis])[0]))


def check_not_negative(loss: str, target: Target) -> None:
    """Raise a ValueError for targets below zero."""
    if target.size and target.min() < 0:
        raise ValueError(f"loss={loss!r} is for targets that are not negative, but y contains {target.min()}")


@dataclass(frozen=True)
class Poisson(LogLink):
    """The Poisson deviance, 2 (y log(y / p) - y + p); the raw prediction is log(p)."""

    def check(self, target: Target) -> None:
        """Raise a ValueError for targets below zero."""
        check_not_negative("poisson", target)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = p - y and h = p."""
        kernels("deviance_kernels").poisson_gradients(target, opened[output], g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's deviance."""
        kernels("deviance_kernels").poisson_deviance(target, raw[0], out)


@dataclass(frozen=True)
class Gamma(LogLink):
    """The gamma deviance, 2 (y / p - log(y / p) - 1); the raw prediction is log(p)."""

    @property
    def variance_power(self) -> float:
        """2."""
        return 2.0

    def check(self, target: Target) -> None:
        """Raise a ValueError for targets that are not above zero."""
        if target.size and target.min() <= 0:
            raise ValueError(f"loss='gamma' is for targets above zero, but y contains {target.min()}")

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = 1 - y / p and h = y / p."""
        kernels("deviance_kernels").gamma_gradients(target, opened[output], g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's deviance."""
        kernels("deviance_kernels").gamma_deviance(target, raw[0], out)


@dataclass(frozen=True)
class Tweedie(LogLink):
    """The Tweedie deviance of a variance that grows with this power of the mean, between Poisson (1) and gamma (2)."""

    tweedie_variance_power: float = 1.5

    @property
    def variance_power(self) -> float:
        """That of the distribution."""
        return self.tweedie_variance_power

    def check(self, target: Target) -> None:
        """Raise a ValueError for targets below zero."""
        check_not_negative("tweedie", target)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write g = p**(2 - power) - y p**(1 - power), and its derivative by log(p)."""
        kernels("deviance_kernels").tweedie_gradients(target, opened[output], self.tweedie_variance_power, g, h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's deviance."""
        kernels("deviance_kernels").tweedie_deviance(target, raw[0], self.tweedie_variance_power, out)
