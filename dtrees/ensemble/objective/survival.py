"""Losses of times until an event, possibly known only by bounds.

A target has two rows of numbers: lower and upper bounds of the time of the event. Both are equal if the event was observed; the upper bound
is infinite for right-censored rows, and the lower one is 0 for left-censored rows.

Cox's model (1972) describes the hazard, the rate of events among the remaining rows: predictions are factors of it. Its loss is the
negative partial likelihood; rows with equal times have one risk set, all rows that survived until then (Breslow 1974). Derivatives need all
rows; the hessian is approximated by its diagonal. The baseline hazard, to which the factors refer, is Breslow's estimate.

The accelerated failure time model describes the time: log(t) is the raw prediction plus an error of a known distribution and scale. Its
derivatives are those of Barnwal, Cho and Hocking, "Survival regression with accelerated failure time model in XGBoost" (2022), with the
same limits; here, they are computed from logarithms of distribution functions, so that rows far from their bounds lose no precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import Floats, OfAllRows, Target, kernels
from dtrees.ensemble.objective.regression import LogLink

#: Limits of the absolute gradients, and of hessians.
LARGEST_DERIVATIVE, LEAST_HESSIAN = 15.0, 1e-16
#: The probability of a narrower interval (in units of the scale, of log time) is approximated by the density at its midpoint times its
#: width.
_NARROW = 1e-6
#: Log hazards are limited to this distance from the largest one, and logarithms of times over the scale to this value, so that all are
#: finite.
_RANGE = 300.0
#: log(erfc(x) exp(x**2) / t) as a polynomial of 2 t - 1, where t is 1 / (1 + x / 2) and x at least 0; accurate to 4e-15.
_ERFC = (
    -1.129780568344895e-08, 2.951619620324016e-08, 6.863637723462122e-08, -2.877829243123443e-07, -1.843287068704733e-08,
    1.278623235813751e-06, -1.444062602666217e-06, -2.956181442709663e-06, 8.695618543486523e-06, 1.328617471213099e-07,
    -3.025882811926443e-05, 3.175136502437177e-05, 7.142705928457072e-05, -0.0001743059705914969, -9.374149497049219e-05,
    0.0006736796327937594, -0.0001462458199774118, -0.002345812637265964, 0.0017589334558805, 0.008824938569622005,
    -0.009872689361173267, -0.04689561023173547, 0.04734330684180348, 0.6726432239776647, -0.6717940840566918,
)  # fmt: skip


class Censored(LogLink):
    """Mixin: a loss of times given by bounds."""

    #: Whether larger predictions mean later events.
    later: ClassVar[bool]

    def measure(self, name: str, target: Target, raw: Floats, weight: Floats | None) -> float:
        """Return the "concordance" of raw predictions of all rows or, for losses of all rows, the "loss"."""
        return concordance(target, -raw[0] if self.later else raw[0], weight)

    def negligible(self, initial: Floats) -> float:
        """Return infinity, as losses may have any size, and be negative."""
        return math.inf


class RiskSets(NamedTuple):
    """The risk sets: rows by time, with given log hazards.

    Attributes
    ----------
    times : ndarray of float64, shape (n_times,)
        Ascending.
    place : ndarray of int64, shape (n_rows,)
        The index of each row's time.
    share : ndarray of float64, shape (n_rows,)
        Weights times hazards, over the largest hazard.
    at_risk, events : ndarray of float64, shape (n_times,)
        The sum of the shares of the rows that remain at each time, and of the weights of rows with an event at that time.
    highest : float
        The logarithm of the largest hazard.
    """

    times: Floats
    place: NDArray[np.int64]
    share: Floats
    at_risk: Floats
    events: Floats
    highest: float

    @classmethod
    def of(cls, target: Target, raw: Floats, weight: Floats | None) -> RiskSets:
        """Return the risk sets; sums are in row order."""
        w = np.ones(raw.shape[0]) if weight is None else weight
        highest = float(np.max(raw, initial=-math.inf, where=w > 0))
        share = w * kernels().exp(np.clip(raw - highest, -_RANGE, 0.0))
        times, place = np.unique(target[0], return_inverse=True)
        at_risk = np.bincount(place, share)[::-1].cumsum()[::-1]
        return cls(times, place, share, at_risk, np.bincount(place, seen_weight(target, weight)).astype(np.float64, copy=False), highest)

    def hazard(self, power: int = 1) -> Floats:
        """Return the sum of events / at_risk**power up to each time."""
        return np.divide(self.events, self.at_risk**power, out=np.zeros_like(self.events), where=self.events > 0).cumsum()


def seen_weight(target: Target, weight: Floats | None) -> Floats:
    """Return the weights of rows with an observed event, 0 for others."""
    return (target[0] == target[1]) * (1.0 if weight is None else weight)


@dataclass(frozen=True)
class Cox(OfAllRows, Censored):
    """The negative partial likelihood of proportional hazards; the raw prediction is the logarithm of a row's hazard factor."""

    later: ClassVar[bool] = False

    def check(self, target: Target) -> None:
        """Raise a ValueError for times that are neither known nor right-censored, and if there are no events."""
        seen = target[0] == target[1]
        if not (seen | np.isinf(target[1])).all():
            i = int(np.argmin(seen | np.isinf(target[1])))
            raise ValueError(
                f"loss='cox' wants times that are known or censored on the right, but y has the bounds {target[:, i].tolist()}; use "
                "loss='aft' for such"
            )
        if not seen.any():
            raise ValueError("y has no event in any row with a weight; loss='cox' wants at least one")

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return zero, shape (1,), as the partial likelihood does not depend on constants."""
        return np.zeros(1)

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Return the derivatives: a row's shares of the events while it remained, minus its own event."""
        sets = RiskSets.of(target, raw[0], weight)
        expected = sets.share * sets.hazard()[sets.place]
        seen = seen_weight(target, weight)
        hessian = expected - sets.share * sets.share * sets.hazard(2)[sets.place]
        return np.stack([expected - seen, np.maximum(hessian, 0.0)])[:, np.newaxis]

    def measure(self, name: str, target: Target, raw: Floats, weight: Floats | None) -> float:
        """Return the concordance, or the mean over events of the negative log partial likelihood; NaN without events."""
        if name == "concordance":
            return super().measure(name, target, raw, weight)
        sets = RiskSets.of(target, raw[0], weight)
        seen = seen_weight(target, weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.where(seen > 0, seen * (kernels().log(sets.at_risk)[sets.place] + sets.highest - raw[0]), 0.0)
            return float(kernels().weighted_mean(losses, np.ones_like(losses)) / seen.mean())


def baseline(target: Target, raw: Floats, weight: Floats | None) -> tuple[Floats, Floats]:
    """Return the times of events, and Breslow's estimate of the cumulative hazard at each for a row with a raw prediction of 0."""
    sets = RiskSets.of(target, raw, weight)
    some = sets.events > 0
    return sets.times[some], sets.hazard()[some] * kernels().exp([-sets.highest])


def log_complement(x: Floats) -> Floats:
    """Return log(1 - exp(-x)) for non-negative numbers, with full precision for small ones."""
    k, small = kernels(), np.minimum(x, 0.01)
    series = k.log(small) - small / 2.0 + small**2 / 24.0 - small**2 * small**2 / 2880.0
    return np.where(x < 0.01, series, k.log(1.0 - k.exp(-np.maximum(x, 0.01))))


def log_normal_cdf(z: Floats) -> Floats:
    """Return the logarithm of the standard normal distribution function."""
    x = np.abs(z) * math.sqrt(0.5)
    t = 1.0 / (1.0 + x / 2.0)
    series, u = np.zeros_like(t), 2.0 * t - 1.0
    for term in _ERFC:
        series = series * u + term
    below = np.log(0.5) + kernels().log(t) + series - x * x
    return np.where(z <= 0.0, below, log_complement(-below))


class Law(NamedTuple):
    """A distribution of errors at given points: logarithms of its density and of the shares below and above; derivatives of the first."""

    density: Floats
    below: Floats
    above: Floats
    slope: Floats
    curvature: Any


def normal(z: Floats) -> Law:
    """Return the standard normal distribution."""
    return Law(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi), log_normal_cdf(z), log_normal_cdf(-z), -z, -1.0)


