"""Texts of the nodes and edges of a tree, for exports and drawings, and colours of nodes.

Lines and their order are those of scikit-learn's drawings: the test of a split, impurity, samples, value and class. Edges are labelled
"yes" or "no", and show which branch rows with a missing value take, as in XGBoost.

Colours show the prediction of a node, and are stronger for purer nodes. Classes have hues for people with colour blindness (Okabe and Ito,
2008). Numbers go from white to blue or, if there are positive and negative ones, from red through white to blue. All colours are light
enough for black text.
"""

from __future__ import annotations

import colorsys
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import is_classifier

from dtrees.ensemble.bagging import Bagging
from dtrees.ensemble.estimators.base import TreeEstimator
from dtrees.ensemble.estimators.single_tree import SingleTree
from dtrees.ensemble.input.column import CATEGORICAL
from dtrees.ensemble.prediction import by_target
from dtrees.tree.tree import Tree

LABELS = ("all", "root", "none")
#: Longer tests are broken into lines.
_WIDTH = 34
#: With more classes than this, only the largest values are shown.
_MAX_CLASSES, _LARGEST = 6, 3


@dataclass(frozen=True)
class NodeOptions:
    """Options of node texts; see :func:`dtrees.plot_tree`."""

    max_depth: int | None = None
    feature_names: ArrayLike | None = None
    class_names: ArrayLike | None = None
    label: str = "all"
    impurity: bool = True
    node_ids: bool = False
    proportion: bool = False
    precision: int = 3
    show_missing: bool = True
    max_categories: int = 5

    def check(self) -> None:
        """Raise for options that cannot be drawn."""
        if self.label not in LABELS:
            raise ValueError(f"label is {self.label!r}; wants {', '.join(map(repr, LABELS))}")
        check_optional(max_depth=(self.max_depth, 0))
        check_integers(precision=(self.precision, 0), max_categories=(self.max_categories, 1))


@dataclass(frozen=True)
class Drawn:
    """A node in a drawing.

    Attributes
    ----------
    number : int
        Number of the node in the tree.
    parent : int
        Number of its parent in the tree, -1 for the root.
    edge : str
        Label of the edge from its parent.
    lines : tuple of str
    bold : range
        Lines printed in bold: the test, or the prediction.
    left_out : bool
        Whether it stands for all nodes below ``max_depth``.
    """

    number: int
    parent: int
    edge: str
    lines: tuple[str, ...]
    bold: range
    left_out: bool


