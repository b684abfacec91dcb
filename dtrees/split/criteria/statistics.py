"""Statistics: the sums over a set of rows from which criteria are computed.

Every row carries two integers, ``a`` and its weight ``b``. The sums over a set of rows are a *statistic* of one of these kinds:

moments (:class:`Moments`)
    ``g`` is the sum of ``a``, ``h`` that of the weights. For squared error ``a`` is the weight times the centred target, for Newton
    boosting the gradient (and ``b`` the hessian), for two classes the weight of a row of class 1 and otherwise 0.
classes (:class:`Classes`)
    ``a`` is the class of a row; the weight of each class is summed.
amounts of several targets (:class:`AmountsOfTargets`)
    ``a`` is the number of a row, by which its amounts are found: one for each target, like ``a`` for a single target. They are summed
    side by side.
classes of several targets (:class:`ClassesOfTargets`)
    ``a`` is the number of a row, by which its class in each target is found; the weight of each class of each target is summed.

A search is written once, in terms of the functions below, and Numba compiles it for each kind. All kinds but moments have their sums in
an array: their common version (``otherwise``) asks which of the sums a row changes (:func:`which_sum`), and by how much
(:func:`amount_of`).

A node's statistic is stored as an array of int64: (g, h), or the weight of each class; for several targets these sums and then h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inlined_kernel
from dtrees.split.compile.specialised import optional, specialised

#: Rows of an array of the sums of zones: g, h and number of rows before each zone, the same at its end, and its sum of abs(g).
G0, H0, N0, G1, H1, N1, SIZE = 0, 1, 2, 3, 4, 5, 6


class Moments(NamedTuple):
    """Sums of a set of rows, its weight ``h``, and its number of rows."""

    g: Any
    h: Any
    n: Any


class Classes(NamedTuple):
    """The weight of each class in a set of rows, the weight of all, and its number of rows."""

    sums: NDArray[np.int64]
    h: Any
    n: Any


class AmountsOfTargets(NamedTuple):
    """Sums of the amounts of several targets over a set of rows, its weight ``h``, and its number of rows.

    ``rows`` are the amounts of all rows of the table, shape (n_rows, n_targets).
    """

    rows: NDArray[np.int64]
    sums: NDArray[np.int64]
    h: Any
    n: Any


class ClassesOfTargets(NamedTuple):
    """The weight of each class of each target in a set of rows, the weight of all, and its number of rows.

    ``rows`` are the classes of all rows of the table, shape (n_rows, n_targets), in a common numbering: the classes of target t start at
    ``first[t]``.
    """

    rows: NDArray[np.int64]
    first: NDArray[np.int64]
    sums: NDArray[np.int64]
    h: Any
    n: Any


@specialised
def with_sums(statistic: Any, sums: Any, h: Any, n: Any) -> Any:
    """Return a statistic of the same kind with other sums; for all kinds but moments."""


@with_sums.of(Classes)
def _(statistic, sums, h, n):
    return Classes(sums, h, n)


@with_sums.of(AmountsOfTargets)
def _(statistic, sums, h, n):
    return AmountsOfTargets(statistic.rows, sums, h, n)


@with_sums.of(ClassesOfTargets)
def _(statistic, sums, h, n):
    return ClassesOfTargets(statistic.rows, statistic.first, sums, h, n)


@specialised
def n_first_classes(statistic: Any) -> Any:
    """Return the number of classes of the first target; every row has one of them."""


@n_first_classes.of(Classes)
def _(statistic):
    return statistic.sums.shape[0]


@n_first_classes.of(ClassesOfTargets)
def _(statistic):
    return statistic.first[1]


@optional
def nothing(statistic: Any, buffer: Any) -> Any:
    """Return the statistic of no rows, of the same kind; ``buffer`` holds the sums of all kinds but moments."""
    sums = buffer[: statistic.sums.shape[0]]
    sums[:] = 0
    return with_sums(statistic, sums, ZERO(), ZERO())


@nothing.of(Moments)
def _(statistic, buffer):
    return no_moments()


@optional
def n_sums(statistic: Any) -> Any:
    """Return the number of sums, without weights."""
    return statistic.sums.shape[0]


@n_sums.of(Moments)
def _(statistic):
    return ZERO() + 1


@optional
def n_changed(statistic: Any) -> Any:
    """Return the number of sums that a row changes."""
    return statistic.rows.shape[1]


@n_changed.of(Moments, Classes)
def _(statistic):
    return 1


@specialised
def which_sum(statistic: Any, a: Any, t: Any) -> Any:
    """Return the number of the ``t``-th sum that a row changes."""


@which_sum.of(Moments)
def _(statistic, a, t):
    return ZERO()


@which_sum.of(Classes)
def _(statistic, a, t):
    return a


@which_sum.of(AmountsOfTargets)
def _(statistic, a, t):
    return t


@which_sum.of(ClassesOfTargets)
def _(statistic, a, t):
    return statistic.rows[a, t]


@optional
def amount_of(statistic: Any, a: Any, t: Any, weight: Any) -> Any:
    """Return the amount that a row adds to the ``t``-th sum that it changes."""
    return weight


@amount_of.of(Moments)
def _(statistic, a, t, weight):
    return a


@amount_of.of(AmountsOfTargets)
def _(statistic, a, t, weight):
    return statistic.rows[a, t]


@optional
def plus_row(statistic: Any, a: Any, weight: Any) -> Any:
    """Return a statistic with one more row. For all kinds but moments, sums are changed in place."""
    for t in range(n_changed(statistic)):
        statistic.sums[which_sum(statistic, a, t)] += amount_of(statistic, a, t, weight)
    return with_sums(statistic, statistic.sums, statistic.h + weight, statistic.n + 1)


@plus_row.of(Moments)
def _(statistic, a, weight):
    return Moments(statistic.g + a, statistic.h + weight, statistic.n + 1)


@optional
def plus(one: Any, other: Any, buffer: Any) -> Any:
    """Return the statistic of the union of two sets of rows. For all kinds but moments, sums are written to ``buffer``."""
    for k in range(buffer.shape[0]):
        buffer[k] = one.sums[k] + other.sums[k]
    return with_sums(one, buffer, one.h + other.h, one.n + other.n)


@plus.of(Moments)
def _(one, other, buffer):
    return Moments(one.g + other.g, one.h + other.h, one.n + other.n)


@optional
def minus(one: Any, other: Any, buffer: Any) -> Any:
    """Return the difference of two statistics. For all kinds but moments, sums are written to ``buffer``."""
    for k in range(buffer.shape[0]):
        buffer[k] = one.sums[k] - other.sums[k]
    return with_sums(one, buffer, one.h - other.h, one.n - other.n)


@minus.of(Moments)
def _(one, other, buffer):
    return Moments(one.g - other.g, one.h - other.h, one.n - other.n)


@optional
def write_sums(statistic: Any, out: Any) -> None:
    """Write the sums of a statistic to an array of int64."""
    n_sums = statistic.sums.shape[0]
    for k in range(n_sums):
        out[k] = statistic.sums[k]
    out[n_sums] = statistic.h


@write_sums.of(Moments)
def _(statistic, out):
    out[0] = statistic.g
    out[1] = statistic.h


@write_sums.of(Classes)
def _(statistic, out):
    for k in range(statistic.sums.shape[0]):
        out[k] = statistic.sums[k]


@inlined_kernel
def no_moments():
    """Return the moments of no rows."""
    return Moments(ZERO(), ZERO(), ZERO())


@inlined_kernel
def weight_at(b, place):
    """Return the weight of the row at a place; it is 1 if ``b`` is empty."""
    return b[place] if b.shape[0] > 0 else np.int64(1)
