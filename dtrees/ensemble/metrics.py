"""How good predictions are: what ``eval_metric`` and ``scoring`` can name, and functions of the user's own.

Rows of evaluation sets lie in blocks, here or on workers. A metric sees each block by itself (:meth:`Metric.partial`) and puts together
what came of them (:meth:`Metric.value`). Two kinds:

means
    of something about each row, weighted. The sums are exact (:mod:`~dtrees.ensemble.objective.kernels`), so that the
    blocks leave no trace, and are all that travels.
of all predictions at once
    ranks (``auc``) and users' functions. The predictions travel, 8 bytes a row (and class, for more than two), and are put together in the
    order of the rows.

Formulas are scikit-learn's, at any number of rows.

Rows held out (``n_iter_no_change``) are scored by ``scoring``, where it is not the loss. A scorer of scikit-learn is asked for the function
that it wraps. Any other callable is called as scikit-learn calls scorers, with an estimator and X. Both stand in for the real ones: the
model is under way, and its rows may be spread over workers, so the predictions of the rows are all that there is.

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
from typing import Any, Protocol

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
        As prediction takes it.
    y : ndarray, shape (n,), or of several targets (n, k)
        float64, or class numbers.
    weight : ndarray of float64, shape (n,), or None
    margin : ndarray of float64, shape (K, n), or None
        Raw predictions that the trees' are added to, beside those that all rows start from.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    margin: NDArray[np.float64] | None = None

    def of_target(self, k: int) -> Block:
        """Return the block of one of several targets."""
        return replace(self, y=np.ascontiguousarray(self.y[:, k]), margin=None)


class Metric(Protocol):
    """A figure for the predictions of all rows of a set."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def needs_rows(self) -> bool:
        """Whether :meth:`value` wants the targets and weights of all rows."""

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return what there is to know of one block, whose raw predictions have the shape (K, n)."""

    def value(self, partials: Sequence[Any], rows: tuple[NDArray[Any], NDArray[np.float64] | None] | None) -> float:
        """Return the metric from all blocks, in the order of the rows; ``rows`` are all targets and weights, where they are needed."""


@dataclass(frozen=True)
class MeanMetric:
    """The weighted mean of a term, or its square root."""

    name: str
    link: LinkedLoss
    needs_rows: bool = False

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the sums of weighted terms and of weights."""
        return _weighted_sums(_TERMS[self.name](self.link, block.y, raw), block.weight)

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Divide sums."""
        from dtrees.ensemble.objective.kernels import ratio

        mean = ratio(sum(total for total, _ in partials), sum(weight for _, weight in partials))
        return math.sqrt(mean) if self.name == "rmse" else mean


@dataclass(frozen=True)
class R2:
    """The coefficient of determination: 1 less the squared error over that of predicting the mean."""

    link: LinkedLoss
    name: str = "r2"
    needs_rows: bool = True

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the weighted sum of squared errors."""
        return _weighted_sums(_squared_error(self.link, block.y, raw), block.weight)[0]

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Compare the sum with that of the squared deviations from the mean; if there are none, 1 for perfect predictions, otherwise 0."""
        from dtrees.ensemble.objective.kernels import ratio

        y, weight = rows
        deviation = y - ratio(*_weighted_sums(y, weight))
        error, squares = sum(partials), _weighted_sums(deviation * deviation, weight)[0]
        return 1.0 - ratio(error, squares) if squares else float(error == 0)


@dataclass(frozen=True)
class MeanOverTargets:
    """The mean of a metric over several targets, as scikit-learn's ``multioutput="uniform_average"``."""

    by_target: tuple[Metric, ...]
    outputs: tuple[slice, ...]

    @property
    def name(self) -> str:
        """What the metric is called."""
        return self.by_target[0].name

    @property
    def needs_rows(self) -> bool:
        """As of the metric of each target."""
        return self.by_target[0].needs_rows

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return what there is to know of each target."""
        return [
            metric.partial(block.of_target(k), raw[mine]) for k, (metric, mine) in enumerate(zip(self.by_target, self.outputs, strict=True))
        ]

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Average over targets."""
        by_target = [None if rows is None else (rows[0][:, k], rows[1]) for k in range(len(self.by_target))]
        values = [metric.value([part[k] for part in partials], by_target[k]) for k, metric in enumerate(self.by_target)]
        return sum(values) / len(values)


