"""Metrics of predictions: the named values of ``eval_metric`` and ``scoring``, and the user's own functions.

Rows of evaluation sets are in blocks, in this process or on workers. A metric evaluates each block separately (``partial``) and combines
the results in row order (``value``), with the targets and weights of all rows if it asks for them (``rows()``). There are two kinds:

means
    weighted means over rows. The sums are exact (:mod:`~dtrees.ensemble.objective.kernels`), so that they do not depend on blocks, and
    only sums are sent.
functions of all predictions
    ranks (``auc``) and users' functions. Raw predictions are sent, 8 bytes a row (and class, for more than two), and joined in row order.

Formulas are those of scikit-learn, for any number of rows.

Held-out rows (``n_iter_no_change``) are scored by ``scoring``, unless it is the loss. For a scorer of scikit-learn, the wrapped function is
called. Any other callable is called like a scorer, with substitutes for the estimator and X that only have the predictions of the rows: the
model is unfinished, and its rows may be spread over workers.

>>> import numpy as np
>>> from dtrees.ensemble.objective.classification import BinaryLogLoss
>>> block = Block(X=np.empty((3, 0)), y=np.array([0, 1, 1]), weight=None)
>>> raw = np.array([[-2.0, 1.0, -1.0]])  # log odds
>>> metric = metric_for("error", BinaryLogLoss())
>>> metric.value([metric.partial(block, raw)], None)
0.3333333333333333
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from dtrees.ensemble.compat import SklearnMetric, scorer_named, sklearn_metric
from dtrees.ensemble.objective.classification import BinaryLogLoss, MultinomialLogLoss
from dtrees.ensemble.objective.loss import LinkedLoss, outputs_of


@dataclass(frozen=True)
class Block:
    """Consecutive rows of an evaluation set.

    Attributes
    ----------
    X : ndarray of float32 or float64, shape (n, n_features)
        In the form for prediction.
    y : ndarray, shape (n,) or, for several targets, (n, k)
        float64, or class numbers.
    weight : ndarray of float64, shape (n,), or None
    margin : ndarray of float64, shape (K, n), or None
        Raw predictions of each row to which the trees are added, besides the common initial prediction.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    margin: NDArray[np.float64] | None = None

    def of_target(self, k: int) -> Block:
        """Return the block of one target."""
        return replace(self, y=np.ascontiguousarray(self.y[:, k]), margin=None)


@dataclass(frozen=True)
class MeanMetric:
    """The weighted mean of a term, or its square root."""

    name: str
    link: LinkedLoss

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the sums of weighted terms and of weights."""
        return _weighted_sums(_TERMS[self.name](self.link, block.y, raw), block.weight)

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Return the quotient of the sums."""
        from dtrees.ensemble.objective.kernels import ratio

        mean = ratio(sum(total for total, _ in partials), sum(weight for _, weight in partials))
        return math.sqrt(mean) if self.name == "rmse" else mean


class R2(MeanMetric):
    """The coefficient of determination: 1 minus the ratio of the squared error to that of predicting the mean."""

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Compare the sum with the squared deviations from the mean; if these are 0, return 1 for perfect predictions, otherwise 0."""
        from dtrees.ensemble.objective.kernels import ratio

        y, weight = rows()
        deviation = y - ratio(*_weighted_sums(y, weight))
        error, squares = sum(total for total, _ in partials), _weighted_sums(deviation * deviation, weight)[0]
        return 1.0 - ratio(error, squares) if squares else float(error == 0)


@dataclass(frozen=True)
class MeanOverTargets:
    """The mean of a metric over multi-output targets, like scikit-learn's ``multioutput="uniform_average"``."""

    name: str
    by_target: tuple[Metric, ...]
    outputs: tuple[slice, ...]

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the partial results of each target."""
        return [
            metric.partial(block.of_target(k), raw[mine]) for k, (metric, mine) in enumerate(zip(self.by_target, self.outputs, strict=True))
        ]

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Return the mean over targets."""
        each = enumerate(self.by_target)
        values = [metric.value([part[k] for part in partials], lambda k=k: (rows()[0][:, k], rows()[1])) for k, metric in each]
        return sum(values) / len(values)


