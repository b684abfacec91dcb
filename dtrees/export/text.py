"""A tree as lines of text, and what the two branches of a node are taken for, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.single_tree import SingleTree
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.prediction import by_target
from dtrees.tree.tree import Tree


def export_text(
    decision_tree: Any,
    *,
    tree_index: int = 0,
    feature_names: ArrayLike | None = None,
    class_names: Any = None,
    max_depth: int = 10,
    spacing: int = 3,
    decimals: int = 2,
    show_weights: bool = False,
    show_missing: bool = False,
    max_categories: int = 10,
) -> str:
    """Return the rules of a tree as text, a line for each branch and each leaf.

    For trees of numbers it is what :func:`sklearn.tree.export_text` returns, but for names of columns, which are those at fit if none are
    given. It also shows which categories go left.

    Parameters
    ----------
    decision_tree : estimator of dtrees
        A fitted tree, such as a member of an ensemble, or an ensemble.
    tree_index : int, default=0
        Which tree of an ensemble; boosting's are numbered round by round.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        None for the names at fit, or ``feature_0``, ``feature_1``, ... if it was fitted on an array.
    class_names : array-like of str of shape (n_classes,), or list of such arrays for several targets, or None, default=None
        In the order of ``classes_``; None for the classes themselves.
    max_depth : int, default=10
        Branches below this depth are left out, and a line says how deep they are.
    spacing : int, default=3
        Spaces by which a level is indented.
    decimals : int, default=2
        Digits after the point.
    show_weights : bool, default=False
        Show the weight of each class in the leaves of classifiers.
    show_missing : bool, default=False
        Say of each split which way missing values go. A split that tells missing values from all others says so anyway.
    max_categories : int, default=10
        How many categories of a set are named.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If this is no estimator of dtrees, or a number is no integer.
    ValueError
        If names are not as many as columns or classes, a number is too small, or there are not so many trees.

    Examples
    --------
    >>> import pandas as pd
    >>> from dtrees import DecisionTreeRegressor, export_text
    >>> people = pd.DataFrame({"job": ["smith", "baker", "smith", "miller"] * 5, "age": [20, 30, 40, 50] * 5})
    >>> tree = DecisionTreeRegressor(min_samples_category=1, cat_smooth=0).fit(people, [1.0, 5.0, 2.0, 1.0] * 5)
    >>> print(export_text(tree))
    |--- job in {baker}
    |   |--- value: [5.00]
    |--- job not in {baker}
    |   |--- job in {miller}
    |   |   |--- value: [1.00]
    |   |--- job not in {miller}
    |   |   |--- age <= 30.00
    |   |   |   |--- value: [1.00]
    |   |   |--- age >  30.00
    |   |   |   |--- value: [2.00]
    <BLANKLINE>
    """
    model = single_tree(decision_tree, tree_index)
    for name, number, least in (
        ("max_depth", max_depth, 0),
        ("spacing", spacing, 1),
        ("decimals", decimals, 0),
        ("max_categories", max_categories, 1),
    ):
        check_integer(name, number, least)
    tree = model._tree
    branches = Branches(model, feature_names, partial(_number, decimals), show_missing, max_categories)
    classes = class_names_for(class_names, model)
    lines = []
    # What is to be written, the next last: a line, or a node and where what is below it ends, as nodes are in preorder.
    waiting: list[str | tuple[int, int]] = [(0, tree.node_count)]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            lines.append(item)
            continue
        node, stop = item
        depth = int(tree.node_depth[node])
        indent = ("|" + " " * spacing) * depth + "|" + "-" * spacing
        if tree.feature[node] < 0:
            lines.append(f"{indent} {_leaf(tree, node, classes, decimals, show_weights)}")
        elif depth > max_depth:
            lines.append(f"{indent} truncated branch of depth {tree.node_depth[node:stop].max() - depth + 1}")
        else:
            left, right = branches.of(node)
            first_right = int(tree.children_right[node])
            waiting += [(first_right, stop), f"{indent} {right}", (int(tree.children_left[node]), first_right), f"{indent} {left}"]
    return "".join(f"{line}\n" for line in lines)


def _leaf(tree: Tree, node: int, classes: list[list[str]], decimals: int, show_weights: bool) -> str:
    value = tree.value[node]
    if not classes:
        return f"value: {_numbers(value, decimals)}"
    shares = np.split(value, np.cumsum([len(names) for names in classes])[:-1])
    told = []
    for names, mine in zip(classes, shares, strict=True):
        weights = f"weights: {_numbers(mine * tree.weighted_n_node_samples[node], decimals)} " if show_weights else ""
        told.append(f"{weights}class: {names[int(np.argmax(mine))]}")
    return ", ".join(told)


def _number(decimals: int, value: float) -> str:
    """Return a number with so many decimals, a very large one with as many digits instead."""
    return f"{value:.{decimals}f}" if abs(value) < 1e15 else f"{value:.{max(decimals, 1)}g}"


def _numbers(values: NDArray[np.float64], decimals: int) -> str:
    return "[" + ", ".join(_number(decimals, value) for value in values) + "]"


def no_estimator(argument: str, model: Any) -> TypeError:
    """Return the error that says what an argument is in place of an estimator that has trees."""
    hint = " that has trees: of a bag, one of its boosters (estimators_)" if isinstance(model, Bagging) else ""
    return TypeError(f"{argument} is of type {type(model).__name__}; wants an estimator of dtrees{hint}")


def single_tree(model: Any, tree_index: Any = 0) -> SingleTree:
    """Return a fitted single tree as it came, or one of the trees of an ensemble.

    Parameters
    ----------
    model : estimator of dtrees
    tree_index : int, default=0
        Which of the trees of an ensemble, from 0; those of boosting with several trees a round are numbered round by round.

    Raises
    ------
    TypeError
        If it is no estimator of dtrees, or ``tree_index`` no integer.
    ValueError
        If there are not so many trees.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if not isinstance(model, TreeEstimator):
        raise no_estimator("decision_tree", model)
    model._check_fitted()
    check_integer("tree_index", tree_index, 0)
    trees = [model] if isinstance(model, SingleTree) else np.ravel(model.estimators_)
    if tree_index >= len(trees):
        raise ValueError(f"tree_index is {tree_index}; wants 0 to {len(trees) - 1}, as there are {len(trees)} trees")
    tree: SingleTree = trees[tree_index]
    return tree


