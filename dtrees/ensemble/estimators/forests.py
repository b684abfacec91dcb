"""The four forests, random forests and extra-trees for regression and classification: trees grown independently on draws of the rows.

Terms
-----
batch
    trees grown in one fit: a plan and a range of tree numbers. With ``warm_start``, a forest has several. A tree is determined by the
    plan's seed and its number, so a batch can be grown again, as is done for the out-of-bag predictions of earlier batches.
out of bag
    rows that a tree did not draw, and its predictions for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import hstack
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plan.plans import Callback, ForestPlan, ForestResult
from dtrees.ensemble.backend import Table
from dtrees.ensemble.callbacks import Monitor, called_together, grow_interruptibly, with_monitor
from dtrees.ensemble.compat import Options, StrOptions
from dtrees.ensemble.estimators.base import FitOptions, TreeEstimator, all_or_nothing
from dtrees.ensemble.estimators.base_kinds import Classifier, Regressor
from dtrees.ensemble.estimators.inspection import Members, decision_path_matrix, importance_by_column, normalised
from dtrees.ensemble.estimators.intervals import LeafQuantiles
from dtrees.ensemble.estimators.parameters import ClassificationCriterion, ForestParameters, RegressionCriterion, parameter, with_parameters
from dtrees.ensemble.estimators.single_tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor
from dtrees.ensemble.evaluation_sets import encoded_rows
from dtrees.ensemble.in_process import LOCAL, Backend
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.prediction import AdditiveTrees, by_target, most_probable
from dtrees.tree.tree import Tree


@dataclass(frozen=True, eq=False)
class SampleSource:
    """The data that determine the draws of a batch of trees, besides its plan.

    Attributes
    ----------
    n_rows : int
    target : ndarray of shape (n_rows,) or (n_rows, n_targets), or None
        Class numbers, if rows are drawn by class.
    weight : ndarray of float64 of shape (n_rows,) or None
        The row weights, if rows are drawn by weight.
    """

    n_rows: int
    target: NDArray[Any] | None = None
    weight: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, table: Table, plan: ForestPlan) -> Self | None:
        """Return the source of a plan's draws from a table; None if the table is not in this process."""
        if plan.n_draws is None:
            return cls(table.n_rows)
        by_class = plan.balanced_draws or plan.class_weight is not None
        target, weight = table.target if by_class else None, table.weight
        if any(part is not None and not isinstance(part, np.ndarray) for part in (target, weight)):
            return None
        return cls(table.n_rows, target, weight)

    def is_same(self, other: Self) -> bool:
        """Return whether another source gives the same draws."""
        return all(np.array_equal(mine, theirs) for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True))

    def rows(self, plan: ForestPlan, first: int, last: int) -> list[NDArray[np.integer]]:
        """Return the rows of each tree, ascending and repeated as often as drawn."""
        numbers: NDArray[np.integer] = np.arange(self.n_rows, dtype=np.int32 if self.n_rows < 2**31 else np.int64)
        if plan.n_draws is None:
            return [numbers] * (last - first)
        return [np.repeat(numbers, counts) for counts in self.weights(plan, first, last)]

    def weights(self, plan: ForestPlan, first: int, last: int) -> Iterator[NDArray[Any]]:
        """Yield the row weights of each tree: the numbers of draws, in the smallest sufficient dtype, or the weights of the table."""
        if plan.n_draws is None:
            yield from [np.ones(self.n_rows, np.uint8) if self.weight is None else self.weight] * (last - first)
            return
        from dtrees.engine.plan.row_draws import RowDraws, combine_weights  # imports Numba

        target = np.arange(self.n_rows) if self.target is None else self.target
        draws = RowDraws.of_table(plan, target, combine_weights(self.weight, plan.class_weight, target))
        for tree in range(first, last):
            counts = draws.counts(tree)
            yield counts.astype(np.min_scalar_type(counts.max()))


