"""What the two branches of a node are taken for, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.single_tree import SingleTree
from dtrees.ensemble.input.schema import CATEGORICAL


def single_tree(model: Any) -> SingleTree:
    """Return a fitted single tree as it came.

    Raises
    ------
    TypeError
        If it is none.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if not isinstance(model, SingleTree):
        ensemble = isinstance(model, TreeEstimator)
        advice = "; pass one of its trees, such as numpy.ravel(model.estimators_)[0]" if ensemble else ""
        raise TypeError(f"decision_tree is of type {type(model).__name__}; wants a single tree of dtrees{advice}")
    model._check_fitted()
    return model


class Branches:
    """Texts of the branches of a tree's nodes.

    Parameters
    ----------
    model : SingleTree
        Fitted.
    feature_names : array-like of str of shape (n_features,) or None
        None for the names at fit, or ``feature_0``, ``feature_1``, ... where there were none.
    decimals : int
        Of thresholds.
    show_missing : bool
        Say which way missing values go.
    max_categories : int
        How many categories of a set are named.
    """

    def __init__(self, model: SingleTree, feature_names: ArrayLike | None, decimals: int, show_missing: bool, max_categories: int) -> None:
        self._tree, self._columns = model._tree, model._schema.columns
        known = getattr(model, "feature_names_in_", [f"feature_{j}" for j in range(model.n_features_in_)])
        self._names = names_for("feature_names", feature_names, known, "column of the fit")
        self._decimals, self._show_missing, self._max_categories = decimals, show_missing, max_categories

    def of(self, node: int) -> tuple[str, str]:
        """Return what rows are like that an inner node sends left, and right."""
        column = int(self._tree.feature[node])
        name, threshold = self._names[column], float(self._tree.threshold[node])
        if math.isinf(threshold):
            return f"{name} is not missing", f"{name} is missing"
        if self._columns[column].kind == CATEGORICAL:
            left = f"{{{self._listed(column, self._categories(node, threshold))}}}"
            texts = f"{name} in {left}", f"{name} not in {left}"
        else:
            texts = f"{name} <= {threshold:.{self._decimals}f}", f"{name} >  {threshold:.{self._decimals}f}"
        if not self._show_missing:
            return texts
        return (f"{texts[0]} or missing", texts[1]) if self._tree.missing_go_to_left[node] else (texts[0], f"{texts[1]} or missing")

    def _categories(self, node: int, threshold: float) -> NDArray[np.int64]:
        """Return the numbers of the categories that go left: those of the node's set, or those up to a threshold in their order."""
        return self._tree.categories.of_node(node) if math.isnan(threshold) else np.arange(math.floor(threshold) + 1)

    def _listed(self, column: int, numbers: NDArray[np.int64]) -> str:
        categories = self._columns[column].categories
        some = [str(categories[k]) for k in numbers[: self._max_categories].tolist()]
        more = len(numbers) - len(some)
        return ", ".join([*some, *([f"{more} more"] if more else [])])


def names_for(argument: str, given: ArrayLike | None, default: Sequence[Any] | NDArray[Any], what: str) -> list[str]:
    """Return the names that an argument gives, one for each of ``what``; the default where it is None."""
    if given is None:
        return [str(name) for name in default]
    names = np.asarray(given, dtype=object)
    if names.shape != (len(default),):
        raise ValueError(f"{argument} has shape {names.shape}; wants ({len(default)},), a name for each {what}")
    return [str(name) for name in names]