class NodeTexts:
    """The texts of the nodes of a tree.

    Parameters
    ----------
    decision_tree : estimator of dtrees
        A fitted tree or ensemble.
    tree_index : int
        Which tree of an ensemble.
    options : NodeOptions
    """

    def __init__(self, decision_tree: Any, tree_index: int, options: NodeOptions) -> None:
        options.check()
        self.model = single_tree(decision_tree, tree_index)
        self.tree = self.model._tree
        #: Whether nodes show shares of the classes of one target.
        self.classify = is_classifier(self.model) and self.model.n_outputs_ == 1
        self._options = options
        self._values = self.model.tree_.value
        threshold, self._number = (partial(text, precision=options.precision) for text in (exact_text, short_text))
        self._branches = Branches(self.model, options.feature_names, threshold, options.show_missing, options.max_categories)
        self._classes = class_names_for(options.class_names, self.model)

    def drawn(self) -> Iterator[Drawn]:
        """Yield the nodes that are drawn, in preorder."""
        tree, deepest = self.tree, self._options.max_depth
        for node, parent, stop in walk(tree, deepest):
            edge = "" if parent < 0 else self._edges(parent)[node > parent + 1]
            if deepest is not None and tree.node_depth[node] > deepest:
                yield Drawn(node, parent, edge, self._left_out(node, stop), range(0), True)
            else:
                lines, bold = self._lines(node, bool(tree.feature[node] < 0))
                yield Drawn(node, parent, edge, tuple(lines), bold, False)

    def _left_out(self, node: int, stop: int) -> tuple[str, ...]:
        n_leaves = int(np.count_nonzero(self.tree.feature[node:stop] < 0))
        return ("(...)", f"{n_leaves} {'leaf' if n_leaves == 1 else 'leaves'}")

    def _edges(self, node: int) -> tuple[str, str]:
        if not self._options.show_missing or self._branches.is_about_missing(node):
            return "yes", "no"
        return ("yes, missing", "no") if self.tree.missing_go_to_left[node] else ("yes", "no, missing")

    def _lines(self, node: int, is_leaf: bool) -> tuple[list[str], range]:
        options, tree = self._options, self.tree
        labelled = options.label == "all" or (options.label == "root" and node == 0)

        def say(name: str, text: str) -> str:
            return f"{name} = {text}" if labelled else text

        lines = [say("node", str(node)) if labelled else f"#{node}"] if options.node_ids else []
        bold = range(0)
        if not is_leaf:
            test = textwrap.wrap(self._branches.tests(node)[0], _WIDTH, break_on_hyphens=False)
            bold = range(len(lines), len(lines) + len(test))
            lines += test
        if options.impurity and not self.model._boosted:
            lines.append(say(str(self.model.criterion), self._number(float(tree.impurity[node]))))
        share = tree.n_node_samples[node] / tree.n_node_samples[0]
        lines.append(say("samples", f"{100 * share:.1f}%" if options.proportion else str(tree.n_node_samples[node])))
        lines.append(say("value", self._value(node)))
        for names, shares in zip(self._classes, self._values[node], strict=bool(self._classes)):
            lines.append(say("class", f"{names[int(np.argmax(shares))]:.{_WIDTH}}"))
        return lines, range(len(lines) - 1, len(lines)) if is_leaf else bold

    def _value(self, node: int) -> str:
        values: NDArray[np.float64] = self._values[node]
        if not self._classes:
            numbers = [self._number(value) for value in values[:, 0].tolist()]
            return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"
        amounts = values if self._options.proportion else values * self.tree.weighted_n_node_samples[node]
        return ", ".join(self._amounts(names, of_target[: len(names)]) for names, of_target in zip(self._classes, amounts, strict=True))

    def _amounts(self, names: list[str], amounts: NDArray[np.float64]) -> str:
        if len(amounts) <= _MAX_CLASSES:
            return f"[{', '.join(map(self._number, amounts.tolist()))}]"
        largest = np.argsort(-amounts, kind="stable")[:_LARGEST].tolist()
        return ", ".join([*(f"{names[k]:.12}: {self._number(amounts[k])}" for k in largest), f"{len(amounts) - _LARGEST} more"])


