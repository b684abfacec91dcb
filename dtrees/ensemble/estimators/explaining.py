"""Explaining predictions: the methods of all estimators that return Shapley values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtrees.ensemble.backend import Output
from dtrees.ensemble.compat import BaseEstimator
from dtrees.ensemble.in_process import backend_for
from dtrees.ensemble.prediction import Explain

if TYPE_CHECKING:
    from dtrees.tree.predict import SparseRows


class Explaining(BaseEstimator):
    """Mixin: exact Shapley values of predictions.

    What is explained is the mean of regression trees and forests, the probability of each class of classifying ones, and the raw scores of
    boosting: for a loss with a link, before it. Where boosting starts from an ``init`` estimator or from ``base_margin``, it is what the
    trees add to that.
    """

    def shap_values(self, X: Any, background: Any = None) -> Any:
        """Explain predictions: say what each column of a row has added to the expected value, by exact Shapley values.

        They and :meth:`shap_expected_value` add up to the prediction of a regressor, the probabilities of a classifier, or the raw scores
        of boosting (which are predictions for losses without a link); of boosting that starts from an ``init`` estimator or from
        ``base_margin``, to what the trees add to that.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)
        background : array-like, sparse table, frame or Dask collection of shape (m, n_features_in_), or None, default=None
            Rows that tell what a column may be where it counts as unknown (interventional values). A hundred or so do for most; of a Dask
            collection, they are fetched. Without it, an unknown column sends a row both ways, by the weight of the training rows that went
            there: of boosting by their hessians (path-dependent values).

        Returns
        -------
        ndarray of float64 of shape (n, n_features_in_) or (n, n_features_in_, n_outputs)
            With an output for each class of a classifying tree or forest, for each class of boosting of more than two, and for each of
            several targets; for two classes boosting has a single one, the second class's score. If X is a Dask Array, one of that shape,
            not computed yet; if it is a Dask DataFrame, a DataFrame with its columns, or an Array where there are several outputs.

        Raises
        ------
        ValueError
            If X or the background has other columns than fit had, or the background has no rows.

        Notes
        -----
        Equal to shap's ``TreeExplainer`` with ``feature_perturbation="tree_path_dependent"`` or ``"interventional"``. A row takes time in
        proportion to the nodes of the trees times the columns of the longest path; with a background and deep trees, to the leaves that its
        rows reach with this one's, each by itself.

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
        """Split path-dependent Shapley values into what each column adds by itself, and what each pair of columns adds together.

        Parameters
        ----------
        X : array-like, sparse table, frame or Dask collection of shape (n, n_features_in_)

        Returns
        -------
        ndarray of float64 of shape (n, n_features_in_, n_features_in_) or (n, n_features_in_, n_features_in_, n_outputs)
            A symmetric matrix for each row (and output, see :meth:`shap_values`), whose rows add up to the Shapley values. The interaction
            of two columns is divided by halves between its two places. If X is a Dask collection, a Dask Array, not computed yet.

        Raises
        ------
        ValueError
            If X has other columns than fit had.

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
        """Return what Shapley values are added to: the prediction where all columns are unknown.

        Parameters
        ----------
        background : array-like, sparse table, frame or Dask collection of shape (m, n_features_in_), or None, default=None
            As for :meth:`shap_values`: the mean prediction of these rows. Without it, the mean of the leaves by the weight of their rows at
            fit.

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
        """Number of outputs."""
        groups = self._trees.groups
        return len(groups) if self._GROUP_PER_OUTPUT else int(groups[0][0].value.shape[1])

    def _explain(self, background: Any, *, interactions: bool = False) -> Explain:
        """Return the function that explains a block of rows."""
        self._check_fitted()
        rows = None if background is None else self._background_rows(background)
        scale = 1.0 if self._GROUP_PER_OUTPUT else float(self._trees.n_rounds)
        return Explain(self._schema, self._trees, scale, self.n_jobs, rows, interactions)

    def _background_rows(self, background: Any) -> NDArray[Any] | SparseRows:
        """Return the rows of a background as numbers."""
        try:
            (here,) = backend_for(background).gather(background)
            if not hasattr(here, "shape"):
                here = np.asarray(here)
            self._check_columns(here)
            rows: NDArray[Any] | SparseRows = self._schema.matrix(here)
        except ValueError as error:
            raise ValueError(f"background: {error}") from error
        if rows.shape[0] == 0:
            raise ValueError(f"background has no rows (shape {rows.shape}); wants at least one, a hundred or so do for most")
        return rows
