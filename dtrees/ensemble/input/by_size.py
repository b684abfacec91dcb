"""Parameters of boosting that are "auto": numbers that follow from how many rows there are to learn from, and of how many classes.

Where rows are few, the effects of splits are shrunk by what splits gain by chance, so that the same numbers serve noisy tables, which would
be learnt by heart, and clean ones. Of two classes in some ten thousands of rows, trees of few leaves, which grow where they gain most, are
less often wrong than trees of a depth, and do with shorter steps; more rows bear the more leaves that trees of a depth have. Of more than
two classes, each has trees of its own: most rows are soon separated from it, their hessians are small, and the same penalty would shorten
steps more. The guide tells what was measured. Rows of weight 0 do not count; threads, workers and partitions make no difference.
"""

from __future__ import annotations

import math
from typing import Any

from dtrees.ensemble.compat import parameter_names

AUTO = "auto"
#: The parameters that may be "auto".
NAMES = ("learning_rate", "min_samples_leaf", "reg_lambda", "split_shrinkage", "max_features", "max_leaf_nodes", "max_depth")
#: From how many rows on effects of splits are not shrunk, and leaves may be of any size.
_MANY_ROWS = 10_000
#: From how many rows on trees have a depth, rather than few leaves, also where there are two classes.
_VERY_MANY_ROWS = 100_000
_LEAVES, _DEPTH = 31, 6


def max_leaf_nodes(n_rows: int, n_classes: int = 0) -> int | None:
    """Return how many leaves trees have at most, whose depth is not limited then; None if it is the depth that is.

    Examples
    --------
    >>> [max_leaf_nodes(n, n_classes=2) for n in (9_999, 10_000, 100_000)]
    [None, 31, None]
    >>> max_leaf_nodes(10_000), max_leaf_nodes(10_000, n_classes=3)
    (None, None)
    """
    return _LEAVES if n_classes == 2 and _MANY_ROWS <= n_rows < _VERY_MANY_ROWS else None


def learning_rate(n_rows: int, n_classes: int = 0, leaves: int | None = None) -> float:
    """Return the learning rate for a table of so many rows, which is meant for 200 rounds.

    ``leaves`` is how many trees have if that is as :func:`max_leaf_nodes` says.

    Examples
    --------
    >>> [learning_rate(n) for n in (300, 10_000)], [learning_rate(n, n_classes=2) for n in (300, 10_000)]
    ([0.1, 0.15], [0.1, 0.1])
    >>> learning_rate(20_000, n_classes=2, leaves=31)
    0.07
    """
    if leaves is not None:
        return 0.07
    return 0.1 if n_classes or n_rows < _MANY_ROWS else 0.15


def min_samples_leaf(n_rows: int) -> int:
    """Return the fewest rows of a leaf: a tenth of all rows, but at most 5; 1 where there are many rows.

    Examples
    --------
    >>> [min_samples_leaf(n) for n in (6, 40, 100, 1000, 10_000)]
    [1, 4, 5, 5, 1]
    """
    return 1 if n_rows >= _MANY_ROWS else min(max(n_rows // 10, 1), 5)


def reg_lambda(n_classes: int = 0) -> float:
    """Return the L2 penalty for so many classes, 0 for regression.

    Examples
    --------
    >>> [reg_lambda(n) for n in (0, 2, 3)]
    [5.0, 5.0, 1.0]
    """
    return 1.0 if n_classes > 2 else 5.0


def split_shrinkage(n_rows: int, n_classes: int = 0) -> float:
    """Return how many times what a split gains by chance is taken from its effect: more where chance has more thresholds to choose from.

    Examples
    --------
    >>> [split_shrinkage(n) for n in (6, 100, 1000, 10_000)], [split_shrinkage(n, n_classes=2) for n in (6, 100, 1000, 10_000)]
    ([0.778, 2.0, 3.0, 0.0], [0.0, 1.0, 2.0, 0.0])
    """
    if n_rows >= _MANY_ROWS:
        return 0.0
    digits = math.log10(max(1, n_rows)) - (1.0 if n_classes else 0.0)
    return max(0.0, round(digits, 3))  # the C library's logarithm differs from one processor to another in its last bits


def max_features(n_rows: int, n_classes: int = 0) -> float | None:
    """Return which columns a node looks at: half of them in classification of few rows, otherwise all.

    Examples
    --------
    >>> max_features(300, n_classes=2), max_features(300), max_features(10_000, n_classes=2)
    (0.5, None, None)
    """
    return 0.5 if n_classes and n_rows < _MANY_ROWS else None


def set_by_size(estimator: Any, n_rows: int, n_classes: int, *, keep: bool) -> None:
    """Set what the parameters that may be "auto" come to, under their names with an underscore.

    Parameters
    ----------
    estimator : Boosting
    n_rows : int
        Rows of a weight above 0.
    n_classes : int
        Classes that have such rows; 0 for regression.
    keep : bool
        Whether there are trees of an earlier fit: "auto" is then what they were grown with.
    """
    leaves = None
    if is_auto(estimator.max_depth) and is_auto(estimator.max_leaf_nodes):
        leaves = max_leaf_nodes(n_rows, n_classes)
    rate, columns = learning_rate(n_rows, n_classes, leaves), max_features(n_rows, n_classes)
    shrinkage = split_shrinkage(n_rows, n_classes) if is_auto(estimator.min_samples_leaf) else 0.0
    chosen = rate, min_samples_leaf(n_rows), reg_lambda(n_classes), shrinkage, columns, leaves, _DEPTH
    for name, value in zip(NAMES, chosen, strict=True):
        given = getattr(estimator, name)
        if not (keep and is_auto(given) and hasattr(estimator, f"{name}_")):
            setattr(estimator, f"{name}_", value if is_auto(given) else given)
    if is_auto(estimator.max_depth) and (not keep or estimator.max_depth_ is None):
        estimator.max_depth_ = None if estimator.max_leaf_nodes_ is not None else _DEPTH


def draws_by_default_alone(estimator: Any) -> bool:
    """Return whether all that is drawn in a fit are the columns of nodes, and these because nobody said otherwise.

    Such draws are the same in every fit: who asks for nothing at random gets the same model every time.
    """
    asked = any(getattr(estimator, name, 1.0) < 1.0 for name in ("subsample", "colsample_bytree", "colsample_bylevel"))
    asked = asked or getattr(estimator, "drop_rate", 0.0) > 0.0
    by_default = is_auto(getattr(estimator, "max_features", None)) and estimator.random_state is None
    return by_default and not asked and getattr(estimator, "n_iter_no_change", None) is None


def resolved(estimator: Any) -> dict[str, Any]:
    """Return the parameters of a fitted estimator, where they are "auto" as what they came to."""
    return {name: came_to(estimator, name) for name in parameter_names(type(estimator))}


def came_to(estimator: Any, name: str) -> Any:
    """Return a parameter of an estimator, or, where that is "auto", what it came to."""
    value = getattr(estimator, name)
    return getattr(estimator, f"{name}_") if name in NAMES and is_auto(value) else value


def is_auto(value: Any) -> bool:
    """Return whether a parameter is to follow from the number of rows; arrays and other objects are no text."""
    return isinstance(value, str) and value == AUTO
