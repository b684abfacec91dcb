"""The common parts of all estimators: loading, checks of columns, prediction through a backend, saving.

An estimator consists of its parameters, a :class:`~dtrees.ensemble.input.schema.Schema`, and trees
(:class:`~dtrees.ensemble.prediction.AdditiveTrees`). It fits and predicts through the backend of the collection that is passed in, and does
not depend on where the data are stored.
"""

from __future__ import annotations

import functools
import inspect
import time
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.plan.wants import Want, of_criterion
from dtrees.ensemble.backend import LoadOptions, Output, Placement, Table
from dtrees.ensemble.callbacks import Monitor, SklearnCallbacks, shown, with_bars
from dtrees.ensemble.compat import (
    BaseEstimator,
    CallbackSupportMixin,
    CheckedParameters,
    checked_fit,
    parameter_names,
    register_with_sklearn,
    with_callbacks,
    with_known_names,
)
from dtrees.ensemble.estimators.inspection import Explaining, copy_of, importance_by_column, normalised
from dtrees.ensemble.estimators.parameters import CommonParameters, NamedParameters, suggestion
from dtrees.ensemble.estimators.refitting import Refitting
from dtrees.ensemble.evaluation_sets import EvalSet
from dtrees.ensemble.in_process import LOCAL, Backend, backend_for
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.by_size import draws_by_default_alone, resolved
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.input.named_columns import Chosen, columns_of_categories, ordered_columns
from dtrees.ensemble.input.schema import column_names
from dtrees.ensemble.input.target import check_target, check_weights
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.metrics import Metric
from dtrees.ensemble.objective.loss import ROUNDING
from dtrees.ensemble.prediction import AdditiveTrees, FindLeaves, Predict, Step, by_target, first_column, mean_of
from dtrees.ensemble.state import take_classes
from dtrees.tree.tree import Tree

R = TypeVar("R")
Plan = TypeVar("Plan", ForestPlan, BoostingPlan)
#: For each fit, the number of rounds after it and the parameters by which they were grown.
GrownBy = tuple[tuple[int, dict[str, Any]], ...]

#: Attributes with the durations of a fit, for reports, which are normally not pickled.
_TIMES = ("_loading_seconds", "_growing_seconds")
_SENT_TIMES = "_sent_times"


class FitOptions(NamedTuple):
    """The arguments of ``fit`` for functions that are called during the fit, and for its checkpoint."""

    callbacks: Sequence[Any]
    monitor: Monitor | None
    checkpoint: Any
    checkpoint_interval: Any


class Model(CheckedParameters, NamedParameters, BaseEstimator):
    """Base class of trees, their ensembles and bags of boosters."""

    #: The unit of a fit's progress.
    _UNIT: ClassVar[str] = "tree"
    #: Whether y may have several columns, each a target.
    _MULTI_OUTPUT: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = self._MULTI_OUTPUT
        return tags

    @property
    def n_outputs_(self) -> int:
        """Number of targets (columns of y)."""
        check_is_fitted(self)
        return int(self._n_targets)

    @property
    def _columns_of_y(self) -> bool | str:
        """The columns that y may have; see :func:`~dtrees.ensemble.input.target.check_target`."""
        return self._MULTI_OUTPUT

    def _wants(self) -> tuple[Want, ...]:
        """Return the requirements of a fit, by its parameters, on the placement of its table."""
        return of_criterion(rules.CRITERION_ALIASES.get(self.criterion, self.criterion))

    def predict(self, X: Any) -> Any:
        """Predict the target or targets; for classification, the class with the highest probability, the first one in a tie.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs_) where y had several columns
            Numbers, or labels as in ``classes_``. A lazy Dask collection if X is one: for multi-output targets, an Array of that shape, or
            a DataFrame with the columns 0, 1 and so on.
        """
        self._check_fitted()
        steps, output = self._answer()
        return self._map(X, self._predictor(*steps), output)

    def _check_fitted(self) -> None:
        """Raise NotFittedError before fit."""
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def _score(self, metric: Callable[..., float], X: Any, y: Any, sample_weight: Any) -> float:
        """Return a metric of the predictions for X; y and the weights are checked as in ``fit``."""
        y, predictions, sample_weight = backend_for(X).gather(y, self.predict(X), sample_weight)
        columns = self._columns_of_y if isinstance(self._columns_of_y, str) else np.ndim(predictions) == 2
        y = check_target(y, classify=is_classifier(self), name=type(self).__name__, multi_output=columns)
        y = np.ascontiguousarray(y)  # the last bit of a sum depends on the memory layout
        return float(metric(y, predictions, sample_weight=check_weights(sample_weight, len(y))))

    def _forget(self, *names: str) -> None:
        """Delete attributes of an earlier fit."""
        for name in names:
            self.__dict__.pop(name, None)

    def _take_out_of_bag(self, backend: Backend, table: Table, mean: NDArray[np.float64], n_members: NDArray[np.integer]) -> None:
        """Set the out-of-bag predictions of rows, given their means and the number of ensemble members averaged, and their score."""
        if not n_members.all():
            warn(
                f"Some inputs do not have OOB scores. This probably means too few {self._UNIT}s were used to compute any reliable OOB "
                "estimates."
            )
        metric = self.oob_score if callable(self.oob_score) else self._metric
        self.oob_score_ = metric(backend.target(table), self._keep_out_of_bag(mean))


