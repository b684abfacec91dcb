"""Parameters that select columns by position, mask or name: categorical columns, and constraints.

Constraints are converted to the engine's rules (:class:`~dtrees.engine.plan.plans.Rules`). Their forms, and many of the messages, are those
of scikit-learn's trees and ``HistGradientBoosting``.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from dtrees.ensemble.compat import check_monotonic_cst
from dtrees.ensemble.input.column import CATEGORICAL

#: Replaces the list of columns, or one of them: columns with text or a categorical dtype.
FROM_DTYPE = "from_dtype"


class Chosen(NamedTuple):
    """The categorical columns: those that are named, ascending, and, with ``by_dtype``, those with a categorical dtype."""

    named: tuple[int, ...]
    by_dtype: bool


def columns_of_categories(given: Any, n_columns: int, names: NDArray[Any] | None) -> Chosen:
    """Return the columns selected by ``categorical_features``.

    Parameters
    ----------
    given : "from_dtype", None, or array-like
        A mask, positions, or names, which may include "from_dtype".
    n_columns : int
    names : ndarray of str or None
        Column names, if there are any.

    Raises
    ------
    ValueError
        If a column does not exist, or is named twice.

    Examples
    --------
    >>> columns_of_categories(["from_dtype", "job"], 2, np.array(["age", "job"])), columns_of_categories([True, False], 2, None)
    (Chosen(named=(1,), by_dtype=True), Chosen(named=(0,), by_dtype=False))
    """
    if isinstance(given, str):
        return Chosen((), True)
    if given is None:
        return Chosen((), False)
    array = np.asarray(given)
    if array.ndim != 1:
        raise ValueError(f"categorical_features has shape {array.shape}; wants a list of columns, or a mask of shape ({n_columns},)")
    if array.size == 0:
        return Chosen((), False)
    if FROM_DTYPE in array.tolist():
        rest = [item for item in given if not (isinstance(item, str) and item == FROM_DTYPE)]
        return Chosen(columns_of_categories(rest, n_columns, names).named, True)
    if array.dtype.kind == "b":
        if array.shape[0] != n_columns:
            raise ValueError(f"categorical_features is a mask of {array.shape[0]} columns, but X has {n_columns}")
        return Chosen(tuple(np.flatnonzero(array).tolist()), False)
    places = _numbers("categorical_features", array.tolist(), n_columns, names)
    if len(set(places)) < len(places):
        raise ValueError(f"categorical_features is {given!r:.200}, which names a column twice")
    return Chosen(tuple(sorted(places)), False)


def _numbers(parameter: str, columns: Iterable[Any], n_columns: int, names: NDArray[Any] | None) -> list[int]:
    """Return the numbers of columns that a parameter lists by number or name."""
    known, numbers = [] if names is None else names.tolist(), []
    for column in columns:
        if isinstance(column, str):
            if column not in known:
                have = f"has only {known!r:.200}" if known else "has no names of columns; pass positions"
                raise ValueError(f"{parameter} names the column {column!r:.60}, which X does not have; it {have}")
            numbers.append(known.index(column))
        elif isinstance(column, Integral) and not isinstance(column, bool) and 0 <= int(column) < n_columns:
            numbers.append(int(column))
        else:
            raise ValueError(f"{parameter} holds {column!r:.60}; wants names of columns, or positions from 0 to {n_columns - 1}")
    return numbers


def monotonic_rule(estimator: Any) -> tuple[int, ...]:
    """Return -1, 0 or 1 for each column of an estimator with known columns and classes; empty if all are 0.

    Raises
    ------
    ValueError
        If ``monotonic_cst`` does not fit the columns, or there are more than two classes.
    """
    if estimator.monotonic_cst is None:
        return ()
    signs = _signs(estimator)
    if is_classifier(estimator) and np.max(estimator.n_classes_) > 2:
        raise ValueError(
            f"monotonic_cst is given, and y has {estimator.n_classes_} classes. Monotonicity constraints are not supported with multiclass "
            "classification: of several probabilities, not all can rise; pass monotonic_cst=None, or fit one class against the others"
        )
    for j, (column, sign) in enumerate(zip(estimator._schema.columns, signs, strict=True)):
        if sign and (estimator.is_categorical_[j] or (column.kind == CATEGORICAL and not column.order)):
            raise ValueError(
                f"monotonic_cst is {sign} for X column {j if column.name is None else column.name!r}, whose values are categories, by its "
                f"dtype or by categorical_features={estimator.categorical_features!r:.60}, and have no order; wants 0 for it, or an "
                "ordered dtype (an ordered Categorical of pandas, an Enum of polars)"
            )
    return tuple(signs) if any(signs) else ()


def ordered_columns(estimator: Any) -> set[int]:
    """Return the columns of an ordered dtype with a sign in ``monotonic_cst``, whose categories are treated as numbers."""
    ordered = [j for j, column in enumerate(estimator._schema.columns) if column.order]
    if not ordered or estimator.monotonic_cst is None:
        return set()
    signs = _signs(estimator)
    return {j for j in ordered if signs[j]}


def _signs(estimator: Any) -> list[int]:
    """Return -1, 0 or 1 for each column."""
    signs = check_monotonic_cst(estimator, estimator.monotonic_cst)
    if signs.ndim != 1:
        raise ValueError(f"monotonic_cst has shape {signs.shape}; wants a number for each column")
    return [int(sign) for sign in signs]


def interaction_rule(estimator: Any) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Return the sets of columns that may occur together on a path, and the limit of columns on a path, of an estimator with known columns.

    Columns that are in no set form another set. If all columns may occur together, the result is an empty tuple and 0.

    Raises
    ------
    ValueError
        If ``interaction_cst`` does not fit the columns.
    """
    given, n_columns = estimator.interaction_cst, estimator.n_features_in_
    if given is None:
        return (), 0
    if isinstance(given, str):
        most = {"no_interactions": 1, "pairwise": 2}[given]
        return (), most if most < n_columns else 0
    names, sets = getattr(estimator, "feature_names_in_", None), set()
    for group in given:
        if isinstance(group, str) or not isinstance(group, Iterable):
            raise ValueError(
                f"interaction_cst is {given!r}, which contains {group!r}; Interaction constraints must be a sequence of tuples or lists, "
                "or sets, of columns"
            )
        sets.add(frozenset(_numbers("interaction_cst", group, n_columns, names)))
    sets.discard(frozenset())
    rest = frozenset(range(n_columns)) - frozenset().union(*sets)
    if rest:
        sets.add(rest)
    if any(len(columns) == n_columns for columns in sets):
        return (), 0
    largest = [columns for columns in sets if not any(columns < other for other in sets)]
    return tuple(sorted(tuple(sorted(columns)) for columns in largest)), 0
