"""What a report is about: a model, or the boosters of a bag, the rows, what the model predicts for them, and how good that is.

Scores stand beside those of a prediction that looks at no column (scikit-learn's Dummy estimators).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor

from dtrees.effects import members_of
from dtrees.ensemble.compat import safe_indexing
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

    def at(self, rows: NDArray[np.integer]) -> Target:
        """Return the target of some of the rows."""
        arrays = {name: getattr(self, name) for name in ("actual", "predicted", "probabilities", "weight")}
        return replace(self, **{name: values[rows] for name, values in arrays.items() if values is not None})


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


def take_rows(model: Any, X: Any, y: Any, sample_weight: Any, base_margin: Any, max_rows: int | None, seed: int) -> Rows:
    """Return at most ``max_rows`` rows with their predictions.

    Raises
    ------
    ValueError
        If the model cannot predict the rows, or there are none.
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
        targets = [Target(f"{q:g} quantile", actual[0], mine, None, None, weight, q) for q, mine in each]
        return Rows(n_total, len(y), X, targets, base_margin, seconds)
    if len(actual) != len(found):
        raise ValueError(f"y has {len(actual)} target(s), but the model predicts {len(found)}; pass the targets of the fit")
    labels = names if len(names) == len(actual) else [f"target {k}" if len(actual) > 1 else "" for k in range(len(actual))]
    if not is_classifier(model):
        targets = [Target(*three, None, None, weight) for three in zip(labels, actual, found, strict=True)]
        return Rows(n_total, len(y), X, targets, base_margin, seconds)
    shares = model.predict_proba(X, **more)
    # Lists with an item for each target, if there are several.
    classes, shares = (values if isinstance(values, list) else [values] for values in (model.classes_, shares))
    parts = list(zip(labels, actual, found, shares, classes, strict=True))
    known = np.flatnonzero(np.all([np.isin(mine, learnt) for _, mine, _, _, learnt in parts], axis=0))
    if not len(known):
        raise ValueError(f"y has none of the model's classes, such as {classes[0][0]!r}; pass the target that it was fitted on")
    targets = [
        Target(name, mine[known].astype(learnt.dtype), guess[known].astype(learnt.dtype), share[known], learnt, weight)
        for name, mine, guess, share, learnt in parts
    ]
    if len(known) < len(y):
        X, base_margin = safe_indexing(X, known), None if base_margin is None else np.asarray(base_margin)[known]
        targets = [replace(one, weight=None if weight is None else weight[known]) for one in targets]
    return Rows(n_total, len(y), X, targets, base_margin, seconds)


def importances_of(model: Any, kind: str) -> NDArray[np.float64]:
    """Return how much columns matter by a count of splits, of a bag on average over its boosters."""
    importances: NDArray[np.float64] = np.mean([importance_by(member, kind) for member in members_of(model)], axis=0)
    return importances


def scores_of(target: Target, model: Any) -> tuple[str, list[Score]]:
    """Return in words what the baseline predicts, and the scores of a target."""
    return _scores_of_classes(target) if target.classes is not None else _scores_of_numbers(target, model)


def _alpha(target: Target, model: Any) -> float | None:
    """Return which quantile is predicted, if it is one."""
    return target.alpha if target.alpha is not None else float(model.alpha) if str(getattr(model, "loss", "")) == "quantile" else None


@dataclass(frozen=True)
class Losses:
    """How far predictions are from what is, row by row.

    Attributes
    ----------
    name : str
        What their mean is called, or its root.
    of_rows : ndarray of float64 of shape (n,)
    root : bool
    """

    name: str
    of_rows: NDArray[np.float64]
    root: bool = False

    @classmethod
    def of(cls, target: Target, model: Any) -> Losses:
        """Return the losses of a target: logarithmic ones of classes, and of numbers those that the model was fitted to make small."""
        if target.probabilities is not None and target.classes is not None:
            shares = target.probabilities / target.probabilities.sum(axis=1, keepdims=True)
            mine = np.take_along_axis(shares, np.searchsorted(target.classes, target.actual)[:, np.newaxis], 1)[:, 0]
            return cls("log loss", -np.log(np.maximum(mine, np.finfo(np.float64).eps)))
        error, alpha = np.asarray(target.actual - target.predicted, np.float64), _alpha(target, model)
        if alpha is not None:
            return cls("pinball loss", np.maximum(alpha * error, (alpha - 1) * error))
        if "absolute_error" in (getattr(model, "loss", ""), model.criterion):
            return cls("MAE", np.abs(error))
        return cls("RMSE", error**2, root=True)

    def mean(self, rows: Any = slice(None)) -> float:
        """Return the mean over some rows, or its root."""
        mean = float(self.of_rows[rows].mean())
        return float(np.sqrt(mean)) if self.root else mean


def _scores_of_numbers(target: Target, model: Any) -> tuple[str, list[Score]]:
    actual, predicted, weight = target.actual, target.predicted, target.weight
    loss, criterion = str(getattr(model, "loss", "")), str(model.criterion)
    strategy, words, alpha = "mean", "the mean", _alpha(target, model)
    if alpha is not None:
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