class OfRawPredictions(ABC):
    """Mixin: a score, and metric, that depends on the raw predictions of all rows."""

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the raw predictions."""
        return raw

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Return the score of all rows."""
        y, weight = rows()
        return self.score(y.T, np.concatenate(partials, axis=1), weight)

    @abstractmethod
    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n); see :class:`dtrees.engine.plan.plans.Scoring`."""


@dataclass(frozen=True)
class Auc(OfRawPredictions):
    """Area under the ROC curve; for more than two classes, of each class against the others, weighted by frequency."""

    name: str
    link: LinkedLoss

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Rank all rows by log odds, or by the probabilities of each class; NaN if only one class occurs."""
        weight = np.ones(len(target)) if weight is None else weight
        if raw.shape[0] == 1:
            return area_under_curve(target == 1, raw[0], weight)
        shares = self.link.predictions(raw.T)
        areas = np.array([area_under_curve(target == k, shares[:, k], weight) for k in range(shares.shape[1])])
        frequency = np.bincount(target, weights=weight, minlength=shares.shape[1])
        present = frequency > 0
        return float(np.average(areas[present], weights=frequency[present]))


@dataclass(frozen=True)
class CustomMetric(OfRawPredictions):
    """A callable: ``function(y_true, y_pred, weight) -> float``, a function like scikit-learn's with ``sample_weight``, or a scorer.

    ``known`` has scikit-learn's properties of the callable.
    """

    function: Callable[..., Any]
    link: LinkedLoss
    name: str
    known: SklearnMetric | None = None

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Call the function; multi-output targets have scikit-learn's layout."""
        arguments, named = _arguments(self.function, target.T, self._predicted(raw, several=target.ndim == 2), weight)
        function, sign = (self.function, 1) if self.known is None else (self.known.function, self.known.sign)
        return sign * _as_number(function(*arguments, **named), f"the eval_metric {self.name!r}")

    def _predicted(self, raw: NDArray[np.float64], *, several: bool) -> NDArray[Any]:
        """Return what the function compares with targets, of which there may be several."""
        if self.known is not None and self.known.takes_raw:
            return raw[0] if raw.shape[0] == 1 else raw.T
        predicted = self.link.predictions(raw.T)
        if several or predicted.ndim == 1:
            return predicted
        if self.known is not None and self.known.takes_labels:
            return predicted.argmax(axis=1)
        return np.ascontiguousarray(predicted[:, 1]) if predicted.shape[1] == 2 else predicted


@dataclass(frozen=True)
class OfLoss(OfRawPredictions):
    """A metric of all rows that is computed by a loss of several columns of y (:meth:`~.objective.survival.Censored.measure`)."""

    name: str
    link: Any

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the loss's result."""
        return float(self.link.measure(self.name, np.ascontiguousarray(target), raw, weight))


def _as_number(value: Any, what: str) -> float:
    """Return the result of a user's function, which must be a number."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} returned {value!r:.60}; wants a number") from error


def _squared_error(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    error = y - link.predictions(raw.T)
    with np.errstate(over="ignore"):
        return error * error


def _log_loss(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    # As in scikit-learn, probabilities are at least this large.
    smallest = np.finfo(np.float64).eps
    if isinstance(link, BinaryLogLoss | MultinomialLogLoss):  # more precise than from probabilities
        losses = np.empty(y.shape[0])
        link.pointwise(y, raw, losses)
        return np.minimum(losses, -math.log(smallest))
    from dtrees.split.numbers.elementary import log  # imports Numba

    return -log(np.clip(link.predictions(raw.T)[np.arange(y.shape[0]), y], smallest, 1.0))


def _loss(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    target = np.ascontiguousarray(y.T)
    link.check(target)
    losses = np.empty(y.shape[0])
    link.pointwise(target, raw, losses)
    return losses


def _is_right(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return (link.predictions(raw.T).argmax(axis=1) == y).astype(np.float64)


_TERMS: dict[str, Callable[[Any, NDArray[Any], NDArray[np.float64]], NDArray[np.float64]]] = {
    "rmse": _squared_error,
    "mse": _squared_error,
    "r2": _squared_error,
    "mae": lambda link, y, raw: np.abs(y - link.predictions(raw.T)),
    "logloss": _log_loss,
    "error": lambda link, y, raw: 1.0 - _is_right(link, y, raw),
    "accuracy": _is_right,
    "loss": _loss,
}

#: Names of metrics for regressors and for classifiers.
REGRESSION = ("rmse", "mse", "mae", "r2", "loss")
CLASSIFICATION = ("logloss", "error", "accuracy", "auc", "loss")
#: Names of metrics if columns of y form one target.
BY_COLUMNS = {"bounds": ("concordance", "loss"), "queries": ("ndcg", "map")}
_OF_LOSSES = {name for names in BY_COLUMNS.values() for name in names} - {"loss"}


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, None if it is unknown, as for some functions not written in Python."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _mismatch(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> TypeError | None:
    """Return the error of a call with these arguments; None if there is none, or the signature is unknown."""
    if (signature := _signature(function)) is not None:
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            return error
    return None


def _arguments(metric: Callable[..., Any], y: Any, predicted: Any, weight: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments for calling a metric: positional, except the ``sample_weight`` of functions like scikit-learn's."""
    known = sklearn_metric(metric)
    signature = _signature(metric if known is None else known.function)
    if signature is not None and "sample_weight" in signature.parameters:
        return (y, predicted), {"sample_weight": weight}
    if known is not None:
        if weight is not None:
            raise TypeError(
                f"the eval_metric {known.name!r} takes no sample_weight, but the evaluation set has weights; wants one that does"
            )
        return (y, predicted), {}
    return (y, predicted, weight), {}


