"""What a loss is: the parts that boosting needs of it; and the loss of several targets, with a tree a round for each output of each.

Terms
-----
raw prediction
    the sum of the trees: the value itself for squared error, log odds for two classes, unnormalised log probabilities for more.
link
    how raw predictions become what is predicted: :meth:`LinkedLoss.predictions`.

Losses are small, immutable, picklable, and described by their ``repr``. A loss is added by a class in a module beside this one and a line
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

#: Arrays of losses: numbers, integers, and targets, which are numbers or codes of classes.
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Target = NDArray[Any]

#: Targets that differ by less, relatively, are taken for equal where trees without splits are to be warned of.
ROUNDING = 1e-9
#: What a loss must have of its own; see :class:`~dtrees.engine.plan.plans.Loss` and :class:`LinkedLoss`. :class:`BaseLoss` has the rest.
PARTS = ("n_outputs", "constant_hessian", "initial", "open_round", "gradients", "pointwise", "predictions")


class LinkedLoss(Loss, Protocol):
    """A loss that also says what raw predictions mean."""

    def predictions(self, raw: Floats) -> Floats:
        """Return values of shape (n,), or probabilities of shape (n, n_classes), from raw predictions of shape (n, K)."""

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions, shape (n, K), of predictions as :meth:`predictions` returns them."""

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:
        """Where there are several targets, the loss of each; otherwise none."""


class BaseLoss:
    """Mixin: what most losses have. Every target will do, every round has the same loss, and leaves hold Newton steps."""

    measures_leaves: ClassVar[bool] = False
    takes_all_rows: ClassVar[bool] = False

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:
        """None: leaves hold no quantiles."""
        return None

    @property
    def cut_quantile(self) -> float | None:
        """None: no residual is cut off."""
        return None

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return the loss itself."""
        return self

    def check(self, target: Target) -> None:
        """Accept all targets."""

    def for_round(self, target: Target, raw: Floats, weight: Any) -> Self:
        """Return the loss itself."""
        return self

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Return the loss itself."""
        return self

    def limit_steps(self, values: Floats, learning_rate: float) -> None:
        """Leave Newton steps as they are."""

    def measure_leaves(
        self, target: Target, raw: Floats, output: int, weight: Integers, rows: Any, start: Integers, stop: Integers, out: Floats
    ) -> None:
        """Raise: leaves hold Newton steps."""
        raise NotImplementedError(f"{type(self).__name__} does not measure leaves")

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Raise: not every loss can start from given predictions."""
        raise TypeError(f"the loss {type(self).__name__} has no raw_predictions, so init cannot be an estimator; wants None or 'zero'")

    def negligible(self, initial: Floats) -> float:
        """Return zero."""
        return 0.0

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:
        """None: there is one target."""
        return ()


class OneOutput(BaseLoss):
    """Mixin: a loss of one raw prediction, whose gradients follow from it directly."""

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the raw prediction."""
        np.copyto(opened, raw)


