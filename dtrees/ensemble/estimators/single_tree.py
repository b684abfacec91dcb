"""Single decision trees: a forest of one tree, grown on all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from dtrees.engine.plan.plans import Callback
from dtrees.ensemble.callbacks import called_together
from dtrees.ensemble.compat import StrOptions
from dtrees.ensemble.estimators.base import TreeEstimator, all_or_nothing
from dtrees.ensemble.estimators.base_kinds import Classifier, Regressor
from dtrees.ensemble.estimators.inspection import FittedTree, decision_path_matrix
from dtrees.ensemble.estimators.parameters import ClassificationCriterion, GrowthParameters, RegressionCriterion, parameter, with_parameters
from dtrees.ensemble.input import rules
from dtrees.ensemble.prediction import AdditiveTrees
from dtrees.tree.tree import Tree


@with_parameters
class TreeParameters(GrowthParameters):
    """Parameters of single trees.

    Parameters
    ----------
    splitter : {"best", "random"}
        Thresholds to choose the split from: all of them, or one random threshold per column.
    """

    splitter: str = parameter(default="best", allowed=[StrOptions({"best", "random"})])


class SingleTree(TreeParameters, TreeEstimator):
    """Base class of the four single trees.

    Attributes
    ----------
    tree_ : dtrees.ensemble.estimators.inspection.FittedTree
        The tree as arrays of nodes, in scikit-learn's shapes, read-only.
    """

    criterion: str

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        callbacks: Sequence[Callback] = (),
        client: Any = None,
        placement: str | None = None,
    ) -> Self:
        """Grow the tree.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features)
            Numbers; frames may also have text and categories. NaN marks missing values.
        y : array-like of shape (n,) or (n, k)
            Finite numbers for a regressor, labels for a classifier. k columns are k targets, which the tree learns together.
        sample_weight : array-like of shape (n,) or None, default=None
            Non-negative weights; rows of weight 0 have no effect.
        callbacks : sequence of callable, default=()
            Functions called with a :class:`dtrees.callbacks.Progress` when the tree is grown.
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
        callback = called_together(callbacks)
        random_splits = self.splitter == "random"
        backend, table = self._load(X, y, sample_weight, keep=False, n_trees=1, single_use=True)
        rules.check_targets(self, table)
        factors = rules.class_weights(getattr(self, "class_weight", None), table, by_rows=True)
        plan = rules.forest_plan(self, table, factors, rules.draw_seed(self.random_state), random_splits=random_splits)
        self.max_features_, self._boosted = plan.rules.max_features, False
        self._trees = AdditiveTrees([self._timed(lambda: backend.grow_forest(table, plan, 0, 1, callback)).trees])
        self._n_grown = 1
        self._warn_if_constant()
        return self

    @property
    def _tree(self) -> Tree:
        check_is_fitted(self)
        return self._trees.groups[0][0]

    @property
    def tree_(self) -> FittedTree:
        """The tree as arrays of nodes."""
        check_is_fitted(self)
        return FittedTree(self)

    def get_depth(self) -> int:
        """Return the depth of the deepest leaf; the root has depth 0."""
        return self._tree.max_depth

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        return self._tree.n_leaves

    def apply(self, X: Any) -> Any:
        """Return the leaf that each row falls in.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of int32 of shape (n,)
            Node numbers. For a Dask collection, a lazy one of shape (n, 1).
        """
        leaves = self._find_leaves(X)
        return leaves[:, 0] if isinstance(leaves, np.ndarray) else leaves

    def decision_path(self, X: Any) -> Any:
        """Return the nodes that each row passes through.

        Parameters
        ----------
        X : array-like, sparse table or frame of shape (n, n_features_in_)

        Returns
        -------
        scipy.sparse.csr_matrix of int64 of shape (n, tree_.node_count)
            1 where a row passes through a node.
        """
        return decision_path_matrix(self._tree, self._local_leaves(X)[:, 0])

    def cost_complexity_pruning_path(self, X: Any, y: Any, sample_weight: Any = None) -> Bunch:
        """Compute the pruning path: the values of ``ccp_alpha`` at which subtrees of the unpruned tree become leaves.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.

        Returns
        -------
        Bunch
            ``ccp_alphas``, ndarray of float64 of shape (n,), ascending up to rounding: 0, and each value at which a subtree becomes a leaf.
            ``impurities``, of the same shape: the impurity of the leaves of the tree pruned with each value, weighted by share of weight.

        Examples
        --------
        >>> from dtrees import DecisionTreeRegressor
        >>> path = DecisionTreeRegressor().cost_complexity_pruning_path([[1.0], [2.0], [3.0]], [1.0, 1.0, 4.0])
        >>> path.ccp_alphas.tolist(), path.impurities.tolist()
        ([0.0, 2.0], [0.0, 2.0])
        """
        from dtrees.tree.pruning import pruning_path  # imports Numba

        whole = clone(self).set_params(ccp_alpha=0.0).fit(X, y, sample_weight)
        alphas, impurities = pruning_path(whole._tree)
        return Bunch(ccp_alphas=alphas, impurities=impurities)


@with_parameters
class DecisionTreeRegressor(RegressionCriterion, Regressor, SingleTree):
    """A regression tree with exact splits.

    Every threshold between two neighbouring distinct values of a column is considered, without binning.

    Examples
    --------
    >>> from dtrees import DecisionTreeRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> DecisionTreeRegressor(random_state=0).fit(X, y).predict([[1.5], [9.0]])
    array([5., 9.])
    """


@with_parameters
class DecisionTreeClassifier(ClassificationCriterion, Classifier, SingleTree):
    """A classification tree with exact splits.

    Every threshold between two neighbouring distinct values of a column is considered, without binning.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    >>> tree.predict([[1.0], [9.0]]).tolist(), tree.predict_proba([[9.0]]).tolist()
    (['no', 'yes'], [[0.0, 1.0]])
    """


@with_parameters
class ExtraTreeRegressor(RegressionCriterion, Regressor, SingleTree):
    """A regression tree with random thresholds, as in Extra-Trees.

    For each column that a node considers, one threshold is drawn uniformly between the smallest and largest value in the node; the best of
    these splits is used (Geurts, Ernst and Wehenkel, 2006).

    Examples
    --------
    >>> from dtrees import ExtraTreeRegressor
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], [5.0, 5.0, 9.0, 9.0]
    >>> ExtraTreeRegressor(random_state=0).fit(X, y).predict([[1.5], [9.0]])
    array([5., 9.])
    """

    splitter: str = "random"
    max_features: int | float | str | None = 1.0


@with_parameters
class ExtraTreeClassifier(ClassificationCriterion, Classifier, SingleTree):
    """A classification tree with random thresholds, as in Extra-Trees.

    For each column that a node considers, one threshold is drawn uniformly between the smallest and largest value in the node; the best of
    these splits is used (Geurts, Ernst and Wehenkel, 2006).

    Examples
    --------
    >>> from dtrees import ExtraTreeClassifier
    >>> X, y = [[1.0], [2.0], [3.0], [4.0]], ["no", "no", "yes", "yes"]
    >>> tree = ExtraTreeClassifier(random_state=0).fit(X, y)
    >>> tree.predict([[1.0], [9.0]]).tolist(), tree.predict_proba([[9.0]]).tolist()
    (['no', 'yes'], [[0.0, 1.0]])
    """

    splitter: str = "random"
    max_features: int | float | str | None = "sqrt"