class TreeEstimator(CallbackSupportMixin, CommonParameters, Explaining, Refitting, Model, ABC):
    """Base class of the estimators of trees.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns at fit.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the columns; only if all names at fit are strings.
    is_categorical_ : ndarray of bool of shape (n_features_in_,)
        Whether a column is split by sets of categories, unless the criterion does not support sets.
    max_features_ : int
        Number of columns drawn for each node.
    placement_ : dtrees.ensemble.backend.Placement
        Placement of the table during the fit, and its reason. Its ``kind`` is "local", or on a cluster "one-worker", "replicated",
        "sharded" or "rows". It is not saved with the model.
    feature_importances_ : ndarray of float64 of shape (n_features_in_,)
        Share of each column in the ``importance_type`` of a tree's splits (by default, the decrease of impurity), averaged over trees; sums
        to 1.

    Notes
    -----
    X may be an array-like of numbers, a pandas or polars frame, or a Dask array or frame, which is fitted on the cluster. Text and category
    columns of frames hold categories; at prediction, unseen categories count as missing. Missing values (NaN) are allowed: each split sends
    them to the side with the larger gain.
    """

    min_samples_leaf_: int
    warm_start: bool
    n_features_in_: int
    max_features_: int
    is_categorical_: NDArray[np.bool_]
    placement_: Placement

    _seed: int
    #: Raw scores that were passed with the rows to be predicted.
    _margin: Any = None
    #: Number of rounds, or trees of a forest, used for predictions; None for all.
    _n_used: int | None = None
    _grown_by: GrownBy  # the earliest fit first; absent in a model from a file

    def __getstate__(self) -> Any:
        # Single trees are created on demand from trees in the state. Equal fits have equal pickles, so durations are left out.
        return {name: value for name, value in super().__getstate__().items() if name not in ("_members", *_TIMES)}

    def send_times(self) -> None:
        """Include the durations of the fit in the next pickle."""
        self.__dict__[_SENT_TIMES] = {name: value for name, value in vars(self).items() if name in _TIMES}

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self.__dict__.update(self.__dict__.pop(_SENT_TIMES, {}))
        if self.__sklearn_is_fitted__():
            register_with_sklearn(type(self))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_trees")

    def _continues_previous_fit(self) -> bool:
        """Whether ``fit`` adds to the existing trees; raise ValueError if it cannot."""
        if not self.warm_start or not self.__sklearn_is_fitted__():
            return False
        if not hasattr(self, "_seed"):
            raise ValueError(
                "warm_start=True cannot go on from this model: it does not know how its trees were grown, since it is a slice or a refit, "
                "estimators_ was assigned, or an early dtrees saved it; pass warm_start=False, and fit it again"
            )
        n_trees = self._trees.n_rounds
        if self.n_estimators < n_trees:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be larger or equal to len(estimators_)={n_trees} when warm_start==True"
            )
        return True

    def _take_seed(self, *, keep: bool) -> int:
        """Return the seed of a fit: the same each time for an integer, a new one for other states, but the first one for further trees."""
        if not keep or isinstance(self.random_state, int | np.integer):
            self._seed = 0 if draws_by_default_alone(self) else rules.draw_seed(self.random_state)
        return self._seed

    def _load(self, X: Any, y: Any, sample_weight: Any, *, keep: bool, **purpose: Any) -> tuple[Backend, Table]:
        """Load a training set, and set its columns and classes; with ``keep``, they must agree with the previous fit.

        ``purpose`` has fields of :class:`~dtrees.ensemble.backend.LoadOptions`.
        """
        backend = backend_for(X)
        self._forget("_members")
        # Names are checked first, before any expensive step.
        self._check_names(backend.header(X), reset=not keep)
        chosen = self._chosen_categories()
        purpose = {"multi_output": self._columns_of_y, "wants": self._wants(), **purpose, "categories": chosen.named}
        options = LoadOptions(is_classifier(self), type(self).__name__, self.n_jobs, **purpose)
        start = time.perf_counter()
        table = backend.load(X, y, sample_weight, options)
        self._loading_seconds = time.perf_counter() - start
        if table.placement.kind == "local":  # for any kind of X
            backend = LOCAL
        if keep:
            self._check_same_encoding(table)
        self._n_targets = table.n_targets
        self._schema = table.schema
        self._note_categories(chosen)
        self._refuse_text_as_numbers(chosen)
        if table.classes is not None:
            take_classes(self, table.classes)
        self.placement_ = table.placement
        return backend, table

    def _with_checkpoint(self, plan: Plan, backend: Backend, table: Table, options: FitOptions, *, keep: bool, initial: Any = None) -> Plan:
        """Return a plan that stores its trees in a checkpoint, if one is wanted, and take over the checkpoint's seed."""
        if options.checkpoint is not None:
            from dtrees.ensemble.checkpoint import with_checkpoint  # imported only when needed

            path, interval = options.checkpoint, options.checkpoint_interval
            plan = with_checkpoint(plan, self, backend, table, path, interval, keep=keep, initial=initial)
            self._seed = plan.seed
        return plan

    def _timed(self, grow: Callable[[], R]) -> R:
        """Return the result of ``grow()``, and store its duration for reports."""
        start = time.perf_counter()
        try:
            return grow()
        finally:
            self._growing_seconds = time.perf_counter() - start

    def _chosen_categories(self) -> Chosen:
        """Return the columns that ``categorical_features`` chooses."""
        return columns_of_categories(self.categorical_features, self.n_features_in_, getattr(self, "feature_names_in_", None))

    def _note_categories(self, chosen: Chosen) -> None:
        """Set which columns are split by sets of categories, given the schema and what :meth:`_chosen_categories` returned."""
        of_kind = {j for j, column in enumerate(self._schema.columns) if column.kind == CATEGORICAL}
        by_dtype = of_kind - ordered_columns(self) if chosen.by_dtype else set()
        self.is_categorical_ = np.zeros(len(self._schema), np.bool_)
        self.is_categorical_[sorted(by_dtype | of_kind.intersection(chosen.named))] = True

    def _refuse_text_as_numbers(self, chosen: Chosen) -> None:
        """Raise if ``categorical_features`` lists columns, but omits text columns, whose category numbers have no meaning."""
        if not chosen.named:
            return
        columns = zip(self._schema.columns, self.is_categorical_, strict=True)
        left_out = [column.name for column, by_sets in columns if column.has_unordered_text and not by_sets]
        if left_out:
            raise ValueError(
                f"categorical_features is {self.categorical_features!r:.200}, which leaves out X column{'s' * (len(left_out) > 1)} "
                f"{', '.join(map(repr, left_out[:5]))}{', ...' * (len(left_out) > 5)}: text, which has no numeric order. Put "
                "'from_dtype' in the list for all columns of text and of category dtypes, name them, or drop them"
            )

    def _load_evaluation(self, backend: Backend, table: Table, sets: Sequence[EvalSet], metrics: Sequence[Metric]) -> Table:
        """Load evaluation sets for a training set."""
        for given in sets:
            try:
                self._check_names(backend_for(given.X).header(given.X), reset=False)
            except ValueError as error:
                raise ValueError(f"eval_set {given.name!r}: {error}") from error
        return backend.load_evaluation(table, sets, metrics)

    def _warn_without_splits(self, why: str) -> None:
        """Warn if no tree has a split, and none was pruned; ``why`` is a possible reason."""
        if not self.ccp_alpha and not any(tree.node_count > 1 for group in self._trees.groups for tree in group):
            if self.monotonic_cst is not None:
                why += ", and is as monotonic_cst wants it"
            if self.is_categorical_.any() and self.min_samples_category is None:
                why += "; sets of categories must tell more than chance does, unless min_samples_category is set"
            warn(f"no tree found a split, so that predictions are the same for all rows, though y varies: {why}")

    def _warn_if_constant(self) -> None:
        """Warn if no tree of a forest, or a single tree, has a split although the targets of its rows differ."""
        if any(tree.impurity[0] > (ROUNDING * np.abs(tree.value[0]).max()) ** 2 for tree in self._trees.groups[0]):
            self._warn_without_splits(
                "no column of X divides rows into leaves that are as large as min_samples_leaf and min_weight_fraction_leaf ask for, and "
                "gain as much as min_impurity_decrease does"
            )

    def _check_same_encoding(self, table: Table) -> None:
        """Raise if category, class or target numbers in the trees of the previous fit have other meanings in this table."""
        if table.n_targets != self._n_targets:
            raise ValueError(
                f"warm_start=True keeps the trees of {self._n_targets} target(s), but y has {table.n_targets} now; pass as many, or "
                "warm_start=False"
            )
        for was, column in zip(self._schema.columns, table.schema.columns, strict=True):
            if was.categories != column.categories and CATEGORICAL in (was.kind, column.kind):
                raise ValueError(
                    f"warm_start=True keeps the trees of the previous fit, which know the categories of X column {column.name!r} by their "
                    f"numbers, but it {_difference(was.categories, column.categories)} now. Pass rows that have every category of the "
                    "previous fit and no other (of rare ones, a row of weight 0 will do), or fit all rows with warm_start=False"
                )
        before, now = by_target(getattr(self, "classes_", table.classes)), by_target(table.classes)
        for k, (old, new) in enumerate(zip(before, now, strict=True)):
            if not np.array_equal(old, new):
                which = f"y[:, {k}]" if len(now) > 1 else "y"
                raise ValueError(
                    f"warm_start=True keeps the trees of the previous fit, but {which} had the classes {old.tolist()} then and "
                    f"has {new.tolist()} now; pass the same classes, or warm_start=False"
                )

    def _map(self, X: Any, function: Callable[[Any], NDArray[Any]], output: Output) -> Any:
        """Apply a function to the rows of ``X`` through its backend; its columns must match those of ``fit``."""
        return self._check_columns(X).predict(X, function, output, self._margin)

    def _check_columns(self, X: Any) -> Backend:
        """Check the columns of ``X`` by scikit-learn's rules, and return its backend."""
        self._check_fitted()
        backend = backend_for(X)
        # For an array without names, if ``fit`` saw none, only the width is checked. scikit-learn's check takes longer than predicting a
        # row.
        plain = type(X) is np.ndarray and X.ndim == 2 and not hasattr(self, "feature_names_in_")
        if not plain or X.shape[1] != self.n_features_in_:
            self._check_names(backend.header(X), reset=False)
        return backend

    def _check_names(self, X: Any, *, reset: bool) -> None:
        """Check the names and the number of columns by scikit-learn's rules, or, with ``reset``, store them."""
        if reset and type(X) is np.ndarray:  # an array has no names; scikit-learn's search for them takes as long as growing a small tree
            self.n_features_in_ = X.shape[1]
            self._forget("feature_names_in_")
            return
        names = column_names(X)
        if len(set(names)) < len(names):
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            raise ValueError(f"X has more than one column of the name {', '.join(map(repr, twice))}; wants a different name for each")
        validate_data(self, X=with_known_names(X, names), skip_check_array=True, reset=reset)

    def _steps(self) -> tuple[Step, ...]:
        """Return the steps from raw predictions, of trees whose mean is predicted, to values or to the probabilities of classes."""
        mean = functools.partial(mean_of, self._n_used or self._trees.n_rounds)
        return (mean, first_column) if self._n_targets == 1 and not hasattr(self, "classes_") else (mean,)

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The share of each column in the ``importance_type`` of all splits; zeros without splits."""
        check_is_fitted(self)
        trees, kind = [tree for group in self._trees.groups for tree in group], self.importance_type
        return normalised(np.sum([importance_by_column(tree, self.n_features_in_, kind) for tree in trees], axis=0))

    def _predictor(self, *steps: Step, n_rounds: int | None = None) -> Predict:
        return Predict(self._schema, self._trees, steps, self.n_jobs, n_rounds or self._n_used)

    def _find_leaves(self, X: Any, first: int = 0, last: int | None = None) -> Any:
        """Return the leaf of each row in some trees of each group, shape (n, n_trees)."""
        self._check_fitted()
        groups = [group[first:last] for group in self._trees.groups]
        n_trees = sum(map(len, groups))
        whole = len(groups[0]) == len(self._trees.groups[0])  # the complete model may be packed already
        function = FindLeaves(self._schema, self._trees if whole else AdditiveTrees(groups), self.n_jobs)
        return self._check_columns(X).predict(X, function, Output(np.dtype(np.int32), n_trees, "apply"))

    def _single_trees(self, kind: type[TreeEstimator], classes: Any, scale: float = 1.0) -> list[list[Any]]:
        """Return each tree, by groups, as a fitted estimator with the parameters of its fit that both kinds have.

        Values are divided by ``scale``. The estimators are cached.
        """
        check_is_fitted(self)
        members: dict[float, list[list[Any]]] = self.__dict__.setdefault("_members", {})
        if scale not in members:
            grown_by = self.__dict__.get("_grown_by") or ((self._trees.n_rounds, resolved(self)),)
            by_round = [self._of_member(kind, given) for n_rounds, given in grown_by for _ in range(n_rounds * self._trees.n_parallel)]
            scaled = (lambda tree: tree) if scale == 1.0 else (lambda tree: replace(tree, value=tree.value / scale))
            members[scale] = [
                [self._single_tree(kind, own, classes, scaled(tree)) for own, tree in zip(by_round, group, strict=True)]
                for group in self._trees.groups
            ]
        return members[scale]

    def _of_member(self, kind: type[TreeEstimator], given: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of an ensemble that its trees, as estimators of a kind, have too."""
        names = set(parameter_names(kind)) - {"random_state"}
        own = {name: value for name, value in given.items() if name in names}
        if own.get("class_weight") == "balanced_subsample":
            own["class_weight"] = "balanced"
        if self._GROUP_PER_OUTPUT:
            own["criterion"] = "squared_error"  # splits of gradients
        return own

    def _note_parameters(self, before: AdditiveTrees | None, grown_by: GrownBy) -> None:
        """Record the parameters of the rounds grown by the fit that has just ended, in addition to those of earlier rounds."""
        there = 0 if before is None or not self.warm_start else before.n_rounds
        previous = grown_by if sum(n for n, _ in grown_by) == there else ((there, resolved(self)),)
        self._grown_by = (*(previous if there else ()), (self._trees.n_rounds - there, resolved(self)))

    def _single_tree(self, kind: type[TreeEstimator], parameters: dict[str, Any], classes: Any, tree: Tree) -> Any:
        register_with_sklearn(kind)
        single = kind(**parameters)
        single._schema = self._schema
        single._trees = AdditiveTrees([[tree]])
        single._boosted = self._GROUP_PER_OUTPUT
        for name in ("n_features_in_", "feature_names_in_", "max_features_"):
            if hasattr(self, name):
                setattr(single, name, getattr(self, name))
        if classes is not None:
            take_classes(single, classes)
        if not self._GROUP_PER_OUTPUT:
            single._n_targets = self._n_targets
        return single

    def _local_leaves(self, X: Any) -> NDArray[np.int32]:
        """Return leaf numbers for decision paths, which have no lazy form."""
        leaves = self._find_leaves(X)
        if not isinstance(leaves, np.ndarray):
            raise TypeError(f"decision_path wants an array or a frame in memory, not {type(X).__name__}; pass X.compute()")
        return leaves


