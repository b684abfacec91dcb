"""Gradient boosting: rounds of trees, each a Newton step on a loss.

Each round fits one tree per output of the loss to the gradients g and hessians h at the predictions so far. With G and H their sums over
the rows of a node, a leaf's value is -learning_rate * G / (H + reg_lambda), and a split's gain is the increase of the sum over nodes of G^2
/ (H + reg_lambda) (Friedman, 2001; Chen and Guestrin, 2016). ``estimators_`` and raw predictions have the layout of scikit-learn: a row of
trees per round, one tree per output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plan.plans import BoostingPlan, BoostingResult, Callback, Dropout, Stalling, Stopping
from dtrees.engine.plan.wants import Want, of_loss
from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.callbacks import EarlyStopping, Monitor, called_together, grow_interruptibly, split_callbacks, with_monitor
from dtrees.ensemble.compat import sklearn_metric
from dtrees.ensemble.estimators.base import FitOptions, TreeEstimator, all_or_nothing
from dtrees.ensemble.estimators.inspection import Members
from dtrees.ensemble.estimators.single_tree import DecisionTreeRegressor
from dtrees.ensemble.estimators.starting import BY_ESTIMATOR, BY_LOSS, BY_MARGIN, STARTS, ZERO, StartingPoints
from dtrees.ensemble.evaluation_sets import EvalSet, named_sets
from dtrees.ensemble.in_process import LOCAL, Backend, in_memory
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.by_size import resolved_value, set_by_size
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.metrics import check_metrics, check_scoring, metric_for, metric_name, scoring_for
from dtrees.ensemble.objective import registry
from dtrees.ensemble.objective.loss import LinkedLoss
from dtrees.ensemble.objective.regression import SeveralQuantiles
from dtrees.ensemble.prediction import AdditiveTrees, Step
from dtrees.ensemble.state import SERIES

#: Attributes that depend on all rounds and the values of their leaves.
_OF_ALL_ROUNDS = ("best_iteration_", "best_score_", "conformity_scores_", "event_times_", "cumulative_baseline_hazard_")


class Boosting(StartingPoints, Members, TreeEstimator):
    """Base class of the boosting estimators.

    Attributes
    ----------
    estimators_ : ndarray of DecisionTreeRegressor of shape (n_estimators_, n_trees_per_iteration_)
        The trees, each as a fitted estimator of the steps that it adds, read-only. Raw predictions are those of ``init_`` plus
        ``learning_rate_`` times the sum of theirs. Their parameters are those of the fit that grew them, also with ``warm_start``.
    init_ : estimator or "zero"
        Initial prediction: an estimator of the weighted mean of the target (median, quantile), or of the shares of the classes; the fitted
        ``init``; or "zero", also with ``base_margin``.
    learning_rate_ : float
        Learning rate of the trees. With ``warm_start``, "auto" keeps that of the existing trees.
    max_leaf_nodes_ : int or None
        Maximum number of leaves; None for no limit.
    max_depth_ : int or None
        Maximum depth; None for no limit.
    min_samples_leaf_ : int
        Minimum number of rows of a leaf.
    reg_lambda_ : float
        L2 penalty on leaf values.
    split_shrinkage_ : float
        Strength of the shrinkage of split effects.
    n_estimators_ : int
        Number of rounds; fewer than ``n_estimators`` if the fit stopped early.
    train_score_ : ndarray of float64 of shape (n_estimators_,)
        Mean loss on the training rows after each round: squared or absolute error, pinball loss, deviance, log loss. NaN if ``loss`` is a
        function, or is defined on all rows together ("cox", "lambdarank").
    validation_score_ : ndarray of float64
        Mean loss on the held-out rows (with ``validation_fraction=None``, on the training rows) after each round, or their score by
        ``scoring`` (larger is better); only with ``n_iter_no_change``.
    oob_scores_, oob_improvement_ : ndarray of float64 of shape (n_estimators_,)
        Mean loss, after each round, of the training rows that the round did not draw, and the amount by which it is below that of the
        previous round (of the rows which that round did not draw), or of the initial prediction in the first round. Only with ``subsample``
        below 1; not with ``n_parallel_trees``, whose trees draw separate rows, nor with ``subsample_by="gradient"``.
    oob_score_ : float
        Last value of ``oob_scores_``.
    evals_result_ : dict of dict of ndarray of float64
        Value of each metric (by name) on each evaluation set (by name) after each round, including the rounds that early stopping dropped;
        only with an ``eval_set``.
    best_iteration_, best_score_ : int, float
        Best round (from 0; the last one of the model) and its score; only with early stopping on an evaluation set.
    feature_importances_ : ndarray of float64 of shape (n_features_in_,)
        Share of each column in the ``importance_type`` of all splits (by default, their gain); sums to 1.
    """

    _GROUP_PER_OUTPUT: ClassVar[bool] = True
    _UNIT: ClassVar[str] = "round"

    loss: Any
    n_estimators_: int
    learning_rate_: float
    max_leaf_nodes_: int | None
    max_depth_: int | None
    reg_lambda_: float
    split_shrinkage_: float
    train_score_: NDArray[np.float64]
    validation_score_: NDArray[np.float64]
    oob_scores_: NDArray[np.float64]
    oob_improvement_: NDArray[np.float64]
    oob_score_: float
    evals_result_: dict[str, dict[str, NDArray[np.float64]]]
    _validated_by: str
    best_iteration_: int
    best_score_: float

    _loss_name: str
    _loss_parameters: dict[str, Any]

    def _check_classes(self, table: Table) -> None:
        """Raise ValueError for a training set of a single class, which is only allowed for boosters of a bag."""

    def _loss(self, table: Table) -> LinkedLoss:
        """Return the loss for a table."""
        n_classes = list(map(len, table.classes)) if isinstance(table.classes, list) else table.n_classes
        return registry.loss_for(self.loss, n_classes, self._parameters_of_loss(), table.n_targets)

    def _parameters_of_loss(self) -> dict[str, Any]:
        """Return the parameters that the loss takes."""
        found: dict[str, Any] = {}
        for name, default in registry.parameters_of(registry.name_of(self.loss)).items():
            value = getattr(self, name)
            if np.ndim(value) > 1 or (np.ndim(value) and np.asarray(value).dtype.kind not in "fiu"):
                raise ValueError(f"{name} is {value!r:.200}; wants a number, or numbers in one dimension")
            found[name] = tuple(map(float, value)) if np.ndim(value) else type(default)(value)
        return found

    def _warn_of_parameters_without_effect(self) -> None:
        """Warn of parameters that have no effect with this loss or these options, as scikit-learn's estimators ignore them silently."""
        for name in [name for name in registry.all_parameters() if hasattr(self, name)]:
            others, value = registry.losses_with(name), getattr(self, name)
            if registry.name_of(self.loss) not in others and (np.ndim(value) or value not in others.values()):
                wanted = " or ".join(f"loss={other!r}" for other in others)
                warn(f"{name}={value} has no effect: it is for {wanted}, but loss is {self.loss!r}; pass such a loss, or no {name}")
        rules.warn_of_boosting(self)

    @property
    def _columns_of_y(self) -> bool | str:
        """Multi-output, or the meaning of the columns that the loss requires."""
        return registry.columns_of(self.loss) or self._MULTI_OUTPUT

    @property
    def _columns_of_target(self) -> str:  # type: ignore[override]
        return registry.columns_of(self._loss_name)

    def _steps(self) -> tuple[Step, ...]:
        return (self._fitted_loss.predictions,)

    @property
    def _fitted_loss(self) -> LinkedLoss:
        """The loss of the fitted trees, even if the parameter was set to another one afterwards."""
        return registry.loss_for(self._loss_name, getattr(self, "n_classes_", 0), self._loss_parameters, self._n_targets)

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        base_margin: Any = None,
        eval_set: Any = None,
        callbacks: Sequence[Callback | EarlyStopping] = (),
        monitor: Monitor | None = None,
        checkpoint: Any = None,
        checkpoint_interval: float = rules.CHECKPOINT_INTERVAL,
        client: Any = None,
        placement: str | None = None,
    ) -> Self:
        """Fit the boosting model.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
            Numbers; frames may also have text and categories. NaN marks missing values.
        y : array-like of shape (n,) or (n, k)
            Finite numbers for a regressor, labels (at least two) for a classifier. k columns are k targets. Each round grows trees for each
            target, as a model of that target alone would, apart from the drawing of rows and columns.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights; rows of weight 0 have no effect.
        X_val, y_val, sample_weight_val : as X, y and sample_weight, or None, default=None
            Validation rows for early stopping, in place of held-out rows of X, as in scikit-learn's ``HistGradientBoostingRegressor``. With
            ``n_iter_no_change``, they are scored by ``scoring``, with ``tol``; ``validation_score_`` are their scores, and
            ``validation_fraction`` is ignored. With ``early_stopping_rounds``, they are an ``eval_set``. ``evals_result_`` calls them
            ``"X_val"``. Neither with ``eval_set`` nor with ``base_margin``, for which tuples of an ``eval_set`` have a place.
        base_margin : array-like of shape (n,), (n, n_classes) or (n, k), or None, default=None
            Raw scores that trees start from, instead of ``init``: one per row, or one per row and class or target for more than two classes
            or multi-output targets. They are log odds for two classes, and logarithms of the mean for losses of positive predictions.
            Predictions then require the scores of their rows, too. Those of a Dask collection are fetched by the coordinator.
        eval_set : list or dict of tuples, or None, default=None
            Evaluation sets, on which ``eval_metric`` is computed after each round; see ``evals_result_``. A list of ``(X, y)``, ``(X, y,
            weight)`` or ``(X, y, weight, base_margin)``, with the names ``"validation_0"`` and so on, or a dict from names to such tuples,
            in memory or as Dask collections. They do not affect the trees, except for their number with ``early_stopping_rounds``. With
            ``base_margin``, each set needs its own.
        callbacks : sequence of callable or EarlyStopping, default=()
            Functions called with a :class:`dtrees.callbacks.Progress` after each round; a function that returns True ends the fit. At most
            one may be a :class:`dtrees.EarlyStopping`, in place of ``early_stopping_rounds``. See also :class:`dtrees.ProgressBar` and
            :class:`dtrees.KeepOnInterrupt`.
        monitor : callable or None, default=None
            A callback in scikit-learn's form, called with the index of the round, a copy of this estimator with ``train_score_`` so far but
            without the trees, and a dict with the :class:`dtrees.callbacks.Progress` as "progress"; returning True ends the fit.
        checkpoint : str, path-like or None, default=None
            File or fsspec URL (``s3://...``) in which finished rounds are saved. If the file exists, from an interrupted fit of the same
            data and parameters, the fit continues from it and gives the same model as an uninterrupted fit; any other checkpoint is
            refused. It holds trees only (no pickle), is written atomically, and the previous one is kept beside it as ``PATH.previous``. On
            a cluster, every worker must be able to reach it.
        checkpoint_interval : float, default=60.0
            Seconds between checkpoints; 0 saves one after each round. One is also saved at the beginning and at the end.
        client : distributed.Client or None, default=None
            Client of the Dask cluster to fit on. None uses the current client if X is a Dask collection, and no cluster otherwise. Data in
            memory is sent to one worker.
        placement : {"auto", "one-worker", "sharded", "rows"} or None, default=None
            Placement of the columns or rows on the cluster, for a Dask collection; see :func:`dtrees.submit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data is invalid.
        """
        sets = named_sets(eval_set, X_val, y_val, sample_weight_val)
        options = FitOptions(callbacks, monitor, checkpoint, checkpoint_interval)
        return self._fit(X, y, sample_weight, sets, base_margin, options, stops_by_set=X_val is not None)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, sets: list[EvalSet], base_margin: Any, options: FitOptions, *, stops_by_set: bool = False
    ) -> Self:
        """Boost through the backend of the data; see :meth:`fit`."""
        keep = self._continues_previous_fit()
        name = registry.name_of(self.loss)
        if keep and name != self._loss_name:
            raise ValueError(f"warm_start=True keeps the trees of the loss {self._loss_name!r}, but loss is {name!r}; pass the same")
        self._warn_of_parameters_without_effect()
        rules.check_checkpoint(options.checkpoint, options.checkpoint_interval)
        if keep and self.drop_rate > 0:
            raise ValueError(
                f"drop_rate={self.drop_rate} and warm_start=True: earlier rounds are kept as they are, and dropout would change them; pass "
                "drop_rate=0, or warm_start=False to fit all rounds again"
            )
        loss_parameters = self._parameters_of_loss()
        if keep and loss_parameters != self._loss_parameters:
            raise ValueError(
                f"warm_start=True keeps the trees of the loss {name!r} with {self._loss_parameters}, but now it is to have "
                f"{loss_parameters}; pass the same"
            )
        if keep and self.n_parallel_trees != self._trees.n_parallel:
            raise ValueError(
                f"warm_start=True keeps rounds of {self._trees.n_parallel} trees for each output, but n_parallel_trees is "
                f"{self.n_parallel_trees}; pass the same"
            )
        sets = [replace(given, columns=registry.columns_of(self.loss)) for given in sets]
        asked, scorer = self._check_combinations(base_margin, keep=keep)
        early, callbacks = split_callbacks(options.callbacks, self.early_stopping_rounds)
        stopping = None if early is None else early.rule([given.name for given in sets], asked)
        if stops_by_set:
            stopping = self._stopping_by_validation(stopping, scorer, len(asked))
        stalls = isinstance(stopping, Stalling)
        callback = called_together(with_monitor(callbacks, options.monitor, self, keep=keep))
        backend, table = self._load(
            X,
            y,
            sample_weight,
            keep=keep,
            sets=sets,
            remembered=self.n_estimators * self.n_parallel_trees if self.drop_rate > 0 else 0,
            base_margin=base_margin,
            n_outputs=int(np.size(loss_parameters.get("alpha", 0.0))),
            fetch_X=self.init is not None and not self._init_is_zero,
        )
        self._check_classes(table)
        loss = self._loss(table)
        plan = replace(self._plan(table, loss, keep), stopping=stopping)
        metrics = [metric_for(metric, loss) for metric in asked]
        if stalls:
            metrics.append(scoring_for(scorer, loss, table.classes) or metric_for("loss", loss))
            plan = replace(plan, n_iter_no_change=None, scoring=None)
        if plan.n_parallel_trees > 1 and plan.subsample >= 1.0 and plan.rules.max_features >= self.n_features_in_:
            warn(
                f"n_parallel_trees={plan.n_parallel_trees} has no effect: the trees of a round are equal where neither rows nor columns "
                "are drawn; pass a subsample, max_features or colsample_bytree below 1 as well"
            )
        initial = self._starting_points(backend, table, plan, loss, keep=keep)
        table = replace(table, X=None, base_margin=None)
        if sets:
            sets = [replace(given, start=self._start_of(given, loss)) for given in sets]
            table = self._load_evaluation(backend, table, sets, metrics)
        if keep and getattr(self, "_validated_by", None) == self._validation(plan):
            plan = replace(plan, scores_before=tuple(self.validation_score_.tolist()))
        previous = self._trees.rounds if keep else []
        plan = self._with_checkpoint(plan, backend, table, options, keep=keep, initial=initial)
        grow = partial(backend.boost, table, plan, previous, initial, callback)
        result = grow_interruptibly(partial(self._timed, grow), callbacks, len(previous))
        self._n_grown = len(result.rounds) - len(previous) if options.checkpoint is None else None
        self._take_over(result, plan, keep=keep)
        if result.train_score.size and result.train_score[-1] > loss.negligible(result.initial):
            self._warn_without_splits(
                f"no column of X divides rows into leaves with hessians of min_child_weight={self.min_child_weight} in all (a row has "
                "one of its weight for squared error, of at most a quarter of it for log loss, of that times its prediction for Poisson), "
                "as many rows as min_samples_leaf asks for, a share as min_weight_fraction_leaf does, and, beyond reg_alpha, "
                "a gain as min_impurity_decrease and min_split_gain do"
            )
        self._keep_scores(result, sets, [metric_name(metric) for metric in asked], stopping)
        self._set_loss_attributes(backend, table, X, base_margin)
        return self

    def _set_loss_attributes(self, backend: Backend, table: Table, X: Any, base_margin: Any) -> None:
        """Set further attributes of a loss that depend on the fitted rows, after the trees are grown."""

    def _stopping_by_validation(self, stopping: Stopping | None, scorer: Any, n_metrics: int) -> Stopping:
        """Return the rule by which ``X_val`` ends the fit: the given one, or that of held-out rows, with an additional metric."""
        if (stopping is None) == (self.n_iter_no_change is None):
            raise ValueError(
                f"X_val is given to decide when to stop, but n_iter_no_change is {self.n_iter_no_change!r} and early_stopping_rounds "
                f"{self.early_stopping_rounds!r}; wants one of them, or eval_set in place of X_val, to watch other rows only"
            )
        if stopping is not None:
            return stopping
        if registry.name_of(self.loss) == "huber" and scorer is None:
            raise ValueError("X_val is given with scoring='loss', but loss='huber' is another one in each round; wants another scoring")
        assert self.n_iter_no_change is not None
        return Stalling(int(self.n_iter_no_change), 0, n_metrics, float(self.tol), scorer is not None)

    def _wants(self) -> tuple[Want, ...]:
        return of_loss(registry.loss_for(self.loss, 2 if is_classifier(self) else 0, self._parameters_of_loss()), self.loss)

    def _metrics_asked(self) -> list[Any]:
        """Return the metrics of evaluation sets, of which the last one decides about early stopping."""
        classify = is_classifier(self)
        default = registry.default_metric(registry.name_of(self.loss), classify=classify)
        return check_metrics(self.eval_metric, classify=classify, default=default, columns=registry.columns_of(self.loss))

    def _check_combinations(self, base_margin: Any, *, keep: bool) -> tuple[list[Any], Any]:
        """Return the metrics and the scorer; raise ValueError for invalid combinations of parameters."""
        classify, name = is_classifier(self), registry.name_of(self.loss)
        columns = registry.columns_of(self.loss)
        scorer = check_scoring(self.scoring, classify=classify, columns=columns)
        asked = self._metrics_asked()
        if name == "huber" and "loss" in asked:
            raise ValueError("eval_metric has 'loss', but loss='huber' is another one in each round; use 'mae' or 'rmse'")
        if isinstance(self.loss, str) and self.loss == registry.NAME:
            raise ValueError("loss='custom' is the name of a function that a model file cannot hold; pass the function to fit again")
        if scorer is not None and self.n_iter_no_change is None:
            raise ValueError(
                f"scoring={self.scoring!r} is for early stopping by n_iter_no_change, but n_iter_no_change is None; pass a number of "
                "rounds, or scoring='loss'"
            )
        loss = registry.loss_for(self.loss, 2 * classify, self._parameters_of_loss())
        if isinstance(loss, SeveralQuantiles):
            for name, given in (("eval_metric", asked), ("scoring", [scorer])):
                if sklearns := [one for one in given if one not in ("loss", None) and (isinstance(one, str) or sklearn_metric(one))]:
                    raise ValueError(
                        f"{name} has {metric_name(sklearns[0])!r}, which is of one prediction a row, but alpha has several quantiles; "
                        "wants 'loss', or a function of your own"
                    )
        if callable(self.loss) and "loss" in asked:
            raise ValueError("eval_metric has 'loss', but loss is a function of derivatives, which has no value; use another metric")
        if loss.takes_all_rows and self.n_iter_no_change is not None and scorer is None:
            what = "a function of derivatives, which has none" if callable(self.loss) else f"{self.loss!r}, which has one of all rows only"
            raise ValueError(
                f"n_iter_no_change={self.n_iter_no_change} with scoring='loss' wants the value of the loss, but loss is {what}; pass "
                "another scoring"
            )
        if columns and self.init is not None and not self._init_is_zero:
            raise ValueError(f"init is {self.init!r:.60}, but loss={name!r} has a y that no such estimator learns; wants 'zero' or None")
        if base_margin is not None and self.init is not None:
            raise ValueError(f"base_margin is given, and init is {self.init!r}; wants one of them, as both say what trees start from")
        starts = BY_MARGIN if base_margin is not None else BY_LOSS if self.init is None else ZERO if self._init_is_zero else BY_ESTIMATOR
        if keep and starts != self._starts:
            raise ValueError(
                f"warm_start=True keeps trees that started from {STARTS[self._starts]}, not from {STARTS[starts]}; pass the same"
            )
        return asked, scorer

    def _take_over(self, result: BoostingResult, plan: BoostingPlan, *, keep: bool) -> None:
        """Set trees and losses."""
        score = np.full_like(result.train_score, np.nan) if plan.loss.takes_all_rows else result.train_score
        self.train_score_ = np.concatenate([self.train_score_, score]) if keep else score
        if plan.n_iter_no_change is not None:
            earlier = getattr(self, "validation_score_", np.empty(0)) if keep else np.empty(0)
            self.validation_score_ = np.concatenate([earlier, result.validation_score])
            self._validated_by = self._validation(plan)
            _check_deciding(self.validation_score_, f"scoring={self.scoring!r}")
        else:
            self._forget("validation_score_", "_validated_by")
        self._forget("evals_result_", *_OF_ALL_ROUNDS)
        self._take_over_out_of_bag(result, plan, keep=keep)
        self.max_features_, self.min_samples_leaf_ = plan.rules.max_features, plan.rules.min_samples_leaf
        self.max_leaf_nodes_, self.max_depth_ = plan.rules.max_leaf_nodes, plan.rules.max_depth
        vars(self).update(self._so_far(result))

    def _so_far(self, result: BoostingResult) -> dict[str, Any]:
        trees = AdditiveTrees.of_rounds(result.rounds, result.initial)
        loss = {"_loss_name": registry.name_of(self.loss), "_loss_parameters": self._parameters_of_loss()}
        return {"_trees": trees, "n_estimators_": len(result.rounds), **loss}

    def _validation(self, plan: BoostingPlan) -> str:
        """Return a description of the rows and score of early stopping, as scores can only be compared if these are the same."""
        scoring = self.scoring if self.scoring is None or isinstance(self.scoring, str) else metric_name(self.scoring)
        return f"{scoring!r} of {plan.validation_fraction!r} drawn by {plan.seed}"

    def _take_over_out_of_bag(self, result: BoostingResult, plan: BoostingPlan, *, keep: bool) -> None:
        """Set the losses of undrawn rows, NaN for rounds that drew all rows; as in scikit-learn, each loss is for different rows."""
        if keep and len(result.rounds) == self._trees.n_rounds:
            return
        earlier = getattr(self, "oob_scores_", np.full(self._trees.n_rounds, np.nan)) if keep else np.empty(0)
        improved = getattr(self, "oob_improvement_", earlier) if keep else np.empty(0)
        self._forget("oob_scores_", "oob_improvement_", "oob_score_")
        if len(result.out_of_bag) and not plan.loss.takes_all_rows:
            scores, before = result.out_of_bag.T
            self.oob_scores_ = np.concatenate([earlier, scores])
            previous = np.concatenate([earlier[-1:] if len(earlier) else before[:1], scores[:-1]])
            self.oob_improvement_ = np.concatenate([improved, previous - scores])
            self.oob_score_ = float(self.oob_scores_[-1])

    def _keep_scores(self, result: BoostingResult, sets: Sequence[EvalSet], metrics: Sequence[str], stopping: Stopping | None) -> None:
        """Set the scores of evaluation sets; with early stopping, leave out the rounds after the best."""
        if not sets:
            return
        scores = result.evaluation
        self.evals_result_ = {
            given.name: {metric: scores[:, i, k].copy() for k, metric in enumerate(metrics)} for i, given in enumerate(sets)
        }
        if stopping is None:
            return
        deciding = scores[:, stopping.set, stopping.metric]
        if isinstance(stopping, Stalling):
            self.validation_score_ = deciding.copy()
            _check_deciding(deciding, f"scoring={self.scoring!r} of X_val")
            return
        _check_deciding(deciding, f"eval_metric {metrics[stopping.metric]!r} of the set {sets[stopping.set].name!r}")
        self.best_iteration_ = stopping.best(deciding.tolist())
        self.best_score_ = float(deciding[self.best_iteration_])
        if self.best_iteration_ < len(deciding) - 1:
            self._keep_rounds(range(self.best_iteration_ + 1))

    def _keep_rounds(self, rounds: range) -> None:
        super()._keep_rounds(rounds)
        self.n_estimators_ = len(rounds)
        for name in SERIES:
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[list(rounds)])
        if hasattr(self, "oob_scores_"):
            self.oob_score_ = float(self.oob_scores_[-1])

    def _take_rounds(self, rounds: range) -> None:
        self._forget(*_OF_ALL_ROUNDS)
        if (rounds.start, rounds.step) != (0, 1):
            self._forget("_seed")  # further rounds would differ from those of a model with the dropped rounds
        if hasattr(self, "evals_result_"):
            self.evals_result_ = {
                name: {metric: scores[list(rounds)] for metric, scores in metrics.items()} for name, metrics in self.evals_result_.items()
            }
        super()._take_rounds(rounds)

    def _refit_plan(self, class_weight: tuple[Any, ...] | None) -> BoostingPlan:
        loss = self._fitted_loss
        if self._loss_name == registry.NAME:
            if not callable(self.loss):
                raise ValueError(f"loss is {self.loss!r}, a function that a model file could not hold; set it, to find new values by it")
            loss = registry.loss_for(self.loss, getattr(self, "n_classes_", 0), {}, self._n_targets)
        limits = rules.rules_of_values(self, "newton")
        rate, first_order = float(self.learning_rate_), self.criterion == "squared_error"
        return BoostingPlan(
            limits,
            0,
            loss,
            0,
            learning_rate=rate,
            n_parallel_trees=self._trees.n_parallel,
            first_order=first_order,
            class_weight=class_weight,
        )

    def _take_refitted(self, train_score: NDArray[np.float64] | None) -> None:
        assert train_score is not None
        self._forget("validation_score_", "_validated_by", "oob_scores_", "oob_improvement_", "oob_score_")
        self._forget("evals_result_", *_OF_ALL_ROUNDS)
        self.train_score_ = np.full_like(train_score, np.nan) if self._fitted_loss.takes_all_rows else train_score

    def refit_leaves(self, X: Any, y: Any, sample_weight: Any = None, *, decay: float = 0.9, base_margin: Any = None) -> Self:
        """Return a model with the same splits and leaf values refitted to other rows; see :meth:`RandomForestRegressor.refit_leaves`.

        The gradients of a round are taken at the predictions of the previous rounds with their new values. The initial prediction does not
        change. ``warm_start`` can continue the model.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,) or (n, n_outputs_)
            For a classifier, labels in ``classes_``.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights; rows of weight 0 have no effect.
        decay : float, default=0.9
            Weight of the previous values, between 0 and 1: LightGBM's ``refit_decay_rate``.
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Returns
        -------
        estimator of the same type
            A new model, with ``train_score_`` of these rows after each round.

        Raises
        ------
        ValueError
            If the rows do not match the fit, ``decay`` is not between 0 and 1, or ``loss`` is a function that is not available.

        Examples
        --------
        >>> import numpy as np
        >>> from dtrees import GradientBoostingRegressor
        >>> X = np.arange(20.0)[:, np.newaxis]
        >>> model = GradientBoostingRegressor().fit(X, np.where(X[:, 0] > 9, 1.0, 0.0))
        >>> model.refit_leaves(X, np.where(X[:, 0] > 9, 3.0, 0.0), decay=0.0).predict([[0.0], [15.0]]).round(1)
        array([0., 3.])
        """
        model = self._starting_from(base_margin)
        made = super(Boosting, model).refit_leaves(X, y, sample_weight, decay=decay)
        made.__dict__.pop("_margin", None)
        return made

    def _plan(self, table: Table, loss: LinkedLoss, keep: bool) -> BoostingPlan:
        if self.subsample_by == "gradient" and self.subsample == 1.0:
            raise ValueError("subsample_by is 'gradient', but subsample=1.0 draws all rows; wants a subsample below 1, such as 0.2")
        if self.subsample_by == "gradient" and loss.measures_leaves:
            raise ValueError(
                f"subsample_by is 'gradient', but the leaves of loss={registry.name_of(self.loss)!r} hold quantiles of residuals, not "
                "ratios of sums of gradients; wants subsample_by='uniform'"
            )
        class_weight = rules.class_weights(getattr(self, "class_weight", None), table, by_rows=False)
        weight, factors = float(table.total_weight), 1.0 if class_weight is None or table.n_targets > 1 else np.asarray(class_weight)
        if class_weight is not None and table.n_targets == 1:
            weight = math.fsum(table.by_target[0].weights * factors)
        n_rows = table.rows_that_count(class_weight)
        n_classes = max((int(np.count_nonzero(target.counts * factors)) for target in table.by_target), default=0)
        set_by_size(self, n_rows, n_classes, keep=keep)
        rules.check_penalty(float(self.reg_lambda_), weight)
        return BoostingPlan(
            rules=rules.rules_for(self, "newton_l1" if self.reg_alpha > 0 else "newton", n_rows),
            seed=self._take_seed(keep=keep),
            loss=loss,
            n_rounds=int(self.n_estimators),
            n_classes=table.n_classes if table.n_targets == 1 else 0,
            learning_rate=float(self.learning_rate_),
            n_parallel_trees=int(self.n_parallel_trees),
            subsample=float(self.subsample),
            subsample_by=self.subsample_by,
            validation_fraction=None if self.validation_fraction is None else float(self.validation_fraction),
            n_iter_no_change=None if self.n_iter_no_change is None else int(self.n_iter_no_change),
            tol=float(self.tol),
            scoring=scoring_for(
                check_scoring(self.scoring, classify=is_classifier(self), columns=registry.columns_of(self.loss)), loss, table.classes
            ),
            first_order=self.criterion == "squared_error",
            class_weight=class_weight,
            dropout=Dropout(float(self.drop_rate), float(self.skip_drop), self.drop_normalization) if self.drop_rate else None,
        )

    @property
    def estimators_(self) -> NDArray[Any]:
        """The trees, each as a fitted :class:`DecisionTreeRegressor` of steps before shrinkage, read-only.

        The shape is ``(n_estimators_, n_trees_per_iteration_)``; a row has one tree per output, then the next parallel tree of each output.

        As in scikit-learn, the raw prediction is that of ``init_`` plus ``learning_rate_`` times the sum of theirs.
        """
        scale = float(resolved_value(self, "learning_rate")) or 1.0  # without a learning rate, all steps are zero
        members = np.empty((len(self._trees.groups[0]), len(self._trees.groups)), dtype=object)
        for output, group in enumerate(self._single_trees(DecisionTreeRegressor, None, scale)):
            members[:, output] = group
        members = members.reshape(self._trees.n_rounds, -1)
        members.flags.writeable = False
        return members

    @estimators_.setter
    def estimators_(self, estimators: Any) -> None:
        raise AttributeError(
            "estimators_ of boosting cannot be assigned, since each round was grown on those before; use staged predictions, early "
            "stopping or a smaller n_estimators for fewer rounds"
        )

    @property
    def n_trees_per_iteration_(self) -> int:
        """Number of trees per round: ``n_parallel_trees`` times the number of outputs.

        One output, or one per quantile or class (if more than two), summed over targets.
        """
        check_is_fitted(self)
        return len(self._trees.groups) * self._trees.n_parallel

    @property
    def init_(self) -> Any:
        """The initial prediction: a constant estimator, the fitted ``init``, or "zero" (also with ``base_margin``).

        For multi-output targets of classes, the constants are a list with one estimator for each target.
        """
        check_is_fitted(self)
        if self._starts != BY_LOSS:
            return self._init_estimator or "zero"
        assert self._trees.initial is not None
        return self._constant(self._fitted_loss.predictions(self._trees.initial[np.newaxis]))

    @property
    def _has_link(self) -> bool:
        """Whether predictions differ from raw predictions."""
        return bool(np.any(self._fitted_loss.predictions(np.full((1, len(self._trees.groups)), 2.0)) != 2.0))

    def _compute_partial_dependence_recursion(self, grid: NDArray[Any], target_features: NDArray[np.int64]) -> NDArray[np.float64]:
        check_is_fitted(self)
        if not is_classifier(self) and self._has_link:
            raise ValueError(
                f"method='recursion' averages raw predictions, which are not predictions with loss={self._loss_name!r}; "
                "pass method='brute', which averages these"
            )
        return super()._compute_partial_dependence_recursion(grid, target_features)

    def predict(self, X: Any, base_margin: Any = None, *, n_trees: int | None = None) -> Any:
        """Predict the target or targets; for classification, the class with the highest probability, the first one in a tie.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.
        n_trees : int or None, default=None
            Number of rounds to predict with, from the first one. None uses all.

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs_) where y had several columns, or (n, n_quantiles)
            Numbers, or labels as in ``classes_``. A lazy Dask collection if X is one: for multi-output targets, an Array of that shape, or
            a DataFrame with the columns 0, 1 and so on; for several quantiles, with these as names.
        """
        return super(Boosting, self._first(n_trees)._starting_from(base_margin)).predict(X)

    def staged_predict(self, X: Any, base_margin: Any = None) -> Iterator[Any]:
        """Predict the target, or the class, after each round.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Yields
        ------
        ndarray of shape (n,), or (n, n_outputs_) where y had several columns, or (n, n_quantiles)
            See :meth:`predict`.
        """
        check_is_fitted(self)
        return self._starting_from(base_margin)._staged(X, *self._answer())

    def apply(self, X: Any) -> Any:
        """Return the leaf of each tree that each row falls in.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of int32 of shape (n, n_estimators_, n_trees_per_iteration_) or (n, n_estimators_)
            Node numbers within each tree; two-dimensional for a regressor with one tree per round. For a Dask collection, a lazy one of
            shape (n, n_estimators_ * n_trees_per_iteration_), round by round.
        """
        leaves = self._find_leaves(X)
        if isinstance(leaves, np.ndarray) and (hasattr(self, "classes_") or self.n_trees_per_iteration_ > 1):
            return leaves.reshape(len(leaves), self._trees.n_rounds, -1)
        return leaves

    def _staged(self, X: Any, steps: tuple[Step, ...], output: Output) -> Iterator[Any]:
        """Yield predictions after each round: round by round in memory, lazily for each elsewhere."""
        check_is_fitted(self)
        backend = self._check_columns(X)
        if backend is LOCAL:
            yield from self._predictor(*steps).staged(X, in_memory(self._margin)[0])
            return
        for n_rounds in range(1, self._trees.n_rounds + 1):
            yield backend.predict(X, self._predictor(*steps, n_rounds=n_rounds), output, self._margin)


def _check_deciding(scores: NDArray[np.float64], what: str) -> None:
    """Warn if some of the scores that decide about early stopping are NaN; raise ValueError if all are."""
    n_missing, n = int(np.isnan(scores).sum()), len(scores)
    if n and n_missing == n:
        raise ValueError(
            f"early stopping decides by {what}, which is NaN after each of {n} rounds, so that no round is the best; wants another metric, "
            "or rows that it is defined for (AUC, for example, wants at least two classes)"
        )
    if n_missing:
        warn(f"early stopping decides by {what}, which is NaN after {n_missing} of {n} rounds; these count as no improvement")
