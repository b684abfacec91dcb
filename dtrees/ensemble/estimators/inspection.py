"""Inspection of trees: nodes, decision paths, feature importances, partial dependence, and explanations of predictions (Shapley values)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.utils.validation import check_is_fitted

from dtrees.ensemble.backend import Output
from dtrees.ensemble.in_process import backend_for
from dtrees.ensemble.input.column import NUMERIC, Column
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.prediction import AdditiveTrees, Explain
from dtrees.ensemble.state import EstimatorState
from dtrees.tree.tree import Tree


class SetThreshold(float):
    """NaN as the threshold of a split on categories; printed, also after rounding, as the set of categories that go left."""

    text: str

    def __new__(cls, categories: Sequence[Any]) -> SetThreshold:
        """Return the threshold that represents some categories."""
        made = super().__new__(cls, np.nan)
        made.text = f"{{{', '.join(map(str, categories))}}}"
        return made

    def __format__(self, spec: str) -> str:
        return self.text

    def __round__(self, n_digits: Any = None) -> Any:
        return self

    def __str__(self) -> str:
        return self.text


class Thresholds(np.ndarray[Any, np.dtype[np.float64]]):
    """Thresholds of nodes for scikit-learn's functions that print trees, with a :class:`SetThreshold` for each set of categories."""

    _at: Mapping[int, SetThreshold] = {}

    @classmethod
    def of(cls, tree: Tree, categories: Sequence[Sequence[Any] | None]) -> Thresholds:
        """Return the thresholds of a tree, given the categories of each column."""
        made = tree.threshold.view(cls)
        sets = ((node, categories[tree.feature[node]]) for node in tree.categories.node.tolist())
        made._at = {node: SetThreshold([names[k] for k in tree.categories.of_node(node)]) for node, names in sets if names is not None}
        return made

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return self._at.get(int(key), found) if self._at and isinstance(key, int | np.integer) else found


