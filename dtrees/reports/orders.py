"""Targets of models whose predictions are compared with one another, not with values: rankings, censored times and outliers.

A measure of all rows takes the place of the losses of single rows, so that no rows are the worst ones.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.input.target import OUTLIERS, QUERIES, check_target, kind_of
from dtrees.ensemble.metrics import OfLoss, Score, area_under_curve
from dtrees.ensemble.objective.survival import RiskSets
from dtrees.node_texts import short_text
from dtrees.reports.targets import Losses, Target

#: Title, caption, and what draws in axes.
Drawing = tuple[str, str, Callable[[Any], None]]
#: First rows that NDCG is drawn for; groups of predicted risk.
_MAX_FIRST, _RISKS = 20, ("low", "middle", "high")


@dataclass(frozen=True)
class Order(Target):
    """A target that predictions put in order.

    Attributes
    ----------
    loss : object
        Measures the predictions of rankings and times.
    """

    loss: Any = None
    #: Names, what measures them, and their meanings; what the baseline predicts.
    _MEASURES: ClassVar[tuple[tuple[str, str, str], ...]]
    _BASELINE: ClassVar[str] = "the same for all rows"

    @abstractmethod
    def drawings(self) -> Iterator[Drawing]:
        """Yield what is to be drawn of predictions."""

    @abstractmethod
    def _first(self) -> tuple[NDArray[np.float64], str]:
        """Return what is largest for the row to explain, and what this is called."""

    def measure(self, measure: str) -> float:
        """Return a measure of the predictions."""
        return OfLoss(measure, self.loss).score(self.actual.T, self.predicted[np.newaxis], self.weight)

    def by_chance(self, measure: str) -> float:
        """Return the measure of the baseline."""
        return 0.5

    def scores(self, model: Any) -> tuple[str, list[Score]]:
        """Return in words what the baseline predicts, and the scores."""
        return self._BASELINE, [Score(name, self.measure(of), self.by_chance(of), True, meaning) for name, of, meaning in self._MEASURES]

    def losses(self, model: Any) -> Losses:
        """Return what the first measure lacks of 1."""
        name, measure, _ = self._MEASURES[0]
        return Losses(name, total=1.0 - self.measure(measure))

    def notable(self, losses: Losses) -> tuple[int, str]:
        """Return the row to explain, and why it is this one."""
        order, what = self._first()
        row = int(np.argmax(order))
        return row, f"The row with the {what}: {short_text(float(self.predicted[row]), 3)}."


class Ranking(Order):
    """Relevances and queries, and scores."""

    _MEASURES = (
        ("NDCG", "ndcg", "of all rows of each query, mean over queries"),
        ("NDCG@10", "ndcg@10", "of the first ten rows of each query"),
    )
    _BASELINE = "a random order of each query"

    @property
    def queries(self) -> NDArray[Any]:
        """The query of each row."""
        return np.asarray(self.actual[:, 1])

    def by_chance(self, measure: str) -> float:
        """Return the expected NDCG of a random order."""
        first = float(measure.partition("@")[2] or math.inf)
        return float(self.loss.expected(np.ascontiguousarray(self.actual.T), first, self.weight))

    def drawings(self) -> Iterator[Drawing]:
        """Yield NDCG by the number of first rows."""
        first = range(1, min(_MAX_FIRST, int(np.unique(self.queries, return_counts=True)[1].max())) + 1)

        def draw(ax: Any) -> None:
            ax.plot(first, [self.measure(f"ndcg@{k}") for k in first], marker="o", color="#3c82c8", label="model")
            ax.plot(first, [self.by_chance(f"ndcg@{k}") for k in first], color="#303030", linestyle="--", linewidth=1, label="random order")
            ax.xaxis.get_major_locator().set_params(integer=True)
            label(ax, "first rows of each query", "NDCG", "best")

        yield "NDCG of the first rows", "Mean over queries; a query without relevant rows has 1.", draw

    def _first(self) -> tuple[NDArray[np.float64], str]:
        return self.predicted, "highest score"


@dataclass(frozen=True)
class Censored(Order):
    """Bounds of times, and relative hazards or times.

    Attributes
    ----------
    times : ndarray of float64 of shape (n_times,) or None
    curves : ndarray of float64 of shape (n, n_times) or None
        Predicted probabilities of no event by these times.
    """

    times: NDArray[np.float64] | None = None
    curves: NDArray[np.float64] | None = None
    _OF_ROWS = (*Target._OF_ROWS, "curves")
    _MEASURES = (("concordance", "concordance", "share of the pairs of rows that are in the right order"),)

    @property
    def right(self) -> bool:
        """Whether all times are known or censored on the right."""
        lower, upper = self.actual.T
        return bool(((lower == upper) | np.isinf(upper)).all())

    def drawings(self) -> Iterator[Drawing]:
        """Yield observed and predicted survival of groups of rows."""
        if not self.right:
            return
        groups = np.array_split(np.argsort(self._first()[0], kind="stable"), len(_RISKS))

        def draw(ax: Any) -> None:
            for k, (rows, risk) in enumerate(zip(groups, _RISKS, strict=True)):
                ax.step(*kaplan_meier(self.at(rows)), where="post", color=f"C{k}", label=f"{risk} risk")
                if self.curves is not None and len(rows):
                    ax.plot(self.times, self.curves[rows].mean(axis=0), color=f"C{k}", linestyle="--", linewidth=1)
            ax.set_ylim(0, 1.02)
            label(ax, "time", "share without the event", "best")

        predicted = "" if self.curves is None else "; dashed, the means that the model predicts"
        yield "Survival by predicted risk", f"Thirds of the rows, observed (Kaplan-Meier){predicted}.", draw

    def _first(self) -> tuple[NDArray[np.float64], str]:
        return (-self.predicted, "earliest predicted time") if self.loss.later else (self.predicted, "highest relative hazard")


def kaplan_meier(target: Target) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return times from 0, and the share without the event after each, by the estimate of Kaplan and Meier.

    >>> y = np.array([[1.0, 1.0], [2.0, np.inf], [3.0, 3.0], [4.0, np.inf]])
    >>> [values.tolist() for values in kaplan_meier(Censored("", y, y[:, 0]))]
    [[0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 0.75, 0.75, 0.375, 0.375]]
    """
    sets = RiskSets.of(target.actual.T, np.zeros(len(target.actual)), target.weight)
    left = 1.0 - np.divide(sets.events, sets.at_risk, out=np.zeros_like(sets.events), where=sets.at_risk > 0)
    return np.append(0.0, sets.times), np.append(1.0, left.cumprod())


