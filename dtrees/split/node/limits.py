"""What splits and nodes must respect, in the units of a tree's sums: counts, weights and gains.

Here alone is decided whether a split may be taken, but for constraints on columns, which are part of the criterion
(:mod:`dtrees.split.criteria.constraints`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, inlined_kernel, kernel, lean_entry
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.constraints import criterion_for_thread
from dtrees.split.criteria.parts import node_statistic


class BestThreshold(NamedTuple):
    """Of each column the best of all thresholds counts."""


class RandomThreshold(NamedTuple):
    """Of each column one threshold drawn at random counts (Extra-Trees)."""


class AnyCriterion(NamedTuple):
    """In place of a criterion, where it is not to be seen."""


@optional
def is_random(thresholds: Any) -> Any:
    """Tell whether thresholds are drawn at random."""
    return False


@is_random.of(RandomThreshold)
def _(thresholds):
    return True


class Categories(NamedTuple):
    """Columns that hold categories, of which any subset may go left (:mod:`dtrees.split.search.categories`).

    Attributes
    ----------
    some : bool
        Whether there are any; otherwise the arrays may be empty.
    is_categorical : ndarray of bool, shape (n_columns,)
    smooth : float
        The weight, in units of weights, by which means of categories are moved towards that of their node.
    least, most : ndarray of int64, shape (n_columns,)
        Categories of fewer than ``least`` in-sample rows in a node are taken together; the side of a split that has fewer categories has at
        most so many.
    """

    some: bool
    is_categorical: NDArray[np.bool_]
    smooth: float
    least: NDArray[np.int64]
    most: NDArray[np.int64]


NO_CATEGORIES = Categories(False, np.zeros(0, np.bool_), 0.0, np.zeros(0, np.int64), np.zeros(0, np.int64))


@inlined_kernel
def is_categorical(categories, column):
    """Tell whether a column holds categories."""
    return categories.some and categories.is_categorical[column]


@by_reference
class SplitLimits(NamedTuple):
    """What a split must respect.

    Attributes
    ----------
    thresholds : BestThreshold or RandomThreshold
        Which thresholds of a column count; its type decides what is compiled.
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
        The criterion's kernel value; its type decides what is compiled, too (:mod:`dtrees.split.criteria.parts`).
    chance : float
        What is taken from the gain of a set of categories for each nat of choosing it, in units of gains; 0.0 for nothing.
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
    """When a node is not searched at all, and what is wanted of its rows.

    Attributes
    ----------
    max_depth : int
    min_samples : int
        Fewest in-sample rows of a node to be split.
    min_weight : int
        Smallest weight of a node to be split.
    max_features : int
        Columns drawn for each node.
    right_side : uint64
        What the identity of a right child is made with (:func:`~dtrees.split.numbers.hashing.child_path`). If that is what a left one's is
        made with, all nodes of a level have one identity, and draw the same columns.
    keeps_rows : bool
        Whether what rows carry is wanted when the tree is grown, in the order of its leaves.
    keeps_sums : bool
        Whether the sums of nodes are wanted then; where they are not, and every weight is 1, the number of rows is enough.
    """

    max_depth: int
    min_samples: int
    min_weight: int
    max_features: int
    right_side: np.uint64
    keeps_rows: bool
    keeps_sums: bool


def limits_for_thread(limits: SplitLimits) -> SplitLimits:
    """Return limits that no other thread writes to: the same, unless there are constraints."""
    own = criterion_for_thread(limits.criterion)
    return limits if own is limits.criterion else limits._replace(criterion=own)


@inlined_kernel
def is_allowed(limits, n_left, n_right, h_left, h_right):
    """Tell whether a split may be taken, from the numbers of in-sample rows and the weights of both sides.

    Constraints on values are a matter of the criterion, which does not score what they forbid.

    There is no branch in it: loops over many splits take several at a time.
    """
    enough = (n_left >= limits.min_samples) & (n_right >= limits.min_samples)
    return enough & (h_left >= limits.min_weight) & (h_right >= limits.min_weight)


@kernel
def may_be_split(stops, n_rows, depth, weight):
    """Tell whether a node is to be searched, from its size alone."""
    return depth < stops.max_depth and n_rows >= stops.min_samples and weight >= stops.min_weight


@lean_entry
def node_weight(limits, sums):
    """Return the weight of a node from its sums."""
    return node_statistic(limits.criterion, sums, ZERO()).h


@kernel
def most_nodes(stops, limits, n_rows, depth):
    """Return how many nodes a subtree of so many in-sample rows can have."""
    leaves = max(1, n_rows // max(1, limits.min_samples))
    levels = stops.max_depth - depth
    if levels < 40:
        leaves = min(leaves, 1 << max(levels, 0))
    return 2 * leaves - 1