class FittedTree:
    """A fitted tree as arrays of nodes, with the shapes and methods of scikit-learn's ``tree_``.

    Nodes are numbered in preorder; the root is 0. The arrays are read-only.

    Attributes
    ----------
    node_count, n_leaves, max_depth : int
        Number of nodes, number of leaves, and depth of the deepest leaf (the root has depth 0).
    n_features, n_outputs, max_n_classes : int
        Number of columns, of targets, and of classes (the maximum over targets; 1 for regression).
    n_classes : ndarray of int of shape (n_outputs,)
        Number of classes of each target; 1 for regression.
    children_left, children_right : ndarray of int32 of shape (node_count,)
        Node numbers of the children; -1 at leaves.
    feature : ndarray of int32 of shape (node_count,)
        Column that a node splits on; -2 at leaves.
    threshold : ndarray of float64 of shape (node_count,)
        Rows with ``x <= threshold`` go left; +inf sends all values left and missing values right. -2 at leaves. NaN at splits by a set of
        categories; see :meth:`categories_left`.
    missing_go_to_left : ndarray of bool of shape (node_count,)
        Whether rows with a missing value go left.
    impurity, gain : ndarray of float64 of shape (node_count,)
        Impurity of a node's rows, and decrease of impurity times weight by its split. The impurity is NaN in boosted trees, whose criterion
        defines gains only.
    n_node_samples : ndarray of int64 of shape (node_count,)
    weighted_n_node_samples : ndarray of float64 of shape (node_count,)
        Weight of a node's rows; in boosted trees, the sum of their hessians.
    value : ndarray of float64 of shape (node_count, n_outputs, max_n_classes)
        Prediction of a node: the means or medians of the targets, or the shares of classes, padded with 0 for targets with fewer classes.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier().fit([[1.0], [2.0], [3.0]], ["no", "no", "yes"]).tree_
    >>> tree.node_count, tree.value.shape, tree.value[0, 0].round(2).tolist()
    (3, (3, 1, 2), [0.67, 0.33])
    """

    children_left: NDArray[np.int32]
    children_right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    missing_go_to_left: NDArray[np.bool_]
    impurity: NDArray[np.float64]
    gain: NDArray[np.float64]
    n_node_samples: NDArray[np.int64]
    weighted_n_node_samples: NDArray[np.float64]
    value: NDArray[np.float64]

    def __init__(self, model: Any) -> None:
        tree, n_classes = model._tree, getattr(model, "n_classes_", 1)
        counts = n_classes if isinstance(n_classes, list) else [n_classes] * model._n_targets
        for name in Tree.ARRAYS:
            array = getattr(tree, name)
            array = _by_output(array, counts) if name == "value" else array.view()
            if name == "threshold" and tree.categories.node.size:
                array = Thresholds.of(tree, [column.categories for column in model._schema.columns])
            array = np.full(array.shape, np.nan) if name == "impurity" and model._boosted else array
            array.flags.writeable = False
            setattr(self, name, array)
        self._tree, self.node_count, self.n_features = tree, tree.node_count, model.n_features_in_
        self.n_outputs, self.max_n_classes, self.n_classes = len(counts), self.value.shape[2], np.array(counts)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return self._tree.n_leaves

    @property
    def max_depth(self) -> int:
        """Depth of the deepest leaf."""
        return self._tree.max_depth

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the leaf that each row falls in.

        Parameters
        ----------
        X : array-like or sparse table of shape (n, n_features)
            Numbers, encoded as by the estimator; NaN is missing.

        Returns
        -------
        ndarray of int64 of shape (n,)
            Node numbers.
        """
        matrix = Schema((Column(None, NUMERIC),) * self.n_features).matrix(X)
        return AdditiveTrees([[self._tree]]).leaves(matrix, None)[:, 0].astype(np.int64)

    def categories_left(self, node: int) -> NDArray[np.int64] | None:
        """Return the numbers of the categories that a node sends left, ascending; None if it does not split by categories."""
        if not 0 <= node < self.node_count:
            raise ValueError(f"node is {node!r}; the nodes of this tree are 0 to {self.node_count - 1}")
        return self._tree.categories.of_node(node) if np.isnan(self.threshold[node]) else None

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the ``value`` of the leaf that each row falls in; X as in :meth:`apply`.

        The shape is (n, max_n_classes), or (n, n_outputs, max_n_classes) for multi-output trees.
        """
        value = self.value[self.apply(X)]
        return value[:, 0] if self.n_outputs == 1 else value

    def decision_path(self, X: ArrayLike) -> Any:
        """Return the nodes that each row passes through: a csr_matrix of int64 of shape (n, node_count); X as in :meth:`apply`."""
        return decision_path_matrix(self._tree, self.apply(X))

    def compute_feature_importances(self, normalize: bool = True) -> NDArray[np.float64]:
        """Return the impurity decrease of the splits on each column, shape (n_features,).

        Parameters
        ----------
        normalize : bool, default=True
            Whether to divide by the sum (zeros for a tree without splits), or else by the total weight.
        """
        gains = importance_by_column(self._tree, self.n_features, "gain")
        return normalised(gains) if normalize else gains / self._tree.weighted_n_node_samples[0]

    def compute_partial_dependence(self, X: ArrayLike, target_features: ArrayLike, out: NDArray[np.float64]) -> None:
        """Add the mean first value at each point of a grid to ``out``, shape (n_points,).

        Parameters
        ----------
        X : array-like of shape (n_points, n_target_features)
        target_features : array-like of int of shape (n_target_features,)
            Columns that X has values of.
        out : ndarray of float64 of shape (n_points,)
        """
        from dtrees.tree.partial_dependence import partial_dependence

        out += partial_dependence(self._tree, X, target_features)[:, 0]

    @property
    def node_depth(self) -> NDArray[np.int64]:
        """Depth of every node; the root has depth 0."""
        depth = self._tree.node_depth.view()
        depth.flags.writeable = False
        return depth


