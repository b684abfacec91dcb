"""Results of cross-validation: scores of folds, and metrics of their held-out rows by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Curve:
    """A metric of held-out rows after each round.

    Attributes
    ----------
    metric : str
    by_fold : ndarray of float64 of shape (n_folds, n_rounds)
        Values of the metric. NaN after the last round of a fold that ended early, and for folds without a curve
        (:func:`dtrees.cross_validate`).
    greater_is_better : bool or None
        None for a function without this attribute.

    Examples
    --------
    >>> import numpy as np
    >>> curve = Curve("rmse", np.array([[0.9, 0.5, 0.6], [0.7, 0.7, 0.4]]), greater_is_better=False)
    >>> curve.mean.round(2), curve.best_n_estimators, curve.best_score
    (array([0.8, 0.6, 0.5]), 3, 0.5)
    """

    metric: str
    by_fold: NDArray[np.float64]
    greater_is_better: bool | None = None

    @property
    def _known(self) -> NDArray[np.float64]:
        """The folds that have a curve."""
        return self.by_fold[~np.isnan(self.by_fold).all(axis=1)]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean over folds, NaN after the last round of the shortest fold."""
        return self._known.mean(axis=0) if len(self._known) else np.full(self.by_fold.shape[1], np.nan)

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation over folds."""
        return self._known.std(axis=0) if len(self._known) else np.full(self.by_fold.shape[1], np.nan)

    @property
    def best_n_estimators(self) -> int:
        """The number of rounds with the best mean; the smallest in case of ties.

        Raises
        ------
        ValueError
            If it is unknown whether greater is better, or the metric is NaN after each round.
        """
        if self.greater_is_better is None:
            raise ValueError(
                f"the metric {self.metric!r} does not say what is better; set its attribute greater_is_better to True or False"
            )
        mean = self.mean
        if np.isnan(mean).all():
            raise ValueError(f"the metric {self.metric!r} is NaN after each round; wants one that is defined for the rows of each fold")
        return int(np.nanargmax(mean) if self.greater_is_better else np.nanargmin(mean)) + 1

    @property
    def best_score(self) -> float:
        """The best mean."""
        return float(self.mean[self.best_n_estimators - 1])


class CrossValidation(dict[str, Any]):
    """Result of :func:`dtrees.cross_validate`: scikit-learn's dict of results, and curves.

    Attributes
    ----------
    curves : dict of Curve
        The curve of each ``eval_metric`` of boosting, by name; empty for other estimators.
    """

    curves: dict[str, Curve]

    @property
    def best_n_estimators(self) -> int:
        """The number of rounds with the best mean of the last metric, which also decides about early stopping."""
        if not self.curves:
            raise ValueError("there are no curves; wants a boosting estimator, and return_curves=True")
        return list(self.curves.values())[-1].best_n_estimators
