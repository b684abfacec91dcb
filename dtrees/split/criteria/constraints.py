"""Constraints on the splits of a tree, and what they say of a node.

Two kinds of constraints are known. A column may be *monotonic*: where it is higher, and nothing else differs, predictions must not be lower
(sign 1), or not be higher (sign -1). And *interactions* may be limited: only some sets of columns may stand together on a path.

A constrained criterion is the kernel value of another one, with constraints around it. So whatever searches for splits respects them: all
searches ask the criterion what a split is worth.

Terms
-----
value
    what a side of a split would predict: its mean g / h or quantile (:class:`InOrder`), or its Newton step (:class:`Clipped`).
bounds
    the lowest and highest value that a node may have. The children of a split on a monotonic column are kept apart by the middle of their
    values, one bounded from above, the other from below; those of other splits have the bounds of their parent. So no leaf on one side of a
    split on a monotonic column ever passes one on the other side.
words
    what constraints know of a node: numbers that follow its sums in their array, and go wherever these go. The bounds, as the bits of
    floats, then the columns on the path to it, or a bit for each set of columns that all of these belong to. The words that go with the
    sums of what a split sends left are its node's, until the node is split.

Trees and forests do as scikit-learn's trees: a split on a monotonic column counts only if the values of both sides are in order and within
the bounds; what it gains is what it always gains. Boosting does as XGBoost: the values of both sides are clipped by the bounds, they
must be in order then, and the gain is that of clipped values.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.parts import gain

#: What ``state`` holds: the sign of the column that is searched, the bounds of the node, what is added to the score of clipped values so
#: that it is never negative, what their gain is more than their score says, and, of quantiles, the middle of those of the best split.
SIGN, LOW, HIGH, LIFT, MORE, MIDDLE = 0, 1, 2, 3, 4, 5
_STATE = 6
#: The words of a node: its bounds, the middle of the values of its best split, and what is known of its path.
LOWEST, HIGHEST, BETWEEN, PATH = 0, 1, 2, 3


class Constraints(NamedTuple):
    """The constraints of a tree, and what they say of the node and the column that a thread searches.

    Attributes
    ----------
    signs : ndarray of int8, shape (n_columns,) or (0,)
        1, -1, or 0 for columns that are not monotonic; by number in the whole table.
    sets : ndarray of int64, shape (n_columns, n_words)
        A bit for each set that a column belongs to.
    most : int
        Most columns on a path, whichever; 0 where ``sets`` says which may stand together.
    state : ndarray of float64, shape (6,)
        A thread's own (:func:`criterion_for_thread`).
    """

    signs: NDArray[np.int8]
    sets: NDArray[np.int64]
    most: int
    state: NDArray[np.float64]

    @property
    def n_words(self) -> int:
        """Words of a node."""
        return PATH + (self.most or self.sets.shape[1])


class InOrder(NamedTuple):
    """The kernel value of a criterion of trees and forests, with constraints."""

    criterion: Any
    constraints: Constraints


class Clipped(NamedTuple):
    """The kernel value of Newton's gain, with constraints."""

    criterion: Any
    constraints: Constraints


