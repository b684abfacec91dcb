"""What a report is about: an estimator of trees, or a bag of boosters, each with what stands for it where a single estimator is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.bag.bagging import Bagging
from dtrees.plots.importance import check_model, importance_by


def without_steps(model: Any, X: Any) -> tuple[Any, Any]:
    """Return the estimator at the end of a pipeline, if the model is one, and X as the steps before pass it on.

    Raises
    ------
    TypeError
        If it is no estimator of dtrees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if isinstance(model, Pipeline):
        X = model[:-1].transform(X) if len(model) > 1 else X
        model = model[-1]
    if isinstance(model, Bagging):
        check_is_fitted(model)
    else:
        check_model(model)
    return model, X


def members_of(model: Any) -> list[Any]:
    """Return the boosters of a bag, or the estimator alone. The first one knows the columns, and how all were fitted."""
    return list(model.estimators_) if isinstance(model, Bagging) else [model]


def importances_of(model: Any, kind: str) -> NDArray[np.float64]:
    """Return how much columns matter by a count of splits, of a bag on average over its boosters."""
    importances: NDArray[np.float64] = np.mean([importance_by(member, kind) for member in members_of(model)], axis=0)
    return importances