def check_integer(name: str, number: Any, least: int) -> None:
    """Raise TypeError for what is no integer, and ValueError for one below the least that may be."""
    if not isinstance(number, Integral) or isinstance(number, bool):
        raise TypeError(f"{name} is {number!r}; wants an integer of at least {least}")
    if number < least:
        raise ValueError(f"{name} is {number}; wants at least {least}")


class Branches:
    """Texts of the branches of a tree's nodes.

    Parameters
    ----------
    model : SingleTree
        Fitted.
    feature_names : array-like of str of shape (n_features,) or None
        None for the names at fit, or ``feature_0``, ``feature_1``, ... where there were none.
    number : callable
        From a threshold to its text.
    show_missing : bool
        Say which way missing values go.
    max_categories : int
        How many categories of a set are named.
    """

    def __init__(
        self, model: SingleTree, feature_names: ArrayLike | None, number: Callable[[float], str], show_missing: bool, max_categories: int
    ) -> None:
        self._tree, self._columns = model._tree, model._schema.columns
        known = getattr(model, "feature_names_in_", [f"feature_{j}" for j in range(model.n_features_in_)])
        self._names = names_for("feature_names", feature_names, known, "column of the fit")
        self._number, self._show_missing, self._max_categories = number, show_missing, max_categories

    def of(self, node: int) -> tuple[str, str]:
        """Return what rows are like that an inner node sends left, and right."""
        left, right = self.tests(node)
        if not self._show_missing or self.is_about_missing(node):
            return left, right
        return (f"{left} or missing", right) if self._tree.missing_go_to_left[node] else (left, f"{right} or missing")

    def tests(self, node: int) -> tuple[str, str]:
        """Return what rows are like that an inner node sends left, and right, those whose value is missing apart."""
        column = int(self._tree.feature[node])
        name, threshold = self._names[column], float(self._tree.threshold[node])
        if self.is_about_missing(node):
            return f"{name} is not missing", f"{name} is missing"
        if self._columns[column].kind == CATEGORICAL:
            left = f"{{{self._listed(column, self._categories(node, threshold))}}}"
            return f"{name} in {left}", f"{name} not in {left}"
        number = self._number(threshold)
        return f"{name} <= {number}", f"{name} >  {number}"

    def is_about_missing(self, node: int) -> bool:
        """Tell whether an inner node divides missing values from all others."""
        return math.isinf(float(self._tree.threshold[node]))

    def _categories(self, node: int, threshold: float) -> NDArray[np.int64]:
        """Return the numbers of the categories that go left: those of the node's set, or those up to a threshold in their order."""
        return self._tree.categories.of_node(node) if math.isnan(threshold) else np.arange(math.floor(threshold) + 1)

    def _listed(self, column: int, numbers: NDArray[np.int64]) -> str:
        categories = self._columns[column].categories
        some = [str(categories[k]) for k in numbers[: self._max_categories].tolist()]
        more = len(numbers) - len(some)
        return ", ".join([*some, *([f"{more} more"] if more else [])])


def class_names_for(given: Any, model: SingleTree) -> list[list[str]]:
    """Return the names of the classes of each target, those given or ``classes_`` where that is None; none for regression."""
    classes = by_target(getattr(model, "classes_", None))
    if len(classes) == 1:
        return [names_for("class_names", given, classes[0], "one of classes_")]
    if given is not None and (not isinstance(given, list | tuple) or len(given) != len(classes)):
        raise ValueError(f"class_names is {given!r:.60}; wants a list of the names of classes for each of the {len(classes)} targets")
    return [names_for(f"class_names[{k}]", given and given[k], labels, f"one of classes_[{k}]") for k, labels in enumerate(classes)]


def names_for(argument: str, given: ArrayLike | None, default: Sequence[Any] | NDArray[Any], what: str) -> list[str]:
    """Return the names that an argument gives, one for each of ``what``; the default where it is None."""
    if given is None:
        return [str(name) for name in default]
    names = np.asarray(given, dtype=object)
    if names.shape != (len(default),):
        raise ValueError(f"{argument} has shape {names.shape}; wants ({len(default)},), a name for each {what}")
    return [str(name) for name in names]
