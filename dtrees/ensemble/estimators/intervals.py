"""Quantiles and intervals of regressors: by the targets in the leaves of forests, or by held-out rows for boosting.

Terms
-----
conformity score
    the distance of a target from an interval; negative inside (Romano, Patterson and Candes, "Conformalized quantile regression", 2019).
    Intervals are widened by a quantile of the scores: the margin.

Quantile regression forests (Meinshausen, 2006)
-----------------------------------------------
A row falls into a leaf of each tree. The training rows in that leaf have a total weight of 1, divided in proportion to the number of times
that the tree drew them, or to their weights. The mean of these weights over trees is the weight of each training row for the predicted row.
The weights define the conditional distribution of the target: its mean is the prediction of a forest with squared error, and a quantile is
the smallest target up to which at least this share of the weight lies, as by ``numpy.quantile(y, q, weights=w, method="inverted_cdf")``.

Weights are integers, so that their sums are the same in any order. Rounded weights, such as a third, may lack some of the last bits, so a
share counts as reached if at most a 2**40th of it is missing.

>>> leaves = np.array([[1, 1, 2, 2]], np.int32)  # of one tree: two rows in each of two leaves
>>> stored = LeafTargets(np.array([[5.0], [7.0], [1.0], [9.0]]), leaves, np.ones((1, 4)))
>>> stored.quantiles(np.array([[1], [2]]), (0.5, 0.9), 1).tolist()
[[[5.0, 7.0]], [[1.0, 9.0]]]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, vstack

from dtrees.engine.threads import Threads, effective_n_jobs
from dtrees.ensemble.backend import Output, Table
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.parameters import parameter, with_parameters
from dtrees.ensemble.in_process import Backend, backend_for
from dtrees.ensemble.input.target import as_floats, check_lengths, check_target
from dtrees.ensemble.prediction import FindLeaves, Step
from dtrees.tree.tree import Tree

#: The form of intervals.
_INTERVAL = Output(np.dtype(np.float64), 2, "predict_interval", ("lower", "upper"))


def widened(margin: float, predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step: values of shape (n,), or quantiles of shape (n, K), to intervals, shape (n, 2), by adding a margin on both sides.

    An interval with crossed ends becomes a point.

    >>> widened(1.0, np.array([5.0])).tolist(), widened(-1.0, np.array([[1.0, 2.0, 6.0], [3.0, 3.5, 4.0]])).tolist()
    ([[4.0, 6.0]], [[2.0, 5.0], [3.5, 3.5]])
    """
    low, high = _outer(predicted)
    middle = low + (high - low) / 2.0
    return np.column_stack([np.minimum(low - margin, middle), np.maximum(high + margin, middle)])


