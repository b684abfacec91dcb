"""The losses that boosting can descend, by the names that the parameter ``loss`` takes.

A loss is registered by a function of the number of classes, 0 for regression, that returns it. One that lacks a part is refused, by the
name of the part. Estimators, executors and tests find losses here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dtrees.ensemble.objective import custom
from dtrees.ensemble.objective.classification import Exponential, log_loss_for
from dtrees.ensemble.objective.deviances import Gamma, Poisson, Tweedie
from dtrees.ensemble.objective.loss import PARTS, LinkedLoss
from dtrees.ensemble.objective.regression import AbsoluteError, Huber, Quantile, SquaredError
from dtrees.ensemble.objective.several_targets import SeveralTargets, naming_target

#: The names of losses for regression and for classification.
REGRESSION: set[str] = set()
CLASSIFICATION: set[str] = set()


class _Entry(NamedTuple):
    """How a loss is made, for how many classes, by which parameters with which defaults, and its metric where none is asked for."""

    make: Callable[..., LinkedLoss]
    n_classes: tuple[int, ...]
    parameters: Mapping[str, Any]
    metric: str


_entries: dict[str, _Entry] = {}


def register_loss(
    name: str,
    make: Callable[..., LinkedLoss],
    *,
    classify: bool,
    binary: bool = False,
    parameters: Mapping[str, Any] | None = None,
    metric: str = "loss",
) -> None:
    """Add a loss. On a cluster each worker must do so, as it does by importing a package that does.

    Parameters
    ----------
    name : str
        As ``loss`` is to name it.
    make : callable
        Returns the loss for a number of classes, 0 for regression, and for its parameters by name.
    classify : bool
        Whether it is for classifiers; otherwise for regressors.
    binary : bool, default=False
        Whether it is for two classes only.
    parameters : mapping, optional
        Which parameters of the estimator the loss takes, and their defaults.
    metric : str, default="loss"
        What evaluation sets are evaluated by, unless something else is asked for. "loss" is the loss itself.

    Raises
    ------
    TypeError
        If the loss lacks a part.
    ValueError
        If there is another loss of the name.
    """
    entry = _Entry(make, ((2,) if binary else (2, 3)) if classify else (0,), parameters or {}, metric)
    for n_classes in entry.n_classes:
        loss = make(n_classes, **entry.parameters)
        lacking = [part for part in PARTS if not _has(loss, part)]
        if lacking:
            raise TypeError(f"the loss {name!r} has no {' and no '.join(lacking)}; wants all of {', '.join(PARTS)}")
    if name in _entries:
        raise ValueError(f"there is a loss {name!r} already; wants another name")
    _entries[name] = entry
    (CLASSIFICATION if classify else REGRESSION).add(name)


def _has(loss: LinkedLoss, part: str) -> bool:
    """Return whether a loss has a part of its own: what is only inherited from the protocol does nothing."""
    return hasattr(loss, part) and (part in vars(loss) or getattr(type(loss), part, None) is not getattr(LinkedLoss, part))


def unregister_loss(name: str) -> None:
    """Take a loss away again."""
    del _entries[name]
    REGRESSION.discard(name)
    CLASSIFICATION.discard(name)


def name_of(loss: Any) -> str:
    """Return the name of a loss as the parameter ``loss`` gives it: a function has the one that stands for all of them."""
    return custom.NAME if callable(loss) else str(loss)


def loss_for(name: str, n_classes: int | list[int], parameters: Mapping[str, Any] | None = None, n_targets: int = 1) -> LinkedLoss:
    """Return a loss by its name, for a number of classes, 0 for regression, and for parameters; defaults are those of the registry.

    Of several targets, each has the loss; of classification, ``n_classes`` is a list then.

    Raises
    ------
    ValueError
        If the loss is for two classes, and there are more.

    Examples
    --------
    >>> loss_for("log_loss", 2)
    BinaryLogLoss(n_outputs=1, constant_hessian=False)
    >>> loss_for("quantile", 0, {"alpha": 0.5})
    Quantile(alpha=0.5)
    """
    if isinstance(n_classes, list):
        losses = []
        for k, n in enumerate(n_classes):
            with naming_target(k):
                losses.append(loss_for(name, n, parameters))
        return SeveralTargets(tuple(losses))
    if name == custom.NAME:
        return custom.CustomObjective(n_classes, n_targets=n_targets)
    entry = _entries[name]
    if entry.n_classes == (2,) and n_classes > 2:
        raise ValueError(f"loss={name!r} is for two classes, but y has {n_classes}; use loss='log_loss'")
    loss = entry.make(n_classes, **{**entry.parameters, **(parameters or {})})
    return loss if n_targets == 1 else SeveralTargets((loss,) * n_targets)


def parameters_of(name: str) -> Mapping[str, Any]:
    """Return the parameters that a loss takes, with their defaults."""
    return {} if name == custom.NAME else _entries[name].parameters


def losses_with(parameter: str) -> dict[str, Any]:
    """Return the losses that take a parameter, by name, with its default."""
    return {name: entry.parameters[parameter] for name, entry in _entries.items() if parameter in entry.parameters}


def default_metric(name: str, *, classify: bool) -> str:
    """Return what evaluation sets are evaluated by where nothing else is asked for."""
    if name == custom.NAME:
        return "logloss" if classify else "rmse"
    return _entries[name].metric


def registered_losses() -> Iterator[tuple[str, int, LinkedLoss]]:
    """Give each loss with its name and a number of classes that it is for: once for regression, for two and three classes otherwise."""
    for name, entry in _entries.items():
        for n_classes in entry.n_classes:
            yield name, n_classes, entry.make(n_classes, **entry.parameters)


register_loss("squared_error", lambda n_classes: SquaredError(), classify=False, metric="rmse")
register_loss("absolute_error", lambda n_classes: AbsoluteError(), classify=False, metric="mae")
register_loss("huber", lambda n_classes, alpha: Huber(alpha), classify=False, parameters={"alpha": 0.9}, metric="mae")
register_loss("quantile", lambda n_classes, alpha: Quantile(alpha), classify=False, parameters={"alpha": 0.9})
register_loss("poisson", lambda n_classes: Poisson(), classify=False)
register_loss("gamma", lambda n_classes: Gamma(), classify=False)
register_loss(
    "tweedie",
    lambda n_classes, tweedie_variance_power: Tweedie(tweedie_variance_power),
    classify=False,
    parameters={"tweedie_variance_power": 1.5},
)
register_loss("log_loss", log_loss_for, classify=True, metric="logloss")
register_loss("exponential", lambda n_classes: Exponential(), classify=True, binary=True)