@dataclass(frozen=True)
class OfAllRows(BaseLoss):
    """Base of losses whose derivatives are made of all rows at once, weights included. Of a single row they have no value.

    Parameters
    ----------
    derivatives : ndarray of float64 of shape (2, K, n_rows), or None
        Gradients and hessians of all rows in the round that this is for.
    """

    derivatives: Floats | None = field(default=None, compare=False, repr=False, kw_only=True)

    constant_hessian: ClassVar[bool] = False
    takes_all_rows: ClassVar[bool] = True

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Return gradients and hessians of all rows, shape (2, K, n_rows); those of rows of weight 0 do not count."""
        raise NotImplementedError

    def for_round(self, target: Target, raw: Floats, weight: Floats | None) -> Self:
        """Return the loss with the derivatives at these predictions."""
        return replace(self, derivatives=self.derive(target, raw, weight))

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Return the derivatives of some rows in a round."""
        assert self.derivatives is not None
        return replace(self, derivatives=np.ascontiguousarray(self.derivatives[:, :, rows]))

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the raw predictions."""
        np.copyto(opened, raw)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives of all rows."""
        assert self.derivatives is not None
        np.copyto(g, self.derivatives[0, output])
        np.copyto(h, self.derivatives[1, output])

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write zero for what could be predicted, and NaN for what could not."""
        np.copyto(out, np.where(np.isfinite(raw).all(axis=0), 0.0, np.nan))


@cache
def kernels() -> Any:
    """Return :mod:`dtrees.ensemble.objective.kernels`, which brings in the compiler, and so is imported on first use.

    An import statement takes as long as gradients of a hundred rows, even if it finds the module.
    """
    return import_module("dtrees.ensemble.objective.kernels")


@contextmanager
def naming_target(k: int, n: int = 2) -> Iterator[None]:
    """Have a ValueError say which of ``n`` targets it is about, if there are several."""
    try:
        yield
    except ValueError as error:
        if n == 1:
            raise
        raise ValueError(f"{error} (in y[:, {k}])") from error


def outputs_of(losses: Sequence[LinkedLoss]) -> tuple[slice, ...]:
    """Return which of the raw predictions belong to each of several targets, given their losses."""
    ends = accumulate((loss.n_outputs for loss in losses), initial=0)
    return tuple(slice(*bounds) for bounds in pairwise(ends))


@dataclass(frozen=True)
class SeveralTargets(BaseLoss):
    """The mean over targets of their losses. Derivatives and leaves are those of each target's own loss, as if there were no others.

    :class:`~dtrees.ensemble.objective.regression.SeveralQuantiles` has several losses of one target.

    Targets have the shape (k, n). Raw predictions have a row for each output of each target: one, or one for each of more than two classes.

    Parameters
    ----------
    losses : tuple of LinkedLoss
        One for each target, all of a kind; those that measure leaves or change with the rounds have one output. In a round, those of the
        round.
    """

    losses: tuple[LinkedLoss, ...]

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:
        """The losses of the targets."""
        return self.losses

    @property
    def n_outputs(self) -> int:
        """Those of all targets."""
        return sum(loss.n_outputs for loss in self.losses)

    @property
    def outputs(self) -> tuple[slice, ...]:
        """The outputs of each target."""
        return outputs_of(self.losses)

    def _target(self, target: Target, k: int) -> Target:
        """Return what one loss is of."""
        return target[k]

    def _place(self, output: int) -> tuple[int, slice]:
        """Return the target that has an output, and all outputs that it has."""
        return next((k, mine) for k, mine in enumerate(self.outputs) if output < mine.stop)

    @property
    def constant_hessian(self) -> bool:
        """As of the loss of each target."""
        return self.losses[0].constant_hessian

    @property
    def measures_leaves(self) -> bool:  # type: ignore[override]
        """As of the loss of each target."""
        return self.losses[0].measures_leaves

    @property
    def residual_quantiles(self) -> tuple[float, ...] | None:
        """Those of the losses of all targets."""
        each = [loss.residual_quantiles for loss in self.losses]
        return None if each[0] is None else tuple(quantile for one in each for quantile in one or ())

    @property
    def cut_quantile(self) -> float | None:
        """As of the loss of each target."""
        return self.losses[0].cut_quantile

    def cut_at(self, sizes: tuple[float, ...]) -> Self:
        """Return the losses of the targets, each cut off at its own size."""
        losses = [loss.cut_at((size,)) for loss, size in zip(self.losses, sizes, strict=True)]
        return replace(self, losses=tuple(cast(LinkedLoss, loss) for loss in losses))

    def check(self, target: Target) -> None:
        """Raise a ValueError, which names the target, if the loss is not defined for it, or if there are no rows."""
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
        """Write what the gradients of each target follow from."""
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
        """Write what the loss of one target measures."""
        self.losses[output].measure_leaves(self._target(target, output), raw, 0, weight, rows, start, stop, out)

    def predictions(self, raw: Floats) -> Floats:
        """Return what is predicted of each target side by side, values or probabilities, from raw predictions of shape (n, K)."""
        parts = zip(self.losses, self.outputs, strict=True)
        return np.column_stack([loss.predictions(np.ascontiguousarray(raw[:, mine])) for loss, mine in parts])

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions, shape (n, K), of values of that shape; those of classes are for the loss of each target."""
        return np.column_stack([loss.raw_predictions(np.ascontiguousarray(predicted[:, k])) for k, loss in enumerate(self.losses)])

    def negligible(self, initial: Floats) -> float:
        """Return the mean over targets."""
        return float(np.mean([loss.negligible(initial[mine]) for loss, mine in zip(self.losses, self.outputs, strict=True)]))
