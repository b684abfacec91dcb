"""Gradient boosting: rounds of trees, each a Newton step down a loss.

Each round fits one tree per output of the loss to the gradients g and hessians h at the predictions so far. With G and H their sums over
the rows of a node, a leaf's value is -learning_rate * G / (H + reg_lambda), and a split's gain is how much the sum over nodes of
G^2 / (H + reg_lambda) grows (Friedman, 2001; Chen and Guestrin, 2016). ``estimators_`` and raw predictions are laid out as
scikit-learn's are: a row of trees per round, one tree per output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context, is_classifier
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plans import BoostingPlan, BoostingResult, Callback, Criterion, Loss
from dtrees.engine.stopping import Stopping
from dtrees.ensemble import parameters
from dtrees.ensemble.backend import Output, Purpose, Table
from dtrees.ensemble.base import TreeEstimator, progress_callback, where_the_data_is
from dtrees.ensemble.callbacks import EarlyStopping, split_callbacks
from dtrees.ensemble.evaluation import EvalSet, named_sets
from dtrees.ensemble.inspection import gains_by_column, normalised
from dtrees.ensemble.local import LOCAL
from dtrees.ensemble.losses import LinkedLoss
from dtrees.ensemble.metrics import check_metrics, metric_for, metric_name
from dtrees.ensemble.prediction import Step, TreeSum
from dtrees.ensemble.tree import DecisionTreeRegressor


class Boosting(TreeEstimator):
    """What the two boosting estimators share."""

    _GROUP_PER_OUTPUT: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, Any]] = parameters.BOOSTING

    n_estimators: int
    learning_rate: float
    subsample: float
    validation_fraction: float
    n_iter_no_change: int | None
    tol: float
    early_stopping_rounds: int | None
    eval_metric: Any
    random_state: Any
    verbose: int
    warm_start: bool
    n_estimators_: int
    max_features_: int
    train_score_: NDArray[np.float64]
    validation_score_: NDArray[np.float64]
    evals_result_: dict[str, dict[str, NDArray[np.float64]]]
    best_iteration_: int
    best_score_: float

    _seed: int

    @abstractmethod
    def _loss(self, table: Table) -> LinkedLoss:
        """Return the loss for a table."""

    @_fit_context(prefer_skip_nested_validation=True)
    @where_the_data_is
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        callbacks: Sequence[Callback | EarlyStopping] = (),
        checkpoint: Any = None,
        checkpoint_interval: float = 60.0,
    ) -> Self:
        """Boost.

        Parameters
        ----------
        X : array-like, frame or Dask collection of shape (n, n_features)
            Numbers; in frames also text and categories. NaN marks missing values.
        y : array-like of shape (n,)
            Finite numbers for a regressor, labels (at least two) for a classifier.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative; rows of weight 0 are as good as absent.
        eval_set : list or dict of tuples, or None, default=None
            Further data, on which ``eval_metric`` is computed after each round: a list of ``(X, y)`` or ``(X, y, weight)``, which get the
            names ``"validation_0"`` and so on, or a dict from names to such tuples. In memory or Dask collections. The trees do not depend
            on it; see ``evals_result_``, and ``early_stopping_rounds`` for when they end.
        callbacks : sequence of callable or EarlyStopping, default=()
            Called with a :class:`~dtrees.engine.plans.Progress` after each round; one that returns True ends the fit there. At most one
            may be a :class:`dtrees.EarlyStopping`, in place of ``early_stopping_rounds``.
        checkpoint : str, path-like or None, default=None
            Where to keep the finished rounds: a file, or an address that fsspec knows (``s3://...``). If it is there already, left by a fit
            of the same data and parameters that was cut short, this one goes on from it, and gives the very model that an unbroken one
            would have given; a checkpoint of anything else is refused. It holds trees only, no pickle, appears whole or not at all, and
            the one before is kept beside it as ``PATH.previous``. On a cluster, it must be a place that every worker reaches.
        checkpoint_interval : float, default=60.0
            Seconds from one checkpoint to the next; with 0 there is one after each round. There is one at the beginning and one at the
            end too.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data cannot be used; the message says what is wanted.
        """
        keep = self._goes_on()
        if keep and self.n_estimators < self._trees.n_rounds:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be larger or equal to estimators_.shape[0]={self._trees.n_rounds} "
                "when warm_start==True"
            )
        sets = named_sets(eval_set)
        asked = check_metrics(self.eval_metric, classify=is_classifier(self))
        early, callbacks = split_callbacks(callbacks, self.early_stopping_rounds)
        stopping = None if early is None else early.rule([given.name for given in sets], asked)
        callback = progress_callback(callbacks, self.verbose, "round")
        backend, table = self._load(X, y, sample_weight, keep=keep, purpose=Purpose(sets=sets))
        loss = self._loss(table)
        if sets:
            table = self._load_evaluation(backend, table, sets, [metric_for(metric, loss) for metric in asked])
        plan = replace(self._plan(table, loss, keep), stopping=stopping)
        previous = list(zip(*self._trees.groups, strict=True)) if keep else []
        if checkpoint is not None:
            plan = self._with_checkpoint(plan, backend, table, checkpoint, checkpoint_interval, keep=keep)
        result = backend.boost(table, plan, previous, self._trees.initial if keep else None, callback)
        self._take_over(result, plan, keep=keep)
        self._keep_scores(result, sets, [metric_name(metric) for metric in asked], stopping)
        return self

    def _take_over(self, result: BoostingResult, plan: BoostingPlan, *, keep: bool) -> None:
        """Set trees and losses."""
        if keep:
            self.train_score_ = np.concatenate([self.train_score_, result.train_score])
        else:
            self.train_score_ = result.train_score
        if self.n_iter_no_change is not None:
            earlier = getattr(self, "validation_score_", np.empty(0)) if keep else np.empty(0)
            self.validation_score_ = np.concatenate([earlier, result.validation_score])
        elif hasattr(self, "validation_score_"):
            del self.validation_score_
        self.max_features_ = plan.rules.max_features
        self.n_estimators_ = len(result.rounds)
        self._trees = TreeSum(list(zip(*result.rounds, strict=True)), result.initial)

    def _keep_scores(self, result: BoostingResult, sets: Sequence[EvalSet], metrics: Sequence[str], stopping: Stopping | None) -> None:
        """Set the scores of evaluation sets; with early stopping, leave out the rounds after the best."""
        for name in ("evals_result_", "best_iteration_", "best_score_"):
            self.__dict__.pop(name, None)
        if not sets:
            return
        scores = result.evaluation
        self.evals_result_ = {
            given.name: {metric: scores[:, i, k].copy() for k, metric in enumerate(metrics)} for i, given in enumerate(sets)
        }
        if stopping is None:
            return
        deciding = scores[:, stopping.set, stopping.metric]
        self.best_iteration_ = stopping.best(deciding.tolist())
        self.best_score_ = float(deciding[self.best_iteration_])
        n_after = len(deciding) - 1 - self.best_iteration_
        if n_after:
            self.n_estimators_ -= n_after
            self._trees = TreeSum([group[:-n_after] for group in self._trees.groups], result.initial)
            for name in ("train_score_", "validation_score_"):
                if hasattr(self, name):
                    setattr(self, name, getattr(self, name)[:-n_after])

    def _plan(self, table: Table, loss: Loss, keep: bool) -> BoostingPlan:
        # An integer means the same seed whenever; other random states move on, and rounds added later belong to the first seed.
        if not keep or isinstance(self.random_state, int | np.integer):
            self._seed = parameters.draw_seed(self.random_state)
        return BoostingPlan(
            rules=parameters.rules_for(self, Criterion.NEWTON, table.n_rows, self.n_features_in_),
            seed=self._seed,
            loss=loss,
            n_rounds=int(self.n_estimators),
            n_classes=0 if table.classes is None else len(table.classes),
            learning_rate=float(self.learning_rate),
            subsample=float(self.subsample),
            validation_fraction=float(self.validation_fraction),
            n_iter_no_change=None if self.n_iter_no_change is None else int(self.n_iter_no_change),
            tol=float(self.tol),
            class_weight=parameters.class_weights(getattr(self, "class_weight", None), table, by_rows=False),
        )

    @cached_property
    def estimators_(self) -> NDArray[Any]:
        """The trees, each as a fitted :class:`DecisionTreeRegressor` of the steps it adds; shape (n_estimators_, n_outputs)."""
        check_is_fitted(self)
        trees = np.empty((self._trees.n_rounds, len(self._trees.groups)), dtype=object)
        for output, group in enumerate(self._trees.groups):
            for round_, tree in enumerate(group):
                trees[round_, output] = self._as_single_tree(DecisionTreeRegressor, tree, None)
        return trees

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The share each column has in the gain of all splits; zeros if there are none."""
        check_is_fitted(self)
        return normalised(np.sum([gains_by_column(tree, self.n_features_in_) for group in self._trees.groups for tree in group], axis=0))

    def apply(self, X: Any) -> Any:
        """Find the leaves each row falls in.

        Parameters
        ----------
        X : array-like, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of int32 of shape (n, n_estimators_, n_outputs) or (n, n_estimators_)
            Node numbers within each tree; with one output for two classes and for each class for more. Two-dimensional for
            regression. For a Dask collection: not computed yet, of shape (n, n_estimators_ * n_outputs), round by round.
        """
        leaves = self._find_leaves(X)
        if isinstance(leaves, np.ndarray) and hasattr(self, "classes_"):
            return leaves.reshape(len(leaves), self._trees.n_rounds, -1)
        return leaves

    def _staged(self, X: Any, steps: tuple[Step, ...], output: Output) -> Iterator[Any]:
        """Yield predictions after each round: round by round in memory, lazily for each elsewhere."""
        check_is_fitted(self)
        backend = self._check_columns(X)
        if backend is LOCAL:
            yield from self._predictor(*steps).staged(X)
            return
        for n_rounds in range(1, self._trees.n_rounds + 1):
            yield backend.predict(X, self._predictor(*steps, n_rounds=n_rounds), output)