def _cells(X: Any, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> NDArray[Any]:
    """Return some rows and columns of a table, dense."""
    return X[np.ix_(rows, columns)] if isinstance(X, np.ndarray) else X[rows][:, columns].toarray()


def _error(predicted: NDArray[np.float64], truth: NDArray[Any], classes: Any) -> float:
    """Return the mean squared error, or the error rate."""
    if truth.dtype.kind == "f":
        return float(np.mean((predicted - truth.reshape(predicted.shape)) ** 2))
    return float(np.mean(most_probable(classes, predicted) != truth))


_Batch = tuple[ForestPlan, int, int]


class Forest(Members, ForestParameters, TreeEstimator):
    """Base class of the four forests.

    Attributes
    ----------
    estimators_ : tuple
        The trees, each as a fitted single tree with the parameters it was grown by. Assign some of them to keep only these.
    oob_score_ : float
        Score of the out-of-bag predictions; only with ``oob_score``.
    """

    #: The class of its single trees, and whether they use random thresholds.
    _TREE: ClassVar[type[TreeEstimator]]
    _RANDOM_SPLITS: ClassVar[bool] = False

    criterion: str
    oob_score_: float

    _batches: list[_Batch]
    _drawn_from: list[SampleSource | None]
    _oob_sums: Any  # out-of-bag sums of a ForestResult, or None

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        callbacks: Sequence[Callback] = (),
        monitor: Monitor | None = None,
        checkpoint: Any = None,
        checkpoint_interval: float = rules.CHECKPOINT_INTERVAL,
        client: Any = None,
        placement: str | None = None,
    ) -> Self:
        """Grow the forest.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
            Numbers; frames may also have text and categories. NaN marks missing values.
        y : array-like of shape (n,) or (n, k)
            Finite numbers for a regressor, labels for a classifier. k columns are k targets, which each tree learns together.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights. With ``bootstrap``, rows are drawn in proportion to them.
        callbacks : sequence of callable, default=()
            Functions called with a :class:`dtrees.callbacks.Progress` after each tree; a function that returns True ends the fit. See also
            :class:`dtrees.ProgressBar` and :class:`dtrees.KeepOnInterrupt`.
        monitor : callable or None, default=None
            A callback in scikit-learn's form, called with the index of the last finished tree, a copy of this estimator without the trees,
            and a dict with the :class:`dtrees.callbacks.Progress` as "progress"; returning True ends the fit.
        checkpoint : str, path-like or None, default=None
            File or fsspec URL (``s3://...``) in which finished trees are saved. If the file exists, from an interrupted fit of the same
            data and parameters, the fit continues from it and gives the same model as an uninterrupted fit; any other checkpoint is
            refused. It holds trees only (no pickle), is written atomically, and the previous one is kept beside it as ``PATH.previous``.
        checkpoint_interval : float, default=60.0
            Approximate seconds between checkpoints. Trees grow in batches of this duration; with 0, one by one.
        client : distributed.Client or None, default=None
            Client of the Dask cluster to fit on. None uses the current client if X is a Dask collection, and no cluster otherwise. Data in
            memory is sent to one worker.
        placement : {"auto", "one-worker", "replicated", "sharded", "rows"} or None, default=None
            Placement of the table on the cluster, for a Dask collection; see :func:`dtrees.submit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data is invalid.
        """
        return self._fit(X, y, sample_weight, FitOptions(callbacks, monitor, checkpoint, checkpoint_interval))

    def _fit(self, X: Any, y: Any, sample_weight: Any, options: FitOptions, **purpose: Any) -> Self:
        """Grow the forest; ``purpose`` are fields of :class:`~dtrees.ensemble.backend.LoadOptions`."""
        self._check_bootstrap()
        rules.check_checkpoint(options.checkpoint, options.checkpoint_interval)
        keep = self._continues_previous_fit()
        trees: list[Tree] = list(self._trees.groups[0]) if keep else []
        callback = called_together(with_monitor(options.callbacks, options.monitor, self, keep=keep))
        n_trees = self.n_estimators - len(trees)
        backend, table = self._load(X, y, sample_weight, keep=keep, n_trees=n_trees, out_of_bag=self.oob_score, **purpose)
        rules.check_targets(self, table)
        if not keep:
            self._batches, self._oob_sums, self._drawn_from = [], None, []
        earlier = self._batches
        if len(trees) == self.n_estimators:
            warn("Warm-start fitting without increasing n_estimators does not fit new trees.")
        else:
            plan = self._plan(table, keep)
            plan = self._with_checkpoint(plan, backend, table, options, keep=keep)
            grow = partial(backend.grow_forest, table, plan, len(trees), self.n_estimators, callback)
            result = grow_interruptibly(partial(self._timed, grow), options.callbacks)
            self._n_grown = len(result.trees) if options.checkpoint is None else None
            batch = replace(plan, checkpoint=None), len(trees), len(trees) + len(result.trees)
            self._note_batch(batch, SampleSource.of(table, plan))
            self.max_features_ = plan.rules.max_features
            self._trees = AdditiveTrees([[*trees, *self._valued(result.trees)]])
            self._warn_if_constant()
        self._score_out_of_bag(backend, table, None if len(trees) == self.n_estimators else result, earlier)
        self._keep_leaf_targets(backend, table, X)
        return self

    def _valued(self, trees: list[Tree]) -> list[Tree]:
        """Return grown trees with the values that they predict."""
        return trees

    def _so_far(self, result: ForestResult) -> dict[str, Any]:
        earlier = self._trees.groups[0][: self._batches[-1][2]] if self._batches else ()
        return {"_trees": AdditiveTrees([[*earlier, *self._valued(result.trees)]])}

    def _keep_leaf_targets(self, backend: Backend, table: Table, X: Any) -> None:
        """Store the training rows of leaves, if wanted."""

    def _weights_in_trees(self, n_rows: int, weight: NDArray[np.float64] | None) -> Iterator[NDArray[Any]]:
        """Yield how often each tree drew each row of a table, or the row weights in the tree."""
        for batch in self._batches:
            yield from SampleSource(n_rows, weight=weight).weights(*batch)

    def _note_batch(self, batch: _Batch, source: SampleSource | None) -> None:
        """Record the plan and the data of grown trees; batches that differ only in tree numbers are merged."""
        # A model from a file has no training data.
        batches, sources = self._batches, getattr(self, "_drawn_from", [None] * len(self._batches))
        if batches and batches[-1][0] == batch[0] and (source is None or sources[-1] is None or source.is_same(sources[-1])):
            batch, source = (batch[0], batches[-1][1], batch[2]), source and sources[-1]
            batches, sources = batches[:-1], sources[:-1]
        self._batches, self._drawn_from = [*batches, batch], [*sources, source]

    def _check_bootstrap(self) -> None:
        if not self.bootstrap and self.max_samples is not None:
            raise ValueError(
                f"max_samples={self.max_samples!r} cannot be set if bootstrap=False, which takes every row; "
                "set bootstrap=True or max_samples=None"
            )
        class_weight = getattr(self, "class_weight", None)
        if self.bootstrap == "balanced":
            for name, value in (("max_samples", self.max_samples), ("class_weight", class_weight)):
                if value is not None:
                    raise ValueError(
                        f"{name}={value!r} cannot be set if bootstrap='balanced', which draws as many rows of each class as the smallest "
                        f"one has; set bootstrap=True or {name}=None"
                    )
        if not self.bootstrap and self.oob_score:
            raise ValueError("oob_score=True is only available if bootstrap=True: without it no tree leaves rows out")

    def _plan(self, table: Table, keep: bool) -> ForestPlan:
        class_weight = getattr(self, "class_weight", None)
        if keep and isinstance(class_weight, str):
            warn(
                f"class_weight={class_weight!r} is not recommended with warm_start if the data of the fits differ: it would mean "
                "other weights each time. Pass a dict of weights instead.",
            )
        #: Whether each tree weighs classes by its own rows.
        by_tree = isinstance(class_weight, str) and class_weight == "balanced_subsample" and bool(self.bootstrap)
        factors = None if by_tree else rules.class_weights(class_weight, table, by_rows=False)
        if self.bootstrap == "balanced":
            counts = table.by_target[0].counts[table.by_target[0].weights > 0]
            n_draws: int | None = int(counts.min()) * len(counts)
        else:
            n_draws = rules.number_of_draws(self.max_samples, table, factors) if self.bootstrap else None
        return rules.forest_plan(
            self,
            table,
            factors,
            self._take_seed(keep=keep),
            random_splits=self._RANDOM_SPLITS,
            n_draws=n_draws,
            balanced_draws=self.bootstrap == "balanced",
            balanced_subsample=by_tree,
            out_of_bag=bool(self.oob_score),
        )

    def _score_out_of_bag(self, backend: Backend, table: Table, grown: ForestResult | None, earlier: Sequence[_Batch]) -> None:
        """Set the out-of-bag score and predictions, from the new trees and those of earlier fits."""
        if grown is not None or not self.oob_score:
            self._forget("oob_score_", "oob_prediction_", "oob_decision_function_")
        if not self.oob_score or (grown is not None and grown.oob_sum is None):  # not wanted, or the fit was interrupted
            self._oob_sums = None
            return
        known: list[Any] = [] if grown is None else [grown]
        if earlier and self._oob_sums is not None and len(self._oob_sums.oob_count) == table.n_rows:
            known.insert(0, self._oob_sums)
        else:  # trees of earlier fits are grown again
            known[:0] = [backend.grow_forest(table, replace(plan, out_of_bag=True), first, last, None) for plan, first, last in earlier]
        sums = reduce(ForestResult.followed_by, known)
        self._oob_sums = ForestResult([], sums.oob_sum, sums.oob_count, sums.oob_exponent) if self.warm_start else None
        mean = np.ldexp(sums.oob_sum.astype(np.float64), -sums.oob_exponent) / np.maximum(sums.oob_count, 1)[:, np.newaxis]
        self._take_out_of_bag(backend, table, mean, sums.oob_count)

    @property
    def estimators_(self) -> tuple[Any, ...]:
        """The trees, each as a fitted single tree with the parameters it was grown by. Assign some of them to keep only these."""
        return tuple(self._single_trees(self._TREE, getattr(self, "classes_", None))[0])

    @estimators_.setter
    def estimators_(self, estimators: Sequence[Any]) -> None:
        check_is_fitted(self)
        estimators = list(estimators)
        for estimator in estimators:
            own = type(estimator) is self._TREE and estimator.__sklearn_is_fitted__() and estimator._schema == self._schema
            mine, theirs = (by_target(getattr(model, "classes_", None)) for model in (self, estimator))
            same = own and estimator._n_targets == self._n_targets and len(mine) == len(theirs)
            if not same or not all(map(np.array_equal, mine, theirs)):
                raise ValueError(
                    f"estimators_ is given a {type(estimator).__name__}; wants fitted estimators of type {self._TREE.__name__}, of the "
                    "same columns, classes and targets as the forest"
                )
        if not estimators:
            raise ValueError("estimators_ is given no tree; wants at least one")
        self._trees = AdditiveTrees([[tree for estimator in estimators for tree in estimator._trees.groups[0]]])
        self._forget("_members", "_grown_by")
        self._forget_growth()

    def _forget_growth(self) -> None:
        """Delete the data about the growth of trees, after trees were added or removed."""
        self._forget("_seed", "_batches", "_oob_sums", "_drawn_from", "_leaf_targets")
        self._forget("oob_score_", "oob_prediction_", "oob_decision_function_")

    def _take_rounds(self, rounds: range) -> None:
        super()._take_rounds(rounds)
        self._forget_growth()

    def _take_refitted(self, train_score: NDArray[np.float64] | None) -> None:
        self._forget_growth()

    @property
    def estimator_(self) -> Any:
        """The unfitted single tree, with the parameters that it shares with the forest."""
        check_is_fitted(self)
        return self._TREE(**self._of_member(self._TREE, self.get_params(deep=False)))

    @property
    def estimators_samples_(self) -> list[NDArray[np.integer]]:
        """The rows that each tree was grown on, ascending and repeated as often as drawn; computed at each access.

        Raises
        ------
        AttributeError
            If the rows are not known: for a model from a file, after ``estimators_`` were assigned, and after rows were drawn by weights or
            classes on a cluster.
        """
        check_is_fitted(self)
        known = [source for source in getattr(self, "_drawn_from", ()) if source is not None]
        if len(known) < len(getattr(self, "_batches", ())) or not known:
            raise AttributeError(
                "estimators_samples_ are not known: the model is from a file, a slice or a refit, estimators_ was assigned, or rows were "
                "drawn by weights or classes that are on a cluster; fit it here"
            )
        return [rows for batch, source in zip(self._batches, known, strict=True) for rows in source.rows(*batch)]

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """The share of each column in the ``importance_type`` of a tree's splits, averaged over the trees with splits."""
        check_is_fitted(self)
        trees, kind = [tree for tree in self._trees.groups[0] if tree.node_count > 1], self.importance_type
        shares = [normalised(importance_by_column(tree, self.n_features_in_, kind)) for tree in trees]
        return normalised(np.sum(shares, axis=0)) if shares else np.zeros(self.n_features_in_)

    def oob_permutation_importances(self, X: Any, y: Any, *, seed: int = 0) -> NDArray[np.float64]:
        """Compute permutation importances on out-of-bag rows (Breiman, 2001, section 10).

        Each tree predicts the rows that it did not draw, unchanged and with the values of one column permuted among them.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_features_in_)
            The rows that the forest was fitted on, in the same order.
        y : array-like of shape (n,) or (n, n_outputs_)
        seed : int, default=0
            Seed of the permutations.

        Returns
        -------
        ndarray of float64 of shape (n_features_in_,)
            The increase of the error rate (for regression, of the mean squared error), averaged over trees and targets. It may be negative.

        Raises
        ------
        ValueError
            If the number of rows differs from that at fit, or trees were grown on all rows.
        AttributeError
            If the rows that trees drew are not known; see ``estimators_samples_``.
        """
        samples = self.estimators_samples_
        if any(plan.n_draws is None for plan, _, _ in self._batches):
            raise ValueError("importances on rows out of bag want trees that leave rows out; fit with bootstrap=True")
        if self._check_columns(X) is not LOCAL:
            raise TypeError(f"oob_permutation_importances wants an array or a frame in memory, not {type(X).__name__}; pass X.compute()")
        matrix = self._schema.matrix(X)
        classes = getattr(self, "classes_", None)
        target, _ = encoded_rows(y, None, None, classes, self._n_targets)
        if {source.n_rows for source in self._drawn_from if source is not None} != {matrix.shape[0]} or len(target) != matrix.shape[0]:
            raise ValueError(f"X has {matrix.shape[0]} rows and y {len(target)}; wants the rows that the forest was fitted on")
        total, n_trees = np.zeros(matrix.shape[1]), 0
        for number, (tree, drawn) in enumerate(zip(self._trees.groups[0], samples, strict=True)):
            outside, columns = np.setdiff1d(np.arange(len(target)), drawn), np.unique(tree.feature[tree.feature >= 0])
            n_trees += outside.size > 0
            if not outside.size or not columns.size:
                continue
            numbers = np.where(tree.feature < 0, tree.feature, np.searchsorted(columns, tree.feature)).astype(np.int32)
            alone, rows, truth = AdditiveTrees([[replace(tree, feature=numbers)]]), _cells(matrix, outside, columns), target[outside]
            error = _error(alone.raw(rows, self.n_jobs), truth, classes)
            for j, column in enumerate(columns):
                values = rows[:, j].copy()
                rows[:, j] = np.random.default_rng([seed, number, column]).permutation(values)
                total[column] += _error(alone.raw(rows, self.n_jobs), truth, classes) - error
                rows[:, j] = values
        return total / max(n_trees, 1)

    def predict(self, X: Any, *, n_trees: int | None = None) -> Any:
        """Predict the target or targets; for classification, the class with the highest probability, the first one in a tie.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        n_trees : int or None, default=None
            Number of trees to predict with, from the first one. None uses all.

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs_) where y had several columns
            Numbers, or labels as in ``classes_``. A lazy Dask collection if X is one: for multi-output targets, an Array of that shape, or
            a DataFrame with the columns 0, 1 and so on.
        """
        return super(Forest, self._first(n_trees)).predict(X)

    def apply(self, X: Any) -> Any:
        """Return the leaf of each tree that each row falls in.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of int32 of shape (n, n_estimators)
            Node numbers within each tree. A lazy Dask collection if X is one.
        """
        return self._find_leaves(X)

    def decision_path(self, X: Any) -> tuple[Any, NDArray[np.int64]]:
        """Return the nodes that each row passes through.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_features_in_)

        Returns
        -------
        indicator : scipy.sparse.csr_matrix of int64 of shape (n, n_nodes)
            1 where a row passes through a node; the trees' nodes are side by side.
        n_nodes_ptr : ndarray of int64 of shape (n_estimators + 1,)
            ``indicator[:, n_nodes_ptr[i]:n_nodes_ptr[i + 1]]`` belongs to tree ``i``.
        """
        leaves = self._local_leaves(X)
        trees = self._trees.groups[0]
        paths = [decision_path_matrix(tree, leaves[:, i]) for i, tree in enumerate(trees)]
        return hstack(paths).tocsr(), np.cumsum([0] + [tree.node_count for tree in trees])


