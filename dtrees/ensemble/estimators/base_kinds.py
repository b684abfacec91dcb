"""Mixins of regressors and classifiers: predictions by the steps that an estimator applies to raw ones, and scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.backend import Output
from dtrees.ensemble.compat import BaseEstimator, ClassifierMixin, RegressorMixin
from dtrees.ensemble.estimators.inspection import side_by_side
from dtrees.ensemble.input.target import common_dtype, decode_target
from dtrees.ensemble.metrics import accuracy_score, pinball_score, r2_score, subset_accuracy
from dtrees.ensemble.prediction import Step, columns_of_targets, logarithm, most_probable, split_targets


class Regressor(RegressorMixin, BaseEstimator):
    """Mixin of regressors, given the steps from raw predictions to values."""

    @property
    def _quantiles(self) -> tuple[float, ...]:
        """The predicted quantiles, if there are several of one target."""
        return ()

    @property
    def _metric(self) -> Callable[..., float]:
        return partial(pinball_score, self._quantiles) if self._quantiles else r2_score

    def _answer(self) -> tuple[tuple[Step, ...], Output]:
        """Return the steps from raw predictions to values, and the form of these."""
        width = len(self._quantiles) or self._n_targets
        return self._steps(), Output(np.dtype(np.float64), width if width > 1 else None, labels=self._quantiles or None)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination (R2) of the predictions, averaged over targets.

        For several quantiles, it is the mean of their :func:`sklearn.metrics.d2_pinball_score`.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,) or (n, n_outputs_)
        sample_weight : array-like of shape (n,) or None, default=None

        Returns
        -------
        float
            At most 1; 0 for a prediction of the mean, or of the same quantile for all rows.
        """
        return self._score(self._metric, X, y, sample_weight)

    def _keep_out_of_bag(self, mean: NDArray[np.float64]) -> NDArray[Any]:
        """Set the means of out-of-bag predictions as an attribute; return the predictions to be scored."""
        self.oob_prediction_ = mean if mean.shape[1] > 1 else mean[:, 0]
        return self.oob_prediction_


class Classifier(ClassifierMixin, BaseEstimator):
    """Mixin of classifiers: predictions from class probabilities, given the steps from raw predictions to them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes_,)
        The labels, sorted; a list of arrays for multi-output targets.
    n_classes_ : int
        Number of labels; a list for multi-output targets.
    """

    classes_: Any
    n_classes_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self._MULTI_OUTPUT
        return tags

    @property
    def _metric(self) -> Callable[..., float]:
        return accuracy_score if self._n_targets == 1 else subset_accuracy

    def _answer(self) -> tuple[tuple[Step, ...], Output]:
        """Return the steps from raw predictions to labels, and the form of these."""
        steps = (*self._steps(), partial(most_probable, self.classes_), partial(decode_target, classes=self.classes_))
        if self._n_targets == 1:
            return steps, Output(self.classes_.dtype)
        dtypes = tuple(classes.dtype for classes in self.classes_)
        return steps, Output(common_dtype(self.classes_), self._n_targets, dtypes=dtypes)

    def _probability_output(self, name: str) -> Output:
        if self._n_targets > 1:
            return Output(np.dtype(np.float64), sum(self.n_classes_), name)
        return Output(np.dtype(np.float64), len(self.classes_), name, tuple(self.classes_.tolist()))

    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_), or list of n_outputs_ such arrays where y had several columns
            Columns are in the order of ``classes_``. Lazy Dask collections if X is one.
        """
        return self._predict_shares(X, "predict_proba")

    def predict_log_proba(self, X: Any) -> Any:
        """Predict the logarithm of the probability of each class, -inf for 0.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_), or list of n_outputs_ such arrays where y had several columns
            Columns are in the order of ``classes_``. Lazy Dask collections if X is one.
        """
        return self._predict_shares(X, "predict_log_proba", logarithm)

    def _predict_shares(self, X: Any, name: str, *last: Step) -> Any:
        """Return values by class; for multi-output targets, a list."""
        self._check_fitted()
        shares = self._map(X, self._predictor(*self._steps(), *last), self._probability_output(name))
        return self._by_target(shares)

    def _by_target(self, shares: Any) -> Any:
        """Return values by class, shape (n, n_classes), as a list for multi-output targets."""
        if self._n_targets == 1:
            return shares
        if isinstance(shares, np.ndarray):
            return [np.ascontiguousarray(mine) for mine in split_targets(shares, self.classes_)]
        return columns_of_targets(shares, self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions; for multi-output targets, all of a row must be right.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,) or (n, n_outputs_)
        sample_weight : array-like of shape (n,) or None, default=None

        Returns
        -------
        float
            Share of the weight that is predicted correctly.
        """
        return self._score(self._metric, X, y, sample_weight)

    def _keep_out_of_bag(self, mean: NDArray[np.float64]) -> NDArray[Any]:
        """Set the means of out-of-bag probabilities as an attribute; return the classes to be scored."""
        self.oob_decision_function_ = mean if self._n_targets == 1 else side_by_side(split_targets(mean, self.classes_))
        return most_probable(self.classes_, mean)
