"""The interface of losses in boosting, and the loss of multi-output targets, with a tree for each output of each target in a round.

Terms
-----
raw prediction
    the sum of the trees: the value itself for squared error, log odds for two classes, unnormalised log probabilities for more.
link
    the mapping from raw predictions to predictions: :meth:`LinkedLoss.predictions`.

Losses are small, immutable, picklable, and described by their ``repr``. To add a loss, write a class in a module of this package and a line
in :mod:`dtrees.ensemble.objective.registry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Loss

#: Arrays of losses: floats, integers, and targets, which are numbers or class codes.
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Target = NDArray[Any]

#: Targets with smaller relative differences count as equal in the warning of trees without splits.
ROUNDING = 1e-9
#: The parts that a loss must define; see :class:`~dtrees.engine.plan.plans.Loss` and :class:`LinkedLoss`. :class:`BaseLoss` has the others.
PARTS = ("n_outputs", "constant_hessian", "initial", "open_round", "gradients", "pointwise", "predictions")


class LinkedLoss(Loss, Protocol):
    """A loss that also defines the meaning of raw predictions."""

    def predictions(self, raw: Floats) -> Floats:
        """Return values of shape (n,), or probabilities of shape (n, n_classes), from raw predictions of shape (n, K)."""

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions, shape (n, K), given the result of :meth:`predictions`."""

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:
        """The loss of each target, for multi-output targets; otherwise empty."""


class BaseLoss:
    """Mixin with defaults of most losses: they accept all targets, do not change with rounds, and leaves have Newton steps."""

    measures_leaves: ClassVar[bool] = False
    takes_all_rows: ClassVar[bool] = False
    residual_quantiles: ClassVar[tuple[float, ...] | None] = None
    cut_quantile: ClassVar[float | None] = None
    by_target: ClassVar[tuple[LinkedLoss, ...]] = ()

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return this loss."""
        return self

    def check(self, target: Target) -> None:
        """Accept all targets."""

    def for_round(self, target: Target, raw: Floats, weight: Any) -> Self:
        """Return this loss."""
        return self

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Return this loss."""
        return self

    def limit_steps(self, values: Floats, learning_rate: float) -> None:
        """Do not change Newton steps."""

    def measure_leaves(
        self, target: Target, raw: Floats, output: int, weight: Integers, rows: Any, start: Integers, stop: Integers, out: Floats
    ) -> None:
        """Raise NotImplementedError, as leaves have Newton steps."""
        raise NotImplementedError(f"{type(self).__name__} does not measure leaves")

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Raise TypeError, as not every loss can start from given predictions."""
        raise TypeError(f"the loss {type(self).__name__} has no raw_predictions, so init cannot be an estimator; wants None or 'zero'")

    def negligible(self, initial: Floats) -> float:
        """Return zero."""
        return 0.0


class OneOutput(BaseLoss):
    """Mixin: a loss of one raw prediction, from which its gradients follow directly."""

    n_outputs: ClassVar[int] = 1
    constant_hessian: ClassVar[bool] = False

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the raw prediction."""
        np.copyto(opened, raw)