def check_metrics(eval_metric: Any, *, classify: bool, default: str, columns: str = "") -> list[str | Callable[..., Any]]:
    """Return the metrics of an estimator's ``eval_metric`` as a list.

    Parameters
    ----------
    eval_metric : str, callable, list of them, or None
    classify : bool
    default : str
        The metric for None.
    columns : str
        The meaning of the columns of y (:func:`~dtrees.ensemble.objective.registry.columns_of`).

    Raises
    ------
    ValueError
        If a name is unknown, is not a scorer of scikit-learn for the task, or occurs twice.
    TypeError
        If a function has other arguments.
    """
    names = BY_COLUMNS.get(columns) or (CLASSIFICATION if classify else REGRESSION)
    asked = [default] if eval_metric is None else [*eval_metric] if isinstance(eval_metric, list | tuple) else [eval_metric]
    for metric in asked:
        if columns and not callable(metric) and not _is_of(metric, names):
            more = " (or of the first k rows, as in 'ndcg@5')" * (columns == "queries")
            raise ValueError(
                f"eval_metric has {metric!r}; wants, for this loss, some of {', '.join(names)}{more}, or functions (y, prediction, weight)"
            )
        if not (columns or callable(metric) or metric in names or (isinstance(metric, str) and scorer_named(metric, classify))):
            kind = "classification" if classify else "regression"
            raise ValueError(
                f"eval_metric has {metric!r}; wants, for {kind}, some of {', '.join(names)}, names of scorers of scikit-learn "
                "(sklearn.metrics.get_scorer_names), or functions (y, prediction, weight)"
            )
        if not callable(metric):
            continue
        known = sklearn_metric(metric)
        error = _mismatch(metric if known is None else known.function, *_arguments(metric, 0, 0, None))
        if error is not None:
            raise TypeError(
                f"eval_metric has {metric_name(metric)!r}, which cannot be called ({error}); wants functions "
                "(y_true, y_pred, weight), or (y_true, y_pred, *, sample_weight) as scikit-learn's"
            ) from error
    given = [metric_name(metric) for metric in asked]
    if not given or len(set(given)) < len(given):
        raise ValueError(f"eval_metric has the names {given}; wants at least one, each once (name functions by their __name__)")
    return asked


def _is_of(metric: Any, names: Iterable[str]) -> bool:
    """Return whether a metric is one of the names or, for rankings, one of them with a number of rows."""
    name, at, k = metric.partition("@") if isinstance(metric, str) else ("", "", "")
    return name in names and (not at or (name in BY_COLUMNS["queries"] and k.isdecimal() and int(k) > 0))


def metric_name(metric: str | Callable[..., Any]) -> str:
    """Return the name of a metric."""
    if not callable(metric):
        return metric
    known = sklearn_metric(metric)
    return str(getattr(metric, "__name__", type(metric).__name__)) if known is None else known.name


def greater_is_better(metric: str | Callable[..., Any]) -> bool:
    """Return whether greater values of a metric are better.

    A callable states this by an attribute of this name. scikit-learn's callables follow its conventions: scores and scorers are maximised,
    errors, losses and deviances minimised.

    Raises
    ------
    ValueError
        If a callable does not state it.
    """
    if not callable(metric):
        return metric in ("r2", "accuracy", "auc") or metric not in (*REGRESSION, *CLASSIFICATION)  # scorers are maximised
    said = getattr(metric, "greater_is_better", None)
    if said is None and (known := sklearn_metric(metric)) is not None:
        said = known.greater_is_better
    if not isinstance(said, bool | np.bool_):
        name = metric_name(metric)
        raise ValueError(
            f"eval_metric has {name!r}, which does not say whether more of it is better, so that it cannot decide when to stop; set its "
            f"attribute greater_is_better to True or False ({name}.greater_is_better = False for an error), or let another metric decide"
        )
    return bool(said)


