"""When boosting has gone far enough: decided by scores, at the coordinator alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stopping:
    """Stop when a metric of an evaluation set has not improved for some rounds.

    Attributes
    ----------
    rounds : int
        How many rounds without an improvement end the fit.
    set, metric : int
        Positions of what decides.
    tol : float
        An improvement is more than this.
    greater_is_better : bool

    Examples
    --------
    >>> rule = Stopping(rounds=2)
    >>> rule.best([0.5, 0.4, 0.4, 0.6]), rule.ends([0.5, 0.4, 0.4]), rule.ends([0.5, 0.4, 0.4, 0.6])
    (1, False, True)
    """

    rounds: int
    set: int = 0
    metric: int = 0
    tol: float = 0.0
    greater_is_better: bool = False

    def best(self, scores: Sequence[float]) -> int:
        """Return the first round (from 0) that no later one improves on; 0 if there is no score but NaN."""
        best = 0
        for i, score in enumerate(scores):
            gain = score - scores[best] if self.greater_is_better else scores[best] - score
            if gain > self.tol or (scores[best] != scores[best] and score == score):
                best = i
        return best

    def ends(self, scores: Sequence[float]) -> bool:
        """Tell whether the fit ends here."""
        return len(scores) - 1 - self.best(scores) >= self.rounds


def has_stalled(scores: Sequence[float], patience: int, tol: float) -> bool:
    """Tell whether none of the last ``patience`` losses is below all those before by more than ``tol``, scikit-learn's rule.

    NaN is above all numbers.

    Examples
    --------
    >>> has_stalled([3.0, 2.0, 1.0], 2, 0.0), has_stalled([1.0, math.nan, math.nan], 2, 0.0), has_stalled([math.nan] * 3, 2, 0.0)
    (False, True, True)
    """
    if len(scores) <= patience:
        return False
    losses = [math.inf if math.isnan(score) else score for score in scores]
    latest = min(losses[-patience:])
    return latest == math.inf or latest > min(losses[:-patience]) - tol
