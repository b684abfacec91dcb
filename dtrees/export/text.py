"""A tree as lines of text."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.export.branches import Branches, check_integer, class_names_for, single_tree
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
