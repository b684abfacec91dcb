"""What losses have in common whose leaves hold exact quantiles of residuals: where gradients are signs, Newton steps say nothing.

Splits are found by the gradients, each with a hessian of 1, as those of squared error are (Friedman 2001, algorithms 3 and 4).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.loss import ROUNDING, OneOutput


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

    @property
    def quantile(self) -> float:
        """Which quantile of the target is the best constant."""
        return 0.5

    @property
    def residual_quantile(self) -> float | None:
        """As of the target."""
        return self.quantile

    def initial(self, target: NDArray[np.float64], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the weighted quantile of the target, shape (1,)."""
        return np.array([residual_kernels().target_quantile(target, weight, self.quantile)])

    def leaf_measure(self) -> tuple[Callable[..., None], float]:
        """Return the kernel that measures leaves, and its parameter."""
        return residual_kernels().leaf_quantiles, self.quantile

    def measure_leaves(
        self,
        target: NDArray[np.float64],
        raw: NDArray[np.float64],
        output: int,
        weight: NDArray[np.int64],
        rows: NDArray[np.uint32],
        start: NDArray[np.int64],
        stop: NDArray[np.int64],
        out: NDArray[np.float64],
    ) -> None:
        """Write what is measured of the residuals of each leaf."""
        kernel, parameter = self.leaf_measure()
        kernel(target, raw, weight, rows, start, stop, parameter, out)

    def predictions(self, raw: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values predicted, shape (n,), from raw predictions of shape (n, 1)."""
        return raw[:, 0]

    def raw_predictions(self, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values, shape (n, 1)."""
        return predicted[:, np.newaxis]

    def negligible(self, initial: NDArray[np.float64]) -> float:
        """Return a billionth of the prediction."""
        return ROUNDING * float(np.abs(initial).max())
