"""Survival analysis with boosting: probabilities of survival until given times, and the concordance of predictions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.estimators.base_boosting import Boosting
from dtrees.ensemble.in_process import Backend, in_memory
from dtrees.ensemble.input.target import as_floats
from dtrees.ensemble.objective import registry
from dtrees.ensemble.prediction import first_column

#: The loss with a baseline hazard.
COX = "cox"


class Surviving(Boosting):
    """Mixin of boosting for the losses "cox" and "aft".

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
            from dtrees.ensemble.objective.survival import baseline

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
        from dtrees.ensemble.objective.survival import survival

        hazard = None
        if self._loss_name == COX:
            hazard = np.append(0.0, self.cumulative_baseline_hazard_)[np.searchsorted(self.event_times_, at, side="right")]
        model, step = self._starting_from(base_margin), partial(survival, self._fitted_loss, at, hazard)
        output = Output(np.dtype(np.float64), len(at), "predict_survival_function", tuple(at.tolist()))
        return model._map(X, model._predictor(step), output)
