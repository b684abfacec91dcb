"""What a report is about: a model, or the boosters of a bag, the rows, what the model predicts for them, and how good that is.

Scores stand beside those of a prediction that looks at no column (scikit-learn's Dummy estimators).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor

from dtrees.effects import members_of
from dtrees.ensemble.input.target import check_target, check_weights
from dtrees.ensemble.metrics import Score
from dtrees.plots import importance_by


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
    alpha : float or None
        Which quantile is predicted, where that does not follow from the model.
    """

    name: str
    actual: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None
    classes: NDArray[Any] | None
    weight: NDArray[np.float64] | None
    alpha: float | None = None


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
    y = check_target(y, classify=is_classifier(model), name=type(model).__name__, multi_output=True)
    if not len(y):
        raise ValueError("X has no rows; a report wants at least one")
    weight = check_weights(sample_weight, len(y))
    more = {} if base_margin is None else {"base_margin": base_margin}
    start = time.perf_counter()
    predicted = model.predict(X, **more)
    seconds = time.perf_counter() - start
    actual, found = y.reshape(len(y), -1).T, predicted.reshape(len(y), -1).T
    quantiles = getattr(model, "_quantiles", ())
    if quantiles and len(actual) == 1:
        each = zip(quantiles, found, strict=True)
        return Rows(n_total, X, [Target(f"{q:g} quantile", actual[0], mine, None, None, weight, q) for q, mine in each], 0, seconds)
    if len(actual) != len(found):
        raise ValueError(f"y has {len(actual)} target(s), but the model predicts {len(found)}; pass the targets of the fit")
    labels = names if len(names) == len(actual) else [f"target {k}" if len(actual) > 1 else "" for k in range(len(actual))]
    if is_classifier(model):
        shares = model.predict_proba(X, **more)
        # Lists, one of each target, where there are several.
        classes, shares = (values if isinstance(values, list) else [values] for values in (model.classes_, shares))
        parts = zip(labels, actual, found, shares, classes, strict=True)
        targets, unknown = zip(*(_target_of_classes(*part, weight) for part in parts), strict=True)
        return Rows(n_total, X, targets, int(np.any(unknown, axis=0).sum()), seconds)
    return Rows(n_total, X, [Target(*three, None, None, weight) for three in zip(labels, actual, found, strict=True)], 0, seconds)


