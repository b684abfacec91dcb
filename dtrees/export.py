"""Export trees as text, and as graphs in the DOT language of Graphviz."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtrees.files import atomic_file
from dtrees.node_texts import Branches, Drawn, NodeOptions, NodeTexts, check_integers, class_names_for, node_colours, single_tree, walk
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
    """Return the rules of a tree as text, with a line for each branch and each leaf.

    For numeric columns the text is that of :func:`sklearn.tree.export_text`, except that names of columns default to those at fit. It also
    shows which categories go left.

    Parameters
    ----------
    decision_tree : estimator of dtrees
        A fitted tree or ensemble.
    tree_index : int, default=0
        The tree of an ensemble, from 0. Trees of boosting are numbered round by round.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    class_names : array-like of str of shape (n_classes,), or list of such arrays for multi-output models, or None, default=None
        Names of classes in the order of ``classes_``. None uses the classes themselves.
    max_depth : int, default=10
        Branches below this depth are left out, and a line shows their depth.
    spacing : int, default=3
        Number of spaces by which a level is indented.
    decimals : int, default=2
        Digits after the decimal point.
    show_weights : bool, default=False
        Show the weight of each class in the leaves of classifiers.
    show_missing : bool, default=False
        Show for each split which way missing values go. A split of missing values from all others always shows it.
    max_categories : int, default=10
        Maximum number of categories named per subset.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If the model is not an estimator of dtrees, or a number is not an integer.
    ValueError
        If the number of names differs from that of columns or classes, a number is too small, or there is no tree ``tree_index``.

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
    check_integers(max_depth=(max_depth, 0), spacing=(spacing, 1), decimals=(decimals, 0), max_categories=(max_categories, 1))
    tree = model._tree
    branches = Branches(model, feature_names, partial(_number, decimals), show_missing, max_categories)
    classes = class_names_for(class_names, model)
    lines = []
    for node, parent, stop in walk(tree, max_depth):
        depth = int(tree.node_depth[node])
        above, indent = (("|" + " " * spacing) * level + "|" + "-" * spacing for level in (depth - 1, depth))
        if parent >= 0:
            lines.append(f"{above} {branches.of(parent)[node > parent + 1]}")
        if tree.feature[node] < 0:
            lines.append(f"{indent} {_leaf(tree, node, classes, decimals, show_weights)}")
        elif depth > max_depth:
            lines.append(f"{indent} truncated branch of depth {tree.node_depth[node:stop].max() - depth + 1}")
    return "".join(f"{line}\n" for line in lines)


def _leaf(tree: Tree, node: int, classes: list[list[str]], decimals: int, show_weights: bool) -> str:
    value = tree.value[node]
    if not classes:
        return f"value: {_numbers(value, decimals)}"
    shares = np.split(value, np.cumsum([len(names) for names in classes])[:-1])
    labels = []
    for names, mine in zip(classes, shares, strict=True):
        weights = f"weights: {_numbers(mine * tree.weighted_n_node_samples[node], decimals)} " if show_weights else ""
        labels.append(f"{weights}class: {names[int(np.argmax(mine))]}")
    return ", ".join(labels)


def _number(decimals: int, value: float) -> str:
    """Return a number with the given decimals; a very large one has as many significant digits instead."""
    return f"{value:.{decimals}f}" if abs(value) < 1e15 else f"{value:.{max(decimals, 1)}g}"


def _numbers(values: NDArray[np.float64], decimals: int) -> str:
    return "[" + ", ".join(_number(decimals, value) for value in values) + "]"


