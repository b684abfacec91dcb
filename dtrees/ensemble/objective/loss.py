"""What a loss is: the parts that boosting needs of it.

Terms
-----
raw prediction
    the sum of the trees: the value itself for squared error, log odds for two classes, unnormalised log probabilities for more.
link
    how raw predictions become what is predicted: :meth:`LinkedLoss.predictions`.

Losses are small, immutable, picklable, and described by their ``repr``. A loss is added by a class beside this one and a line in
:mod:`dtrees.ensemble.objective.registry`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self

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
    def residual_quantile(self) -> float | None:
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
        """Raise: not every loss can be told where to start from."""
        raise TypeError(
            f"the loss {type(self).__name__} has no raw_predictions, so that init cannot be an estimator; wants init=None or 'zero'"
        )

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


@cache
def kernels(module: str) -> Any:
    """Return a module of :mod:`dtrees.ensemble.objective.arithmetic`, which brings in the compiler, and so is imported on first use.

    An import statement takes as long as gradients of a hundred rows, even if it finds the module.
    """
    return import_module(f"dtrees.ensemble.objective.arithmetic.{module}")
