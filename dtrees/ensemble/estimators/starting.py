"""Initial raw predictions of boosting by row: from an estimator (``init``), or from given scores (``base_margin``)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.ensemble.backend import Table
from dtrees.ensemble.compat import safe_indexing
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.inspection import copy_of
from dtrees.ensemble.estimators.parameters import BoostingParameters
from dtrees.ensemble.evaluation_sets import EvalSet, Start
from dtrees.ensemble.in_process import Backend
from dtrees.ensemble.input.schema import checked_table
from dtrees.ensemble.input.target import as_floats, decode_target
from dtrees.ensemble.objective.loss import LinkedLoss
from dtrees.ensemble.prediction import Predict, Step, by_target

#: The initial prediction of a fitted model: chosen by the loss, zero, from an estimator, or from scores given for each row.
BY_LOSS, ZERO, BY_ESTIMATOR, BY_MARGIN = "loss", "zero", "init", "base_margin"
#: Their descriptions.
STARTS = {BY_LOSS: "what the loss chooses", ZERO: "zero", BY_ESTIMATOR: "an estimator (init)", BY_MARGIN: "base_margin"}


def check_margin(base_margin: Any, n_rows: int, n_outputs: int, name: str = "base_margin") -> NDArray[np.float64]:
    """Return raw scores, one or ``n_outputs`` a row, as float64 of shape (n_outputs, n_rows).

    Raises
    ------
    ValueError
        If they are not numbers, or have another shape.

    Examples
    --------
    >>> check_margin([0.5, 1.0], 2, 1)
    array([[0.5, 1. ]])
    >>> check_margin(0.0, 2, 3).shape
    (3, 2)
    """
    wanted = f"({n_rows},)" if n_outputs == 1 else f"({n_rows}, {n_outputs})"
    margin = as_floats(base_margin, name, f"raw scores of shape {wanted}")
    shape = margin.shape
    if margin.ndim == 0:
        margin = np.full((n_rows, n_outputs), margin)
    if margin.ndim == 1 and n_outputs == 1:
        margin = margin[:, np.newaxis]
    if margin.shape != (n_rows, n_outputs):
        raise ValueError(f"{name} has the shape {shape}; wants raw scores of shape {wanted}, or one number for all")
    if not np.isfinite(margin).all():
        raise ValueError(f"{name} contains NaN or infinity; wants finite raw scores")
    return np.ascontiguousarray(margin.T)


def given_scores(n_outputs: int, X: Any, base_margin: Any) -> NDArray[np.float64]:
    """Return raw scores that are passed with rows of X, shape (n, K)."""
    return check_margin(base_margin, np.shape(X)[0], n_outputs).T


@dataclass(frozen=True)
class InitialEstimator:
    """Raw predictions of a fitted estimator, of which the loss's predictions are those of the estimator."""

    estimator: Any
    loss: LinkedLoss

    def __call__(self, X: Any, base_margin: Any = None) -> NDArray[np.float64]:
        """Return the raw predictions, shape (n, K); an estimator cannot be combined with ``base_margin``.

        Raises
        ------
        ValueError
            If the estimator's predictions do not match the loss.
        """
        X = checked_table(X)
        classify = hasattr(self.estimator, "predict_proba")
        found = self.estimator.predict_proba(X) if classify else self.estimator.predict(X)
        losses = self.loss.by_target
        if classify and losses:
            if not isinstance(found, list) or len(found) != len(losses):
                raise ValueError(
                    f"the estimator passed as init predicts {type(found).__name__} of {len(found)}; wants a list of the probabilities of "
                    f"the classes of each of {len(losses)} targets"
                )
            return np.hstack([self._raw(X, one, loss, classify) for one, loss in zip(found, losses, strict=True)])
        return self._raw(X, found, self.loss, classify)

    def _raw(self, X: Any, found: Any, loss: LinkedLoss, classify: bool) -> NDArray[np.float64]:
        """Convert predictions, or class probabilities of one target, to raw predictions."""
        predicted = np.asarray(found, np.float64)
        if not classify and predicted.ndim == 2 and predicted.shape[1] == 1:
            predicted = predicted[:, 0]
        n_outputs = loss.n_outputs
        n_columns = max(2, n_outputs) if classify else n_outputs
        wanted = (np.shape(X)[0], n_columns) if n_columns > 1 else (np.shape(X)[0],)
        if predicted.shape != wanted or not np.isfinite(predicted).all():
            raise ValueError(
                f"the estimator passed as init predicts an array of shape {predicted.shape} with "
                f"{int((~np.isfinite(predicted)).sum())} values that are not finite; wants finite ones, of shape {wanted}"
            )
        return np.asarray(loss.raw_predictions(predicted), np.float64)