@dataclass(frozen=True)
class Auc:
    """Area under the ROC curve; of more than two classes, of each against the others, weighted by how frequent they are."""

    link: LinkedLoss
    name: str = "auc"
    needs_rows: bool = True

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return what ranks the rows: log odds, or the probabilities of each class."""
        return raw.T if raw.shape[0] == 1 else self.link.predictions(raw.T)

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Rank all rows; NaN where only one class is there."""
        scores = np.concatenate(partials)
        y, weight = rows
        weight = np.ones(len(y)) if weight is None else weight
        if scores.shape[1] == 1:
            return area_under_curve(y == 1, scores[:, 0], weight)
        areas = np.array([area_under_curve(y == k, scores[:, k], weight) for k in range(scores.shape[1])])
        frequency = np.bincount(y, weights=weight, minlength=scores.shape[1])
        present = frequency > 0
        return float(np.average(areas[present], weights=frequency[present]))


@dataclass(frozen=True)
class CustomMetric:
    """A callable: ``function(y_true, y_pred, weight) -> float``, a function like scikit-learn's with ``sample_weight``, or a scorer.

    What scikit-learn says of the callable is passed as ``known``.
    """

    function: Callable[..., Any]
    link: LinkedLoss
    name: str
    known: SklearnMetric | None = None
    needs_rows: bool = True

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the predictions."""
        if self.known is not None and self.known.takes_raw:
            return raw[0] if raw.shape[0] == 1 else raw.T
        predicted = self.link.predictions(raw.T)
        if block.y.ndim == 2:  # several targets
            return predicted
        if self.known is not None and self.known.takes_labels and predicted.ndim == 2:
            return predicted.argmax(axis=1)
        return predicted[:, 1] if predicted.ndim == 2 and predicted.shape[1] == 2 else predicted

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Call the function."""
        y, weight = rows
        arguments, named = _arguments(self.function, y, np.concatenate(partials), weight)
        function, sign = (self.function, 1) if self.known is None else (self.known.function, self.known.sign)
        value = function(*arguments, **named)
        try:
            return sign * float(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"the eval_metric {self.name!r} returned {value!r}; wants a number") from error

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of rows held out by raw predictions, shape (K, n); see :class:`dtrees.engine.plan.plans.Scoring`."""
        target = target.T  # of several targets, as scikit-learn has them
        block = Block(np.empty((target.shape[0], 0)), target, weight)
        return self.value([self.partial(block, raw)], (target, weight))


class OfRawPredictions(ABC):
    """Mixin: a score, which is also a metric, of the raw predictions of all rows at once."""

    needs_rows: bool = True

    def partial(self, block: Block, raw: NDArray[np.float64]) -> Any:
        """Return the raw predictions."""
        return raw

    def value(self, partials: Sequence[Any], rows: Any) -> float:
        """Return the score of all rows."""
        return self.score(rows[0].T, np.concatenate(partials, axis=1), rows[1])

    @abstractmethod
    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n); see :class:`dtrees.engine.plan.plans.Scoring`."""


