"""Describe any model of dtrees for exporters, as a sum of trees and a link.

    raw = initial + sum of trees          shape (n, n_outputs)
    prediction = link(raw / divisor)

Terms
-----
group
    trees that add to the same outputs. Forests have one group, whose leaves hold a number for each output. Boosting has a group for each
    output, whose leaves hold one number.
link
    ``identity``, ``exponential``, ``logistic`` (of ``slope * raw``; the probability of the second class), ``softmax``, or ``shares``:
    raw predictions are the probabilities of classes.
matrix
    the table that trees read: numbers unchanged, categories as their numbers, NaN for missing values (:func:`to_numbers`).

dtrees compares a value x with a threshold t in float64. A tool that casts to float32 compares f(x) with t, where f rounds to the nearest
float32. Both send a float32 the same way. Other values may be rounded across a threshold: for the values of a given table, the threshold
is moved between float32(a) and float32(b), where a and b are its values on both sides. If these are the same float32, no threshold
separates them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.base_kinds import TreeClassifier
from dtrees.ensemble.estimators.isolation_forest import IsolationForest
from dtrees.ensemble.estimators.starting import BY_ESTIMATOR, BY_MARGIN
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.objective.classification import BinaryLogLoss, Exponential, MultinomialLogLoss
from dtrees.ensemble.objective.registry import CustomObjective
from dtrees.ensemble.objective.regression import Identity, LogLink, SeveralQuantiles
from dtrees.split.numbers.ordered import rounded_down
from dtrees.tree.tree import Tree

IDENTITY, EXPONENTIAL, LOGISTIC, SOFTMAX, SHARES = "identity", "exponential", "logistic", "softmax", "shares"


@dataclass(frozen=True)
class PlainModel:
    """A fitted model as trees and numbers.

    Attributes
    ----------
    estimator : TreeEstimator
        The source of the model; for a bag, its first booster.
    groups : tuple of tuple of Tree
    initial : ndarray of float64 of shape (n_outputs,)
    divisor : int
    link : str
    slope : float
        Slope of the logistic link.
    loss : str or None
        The loss of boosting.
    classes : ndarray or None
        The classes of a classifier.
    """

    estimator: TreeEstimator
    groups: tuple[tuple[Tree, ...], ...]
    initial: NDArray[np.float64]
    divisor: int
    link: str
    slope: float
    loss: str | None
    classes: NDArray[Any] | None

    @property
    def n_outputs(self) -> int:
        """Number of raw predictions for each row."""
        return int(self.initial.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.estimator.n_features_in_

    @property
    def schema(self) -> Schema:
        """The schema of the columns."""
        return self.estimator._schema

    @property
    def by_groups(self) -> bool:
        """Whether each output has trees of its own."""
        return self.loss is not None

    @property
    def names(self) -> list[str] | None:
        """The names of the columns, None if the model was fitted to an array."""
        names = getattr(self.estimator, "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    def trees(self) -> list[tuple[int, Tree]]:
        """Return all trees, each with the output that it adds to (0 if leaves hold all outputs): round by round."""
        return [(output, tree) for round_ in zip(*self.groups, strict=True) for output, tree in enumerate(round_)]

    def column(self, number: int) -> str:
        """Return the name of a column in messages."""
        return f"column {number}" if self.names is None else f"column {self.names[number]!r}"


def describe(model: Any, target: str, *, margins: bool = False) -> PlainModel:
    """Return the description of a model for an exporter.

    Parameters
    ----------
    model : estimator
    target : str
        The target format, for messages.
    margins : bool
        Whether the target supports initial scores of rows, which a model that was fitted with ``base_margin`` needs.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    ValueError
        If exporters cannot represent it: its initial value requires Python, the link of its loss is unknown, it is a classifier of
        several targets, a bag whose mean is not a mean of sums of trees, or an isolation forest.
    """
    if isinstance(model, Bagging):
        return _bag(describe_members(model, target), model, target)
    if not isinstance(model, TreeEstimator):
        raise TypeError(f"model is of type {type(model).__name__}; wants a fitted estimator of dtrees (of a pipeline, its last step)")
    if isinstance(model, IsolationForest):
        raise ValueError(
            f"model is an IsolationForest, whose scores do not add up over trees: {target} cannot hold it; use dtrees.interop.dtrees_numpy"
        )
    model._check_fitted()
    groups = model._trees.groups
    classes = model.classes_ if isinstance(model, TreeClassifier) else None
    if classes is not None and model.n_outputs_ > 1:
        raise ValueError(
            f"this {type(model).__name__} has {model.n_outputs_} targets with classes of their own, and {target} is given several "
            "targets of regressors only; fit a classifier for each target"
        )
    if not isinstance(model, Boosting):
        n_outputs = groups[0][0].value.shape[1]
        link = IDENTITY if classes is None else SHARES
        return PlainModel(model, groups, np.zeros(n_outputs), len(groups[0]), link, 1.0, None, classes)
    name = type(model).__name__
    if model._starts == BY_ESTIMATOR:
        raise ValueError(
            f"this {name} starts from an estimator (init={type(model._init_estimator).__name__}), which {target} cannot carry; fit it with "
            "init=None, or export its trees fitted with base_margin by dtrees.to_xgboost, which takes such scores"
        )
    if model._starts == BY_MARGIN and not margins:
        raise ValueError(
            f"this {name} was fitted with base_margin, and {target} has no place for the scores of rows; dtrees.to_xgboost has, or fit it "
            "without"
        )
    initial = model._trees.initial
    assert initial is not None
    link, slope = _link_of(model._fitted_loss, model._loss_name, target)
    return PlainModel(model, groups, initial, 1, link, slope, model._loss_name, classes)


def describe_members(model: Any, target: str) -> list[PlainModel]:
    """Return the descriptions of a bag's boosters, whose mean is the prediction, or of the model itself."""
    return [describe(member, target) for member in (_boosters(model) if isinstance(model, Bagging) else [model])]