def export_graphviz(
    decision_tree: Any,
    out_file: Any = None,
    *,
    tree_index: int = 0,
    max_depth: int | None = None,
    feature_names: ArrayLike | None = None,
    class_names: ArrayLike | None = None,
    label: str = "all",
    filled: bool = True,
    impurity: bool = True,
    node_ids: bool = False,
    proportion: bool = False,
    rotate: bool = False,
    rounded: bool = True,
    precision: int = 3,
    fontname: str = "helvetica",
    show_missing: bool = True,
    max_categories: int = 5,
) -> str:
    r"""Return a tree as text in the DOT language. Graphviz draws it: ``dot -Tsvg tree.dot -o tree.svg``.

    The function does not need Graphviz. Nodes show the same as those of :func:`sklearn.tree.export_graphviz`, and which categories go left.
    Edges show which rows take them.

    Parameters
    ----------
    decision_tree : estimator of dtrees
        A fitted tree or ensemble.
    out_file : str, path-like, text file or None, default=None
        File to which the text is also written.
    tree_index : int, default=0
        The tree of an ensemble, from 0. Trees of boosting are numbered round by round.
    max_depth : int or None, default=None
        Nodes below this depth are left out. None draws all nodes.
    feature_names : array-like of str of shape (n_features,) or None, default=None
        Names of columns. None uses the names at fit, or ``feature_0``, ``feature_1``, ... for an array.
    class_names : array-like of str of shape (n_classes,), or list of such arrays for multi-output models, or None, default=None
        Names of classes in the order of ``classes_``. None uses the classes themselves.
    label : {"all", "root", "none"}, default="all"
        Nodes in which numbers are labelled, such as ``samples = 3``.
    filled : bool, default=True
        Whether the colour of a node shows its prediction.
    impurity : bool, default=True
        Show the impurity of each node; boosted trees have none.
    node_ids : bool, default=False
        Show the number of each node.
    proportion : bool, default=False
        Show shares instead of numbers of rows and weights of classes.
    rotate : bool, default=False
        Draw from left to right.
    rounded : bool, default=True
        Round the corners.
    precision : int, default=3
        Digits after the decimal point.
    fontname : str, default="helvetica"
    show_missing : bool, default=True
        Show on edges which way missing values go.
    max_categories : int, default=5
        Maximum number of categories named per subset.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If the model is not an estimator of dtrees, or a number is not an integer.
    ValueError
        If the number of names differs from that of columns or classes, a number is too small, or there is no tree ``tree_index``.

    Examples
    --------
    >>> from dtrees import DecisionTreeClassifier, export_graphviz
    >>> tree = DecisionTreeClassifier().fit([[1.0], [2.0], [3.0]], ["no", "no", "yes"])
    >>> print(export_graphviz(tree, filled=False, rounded=False, show_missing=False))
    digraph Tree {
    node [shape=box, fontname="helvetica"];
    edge [fontname="helvetica"];
    0 [label="feature_0 <= 2.5\ngini = 0.444\nsamples = 3\nvalue = [2, 1]\nclass = no"];
    1 [label="gini = 0\nsamples = 2\nvalue = [2, 0]\nclass = no"];
    0 -> 1 [label="yes"];
    2 [label="gini = 0\nsamples = 1\nvalue = [0, 1]\nclass = yes"];
    0 -> 2 [label="no"];
    }
    <BLANKLINE>
    """
    options = NodeOptions(
        max_depth, feature_names, class_names, label, impurity, node_ids, proportion, precision, show_missing, max_categories
    )
    texts = NodeTexts(decision_tree, tree_index, options)
    colours = node_colours(texts.tree, texts.classify) if filled else None
    style = ", ".join([*(["filled"] if filled else []), *(["rounded"] if rounded else [])])
    font = f'fontname="{_escaped(fontname)}"'
    lines = ["digraph Tree {", f"node [shape=box{f', style={chr(34)}{style}{chr(34)}' if style else ''}, {font}];", f"edge [{font}];"]
    if rotate:
        lines.append("rankdir=LR;")
    for drawn in texts.drawn():
        lines += _statements(drawn, None if colours is None else colours[drawn.number])
    lines.append("}")
    text = "".join(f"{line}\n" for line in lines)
    _write(text, out_file)
    return text


def _statements(drawn: Drawn, colour: str | None) -> list[str]:
    label = "\\n".join(map(_escaped, drawn.lines))
    fill = "" if colour is None else f', fillcolor="{"#e0e0e0" if drawn.left_out else colour}"'
    node = f'{drawn.number} [label="{label}"{fill}];'
    return [node] if drawn.parent < 0 else [node, f'{drawn.parent} -> {drawn.number} [label="{drawn.edge}"];']


def _escaped(text: str) -> str:
    r"""Return a text in quotes for Graphviz, which interprets entities, backslashes and quotes.

    >>> print(_escaped('a "b" & c\\d'))
    a \"b\" &amp; c\\d
    """
    return " ".join(text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"').split())


def _write(text: str, out_file: Any) -> None:
    if out_file is None:
        return
    if hasattr(out_file, "write"):
        out_file.write(text)
        return
    if not isinstance(out_file, str | os.PathLike):
        raise TypeError(f"out_file is of type {type(out_file).__name__}; wants a path, a file open for text, or None")
    with atomic_file(out_file) as file:
        file.write(text.encode())