@dataclass(frozen=True)
class OfAllRows(BaseLoss):
    """Base class of losses whose derivatives depend on all rows together, weights included. They have no value for single rows.

    Parameters
    ----------
    derivatives : ndarray of float64 of shape (2, K, n_rows), or None
        Gradients and hessians of all rows in the current round.
    """

    derivatives: Floats | None = field(default=None, compare=False, repr=False, kw_only=True)

    constant_hessian: ClassVar[bool] = False
    takes_all_rows: ClassVar[bool] = True

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Return gradients and hessians of all rows, shape (2, K, n_rows); those of rows of weight 0 are ignored."""
        raise NotImplementedError

    def for_round(self, target: Target, raw: Floats, weight: Floats | None) -> Self:
        """Return the loss with the derivatives at these predictions."""
        return replace(self, derivatives=self.derive(target, raw, weight))

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Restrict the derivatives of a round to some rows."""
        assert self.derivatives is not None
        return replace(self, derivatives=np.ascontiguousarray(self.derivatives[:, :, rows]))

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the raw predictions."""
        np.copyto(opened, raw)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives of the round."""
        assert self.derivatives is not None
        np.copyto(g, self.derivatives[0, output])
        np.copyto(h, self.derivatives[1, output])

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write zero for finite raw predictions, and NaN for others."""
        np.copyto(out, np.where(np.isfinite(raw).all(axis=0), 0.0, np.nan))


@cache
def kernels() -> Any:
    """Return :mod:`dtrees.ensemble.objective.kernels`, imported on first use, as it imports Numba.

    An import statement takes as long as the gradients of a hundred rows, even for an imported module.
    """
    return import_module("dtrees.ensemble.objective.kernels")


@contextmanager
def naming_target(k: int, n: int = 2) -> Iterator[None]:
    """Have a ValueError name the target, if there are several (``n``)."""
    try:
        yield
    except ValueError as error:
        if n == 1:
            raise
        raise ValueError(f"{error} (in y[:, {k}])") from error


def outputs_of(losses: Sequence[LinkedLoss]) -> tuple[slice, ...]:
    """Return the raw predictions that belong to each target, given the losses of all targets."""
    ends = accumulate((loss.n_outputs for loss in losses), initial=0)
    return tuple(slice(*bounds) for bounds in pairwise(ends))


def _of_each_loss(name: str) -> Any:
    """Return the property of several losses that is the same for each of them."""
    return property(lambda several: getattr(several.losses[0], name))


@dataclass(frozen=True)
class SeveralTargets(BaseLoss):
    """The mean of the losses of multi-output targets. Derivatives and leaf values are those of each target's own loss.

    :class:`~dtrees.ensemble.objective.regression.SeveralQuantiles` combines several losses of one target.

    Targets have the shape (k, n). Raw predictions have a row for each output of each target: one, or one per class for more than two
    classes.

    Parameters
    ----------
    losses : tuple of LinkedLoss
        One for each target, all of the same class; losses that measure leaves or change with rounds must have one output. Within a round,
        the losses of that round.
    """

    losses: tuple[LinkedLoss, ...]

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:  # type: ignore[override]
        """The losses of the targets."""
        return self.losses

    @property
    def n_outputs(self) -> int:
        """The number of outputs of all targets."""
        return sum(loss.n_outputs for loss in self.losses)

    @property
    def outputs(self) -> tuple[slice, ...]:
        """The outputs of each target."""
        return outputs_of(self.losses)

    def _target(self, target: Target, k: int) -> Target:
        """Return the target of one loss."""
        return target[k]

    def _place(self, output: int) -> tuple[int, slice]:
        """Return the target to which an output belongs, and all outputs of that target."""
        return next((k, mine) for k, mine in enumerate(self.outputs) if output < mine.stop)

    #: The same as for each target's loss.
    constant_hessian, measures_leaves, cut_quantile = map(_of_each_loss, ("constant_hessian", "measures_leaves", "cut_quantile"))

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:  # type: ignore[override]
        """The quantiles of all targets' losses."""
        each = [loss.residual_quantiles for loss in self.losses]
        return None if each[0] is None else tuple(quantile for one in each for quantile in one or ())

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return the losses of the targets, each with its own clipping value."""
        losses = [loss.cut_at((size,)) for loss, size in zip(self.losses, sizes, strict=True)]
        return replace(self, losses=tuple(cast(LinkedLoss, loss) for loss in losses))

    def check(self, target: Target) -> None:
        """Raise a ValueError, which names the target, if its loss is not defined for it, or if there are no rows."""
        if target.shape[-1] == 0:
            raise ValueError("class_weight leaves no row with a weight above 0; wants classes of all targets above 0 that some row has")
        for k, loss in enumerate(self.losses):
            with naming_target(k):
                loss.check(self._target(target, k))

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return the best constants of all targets, shape (K,)."""
        best = []
        for k, loss in enumerate(self.losses):
            with naming_target(k):
                best.append(loss.initial(np.ascontiguousarray(self._target(target, k)), weight))
        return np.concatenate(best)

    def for_round(self, target: Target, raw: Floats, weight: Any) -> Self:
        """Return the losses of the targets for this round."""
        losses = [
            loss.for_round(self._target(target, k), raw[mine], weight)
            for k, (loss, mine) in enumerate(zip(self.losses, self.outputs, strict=True))
        ]
        return replace(self, losses=tuple(cast(LinkedLoss, loss) for loss in losses))

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the arrays that determine the gradients of each target."""
        for loss, mine in zip(self.losses, self.outputs, strict=True):
            loss.open_round(raw[mine], opened[mine])

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives of one target's loss."""
        k, mine = self._place(output)
        self.losses[k].gradients(self._target(target, k), opened[mine], output - mine.start, g, h)

    def limit_steps(self, values: Floats, learning_rate: float) -> None:
        """Shorten steps as the loss of each target does."""
        self.losses[0].limit_steps(values, learning_rate)

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write each row's mean loss."""
        out.fill(0.0)
        losses = np.empty_like(out)
        for k, (loss, mine) in enumerate(zip(self.losses, self.outputs, strict=True)):
            loss.pointwise(self._target(target, k), raw[mine], losses)
            out += losses
        out /= len(self.losses)

    def measure_leaves(
        self, target: Target, raw: Floats, output: int, weight: Integers, rows: Any, start: Integers, stop: Integers, out: Floats
    ) -> None:
        """Write the leaf values measured by one target's loss."""
        self.losses[output].measure_leaves(self._target(target, output), raw, 0, weight, rows, start, stop, out)

    def predictions(self, raw: Floats) -> Floats:
        """Return predictions of all targets side by side, values or probabilities, from raw predictions of shape (n, K)."""
        parts = zip(self.losses, self.outputs, strict=True)
        return np.column_stack([loss.predictions(np.ascontiguousarray(raw[:, mine])) for loss, mine in parts])

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions, shape (n, K), of values of that shape; class probabilities are handled by each target's loss."""
        return np.column_stack([loss.raw_predictions(np.ascontiguousarray(predicted[:, k])) for k, loss in enumerate(self.losses)])

    def negligible(self, initial: Floats) -> float:
        """Return the mean over targets."""
        return float(np.mean([loss.negligible(initial[mine]) for loss, mine in zip(self.losses, self.outputs, strict=True)]))