def _target_of_classes(
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


def importances_of(model: Any, kind: str) -> NDArray[np.float64]:
    """Return how much columns matter by a count of splits, of a bag on average over its boosters."""
    importances: NDArray[np.float64] = np.mean([importance_by(member, kind) for member in members_of(model)], axis=0)
    return importances


def scores_of(target: Target, model: Any) -> tuple[str, list[Score]]:
    """Return in words what the baseline predicts, and the scores of a target."""
    return _scores_of_classes(target) if target.classes is not None else _scores_of_numbers(target, model)


def _scores_of_numbers(target: Target, model: Any) -> tuple[str, list[Score]]:
    actual, predicted, weight = target.actual, target.predicted, target.weight
    loss, criterion = str(getattr(model, "loss", "")), str(model.criterion)
    strategy, words, alpha = "mean", "the mean", None
    if loss == "quantile":
        alpha = float(model.alpha) if target.alpha is None else target.alpha
        strategy, words = "quantile", f"the {alpha:g} quantile"
    elif "absolute_error" in (loss, criterion):
        strategy, words = "median", "the median"
    column = np.zeros((len(actual), 1))
    trivial = DummyRegressor(strategy=strategy, quantile=alpha).fit(column, actual, weight).predict(column)

    def score(name: str, meaning: str, metric: Callable[..., float], greater: bool = False, **more: Any) -> Score:
        mine, others = (float(metric(actual, found, sample_weight=weight, **more)) for found in (predicted, trivial))
        return Score(name, mine, others, greater, meaning)

    def of_loss() -> Iterator[Score]:
        """Yield the score that belongs to a loss or criterion other than squared and absolute error."""
        if loss == "quantile":
            yield score("pinball loss", f"of the {alpha:g} quantile", metrics.mean_pinball_loss, alpha=alpha)
        positive = bool((predicted > 0).all() and (actual >= 0).all() and actual.sum() > 0)
        if "poisson" in (loss, criterion) and positive:
            yield score("Poisson deviance", "mean over rows", metrics.mean_poisson_deviance)
        if loss == "gamma" and positive and (actual > 0).all():
            yield score("gamma deviance", "mean over rows", metrics.mean_gamma_deviance)
        if loss == "tweedie" and positive:
            power = float(model.tweedie_variance_power)
            yield score("Tweedie deviance", f"of the power {power:g}, mean over rows", metrics.mean_tweedie_deviance, power=power)

    r2 = [score("R²", "share of the variance that is explained, 1 at best", metrics.r2_score, True)] if len(actual) > 1 else []
    return f"{words} of the target, {trivial[0]:.6g}", [
        *r2,
        *of_loss(),
        score("RMSE", "root of the mean squared error", metrics.root_mean_squared_error),
        score("MAE", "mean absolute error", metrics.mean_absolute_error),
        score("median error", "half of the rows are nearer", metrics.median_absolute_error),
    ]


def _scores_of_classes(target: Target) -> tuple[str, list[Score]]:
    actual, weight, classes, shares = target.actual, target.weight, target.classes, target.probabilities
    assert classes is not None
    assert shares is not None
    codes = np.searchsorted(classes, actual)
    dummy = DummyClassifier(strategy="prior").fit(np.zeros((len(codes), 1)), codes, weight)
    trivial = np.zeros_like(shares)
    trivial[:, dummy.classes_] = dummy.class_prior_
    labels, guess = np.searchsorted(classes, target.predicted), trivial.argmax(axis=1)
    present = np.unique(codes)

    def score(name: str, meaning: str, metric: Callable[..., float], greater: bool, one: Any, other: Any, **more: Any) -> Score:
        mine, others = (float(metric(codes, found, sample_weight=weight, **more)) for found in (one, other))
        return Score(name, mine, others, greater, meaning)

    found = [
        score("accuracy", "share of rows whose class is predicted", metrics.accuracy_score, True, labels, guess),
        score(
            "balanced accuracy", "mean over classes of that share", metrics.recall_score, True, labels, guess,
            labels=present, average="macro", zero_division=np.nan,
        ),
    ]  # fmt: skip
    second = f"of the class {classes[-1]}"
    if len(classes) > 1:
        every, summing_to_one = np.arange(len(classes)), shares / shares.sum(axis=1, keepdims=True)
        found.append(score("log loss", "of the probabilities", metrics.log_loss, False, summing_to_one, trivial, labels=every))
        of, average, among = (second, "binary", None) if len(classes) == 2 else ("mean over classes", "macro", present)
        for name, metric in (("precision", metrics.precision_score), ("recall", metrics.recall_score), ("F1", metrics.f1_score)):
            found.append(score(name, of, metric, True, labels, guess, labels=among, average=average, zero_division=0.0))
    if len(classes) == 2 == len(present):
        for name, meaning, metric, greater in (
            ("ROC AUC", second, metrics.roc_auc_score, True),
            ("average precision", second, metrics.average_precision_score, True),
            ("Brier score", "mean squared error of the probability", metrics.brier_score_loss, False),
        ):
            found.append(score(name, meaning, metric, greater, shares[:, 1], trivial[:, 1]))
    elif len(present) == len(classes) > 2:
        meaning = "each class against the others, mean"
        found.append(score("ROC AUC", meaning, metrics.roc_auc_score, True, summing_to_one, trivial, multi_class="ovr"))
    return f"the shares of the classes, so the class {classes[guess[0]]}", found
