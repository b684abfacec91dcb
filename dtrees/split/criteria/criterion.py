"""What a criterion is, and the registry of all.

A criterion is one object in one file. It says which statistic a row carries, and how values, impurities and gains of nodes follow from
sums. What kernels compute by it are the parts of its kernel type (:mod:`dtrees.split.criteria.parts`). To add one, write its file and name
it in the registry (:mod:`dtrees.split.criteria`), or call :func:`register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray


class Criterion(ABC):
    """What a split is to improve.

    Attributes
    ----------
    name : str
        As estimators take it.
    task : {"regression", "classification", "boosting"}
        Whose criterion it is.
    row_statistic : {"target", "amount", "class", "rank"}
        What ``a`` of a row is: its centred target times its weight (or its gradient), its target as it is times its weight, its class, or
        the number of its target among all in ascending order. Of two classes, the weight of the second is summed as a target is.
    measured : {"", "leaves", "nodes"}
        What is measured on the targets of rows, rather than computed from sums: nothing, the mean of each leaf, or the median, or another
        quantile, of each node.
    gain_is_decrease : bool
        Whether the gain is the decrease of the impurity of what is measured on leaves, for all rows together. If not, impurities of inner
        nodes are pooled from their children's.
    by_sums : bool
        Whether sums tell the score of a split. If not, its kernel type has a search of its own, and nodes are not searched by zones.
    """

    name: ClassVar[str]
    task: ClassVar[Literal["regression", "classification", "boosting"]]
    row_statistic: ClassVar[Literal["target", "amount", "class", "rank"]]
    measured: ClassVar[Literal["", "leaves", "nodes"]]
    gain_is_decrease: ClassVar[bool] = True
    by_sums: ClassVar[bool] = True

    @abstractmethod
    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value: for this number of classes (0 for none), and an L2 penalty in units of weights."""

    def for_targets(self) -> Any:
        """Return the kernel value whose parts are added up over several targets (:mod:`dtrees.split.criteria.several`).

        None, if it is not overridden: the criterion is for one target.
        """
        return None

    @abstractmethod
    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the power of two that gains are multiplied by, given those of ``a`` and of the weights."""

    def chance(self, n_rows: int, sums: NDArray[np.int64], squares: float) -> float:
        """Return what splits of rows that differ by chance alone gain by each nat of choosing one, in the units of scores.

        The best of many splits gains about as many times the variance of ``a`` over its weight as the number of splits has nats, its
        logarithm. ``sums`` are those of all rows, ``squares`` is the sum of ``a`` squared. Where the variance of all rows says little of
        that of a node, nothing is known: 0, if it is not overridden.
        """
        return 0.0

    def at(self, alpha: float) -> Self:
        """Return the criterion of a quantile: this one, if it has none to choose."""
        return self

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError if the criterion is not defined for these targets (for regression). It is for all, if not overridden."""
        return

    def impurity(self, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the impurity of nodes with these fractions of classes, shape (n_nodes, n_classes); for classification only."""
        raise TypeError(f"the criterion {self.name!r} has no impurity of classes")


_REGISTRY: dict[str, Criterion] = {}


def register(criterion: Criterion) -> Criterion:
    """Add a criterion to the registry; one of the same name is replaced.

    Raises
    ------
    TypeError
        If it lacks an attribute or a method.
    """
    for part in ("name", "task", "row_statistic", "measured"):
        if not hasattr(criterion, part):
            raise TypeError(f"a criterion needs the attribute {part!r}; {type(criterion).__name__} has none")
    if criterion.task == "classification" and type(criterion).impurity is Criterion.impurity:
        raise TypeError(f"a criterion for classification needs a method impurity; {type(criterion).__name__} has none")
    _REGISTRY[criterion.name] = criterion
    return criterion


def criterion_named(name: str) -> Criterion:
    """Return a registered criterion.

    Raises
    ------
    ValueError
        If there is none of this name.
    """
    if name not in _REGISTRY:
        raise ValueError(f"criterion={name!r} is not known; registered are {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name]


def criteria_for(task: str) -> dict[str, Criterion]:
    """Return the registered criteria of a task by name."""
    return {name: criterion for name, criterion in _REGISTRY.items() if criterion.task == task}
