"""What a report is about: a model, or the boosters of a bag, the rows, and what the model predicts for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.input.target import check_target, check_weights
from dtrees.plots.charts import check_model, importance_by


@dataclass(frozen=True)
class Target:
    """One target: what it is, and what the model makes of it.

    Attributes
    ----------
    name : str
    actual, predicted : ndarray of shape (n,)
    probabilities : ndarray of float64 of shape (n, n_classes) or None
    classes : ndarray of shape (n_classes,) or None
        None for numbers.
    weight : ndarray of float64 of shape (n,) or None
    """

    name: str
    actual: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None
    classes: NDArray[Any] | None
    weight: NDArray[np.float64] | None


@dataclass(frozen=True)
class Rows:
    """The rows of a report.

    Attributes
    ----------
    n_total : int
        How many were given.
    X : array, sparse table or frame
        Those that were taken.
    targets : sequence of Target
    n_unknown : int
        Rows that were left out, as their class is none of the model's.
    seconds : float
        That predicting took.
    """

    n_total: int
    X: Any
    targets: Sequence[Target]
    n_unknown: int
    seconds: float

    @property
    def n(self) -> int:
        """How many rows were taken."""
        return int(self.X.shape[0])


def take_rows(model: Any, X: Any, y: Any, sample_weight: Any, base_margin: Any, max_rows: int | None, seed: int) -> Rows:
    """Return at most ``max_rows`` rows with their predictions.

    Raises
    ------
    ValueError
        If the rows are not such as the model predicts, or there are none.
    """
    first = members_of(model)[0]
    backend = first._check_columns(X)
    names = [str(name) for name in getattr(y, "columns", ())]
    n_total, (X, y, sample_weight, base_margin) = backend.draw_rows(max_rows, seed, X, y, sample_weight, base_margin)
    y = check_target(y, classify=is_classifier(model), name=type(model).__name__, several=True)
    if not len(y):
        raise ValueError("X has no rows; a report wants at least one")
    weight = check_weights(sample_weight, len(y))
    more = {} if base_margin is None else {"base_margin": base_margin}
    start = time.perf_counter()
    predicted = model.predict(X, **more)
    seconds = time.perf_counter() - start
    actual, found = y.reshape(len(y), -1).T, predicted.reshape(len(y), -1).T
    if len(actual) != len(found):
        raise ValueError(f"y has {len(actual)} target(s), but the model predicts {len(found)}; pass the targets of the fit")
    labels = names if len(names) == len(actual) else [f"target {k}" if len(actual) > 1 else "" for k in range(len(actual))]
    if is_classifier(model):
        shares = model.predict_proba(X, **more)
        # Lists, one of each target, where there are several.
        classes, shares = (values if isinstance(values, list) else [values] for values in (model.classes_, shares))
        parts = zip(labels, actual, found, shares, classes, strict=True)
        targets, unknown = zip(*(_of_classes(*part, weight) for part in parts), strict=True)
        return Rows(n_total, X, targets, int(np.any(unknown, axis=0).sum()), seconds)
    return Rows(n_total, X, [Target(*three, None, None, weight) for three in zip(labels, actual, found, strict=True)], 0, seconds)


def _of_classes(
    name: str,
    actual: NDArray[Any],
    predicted: NDArray[Any],
    shares: NDArray[np.float64],
    classes: NDArray[Any],
    weight: NDArray[np.float64] | None,
) -> tuple[Target, NDArray[np.bool_]]:
    """Return a target without the rows of classes that the model does not know, and which these are."""
    known = np.isin(actual, classes)
    if not known.any():
        raise ValueError(f"y has none of the model's classes, such as {classes[0]!r}; pass the target that it was fitted on")
    kept = None if weight is None else weight[known]
    return Target(name, actual[known].astype(classes.dtype), predicted[known].astype(classes.dtype), shares[known], classes, kept), ~known


def without_steps(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator at the end of a pipeline, if the model is one, and X as the steps before pass it on.

    Raises
    ------
    TypeError
        If it is no estimator of dtrees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if isinstance(model, Pipeline):
        X = model[:-1].transform(X) if len(model) > 1 else X
        model = model[-1]
    if isinstance(model, Bagging):
        check_is_fitted(model)
    else:
        check_model(model)
    return model, X


def members_of(model: Any) -> list[Any]:
    """Return the boosters of a bag, or the estimator alone. The first one knows the columns, and how all were fitted."""
    return list(model.estimators_) if isinstance(model, Bagging) else [model]


def importances_of(model: Any, kind: str) -> NDArray[np.float64]:
    """Return how much columns matter by a count of splits, of a bag on average over its boosters."""
    importances: NDArray[np.float64] = np.mean([importance_by(member, kind) for member in members_of(model)], axis=0)
    return importances
