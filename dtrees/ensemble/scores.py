"""What ``score`` and out-of-bag scores measure, and what scores are shown beside.

NumPy's sums, which scikit-learn's metrics are made of, depend on the layout of arrays; so these are put in one layout first.

``sklearn.metrics`` takes as long to import as all of this package, so it is imported when somebody scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


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