def logistic(z: Floats) -> Law:
    """Return the logistic distribution."""
    k = kernels()
    both = k.log(1.0 + k.exp(-np.abs(z)))
    below, above = -(both + np.maximum(-z, 0.0)), -(both + np.maximum(z, 0.0))
    return Law(below + above, below, above, k.exp(above) - k.exp(below), -2.0 * k.exp(below + above))


def extreme(z: Floats) -> Law:
    """Return the distribution of the smallest of many values (Gumbel), for which times have a Weibull distribution."""
    z = np.where(np.isinf(z), z, np.minimum(z, _RANGE))
    w = kernels().exp(z)
    below = np.where(z < -40.0, z, log_complement(w))  # the first case includes w = 0
    return Law(np.minimum(z, _RANGE) - w, below, -w, 1.0 - w, -w)


LAWS: dict[str, Callable[[Floats], Law]] = {"normal": normal, "logistic": logistic, "extreme": extreme}


@dataclass(frozen=True)
class Aft(Censored):
    """The negative log likelihood of bounds on times, whose logarithms are raw predictions plus errors of a known distribution."""

    aft_loss_distribution: str = "normal"
    aft_loss_distribution_scale: float = 1.0

    later: ClassVar[bool] = True

    def check(self, target: Target) -> None:
        """Raise a ValueError if a time is zero."""
        if target.size and target[1].min() <= 0.0:
            raise ValueError("loss='aft' is for times above zero, but y has a row whose event came at 0 or before")

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the best constant, shape (1,), found by Newton steps from the mean logarithm of bounds.

        Raises
        ------
        ValueError
            If no constant is the best, as no row has an upper bound, or none a lower one.
        """
        for side, bounded in (("right", np.isfinite(target[1])), ("left", target[0] > 0.0)):
            if not bounded.any():
                raise ValueError(f"all rows of y with a weight are censored on the {side}; loss='aft' wants at least one that is not")
        w, scale = np.ones(target.shape[1]) if weight is None else weight, self.aft_loss_distribution_scale
        mean = kernels().weighted_mean
        raw = mean(kernels().log(np.where(target[0] > 0.0, target[0], target[1])), w)
        for _ in range(100):
            _, g, h = self._likelihood(target, np.full(target.shape[1], raw))
            step = min(max(mean(g, w) / max(mean(h, w), LEAST_HESSIAN), -scale), scale)
            raw -= step
            if abs(step) <= 1e-12 * scale:
                break
        return np.array([raw])

    def _likelihood(self, target: Target, raw: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the loss of each row, and its derivatives before clipping."""
        k, law, scale = kernels(), LAWS[self.aft_loss_distribution], self.aft_loss_distribution_scale
        found = np.empty((3, raw.shape[0]))
        bounds = k.log(np.ascontiguousarray(target))
        lower, upper = (bounds - raw) / scale
        near = upper - lower < _NARROW
        with np.errstate(all="ignore"):
            one, exact = law((lower[near] + upper[near]) / 2.0), target[0, near] == target[1, near]
            width = np.where(exact, -bounds[0, near] - math.log(scale), k.log(upper[near] - lower[near]))
            found[:, near] = -one.density - width, one.slope / scale, -one.curvature / scale**2 + np.zeros_like(one.slope)
            wide = ~near
            # The share of the distribution between the bounds, computed from the side on which it is smaller.
            low, high = law(lower[wide]), law(upper[wide])
            right = lower[wide] > 0.0
            outer, inner = np.where(right, low.above, high.below), np.where(right, high.above, low.below)
            between = outer + log_complement(np.maximum(outer - inner, 1e-15))
            ratios = [k.exp(side.density - between) for side in (low, high)]
            difference = ratios[1] - ratios[0]
            bent = [np.where(ratio > 0.0, ratio * side.slope, 0.0) for ratio, side in zip(ratios, (low, high), strict=True)]
            found[:, wide] = -between, difference / scale, (difference * difference - (bent[1] - bent[0])) / scale**2
        loss, g, h = found
        return loss, g, h

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives, clipped to their limits."""
        _, slope, curvature = self._likelihood(target, opened[output])
        np.clip(slope, -LARGEST_DERIVATIVE, LARGEST_DERIVATIVE, out=g)
        if h.shape[0]:
            np.clip(curvature, LEAST_HESSIAN, LARGEST_DERIVATIVE, out=h)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's negative log likelihood."""
        np.copyto(out, self._likelihood(target, raw[0])[0])


