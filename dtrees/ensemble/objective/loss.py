"""What a loss is: the parts that boosting needs of it.

Terms
-----
raw prediction
    the sum of the trees: the value itself for squared error, log odds for two classes, unnormalised log probabilities for more.
link
    how raw predictions become what is predicted: :meth:`LinkedLoss.predictions`.

Losses are small, immutable, picklable, and described by their ``repr``. A loss is added by a file beside this one and a line in
:mod:`dtrees.ensemble.objective.registry`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Loss

#: What a loss must have; see :class:`~dtrees.engine.plan.plans.Loss` and :class:`LinkedLoss`.
PARTS = ("n_outputs", "constant_hessian", "initial", "open_round", "gradients", "pointwise", "predictions")


class LinkedLoss(Loss, Protocol):
    """A loss that also says what raw predictions mean."""

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of shape (n,), or probabilities of shape (n, n_classes), from raw predictions of shape (n, K)."""


class OneOutput:
    """Mixin: a loss of one raw prediction, whose gradients follow from it directly."""

    def open_round(self, raw: NDArray[np.float64], opened: NDArray[np.float64]) -> None:
        """Write the raw prediction."""
        np.copyto(opened, raw)


@cache
def kernels() -> Any:
    """Return :mod:`~dtrees.ensemble.objective.loss_kernels`, which brings in the compiler, and so is imported on first use.

    An import statement takes as long as gradients of a hundred rows, even if it finds the module.
    """
    from dtrees.ensemble.objective import loss_kernels

    return loss_kernels
