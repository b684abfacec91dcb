"""Describe any model of dtrees for exporters, as a sum of trees and a link.

    raw = initial + sum of trees          shape (n, n_outputs)
    prediction = link(raw / divisor)

Terms
-----
group
    trees that add to the same outputs. Forests have one group, whose leaves hold a number for each output. Boosting has a group for each
    output, whose leaves hold one number.
link
    ``identity``, ``exponential``, ``logistic`` (of ``slope * raw``; the probability of the second class), ``softmax``, ``shares``: raw
    predictions are the probabilities of classes, ``ascending``: several quantiles, which are sorted, or ``score``: ``-2**-raw`` (isolation
    forests). Boosting of several targets with classes has a link for each target.
matrix
    the table that trees read: numbers unchanged, categories as their numbers, NaN for missing values (:func:`to_numbers`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.isolation_forest import IsolationForest
from dtrees.ensemble.estimators.starting import BY_ESTIMATOR, BY_MARGIN
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.objective.classification import BinaryLogLoss, Exponential, MultinomialLogLoss
from dtrees.ensemble.objective.registry import CustomObjective
from dtrees.ensemble.objective.regression import Identity, LogLink, SeveralQuantiles
from dtrees.tree.tree import Tree

Kind = Literal["identity", "exponential", "logistic", "softmax", "shares", "ascending", "score"]
#: What only some target formats support: two links, initial scores of rows (``base_margin``), and several targets with classes.
Held = Literal["ascending", "score", "margins", "classes of targets"]


class Link(NamedTuple):
    """A function from raw predictions to predictions.

    Attributes
    ----------
    kind : str
    n_outputs : int
        Number of raw predictions.
    slope : float
        Slope of the logistic link.
    """

    kind: Kind
    n_outputs: int
    slope: float = 1.0

    @property
    def n_predicted(self) -> int:
        """Number of predictions."""
        return 2 if self.kind == "logistic" else self.n_outputs


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
    links : tuple of Link
        One link, or one for each of several targets with classes.
    loss : str or None
        The loss of boosting.
    classes : ndarray, list of ndarray or None
        The classes of a classifier, as in ``classes_``.
    """

    estimator: TreeEstimator
    groups: tuple[tuple[Tree, ...], ...]
    initial: NDArray[np.float64]
    divisor: int
    links: tuple[Link, ...]
    loss: str | None
    classes: Any

    @property
    def link(self) -> Kind:
        """The kind of the first link."""
        return self.links[0].kind

    @property
    def slope(self) -> float:
        """That of the first link."""
        return self.links[0].slope

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
    def by_margin(self) -> bool:
        """Whether the raw scores of a row (``base_margin``) are added to the sums of its trees."""
        return getattr(self.estimator, "_starts", None) == BY_MARGIN

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


def describe(model: Any, target: str, *, holds: Collection[Held] = ()) -> PlainModel:
    """Return the description of a model for an exporter.

    Parameters
    ----------
    model : estimator
    target : str
        The target format, for messages.
    holds : collection of str
        What the target format supports of ``Held``.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    ValueError
        If exporters cannot represent it: its initial value requires Python, the link of its loss is unknown, it is a bag whose mean is not
        a mean of sums of trees, or it has something that the target format does not support.
    """
    if isinstance(model, Bagging):
        return _bag(describe_members(model, target, holds=holds), model, target)
    if not isinstance(model, TreeEstimator):
        raise TypeError(f"model is of type {type(model).__name__}; wants a fitted estimator of dtrees (of a pipeline, its last step)")
    model._check_fitted()
    plain = _boosting(model, target) if isinstance(model, Boosting) else _forest(model)
    _check_held(plain, target, holds)
    return plain


def _forest(model: Any) -> PlainModel:
    """Return the description of a tree or a forest."""
    groups, classes = model._trees.groups, getattr(model, "classes_", None)
    n_outputs = groups[0][0].value.shape[1]
    link: Kind = "score" if isinstance(model, IsolationForest) else "identity" if classes is None else "shares"
    return PlainModel(model, groups, np.zeros(n_outputs), len(groups[0]), (Link(link, n_outputs),), None, classes)