def metric_for(metric: str | Callable[..., Any], link: LinkedLoss) -> Metric:
    """Return a metric, given its name, the name of a scorer, or a callable; ``link`` is the loss.

    For multi-output targets, it is the mean over targets; callables and scorers get all targets, of shape (n, k).
    """
    if _is_of(metric, _OF_LOSSES) or (metric == "loss" and link.takes_all_rows):
        return OfLoss(str(metric), link)
    if not callable(metric) and metric not in (*REGRESSION, *CLASSIFICATION):
        scorer = scorer_named(metric, classify=True) or scorer_named(metric, classify=False)
        return CustomMetric(scorer, link, metric, sklearn_metric(scorer))
    if callable(metric):
        return CustomMetric(metric, link, metric_name(metric), sklearn_metric(metric))
    if link.by_target:
        return MeanOverTargets(metric, tuple(metric_for(metric, one) for one in link.by_target), outputs_of(link.by_target))
    kind: type[MeanMetric | Auc] = R2 if metric == "r2" else Auc if metric == "auc" else MeanMetric
    return kind(metric, link)


def area_under_curve(positive: NDArray[np.bool_], score: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Return the area under the ROC curve, NaN unless there are positive and negative rows.

    It is the weighted share of pairs of a positive and a negative row in the right order; pairs with equal scores count half.

    Examples
    --------
    >>> area_under_curve(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]), np.ones(3))
    0.75
    """
    order = np.argsort(score, kind="stable")
    score, gain, loss = score[order], np.where(positive, weight, 0.0)[order], np.where(positive, 0.0, weight)[order]
    last = np.append(np.flatnonzero(np.diff(score) != 0), len(score) - 1)  # last row of each group of equal scores
    gains, losses = (np.diff(np.cumsum(x)[last], prepend=0.0) for x in (gain, loss))
    below = np.cumsum(losses) - losses
    total = gains.sum() * losses.sum()
    return float((gains * (below + losses / 2)).sum() / total) if total > 0 else math.nan


def _weighted_sums(terms: NDArray[np.float64], weight: NDArray[np.float64] | None) -> tuple[Any, Any]:
    from dtrees.ensemble.objective.kernels import exact_sum

    if weight is None:
        return exact_sum(terms), len(terms)
    with np.errstate(over="ignore"):
        return exact_sum(terms * weight), exact_sum(weight)


class OpaqueRows:
    """A substitute for X in calls of a user's scorer: rows with known predictions, without columns."""

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
    """A substitute for a regressor in calls of a user's scorer: predicts :class:`OpaqueRows`."""

    def __init__(self, raw: NDArray[np.float64], link: LinkedLoss) -> None:
        self.raw, self.link = raw, link

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: OpaqueRows) -> NDArray[Any]:
        """Return predictions of rows, shape (n,) or (n, k)."""
        return np.asarray(self.link.predictions(self.raw[:, X.numbers].T))