@dataclass(frozen=True)
class Outliers(Order):
    """Scores of an isolation forest; ``actual`` are booleans, or None without labels.

    Attributes
    ----------
    offset : float
        Rows of lower scores are outliers.
    """

    offset: float = -0.5
    _MEASURES = (("ROC AUC", "roc_auc", "of the labels"), ("average precision", "average_precision", "of the labels"))

    @property
    def _labelled(self) -> bool:
        """Whether there are labels of both kinds."""
        return self.actual is not None and bool(self.actual.any() and not self.actual.all())

    def measure(self, measure: str) -> float:
        """Return a measure of the scores by labels."""
        if measure == "roc_auc":
            return area_under_curve(self.actual, -self.predicted, self.weights)
        from sklearn.metrics import average_precision_score

        return float(average_precision_score(self.actual, -self.predicted, sample_weight=self.weight))

    def by_chance(self, measure: str) -> float:
        """Return the measure of equal scores."""
        return 0.5 if measure == "roc_auc" else float(np.average(self.actual, weights=self.weights))

    def scores(self, model: Any) -> tuple[str, list[Score]]:
        """Return in words what the baseline predicts, and the scores: the share of outliers, and those by labels."""
        share = float(np.average(self.predicted < self.offset, weights=self.weights))
        found = Score("share of outliers", share, math.nan, True, f"rows with a score below {self.offset:.4g}")
        return self._BASELINE, [found, *(super().scores(model)[1] if self._labelled else [])]

    def losses(self, model: Any) -> Losses:
        """Return what ROC AUC lacks of 1, NaN without labels."""
        return super().losses(model) if self._labelled else Losses("ROC AUC", total=math.nan)

    def drawings(self) -> Iterator[Drawing]:
        """Yield the distribution of scores."""
        groups = {"rows": self.predicted}
        if self.actual is not None:
            groups = {"other rows": self.predicted[~self.actual], "labelled as outliers": self.predicted[self.actual]}

        def draw(ax: Any) -> None:
            colours, bins = ["#3c82c8", "#d1495b"][: len(groups)], np.histogram_bin_edges(self.predicted, 40)
            ax.hist([*groups.values()], bins, label=[*groups], color=colours, histtype="stepfilled", alpha=0.6)
            ax.axvline(self.offset, color="#303030", linestyle="--", linewidth=1, label="threshold")
            ax.set_yscale("log")
            label(ax, "score", "rows", "best")

        yield "Scores", "Rows on the left of the threshold are outliers.", draw

    def _first(self) -> tuple[NDArray[np.float64], str]:
        return -self.predicted, "lowest score"


def target_of(model: Any, y: Any, predicted: NDArray[np.float64], weight: NDArray[np.float64] | None = None) -> Order:
    """Return the target of a ranker, a survival model or an isolation forest.

    Parameters
    ----------
    model : estimator
    y : array-like
        Relevances and queries, shape (n, 2); events and times, or bounds; labels of outliers or None.
    predicted : ndarray of float64 of shape (n,)
        Predictions; of an isolation forest, scores.
    weight : ndarray of float64 of shape (n,) or None

    Raises
    ------
    ValueError
        If y is not such.
    """
    if (kind := kind_of(model)) == OUTLIERS:
        y = None if y is None else np.asarray(y).ravel()
        if y is not None and not (np.isin(y, (0, 1)).all() or np.isin(y, (-1, 1)).all()):
            raise ValueError("y has labels other than those of outliers; wants 1 or True for outliers and 0 or False for others, or -1, 1")
        outliers: Any = None if y is None else y == (-1 if -1 in y else 1)
        return Outliers("", outliers, predicted, weight, offset=model.offset_)
    y = np.ascontiguousarray(check_target(y, classify=False, name=type(model).__name__, multi_output=kind))
    return (Ranking if kind == QUERIES else Censored)("", y, predicted, weight, loss=model._fitted_loss)


def label(ax: Any, x: str, y: str, legend: str | None = None) -> None:
    """Label axes, with a legend at a place, if any."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(alpha=0.3)
    if legend is not None:
        ax.legend(loc=legend, fontsize="small")
