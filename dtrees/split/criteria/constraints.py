"""Constraints on the splits of a tree, and their data of a node.

There are two kinds. A column may be *monotonic*: if only its value increases, predictions must not decrease (sign 1) or not increase
(sign -1). And *interactions* may be limited: only certain sets of columns may occur together on a path.

A constrained criterion is a kernel value that wraps another one together with the constraints. All searches ask the criterion for
scores, so they all respect the constraints.

Terms
-----
value
    the prediction of a side of a split: its mean g / h or quantile (:class:`InOrder`), or its Newton step (:class:`Clipped`).
bounds
    the lowest and highest value that a node may have. The values of the children of a split on a monotonic column are separated by their
    midpoint, an upper bound of one child and a lower bound of the other; the children of other splits inherit the bounds. So no leaf on
    one side of a split on a monotonic column ever passes one on the other side.
words
    the constraints' data of a node: numbers that follow its sums in their array and are moved with them. The bounds, as the bits of
    floats, then the columns on the path to it, or a bit for each set that contains all of these columns. Until a node is split, the
    words after the sums of its left side are the node's own.

Trees and forests follow scikit-learn: a split on a monotonic column is allowed only if the values of both sides are in order and within
the bounds; its gain is the usual one. Boosting follows XGBoost: the values of both sides are clipped to the bounds, must then be in
order, and the gain is that of the clipped values.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import always, optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.parts import gain
from dtrees.split.numbers.elementary import bits_of, float_of

#: Elements of ``state``: the sign of the column being searched, the bounds of the node, a term added to the score of clipped values so
#: that it is never negative, the term by which their gain exceeds their score, and, for quantiles, the midpoint of the two sides of the
#: best split.
SIGN, LOW, HIGH, LIFT, MORE, MIDDLE = 0, 1, 2, 3, 4, 5
_STATE = 6
#: The words of a node: its bounds, the midpoint of the values of its best split, and the data of its path.
LOWEST, HIGHEST, BETWEEN, PATH = 0, 1, 2, 3


class Constraints(NamedTuple):
    """The constraints of a tree, and their state for the node and the column that a thread searches.

    Attributes
    ----------
    signs : ndarray of int8, shape (n_columns,) or (0,)
        1, -1, or 0 for columns that are not monotonic; indexed by column of the whole table.
    sets : ndarray of int64, shape (n_columns, n_words)
        A bit for each set that a column belongs to.
    most : int
        Most distinct columns on a path, if any combination is allowed; 0 if ``sets`` limits them.
    state : ndarray of float64, shape (6,)
        Private to a thread (:func:`criterion_for_thread`).
    """

    signs: NDArray[np.int8]
    sets: NDArray[np.int64]
    most: int
    state: NDArray[np.float64]

    @property
    def n_words(self) -> int:
        """The number of words of a node."""
        return PATH + (self.most or self.sets.shape[1])


class InOrder(NamedTuple):
    """The kernel value of a criterion of trees and forests under constraints."""

    criterion: Any
    constraints: Constraints


class Clipped(NamedTuple):
    """The kernel value of Newton's gain under constraints."""

    criterion: Any
    constraints: Constraints