def survival(loss: Any, times: Floats, hazard: Floats | None, raw: Floats) -> Floats:
    """Step: raw predictions to probabilities of survival until given times, shape (n, n_times).

    Parameters
    ----------
    loss : Cox or Aft
    times : ndarray of float64, shape (n_times,)
    hazard : ndarray of float64, shape (n_times,), or None
        For Cox's model, the cumulative baseline hazard at these times.
    raw : ndarray of float64, shape (n, 1)
    """
    k = kernels()
    if hazard is not None:
        return k.exp(-k.exp(raw) * hazard)
    z = (k.log(times) - raw) / loss.aft_loss_distribution_scale
    return k.exp(LAWS[loss.aft_loss_distribution](z.ravel()).above).reshape(z.shape)


def concordance(target: Target, risk: Floats, weight: Floats | None) -> float:
    """Return Harrell's concordance index: the share of the pairs of rows with a known order for which the earlier row has the higher risk.

    Ties of risks count half, and pairs are weighted by the product of their weights; NaN if there are no pairs. The event of one row
    precedes that of another if its upper bound is below the other's lower one, or equal to it and the other's event was later.

    Examples
    --------
    >>> concordance(np.array([[1.0, 2.0, 3.0], [1.0, np.inf, 3.0]]), np.array([0.9, 0.1, 0.9]), None)
    0.75
    """
    lower, upper = target
    n, w = risk.shape[0], np.ones(risk.shape[0]) if weight is None else weight
    # A row remains until its lower bound, and ends at its upper one. At equal times, observed events begin before others end. In descending
    # order.
    time, kind = np.concatenate([lower, upper]), np.concatenate([np.where(lower < upper, 2, 0), np.ones(n, np.int64)])
    order = np.lexsort((kind, time))
    order = order[np.isfinite(time[order])][::-1]
    ends, row = order >= n, order % n
    ranks, rank = np.unique(risk, return_inverse=True)
    pairs, ordered = kernels().ordered_pairs(rank[row], w[row], ends, len(ranks))
    return ordered / pairs if pairs > 0.0 else math.nan
