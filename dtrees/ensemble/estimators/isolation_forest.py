"""Isolation forests: rows that few random splits separate from the others are outliers (Liu, Ting and Zhou, 2008).

An isolation tree is an extra-tree that considers one column in each node, and uses any split regardless of its gain. It is grown on few
rows, to a depth at which most of them are isolated. Pseudo-random numbers replace y; they only determine on which side of a split missing
values are.

A leaf of n rows at depth d has the value (d + c(n)) / c(number of rows drawn), where c(n) is the mean depth of the leaves of a random tree
of n rows. The score of a row is -2**-h, with h the mean over trees: -1 for a row that is isolated immediately, -1/2 for a typical row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Callback, ForestPlan, Rules
from dtrees.engine.plan.wants import WEIGHTS_OF_ALL
from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.callbacks import Monitor
from dtrees.ensemble.compat import Interval, OutlierMixin, StrOptions
from dtrees.ensemble.estimators.base import FitOptions, TreeEstimator, all_or_nothing
from dtrees.ensemble.estimators.forests import Forest
from dtrees.ensemble.estimators.parameters import (
    FLOAT_SHARE,
    POSITIVE_INTEGER,
    CommonParameters,
    ForestParameters,
    parameter,
    with_parameters,
)
from dtrees.ensemble.estimators.single_tree import ExtraTreeRegressor
from dtrees.ensemble.in_process import in_memory
from dtrees.ensemble.input import rules
from dtrees.ensemble.input.warning import warn
from dtrees.ensemble.prediction import Step
from dtrees.tree.tree import Tree

#: Number of rows that a tree draws with "auto".
_FEW_ROWS = 256


def mean_path_length(n: Any) -> NDArray[np.float64]:
    """Return the mean depth of the leaves of random trees that isolate each of n rows.

    >>> mean_path_length(np.array([1, 2, 256])).round(3).tolist()
    [0.0, 1.0, 10.245]
    """
    from dtrees.split.numbers.elementary import log  # imports Numba

    n = np.asarray(n, np.float64)
    found = 2.0 * (log(np.maximum(n - 1.0, 1.0)) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n > 2.0, found, np.where(n == 2.0, 1.0, 0.0))


def with_path_lengths(tree: Tree, n_drawn: int) -> Tree:
    """Return a tree of ``n_drawn`` rows with path lengths, as shares of the mean, as values; of a single row, 1."""
    whole, none = float(mean_path_length(n_drawn)), np.zeros(tree.node_count)
    length = (tree.node_depth + mean_path_length(tree.n_node_samples)) / whole if whole else none + 1.0
    return replace(tree, value=length[:, np.newaxis], impurity=none, gain=none)


def scores(path_length: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step: mean path lengths to scores."""
    from dtrees.split.numbers.elementary import exp  # imports Numba

    return -exp(-path_length * math.log(2.0))


def signs(decision: NDArray[np.float64]) -> NDArray[np.int64]:
    """Step: numbers to -1 if negative, otherwise 1."""
    return np.where(decision < 0.0, -1, 1).astype(np.int64)


