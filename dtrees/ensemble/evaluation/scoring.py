"""What rows are scored by for early stopping with ``n_iter_no_change``, where it is not the loss: the parameter ``scoring``.

A scorer of scikit-learn is asked for the function that it wraps. Any other callable is called as scikit-learn calls scorers, with an
estimator and X. Both stand in for the real ones: the model is under way, and its rows may be spread over workers, so the predictions of
the rows are all that there is.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from dtrees.ensemble.compat import scorer_named, sklearn_metric
from dtrees.ensemble.evaluation.metrics import Block, CustomMetric, metric_name
from dtrees.ensemble.objective.loss import LinkedLoss


@dataclass(frozen=True)
class HeldOutScore:
    """A scorer of scikit-learn, asked of raw predictions; see :class:`dtrees.engine.plan.plans.Scoring`."""

    metric: CustomMetric

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n)."""
        target = target.T  # of several targets, as scikit-learn has them
        block = Block(np.empty((target.shape[0], 0)), target, weight, 0.0)
        return self.metric.value([self.metric.partial(block, raw)], (target, weight))


class OpaqueRows:
    """Stands for X where a scorer of the user's own is called: rows, which predictions are known of, without their columns."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> OpaqueRows:
        numbers = None if isinstance(rows, str | tuple) else self.numbers[rows]
        if not isinstance(numbers, np.ndarray) or numbers.ndim != 1:
            raise TypeError(f"scoring: X[{rows!r:.40}] asks for columns or a single row, but a scorer is given rows without columns")
        return OpaqueRows(numbers)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"scoring: X has no {name!r}: a scorer is given rows without columns, to pass to the estimator's methods")


class ScoredRegressor(RegressorMixin, BaseEstimator):
    """Stands for a regressor where a scorer of the user's own is called: predicts :class:`OpaqueRows`."""

    def __init__(self, raw: NDArray[np.float64], link: LinkedLoss) -> None:
        self.raw, self.link = raw, link

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: OpaqueRows) -> NDArray[Any]:
        """Return predictions of rows, shape (n,) or (n, k)."""
        return np.asarray(self.link.predictions(self.raw[:, X.numbers].T))


class ScoredClassifier(ClassifierMixin, ScoredRegressor):
    """Stands for a classifier where a scorer of the user's own is called."""

    def __init__(self, raw: NDArray[np.float64], link: LinkedLoss, classes: NDArray[Any]) -> None:
        super().__init__(raw, link)
        self.classes, self.classes_ = classes, classes

    def predict(self, X: OpaqueRows) -> NDArray[Any]:
        """Return the labels of the most probable classes, shape (n,)."""
        return np.asarray(self.classes[self.predict_proba(X).argmax(axis=1)])

    def predict_proba(self, X: OpaqueRows) -> NDArray[Any]:
        """Return the probabilities of classes, shape (n, n_classes)."""
        return super().predict(X)

    def decision_function(self, X: OpaqueRows) -> NDArray[Any]:
        """Return raw predictions, shape (n,) or (n, n_classes)."""
        raw = self.raw[:, X.numbers].T
        return raw[:, 0] if raw.shape[1] == 1 else raw


@dataclass(frozen=True)
class EstimatorScore:
    """A callable ``scorer(estimator, X, y)``, asked of raw predictions; see :class:`dtrees.engine.plan.plans.Scoring`.

    ``classes`` are labels, None for regression.
    """

    scorer: Any
    link: LinkedLoss
    classes: NDArray[Any] | None

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n)."""
        raw, y = np.ascontiguousarray(raw), target.T
        estimator = ScoredRegressor(raw, self.link) if self.classes is None else ScoredClassifier(raw, self.link, self.classes)
        weights = {} if weight is None else {"sample_weight": weight}
        found = self.scorer(estimator, OpaqueRows(np.arange(raw.shape[1])), y if self.classes is None else self.classes[y], **weights)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise TypeError(f"scoring {metric_name(self.scorer)!r} returned {found!r:.60}; wants a number") from error


def check_scoring(scoring: Any, *, classify: bool) -> Any:
    """Return the scorer that the parameter asks for, None for the loss.

    Parameters
    ----------
    scoring : str, scorer or None
        "loss", the name of a scorer, or a callable ``scorer(estimator, X, y)``; None is accuracy or R2.
    classify : bool

    Raises
    ------
    ValueError
        If there is no such scorer for this task, or it is a callable of other arguments.
    """
    if isinstance(scoring, str) and scoring == "loss":
        return None
    scorer = scorer_named("accuracy" if classify else "r2", classify) if scoring is None else scoring
    if isinstance(scorer, str):
        scorer = scorer_named(scorer, classify)
    if scorer is None:
        kind = "classification" if classify else "regression"
        raise ValueError(
            f"scoring is {scoring!r}; wants 'loss', None, or a scorer of scikit-learn for {kind} (sklearn.metrics.get_scorer_names)"
        )
    known = sklearn_metric(scorer)
    if (known is None and not _takes_estimator(scorer)) or (known is not None and known.function is scorer):
        raise ValueError(
            f"scoring is {scoring!r}; wants a function of (estimator, X, y), or one of (y_true, y_pred) made a scorer by "
            "sklearn.metrics.make_scorer, which says what is better, or the name of a scorer"
        )
    return scorer


def _takes_estimator(scorer: Any) -> bool:
    """Tell whether a callable takes three arguments by position and needs no more."""
    try:
        inspect.signature(scorer).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # not written in Python, and does not tell
        pass
    return True


def scoring_for(scorer: Any, link: LinkedLoss, classes: NDArray[Any] | None = None) -> HeldOutScore | EstimatorScore | None:
    """Return what the plan is to have; ``link`` is the loss, ``classes`` are the labels of a classifier."""
    if scorer is None:
        return None
    known = sklearn_metric(scorer)
    return EstimatorScore(scorer, link, classes) if known is None else HeldOutScore(CustomMetric(scorer, link, known.name, known))