@dataclass(frozen=True)
class OfLoss(OfRawPredictions):
    """A figure that a loss of several columns of y makes of all rows at once (:meth:`~.objective.survival.Censored.measure`)."""

    name: str
    link: Any

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Ask the loss."""
        return float(self.link.measure(self.name, np.ascontiguousarray(target), raw, weight))


def _squared_error(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    error = y - link.predictions(raw.T)
    with np.errstate(over="ignore"):
        return error * error


def _absolute_error(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.abs(y - link.predictions(raw.T))


def _log_loss(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    # As in scikit-learn, probabilities are kept this far from 0.
    smallest = np.finfo(np.float64).eps
    if isinstance(link, BinaryLogLoss | MultinomialLogLoss):  # which is more precise than by way of probabilities
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


def _is_wrong(link: LinkedLoss, y: NDArray[Any], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 - _is_right(link, y, raw)


_TERMS: dict[str, Callable[[Any, NDArray[Any], NDArray[np.float64]], NDArray[np.float64]]] = {
    "rmse": _squared_error,
    "mse": _squared_error,
    "mae": _absolute_error,
    "logloss": _log_loss,
    "error": _is_wrong,
    "accuracy": _is_right,
    "loss": _loss,
}

#: What a regressor and a classifier can be evaluated by.
REGRESSION = ("rmse", "mse", "mae", "r2", "loss")
CLASSIFICATION = ("logloss", "error", "accuracy", "auc", "loss")
#: And by what where y has columns that are one target.
BY_COLUMNS = {"bounds": ("concordance", "loss"), "queries": ("ndcg", "map")}
_OF_LOSSES = {name for names in BY_COLUMNS.values() for name in names} - {"loss"}


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return what a function takes, None where it does not tell: those not written in Python may not."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _arguments(metric: Callable[..., Any], y: Any, predicted: Any, weight: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return how a metric is called: by position, but for the ``sample_weight`` of those that are like scikit-learn's."""
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
    """Return what an estimator's ``eval_metric`` asks for, as a list.

    Parameters
    ----------
    eval_metric : str, callable, list of them, or None
    classify : bool
    default : str
        What None means.
    columns : str
        What the columns of y are (:func:`~dtrees.ensemble.objective.registry.columns_of`).

    Raises
    ------
    ValueError
        If a name is none of those there are, nor of a scorer of scikit-learn for the task, or comes twice.
    TypeError
        If a function takes other arguments.
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
        if (signature := _signature(metric if known is None else known.function)) is not None:
            arguments, named = _arguments(metric, 0, 0, None)
            try:
                signature.bind(*arguments, **named)
            except TypeError as error:
                raise TypeError(
                    f"eval_metric has {metric_name(metric)!r}, which cannot be called ({error}); wants functions "
                    "(y_true, y_pred, weight), or (y_true, y_pred, *, sample_weight) as scikit-learn's"
                ) from error
    given = [metric_name(metric) for metric in asked]
    if not given or len(set(given)) < len(given):
        raise ValueError(f"eval_metric has the names {given}; wants at least one, each once (name functions by their __name__)")
    return asked


def _is_of(metric: Any, names: Iterable[str]) -> bool:
    """Return whether a metric is one of these names, or, of a ranking, one of them at a number of rows."""
    name, at, k = metric.partition("@") if isinstance(metric, str) else ("", "", "")
    return name in names and (not at or (name in BY_COLUMNS["queries"] and k.isdecimal() and int(k) > 0))


def metric_name(metric: str | Callable[..., Any]) -> str:
    """Return what a metric is called."""
    if not callable(metric):
        return metric
    known = sklearn_metric(metric)
    return str(getattr(metric, "__name__", type(metric).__name__)) if known is None else known.name


def greater_is_better(metric: str | Callable[..., Any]) -> bool:
    """Tell which values of a metric are good.

    A callable says it by an attribute of this name. Without one, scikit-learn's say it by its conventions: scores and scorers are
    maximised, errors, losses and deviances minimised.

    Raises
    ------
    ValueError
        If a callable does not say it.
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
    """Return a metric, by one of the names above, that of a scorer, or from a callable; ``link`` is the loss.

    Of several targets, it is the mean over them, but for callables and scorers, which get them all: their shape is (n, k) then.
    """
    if _is_of(metric, _OF_LOSSES) or (metric == "loss" and link.takes_all_rows):
        return OfLoss(str(metric), link)
    if not callable(metric) and metric not in (*REGRESSION, *CLASSIFICATION):
        scorer = scorer_named(metric, classify=True) or scorer_named(metric, classify=False)
        return CustomMetric(scorer, link, metric, sklearn_metric(scorer))
    if callable(metric):
        return CustomMetric(metric, link, metric_name(metric), sklearn_metric(metric))
    if link.by_target:
        return MeanOverTargets(tuple(metric_for(metric, one) for one in link.by_target), outputs_of(link.by_target))
    if metric == "r2":
        return R2(link)
    return Auc(link) if metric == "auc" else MeanMetric(metric, link)


