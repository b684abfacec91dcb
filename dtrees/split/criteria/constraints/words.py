"""What constraints know of a node: its words, which are handed down to its children."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints.kinds import (
    BETWEEN,
    HIGH,
    HIGHEST,
    LIFT,
    LOW,
    LOWEST,
    MIDDLE,
    MORE,
    PATH,
    SIGN,
    Clipped,
    Constraints,
    InOrder,
    lift,
    mean,
    n_words,
    step,
)


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
