"""What a report is about: a model, or the boosters of a bag, the rows, and what the model predicts for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.effects import members_of
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.estimators.gradient_boosting import joined
from dtrees.ensemble.input.target import QUERIES, VALUES, check_target, check_weights, kind_of
from dtrees.ensemble.prediction import by_target
from dtrees.plots import importance_by
from dtrees.reports.orders import Censored, target_of
from dtrees.reports.targets import Classes, Target

#: Times at which survival is predicted.
_N_TIMES = 60


@dataclass(frozen=True)
class Rows:
    """The rows of a report.

    Attributes
    ----------
    n_total : int
        Number of rows given.
    n : int
        Number of rows used.
    X : array, sparse table or frame
        The rows used, without those of classes that the model does not have.
    targets : sequence of Target
    base_margin : array or None
        Initial raw predictions, if given.
    seconds : float
        Time of the predictions.
    """

    n_total: int
    n: int
    X: Any
    targets: Sequence[Target]
    base_margin: Any
    seconds: float

    @property
    def n_unknown(self) -> int:
        """The number of rows that were left out."""
        return self.n - int(self.X.shape[0])


def take_rows(model: Any, X: Any, y: Any, sample_weight: Any, base_margin: Any, max_rows: int | None, seed: int, qid: Any = None) -> Rows:
    """Return at most ``max_rows`` rows with their predictions; of queries, all rows.

    Raises
    ------
    ValueError
        If the model cannot predict the rows, or there are none.
    """
    first = members_of(model)[0]
    backend = first._check_columns(X)
    names = [str(name) for name in getattr(y, "columns", ())]
    kind = kind_of(first)
    if kind == QUERIES:
        y = joined(y, qid)
    elif qid is not None:
        raise ValueError(f"qid is given, but a {type(model).__name__} knows no queries; leave it out")
    n_total, (X, y, sample_weight, base_margin) = backend.draw_rows(max_rows, seed, X, y, sample_weight, base_margin, queries=qid)
    n = int(X.shape[0])
    if not n:
        raise ValueError("X has no rows; a report wants at least one")
    weight = check_weights(sample_weight, n)
    more = {} if base_margin is None else {"base_margin": base_margin}
    start = time.perf_counter()
    predicted = getattr(model, "score_samples", model.predict)(X, **more)
    seconds = time.perf_counter() - start
    if kind != VALUES:
        order = target_of(model, y, predicted, weight)
        if isinstance(order, Censored) and order.right and (order.loss.later or hasattr(model, "event_times_")):
            times = np.linspace(0.0, order.actual[:, 0].max(), _N_TIMES)
            order = replace(order, times=times, curves=model.predict_survival_function(X, times, **more))
        return Rows(n_total, n, X, [order], base_margin, seconds)
    y = check_target(y, classify=is_classifier(model), name=type(model).__name__, multi_output=True)
    actual, found = y.reshape(n, -1).T, predicted.reshape(n, -1).T
    labels = names if len(names) == len(actual) else [f"target {k}" if len(actual) > 1 else "" for k in range(len(actual))]
    quantiles = getattr(model, "_quantiles", ())
    targets: list[Target]
    if quantiles and len(actual) == 1:
        targets = [Target(f"{q:g} quantile", actual[0], mine, weight, q) for q, mine in zip(quantiles, found, strict=True)]
    elif len(actual) != len(found):
        raise ValueError(f"y has {len(actual)} target(s), but the model predicts {len(found)}; pass the targets of the fit")
    elif not is_classifier(model):
        targets = [Target(*three, weight) for three in zip(labels, actual, found, strict=True)]
    else:
        classes = by_target(model.classes_)
        parts = list(zip(labels, actual, found, by_target(model.predict_proba(X, **more)), classes, strict=True))
        known = np.flatnonzero(np.all([np.isin(mine, learnt) for _, mine, _, _, learnt in parts], axis=0))
        if not len(known):
            raise ValueError(f"y has none of the model's classes, such as {classes[0][0]!r}; pass the target that it was fitted on")
        weight = None if weight is None else weight[known]
        targets = []
        for name, mine, guess, share, learnt in parts:
            mine, guess = mine[known].astype(learnt.dtype), guess[known].astype(learnt.dtype)
            targets.append(Classes(name, mine, guess, weight, probabilities=share[known], classes=learnt))
        if len(known) < n:
            X, base_margin = safe_indexing(X, known), None if base_margin is None else np.asarray(base_margin)[known]
    return Rows(n_total, n, X, targets, base_margin, seconds)


def importances_of(model: Any, kind: str) -> NDArray[np.float64]:
    """Return how much columns matter by a count of splits, of a bag on average over its boosters; NaN for isolation forests."""
    if not hasattr(members_of(model)[0], "feature_importances_"):
        return np.full(model.n_features_in_, np.nan)
    importances: NDArray[np.float64] = np.mean([importance_by(member, kind) for member in members_of(model)], axis=0)
    return importances