def _difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    """Return a description of the categories in which two dictionaries differ."""
    known, there = set(before), set(now)
    differing = {"has": [one for one in now if one not in known], "lacks": [one for one in before if one not in there]}
    words = [f"{verb} {', '.join(map(repr, some[:5]))}{', ...' * (len(some) > 5)}" for verb, some in differing.items() if some]
    return " and ".join(words) or "has them in another order"


#: Attributes in which scikit-learn stores callbacks, and the context of a fit within another one.
_OF_SKLEARNS_CALLBACKS = {"_skl_callbacks", "_parent_callback_ctx"}


def _called_back(fit: Callable[..., Any], model: Any, X: Any, y: Any, sample_weight: Any, options: dict[str, Any]) -> Any:
    """Fit a model with scikit-learn's callbacks by a copy without them, which may be fitted anywhere."""

    def run(model: Any) -> None:
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        n_before = model._trees.n_rounds if getattr(model, "warm_start", False) and model.__sklearn_is_fitted__() else 0
        called = SklearnCallbacks(model, n_before, {"X": X, "y": y, "metadata": metadata})
        bare, held = copy_of(model), {name: value for name, value in vars(model).items() if "_callback" in name}
        bare._forget(*held)
        model.__dict__ = vars(fit(bare, X, y, sample_weight, **{**options, "callbacks": [*options.get("callbacks", ()), called]})) | held
        called.ended_with(bare)

    with_callbacks(run)(model)
    return model


