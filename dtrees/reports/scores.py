"""How good predictions are, beside those of one that looks at no column (scikit-learn's Dummy estimators)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

from dtrees.reports.rows import Target


@dataclass(frozen=True)
class Score:
    """One figure.

    Attributes
    ----------
    name, meaning : str
    model, baseline : float
    greater_is_better : bool
    """

    name: str
    meaning: str
    model: float
    baseline: float
    greater_is_better: bool

    @property
    def is_better(self) -> bool:
        """Whether the model's is better than the baseline's."""
        return self.model > self.baseline if self.greater_is_better else self.model < self.baseline


def scores_of(target: Target, model: Any) -> tuple[str, list[Score]]:
    """Return in words what the baseline predicts, and the scores of a target."""
    return _of_classes(target) if target.classes is not None else _of_numbers(target, model)


def _of_numbers(target: Target, model: Any) -> tuple[str, list[Score]]:
    actual, weight = target.actual, target.weight
    loss, criterion = str(getattr(model, "loss", "")), str(model.criterion)
    strategy, words = "mean", "the mean"
    alpha = float(getattr(model, "alpha", 0.5)) if loss == "quantile" else 0.5
    if loss == "quantile":
        strategy, words = "quantile", f"the {alpha:g} quantile"
    elif "absolute_error" in (loss, criterion):
        strategy, words = "median", "the median"
    dummy = DummyRegressor(strategy=strategy, quantile=alpha if loss == "quantile" else None)
    trivial = dummy.fit(np.zeros((len(actual), 1)), actual, weight).predict(np.zeros((len(actual), 1)))

    def score(name: str, meaning: str, metric: Callable[..., float], greater: bool = False, **more: Any) -> Score:
        model_s, trivial_s = (float(metric(actual, found, sample_weight=weight, **more)) for found in (target.predicted, trivial))
        return Score(name, meaning, model_s, trivial_s, greater)

    found = [
        *_of_loss(loss, criterion, alpha, model, actual, target.predicted, score),
        score("RMSE", "root of the mean squared error", metrics.root_mean_squared_error),
        score("MAE", "mean absolute error", metrics.mean_absolute_error),
        score("median error", "half of the rows are nearer", metrics.median_absolute_error),
    ]
    if len(actual) > 1:
        found.insert(0, score("R²", "share of the variance that is explained, 1 at best", metrics.r2_score, True))
    return f"{words} of the target, {trivial[0]:.6g}", found


def _of_loss(
    loss: str,
    criterion: str,
    alpha: float,
    model: Any,
    actual: NDArray[np.float64],
    predicted: NDArray[np.float64],
    score: Callable[..., Score],
) -> Iterator[Score]:
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


def _of_classes(target: Target) -> tuple[str, list[Score]]:
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
        return Score(name, meaning, mine, others, greater)

    found = [
        score("accuracy", "share of rows whose class is predicted", metrics.accuracy_score, True, labels, guess),
        score("balanced accuracy", "mean over classes of that share", _balanced_accuracy, True, labels, guess),
    ]
    if len(classes) > 1:
        every = np.arange(len(classes))
        found.append(score("log loss", "of the probabilities", metrics.log_loss, False, _summing_to_one(shares), trivial, labels=every))
    if len(classes) > 1:
        of, average = (f"of the class {classes[1]}", "binary") if len(classes) == 2 else ("mean over classes", "macro")
        among = None if len(classes) == 2 else present
        for name, metric in (("precision", metrics.precision_score), ("recall", metrics.recall_score), ("F1", metrics.f1_score)):
            found.append(score(name, of, metric, True, labels, guess, labels=among, average=average, zero_division=0.0))
    if len(classes) == 2 and len(present) == 2:
        found.append(score("ROC AUC", f"of the class {classes[1]}", metrics.roc_auc_score, True, shares[:, 1], trivial[:, 1]))
        found.append(
            score("average precision", f"of the class {classes[1]}", metrics.average_precision_score, True, shares[:, 1], trivial[:, 1])
        )
        found.append(
            score("Brier score", "mean squared error of the probability", metrics.brier_score_loss, False, shares[:, 1], trivial[:, 1])
        )
    elif len(present) == len(classes) > 2:
        found.append(score("ROC AUC", "each class against the others, mean", _mean_auc, True, shares, trivial))
    return f"the shares of the classes, so the class {classes[guess[0]]}", found


def _balanced_accuracy(codes: NDArray[np.intp], labels: NDArray[np.intp], sample_weight: Any) -> float:
    """Return the mean recall of the classes that there are; scikit-learn's warns of predicted ones that there are not."""
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    right, total = np.bincount(codes, weight * (codes == labels)), np.bincount(codes, weight)
    return float(np.mean(right[total > 0] / total[total > 0]))


def _mean_auc(codes: NDArray[np.intp], shares: NDArray[np.float64], sample_weight: Any) -> float:
    return float(np.mean([metrics.roc_auc_score(codes == k, shares[:, k], sample_weight=sample_weight) for k in range(shares.shape[1])]))


def _summing_to_one(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    return shares / shares.sum(axis=1, keepdims=True)
