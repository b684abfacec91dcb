"""Criteria of several targets: the sum over targets of a criterion of one target.

One tree is grown for all targets. The impurity of a node is the mean over targets (Segal 1992), as in scikit-learn, so the gain of a
split is the mean of its gains. The *terms* of a criterion are added, which it has for its classes anyway: the squared error of a target
corresponds to the Gini impurity of a class.

The sums of all targets lie side by side, and ``a`` of a row is its number, by which kernels find its contribution. So the row partition
moves rows as it does for one target. Nodes are scanned; only if rows are spread over shards, there are bounds over parts
(:mod:`dtrees.split.zones.over_shards.flagging`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, kernel
from dtrees.split.criteria import parts
from dtrees.split.criteria.criterion import Criterion
from dtrees.split.criteria.statistics import Classes


class SeveralAmounts(NamedTuple):
    """The kernel value for several numeric targets.

    Attributes
    ----------
    criterion : named tuple
        The kernel value for one target.
    rows : ndarray of int64, shape (n_rows, n_targets)
        The contribution of each row to the sums: for each target, its amount times the row's weight. All targets have the same scale.
    """

    criterion: Any
    rows: NDArray[np.int64]


class SeveralClasses(NamedTuple):
    """The kernel value for several targets of classes.

    Attributes
    ----------
    criterion : named tuple
        The kernel value for one target, of any number of classes.
    rows : ndarray of int64, shape (n_rows, n_targets)
        The class of each row in each target, in a common numbering over all targets.
    first : ndarray of int64, shape (n_targets + 1,)
        The number of the first class of each target, and the total.
    """

    criterion: Any
    rows: NDArray[np.int64]
    first: NDArray[np.int64]


class SeveralDeviations(NamedTuple):
    """The kernel value for deviations of several targets from their medians or other quantiles.

    Attributes
    ----------
    criterion : Deviations
        The kernel value for one target.
    rows : ndarray of int64, shape (n_rows, n_targets)
        The rank of each row's target, in a common numbering over all targets.
    """

    criterion: Any
    rows: NDArray[np.int64]


def value_for_targets(criterion: Criterion, classes: tuple[int, ...], rows: NDArray[np.int64]) -> Any:
    """Return the kernel value of a criterion for several targets.

    Parameters
    ----------
    criterion : Criterion
        A criterion that supports several targets (:meth:`~dtrees.split.criteria.criterion.Criterion.for_targets`).
    classes : tuple of int
        The number of classes of each target; unused for numbers.
    rows : ndarray of int64, shape (n_rows, n_targets)
        As for :class:`SeveralAmounts`, :class:`SeveralClasses` or :class:`SeveralDeviations`; (0, n_targets) if no rows are read.
    """
    inner = criterion.for_targets()
    if not criterion.by_sums:
        return SeveralDeviations(inner, rows)
    if criterion.task == "classification":
        return SeveralClasses(inner, rows, np.concatenate([[0], np.cumsum(classes)]).astype(np.int64))
    return SeveralAmounts(inner, rows)


parts.take_from_inside((SeveralAmounts, SeveralClasses), (parts.class_term, parts.score_of_terms, parts.is_arithmetic))
parts.take_from_inside((SeveralAmounts,), (parts.most_in_box,))
parts.take_from_inside((SeveralClasses,), (parts.has_convex_terms,))
parts.node_statistic.of(SeveralAmounts)(parts.amounts_of)
parts.node_statistic.of(SeveralClasses)(parts.classes_of_targets)
parts.node_statistic.of(SeveralDeviations)(parts.moments_of)


@parts.gain.of(SeveralAmounts)
def _(criterion, score, node):
    return parts.gain(criterion.criterion, score, node) / node.sums.shape[0]


@parts.gain.of(SeveralClasses)
def _(criterion, score, node):
    # The gain of one target is linear in its score.
    total = 0.0
    for t in range(node.first.shape[0] - 1):
        one = Classes(node.sums[node.first[t] : node.first[t + 1]], node.h, node.n)
        total += parts.gain(criterion.criterion, score if t == 0 else 0.0, one)
    return total / (node.first.shape[0] - 1)


@parts.gain.of(SeveralDeviations)
def _(criterion, score, node):
    return parts.gain(criterion.criterion, score, node) / criterion.rows.shape[1]


@kernel
def add_up_amounts(amounts, rows, out):
    """Add the amounts of some rows, target by target; ``out`` has a sum for each."""
    out[:] = 0
    for i in range(rows.shape[0]):
        for t in range(amounts.shape[1]):
            out[t] += amounts[rows[i], t]


@kernel
def add_up_classes(classes, rows, h, out):
    """Add the weights of classes of some rows, in their order; ``h`` is empty if every weight is 1."""
    out[:] = 0
    for i in range(rows.shape[0]):
        weight = h[i] if h.shape[0] > 0 else ZERO() + 1
        for t in range(classes.shape[1]):
            out[classes[rows[i], t]] += weight
