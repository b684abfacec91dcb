"""The interface of criteria, and their registry.

A criterion is one object in one file. It defines the statistic that a row carries, and how values, impurities and gains of nodes follow
from sums. The functions that kernels call are the parts of its kernel type (:mod:`dtrees.split.criteria.parts`). To add a criterion,
write its file and list it in the registry (:mod:`dtrees.split.criteria`), or call :func:`register`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray


class Criterion(ABC):
    """A measure that splits improve.

    Attributes
    ----------
    name : str
        Its name as a parameter of estimators.
    task : {"regression", "classification", "boosting"}
        The estimators that use it.
    row_statistic : {"target", "amount", "class", "rank"}
        The meaning of ``a`` of a row: its centred target times its weight (or its gradient), its uncentred target times its weight, its
        class, or the rank of its target among all. With two classes, the weight of the second is summed as a target is.
    measured : {"", "leaves", "nodes"}
        What is measured on the targets of rows instead of computed from sums: nothing, the mean of each leaf, or the median or another
        quantile of each node.
    gain_is_decrease : bool
        Whether the gain is the decrease of the impurity measured on leaves, summed over rows. If not, impurities of inner nodes are
        pooled from their children's.
    by_sums : bool
        Whether the score of a split can be computed from sums. If not, its kernel type has its own search, and nodes are not searched by
        zones.
    """

    name: ClassVar[str]
    task: ClassVar[Literal["regression", "classification", "boosting"]]
    row_statistic: ClassVar[Literal["target", "amount", "class", "rank"]]
    measured: ClassVar[Literal["", "leaves", "nodes"]]
    gain_is_decrease: ClassVar[bool] = True
    by_sums: ClassVar[bool] = True

    @abstractmethod
    def for_kernels(self, n_classes: int, penalty: float) -> Any:
        """Return the kernel value for a number of classes (0 for none) and an L2 penalty in units of weights."""

    def for_targets(self) -> Any:
        """Return the kernel value whose parts are added over several targets (:mod:`dtrees.split.criteria.several`).

        The default is None: the criterion supports one target only.
        """
        return None

    @abstractmethod
    def gain_exponent(self, exponents: tuple[int, int]) -> int:
        """Return the power of two that gains are multiplied by, given the exponents of ``a`` and of the weights."""

    def chance(self, n_rows: int, sums: NDArray[np.int64], squares: float) -> float:
        """Return the expected gain of the best of many splits by chance, for each nat of choice, in the units of scores.

        If rows differ by chance alone, the best of many splits gains about the variance of ``a`` over its weight, times the logarithm of
        the number of splits (its nats). ``sums`` are those of all rows, ``squares`` is the sum of ``a`` squared. The default is 0, for
        criteria where the variance of all rows says little about the variance in a node.
        """
        return 0.0

    def at(self, alpha: float) -> Self:
        """Return the criterion for a quantile; the default is the criterion itself, which has no quantile."""
        return self

    def check(self, target: NDArray[np.float64]) -> None:
        """Raise a ValueError if the criterion is not defined for these regression targets. The default accepts all."""
        return

    def impurity(self, fractions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the impurity of nodes from their fractions of classes, shape (n_nodes, n_classes); for classification only."""
        raise TypeError(f"the criterion {self.name!r} has no impurity of classes")


_REGISTRY: dict[str, Criterion] = {}


def register(criterion: Criterion) -> Criterion:
    """Add a criterion to the registry; it replaces one of the same name.

    Raises
    ------
    TypeError
        If it lacks a required attribute or method.
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
        If no criterion has this name.
    """
    if name not in _REGISTRY:
        raise ValueError(f"criterion={name!r} is not known; registered are {', '.join(sorted(_REGISTRY))}")
    return _REGISTRY[name]


def criteria_for(task: str) -> dict[str, Criterion]:
    """Return the registered criteria of a task, by name."""
    return {name: criterion for name, criterion in _REGISTRY.items() if criterion.task == task}
