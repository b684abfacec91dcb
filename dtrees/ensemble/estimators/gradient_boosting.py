"""The boosting estimators: for regression, with survival analysis, for classification, and for rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plan.plans import Callback
from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.callbacks import EarlyStopping, Monitor
from dtrees.ensemble.compat import Hidden, Interval, StrOptions
from dtrees.ensemble.estimators.base import FitOptions, all_or_nothing
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.base_kinds import Classifier, Regressor
from dtrees.ensemble.estimators.intervals import CalibratedIntervals
from dtrees.ensemble.estimators.parameters import INSIDE_ONE, POSITIVE_INTEGER, ClassWeight, parameter, with_parameters
from dtrees.ensemble.evaluation_sets import named_sets
from dtrees.ensemble.in_process import Backend, backend_for, in_memory
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.target import as_floats
from dtrees.ensemble.metrics import BY_COLUMNS, CLASSIFICATION, OfLoss
from dtrees.ensemble.objective import registry
from dtrees.ensemble.objective.loss import naming_target
from dtrees.ensemble.objective.survival import baseline, survival
from dtrees.ensemble.prediction import Step, by_target, first_column

#: The loss with a baseline hazard.
COX = "cox"


class BoostedValues(Regressor, Boosting):
    """Base class of boosting for values and for rankings."""

    @property
    def _metric(self) -> Callable[..., float]:
        return self._measured_by_loss if self._columns_of_target else super()._metric

    def _measured_by_loss(self, y: NDArray[Any], predicted: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> float:
        """Return the score of predictions by a loss of several columns of y."""
        name = BY_COLUMNS[self._columns_of_target][0]  # only the order of rows counts
        return OfLoss(name, self._fitted_loss).score(y.T, np.asarray(predicted)[np.newaxis], sample_weight)

    def _constant(self, value: NDArray[np.float64]) -> Any:
        return DummyRegressor().fit(np.zeros((1, self.n_features_in_)), value)

    @property
    def _quantiles(self) -> tuple[float, ...]:
        alpha = self._loss_parameters.get("alpha")
        return alpha if isinstance(alpha, tuple) else ()


class Surviving(Boosting):
    """Mixin of boosting: survival analysis, with the losses "cox" and "aft".

    Attributes
    ----------
    event_times_ : ndarray of float64 of shape (n_times,)
        Times of events of the training rows, ascending; only with ``loss="cox"``.
    cumulative_baseline_hazard_ : ndarray of float64 of shape (n_times,)
        Breslow's estimate of the cumulative hazard at these times, for a row with a prediction of 1.
    """

    event_times_: NDArray[np.float64]
    cumulative_baseline_hazard_: NDArray[np.float64]

    def _set_loss_attributes(self, backend: Backend, table: Table, X: Any, base_margin: Any) -> None:
        """Set the baseline hazard, for which the rows are predicted again."""
        if self._loss_name == COX:
            model = self._starting_from(base_margin)
            raw = in_memory(model._map(X, model._predictor(first_column), Output(np.dtype(np.float64))))[0]
            target = np.ascontiguousarray(backend.target(table).T)
            self.event_times_, self.cumulative_baseline_hazard_ = baseline(target, np.asarray(raw), backend.weight(table))

    def predict_survival_function(self, X: Any, times: Any = None, base_margin: Any = None) -> Any:
        """Predict the probability that the event has not occurred by given times.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        times : array-like of shape (n_times,) or None, default=None
            Times, at least 0. None means ``event_times_``, which exist with ``loss="cox"``.
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Returns
        -------
        ndarray of float64 of shape (n, n_times)
            A lazy Dask collection if X is one.

        Raises
        ------
        ValueError
            If the loss is neither "cox" nor "aft", or ``times`` are not numbers of at least 0.

        Examples
        --------
        >>> import numpy as np
        >>> from dtrees import GradientBoostingRegressor
        >>> X = np.repeat([[0.0], [1.0]], 50, axis=0)
        >>> bounds = np.column_stack([np.where(X[:, 0] == 0, 1.0, 4.0), np.where(np.arange(100) % 10 == 0, np.inf, 5.0)])
        >>> model = GradientBoostingRegressor(loss="aft", aft_loss_distribution="logistic").fit(X, bounds)
        >>> model.predict_survival_function([[0.0], [1.0]], [1.0, 10.0]).shape
        (2, 2)
        """
        check_is_fitted(self)
        if registry.columns_of(self._loss_name) != "bounds":
            raise ValueError(f"predict_survival_function is for loss='cox' and loss='aft', but the model has loss={self._loss_name!r}")
        if times is None and self._loss_name != COX:
            raise ValueError("times is None; wants times for loss='aft', which keeps none")
        if self._loss_name == COX and not hasattr(self, "event_times_"):
            raise ValueError(
                "this is a slice or a refit of a model, whose baseline hazard is that of the whole model; use the whole model, or fit again"
            )
        at = np.atleast_1d(self.event_times_ if times is None else as_floats(times, "times", "numbers of at least 0"))
        if at.ndim != 1 or not (at >= 0.0).all():
            raise ValueError(f"times is {times!r:.60}; wants numbers of at least 0, of shape (n_times,)")
        hazard = None
        if self._loss_name == COX:
            hazard = np.append(0.0, self.cumulative_baseline_hazard_)[np.searchsorted(self.event_times_, at, side="right")]
        model, step = self._starting_from(base_margin), partial(survival, self._fitted_loss, at, hazard)
        output = Output(np.dtype(np.float64), len(at), "predict_survival_function", tuple(at.tolist()))
        return model._map(X, model._predictor(step), output)


@with_parameters
class GradientBoostingRegressor(CalibratedIntervals, Surviving, BoostedValues):
    """Gradient boosting for regression, with exact splits.

    Trees are added one after the other, each fitted to the gradients of the loss at the current predictions: one tree per round, or one for
    each target if y has several columns.

    Parameters
    ----------
    loss : str or callable
        Loss that is minimised. "squared_error" is for means; "absolute_error", "quantile" (the pinball loss of ``alpha``) and "huber"
        (squared error of residuals up to the ``alpha``-quantile of their sizes, absolute error of larger ones) are for medians, quantiles,
        and means that outliers hardly move. For the latter, splits are found by gradients, each with a hessian of 1, and leaves hold exact
        weighted medians or quantiles of residuals (inner nodes, steps along gradients), so that ``reg_lambda`` affects splits only [1]_.
        "poisson", "gamma" and "tweedie" (of ``tweedie_variance_power``) are deviances, for counts and amounts: trees add up to the
        logarithms of predictions; targets must not be negative, and must be positive for "gamma". Gradients are those of half the squared
        error or half the deviance; scores are not halved. "cox" (the partial likelihood of proportional hazards, with Breslow's ties) and
        "aft" (the likelihood of accelerated failure times) are for times of events that may be censored. ``y`` then has the event (boolean)
        and the time, as a structured array or a frame, or lower and upper bounds, as numbers of shape (n, 2): equal if the event was
        observed, with an infinite upper bound if it was not; "aft" takes any bounds. Predictions are factors of the hazard, or median
        times. With multi-output targets, each output has the loss, and scores are means over them; survival losses take one target. A
        function ``objective(y, raw, weight)`` returns gradient and hessian, each of shape (n,), with the weights multiplied in, for all
        rows in their order; held-out rows are included with a weight of 0. ``raw`` are raw predictions, which are the predictions here and
        start from zero; ``weight`` may be None. For k targets, ``y``, ``raw``, gradient and hessian have shape (n, k). cloudpickle sends
        the function to workers; a model file keeps the trees, and calls the loss "custom".
    alpha : float or array-like of floats
        Quantile that is predicted, for "quantile"; share of the residuals that count as small, for "huber". For several quantiles, in
        ascending order, each round grows one tree per quantile, independently of the others; ``predict`` returns a column for each. The
        predicted quantiles of a row are sorted, so that they never cross, which never makes the pinball loss larger [2]_.
    tweedie_variance_power : float
        Power of the mean in which the variance grows, for "tweedie": between 1 (Poisson) and 2 (gamma), both excluded.
    aft_loss_distribution : {"normal", "logistic", "extreme"}
        Distribution of the errors of log(time), for "aft": times are then lognormal, loglogistic or Weibull.
    aft_loss_distribution_scale : float
        Factor of these errors, for "aft".
    eval_metric : str, callable, list of them, or None
        Metrics of evaluation sets, by scikit-learn's formulas: "rmse", "mse", "mae", "r2", "loss" (the one that is minimised; not for
        "huber", which changes in each round), a function ``(y_true, y_pred, weight) -> float`` of all rows of a set, where ``weight`` may
        be None, a function of :mod:`sklearn.metrics`, a scorer, or the name of one. For early stopping, a function states by its attribute
        ``greater_is_better`` (True or False) which direction is better; scikit-learn's do so by their names. None means "rmse" for
        "squared_error" and functions, "mae" for "absolute_error" and "huber", and "loss" otherwise. For multi-output targets, the metric is
        the mean over them; functions and scorers get arrays of shape (n, k). "cox" and "aft" have "concordance" (Harrell's index; None for
        "cox") and "loss"; functions get the bounds, shape (n, 2).

    References
    ----------
    .. [1] J. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29(5), 2001, algorithms 3 and 4.
    .. [2] V. Chernozhukov, I. Fernandez-Val and A. Galichon, "Quantile and probability curves without crossing", Econometrica 78(3), 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingRegressor
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> y = np.where(X[:, 0] < 10, 1.0, 3.0)
    >>> GradientBoostingRegressor().fit(X, y).predict([[2.0], [15.0]]).round(1)
    array([1., 3.])
    >>> y[::4] = 100.0
    >>> GradientBoostingRegressor(loss="absolute_error").fit(np.where(X < 10, 0, 1), y).predict([[0.0], [1.0]]).round(1)
    array([1., 3.])
    >>> GradientBoostingRegressor(loss="quantile", alpha=[0.1, 0.9]).fit(np.where(X < 10, 0, 1), y).predict([[0.0]]).round(1)
    array([[  1., 100.]])
    """

    loss: Any = parameter(default="squared_error", allowed=[StrOptions(registry.REGRESSION), callable, Hidden(StrOptions({registry.NAME}))])
    alpha: Any = parameter(default=rules.ALPHA, allowed=[INSIDE_ONE, "array-like"])
    tweedie_variance_power: float = parameter(default=1.5, allowed=[Interval(Real, 1.0, 2.0, closed="neither")])
    aft_loss_distribution: str = parameter(default="normal", allowed=[StrOptions({"normal", "logistic", "extreme"})])
    aft_loss_distribution_scale: float = parameter(default=1.0, allowed=[Interval(Real, 0.0, None, closed="neither")])


@with_parameters
class GradientBoostingClassifier(ClassWeight, Classifier, Boosting):
    """Gradient boosting for classification, with exact splits.

    Trees are added one after the other, each fitted to the gradients of the loss at the current predictions: one tree per round for two
    classes, one for each class for more. If y has several columns (0 and 1 in a multilabel task, or any classes), each round does this for
    each target.

    Parameters
    ----------
    loss : {"log_loss", "exponential"} or callable
        Loss that is minimised: the negative log likelihood of the labels, or, for two classes, the exponential loss of AdaBoost. A function
        ``objective(y, raw, weight)`` returns gradient and hessian, each of the shape of ``raw``, with the weights multiplied in, for all
        rows in their order; held-out rows are included with a weight of 0. ``y`` are class codes. ``raw`` starts from zero and has shape
        (n,) for two classes (log odds), or (n, n_classes) for more (log probabilities up to a constant); ``weight`` may be None.
        cloudpickle sends the function to workers; a model file keeps the trees, and calls the loss "custom".
    eval_metric : str, callable, list of them, or None
        Metrics of evaluation sets, by scikit-learn's formulas: "logloss", "loss" (the one that is minimised), "error", "accuracy", "auc"
        (for more than two classes, of each against the others, weighted by frequency), or a function ``(y_true, y_pred, weight) -> float``
        of all rows of a set. It gets class codes (positions in ``classes_``) and probabilities: of the second class for two classes, else
        of all, shape (n, n_classes); ``weight`` may be None. Also a function of :mod:`sklearn.metrics`, a scorer, or the name of one; those
        that compare labels get class codes. For early stopping, a function states by its attribute ``greater_is_better`` (True or False)
        which direction is better; scikit-learn's do so by their names. None means "logloss", or "loss" for the exponential loss.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingClassifier
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> y = np.where(X[:, 0] < 10, "low", "high")
    >>> GradientBoostingClassifier().fit(X, y).predict([[2.0], [15.0]]).tolist()
    ['low', 'high']
    """

    loss: Any = parameter(default="log_loss", allowed=[StrOptions(registry.CLASSIFICATION), callable, Hidden(StrOptions({registry.NAME}))])

    def _check_classes(self, table: Table) -> None:
        factors: Any = rules.class_weights(self.class_weight, table, by_rows=False)
        n = table.n_targets
        if n > 1:
            rules.check_boosted_classes(self, n, CLASSIFICATION)
        for k, (target, own) in enumerate(zip(table.by_target, [factors] if n == 1 else factors or [None] * n, strict=True)):
            with naming_target(k, n):
                n_weighted = np.count_nonzero(target.weights if own is None else target.weights * np.array(own))
                if n_weighted < 2:
                    raise ValueError(
                        f"y contains {n_weighted} class(es) with a weight above zero (of {target.labels.tolist()}); "
                        "boosting wants rows of at least two classes"
                    )

    def _constant(self, shares: NDArray[np.float64]) -> Any:
        found = self._by_target(shares)
        priors = [
            DummyClassifier(strategy="prior").fit(np.zeros((len(labels), self.n_features_in_)), labels, mine[0])
            for labels, mine in zip(by_target(self.classes_), by_target(found), strict=True)
        ]
        return priors if isinstance(found, list) else priors[0]

    def _decision(self) -> tuple[tuple[Step, ...], Output]:
        name = "decision_function"
        if self._fitted_loss.n_outputs == 1:
            return (first_column,), Output(np.dtype(np.float64), None, name)
        if self._n_targets > 1:
            return (), Output(np.dtype(np.float64), self._fitted_loss.n_outputs, name)
        return (), self._probability_output(name)

    def predict_proba(self, X: Any, base_margin: Any = None, *, n_trees: int | None = None) -> Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.
        n_trees : int or None, default=None
            Number of rounds to predict with, from the first one. None uses all.

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_), or list of n_outputs_ such arrays where y had several columns
            Columns are in the order of ``classes_``. A lazy Dask collection if X is one.
        """
        return Classifier.predict_proba(self._first(n_trees)._starting_from(base_margin), X)

    def decision_function(self, X: Any, base_margin: Any = None, *, n_trees: int | None = None) -> Any:
        """Return raw predictions.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.
        n_trees : int or None, default=None
            Number of rounds to predict with, from the first one. None uses all.

        Returns
        -------
        ndarray of float64 of shape (n,) or (n, n_classes_)
            Log odds of the second class for two classes (half of them for the exponential loss), log probabilities up to a constant a row
            for more; for multi-output targets, these are side by side. A lazy Dask collection if X is one.
        """
        check_is_fitted(self)
        steps, output = self._decision()
        model = self._first(n_trees)._starting_from(base_margin)
        return model._map(X, model._predictor(*steps), output)

    def staged_decision_function(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Return raw predictions after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Yields
        ------
        ndarray of float64 of shape (n,) or (n, n_classes_)
            See :meth:`decision_function`.
        """
        check_is_fitted(self)
        return self._starting_from(base_margin)._staged(X, *self._decision())

    def staged_predict_proba(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Predict the probability of each class after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Yields
        ------
        ndarray of float64 of shape (n, n_classes_), or list of such arrays
            See :meth:`predict_proba`.
        """
        check_is_fitted(self)
        staged = self._starting_from(base_margin)._staged(X, self._steps(), self._probability_output("predict_proba"))
        return map(self._by_target, staged)


@with_parameters
class GradientBoostingRanker(BoostedValues):
    """Gradient boosting for rankings (LambdaMART), with exact splits.

    The model sorts the rows of a query by relevance. Predictions are scores, with the highest score first; only scores of the same query
    can be compared. The rows of a query may be anywhere in the table or its partitions.

    Parameters
    ----------
    loss : {"lambdarank"}
        Loss that is minimised: the objective of this name in LightGBM, "rank:ndcg" in XGBoost. Each pair of rows of a query in the wrong
        order has the weight by which NDCG would grow if they changed places [1]_.
    lambdarank_truncation_level : int
        Number of first rows of each query, at least one of which a pair must contain to count. Set it slightly above the rank of interest.
    ndcg_exp_gain : bool
        Whether a relevance r, which must then be an integer of at most 31, has the gain 2**r - 1; otherwise it has the gain r.
    eval_metric : str, callable, list of them, or None
        Metrics of evaluation sets: "ndcg" or "map" (which treats all relevances above 0 alike), of all rows or, as in "ndcg@5", of the
        first rows of each query. They are means over queries, weighted by the mean weight of their rows; a query without relevant rows has
        1. Or a function ``(y_true, y_pred, weight) -> float`` of all rows of a set, where ``y_true`` has relevances and queries, shape (n,
        2). None means "ndcg".

    References
    ----------
    .. [1] C. Burges, "From RankNet to LambdaRank to LambdaMART: an overview", Microsoft Research, MSR-TR-2010-82.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import GradientBoostingRanker
    >>> X = np.arange(40.0).reshape(-1, 1) % 4
    >>> query, relevance = np.repeat(np.arange(10), 4), X[:, 0] // 2
    >>> model = GradientBoostingRanker(n_estimators=10).fit(X, relevance, qid=query)
    >>> np.argsort(-model.predict([[0.0], [3.0]])).tolist(), model.score(X, relevance, qid=query)
    ([1, 0], 1.0)
    """

    loss: Any = parameter(default="lambdarank", allowed=[StrOptions(registry.RANKING)])
    lambdarank_truncation_level: int = parameter(default=30, allowed=[POSITIVE_INTEGER])
    ndcg_exp_gain: bool = parameter(default=True, allowed=["boolean"])

    @all_or_nothing
    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        qid: Any = None,
        base_margin: Any = None,
        eval_set: Any = None,
        callbacks: Sequence[Callback | EarlyStopping] = (),
        monitor: Monitor | None = None,
        checkpoint: Any = None,
        checkpoint_interval: float = rules.CHECKPOINT_INTERVAL,
        client: Any = None,
        placement: str | None = None,
    ) -> Self:
        """Fit the ranking model.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
            See :meth:`GradientBoostingRegressor.fit`, also for the other parameters.
        y : array-like of shape (n,)
            Relevance of each row to its query, at least 0.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative factors of gradients; rows of weight 0 have no effect.
        qid : array-like of shape (n,)
            Query of each row, as a number. The rows of a query need not be adjacent.
        eval_set : list or dict of tuples, or None, default=None
            Evaluation sets: tuples ``(X, y, qid)``, ``(X, y, qid, weight)`` or ``(X, y, qid, weight, base_margin)``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data is invalid.
        """
        if self.n_iter_no_change is not None:
            raise ValueError(
                f"n_iter_no_change={self.n_iter_no_change} holds out rows, but a ranker learns from whole queries; pass an eval_set of "
                "other queries, and early_stopping_rounds"
            )
        sets = named_sets(eval_set, join=joined)
        options = FitOptions(callbacks, monitor, checkpoint, checkpoint_interval)
        return self._fit(X, joined(y, qid), sample_weight, sets, base_margin, options)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, qid: Any = None) -> float:
        """Return the mean NDCG of the queries, over all of their rows.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y, qid : array-like of shape (n,)
            Relevances and queries.
        sample_weight : array-like of shape (n,) or None, default=None

        Returns
        -------
        float
            At most 1.
        """
        return super().score(X, joined(y, qid), sample_weight)

    def refit_leaves(
        self, X: Any, y: Any, sample_weight: Any = None, *, qid: Any = None, decay: float = 0.9, base_margin: Any = None
    ) -> Self:
        """Return a model with the same splits and leaf values refitted to other rows; see :meth:`RandomForestRegressor.refit_leaves`.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y, qid : array-like of shape (n,)
            Relevances and queries.
        sample_weight : array-like of shape (n,) or None, default=None
        decay : float, default=0.9
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            As in :meth:`GradientBoostingRegressor.refit_leaves`.

        Returns
        -------
        GradientBoostingRanker
        """
        return super().refit_leaves(X, joined(y, qid), sample_weight, decay=decay, base_margin=base_margin)


def joined(y: Any, qid: Any) -> Any:
    """Return relevances and queries side by side, as a collection of the kind of y."""
    if qid is None:
        raise ValueError("qid is None; a ranker wants the query of each row, as a number")
    return backend_for(y).beside(y, qid)
