"""The registry of losses by their names for the parameter ``loss``, and custom objectives.

A loss is registered by a function that returns it for a number of classes, 0 for regression. A loss that lacks a part is refused, with the
name of the part. Estimators, executors and tests find losses only here.

An objective is a function that returns gradients and hessians of all rows. Raw predictions are then values for regression, log odds of the
second class for two classes, and log probabilities up to a constant for each row for more. They start from zero, as only the derivatives of
the function are known, and there is no loss value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.objective.classification import Exponential, log_loss_for
from dtrees.ensemble.objective.loss import PARTS, Floats, LinkedLoss, OfAllRows, SeveralTargets, Target, naming_target
from dtrees.ensemble.objective.ranking import LambdaRank
from dtrees.ensemble.objective.regression import (
    AbsoluteError,
    Gamma,
    Huber,
    Poisson,
    SeveralQuantiles,
    SquaredError,
    Tweedie,
    quantile_loss,
    share_of,
)
from dtrees.ensemble.objective.survival import Aft, Cox

#: The name of custom objectives in model files, which contain no functions.
NAME = "custom"

#: ``objective(y, raw, weight) -> gradient, hessian``.
Objective = Callable[[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None], tuple[Any, Any]]


@dataclass(frozen=True, repr=False)
class CustomObjective(OfAllRows):
    """A custom objective, given by its derivatives.

    Parameters
    ----------
    n_classes : int
        0 for regression.
    function : callable or None
        Without a function, the loss only supports prediction.
    n_targets : int
        More than one for regression only; the function then gets and returns arrays of shape (n, n_targets).
    """

    n_classes: int
    function: Objective | None = None
    n_targets: int = 1

    def __repr__(self) -> str:
        """Return an identity for checkpoints: the name and the code of the function, without other objects to which it refers."""
        code = getattr(self.function, "__code__", None)
        known = "" if code is None else hashlib.sha256(code.co_code + repr(code.co_names).encode()).hexdigest()[:16]
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        several = f", {self.n_targets} targets" if self.n_targets > 1 else ""
        return f"CustomObjective({self.n_classes}, {name} {known}{several})"

    @property
    def by_target(self) -> tuple[LinkedLoss, ...]:  # type: ignore[override]
        """For multi-output targets, the meaning of each target's raw predictions."""
        return (CustomObjective(0),) * self.n_targets if self.n_targets > 1 else ()

    @property
    def n_outputs(self) -> int:
        """One for two classes, otherwise one for each class; for regression, one for each target."""
        return self.n_classes if self.n_classes > 2 else self.n_targets

    def _link(self) -> Any:
        if self.n_targets > 1:
            return SeveralTargets((SquaredError(),) * self.n_targets)
        return log_loss_for(self.n_classes) if self.n_classes else SquaredError()

    def initial(self, target: Target, weight: Floats | None) -> Floats:
        """Return zeros, shape (K,)."""
        return np.zeros(self.n_outputs)

    def derive(self, target: Target, raw: Floats, weight: Floats | None) -> Floats:
        """Call the function."""
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
        return np.stack([values.reshape(raw.shape[1], -1).T for values in derivatives])

    def of_rows(self, rows: NDArray[np.int64]) -> Self:
        """Restrict the derivatives of a round to some rows, without the function."""
        return replace(super().of_rows(rows), function=None)

    def predictions(self, raw: Floats) -> Floats:
        """Return values of shape (n,), or probabilities of shape (n, n_classes), from raw predictions of shape (n, K)."""
        return self._link().predictions(raw)

    def raw_predictions(self, predicted: Floats) -> Floats:
        """Return the raw predictions that give these predictions."""
        return self._link().raw_predictions(predicted)