F = TypeVar("F", bound=Callable[..., Any])


def all_or_nothing(fit: F) -> F:
    """Decorate ``fit``: it works on a copy of the estimator, whose fitted attributes are copied back in one step.

    The copy is fitted by the backend of X where the data are stored, or on the cluster of the ``client`` option. A fit that fails or is
    interrupted leaves the estimator unchanged. The decorator checks parameters before the fit, and shows its progress if wanted.
    """
    signature = inspect.signature(fit)
    known = [name for name in signature.parameters if name not in ("self", "X", "y")]

    @functools.wraps(fit)
    def wrapper(self: TreeEstimator, *args: Any, **given: Any) -> Any:
        try:
            options = dict(signature.bind(self, *args, **given).arguments)
        except TypeError as error:
            unknown = next((name for name in given if name not in signature.parameters), None)
            hint = "" if unknown is None else f". {suggestion(unknown, known)}"
            if unknown in parameter_names(type(self)):
                hint = f"; it is a parameter of {type(self).__name__}"
            raise TypeError(f"{type(self).__name__}.fit() {error}{hint}") from None
        _, X, y, sample_weight = options.pop("self"), options.pop("X"), options.pop("y", None), options.pop("sample_weight", None)
        if isinstance(self, TreeEstimator) and vars(self).keys() & _OF_SKLEARNS_CALLBACKS:
            return _called_back(wrapper, self, X, y, sample_weight, options)
        client, placement = options.pop("client", None), options.pop("placement", None)
        backend = backend_for(X if client is None else client)
        if client is not None and backend is LOCAL:
            raise TypeError(f"client is {client!r}; wants a distributed.Client, or None for the current one")
        callbacks, bars = with_bars(options.get("callbacks", ()), getattr(self, "verbose", 0))
        if bars:
            options["callbacks"] = callbacks
        with shown(bars, self._UNIT):
            fitted = backend.fit(self, X, y, sample_weight, options, client, placement)
            if fitted is None:
                fitted = copy_of(self)
                fit(fitted, X, y, sample_weight, **options)
        own = set(parameter_names(type(self)))
        register_with_sklearn(type(self))
        if isinstance(self, TreeEstimator) and hasattr(self, "warm_start"):
            fitted._note_parameters(self.__dict__.get("_trees"), self.__dict__.get("_grown_by", ()))
        learnt = {name: value for name, value in vars(fitted).items() if name not in own}
        self.__dict__ = {name: value for name, value in vars(self).items() if name in own} | learnt
        return self

    return cast(F, checked_fit(wrapper))
