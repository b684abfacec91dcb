"""Values of boosting parameters that are "auto", as functions of the number of training rows and of classes.

With few rows, the effects of splits are shrunk by the gain that splits have by chance, so that the same values are suitable for noisy
tables, which would otherwise be overfitted, and for clean ones. For two classes with some ten thousands of rows, trees with few leaves,
grown where the gain is largest, are more accurate than trees of a fixed depth, and need shorter steps; with more rows, the larger number of
leaves of trees of a fixed depth pays. For more than two classes, each class has trees of its own: most rows are soon separated from it,
their hessians are small, and the same penalty would shorten steps more. The guide has the measurements. Rows of weight 0 do not count;
threads, workers and partitions have no effect.
"""

from __future__ import annotations

import math
from typing import Any

from dtrees.ensemble.compat import parameter_names

AUTO = "auto"
#: The parameters that may be "auto".
NAMES = ("learning_rate", "min_samples_leaf", "reg_lambda", "split_shrinkage", "max_features", "max_leaf_nodes", "max_depth")
#: Number of rows from which effects of splits are not shrunk, and leaves may have any size.
_MANY_ROWS = 10_000
#: Number of rows from which trees have a depth instead of few leaves, also for two classes.
_VERY_MANY_ROWS = 100_000
_LEAVES, _DEPTH = 31, 6


def max_leaf_nodes(n_rows: int, n_classes: int = 0) -> int | None:
    """Return the largest number of leaves of a tree, whose depth is then not limited; None if the depth is limited instead.

    Examples
    --------
    >>> [max_leaf_nodes(n, n_classes=2) for n in (9_999, 10_000, 100_000)]
    [None, 31, None]
    >>> max_leaf_nodes(10_000), max_leaf_nodes(10_000, n_classes=3)
    (None, None)
    """
    return _LEAVES if n_classes == 2 and _MANY_ROWS <= n_rows < _VERY_MANY_ROWS else None


def learning_rate(n_rows: int, n_classes: int = 0, leaves: int | None = None) -> float:
    """Return the learning rate for a table of ``n_rows`` rows, meant for 200 rounds.

    ``leaves`` is the limit of leaves if it is that of :func:`max_leaf_nodes`.

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
    """Return the smallest number of rows of a leaf: a tenth of all rows, but at most 5; 1 for many rows.

    Examples
    --------
    >>> [min_samples_leaf(n) for n in (6, 40, 100, 1000, 10_000)]
    [1, 4, 5, 5, 1]
    """
    return 1 if n_rows >= _MANY_ROWS else min(max(n_rows // 10, 1), 5)


def reg_lambda(n_classes: int = 0) -> float:
    """Return the L2 penalty, given the number of classes (0 for regression).

    Examples
    --------
    >>> [reg_lambda(n) for n in (0, 2, 3)]
    [5.0, 5.0, 1.0]
    """
    return 1.0 if n_classes > 2 else 5.0


def split_shrinkage(n_rows: int, n_classes: int = 0) -> float:
    """Return the multiple of the gain by chance by which split effects are reduced; it grows with the number of possible thresholds.

    Examples
    --------
    >>> [split_shrinkage(n) for n in (6, 100, 1000, 10_000)], [split_shrinkage(n, n_classes=2) for n in (6, 100, 1000, 10_000)]
    ([0.778, 2.0, 3.0, 0.0], [0.0, 1.0, 2.0, 0.0])
    """
    if n_rows >= _MANY_ROWS:
        return 0.0
    digits = math.log10(max(1, n_rows)) - (1.0 if n_classes else 0.0)
    return max(0.0, round(digits, 3))  # rounded, as the last bits of the C library's logarithm depend on the processor


def max_features(n_rows: int, n_classes: int = 0) -> float | None:
    """Return the share of columns that a node considers: half of them in classification with few rows, otherwise None for all.

    Examples
    --------
    >>> max_features(300, n_classes=2), max_features(300), max_features(10_000, n_classes=2)
    (0.5, None, None)
    """
    return 0.5 if n_classes and n_rows < _MANY_ROWS else None


def set_by_size(estimator: Any, n_rows: int, n_classes: int, *, keep: bool) -> None:
    """Set the resolved values of the parameters that may be "auto", under their names with an underscore.

    Parameters
    ----------
    estimator : Boosting
    n_rows : int
        Number of rows with a positive weight.
    n_classes : int
        Number of classes with such rows; 0 for regression.
    keep : bool
        Whether there are trees of an earlier fit, whose values "auto" then keeps.
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
    """Return whether columns of nodes are the only random draws of a fit, and only because of an "auto" value.

    Such draws are the same in every fit, so that a fit without requested randomness is reproducible.
    """
    asked = any(getattr(estimator, name, 1.0) < 1.0 for name in ("subsample", "colsample_bytree", "colsample_bylevel"))
    asked = asked or getattr(estimator, "drop_rate", 0.0) > 0.0
    by_default = is_auto(getattr(estimator, "max_features", None)) and estimator.random_state is None
    return by_default and not asked and getattr(estimator, "n_iter_no_change", None) is None


def resolved(estimator: Any) -> dict[str, Any]:
    """Return the parameters of a fitted estimator, with "auto" replaced by resolved values."""
    return {name: resolved_value(estimator, name) for name in parameter_names(type(estimator))}


def resolved_value(estimator: Any, name: str) -> Any:
    """Return a parameter of an estimator or, if it is "auto", its resolved value."""
    value = getattr(estimator, name)
    return getattr(estimator, f"{name}_") if name in NAMES and is_auto(value) else value


def is_auto(value: Any) -> bool:
    """Return whether a parameter is "auto"; arrays and other objects are not."""
    return isinstance(value, str) and value == AUTO