class ScoredClassifier(ClassifierMixin, ScoredRegressor):
    """A substitute for a classifier in calls of a user's scorer."""

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
class EstimatorScore(OfRawPredictions):
    """A callable ``scorer(estimator, X, y)``, applied to raw predictions.

    ``classes`` are labels, None for regression.
    """

    scorer: Any
    link: LinkedLoss
    classes: NDArray[Any] | None
    name: str

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Call the function."""
        raw, y = np.ascontiguousarray(raw), target.T
        estimator = ScoredRegressor(raw, self.link) if self.classes is None else ScoredClassifier(raw, self.link, self.classes)
        weights = {} if weight is None else {"sample_weight": weight}
        found = self.scorer(estimator, OpaqueRows(np.arange(raw.shape[1])), y if self.classes is None else self.classes[y], **weights)
        return _as_number(found, f"scoring {self.name!r}")


#: A number that evaluates the predictions of all rows of a set.
Metric = MeanMetric | MeanOverTargets | Auc | CustomMetric | OfLoss | EstimatorScore


def check_scoring(scoring: Any, *, classify: bool, columns: str = "") -> Any:
    """Return the scorer of the parameter ``scoring``, None for the loss.

    Parameters
    ----------
    scoring : str, scorer or None
        "loss", the name of a scorer, or a callable ``scorer(estimator, X, y)``; None is accuracy or R2. For a loss of several columns of y,
        one of its metrics.
    classify : bool
    columns : str
        See :func:`check_metrics`.

    Raises
    ------
    ValueError
        If there is no such scorer for this task, or a callable has other arguments.
    """
    if isinstance(scoring, str) and scoring == "loss":
        return None
    if columns and not callable(scoring):
        names = [name for name in BY_COLUMNS[columns] if name != "loss"]
        if scoring is not None and scoring not in names:
            raise ValueError(f"scoring is {scoring!r}; wants, for this loss, {' or '.join(map(repr, names))}, 'loss', None or a callable")
        return scoring or names[0]
    scorer = scorer_named("accuracy" if classify else "r2", classify) if scoring is None else scoring
    if isinstance(scorer, str):
        scorer = scorer_named(scorer, classify)
    if scorer is None:
        kind = "classification" if classify else "regression"
        raise ValueError(f"scoring is {scoring!r}; wants 'loss', None, or a scorer for {kind} (sklearn.metrics.get_scorer_names)")
    known = sklearn_metric(scorer)
    unfit = _mismatch(scorer, (None, None, None), {}) is not None if known is None else known.function is scorer
    if unfit:
        raise ValueError(
            f"scoring is {scoring!r}; wants a function of (estimator, X, y), or one of (y_true, y_pred) made a scorer by "
            "sklearn.metrics.make_scorer, which says what is better, or the name of a scorer"
        )
    return scorer


def scoring_for(scorer: Any, link: LinkedLoss, classes: NDArray[Any] | None = None) -> Any:
    """Return the scoring of the plan, None for the loss; ``link`` is the loss, ``classes`` are the labels of a classifier."""
    if callable(scorer) and sklearn_metric(scorer) is None:
        return EstimatorScore(scorer, link, classes, metric_name(scorer))
    return None if scorer is None else metric_for(scorer, link)


# --- scores of ``score`` and of out-of-bag predictions; arrays are converted to one layout first, on which NumPy's sums depend ---


@dataclass(frozen=True)
class Score:
    """A score of a model, and that of a constant prediction as a baseline.

    Attributes
    ----------
    name : str
    model, baseline : float
        The baseline is NaN where there is none.
    greater_is_better : bool
        Otherwise it is an error, for which smaller is better.
    meaning : str
    """

    name: str
    model: float
    baseline: float
    greater_is_better: bool
    meaning: str = ""

    @property
    def verdict(self) -> str:
        """Return "good" or "bad", or "" without a baseline."""
        is_better = self.model > self.baseline if self.greater_is_better else self.model < self.baseline
        return "" if math.isnan(self.baseline) else "good" if is_better else "bad"


def r2_score(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Return :func:`sklearn.metrics.r2_score`."""
    from sklearn import metrics

    return float(metrics.r2_score(_in_order(y_true), _in_order(y_pred), sample_weight=_in_order(sample_weight)))


def pinball_score(alphas: Sequence[float], y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Return the mean of :func:`sklearn.metrics.d2_pinball_score` over quantiles, each a column of the predictions."""
    from sklearn import metrics

    y, weight = _in_order(y_true), _in_order(sample_weight)
    each = zip(alphas, np.asarray(y_pred).T, strict=True)
    return float(np.mean([metrics.d2_pinball_score(y, _in_order(mine), sample_weight=weight, alpha=alpha) for alpha, mine in each]))


def accuracy_score(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Return :func:`sklearn.metrics.accuracy_score`."""
    from sklearn import metrics

    return float(metrics.accuracy_score(y_true, y_pred, sample_weight=_in_order(sample_weight)))


def subset_accuracy(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
    """Return the weighted share of rows for which all targets are predicted correctly.

    It extends :func:`sklearn.metrics.accuracy_score`, which supports several targets only with two classes each.
    """
    true, predicted = (np.asarray(y, dtype=object) for y in (y_true, y_pred))  # labels may be of several kinds
    correct = np.all(true == predicted, axis=1)
    return float(np.average(correct, weights=_in_order(sample_weight)))


def _in_order(values: Any) -> Any:
    """Convert numbers to a contiguous, aligned array of float64; return others unchanged."""
    array = np.asarray(values)
    return np.require(array, np.float64, ["C", "A"]) if array.dtype.kind in "biuf" else values
