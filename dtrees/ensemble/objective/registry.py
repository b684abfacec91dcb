"""The losses that boosting can descend, by the names that the parameter ``loss`` takes.

A loss is registered by a function of the number of classes, 0 for regression, that returns it. One that lacks a part is refused, by the
name of the part. Estimators, executors and tests find losses here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dtrees.ensemble.objective.log_loss import log_loss_for
from dtrees.ensemble.objective.loss import PARTS, LinkedLoss
from dtrees.ensemble.objective.squared_error import SquaredError

#: The names of losses for regression and for classification.
REGRESSION: set[str] = set()
CLASSIFICATION: set[str] = set()

_makers: dict[str, Callable[[int], LinkedLoss]] = {}


def register_loss(name: str, make: Callable[[int], LinkedLoss], *, classify: bool) -> None:
    """Add a loss. On a cluster each worker must do so, as it does by importing a package that does.

    Parameters
    ----------
    name : str
        As ``loss`` is to name it.
    make : callable
        Returns the loss for a number of classes, 0 for regression.
    classify : bool
        Whether it is for classifiers; otherwise for regressors.

    Raises
    ------
    TypeError
        If the loss lacks a part.
    ValueError
        If there is another loss of the name.
    """
    for n_classes in (2, 3) if classify else (0,):
        loss = make(n_classes)
        lacking = [part for part in PARTS if not _has(loss, part)]
        if lacking:
            raise TypeError(f"the loss {name!r} has no {' and no '.join(lacking)}; wants all of {', '.join(PARTS)}")
    if name in _makers:
        raise ValueError(f"there is a loss {name!r} already; wants another name")
    _makers[name] = make
    (CLASSIFICATION if classify else REGRESSION).add(name)


def _has(loss: LinkedLoss, part: str) -> bool:
    """Return whether a loss has a part of its own: what is only inherited from the protocol does nothing."""
    return hasattr(loss, part) and (part in vars(loss) or getattr(type(loss), part, None) is not getattr(LinkedLoss, part))


def unregister_loss(name: str) -> None:
    """Take a loss away again."""
    del _makers[name]
    REGRESSION.discard(name)
    CLASSIFICATION.discard(name)


def loss_for(name: str, n_classes: int) -> LinkedLoss:
    """Return a loss by its name, for a number of classes, 0 for regression.

    Examples
    --------
    >>> loss_for("log_loss", 2)
    BinaryLogLoss(n_outputs=1, constant_hessian=False)
    """
    return _makers[name](n_classes)


def registered_losses() -> Iterator[tuple[str, int, LinkedLoss]]:
    """Give each loss with its name and a number of classes that it is for: once for regression, for two and three classes otherwise."""
    for name, make in _makers.items():
        for n_classes in (2, 3) if name in CLASSIFICATION else (0,):
            yield name, n_classes, make(n_classes)


register_loss("squared_error", lambda n_classes: SquaredError(), classify=False)
register_loss("log_loss", log_loss_for, classify=True)