def _boosters(bag: Bagging) -> list[Any]:
    check_is_fitted(bag)
    return bag.estimators_


def _bag(boosters: list[PlainModel], bag: Bagging, target: str) -> PlainModel:
    """Return a bag of boosters as one model: leaf values are divided by the number of boosters."""
    first, n = boosters[0], len(boosters)
    if first.link != IDENTITY:
        raise ValueError(
            f"this {type(bag).__name__} predicts the mean of what its boosters predict by loss={first.loss!r}, not a sum of trees, "
            f"and {target} cannot carry it; carry its boosters (estimators_) one by one, and take the mean, or use dtrees.to_sklearn"
        )
    groups = tuple(
        tuple(replace(tree, value=tree.value / n) for booster in boosters for tree in booster.groups[output])
        for output in range(first.n_outputs)
    )
    return replace(first, groups=groups, initial=np.mean([booster.initial for booster in boosters], axis=0))


def _link_of(loss: Any, name: str, target: str) -> tuple[str, float]:
    """Return the link of a loss, and its slope."""
    if isinstance(loss, SeveralQuantiles):
        raise ValueError(
            f"alpha={[*(loss.residual_quantiles or ())]} are several quantiles, which are put in order row by row, and {target} cannot do "
            "that; fit a model for each quantile, and sort what they predict"
        )
    if loss.by_target:
        loss = loss.by_target[0]
    if isinstance(loss, CustomObjective):
        loss = loss._link()
    if isinstance(loss, LogLink):
        return EXPONENTIAL, 1.0
    if isinstance(loss, Exponential):
        return LOGISTIC, 2.0
    if isinstance(loss, BinaryLogLoss):
        return LOGISTIC, 1.0
    if isinstance(loss, MultinomialLogLoss):
        return SOFTMAX, 1.0
    if isinstance(loss, Identity):
        return IDENTITY, 1.0
    raise ValueError(
        f"loss={name!r} was registered by another package, and what its raw predictions mean is its own; {target} carries the losses of "
        "dtrees only"
    )


def refuse_sets(model: PlainModel, target: str, others: str) -> None:
    """Raise a ValueError that names the column, if a node splits by a set of categories."""
    for _, tree in model.trees():
        if tree.categories.node.shape[0]:
            column = model.column(int(tree.feature[tree.categories.node[0]]))
            raise ValueError(f"{column} is split by sets of categories, which {target} cannot carry; use {others}")


def to_numbers(model: Any, X: Any) -> NDArray[np.float64]:
    """Return a table as the numbers that an exported model takes as input.

    Exported models do not read text: columns of categories become the numbers of the categories. Numeric columns do not change.

    Parameters
    ----------
    model : estimator
        A fitted estimator of dtrees.
    X : array-like or frame of shape (n, n_features_in_)
        A table in memory, with the columns of fit.

    Returns
    -------
    ndarray of float64 of shape (n, n_features_in_)
        Missing values, and categories that were not seen at fit, are NaN.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees, or ``X`` is sparse or not in memory.
    ValueError
        If the columns are not those of fit.

    Examples
    --------
    >>> import pandas as pd
    >>> from dtrees import DecisionTreeRegressor, to_numbers
    >>> people = pd.DataFrame({"job": ["smith", "baker"] * 20, "age": [20, 30] * 20})
    >>> tree = DecisionTreeRegressor().fit(people, [1.0, 2.0] * 20)
    >>> to_numbers(tree, pd.DataFrame({"job": ["smith", "potter"], "age": [25, None]}))
    array([[ 1., 25.],
           [nan, nan]])
    """
    if isinstance(model, Bagging):
        model = _boosters(model)[0]
    if not isinstance(model, TreeEstimator):
        raise TypeError(f"model is of type {type(model).__name__}; wants a fitted estimator of dtrees")
    from dtrees.ensemble.in_process import LOCAL

    if model._check_columns(X) is not LOCAL:
        raise TypeError(f"X is a {type(X).__name__}, which is elsewhere; pass X.compute()")
    matrix = model._schema.matrix(X)
    if not isinstance(matrix, np.ndarray):
        raise TypeError(f"X is a sparse {type(X).__name__}; pass X.toarray()")
    return np.ascontiguousarray(matrix, np.float64)


