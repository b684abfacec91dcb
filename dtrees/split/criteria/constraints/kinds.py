"""The constraints of a tree, and criteria that have them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import inlined_kernel
from dtrees.split.compile.specialised import specialised

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


@inlined_kernel
def step(g, h, penalty):
    """Return the Newton step of a side, without bounds."""
    return -float(g) / (float(h) + penalty)


@specialised
def unconstrained(criterion: Any) -> Any:
    """Return the criterion inside of a constrained one, any other as it is."""


@unconstrained.otherwise
def _(criterion):
    return criterion


@unconstrained.of(InOrder)
@unconstrained.of(Clipped)
def _(criterion):
    return criterion.criterion


@specialised
def is_constrained(criterion: Any) -> Any:
    """Tell whether columns differ in what their splits may be."""


@is_constrained.otherwise
def _(criterion):
    return False


@is_constrained.of(InOrder)
@is_constrained.of(Clipped)
def _(criterion):
    return True
