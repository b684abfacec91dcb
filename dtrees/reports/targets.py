"""One target of a report: what is true, what the model predicts, and how good that is.

Scores stand beside those of a prediction that looks at no column (scikit-learn's Dummy estimators).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.dummy import DummyClassifier, DummyRegressor

from dtrees.ensemble.metrics import Score
from dtrees.node_texts import short_text
from dtrees.plots import short_name


@dataclass(frozen=True)
class Losses:
    """How far predictions are from what is, row by row or of all rows.

    Attributes
    ----------
    name : str
        What their mean is called, or its root; or the measure of all rows.
    of_rows : ndarray of float64 of shape (n,) or None
    root : bool
    total : float
        Without losses of rows, what the measure lacks of its best value; NaN where this is not known.
    """

    name: str
    of_rows: NDArray[np.float64] | None = None
    root: bool = False
    total: float = 0.0

    def mean(self, rows: Any = slice(None)) -> float:
        """Return the mean over some rows, or its root."""
        if self.of_rows is None:
            return self.total
        mean = float(self.of_rows[rows].mean())
        return float(np.sqrt(mean)) if self.root else mean


@dataclass(frozen=True)
class Target:
    """One target, and the predictions for it: numbers, unless a subclass says otherwise.

    Attributes
    ----------
    name : str
    actual, predicted : ndarray of shape (n,)
    weight : ndarray of float64 of shape (n,) or None
    alpha : float or None
        The predicted quantile, if it does not follow from the model.
    """

    name: str
    actual: NDArray[Any]
    predicted: NDArray[Any]
    weight: NDArray[np.float64] | None = None
    alpha: float | None = None
    #: What has a value for each row.
    _OF_ROWS: ClassVar[tuple[str, ...]] = ("actual", "predicted", "weight")

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each row."""
        return np.ones(len(self.predicted)) if self.weight is None else self.weight

    @property
    def queries(self) -> NDArray[Any] | None:
        """The group of each row, if rows of a group stay together."""
        return None

    def at(self, rows: NDArray[np.integer]) -> Self:
        """Return the target for some of the rows."""
        arrays = {name: getattr(self, name) for name in self._OF_ROWS}
        return replace(self, **{name: values[rows] for name, values in arrays.items() if values is not None})

    def predicting(self, outputs: NDArray[np.float64]) -> Self:
        """Return the target with other predictions, shape (n, n_outputs) with those of this target first."""
        return replace(self, predicted=outputs[:, 0])

    def notable(self, losses: Losses) -> tuple[int, str]:
        """Return the row to explain, and why it is this one."""
        assert losses.of_rows is not None
        worst = int(np.argmax(losses.of_rows))
        actual, predicted = (self._text(values[worst]) for values in (self.actual, self.predicted))
        return worst, f"The row whose prediction is the farthest off: it is {actual}, and {predicted} was predicted."

    def _text(self, value: Any) -> str:
        return short_text(float(value), 3)

    def means(self, rows: NDArray[np.bool_]) -> dict[str, float]:
        """Return means over some rows, by name."""
        return {"mean actual": float(self.actual[rows].mean()), "mean predicted": float(self.predicted[rows].mean())}

    def _alpha(self, model: Any) -> float | None:
        """Return the quantile that is predicted, if there is one."""
        return self.alpha if self.alpha is not None else float(model.alpha) if str(getattr(model, "loss", "")) == "quantile" else None

    def losses(self, model: Any) -> Losses:
        """Return how far predictions are from what is true, by the loss that the model was fitted with."""
        error, alpha = np.asarray(self.actual - self.predicted, np.float64), self._alpha(model)
        if alpha is not None:
            return Losses("pinball loss", np.maximum(alpha * error, (alpha - 1) * error))
        if "absolute_error" in (getattr(model, "loss", ""), model.criterion):
            return Losses("MAE", np.abs(error))
        return Losses("RMSE", error**2, root=True)

    def scores(self, model: Any) -> tuple[str, list[Score]]:
        """Return in words what the baseline predicts, and the scores."""
        actual, predicted, weight = self.actual, self.predicted, self.weight
        loss, criterion = str(getattr(model, "loss", "")), str(model.criterion)
        strategy, words, alpha = "mean", "the mean", self._alpha(model)
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
            """Yield the score of a loss or criterion other than squared and absolute error."""
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


@dataclass(frozen=True, kw_only=True)
class Classes(Target):
    """Classes, and their probabilities.

    Attributes
    ----------
    probabilities : ndarray of float64 of shape (n, n_classes)
    classes : ndarray of shape (n_classes,)
    """

    probabilities: NDArray[np.float64]
    classes: NDArray[Any]
    _OF_ROWS = (*Target._OF_ROWS, "probabilities")

    def _text(self, value: Any) -> str:
        return str(value)

    def predicting(self, outputs: NDArray[np.float64]) -> Self:
        """Return the target with other probabilities."""
        return replace(self, probabilities=outputs[:, : len(self.classes)])

    def means(self, rows: NDArray[np.bool_]) -> dict[str, float]:
        """Return the share and the mean probability of the second of two classes in some rows, or the accuracy."""
        if len(self.classes) != 2:
            return {"accuracy": float((self.actual[rows] == self.predicted[rows]).mean())}
        share, probability = (self.actual[rows] == self.classes[1]).mean(), self.probabilities[rows, 1].mean()
        return {f"share of {short_name(self.classes[1], 20)}": float(share), "mean probability": float(probability)}

    def losses(self, model: Any) -> Losses:
        """Return log losses."""
        shares = self.probabilities / self.probabilities.sum(axis=1, keepdims=True)
        mine = np.take_along_axis(shares, np.searchsorted(self.classes, self.actual)[:, np.newaxis], 1)[:, 0]
        return Losses("log loss", -np.log(np.maximum(mine, np.finfo(np.float64).eps)))

    def scores(self, model: Any) -> tuple[str, list[Score]]:
        """Return in words what the baseline predicts, and the scores."""
        weight, classes, shares = self.weight, self.classes, self.probabilities
        codes = np.searchsorted(classes, self.actual)
        dummy = DummyClassifier(strategy="prior").fit(np.zeros((len(codes), 1)), codes, weight)
        trivial = np.zeros_like(shares)
        trivial[:, dummy.classes_] = dummy.class_prior_
        labels, guess = np.searchsorted(classes, self.predicted), trivial.argmax(axis=1)
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