def _checked(name: str, values: Any, shape: tuple[int, ...]) -> Floats:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"the {name} that the objective passed as loss returned is not an array of numbers ({error})") from error
    if array.shape != shape:
        raise ValueError(f"the objective passed as loss returned a {name} of shape {array.shape}; wants that of raw, {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"the objective passed as loss returned a {name} with NaN or infinity; wants finite numbers")
    return array


#: The names of losses for regression, for classification and for rankings.
REGRESSION: set[str] = set()
CLASSIFICATION: set[str] = set()
RANKING: set[str] = set()


class _Entry(NamedTuple):
    """A registered loss: its constructor, kind of task, parameters and defaults, default metric, and the meaning of its columns of y."""

    make: Callable[..., LinkedLoss]
    n_classes: tuple[int, ...]
    parameters: Mapping[str, Any]
    metric: str
    columns: str


_entries: dict[str, _Entry] = {}


def register_loss(
    name: str,
    make: Callable[..., LinkedLoss],
    *,
    classify: bool,
    binary: bool = False,
    parameters: Mapping[str, Any] | None = None,
    metric: str = "loss",
    columns: str = "",
) -> None:
    """Register a loss. On a cluster, each worker must do so, for example by importing a package that does.

    Parameters
    ----------
    name : str
        The value of the parameter ``loss``.
    make : callable
        Returns the loss, given the number of classes, 0 for regression, and its parameters by name.
    classify : bool
        Whether it is for classifiers; otherwise for regressors.
    binary : bool, default=False
        Whether it is for two classes only.
    parameters : mapping, optional
        The estimator parameters of the loss, and their defaults.
    metric : str, default="loss"
        The default metric of evaluation sets. "loss" is the loss itself.
    columns : {"", "bounds", "queries"}
        The meaning of two columns of y that form one target, of shape (2, n): bounds of times, or relevances and queries, for rankings.

    Raises
    ------
    TypeError
        If the loss lacks a part.
    ValueError
        If the name is taken by another loss.
    """
    entry = _Entry(make, ((2,) if binary else (2, 3)) if classify else (0,), parameters or {}, metric, columns)
    for n_classes in entry.n_classes:
        loss = make(n_classes, **entry.parameters)
        lacking = [part for part in PARTS if not _has(loss, part)]
        if lacking:
            raise TypeError(f"the loss {name!r} has no {' and no '.join(lacking)}; wants all of {', '.join(PARTS)}")
    if name in _entries:
        raise ValueError(f"there is a loss {name!r} already; wants another name")
    _entries[name] = entry
    (CLASSIFICATION if classify else RANKING if columns == "queries" else REGRESSION).add(name)


def _has(loss: LinkedLoss, part: str) -> bool:
    """Return whether a loss defines a part itself: parts inherited from the protocol do nothing."""
    return hasattr(loss, part) and (part in vars(loss) or getattr(type(loss), part, None) is not getattr(LinkedLoss, part))


def name_of(loss: Any) -> str:
    """Return the name of a value of the parameter ``loss``: functions have a common name."""
    return NAME if callable(loss) else str(loss)


def loss_for(loss: Any, n_classes: int | list[int], parameters: Mapping[str, Any] | None = None, n_targets: int = 1) -> LinkedLoss:
    """Return a loss by name, or of an objective, for a number of classes, 0 for regression, and for parameters.

    The registry has the defaults of parameters. For multi-output targets, each target has the loss; ``n_classes`` is then a list in
    classification.

    Raises
    ------
    ValueError
        If the loss is for two classes, and there are more.

    Examples
    --------
    >>> loss_for("log_loss", 2)
    BinaryLogLoss()
    >>> loss_for("quantile", 0, {"alpha": 0.5})
    Quantile(alpha=0.5)
    """
    if isinstance(n_classes, list):
        losses = []
        for k, n in enumerate(n_classes):
            with naming_target(k):
                losses.append(loss_for(loss, n, parameters))
        return SeveralTargets(tuple(losses))
    if name_of(loss) == NAME:
        return CustomObjective(n_classes, loss if callable(loss) else None, n_targets=n_targets)
    entry = _entries[loss]
    if entry.n_classes == (2,) and n_classes > 2:
        raise ValueError(f"loss={loss!r} is for two classes, but y has {n_classes}; use loss='log_loss'")
    found = entry.make(n_classes, **{**entry.parameters, **(parameters or {})})
    if n_targets > 1 and isinstance(found, SeveralQuantiles):
        raise ValueError(f"alpha has {found.n_outputs} quantiles, and y {n_targets} columns; wants one quantile, or one target")
    return found if n_targets == 1 else SeveralTargets((found,) * n_targets)


def columns_of(loss: Any) -> str:
    """Return the meaning of two columns of y that form one target of a loss, "" if each column is a target."""
    return "" if name_of(loss) == NAME else _entries[loss].columns


def parameters_of(name: str) -> Mapping[str, Any]:
    """Return the parameters of a loss, with their defaults."""
    return {} if name == NAME else _entries[name].parameters


def all_parameters() -> dict[str, None]:
    """Return the names of the parameters of losses, as keys."""
    return dict.fromkeys(name for entry in _entries.values() for name in entry.parameters)


def losses_with(parameter: str) -> dict[str, Any]:
    """Return the losses with a parameter, by name, and its defaults."""
    return {name: entry.parameters[parameter] for name, entry in _entries.items() if parameter in entry.parameters}


def default_metric(name: str, *, classify: bool) -> str:
    """Return the default metric of evaluation sets."""
    if name == NAME:
        return "logloss" if classify else "rmse"
    return _entries[name].metric


def registered_losses() -> Iterator[tuple[str, int, LinkedLoss]]:
    """Yield each loss with its name and a number of classes: 0 for regression, otherwise two and, if supported, three."""
    for name, entry in _entries.items():
        for n_classes in entry.n_classes:
            yield name, n_classes, entry.make(n_classes, **entry.parameters)


def _register(name: str, kind: Any, **how: Any) -> None:
    """Register a loss for regression whose fields are its parameters."""
    parameters = {field.name: field.default for field in fields(kind) if not field.kw_only}
    register_loss(name, lambda n_classes, **given: kind(**given), classify=False, parameters=parameters, **how)


_register("squared_error", SquaredError, metric="rmse")
_register("absolute_error", AbsoluteError, metric="mae")
register_loss("huber", lambda n_classes, alpha: Huber(share_of(alpha)), classify=False, parameters={"alpha": 0.9}, metric="mae")
register_loss("quantile", lambda n_classes, alpha: quantile_loss(alpha), classify=False, parameters={"alpha": 0.9})
_register("poisson", Poisson)
_register("gamma", Gamma)
_register("tweedie", Tweedie)
_register("cox", Cox, metric="concordance", columns="bounds")
_register("aft", Aft, columns="bounds")
_register("lambdarank", LambdaRank, metric="ndcg", columns="queries")
register_loss("log_loss", log_loss_for, classify=True, metric="logloss")
register_loss("exponential", lambda n_classes: Exponential(), classify=True, binary=True)