def _boosting(model: Any, target: str) -> PlainModel:
    """Return the description of boosting."""
    if model._starts == BY_ESTIMATOR:
        raise ValueError(
            f"this {type(model).__name__} starts from an estimator (init={type(model._init_estimator).__name__}), which {target} cannot "
            "carry; fit it with init=None, or with what the estimator predicts as base_margin, which dtrees.to_c and dtrees.to_xgboost take"
        )
    loss, name, initial = model._fitted_loss, model._loss_name, model._trees.initial
    classes = getattr(model, "classes_", None)
    parts = [(one, one.n_outputs) for one in loss.by_target] if isinstance(classes, list) else [(loss, len(initial))]
    links = tuple(_link_of(one, n_outputs, name, target) for one, n_outputs in parts)
    return PlainModel(model, model._trees.groups, initial, 1, links, name, classes)


def _check_held(plain: PlainModel, target: str, holds: Collection[Held]) -> None:
    """Raise a ValueError if a model has something that the target format does not support."""
    name = type(plain.estimator).__name__
    if plain.link == "score" and "score" not in holds:
        raise ValueError(
            f"model is an IsolationForest, whose scores do not add up over trees: {target} cannot hold it; use dtrees.to_c or "
            "dtrees.interop.dtrees_numpy"
        )
    if isinstance(plain.classes, list) and "classes of targets" not in holds:
        raise ValueError(
            f"this {name} has {len(plain.classes)} targets with classes of their own, and {target} supports multi-output regressors "
            "only; use dtrees.to_c or dtrees.interop.dtrees_numpy, or fit a classifier for each target"
        )
    if plain.by_margin and "margins" not in holds:
        raise ValueError(
            f"this {name} was fitted with base_margin, and {target} has no place for the scores of rows; use dtrees.to_c, "
            "dtrees.to_xgboost or dtrees.interop.dtrees_numpy, or fit it without"
        )
    if plain.link == "ascending" and "ascending" not in holds:
        raise ValueError(
            f"alpha={[*plain.estimator._fitted_loss.residual_quantiles]} are several quantiles, which are put in order row by row, and "
            f"{target} cannot do that; use dtrees.to_c or dtrees.interop.dtrees_numpy, or fit a model for each quantile and sort their "
            "predictions"
        )


def describe_members(model: Any, target: str, *, holds: Collection[Held] = ()) -> list[PlainModel]:
    """Return the descriptions of a bag's boosters, whose mean is the prediction, or of the model itself."""
    return [describe(member, target, holds=holds) for member in (_boosters(model) if isinstance(model, Bagging) else [model])]


def _boosters(bag: Bagging) -> list[Any]:
    check_is_fitted(bag)
    return bag.estimators_


def _bag(boosters: list[PlainModel], bag: Bagging, target: str) -> PlainModel:
    """Return a bag of boosters as one model: leaf values are divided by the number of boosters."""
    first, n = boosters[0], len(boosters)
    if first.link != "identity":
        raise ValueError(
            f"this {type(bag).__name__} predicts the mean of what its boosters predict by loss={first.loss!r}, not a sum of trees, "
            f"and {target} cannot carry it; use dtrees.to_c or dtrees.to_sklearn, or carry its boosters (estimators_) one by one, and take "
            "the mean"
        )
    groups = tuple(
        tuple(replace(tree, value=tree.value / n) for booster in boosters for tree in booster.groups[output])
        for output in range(first.n_outputs)
    )
    return replace(first, groups=groups, initial=np.mean([booster.initial for booster in boosters], axis=0))


def _link_of(loss: Any, n_outputs: int, name: str, target: str) -> Link:
    """Return the link of a loss with this number of raw predictions."""
    if isinstance(loss, SeveralQuantiles):
        return Link("ascending", n_outputs)
    if loss.by_target:
        loss = loss.by_target[0]
    if isinstance(loss, CustomObjective):
        loss = loss._link()
    if isinstance(loss, LogLink):
        return Link("exponential", n_outputs)
    if isinstance(loss, Exponential):
        return Link("logistic", n_outputs, 2.0)
    if isinstance(loss, BinaryLogLoss):
        return Link("logistic", n_outputs)
    if isinstance(loss, MultinomialLogLoss):
        return Link("softmax", n_outputs)
    if isinstance(loss, Identity):
        return Link("identity", n_outputs)
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