def _by_output(value: NDArray[np.float64], counts: list[int]) -> NDArray[np.float64]:
    """Return the values of nodes by target and class, shape (n, n_outputs, max_n_classes)."""
    if len(counts) == 1:
        return value[:, np.newaxis]
    split = np.split(value, np.cumsum(counts)[:-1], axis=1)
    return np.stack([np.pad(mine, ((0, 0), (0, max(counts) - mine.shape[1]))) for mine in split], axis=1)


def side_by_side(shares: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return values by class of multi-output targets, shape (n, max_n_classes, n_outputs); 0 for missing classes."""
    widths = [mine.shape[1] for mine in shares]
    return np.moveaxis(_by_output(np.concatenate(shares, axis=1), widths), 1, 2)


class Members(EstimatorState):
    """Mixin: an ensemble as a sequence of its ``estimators_``; a slice is an ensemble, too."""

    estimators_: Any

    def __len__(self) -> int:
        return len(self.estimators_)

    def __bool__(self) -> bool:
        return True  # also before the fit, when the length is unknown

    def __getitem__(self, index: Any) -> Any:
        check_is_fitted(self)
        if isinstance(index, Integral):
            return self.estimators_[int(index)]
        name = type(self).__name__
        if not isinstance(index, slice):
            raise TypeError(f"{name} is indexed by {index!r}; wants the number of a {self._UNIT}, or a slice of them, such as [:10]")
        rounds = range(self._trees.n_rounds)[index]
        if not rounds:
            raise ValueError(f"the slice {index} of {name} has none of its {self._trees.n_rounds} {self._UNIT}s; wants one at least")
        made = copy_of(self)
        made._take_rounds(rounds)
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter(self.estimators_)

    def _take_rounds(self, rounds: range) -> None:
        """Restrict the model to some rounds, or trees of a forest; the initial prediction does not change."""
        grown_by = [given for n, given in self.__dict__.get("_grown_by", ()) for _ in range(n)]
        if grown_by:
            self._grown_by = tuple((1, grown_by[i]) for i in rounds)
        self.__dict__.pop("_members", None)
        self._keep_rounds(rounds)

    def _keep_rounds(self, rounds: range) -> None:
        """Restrict the model to the trees of some rounds, and to their scores."""
        self._trees = self._trees.take(rounds)

    def _first(self, n_trees: int | None) -> Self:
        """Return a view of the model that predicts with its first ``n_trees`` rounds, or trees of a forest."""
        if n_trees is None:
            return self
        check_is_fitted(self)
        most = self._trees.n_rounds
        if not isinstance(n_trees, Integral) or isinstance(n_trees, bool) or not 1 <= n_trees <= most:
            raise ValueError(f"n_trees is {n_trees!r}, but the model has {most} {self._UNIT}s; wants an integer from 1 to {most}, or None")
        view = copy_of(self)
        view._n_used = int(n_trees)
        return view


def copy_of(model: Any) -> Any:
    """Return an estimator with the same parameters and attributes, some of which will be replaced."""
    made = object.__new__(type(model))
    made.__dict__.update(vars(model))
    return made


def decision_path_matrix(tree: Tree, leaves: NDArray[np.integer]) -> Any:
    """Return the nodes through which rows pass on the way to their leaves.

    Parameters
    ----------
    tree : Tree
    leaves : ndarray of int of shape (n,)

    Returns
    -------
    scipy.sparse.csr_matrix of int64 of shape (n, tree.node_count)
        1 where a row passes through a node.
    """
    parent = np.full(tree.node_count, -1, dtype=np.int64)
    inner = np.flatnonzero(tree.children_left >= 0)
    parent[tree.children_left[inner]] = inner
    parent[tree.children_right[inner]] = inner
    ends = np.cumsum(tree.node_depth[leaves] + 1)
    indices = np.empty(ends[-1] if len(ends) else 0, dtype=np.int64)
    # Backwards from the leaf to the root: in preorder a parent's number is smaller, so each row's indices come out sorted.
    node, place = leaves.astype(np.int64), ends - 1
    while node.size:
        indices[place] = node
        node = parent[node]
        on_the_way = node >= 0
        node, place = node[on_the_way], place[on_the_way] - 1
    indptr = np.concatenate([[0], ends])
    return csr_matrix((np.ones(len(indices), dtype=np.int64), indices, indptr), shape=(len(leaves), tree.node_count))


def importance_by_column(tree: Tree, n_columns: int, kind: str) -> NDArray[np.float64]:
    """Return the importance of the splits on each column, shape (n_columns,).

    Parameters
    ----------
    tree : Tree
    n_columns : int
    kind : {"gain", "split", "cover"}
        The sum of gains, the number of splits, or the weight of the rows that they divide (in boosted trees, the sum of hessians).

    Raises
    ------
    ValueError
        If the kind is unknown.
    """
    of_split = {"gain": tree.gain, "split": np.ones(tree.node_count), "cover": tree.weighted_n_node_samples}
    if kind not in of_split:
        raise ValueError(f"importance_type is {kind!r}; wants {', '.join(map(repr, of_split))}")
    inner = tree.feature >= 0
    return np.bincount(tree.feature[inner], weights=of_split[kind][inner], minlength=n_columns).astype(np.float64)


def normalised(amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return amounts as shares of their sum; zeros if the sum is zero."""
    total = amounts.sum()
    return amounts / total if total > 0 else np.zeros(len(amounts))


class Explaining(EstimatorState):
    """Mixin: partial dependence, and exact Shapley values of predictions.

    Explained are the mean of regression trees and forests, the class probabilities of classification trees and forests, and the raw scores
    of boosting, before the link of the loss. If boosting starts from an ``init`` estimator or from ``base_margin``, only the part of the
    trees is explained.
    """

    def shap_values(self, X: Any, background: Any = None) -> Any:
        """Compute exact Shapley values: the contribution of each column to the prediction of each row.

        They and :meth:`shap_expected_value` add up to the prediction of a regressor, the probabilities of a classifier, or the raw scores
        of boosting (predictions, for losses without a link), without the part of an ``init`` estimator or of ``base_margin``.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        background : array-like, sparse table, frame or Dask collection of shape (m, n_features_in_), or None, default=None
            Rows with the values that a column may have where it counts as unknown (interventional values). About a hundred are usually
            enough; a Dask collection is fetched. Without them, an unknown column sends a row both ways, weighted by the training rows that
            went there, in boosting by their hessians (path-dependent values).

        Returns
        -------
        ndarray of float64 of shape (n, n_features_in_) or (n, n_features_in_, n_outputs)
            Classifying trees and forests have one output per class, boosting has one per class for more than two classes, and one (the
            score of the second class) for two. Several targets have one each. For a Dask Array, a lazy one; for a Dask DataFrame, a lazy
            DataFrame with its columns, or an Array for several outputs.

        Raises
        ------
        ValueError
            If the columns of X or the background differ from those of fit, or the background has no rows.

        Notes
        -----
        The values equal those of shap's ``TreeExplainer`` with ``feature_perturbation="tree_path_dependent"`` or ``"interventional"``. The
        time per row is proportional to the nodes of the trees times the columns of the longest path; with a background and deep trees, to
        the leaves that the row reaches with each background row.

        Examples
        --------
        >>> from dtrees import DecisionTreeRegressor
        >>> X, y = [[1.0, 5.0], [2.0, 5.0], [3.0, 6.0], [4.0, 6.0]], [1.0, 1.0, 1.0, 5.0]
        >>> tree = DecisionTreeRegressor().fit(X, y)
        >>> tree.shap_expected_value(), tree.shap_values([[4.0, 6.0]]).tolist()
        (2.0, [[3.0, 0.0]])
        """
        explain = self._explain(background)
        n_outputs = self._n_explained
        names = getattr(self, "feature_names_in_", None)
        labels = None if names is None else tuple(names.tolist())
        further = () if n_outputs == 1 else (n_outputs,)
        return self._map(X, explain, Output(np.dtype(np.float64), len(self._schema), "shap_values", labels, further))

    def shap_interaction_values(self, X: Any) -> Any:
        """Split path-dependent Shapley values into main effects of columns and interactions of pairs of columns.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_features_in_, n_features_in_) or (n, n_features_in_, n_features_in_, n_outputs)
            A symmetric matrix for each row (and output, see :meth:`shap_values`), whose rows add up to the Shapley values. Each of the two
            cells of a pair has half of its interaction. For a Dask collection, a lazy Dask Array.

        Raises
        ------
        ValueError
            If the columns of X differ from those of fit.

        Examples
        --------
        >>> from dtrees import DecisionTreeRegressor
        >>> tree = DecisionTreeRegressor().fit([[0, 0], [0, 1], [1, 0], [1, 1]], [0.0, 0.0, 0.0, 4.0])
        >>> tree.shap_interaction_values([[1, 1]]).tolist()
        [[[1.0, 0.5], [0.5, 1.0]]]
        """
        explain = self._explain(None, interactions=True)
        width, n_outputs = len(self._schema), self._n_explained
        further = (width,) if n_outputs == 1 else (width, n_outputs)
        return self._map(X, explain, Output(np.dtype(np.float64), width, "shap_interaction_values", None, further))

    def shap_expected_value(self, background: Any = None) -> Any:
        """Return the base of the Shapley values: the prediction with all columns unknown.

        Parameters
        ----------
        background : array-like, sparse table, frame or Dask collection of shape (m, n_features_in_), or None, default=None
            As in :meth:`shap_values`; the result is their mean prediction. Without it, the result is the mean of the leaves, weighted by
            their training rows.

        Returns
        -------
        float or ndarray of float64 of shape (n_outputs,)

        Examples
        --------
        >>> from dtrees import DecisionTreeClassifier
        >>> tree = DecisionTreeClassifier().fit([[0], [1], [2], [3]], ["a", "b", "b", "b"])
        >>> tree.shap_expected_value(), tree.shap_expected_value([[0], [1]])
        (array([0.25, 0.75]), array([0.5, 0.5]))
        """
        expected = self._explain(background).expected()
        return float(expected[0]) if len(expected) == 1 else expected

    @property
    def _n_explained(self) -> int:
        """The number of outputs."""
        return sum(group[0].value.shape[1] for group in self._trees.groups)

    @property
    def _n_averaged(self) -> float:
        """The number of trees whose mean is predicted; 1 in boosting, where trees add up."""
        return 1.0 if self._GROUP_PER_OUTPUT else float(self._trees.n_rounds)

    def _compute_partial_dependence_recursion(self, grid: NDArray[Any], target_features: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return mean raw predictions, shape (n_outputs, n_points), for scikit-learn's ``partial_dependence(method="recursion")``."""
        from dtrees.tree.partial_dependence import partial_dependence

        check_is_fitted(self)
        grid, initial = self._schema.numbers_at(grid, target_features), self._trees.initial
        sums = [np.sum([partial_dependence(tree, grid, target_features) for tree in group], axis=0) for group in self._trees.groups]
        return (np.hstack(sums) / self._n_averaged + (0.0 if initial is None else initial)).T

    def _explain(self, background: Any, *, interactions: bool = False) -> Explain:
        """Return the function that explains a block of rows."""
        self._check_fitted()
        rows = None if background is None else self._background_rows(background)
        return Explain(self._schema, self._trees, self._n_averaged, self.n_jobs, rows, interactions)

    def _background_rows(self, background: Any) -> Any:
        """Return the rows of a background as numbers, an array or a sparse table."""
        try:
            (here,) = backend_for(background).gather(background)
            if not hasattr(here, "shape"):
                here = np.asarray(here)
            self._check_columns(here)
            rows = self._schema.matrix(here)
        except ValueError as error:
            raise ValueError(f"background: {error}") from error
        if rows.shape[0] == 0:
            raise ValueError(f"background has no rows (shape {rows.shape}); wants at least one, a hundred or so do for most")
        return rows
