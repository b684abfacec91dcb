"""The two boosting estimators, for regression and for classification."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.compat import Hidden, Interval, StrOptions
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.base_kinds import Classifier, Regressor
from dtrees.ensemble.estimators.intervals import CalibratedIntervals
from dtrees.ensemble.estimators.parameters import INSIDE_ONE, ClassWeight, parameter, with_parameters
from dtrees.ensemble.estimators.survival import Surviving
from dtrees.ensemble.input import rules
from dtrees.ensemble.metrics import BY_COLUMNS, CLASSIFICATION, OfLoss
from dtrees.ensemble.objective import registry
from dtrees.ensemble.objective.loss import naming_target
from dtrees.ensemble.prediction import Step, by_target, first_column


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
