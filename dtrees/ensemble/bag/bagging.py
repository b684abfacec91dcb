"""Bags of boosters, with scikit-learn's names."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bag.base_bag import Bagging
from dtrees.ensemble.compat import ClassifierMixin, RegressorMixin
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.estimators.declaring import with_parameters
from dtrees.ensemble.estimators.gradient_boosting import GradientBoostingClassifier, GradientBoostingRegressor
from dtrees.ensemble.prediction import Labels, logarithm
from dtrees.ensemble.scores import accuracy_score, r2_score


@with_parameters
class BaggingRegressor(RegressorMixin, Bagging):
    """A bag of boosters for regression: boosting on several draws of the rows, averaged (Breiman, 1996).

    It is scikit-learn's ``BaggingRegressor`` over :class:`GradientBoostingRegressor`, for Dask collections too: there each booster is a
    task of its own. The table is presorted once for all of them.

    Attributes
    ----------
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, k)
        Out-of-bag prediction of each row, 0 for a row that every booster drew; only with ``oob_score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import BaggingRegressor, GradientBoostingRegressor
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> bag = BaggingRegressor(GradientBoostingRegressor(n_estimators=50), n_estimators=30, oob_score=True, random_state=0)
    >>> bag = bag.fit(X, X[:, 0] + X[:, 1] ** 2)
    >>> len(bag.estimators_), bag.predict(X).shape, bool(0.5 < bag.oob_score_ < bag.score(X, X[:, 0] + X[:, 1] ** 2))
    (30, (500,), True)
    """

    _BOOSTER: ClassVar[type[Boosting]] = GradientBoostingRegressor
    _METRIC: ClassVar[Any] = staticmethod(r2_score)

    def _keep_out_of_bag(self, mean: NDArray[np.float64]) -> NDArray[Any]:
        self.oob_prediction_ = mean if mean.shape[1] > 1 else mean[:, 0]
        return self.oob_prediction_

    def predict(self, X: Any) -> Any:
        """Predict the target: the mean of the boosters' predictions.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n,), or (n, k) where y had several columns
            A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        first = self.estimators_[0]
        return first._map(X, self._mean(), first._value_output())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the coefficient of determination (R2) of the predictions.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,) or (n, k)
        sample_weight : array-like of shape (n,) or None, default=None

        Returns
        -------
        float
            1 at best, 0 for predicting the mean.
        """
        return self._score(r2_score, X, y, sample_weight)


@with_parameters
class BaggingClassifier(ClassifierMixin, Bagging):
    """A bag of boosters for classification: boosting on several draws of the rows, probabilities averaged (Breiman, 1996).

    It is scikit-learn's ``BaggingClassifier`` over :class:`GradientBoostingClassifier`, for Dask collections too: there each booster is a
    task of its own. The table is presorted once for all of them.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes_,)
        Labels, ascending.
    n_classes_ : int
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_)
        Out-of-bag class probabilities of each row, 0 for a row that every booster drew; only with ``oob_score``.

    Examples
    --------
    >>> import numpy as np
    >>> from dtrees import BaggingClassifier, GradientBoostingClassifier
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> bag = BaggingClassifier(GradientBoostingClassifier(n_estimators=20), n_estimators=5, random_state=0)
    >>> bag.fit(X, np.where(X[:, 0] > 0, "high", "low")).predict([[1.5, 0.0, 0.0], [-1.5, 0.0, 0.0]]).tolist()
    ['high', 'low']
    """

    _BOOSTER: ClassVar[type[Boosting]] = GradientBoostingClassifier
    _SEVERAL_TARGETS: ClassVar[bool] = False
    _METRIC: ClassVar[Any] = staticmethod(accuracy_score)

    def _keep_out_of_bag(self, mean: NDArray[np.float64]) -> NDArray[Any]:
        self.oob_decision_function_ = mean
        return mean.argmax(axis=1)

    def predict(self, X: Any) -> Any:
        """Predict the class: the one of the highest mean probability, the first one of equals.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of shape (n,)
            Labels as in ``classes_``. A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        first = self.estimators_[0]
        return first._map(X, self._mean(Labels(self.classes_)), first._label_output())

    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class: the mean of the boosters' probabilities.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_)
            Columns in the order of ``classes_``. A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        first = self.estimators_[0]
        return first._map(X, self._mean(), first._probability_output("predict_proba"))

    def predict_log_proba(self, X: Any) -> Any:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_)
            Columns in the order of ``classes_``. A Dask collection, not computed yet, if X is one.
        """
        check_is_fitted(self)
        first = self.estimators_[0]
        return first._map(X, self._mean(logarithm), first._probability_output("predict_log_proba"))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,) or None, default=None

        Returns
        -------
        float
            Share of the weight that is predicted correctly.
        """
        return self._score(accuracy_score, X, y, sample_weight)
