"""The rows that a report is about, and what the model predicts for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.ensemble.input.target import check_target, check_weights


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
    backend = model._check_columns(X)
    names = [str(name) for name in getattr(y, "columns", ())]
    n_total, (X, y, sample_weight, base_margin) = backend.draw_rows(max_rows, seed, X, y, sample_weight, base_margin)
    several = model._SEVERAL_TARGETS
    y = check_target(y, classify=is_classifier(model), name=type(model).__name__, several=several)
    if not len(y):
        raise ValueError("X has no rows; a report wants at least one")
    weight = check_weights(sample_weight, len(y))
    known = np.isin(y, model.classes_) if is_classifier(model) else np.ones(len(y), bool)
    more = {} if base_margin is None else {"base_margin": base_margin}
    start = time.perf_counter()
    predicted = model.predict(X, **more)
    seconds = time.perf_counter() - start
    targets = []
    if is_classifier(model):
        if not known.any():
            raise ValueError(f"y has none of the model's classes, such as {model.classes_[0]!r}; pass the target that it was fitted on")
        shares = model.predict_proba(X, **more)
        kept = None if weight is None else weight[known]
        targets.append(Target("", y[known], predicted[known], shares[known], model.classes_, kept))
    else:
        columns, outcomes = y.reshape(len(y), -1).T, predicted.reshape(len(y), -1).T
        labels = names if len(names) == len(columns) else [f"target {k}" if len(columns) > 1 else "" for k in range(len(columns))]
        if len(columns) != len(outcomes):
            raise ValueError(f"y has {len(columns)} target(s), but the model predicts {len(outcomes)}; pass the targets of the fit")
        targets += [Target(*three, None, None, weight) for three in zip(labels, columns, outcomes, strict=True)]
    return Rows(n_total, X, targets, int((~known).sum()), seconds)
