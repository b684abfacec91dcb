"""New leaf values for fitted trees, computed on other rows."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.threads import effective_n_jobs
from dtrees.ensemble.backend import Output
from dtrees.ensemble.estimators.inspection import copy_of
from dtrees.ensemble.evaluation_sets import encoded_rows
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.target import TargetSummary, check_lengths, decode_target
from dtrees.ensemble.prediction import AdditiveTrees, by_target
from dtrees.ensemble.state import EstimatorState


class Refitting(EstimatorState):
    """Mixin: new values for the leaves of a fitted model."""

    #: The meaning of two columns of y that form one target; see :func:`~dtrees.ensemble.input.target.check_target`.
    _columns_of_target: str = ""

    def _refit_plan(self, class_weight: tuple[Any, ...] | None) -> ForestPlan | BoostingPlan:
        """Return the plan of a fit on all rows that computes values in the same way as the fit of the model."""
        n_classes = [len(labels) for labels in by_target(getattr(self, "classes_", None))]
        targets = tuple(n_classes or [1] * self._n_targets) if self._n_targets > 1 else ()
        limits = rules.rules_of_values(self, self.criterion)
        return ForestPlan(limits, 0, sum(n_classes), class_weight=class_weight, targets=targets)

    def refit_leaves(self, X: Any, y: Any, sample_weight: Any = None, *, decay: float = 0.9) -> Self:
        """Return a model with the same splits and leaf values refitted to other rows.

        Each value becomes ``decay`` times its previous value plus ``1 - decay`` times the value that a fit of this tree to all of the new
        rows would give. A node without new rows keeps its value. In boosting, the gradients of each round are taken at the predictions of
        the previous rounds with their new values; the initial prediction does not change.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,) or (n, n_outputs_)
            For a classifier, labels in ``classes_``.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights; rows of weight 0 have no effect.
        decay : float, default=0.9
            Weight of the previous values, between 0 and 1: LightGBM's ``refit_decay_rate``.

        Returns
        -------
        estimator of the same type
            A new model; this one is not changed. Splits and the statistics of the rows that found them (gains, weights, importances) are
            the same.

        Raises
        ------
        ValueError
            If the rows do not match the fit, ``decay`` is not between 0 and 1, or ``loss`` is a function that is not available.

        Notes
        -----
        Parameters of leaf values (``reg_lambda_``, ``reg_alpha``, ``split_shrinkage_``, ``criterion``, ``class_weight``, ``monotonic_cst``)
        are those of the model; ``split_shrinkage_`` uses the gains of the new rows. No rows are drawn. For Dask collections, targets,
        weights and leaf numbers (four bytes per row and tree, for some trees at a time) are fetched to this process, which computes the
        values. The partitions do not affect the result.

        Examples
        --------
        >>> from dtrees import DecisionTreeRegressor
        >>> tree = DecisionTreeRegressor().fit([[0.0], [1.0]], [1.0, 5.0])
        >>> tree.refit_leaves([[0.0], [0.2]], [3.0, 4.0], decay=0.5).predict([[0.0], [1.0]]).tolist()
        [2.25, 5.0]
        """
        self._check_fitted()
        if isinstance(decay, bool) or not isinstance(decay, Real) or not 0.0 <= decay <= 1.0:
            raise ValueError(f"decay is {decay!r}; wants a number from 0 to 1")
        backend, start, classes = self._check_columns(X), self._predictor().start, getattr(self, "classes_", None)
        starts = None
        if start is not None:
            starts = backend.predict(X, start, Output(np.dtype(np.float64), len(self._trees.groups), "start"), self._margin)
        y, sample_weight, starts = backend.gather(y, sample_weight, starts)
        target, weight = encoded_rows(y, sample_weight, None, classes, self._n_targets, self._columns_of_target)
        TargetSummary.of(target, weight, classify=False).check()
        plan = self._refit_plan(_class_factors(self, target, weight))

        def leaves_of(first: int, last: int) -> NDArray[np.int32]:
            (leaves,) = backend.gather(self._find_leaves(X, first, last))
            check_lengths(len(leaves), target)
            return np.asarray(leaves)

        from dtrees.engine.run.refitting import Refit  # imports Numba

        refit, made, score = Refit(plan, leaves_of, target, weight, float(decay), effective_n_jobs(self.n_jobs)), copy_of(self), None
        if isinstance(plan, BoostingPlan):
            initial = self._trees.initial
            if starts is not None:
                initial = initial[:, np.newaxis] + np.asarray(starts).reshape(len(target), -1).T
            groups, score = refit.boosted(self._trees.groups, initial)
        else:
            groups = [refit.forest(self._trees.groups[0])]
        made._trees = AdditiveTrees(groups, self._trees.initial, self._trees.n_parallel)
        made._forget("_members")
        made._take_refitted(score)
        return cast(Self, made)

    def _take_refitted(self, train_score: NDArray[np.float64] | None) -> None:
        """Set the scores of the rows of the new values, and delete those of other rows."""


def _class_factors(model: Any, target: NDArray[Any], weight: NDArray[np.float64] | None) -> tuple[Any, ...] | None:
    """Return the class factors of row weights, including classes without rows."""
    class_weight, each = getattr(model, "class_weight", None), by_target(getattr(model, "classes_", None))
    if class_weight is None:
        return None
    one_of_each = np.stack([np.resize(np.arange(len(labels)), max(map(len, each))) for labels in each], axis=-1)
    with_all = np.concatenate([target, one_of_each.reshape(-1, *target.shape[1:])])
    weights = np.concatenate([np.ones(len(target)) if weight is None else weight, np.zeros(len(one_of_each))])
    known = TargetSummary.of(decode_target(with_all, model.classes_), weights, classify=True)
    return rules.class_weights(class_weight, known, by_rows=not hasattr(model, "n_estimators"))