def make_constraints(signs: tuple[int, ...], sets: tuple[tuple[int, ...], ...], most: int) -> Constraints:
    """Return constraints.

    Parameters
    ----------
    signs : tuple of int
        One for each column, or none where no column is monotonic.
    sets : tuple of tuple of int
        Which columns may stand together on a path; each column is in one at least. None where any may.
    most : int
        Most columns on a path, 0 for any number of them.
    """
    n_columns = 1 + max((max(columns) for columns in sets), default=-1)
    members = np.zeros((n_columns, -(-len(sets) // 64)), np.uint64)
    for k, columns in enumerate(sets):
        members[list(columns), k // 64] |= np.uint64(1 << (k % 64))
    return Constraints(np.array(signs, np.int8), members.view(np.int64), most, np.zeros(_STATE))


def criterion_for_thread(criterion: Any) -> Any:
    """Return a kernel value that no other thread writes to: the same, unless there are constraints."""
    if not isinstance(criterion, (InOrder, Clipped)):
        return criterion
    return criterion._replace(constraints=criterion.constraints._replace(state=np.zeros(_STATE)))


@inlined_kernel
def n_words(constraints):
    """Return how many words a node has."""
    return PATH + (constraints.most if constraints.most > 0 else constraints.sets.shape[1])


@inlined_kernel
def outside(value, low, high):
    """Return how far a value is from the bounds, 0.0 within."""
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
    """Return the score of a split whose sides have values within bounds, where it is ``found`` without.

    Each side is its g and h, how far its step is from the bounds, and its value. The loss of a side is a parabola: a value that is d from
    the best costs (h + penalty) * d**2. The score is in units of the gain times the weight of both.
    """
    (_, h, d, _), (_, other_h, other_d, _) = one, other
    a, b = h + criterion.penalty, other_h + criterion.penalty
    return found - (a + b) * (a * (d * d) + b * (other_d * other_d))


@optional
def lift(criterion, g, h, low, high):
    """Return what is added to scores within bounds so that none is negative, and what gains are more than such scores say."""
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
    """Return the gain of a split within bounds; ``more`` is as of :func:`lift`."""
    return gain(criterion, score, node) + more


@optional
def terms_of_score(criterion, g, h):
    """Return the L1 penalty, and the factor and the term that make a score of what both sides lower the model by, doubled."""
    return 0.0, h + 2.0 * criterion.penalty, -g * g


@optional
def unconstrained(criterion: Any) -> Any:
    """Return the criterion inside of a constrained one, any other as it is."""
    return criterion


@unconstrained.of(InOrder, Clipped)
def _(criterion):
    return criterion.criterion


@optional
def is_constrained(criterion: Any) -> Any:
    """Tell whether columns differ in what their splits may be."""
    return False


@is_constrained.of(InOrder, Clipped)
def _(criterion):
    return True


@optional
def forget_mirrored(criterion: Any, n_before: Any, scores: Any) -> None:
    """Take back the scores at edges before all values, which missing rows alone are on the left of.

    Splits are tried with missing rows alone on the right. Without constraints, both score the same.
    """


@forget_mirrored.of(Clipped, InOrder)
def _(criterion, n_before, scores):
    for z in range(scores.shape[0]):
        scores[z] = scores[z] if n_before[z] > 0 else -1.0


@optional
def order_of_sides(criterion: Any) -> Any:
    """Return which side of a split of the column that is searched has more g for its weight: 1.0 the left, -1.0 the right, 0.0 any."""
    return 0.0


@order_of_sides.of(InOrder)
def _(criterion):
    return -criterion.constraints.state[SIGN]


@order_of_sides.of(Clipped)
def _(criterion):
    return criterion.constraints.state[SIGN]  # steps are downhill


@optional
def compares_sides(criterion: Any) -> Any:
    """Tell whether splits of the column that is searched are ruled out by the values of both sides."""
    return False


@compares_sides.of(InOrder)
def _(criterion):
    return criterion.constraints.state[SIGN] != 0.0


@optional
def forbid_out_of_order(criterion: Any, node: Any, g: Any, h: Any, signs: Any, scores: Any) -> None:
    """Take back scores, or bounds, that heed no signs, of splits of many columns whose sides have values out of order.

    Parameters
    ----------
    criterion : named tuple
    node : Moments
    g, h : ndarray of int64
        What goes left.
    signs, scores : ndarray of float64
        Of each column.
    """


@forbid_out_of_order.of(InOrder)
def _(criterion, node, g, h, signs, scores):
    _forbid_means(criterion.constraints.state, node, g, h, signs, scores)


@forbid_out_of_order.of(Clipped)
def _(criterion, node, g, h, signs, scores):
    _forbid_steps(criterion.constraints.state, criterion.criterion, node, g, h, signs, scores)


@lean_kernel
def _forbid_means(state, node, g, h, signs, scores):
    low, high = state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@lean_kernel
def _forbid_steps(state, inner, node, g, h, signs, scores):
    low, high = state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        sign, found = signs[j], scores[j]
        one, other = step(inner, g[j], h[j]), step(inner, node.g - g[j], node.h - h[j])
        one, other = min(max(one, low), high), min(max(other, low), high)
        scores[j] = found if sign * (one - other) <= 0.0 else -1.0


@optional
def forbid_in_column(criterion: Any, node: Any, g: Any, h: Any, scores: Any) -> None:
    """Take back bounds of splits of the column that is searched whose sides are out of order. Scores of clipped values have none."""


@forbid_in_column.of(InOrder)
def _(criterion, node, g, h, scores):
    if criterion.constraints.state[SIGN] != 0.0:
        _forbid_means_in_column(criterion.constraints.state, node, g, h, scores)


@lean_kernel
def _forbid_means_in_column(state, node, g, h, scores):
    sign, low, high = state[SIGN], state[LOW], state[HIGH]
    for j in range(scores.shape[0]):
        found = scores[j]
        in_order = _are_in_order(sign, low, high, mean(g[j], h[j]), mean(node.g - g[j], node.h - h[j]))
        scores[j] = found if in_order else -1.0


@optional
def allows_quantiles(criterion: Any, one: Any, other: Any) -> Any:
    """Tell whether both sides of a split may have these quantiles."""
    return True


@allows_quantiles.of(InOrder)
def _(criterion, one, other):
    return are_in_order(criterion.constraints.state, one, other)


@optional
def note_quantiles(criterion: Any, one: Any, other: Any) -> None:
    """Note the quantiles of both sides of the best split so far."""


@note_quantiles.of(InOrder)
def _(criterion, one, other):
    criterion.constraints.state[MIDDLE] = one / 2.0 + other / 2.0


@inlined_kernel
def are_in_order(state, one, other):
    """Tell whether the column that is searched may have these values on its lower and its higher side."""
    return _are_in_order(state[SIGN], state[LOW], state[HIGH], one, other)


@inlined_kernel
def _are_in_order(sign, low, high, one, other):
    return ((sign * (one - other) <= 0.0) & (min(one, other) >= low) & (max(one, other) <= high)) | (sign == 0.0)


def root_words(constraints: Constraints) -> NDArray[np.int64]:
    """Return the words of a tree's root."""
    bounds = np.array([-math.inf, math.inf, 0.0]).view(np.int64)
    path = np.zeros(constraints.most, np.int64) if constraints.most else np.full(constraints.sets.shape[1], -1, np.int64)
    return np.concatenate([bounds, path])


@inlined_kernel
def _bound_in(sums, k):
    """Return a bound from its bits."""
    return np.int64(sums[k]).view(np.float64)


@inlined_kernel
def _bits_of(bound):
    return np.float64(bound).view(np.int64)


@specialised
def value_within(criterion: Any, g: Any, h: Any, low: Any, high: Any) -> Any:
    """Return the value of a set of rows within the bounds of the node that they are of."""


@value_within.of(InOrder)
def _(criterion, g, h, low, high):
    return mean(g, h)  # a split that is taken has values within them


@value_within.of(Clipped)
def _(criterion, g, h, low, high):
    return min(max(step(criterion.criterion, g, h), low), high)


@optional
def begin_node(criterion: Any, sums: Any) -> Any:
    """Prepare a thread for the splits of a node in all columns that are not monotonic; ``sums`` are the node's, its words included."""


@begin_node.of(InOrder)
def _(criterion, sums):
    _begin(criterion.constraints, sums)


@begin_node.of(Clipped)
def _(criterion, sums):
    _begin(criterion.constraints, sums)
    _lift(criterion, float(sums[0]), float(sums[1]))


@optional
def begin_column(criterion: Any, sums: Any, column: Any) -> Any:
    """Prepare a thread for the splits of a node in a column, given by its number in the whole table; tell whether the node may use it."""
    return True


@begin_column.of(InOrder, Clipped)
def _(criterion, sums, column):
    begin_node(criterion, sums)
    criterion.constraints.state[SIGN] = sign_of(criterion, column)
    return may_use(criterion, sums, column)


@optional
def may_use(criterion: Any, sums: Any, column: Any) -> Any:
    """Tell whether a node may use a column."""
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
    """Return 1 or -1 if predictions must rise or fall with a column, otherwise 0."""
    return np.int64(0)


@sign_of.of(InOrder, Clipped)
def _(criterion, column):
    signs = criterion.constraints.signs
    return np.int64(signs[column]) if signs.shape[0] > 0 else np.int64(0)


@lean_kernel
def _begin(constraints, sums):
    at, state = sums.shape[0] - n_words(constraints), constraints.state
    state[SIGN], state[LOW], state[HIGH] = 0.0, _bound_in(sums, at + LOWEST), _bound_in(sums, at + HIGHEST)


@lean_kernel
def _lift(criterion, g, h):
    """Note what the bounds of a node do to its own value: see :func:`score` of :class:`Clipped`."""
    state = criterion.constraints.state
    state[LIFT], state[MORE] = lift(criterion.criterion, g, h, state[LOW], state[HIGH])


@optional
def hand_down(criterion: Any, column: Any, left: Any, right: Any) -> Any:
    """Write the words of both children of a split on a column, after their sums.

    ``left`` has the words of their parent so far; what ``right`` has in their place does not matter.
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
    """Return the bits of the middle of the values of both children, whose words are their parent's so far."""
    low, high = _bound_in(left, at + LOWEST), _bound_in(left, at + HIGHEST)
    one, other = value_within(criterion, left[0], left[1], low, high), value_within(criterion, right[0], right[1], low, high)
    return _bits_of((one + other) / 2.0)


@_middle.of(Deviations)
def _(inner, criterion, left, right, at):
    return left[at + BETWEEN]


@optional
def note_words(criterion: Any, sums: Any, left: Any) -> None:
    """Write a node's words behind the sums of what its best split sends left."""


@note_words.of(InOrder, Clipped)
def _(criterion, sums, left):
    at = sums.shape[0] - n_words(criterion.constraints)
    for k in range(at, sums.shape[0]):
        left[k] = sums[k]
    left[at + BETWEEN] = _bits_of(criterion.constraints.state[MIDDLE])


@kernel
def hand_down_all(criterion, columns, left, right):
    """Write the words of the children of splits, one in each row; see :func:`hand_down`."""
    for i in range(columns.shape[0]):
        hand_down(criterion, columns[i], left[i], right[i])


def divide_sums(
    criterion: Any, columns: NDArray[np.int32], sums: NDArray[np.int64], left: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sums of left and right children from those of the nodes that are split, and those that splits send left.

    Parameters
    ----------
    criterion : named tuple
    columns : ndarray of int32, shape (n,)
        Split on.
    sums, left : ndarray of int64, shape (n, n_sums)
    """
    right = sums - left
    if isinstance(criterion, InOrder | Clipped):
        left = left.copy()
        hand_down_all(criterion, columns, left, right)
    return left, right