@with_parameters
class IsolationForest(OutlierMixin, Forest):
    """An isolation forest, which detects outliers (Liu, Ting and Zhou, 2008).

    Parameters
    ----------
    max_samples : "auto", int or float
        Number of rows drawn for each tree, at most all; a float is a share of the rows; "auto" is 256. Rows of weight 0 do not count.
    contamination : "auto" or float
        Share of the training rows that ``predict`` labels as outliers; "auto" labels rows with a score below -0.5.
    max_features : int or float
        Number of columns drawn for each tree; a float is a share.
    bootstrap : bool
        Whether rows are drawn with replacement.

    Attributes
    ----------
    offset_ : float
        Offset that ``decision_function`` subtracts from scores: -0.5, or the quantile of the scores of the training rows for
        ``contamination``.
    max_samples_ : int
        Number of rows drawn for each tree.

    Notes
    -----
    Trees are exact: a threshold is drawn uniformly between the lowest and the highest value of a column in the rows of a node, as a
    function of the node, the column and ``random_state``. Missing values go to one side of a split, in effect at random; if all other
    values are equal, they are separated from these. The maximum depth is the base-2 logarithm of ``max_samples_``, rounded up. Text and
    categories of frames count as numbers, in the order of an ordered dtype, otherwise sorted.

    Examples
    --------
    >>> from dtrees import IsolationForest
    >>> forest = IsolationForest(random_state=0).fit([[-1.1], [0.3], [0.5], [100.0]])
    >>> forest.predict([[0.1], [0.0], [90.0]]).tolist()
    [1, 1, -1]
    """

    _TREE: ClassVar[type[TreeEstimator]] = ExtraTreeRegressor
    _MULTI_OUTPUT: ClassVar[bool] = False
    #: Parameters without a meaning if there is no y.
    _WITHOUT: ClassVar[frozenset[str]] = frozenset(
        {*vars(CommonParameters), *vars(ForestParameters), "max_depth", "min_samples_leaf", "max_leaf_nodes", "feature_importances_"}
    ) - {"n_estimators", "max_samples", "max_features", "bootstrap", "n_jobs", "random_state", "verbose", "warm_start"}

    max_samples: int | float | str = parameter(default="auto", allowed=[StrOptions({"auto"}), POSITIVE_INTEGER, FLOAT_SHARE])  # type: ignore[assignment]
    contamination: float | str = parameter(default="auto", allowed=[StrOptions({"auto"}), Interval(Real, 0.0, 0.5, closed="right")])
    max_features: int | float = parameter(default=1.0, allowed=[POSITIVE_INTEGER, FLOAT_SHARE])
    bootstrap: bool = False

    criterion = "squared_error"
    categorical_features = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
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
        y : None
            Ignored.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights. Rows are drawn in proportion to them.
        callbacks, monitor, checkpoint, checkpoint_interval, client, placement
            As in :meth:`dtrees.ExtraTreesRegressor.fit`. ``placement="rows"`` does not take weights without ``bootstrap``.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data is invalid.
        """
        wants = () if sample_weight is None or self.bootstrap else (WEIGHTS_OF_ALL,)
        options = FitOptions(callbacks, monitor, checkpoint, checkpoint_interval)
        self._fit(X, None, sample_weight, options, target=False, wants=wants)
        self.offset_ = -0.5
        if self.contamination != "auto":
            self.offset_ = float(np.percentile(in_memory(self.score_samples(X))[0], 100.0 * float(self.contamination)))
        return self

    @classmethod
    def _restore_facts(cls, metadata: Any, arrays: dict[str, NDArray[Any]]) -> Self:
        model = super()._restore_facts(metadata, arrays)
        if not math.isfinite(getattr(model, "offset_", math.nan)) or getattr(model, "max_samples_", 0) < 1:
            raise ValueError("the model's state has no finite offset_, or no max_samples_ above 0")
        return model

    def _check_bootstrap(self) -> None:
        """Accept all numbers of rows to be drawn."""

    def _plan(self, table: Table, keep: bool) -> ForestPlan:
        n_rows, n_columns, given = table.rows_that_count(None), len(table.schema), self.max_samples
        if isinstance(given, str):
            given = min(_FEW_ROWS, n_rows)
        elif isinstance(given, float):
            given = max(1, int(given * n_rows))
        elif given > n_rows:
            warn(f"max_samples is {given}, greater than the total number of samples: all {n_rows} rows of a weight above 0 are drawn")
        self.max_samples_ = n_drawn = int(min(given, n_rows))
        chosen = self.max_features if not isinstance(self.max_features, float) else max(1, int(self.max_features * n_columns))
        if chosen > n_columns:
            raise ValueError(f"max_features is {chosen}, but X has {n_columns} columns; wants at most as many")
        tree = Rules(self.criterion, 1, int(chosen), random_splits=True, max_depth=max(1, math.ceil(math.log2(n_drawn))))
        return ForestPlan(tree, self._take_seed(keep=keep), n_draws=n_drawn, distinct_draws=not self.bootstrap)

    def _valued(self, trees: list[Tree]) -> list[Tree]:
        return [with_path_lengths(tree, self.max_samples_) for tree in trees]

    def _warn_if_constant(self) -> None:
        """Do not warn of trees without splits, as rows may be equal."""

    def _scored(self, X: Any, name: str, *steps: Step, dtype: Any = np.float64) -> Any:
        """Return scores after applying steps."""
        self._check_fitted()
        return self._map(X, self._predictor(*self._steps(), scores, *steps), Output(np.dtype(dtype), None, name))

    def score_samples(self, X: Any) -> Any:
        """Return anomaly scores: -1 for rows that are isolated at once, near 0 for rows deep among others.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n,)
            The negative of the score in the paper. A lazy Dask collection if X is one.
        """
        return self._scored(X, "score_samples")

    def decision_function(self, X: Any) -> Any:
        """Return scores minus ``offset_``: negative for outliers.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n,)
            A lazy Dask collection if X is one.
        """
        self._check_fitted()
        return self._scored(X, "decision_function", partial(np.add, -self.offset_))

    def predict(self, X: Any) -> Any:  # type: ignore[override]
        """Predict whether rows are outliers.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of int64 of shape (n,)
            -1 for outliers, 1 for others. A lazy Dask collection if X is one.
        """
        self._check_fitted()
        return self._scored(X, "predict", partial(np.add, -self.offset_), signs, dtype=np.int64)

    def _without_target(self) -> Any:
        """Raise AttributeError: there is no target."""
        raise AttributeError("an isolation forest has no target, which columns could matter to, or leaves be fitted to")

    feature_importances_ = oob_permutation_importances = refit_leaves = property(_without_target)