def walk(tree: Tree, max_depth: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield the nodes of a tree, in preorder, down to the first level below a depth, each with its parent and the end of its subtree.

    The parent of the root is -1. A left child is the next node after its parent.
    """
    waiting = [(0, -1, tree.node_count)]
    while waiting:
        node, parent, stop = waiting.pop()
        yield node, parent, stop
        if tree.feature[node] >= 0 and (max_depth is None or tree.node_depth[node] <= max_depth):
            right = int(tree.children_right[node])
            waiting += [(right, node, stop), (node + 1, node, right)]


class Branches:
    """Texts of the branches of a tree's nodes.

    Parameters
    ----------
    model : SingleTree
        Fitted.
    feature_names : array-like of str of shape (n_features,) or None
        None for the names at fit, or ``feature_0``, ``feature_1``, ... if there were none.
    number : callable
        Formats a threshold.
    show_missing : bool
        Show which way missing values go.
    max_categories : int
        Maximum number of categories named per set.
    """

    def __init__(
        self, model: SingleTree, feature_names: ArrayLike | None, number: Callable[[float], str], show_missing: bool, max_categories: int
    ) -> None:
        self._tree, self._columns = model._tree, model._schema.columns
        self._names = column_names(model, feature_names)
        self._number, self._show_missing, self._max_categories = number, show_missing, max_categories

    def of(self, node: int) -> tuple[str, str]:
        """Return the conditions of rows going left and right at an inner node."""
        left, right = self.tests(node)
        if not self._show_missing or self.is_about_missing(node):
            return left, right
        return (f"{left} or missing", right) if self._tree.missing_go_to_left[node] else (left, f"{right} or missing")

    def tests(self, node: int) -> tuple[str, str]:
        """Return the conditions of rows going left and right at an inner node, without the direction of missing values."""
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
        """Return whether an inner node separates missing values from all others."""
        return math.isinf(float(self._tree.threshold[node]))

    def _categories(self, node: int, threshold: float) -> NDArray[np.int64]:
        """Return the numbers of the categories going left: those of the node's set, or those up to a threshold in their order."""
        return self._tree.categories.of_node(node) if math.isnan(threshold) else np.arange(math.floor(threshold) + 1)

    def _listed(self, column: int, numbers: NDArray[np.int64]) -> str:
        categories = self._columns[column].categories
        some = [str(categories[k]) for k in numbers[: self._max_categories].tolist()]
        more = len(numbers) - len(some)
        return ", ".join([*some, *([f"{more} more"] if more else [])])


def no_estimator(argument: str, model: Any) -> TypeError:
    """Return the error for an argument that is not an estimator with trees."""
    hint = " that has trees: of a bag, one of its boosters (estimators_)" if isinstance(model, Bagging) else ""
    return TypeError(f"{argument} is of type {type(model).__name__}; wants an estimator of dtrees{hint}")


def single_tree(model: Any, tree_index: Any = 0) -> SingleTree:
    """Return a fitted single tree itself, or one of the trees of an ensemble.

    Parameters
    ----------
    model : estimator of dtrees
    tree_index : int, default=0
        The tree of an ensemble, from 0. Trees of boosting with several trees per round are numbered round by round.

    Raises
    ------
    TypeError
        If ``model`` is not an estimator of dtrees, or ``tree_index`` is not an integer.
    ValueError
        If there is no tree of this index.
    sklearn.exceptions.NotFittedError
        If it is not fitted.
    """
    if not isinstance(model, TreeEstimator):
        raise no_estimator("decision_tree", model)
    model._check_fitted()
    check_integers(tree_index=(tree_index, 0))
    trees = [model] if isinstance(model, SingleTree) else np.ravel(model.estimators_)
    if tree_index >= len(trees):
        raise ValueError(f"tree_index is {tree_index}; wants 0 to {len(trees) - 1}, as there are {len(trees)} trees")
    tree: SingleTree = trees[tree_index]
    return tree


def check_integers(**numbers: tuple[Any, int]) -> None:
    """Raise TypeError for an argument that is not an integer, and ValueError for one below the given minimum."""
    for name, (number, least) in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise TypeError(f"{name} is {number!r}; wants an integer of at least {least}")
        if number < least:
            raise ValueError(f"{name} is {number}; wants at least {least}")


def check_optional(**numbers: tuple[Any, int]) -> None:
    """Check integers that may be None; see :func:`check_integers`."""
    check_integers(**{name: given for name, given in numbers.items() if given[0] is not None})


def column_names(model: Any, given: ArrayLike | None = None) -> list[str]:
    """Return the names of columns: the given ones, those at fit, or ``feature_0``, ``feature_1``, ... if there were none."""
    known = getattr(model, "feature_names_in_", [f"feature_{j}" for j in range(model.n_features_in_)])
    return names_for("feature_names", given, known, "column of the fit")


def class_names_for(given: Any, model: SingleTree) -> list[list[str]]:
    """Return the names of the classes of each target, given or from ``classes_``; none for regression."""
    classes = by_target(getattr(model, "classes_", None))
    if len(classes) == 1:
        return [names_for("class_names", given, classes[0], "one of classes_")]
    if given is not None and (not isinstance(given, list | tuple) or len(given) != len(classes)):
        raise ValueError(f"class_names is {given!r:.60}; wants a list of the names of classes for each of the {len(classes)} targets")
    return [names_for(f"class_names[{k}]", given and given[k], labels, f"one of classes_[{k}]") for k, labels in enumerate(classes)]


def names_for(argument: str, given: ArrayLike | None, default: Sequence[Any] | NDArray[Any], what: str) -> list[str]:
    """Return the names given by an argument, one for each of ``what``, or the default for None."""
    if given is None:
        return [str(name) for name in default]
    names = np.asarray(given, dtype=object)
    if names.shape != (len(default),):
        raise ValueError(f"{argument} has shape {names.shape}; wants ({len(default)},), a name for each {what}")
    return [str(name) for name in names]


def short_text(value: float, precision: int) -> str:
    """Return a number with at most ``precision`` decimals, fewer for larger numbers; integers below a billion in full.

    >>> short_text(0.4567, 3), short_text(1234.5678, 3), short_text(6607362930.7, 3), short_text(32561.0, 3)
    ('0.457', '1234.6', '6.607e+09', '32561')
    """
    size = abs(value)
    if size >= 1e9 or (size >= 1e6 and value != round(value)):
        return f"{value:.{precision + 1}g}"
    return exact_text(value, precision if size < 1000 else max(precision - 2, 0))


def exact_text(value: float, precision: int) -> str:
    """Return a number with at most ``precision`` decimals; a number that would be rounded to 0 gets significant digits.

    >>> exact_text(12.5, 3), exact_text(1234567.8914, 3), exact_text(0.000123456, 3), exact_text(-0.0, 3), exact_text(3e20, 3)
    ('12.5', '1234567.891', '0.000123', '0', '3e+20')
    """
    if abs(value) >= 1e15:
        return f"{value:.{max(precision, 1)}g}"
    text = f"{value:.{precision}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    if text not in ("0", "-0"):
        return text
    return f"{value:.{max(precision, 1)}g}" if value else "0"


_OKABE_ITO = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))
_BLUE, _RED, _WHITE = np.array([60.0, 130, 200]), np.array([220.0, 90, 60]), np.full(3, 255.0)
#: Largest saturation of a colour: black text must be readable on it.
_STRONGEST = 0.75


