"""What losses have in common whose leaves hold exact quantiles of residuals: where gradients are signs, Newton steps say nothing.

Splits are found by the gradients, each with a hessian of 1, as those of squared error are (Friedman 2001, algorithms 3 and 4).
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import OneOutput


@cache
def residual_kernels() -> Any:
    """Return :mod:`~dtrees.ensemble.objective.arithmetic.residual_kernels`, imported on first use."""
    from dtrees.ensemble.objective.arithmetic import residual_kernels as kernels

    return kernels


class ByOrder(OneOutput):
    """Mixin: the raw prediction is the prediction, hessians are taken to be 1, and leaves are measured."""

    n_outputs: int = 1
    constant_hessian: bool = True
    measures_leaves: ClassVar[bool] = True

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return raw[:, 0]

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return a billionth of the prediction."""
        return 1e-9 * float(np.abs(initial).max())


def target_quantile(target: NDArray[np.float64], weight: NDArray[np.float64] | None, q: float) -> NDArray[np.float64]:
    """Return the weighted q-quantile of a target, shape (1,)."""
    return np.array([residual_kernels().target_quantile(target, weight, q)])
