"""Limits on splits and nodes, in the units of a tree's sums: counts, weights and gains.

Only this module decides whether a split is allowed, except for constraints on columns, which are part of the criterion
(:mod:`dtrees.split.criteria.constraints`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import inlined_kernel, kernel
from dtrees.split.compile.specialised import always, optional
from dtrees.split.criteria.constraints import criterion_for_thread


class BestThreshold(NamedTuple):
    """For each column, the best of all thresholds is a candidate."""


class RandomThreshold(NamedTuple):
    """For each column, one threshold drawn at random is a candidate (Extra-Trees)."""


class AnyCriterion(NamedTuple):
    """Placeholder for a criterion that kernels do not see."""


@optional
def is_random(thresholds: Any) -> Any:
    """Return whether thresholds are drawn at random."""
    return False


is_random.of(RandomThreshold)(always)


class Categories(NamedTuple):
    """Columns of categories, of which any subset may go left (:mod:`dtrees.split.search.categories`).

    Attributes
    ----------
    some : bool
        Whether there are any; if not, the arrays may be empty.
    is_categorical : ndarray of bool, shape (n_columns,)
    smooth : float
        The weight by which means of categories are shrunk towards the mean of their node.
    least, most : ndarray of int64, shape (n_columns,)
        Categories with fewer than ``least`` in-sample rows in a node are merged; the side of a split that has fewer categories has at
        most ``most``.
    """

    some: bool
    is_categorical: NDArray[np.bool_]
    smooth: float
    least: NDArray[np.int64]
    most: NDArray[np.int64]


NO_CATEGORIES = Categories(False, np.zeros(0, np.bool_), 0.0, np.zeros(0, np.int64), np.zeros(0, np.int64))


@inlined_kernel
def is_categorical(categories, column):
    """Return whether a column holds categories."""
    return categories.some and categories.is_categorical[column]


@by_reference
class SplitLimits(NamedTuple):
    """Limits on a split, and the criterion that it improves.

    Attributes
    ----------
    thresholds : BestThreshold or RandomThreshold
        Which thresholds are candidates; the type decides what is compiled.
    slope : float
        The largest abs(a) / b of a row.
    min_samples : int
        Fewest in-sample rows of a child.
    min_weight : int
        Smallest weight of a child.
    min_gain : float
        Smallest gain, in units of gains.
    categories : Categories
        Which columns hold categories.
    criterion : named tuple
        The criterion's kernel value; its type also decides what is compiled (:mod:`dtrees.split.criteria.parts`).
    chance : float
        The amount subtracted from the gain of a set of categories for each nat of choice, in units of gains; 0.0 for nothing.
    """

    thresholds: BestThreshold | RandomThreshold
    slope: float
    min_samples: int
    min_weight: int
    min_gain: float
    categories: Categories
    criterion: Any
    chance: float = 0.0


@by_reference
class NodeLimits(NamedTuple):
    """Limits on the nodes that are searched, and the row data to return.

    Attributes
    ----------
    max_depth : int
    min_samples : int
        Fewest in-sample rows of a node to be split.
    min_weight : int
        Smallest weight of a node to be split.
    max_features : int
        Number of columns drawn for each node.
    right_side : uint64
        Mixed into the identity of a right child (:func:`~dtrees.split.numbers.hashing.child_path`). If it equals the constant of left
        children, all nodes of a level have the same identity and draw the same columns.
    keeps_rows : bool
        Whether the numbers that rows carry are returned with the finished tree, in the order of its leaves.
    keeps_sums : bool
        Whether the sums of nodes are returned; if not, and every weight is 1, the number of rows is enough.
    """

    max_depth: int
    min_samples: int
    min_weight: int
    max_features: int
    right_side: np.uint64
    keeps_rows: bool
    keeps_sums: bool


def limits_for_thread(limits: SplitLimits) -> SplitLimits:
    """Return limits that no other thread writes to: the same object, unless there are constraints."""
    own = criterion_for_thread(limits.criterion)
    return limits if own is limits.criterion else limits._replace(criterion=own)


@inlined_kernel
def is_allowed(limits, n_left, n_right, h_left, h_right):
    """Return whether a split is allowed, given the numbers of in-sample rows and the weights of both sides.

    Constraints on values are handled by the criterion, which does not score what they forbid. There is no branch, so that loops over
    many splits are vectorised.
    """
    enough = (n_left >= limits.min_samples) & (n_right >= limits.min_samples)
    return enough & (h_left >= limits.min_weight) & (h_right >= limits.min_weight)


@kernel
def may_be_split(stops, n_rows, depth, weight):
    """Return whether a node may be searched, given its size; in Python, its ``py_func`` takes arrays of sizes, too."""
    return (depth < stops.max_depth) & (n_rows >= stops.min_samples) & (weight >= stops.min_weight)


@kernel
def most_nodes(stops, limits, n_rows, depth):
    """Return an upper bound of the number of nodes in a subtree of ``n_rows`` in-sample rows."""
    leaves = max(1, n_rows // max(1, limits.min_samples))
    levels = stops.max_depth - depth
    if levels < 40:
        leaves = min(leaves, 1 << max(levels, 0))
    return 2 * leaves - 1