def make_constraints(signs: tuple[int, ...], sets: tuple[tuple[int, ...], ...], most: int) -> Constraints:
    """Return constraints without a thread's state.

    Parameters
    ----------
    signs : tuple of int
        One for each column; empty if no column is monotonic.
    sets : tuple of tuple of int
        Columns that may occur together on a path; each column is in at least one. Empty if all may.
    most : int
        Most distinct columns on a path, 0 for any number.
    """
    n_columns = 1 + max((max(columns) for columns in sets), default=-1)
    members = np.zeros((n_columns, -(-len(sets) // 64)), np.uint64)
    for k, columns in enumerate(sets):
        members[list(columns), k // 64] |= np.uint64(1 << (k % 64))
    return Constraints(np.array(signs, np.int8), members.view(np.int64), most, np.zeros(_STATE))


def criterion_for_thread(criterion: Any) -> Any:
    """Return a kernel value that no other thread writes to: the value itself, unless there are constraints."""
    if not isinstance(criterion, (InOrder, Clipped)):
        return criterion
    return criterion._replace(constraints=criterion.constraints._replace(state=np.zeros(_STATE)))


@inlined_kernel
def n_words(constraints):
    """Return the number of words of a node."""
    return PATH + (constraints.most if constraints.most > 0 else constraints.sets.shape[1])


@inlined_kernel
def outside(value, low, high):
    """Return the distance of a value from the bounds, 0.0 within them."""
    return max(low - value, 0.0) + max(value - high, 0.0)


@inlined_kernel
def mean(g, h):
    """Return the mean of a side."""
    return float(g) / float(h)


@optional
def step(criterion, g, h):
    """Return the Newton step of a side, without bounds."""
    return -float(g) / (float(h) + criterion.penalty)


@optional
def score_within(criterion, found, one, other):
    """Return the score of a split whose values are clipped to bounds; ``found`` is its score without bounds.

    Each side is its g and h, the distance of its step from the bounds, and its value. The loss of a side is a parabola: a value at a
    distance d from the optimum costs (h + penalty) * d**2. The score is in units of the gain times the weight of both sides.
    """
    (_, h, d, _), (_, other_h, other_d, _) = one, other
    a, b = h + criterion.penalty, other_h + criterion.penalty
    return found - (a + b) * (a * (d * d) + b * (other_d * other_d))


@optional
def lift(criterion, g, h, low, high):
    """Return the term added to scores within bounds so that none is negative, and the difference of gains to such scores."""
    both, penalty = h + 2.0 * criterion.penalty, criterion.penalty
    added = more = 0.0
    if both > 0.0:
        d = outside(-g / both, low, high)
        added, more = both * both * (d * d), -both * (d * d)
    if h + penalty > 0.0:
        d = outside(-g / (h + penalty), low, high)
        more += (h + penalty) * (d * d)
    return added, more


@optional
def gain_within(criterion, score, node, more):
    """Return the gain of a split within bounds; ``more`` is the second result of :func:`lift`."""
    return gain(criterion, score, node) + more


@optional
def terms_of_score(criterion, g, h):
    """Return the L1 penalty, and the factor and the term that turn the doubled reduction by both sides into a score."""
    return 0.0, h + 2.0 * criterion.penalty, -g * g


@optional
def unconstrained(criterion: Any) -> Any:
    """Return the criterion inside a constrained one, or the criterion itself."""
    return criterion


@unconstrained.of(InOrder, Clipped)
def _(criterion):
    return criterion.criterion


@optional
def is_constrained(criterion: Any) -> Any:
    """Return whether the criterion has constraints on columns."""
    return False


is_constrained.of(InOrder, Clipped)(always)


@optional
def forget_mirrored(criterion: Any, n_before: Any, scores: Any) -> None:
    """Discard the scores of splits with only missing rows on the left.

    The same splits are tried with only missing rows on the right. Without constraints, both have the same score.
    """


@forget_mirrored.of(Clipped, InOrder)
def _(criterion, n_before, scores):
    for z in range(scores.shape[0]):
        scores[z] = scores[z] if n_before[z] > 0 else -1.0


@optional
def order_of_sides(criterion: Any) -> Any:
    """Return which side of a split of the column must have more g for its weight: 1.0 the left, -1.0 the right, 0.0 any."""
    return 0.0


@order_of_sides.of(InOrder)
def _(criterion):
    return -criterion.constraints.state[SIGN]


@order_of_sides.of(Clipped)
def _(criterion):
    return criterion.constraints.state[SIGN]  # a step has the sign of -g


@optional
def compares_sides(criterion: Any) -> Any:
    """Return whether splits of the column may be excluded because of the values of both sides."""
    return False


@compares_sides.of(InOrder)
def _(criterion):
    return criterion.constraints.state[SIGN] != 0.0


@optional
def forbid_out_of_order(criterion: Any, node: Any, g: Any, h: Any, signs: Any, scores: Any) -> None:
    """Discard unconstrained scores or bounds of splits of many columns whose sides have values out of order.

    Parameters
    ----------
    criterion : named tuple
    node : Moments
    g, h : ndarray of int64
        Sums of the left side.
    signs, scores : ndarray of float64
        For each column.
    """


@forbid_out_of_order.of(InOrder)
def _(criterion, node, g, h, signs, scores):
    low, high = criterion.constraints.state[LOW], criterion.constraints.state[HIGH]
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@forbid_out_of_order.of(Clipped)
def _(criterion, node, g, h, signs, scores):
    low, high, inner = criterion.constraints.state[LOW], criterion.constraints.state[HIGH], criterion.criterion
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        one, other = step(inner, g[j], h[j]), step(inner, node.g - g[j], node.h - h[j])
        one, other = min(max(one, low), high), min(max(other, low), high)
        scores[j] = found if sign * (one - other) <= 0.0 else -1.0


@optional
def forbid_in_column(criterion: Any, node: Any, g: Any, h: Any, scores: Any) -> None:
    """Discard bounds of splits of the column whose sides are out of order. Clipped values need no check."""


@forbid_in_column.of(InOrder)
def _(criterion, node, g, h, scores):
    state = criterion.constraints.state
    if state[SIGN] == 0.0:
        return
    sign, low, high = state[SIGN], state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        found = scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@optional
def allows_quantiles(criterion: Any, one: Any, other: Any) -> Any:
    """Return whether the two sides of a split may have these quantiles."""
    return True


@allows_quantiles.of(InOrder)
def _(criterion, one, other):
    return are_in_order(criterion.constraints.state, one, other)


@optional
def note_quantiles(criterion: Any, one: Any, other: Any) -> None:
    """Store the quantiles of the two sides of the best split so far."""


@note_quantiles.of(InOrder)
def _(criterion, one, other):
    criterion.constraints.state[MIDDLE] = one / 2.0 + other / 2.0


@inlined_kernel
def are_in_order(state, one, other):
    """Return whether the column may have these values on its lower and its higher side."""
    return _are_in_order(state[SIGN], state[LOW], state[HIGH], one, other)


@inlined_kernel
def _are_in_order(sign, low, high, one, other):
    return ((sign * (one - other) <= 0.0) & (min(one, other) >= low) & (max(one, other) <= high)) | (sign == 0.0)


def root_words(constraints: Constraints) -> NDArray[np.int64]:
    """Return the words of the root of a tree."""
    bounds = np.array([-math.inf, math.inf, 0.0]).view(np.int64)
    path = np.zeros(constraints.most, np.int64) if constraints.most else np.full(constraints.sets.shape[1], -1, np.int64)
    return np.concatenate([bounds, path])


@specialised
def value_within(criterion: Any, g: Any, h: Any, low: Any, high: Any) -> Any:
    """Return the value of a set of rows, clipped to the bounds of its node."""


@value_within.of(InOrder)
def _(criterion, g, h, low, high):
    return mean(g, h)  # the values of an allowed split are within the bounds


@value_within.of(Clipped)
def _(criterion, g, h, low, high):
    return min(max(step(criterion.criterion, g, h), low), high)


@optional
def begin_node(criterion: Any, sums: Any) -> Any:
    """Prepare a thread for the splits of a node in all columns that are not monotonic; ``sums`` include the node's words."""


@begin_node.of(InOrder)
def _(criterion, sums):
    _begin(criterion.constraints, sums)


@begin_node.of(Clipped)
def _(criterion, sums):
    _begin(criterion.constraints, sums)
    state = criterion.constraints.state
    state[LIFT], state[MORE] = lift(criterion.criterion, float(sums[0]), float(sums[1]), state[LOW], state[HIGH])


@optional
def begin_column(criterion: Any, sums: Any, column: Any) -> Any:
    """Prepare a thread for the splits of a node in a column of the whole table; return whether the node may use it."""
    return True


@begin_column.of(InOrder, Clipped)
def _(criterion, sums, column):
    begin_node(criterion, sums)
    criterion.constraints.state[SIGN] = sign_of(criterion, column)
    return may_use(criterion, sums, column)


@optional
def may_use(criterion: Any, sums: Any, column: Any) -> Any:
    """Return whether a node may use a column."""
    return True


@may_use.of(InOrder, Clipped)
def _(criterion, sums, column):
    constraints = criterion.constraints
    at = sums.shape[0] - n_words(constraints)
    if constraints.most > 0:
        for k in range(at + PATH, sums.shape[0]):  # noqa: SIM110
            if sums[k] == 0 or sums[k] == column + 1:
                return True
        return False
    if constraints.sets.shape[1] == 0:
        return True
    for k in range(constraints.sets.shape[1]):  # noqa: SIM110
        if sums[at + PATH + k] & constraints.sets[column, k] != 0:
            return True
    return False


@optional
def sign_of(criterion: Any, column: Any) -> Any:
    """Return 1 or -1 if predictions must increase or decrease with a column, otherwise 0."""
    return np.int64(0)


@sign_of.of(InOrder, Clipped)
def _(criterion, column):
    signs = criterion.constraints.signs
    return np.int64(signs[column]) if signs.shape[0] > 0 else np.int64(0)


@lean_kernel
def _begin(constraints, sums):
    at, state = sums.shape[0] - n_words(constraints), constraints.state
    state[SIGN], state[LOW], state[HIGH] = 0.0, float_of(sums[at + LOWEST]), float_of(sums[at + HIGHEST])


@optional
def hand_down(criterion: Any, column: Any, left: Any, right: Any) -> Any:
    """Write the words of both children of a split on a column, after their sums.

    ``left`` holds the words of the parent when called; ``right`` may hold anything in their place.
    """


@hand_down.of(InOrder, Clipped)
def _(criterion, column, left, right):
    constraints = criterion.constraints
    at = left.shape[0] - n_words(constraints)
    if constraints.most > 0:
        for k in range(at + PATH, left.shape[0]):
            if left[k] == 0 or left[k] == column + 1:
                left[k] = column + 1
                break
    elif constraints.sets.shape[1] > 0:
        for k in range(constraints.sets.shape[1]):
            left[at + PATH + k] &= constraints.sets[column, k]
    for k in range(at, left.shape[0]):
        right[k] = left[k]
    if constraints.signs.shape[0] == 0 or constraints.signs[column] == 0:
        return
    middle = _middle(criterion.criterion, criterion, left, right, at)
    if constraints.signs[column] > 0:
        left[at + HIGHEST] = right[at + LOWEST] = middle
    else:
        left[at + LOWEST] = right[at + HIGHEST] = middle


@optional
def _middle(inner, criterion, left, right, at):
    """Return the bits of the midpoint of the values of both children, whose words are still their parent's."""
    low, high = float_of(left[at + LOWEST]), float_of(left[at + HIGHEST])
    one, other = value_within(criterion, left[0], left[1], low, high), value_within(criterion, right[0], right[1], low, high)
    return bits_of((one + other) / 2.0)


@_middle.of(Deviations)
def _(inner, criterion, left, right, at):
    return left[at + BETWEEN]


@optional
def note_words(criterion: Any, sums: Any, left: Any) -> None:
    """Write a node's words after the sums of the left side of its best split."""


@note_words.of(InOrder, Clipped)
def _(criterion, sums, left):
    at = sums.shape[0] - n_words(criterion.constraints)
    for k in range(at, sums.shape[0]):
        left[k] = sums[k]
    left[at + BETWEEN] = bits_of(criterion.constraints.state[MIDDLE])


@kernel
def hand_down_all(criterion, columns, left, right):
    """Write the words of the children of many splits, one split in each row; see :func:`hand_down`."""
    for i in range(columns.shape[0]):
        hand_down(criterion, columns[i], left[i], right[i])


def divide_sums(
    criterion: Any, columns: NDArray[np.int32], sums: NDArray[np.int64], left: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sums of left and right children from the sums of the split nodes and of the left sides.

    Parameters
    ----------
    criterion : named tuple
    columns : ndarray of int32, shape (n,)
        The columns of the splits.
    sums, left : ndarray of int64, shape (n, n_sums)
    """
    right = sums - left
    if isinstance(criterion, InOrder | Clipped):
        left = left.copy()
        hand_down_all(criterion, columns, left, right)
    return left, right