def area_under_curve(positive: NDArray[np.bool_], score: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Return the area under the ROC curve of some rows, NaN unless some are positive and some are not.

    That is the weight of the pairs of a positive and a negative row that are in the right order, those of equal score counting half.

    Examples
    --------
    >>> area_under_curve(np.array([True, False, True]), np.array([0.9, 0.5, 0.5]), np.ones(3))
    0.75
    """
    order = np.argsort(score, kind="stable")
    score, gain, loss = score[order], np.where(positive, weight, 0.0)[order], np.where(positive, 0.0, weight)[order]
    last = np.append(np.flatnonzero(np.diff(score) != 0), len(score) - 1)  # of rows of equal score
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
class EstimatorScore(OfRawPredictions):
    """A callable ``scorer(estimator, X, y)``, asked of raw predictions.

    ``classes`` are labels, None for regression.
    """

    scorer: Any
    link: LinkedLoss
    classes: NDArray[Any] | None

    @property
    def name(self) -> str:
        """What the callable is called."""
        return metric_name(self.scorer)

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Call the function."""
        raw, y = np.ascontiguousarray(raw), target.T
        estimator = ScoredRegressor(raw, self.link) if self.classes is None else ScoredClassifier(raw, self.link, self.classes)
        weights = {} if weight is None else {"sample_weight": weight}
        found = self.scorer(estimator, OpaqueRows(np.arange(raw.shape[1])), y if self.classes is None else self.classes[y], **weights)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise TypeError(f"scoring {metric_name(self.scorer)!r} returned {found!r:.60}; wants a number") from error


def check_scoring(scoring: Any, *, classify: bool, columns: str = "") -> Any:
    """Return the scorer that the parameter asks for, None for the loss.

    Parameters
    ----------
    scoring : str, scorer or None
        "loss", the name of a scorer, or a callable ``scorer(estimator, X, y)``; None is accuracy or R2. For a loss of several columns
        of y, a metric of it.
    classify : bool
    columns : str
        As of :func:`check_metrics`.

    Raises
    ------
    ValueError
        If there is no such scorer for this task, or it is a callable of other arguments.
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
    if (known is None and not _takes_estimator(scorer)) or (known is not None and known.function is scorer):
        raise ValueError(
            f"scoring is {scoring!r}; wants a function of (estimator, X, y), or one of (y_true, y_pred) made a scorer by "
            "sklearn.metrics.make_scorer, which says what is better, or the name of a scorer"
        )
    return scorer


def _takes_estimator(scorer: Any) -> bool:
    """Return whether a callable takes three arguments by position and needs no more."""
    try:
        inspect.signature(scorer).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # not written in Python, and does not tell
        pass
    return True


def scoring_for(scorer: Any, link: LinkedLoss, classes: NDArray[Any] | None = None) -> CustomMetric | EstimatorScore | OfLoss | None:
    """Return what the plan is to have; ``link`` is the loss, ``classes`` are the labels of a classifier."""
    if scorer is None:
        return None
    if isinstance(scorer, str):
        return OfLoss(scorer, link)
    known = sklearn_metric(scorer)
    return EstimatorScore(scorer, link, classes) if known is None else CustomMetric(scorer, link, known.name, known)


# --- what ``score`` and out-of-bag scores measure; NumPy's sums depend on the layout of arrays, so these are put in one layout first ---


@dataclass(frozen=True)
class Score:
    """A figure of a model beside that of a prediction that looks at no column.

    Attributes
    ----------
    name : str
    model, baseline : float
    greater_is_better : bool
        Otherwise it is an error, the smaller the better.
    meaning : str
    """

    name: str
    model: float
    baseline: float
    greater_is_better: bool
    meaning: str = ""

    @property
    def is_better(self) -> bool:
        """Whether the model's is better than the baseline's."""
        return self.model > self.baseline if self.greater_is_better else self.model < self.baseline


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
    """Return the share of rows, or of their weight, all targets of which are predicted correctly.

    For labels of two classes it is :func:`sklearn.metrics.accuracy_score`, which wants no others of several targets.
    """
    true, predicted = (np.asarray(y, dtype=object) for y in (y_true, y_pred))  # labels of lists may be of several kinds
    correct = np.all(true == predicted, axis=1)
    return float(np.average(correct, weights=_in_order(sample_weight)))


def _in_order(values: Any) -> Any:
    """Return numbers as a contiguous, aligned array of float64; anything else as it is."""
    array = np.asarray(values)
    return np.require(array, np.float64, ["C", "A"]) if array.dtype.kind in "biuf" else values
