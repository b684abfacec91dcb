"""Gradient boosting for rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from dtrees.engine.plan.plans import Callback
from dtrees.ensemble.callbacks import EarlyStopping, Monitor
from dtrees.ensemble.compat import StrOptions
from dtrees.ensemble.estimators.base import all_or_nothing
from dtrees.ensemble.estimators.gradient_boosting import BoostedValues
from dtrees.ensemble.estimators.parameters import POSITIVE_INTEGER, parameter, with_parameters
from dtrees.ensemble.evaluation_sets import named_sets
from dtrees.ensemble.in_process import backend_for
from dtrees.ensemble.input import rules
from dtrees.ensemble.objective import registry


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
        return self._fit(X, joined(y, qid), sample_weight, sets, False, base_margin, callbacks, monitor, checkpoint, checkpoint_interval)

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