def last_rounded_below(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float64 values that, rounded to float32, are not above thresholds, to compare unrounded values with.

    Examples
    --------
    >>> t = last_rounded_below(np.array([0.1]))
    >>> float(np.float32(t[0])) <= 0.1, float(np.float32(np.nextafter(t[0], 1))) <= 0.1
    (True, False)
    """
    low = rounded_down(threshold)
    high = np.nextafter(low, np.float32(np.inf))
    with np.errstate(invalid="ignore"):
        middle = (low.astype(np.float64) + high.astype(np.float64)) / 2  # exact: the two are neighbours
    # The midpoint is rounded to the even neighbour.
    moved = np.where(middle.astype(np.float32) <= low, middle, np.nextafter(middle, -np.inf))
    return np.where(np.isinf(high), np.inf, moved)


def thresholds_for(model: PlainModel, estimator: Any, X: Any, target: str) -> Callable[[Tree], NDArray[np.float64]]:
    """Return a function from a tree to its thresholds, moved such that a tool sends the rows of ``X``, if given, as dtrees does."""
    return (lambda tree: tree.threshold) if X is None else _Float32Table(model, to_numbers(estimator, X), target).thresholds


class _Float32Table:
    """A table whose rows a tool that rounds to float32 has to send as dtrees does.

    Parameters
    ----------
    model : PlainModel
    matrix : ndarray of float64 of shape (n, n_features)
        The table as numbers, as trees read them.
    target : str
        The tool, for messages.
    """

    def __init__(self, model: PlainModel, matrix: NDArray[np.float64], target: str) -> None:
        self._model, self._matrix, self._target = model, matrix, target
        self._values: dict[int, NDArray[np.float64]] = {}

    def _sorted(self, column: int) -> NDArray[np.float64]:
        """Return the distinct values of a column, ascending, without missing ones."""
        if column not in self._values:
            values = np.unique(self._matrix[:, column])
            self._values[column] = values[~np.isnan(values)]
        return self._values[column]

    def thresholds(self, tree: Tree) -> NDArray[np.float64]:
        """Return the thresholds of a tree, moved if rounded values would go to the wrong side.

        Raises
        ------
        ValueError
            If values on both sides of a threshold become the same float32; the message names the column.
        """
        moved = tree.threshold.copy()
        colliding: list[int] = []
        with np.errstate(over="ignore"):
            for column in np.unique(tree.feature[tree.feature >= 0]).tolist():
                values = self._sorted(column)
                nodes = np.flatnonzero((tree.feature == column) & np.isfinite(tree.threshold))
                place = np.searchsorted(values, tree.threshold[nodes], side="right")
                between = (place > 0) & (place < values.shape[0])
                nodes, place = nodes[between], place[between]
                low, high = (values[place - 1].astype(np.float32), values[place].astype(np.float32))
                moved[nodes] = _between(tree.threshold[nodes], low, high)
                colliding += nodes[low == high].tolist()
            if colliding:
                from dtrees.tree.predict import apply, packed_for

                leaves = apply(packed_for([tree], self._matrix.dtype), self._matrix)[:, 0]
                for node in colliding:
                    moved[node] = self._by_rows(tree, node, leaves)
        return moved

    def _by_rows(self, tree: Tree, node: int, leaves: NDArray[np.int32]) -> float:
        """Return the threshold of a node for its own rows only: equal rounded values may belong to other nodes."""
        column, threshold = int(tree.feature[node]), float(tree.threshold[node])
        values = self._matrix[:, column]
        end = node  # end of the subtree: nodes are in preorder
        while tree.children_left[end] >= 0:
            end = int(tree.children_right[end])
        here = (leaves >= node) & (leaves <= end) & ~np.isnan(values)
        left, right = values[here & (values <= threshold)], values[here & (values > threshold)]
        if not left.size or not right.size:
            lowest = np.float32(right.min(initial=np.inf))
            return float(np.float32(left.max())) if left.size else float(np.nextafter(lowest, np.float32(-np.inf)))
        a, b = float(left.max()), float(right.min())
        low, high = np.array([a], np.float32), np.array([b], np.float32)
        if low[0] == high[0]:
            raise ValueError(
                f"{self._model.column(column)} has the values {a!r} and {b!r} on both sides of a threshold, and {self._target} rounds both "
                f"to the float32 {low[0]!s}; scale or shift the column so that they differ, or use dtrees.to_onnx, dtrees.to_treelite or "
                "dtrees.to_jax, which compare in float64"
            )
        return float(_between(np.array([threshold]), low, high)[0])


def _between(threshold: NDArray[np.float64], low: NDArray[np.float32], high: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return thresholds t with low <= t < high, unchanged if they satisfy this."""
    below = np.nextafter(high, np.float32(-np.inf)).astype(np.float64)
    return np.where(low > threshold, low.astype(np.float64), np.where(high <= threshold, below, threshold))