def fit_init(init: Any, X: Any, y: Any, weight: NDArray[np.float64] | None, held_out: NDArray[np.bool_] | None, classes: Any) -> Any:
    """Return a clone of ``init`` fitted to the rows that are not held out.

    Raises
    ------
    ValueError
        If it does not take weights although there are some, or is for another task or other classes.
    """
    if is_classifier(init) if classes is None else is_regressor(init):
        kind = "classifier with predict_proba" if classes is not None else "regressor"
        raise ValueError(f"init is {init!r}; wants a {kind}, as this estimator is one, 'zero' or None")
    if classes is not None and not hasattr(init, "predict_proba"):
        raise ValueError(f"init is {init!r}, which has no predict_proba; wants a classifier that has")
    options = {}
    if weight is not None:
        if not has_fit_parameter(init, "sample_weight"):
            raise ValueError(
                f"The initial estimator {type(init).__name__} does not support sample weights; fit without sample_weight, or pass one that "
                "does as init"
            )
        options["sample_weight"] = weight
    if held_out is not None:
        fitted_rows = np.flatnonzero(~held_out)
        X, y = safe_indexing(X, fitted_rows), safe_indexing(y, fitted_rows)
        options = {name: values[fitted_rows] for name, values in options.items()}
    fitted = clone(init).fit(X, y, **options)
    learnt, wanted = by_target(getattr(fitted, "classes_", None)), by_target(classes)
    if classes is not None and not (len(learnt) == len(wanted) and all(map(np.array_equal, learnt, wanted))):
        raise ValueError(
            f"the estimator passed as init was fitted on the classes {list(fitted.classes_)}; wants all of "
            f"{[labels.tolist() for labels in wanted] if isinstance(classes, list) else classes.tolist()}"
        )
    return fitted


class StartingPoints(BoostingParameters, TreeEstimator):
    """Mixin of boosting: the raw predictions to which trees are added."""

    #: The kind of initial prediction, and the fitted estimator if there is one.
    _starts: str = BY_LOSS
    _init_estimator: Any = None

    @property
    @abstractmethod
    def _fitted_loss(self) -> LinkedLoss:
        """The loss of the fitted trees."""

    @property
    def _init_is_zero(self) -> bool:
        return isinstance(self.init, str) and self.init == "zero"

    def _starting_points(
        self, backend: Backend, table: Table, plan: BoostingPlan, loss: LinkedLoss, *, keep: bool
    ) -> NDArray[np.float64] | None:
        """Return the initial raw predictions, shape (K,) or (K, n_rows); None if the loss chooses them."""
        n_outputs = loss.n_outputs
        if not keep:
            self._init_estimator = None
        self._starts = BY_LOSS
        if table.base_margin is not None:
            self._starts = BY_MARGIN
            return check_margin(table.base_margin, table.n_rows, n_outputs)
        if self.init is None:
            return self._trees.initial if keep else None
        if self._init_is_zero:
            self._starts = ZERO
            return np.zeros(n_outputs)
        self._starts = BY_ESTIMATOR
        if not keep:
            from dtrees.engine.plan.row_draws import combine_weights
            from dtrees.engine.shard.targets.scales import rows_held_out

            target = backend.target(table)
            weight = combine_weights(backend.weight(table), plan.class_weight, target)
            held_out = rows_held_out(plan, target, weight)
            labels = decode_target(target, table.classes)
            self._init_estimator = fit_init(self.init, table.X, labels, weight, held_out, table.classes)
        return np.ascontiguousarray(InitialEstimator(self._init_estimator, loss)(table.X).T)

    def _start_of(self, given: EvalSet, loss: LinkedLoss) -> Start | None:
        """Return the function for initial raw predictions of an evaluation set; None if all rows have the same."""
        if (given.base_margin is not None) != (self._starts == BY_MARGIN):
            raise ValueError(
                f"eval_set {given.name!r} has {'a' if given.base_margin is not None else 'no'} base_margin, unlike the rows that are "
                "fitted; wants tuples (X, y, weight, base_margin) where fit is given base_margin, and only there"
            )
        return self._start(loss)

    def _start(self, loss: LinkedLoss) -> Start | None:
        """Return the function for initial raw predictions of rows; None if all rows have the same."""
        if self._starts == BY_MARGIN:
            return partial(given_scores, loss.n_outputs)
        return InitialEstimator(self._init_estimator, loss) if self._starts == BY_ESTIMATOR else None

    def _predictor(self, *steps: Step, n_rounds: int | None = None) -> Predict:
        predictor = super()._predictor(*steps, n_rounds=n_rounds)
        if self._starts == BY_MARGIN and self._margin is None:
            raise ValueError(
                "the model was fitted with base_margin, so its trees predict only what is added to these scores; pass base_margin "
                "along with X (0 for the trees alone)"
            )
        by_row = self._starts in (BY_ESTIMATOR, BY_MARGIN)
        return replace(predictor, start=self._start(self._fitted_loss)) if by_row else predictor

    def _starting_from(self, base_margin: Any) -> Self:
        """Return a view of the model that predicts with given raw scores of the rows of X."""
        if base_margin is None:
            return self
        check_is_fitted(self)
        if self._starts != BY_MARGIN:
            raise ValueError("base_margin is given, but the model was fitted without; its trees start from init_, leave base_margin out")
        view: Self = copy_of(self)
        view._margin = base_margin
        return view
