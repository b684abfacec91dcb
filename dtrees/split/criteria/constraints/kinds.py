"""The constraints of a tree, criteria that have them, and splits that are ruled out since the values of both sides are out of order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import optional
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
