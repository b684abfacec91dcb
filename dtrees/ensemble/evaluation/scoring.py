"""What the rows held out by ``n_iter_no_change`` are scored by, where it is not the loss: the parameter ``scoring``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.compat import scorer_named, sklearn_metric
from dtrees.ensemble.evaluation.metrics import Block, CustomMetric
from dtrees.ensemble.objective.loss import LinkedLoss


@dataclass(frozen=True)
class HeldOutScore:
    """A scorer of scikit-learn, asked of raw predictions; see :class:`dtrees.engine.plan.plans.Scoring`."""

    metric: CustomMetric

    def score(self, target: NDArray[Any], raw: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
        """Return the score of raw predictions, shape (K, n)."""
        target = target.T  # of several targets, as scikit-learn has them
        block = Block(np.empty((target.shape[0], 0)), target, weight, 0.0)
        return self.metric.value([self.metric.partial(block, raw)], (target, weight))


def check_scoring(scoring: Any, *, classify: bool) -> Any:
    """Return the scorer that the parameter asks for, None for the loss.

    Parameters
    ----------
    scoring : str, scorer or None
        "loss", the name of a scorer, or one made by :func:`sklearn.metrics.make_scorer`; None is accuracy or R2.
    classify : bool

    Raises
    ------
    ValueError
        If there is no such scorer for this task, or it is another callable.
    """
    if isinstance(scoring, str) and scoring == "loss":
        return None
    scorer = scorer_named("accuracy" if classify else "r2", classify) if scoring is None else scoring
    if isinstance(scorer, str):
        scorer = scorer_named(scorer, classify)
    if scorer is None:
        kind = "classification" if classify else "regression"
        raise ValueError(
            f"scoring is {scoring!r}; wants 'loss', None, or a scorer of scikit-learn for {kind} (sklearn.metrics.get_scorer_names)"
        )
    known = sklearn_metric(scorer)
    if known is None or known.function is scorer:
        raise ValueError(
            f"scoring is {scoring!r}, but held-out rows are scored by their predictions, without an estimator to call; wants a function of "
            "(y_true, y_pred) made a scorer by sklearn.metrics.make_scorer, which says what is better, or the name of one"
        )
    return scorer


def scoring_for(scorer: Any, link: LinkedLoss) -> HeldOutScore | None:
    """Return what the plan is to have; ``link`` is the loss."""
    if scorer is None:
        return None
    known = sklearn_metric(scorer)
    assert known is not None
    return HeldOutScore(CustomMetric(scorer, link, known.name, known))