@with_parameters
class ClassForestParameters(ClassificationCriterion, ForestParameters):
    """Parameters of forests for classification.

    Parameters
    ----------
    class_weight : dict, list of dicts, {"balanced", "balanced_subsample"} or None
        Weights of the classes, by which row weights are multiplied. "balanced" gives all classes the same total weight,
        "balanced_subsample" the same in the rows of each tree. For multi-output targets, a list has a dict for each, and their factors are
        multiplied.
    bootstrap : bool or "balanced"
        Whether each tree is grown on rows drawn with replacement, with probability in proportion to their weight, or on all rows.
        "balanced" draws as many rows of each class as the smallest class has, for data with rare classes (Chen, Liaw and Breiman, 2004,
        "Using random forest to learn imbalanced data"; imbalanced-learn's ``BalancedRandomForestClassifier``).
    """

    class_weight: Any = parameter(default=None, allowed=[Options(str, {"balanced", "balanced_subsample"}), dict, None, list])
    bootstrap: bool | str = parameter(default=True, allowed=["boolean", StrOptions({"balanced"})])


class RegressorForest(LeafQuantiles, RegressionCriterion, Regressor, Forest):
    """Base class of the forests for regression."""


class ClassifierForest(ClassForestParameters, Classifier, Forest):
    """Base class of the forests for classification."""

    def predict_proba(self, X: Any, *, n_trees: int | None = None) -> Any:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        n_trees : int or None, default=None
            Number of trees to predict with, from the first one. None uses all.

        Returns
        -------
        ndarray of float64 of shape (n, n_classes_), or list of n_outputs_ such arrays where y had several columns
            Columns are in the order of ``classes_``. Lazy Dask collections if X is one.
        """
        return Classifier.predict_proba(self._first(n_trees), X)


@with_parameters
class RandomForestRegressor(RegressorForest):
    """A random forest regressor.

    The forest averages trees with exact splits. Each tree is grown on rows drawn with replacement, each node on columns drawn for it
    (Breiman, 2001).

    Attributes
    ----------
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, n_outputs_)
        Out-of-bag prediction of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import RandomForestRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> forest = RandomForestRegressor(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]])
    array([5., 9.])
    """

    _TREE: ClassVar[type[TreeEstimator]] = DecisionTreeRegressor

    max_features: int | float | str | None = 1.0
    bootstrap: bool = True


@with_parameters
class RandomForestClassifier(ClassifierForest):
    """A random forest classifier.

    The forest averages trees with exact splits. Each tree is grown on rows drawn with replacement, each node on columns drawn for it
    (Breiman, 2001).

    Attributes
    ----------
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_), or (n, most classes, n_outputs_) for multi-output targets
        Out-of-bag class probabilities of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import RandomForestClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> forest = RandomForestClassifier(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]]).tolist()
    ['no', 'yes']
    """

    _TREE: ClassVar[type[TreeEstimator]] = DecisionTreeClassifier

    max_features: int | float | str | None = "sqrt"


@with_parameters
class ExtraTreesRegressor(RegressorForest):
    """An extra-trees regressor.

    The forest averages trees grown on all rows. Each split is the best of one random threshold per column that the node considers (Geurts,
    Ernst and Wehenkel, 2006).

    Attributes
    ----------
    oob_prediction_ : ndarray of float64 of shape (n,) or (n, n_outputs_)
        Out-of-bag prediction of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import ExtraTreesRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> forest = ExtraTreesRegressor(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]])
    array([5., 9.])
    """

    _TREE: ClassVar[type[TreeEstimator]] = ExtraTreeRegressor
    _RANDOM_SPLITS: ClassVar[bool] = True

    max_features: int | float | str | None = 1.0
    bootstrap: bool = False


@with_parameters
class ExtraTreesClassifier(ClassifierForest):
    """An extra-trees classifier.

    The forest averages trees grown on all rows. Each split is the best of one random threshold per column that the node considers (Geurts,
    Ernst and Wehenkel, 2006).

    Attributes
    ----------
    oob_decision_function_ : ndarray of float64 of shape (n, n_classes_), or (n, most classes, n_outputs_) for multi-output targets
        Out-of-bag class probabilities of each row, 0 for a row that every tree drew; only with ``oob_score``.

    Examples
    --------
    >>> from dtrees import ExtraTreesClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> forest = ExtraTreesClassifier(n_estimators=20, bootstrap=False, random_state=0).fit(X, y)
    >>> forest.predict([[1.0], [9.0]]).tolist()
    ['no', 'yes']
    """

    _TREE: ClassVar[type[TreeEstimator]] = ExtraTreeClassifier
    _RANDOM_SPLITS: ClassVar[bool] = True

    max_features: int | float | str | None = "sqrt"
    bootstrap: bool | str = False