def class_colour(number: int, n_classes: int) -> tuple[int, int, int]:
    """Return the colour of a class as red, green and blue of 0 to 255.

    >>> class_colour(0, 2), class_colour(1, 2)
    ((230, 159, 0), (86, 180, 233))
    """
    if n_classes <= len(_OKABE_ITO):
        return _OKABE_ITO[number]
    red, green, blue = (round(255 * part) for part in colorsys.hsv_to_rgb(number / n_classes, 0.75, 0.9))
    return red, green, blue


def node_colours(tree: Tree, classify: bool) -> list[str]:
    """Return the colour of each node of a tree, as ``#rrggbb``.

    Parameters
    ----------
    tree : Tree
    classify : bool
        Whether values are shares of classes.
    """
    values = tree.value.reshape(tree.node_count, -1)
    if classify:
        strength, base = _surety(values)
    elif values.shape[1] > 1:  # several targets: how similar rows are
        strength, base = _scaled(-tree.impurity), np.tile(_BLUE, (tree.node_count, 1))
    else:
        number = values[:, 0]
        if number.min() < 0 < number.max():
            strength = np.abs(number) / np.abs(number).max()
            base = np.where(number[:, np.newaxis] < 0, _RED, _BLUE)
        else:
            strength, base = _scaled(number), np.tile(_BLUE, (tree.node_count, 1))
    mixed = _WHITE + (strength * _STRONGEST)[:, np.newaxis] * (base - _WHITE)
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in np.rint(mixed).astype(int).tolist()]


def _surety(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lead of the largest class over the second one, as a share of its possible maximum, and the class."""
    n_classes = shares.shape[1]
    colours = np.array([class_colour(k, n_classes) for k in range(n_classes)], dtype=np.float64)
    if n_classes == 1:
        return np.ones(len(shares)), np.tile(colours[0], (len(shares), 1))
    second, first = np.sort(shares, axis=1)[:, -2:].T
    with np.errstate(invalid="ignore"):
        ahead = np.where(second < 1, (first - second) / (1 - second), 0.0)
    return np.clip(ahead, 0, 1), colours[shares.argmax(axis=1)]


def _scaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros(len(values))