def _outer(predicted: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of intervals, from values or from quantiles."""
    each = predicted if predicted.ndim == 2 else predicted[:, np.newaxis]
    return each[:, 0], each[:, -1]


def conformity_scores(target: NDArray[np.float64], predicted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distances of targets from the predicted intervals, ascending."""
    low, high = _outer(predicted)
    return np.sort(np.maximum(low - target, target - high))


def check_coverage(coverage: Any) -> None:
    """Raise ValueError if the coverage is not between 0 and 1."""
    if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0.0 < float(coverage) < 1.0:
        raise ValueError(f"coverage is {coverage!r}; wants a number between 0 and 1")


def margin_of(scores: NDArray[np.float64], coverage: float) -> float:
    """Return the margin by which intervals cover a share of rows like those with these scores, which are ascending.

    Raises
    ------
    ValueError
        If the coverage is invalid, or there are too few rows.

    Examples
    --------
    >>> margin_of(np.arange(9.0), 0.8)
    7.0
    """
    check_coverage(coverage)
    place = math.ceil((len(scores) + 1) * coverage * (1.0 - 1e-15))
    if place > len(scores):
        wanted = math.ceil(round(coverage / (1.0 - coverage), 6))
        raise ValueError(f"coverage={coverage} wants {wanted:,} rows at least to calibrate with, but there are {len(scores):,}")
    return float(scores[place - 1])


class CalibratedIntervals(TreeEstimator):
    """Mixin of boosting: intervals that are calibrated on held-out rows."""

    conformity_scores_: NDArray[np.float64]
    _loss_name: str

    def calibrate(self, X: Any, y: Any, *, base_margin: Any = None) -> Self:
        """Calibrate the width of intervals on rows that the model was not fitted to; see :meth:`predict_interval`.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        y : array-like of shape (n,)
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Returns
        -------
        self
            The model with ``conformity_scores_`` (n numbers, saved in model files), until the next fit.

        Raises
        ------
        ValueError
            If the rows do not match the fit, or the model is multi-output.
        """
        self._check_fitted()
        if self._n_targets > 1:
            raise ValueError(f"the model has {self._n_targets} targets; intervals are of one, so fit a model for each")
        if self._columns_of_target:
            raise ValueError(f"intervals are of what is predicted, and loss={self._loss_name!r} predicts no values of y")
        predicted, y = backend_for(X).gather(self._starting_from(base_margin).predict(X), y)
        target = check_target(y, classify=False, name=type(self).__name__)
        check_lengths(len(predicted), target)
        self.conformity_scores_ = conformity_scores(target, np.asarray(predicted))
        return self

    def predict_interval(self, X: Any, coverage: float = 0.9, *, base_margin: Any = None) -> Any:
        """Predict an interval that covers the target for a share of rows.

        The interval is the prediction (the first and the last of several quantiles, or one number for both ends), less and plus a margin,
        which is the same for all rows. With this margin, the intervals of the calibration rows cover that share of them, or slightly more;
        it may be negative. If those rows and the predicted ones are exchangeable, as draws from one population are, intervals cover at
        least the share ``coverage`` on average, for any distribution and any model (split conformal prediction; conformalized quantile
        regression [1]_).

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        coverage : float, default=0.9
            Share of rows, between 0 and 1. With ``loss="quantile"`` and quantiles about as far apart (``alpha=[0.05, 0.95]`` for 0.9),
            intervals are wide only where targets vary much.
        base_margin : array-like or Dask collection of raw scores, or number, or None, default=None
            Raw scores of these rows; required if the model was fitted with ``base_margin``.

        Returns
        -------
        ndarray of float64 of shape (n, 2)
            Lower and upper ends. A lazy Dask collection if X is one; a DataFrame has the columns "lower" and "upper".

        Raises
        ------
        ValueError
            If the model is not calibrated, or on too few rows for this coverage.

        References
        ----------
        .. [1] Y. Romano, E. Patterson and E. Candes, "Conformalized quantile regression", NeurIPS 2019.

        Examples
        --------
        >>> import numpy as np
        >>> from dtrees import GradientBoostingRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(size=(3000, 1))
        >>> y = X[:, 0] * random.normal(size=3000)
        >>> model = GradientBoostingRegressor(loss="quantile", alpha=[0.05, 0.95], n_estimators=50, random_state=0)
        >>> model = model.fit(X[:1000], y[:1000]).calibrate(X[1000:2000], y[1000:2000])
        >>> low, high = model.predict_interval(X[2000:]).T
        >>> bool(0.87 < np.mean((low <= y[2000:]) & (y[2000:] <= high)) < 0.93)
        True
        """
        self._check_fitted()
        if not hasattr(self, "conformity_scores_"):
            raise ValueError("the model has no intervals yet; call calibrate(X, y) with rows that it was not fitted on")
        model: Any = self._starting_from(base_margin)
        predictor = model._predictor(*model._steps(), partial(widened, margin_of(self.conformity_scores_, coverage)))
        return model._map(X, predictor, _INTERVAL)


#: The total of the weights of rows.
_WHOLE = 2**62
#: Fewer rows are not divided among threads.
_FEWEST_ROWS = 256


@dataclass(frozen=True, eq=False)
class LeafTargets:
    """The stored data about the training rows of a forest.

    Attributes
    ----------
    target : ndarray of float64, shape (n, n_targets)
        Targets of the rows with a positive weight.
    leaves : ndarray of int32, shape (n_trees, n)
        The leaf of each row in each tree.
    weight : ndarray, shape (n_trees, n) or (1, n)
        The number of times that each tree drew each row, as integers; or the row weights for all trees.
    """

    target: NDArray[np.float64]
    leaves: NDArray[np.int32]
    weight: NDArray[Any]

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}

    @property
    def nbytes(self) -> int:
        """Number of stored bytes."""
        return self.target.nbytes + self.leaves.nbytes + self.weight.nbytes

    @classmethod
    def restored(cls, arrays: dict[str, NDArray[Any]], trees: Sequence[Tree], n_targets: int) -> Self:
        """Return leaf targets from a file, checked against the trees to prevent reads out of bounds; raises ValueError."""
        stored = cls(**{name: arrays[name] for name in cls.__dataclass_fields__})
        shape, (target, weight) = (len(trees), len(stored.target)), (stored.target, stored.weight)
        dtypes = target.dtype == np.float64 and stored.leaves.dtype == np.int32
        if not dtypes or target.shape[1:] != (n_targets,) or stored.leaves.shape != shape:
            raise ValueError("the model's targets of leaves are not those of its trees")
        if weight.dtype.kind not in "uf" or weight.shape not in (shape, (1, shape[1])) or not np.all((weight >= 0) & np.isfinite(weight)):
            raise ValueError("the model's weights of targets are not those of its trees")
        if not np.isfinite(target).all() or stored.leaves.min(initial=0) < 0:
            raise ValueError("the model's targets of leaves are not finite, or belong to no leaf")
        for tree, leaves, own in zip(trees, stored.leaves, np.broadcast_to(weight, shape), strict=True):
            known = leaves.max(initial=0) < tree.node_count
            if not known or not np.array_equal(np.bincount(leaves[own > 0], minlength=tree.node_count) > 0, tree.feature < 0):
                raise ValueError("the model's leaves are not those that have targets")
        return stored

    @cached_property
    def scores(self) -> dict[float, NDArray[np.float64]]:
        """Cached conformity scores of out-of-bag rows, by coverage."""
        return {}

    def of_trees(self, trees: Sequence[int]) -> Self:
        """Return the data for some of the trees."""
        some = list(trees)
        return type(self)(self.target, self.leaves[some], self.weight if len(self.weight) == 1 else self.weight[some])

    @cached_property
    def _first_nodes(self) -> NDArray[np.int64]:
        """The number of the first node of each tree in a consecutive numbering, and the total."""
        return np.append(0, np.cumsum(self.leaves.max(axis=1).astype(np.int64) + 1))

    @cached_property
    def _weights(self) -> list[tuple[NDArray[Any], ...]]:
        """For each target: the bounds of each node's values, the ranks of values, their weights, and the distinct values."""
        return [self._weights_of(*np.unique(one, return_inverse=True)) for one in self.target.T]

    def _weights_of(self, values: NDArray[np.float64], number: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        of_trees, each = [], np.broadcast_to(self.weight, self.leaves.shape)
        for leaves, weight, n_nodes in zip(self.leaves, each, np.diff(self._first_nodes), strict=True):
            drawn = np.flatnonzero(weight)
            leaf, own = leaves[drawn], weight[drawn].astype(np.float64)
            share = own / np.bincount(leaf, own)[leaf]
            fixed = np.maximum(np.rint(share * (_WHOLE // len(each))), 1.0).astype(np.int64)
            of_trees.append(coo_array((fixed, (leaf, number[drawn].astype(np.int32))), (n_nodes, len(values))).tocsr())
        whole = vstack(of_trees, format="csr")
        return whole.indptr.astype(np.int64), whole.indices.astype(np.int32), whole.data, values

    def quantiles(
        self, leaves: NDArray[np.integer], q: Sequence[float], n_threads: int, among: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Return quantiles of the training targets that share leaves with given rows.

        Parameters
        ----------
        leaves : ndarray of int, shape (n, n_trees)
            The leaves of the given rows.
        q : sequence of float
            In [0, 1].
        n_threads : int
        among : ndarray of bool, shape (n, n_trees), or None
            The trees used for each row; None for all.

        Returns
        -------
        ndarray of float64, shape (n, n_targets, len(q))
            NaN if no tree is used.
        """
        from dtrees.tree.leaf_quantiles import leaf_quantiles  # imports Numba

        order = np.argsort(q)
        found = np.empty((self.target.shape[1], len(leaves), len(q)))
        _ = self._weights  # computed before threads use it

        def find(some: slice) -> None:
            nodes = leaves[some] + self._first_nodes[:-1]
            if among is not None:
                nodes[~among[some]] = -1
            for weights, out in zip(self._weights, found, strict=True):
                leaf_quantiles(nodes, *weights, np.asarray(q, np.float64)[order], some.start, out)

        with Threads(n_threads) as threads:
            threads.map_ranges(find, len(leaves), _FEWEST_ROWS)
        return np.moveaxis(found, 0, 1)[..., np.argsort(order)]

    def out_of_bag_quantiles(self, q: Sequence[float], n_threads: int) -> NDArray[np.float64]:
        """Return quantiles for the training rows by the trees that did not draw them; see :meth:`quantiles`."""
        return self.quantiles(self.leaves.T, q, n_threads, np.broadcast_to(self.weight, self.leaves.shape).T == 0)


@dataclass(frozen=True)
class PredictQuantiles:
    """Maps a block of rows to quantiles of its targets.

    Attributes
    ----------
    find : FindLeaves
    targets : LeafTargets
    q : tuple of float
    shape : tuple of int
        The shape of the result for one row.
    steps : tuple of callable
        Applied to the result in sequence.
    """

    find: FindLeaves
    targets: LeafTargets
    q: tuple[float, ...]
    shape: tuple[int, ...]
    steps: tuple[Step, ...] = ()

    @property
    def trees(self) -> Any:
        """The trees."""
        return self.find.trees

    @property
    def nbytes(self) -> int:
        """Number of bytes besides those of the trees."""
        return self.targets.nbytes

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Predict a block of rows."""
        found = self.targets.quantiles(self.find(X), self.q, effective_n_jobs(self.find.n_jobs))
        return reduce(lambda values, step: step(values), self.steps, found.reshape(len(found), *self.shape))


#: The prefix of the names of leaf-target arrays in model files.
_PREFIX = "leaf_targets."


@with_parameters
class StoredTargets:
    """Parameters of forests for regression.

    Parameters
    ----------
    keep_targets : bool
        Whether to store the targets and leaves of the training rows for ``predict_quantiles`` and ``predict_interval``. In memory and in
        files, this takes 8 bytes per row and target, and about 5 per row and tree. On a cluster, they are fetched to the process that
        coordinates the fit.
    """

    keep_targets: bool = parameter(default=False, allowed=["boolean"])


class LeafQuantiles(StoredTargets, TreeEstimator):
    """Mixin of forests for regression: quantiles of the targets in leaves."""

    _leaf_targets: LeafTargets

    def _keep_leaf_targets(self: Any, backend: Backend, table: Table, X: Any) -> None:
        """Store targets, leaves and draws of the rows of a fit, if wanted."""
        self._forget("_leaf_targets")
        if not self.keep_targets:
            return
        (leaves,) = backend_for(X).gather(self._find_leaves(X))
        target, weight = backend.target(table), backend.weight(table)
        some: Any = slice(None) if weight is None else weight > 0
        drawn = np.stack([one[some] for one in self._weights_in_trees(table.n_rows, weight)])
        self._leaf_targets = LeafTargets(
            np.ascontiguousarray(target.reshape(table.n_rows, -1)[some], np.float64),
            np.ascontiguousarray(np.asarray(leaves)[some].T, np.int32),
            drawn if any(plan.n_draws is not None for plan, _, _ in self._batches) else drawn[:1],
        )

    def _stored_targets(self) -> LeafTargets:
        """Return the stored targets of leaves."""
        self._check_fitted()
        if not hasattr(self, "_leaf_targets"):
            raise ValueError(
                f"this {type(self).__name__} does not know the targets in its leaves (refit_leaves and other estimators_ lose them); fit "
                "it with keep_targets=True"
            )
        return self._leaf_targets

    def _ask(self, X: Any, q: tuple[float, ...], shape: tuple[int, ...], output: Output, *steps: Step) -> Any:
        """Predict quantiles of each target, and reshape them for each row before applying steps."""
        stored, find = self._stored_targets(), FindLeaves(self._schema, self._trees, self.n_jobs)
        return self._check_columns(X).predict(X, PredictQuantiles(find, stored, q, shape, steps), output)

    def predict_quantiles(self, X: Any, q: Any) -> Any:
        """Predict quantiles of the target by a quantile regression forest [1]_.

        The distribution of the target of a row is that of the training targets in the leaves that the row falls in. In each tree, the
        training rows of this leaf have a total weight of 1, in proportion to how often the tree drew them or, without ``bootstrap``, to
        their weights. Weights are averaged over trees. A quantile is the smallest target up to which at least the share ``q`` of the weight
        lies, as in ``numpy.quantile(y, q, weights=w, method="inverted_cdf")``: values are not interpolated.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        q : float or array-like of floats
            Quantiles from 0 (the smallest target) to 1 (the largest).

        Returns
        -------
        ndarray of float64 of shape (n,) or (n, n_quantiles), where y had several columns (n, n_outputs_) or (n, n_outputs_, n_quantiles)
            A lazy Dask collection if X is one; a DataFrame has the quantiles as column names.

        Raises
        ------
        ValueError
            If the forest was fitted without ``keep_targets=True``, or ``q`` is not between 0 and 1.

        Notes
        -----
        By default, the package quantile-forest pools the rows of all leaves, so that larger leaves count more; this method equals its
        ``weighted_leaves=True`` without interpolation. Deep trees have few rows per leaf; set ``min_samples_leaf`` for smooth quantiles.

        References
        ----------
        .. [1] N. Meinshausen, "Quantile regression forests", Journal of Machine Learning Research 7, 2006.

        Examples
        --------
        >>> import numpy as np
        >>> from dtrees import RandomForestRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(size=(1000, 1))
        >>> y = np.where(X[:, 0] < 0.5, 1, 10) * random.normal(size=1000)
        >>> forest = RandomForestRegressor(keep_targets=True, min_samples_leaf=50, random_state=0).fit(X, y)
        >>> low, high = forest.predict_quantiles([[0.2], [0.8]], [0.1, 0.9]).T
        >>> low.round(), high.round()
        (array([ -1., -14.]), array([1., 9.]))
        """
        self._check_fitted()
        levels = as_floats(q, "q", "a number from 0 to 1, or several")
        if levels.ndim > 1 or not levels.size or not np.all((levels >= 0.0) & (levels <= 1.0)):
            raise ValueError(f"q is {q!r:.200}; wants a number from 0 to 1, or several")
        several = tuple(levels.ravel().tolist())
        shape = ((self._n_targets,) if self._n_targets > 1 else ()) + levels.shape
        labels = several if len(set(several)) == len(several) and shape == levels.shape != () else None
        output = Output(np.dtype(np.float64), shape[0] if shape else None, "predict_quantiles", labels, shape[1:])
        return self._ask(X, several, shape, output)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Predict an interval that covers the target for approximately a share of rows.

        The interval is that between two quantiles (:meth:`predict_quantiles`), less and plus a margin, which is the same for all rows. With
        this margin, the out-of-bag intervals of the training rows cover that share of them, or slightly more; it may be negative.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        coverage : float, default=0.9
            Share of rows, between 0 and 1.

        Returns
        -------
        ndarray of float64 of shape (n, 2)
            Lower and upper ends. A lazy Dask collection if X is one; a DataFrame has the columns "lower" and "upper".

        Raises
        ------
        ValueError
            If the forest was fitted without ``keep_targets=True`` or ``bootstrap=True``, on too few rows for this coverage, or on several
            targets.

        Notes
        -----
        This is conformalized quantile regression with out-of-bag rows instead of held-out rows. If rows are exchangeable, the covered share
        is close to ``coverage`` and usually above it, since an out-of-bag interval uses about 37 % of the trees and is less sharp. Unlike
        the calibration of boosting on held-out rows, this is not a guarantee.

        Examples
        --------
        >>> import numpy as np
        >>> from dtrees import RandomForestRegressor
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(size=(3000, 1))
        >>> y = X[:, 0] * random.normal(size=3000)
        >>> forest = RandomForestRegressor(keep_targets=True, min_samples_leaf=20, random_state=0).fit(X[:1000], y[:1000])
        >>> low, high = forest.predict_interval(X[1000:], 0.9).T
        >>> bool(0.87 < np.mean((low <= y[1000:]) & (y[1000:] <= high)) < 0.93)
        True
        """
        stored = self._stored_targets()
        if self._n_targets > 1:
            raise ValueError(f"the forest has {self._n_targets} targets; intervals are of one, so fit a forest for each")
        if np.all(stored.weight):
            raise ValueError("intervals are calibrated on rows that trees left out, and these were grown on all; fit with bootstrap=True")
        check_coverage(coverage)
        ends = (1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0
        if coverage not in stored.scores:
            found = stored.out_of_bag_quantiles(ends, effective_n_jobs(self.n_jobs))[:, 0]
            scored = ~np.isnan(found[:, 0])  # rows that at least one tree did not draw
            stored.scores[coverage] = conformity_scores(stored.target[scored, 0], found[scored])
        return self._ask(X, ends, (2,), _INTERVAL, partial(widened, margin_of(stored.scores[coverage], coverage)))

    def _take_rounds(self, rounds: range) -> None:
        stored = self.__dict__.get("_leaf_targets")
        super()._take_rounds(rounds)  # type: ignore[misc]
        if stored is not None:
            self._leaf_targets = stored.of_trees(rounds)

    def _to_state(self, mappable: bool = False) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        metadata, arrays = super()._to_state(mappable)
        stored = self.__dict__.get("_leaf_targets")
        return metadata, arrays if stored is None else arrays | {f"{_PREFIX}{name}": array for name, array in stored.__getstate__().items()}

    def _restore_trees(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore_trees(arrays)
        own = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
        if own:
            self._leaf_targets = LeafTargets.restored(own, self._trees.groups[0], self._n_targets)
