"""Objectives of the user's own: a function that returns gradients and hessians of all rows.

Raw predictions are values for regression, log odds of the second class for two classes, and log probabilities up to a constant a row for
more. They start from zero, as nothing is known of the function but its derivatives; nor has it a value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.classification import log_loss_for
from dtrees.ensemble.objective.loss import BaseLoss, Floats, LinkedLoss, Target
from dtrees.ensemble.objective.regression import SquaredError
from dtrees.ensemble.objective.several_targets import SeveralTargets

#: What ``loss`` is called in model files, which hold no functions.
NAME = "custom"

#: ``objective(y, raw, weight) -> gradient, hessian``.
Objective = Callable[[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None], tuple[Any, Any]]


@dataclass(frozen=True, repr=False)
class CustomObjective(BaseLoss):
    """An objective by its derivatives.

    Parameters
    ----------
    n_classes : int
        0 for regression.
    function : callable or None
        Without it, only predictions can be made.
    derivatives : ndarray of float64 of shape (2, K, n_rows), or None
        Gradients and hessians of all rows, weights included, in the round that this is for.
    n_targets : int
        More than one for regression only; the function is given, and returns, arrays of shape (n, n_targets) then.
    """

    n_classes: int
    function: Objective | None = None
    derivatives: Floats | None = field(default=None, compare=False)
    n_targets: int = 1

    constant_hessian: ClassVar[bool] = False
    takes_all_rows: ClassVar[bool] = True

    def __repr__(self) -> str:
        """Return what identifies it for checkpoints: the name and the code of the function, whatever else this refers to."""
        code = getattr(self.function, "__code__", None)
        known = "" if code is None else hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()[:16]
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        several = f", {self.n_targets} targets" if self.n_targets > 1 else ""
        return f"CustomObjective({self.n_classes}, {name} {known}{several})"

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:
        """Where there are several targets, what each one's raw predictions mean."""
        return (CustomObjective(0),) * self.n_targets if self.n_targets > 1 else ()

    @property
    def n_outputs(self) -> int:
        """One for two classes, else one for each class; for regression, one for each target."""
        return self.n_classes if self.n_classes > 2 else self.n_targets

    def _link(self) -> Any:
        if self.n_targets > 1:
            return SeveralTargets((SquaredError(),) * self.n_targets)
        return log_loss_for(self.n_classes) if self.n_classes else SquaredError()

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return zeros, shape (K,)."""
        return np.zeros(self.n_outputs)

    def for_round(self, target: Target, raw: Floats, weight: Floats | None) -> Self:
        """Return the objective with the derivatives at these predictions."""
        assert self.function is not None
        shape = raw.shape[1:] if self.n_outputs == 1 else raw.shape[::-1]
        found = self.function(target.T.copy(), raw.T.reshape(shape).copy(), None if weight is None else weight.copy())
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise TypeError(f"the objective passed as loss returned {type(found).__name__}; wants a tuple (gradient, hessian)")
        derivatives = [_checked(name, values, shape) for name, values in zip(("gradient", "hessian"), found, strict=True)]
        if derivatives[1].min(initial=0.0) < 0.0:
            raise ValueError(
                f"the objective passed as loss returned the hessian {derivatives[1].min()}; wants numbers of at least 0 (of a loss that is "
                "not convex, a bound from above, such as the absolute value)"
            )
        return replace(self, derivatives=np.stack([values.reshape(raw.shape[1], -1).T for values in derivatives]))

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Return the derivatives of some rows in a round, without the function."""
        assert self.derivatives is not None
        return replace(self, function=None, derivatives=np.ascontiguousarray(self.derivatives[:, :, rows]))

    def open_round(self, raw: Floats, opened: Floats) -> None:
        """Write the raw predictions."""
        np.copyto(opened, raw)

    def gradients(self, target: Target, opened: Floats, output: int, g: Floats, h: Floats) -> None:
        """Write the derivatives of all rows."""
        assert self.derivatives is not None
        np.copyto(g, self.derivatives[0, output])
        np.copyto(h, self.derivatives[1, output])

    def pointwise(self, target: Target, raw: Floats, out: Floats) -> None:
        """Write zero for what could be predicted, and NaN for what could not: the objective has no value."""
        np.copyto(out, np.where(np.isfinite(raw).all(axis=0), 0.0, np.nan))

    def predictions(self, raw: Floats) -> Floats:
        """Return values of shape (n,), or probabilities of shape (n, n_classes), from raw predictions of shape (n, K)."""
        predicted: Floats = self._link().predictions(raw)
        return predicted

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions that give these predictions."""
        raw: Floats = self._link().raw_predictions(predicted)
        return raw


def _checked(name: str, values: Any, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the {name} that the objective passed as loss returned is no array of numbers ({error})") from error
    if array.shape != shape:
        raise ValueError(f"the objective passed as loss returned a {name} of shape {array.shape}; wants that of raw, {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"the objective passed as loss returned a {name} with NaN or infinity; wants finite numbers")
    return array
