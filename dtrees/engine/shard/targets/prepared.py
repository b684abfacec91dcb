"""What a tree is grown on, as targets prepare it: integers that are summed, the powers of two they were multiplied by, and their sums."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import Rules
from dtrees.engine.threads import Threads
from dtrees.split.criteria.several import add_up_amounts, add_up_classes
from dtrees.split.node.partition import RowPartition, gather
from dtrees.split.numbers.fixed_point import add_up
from dtrees.split.policy import GATHERED_ROWS

_NONE = np.empty(0, np.int64)
#: No power of two is as large.
NO_LIMIT = 2**31


class Prepared(NamedTuple):
    """What one tree is grown on, by row number.

    Attributes
    ----------
    in_sample : ndarray of bool, shape (n_rows,), or None
        None: all rows.
    g, h : ndarray of int64, shape (n_rows,)
        ``h`` is empty where every weight is 1.
    exponents : tuple of int
        The powers of two that ``g`` and ``h`` were multiplied by.
    pure_by : ndarray of float64, shape (n_rows,) or (0,)
        Nodes in which this is constant are leaves.
    levels : ndarray of int64, shape (n_targets,) or (0,)
        For absolute error and quantiles, where ``g`` are the numbers of targets: the targets in fixed point
        (:mod:`dtrees.split.search.deviations`).
    spent : bool
        Whether ``g`` and ``h`` were made for this tree, which may overwrite them, until the next tree.
    totals : tuple or None
        What all rows add up to (:func:`~dtrees.split.numbers.fixed_point.add_up`), if that is known already.
    targets : ndarray of int64, shape (n_rows, n_targets), or None
        Several targets (:class:`~dtrees.engine.plan.node_limits.Targets`); then ``g`` are the numbers of the rows.
    """

    in_sample: NDArray[np.bool_] | None
    g: NDArray[np.int64]
    h: NDArray[np.int64]
    exponents: tuple[int, int]
    pure_by: NDArray[np.float64]
    levels: NDArray[np.int64] = _NONE
    spent: bool = False
    totals: tuple[int, int, int, float] | None = None
    targets: NDArray[np.int64] | None = None


class Derived(NamedTuple):
    """What the powers of two follow from, of some rows: absolute sums of g and of h (NaN where every h is 1), and the largest of each.

    Where Newton steps have hessians of their own, these are third. ``n_in`` rows are in sample; ``integral`` tells whether all h are whole
    numbers, where they are weights.
    """

    sums: tuple[float, ...]
    largest: tuple[float, ...]
    n_in: int
    integral: bool = False


def most_bits(rules: Rules) -> tuple[int, int, int]:
    """Return up to which power of two gradients, hessians and hessians of Newton steps are multiplied by.

    Past 120 bits the L2 penalty dwarfs every hessian that splits are found by; further bits could only overflow.
    """
    penalty = rules.reg_lambda
    return NO_LIMIT, 120 - (math.frexp(penalty)[1] if penalty > 0 else 0), NO_LIMIT


def by_output(target: NDArray[Any]) -> NDArray[Any]:
    """Return targets as losses take them: of several, all rows of one side by side, as raw predictions lie."""
    return target if target.ndim == 1 else np.ascontiguousarray(target.T)


def add_up_sample(
    threads: Threads, rows: RowPartition, n_in: int, a: NDArray[np.int64], b: NDArray[np.int64], in_order: bool
) -> tuple[int, int, int, float]:
    """Put what rows in sample add to sums in their order, if it is not, and add it up; see :func:`~dtrees.split.node.partition.gather`."""

    def take(some: slice) -> tuple[int, int, int, float]:
        found: tuple[int, int, int, float]
        found = add_up(a[some], b[some]) if in_order else gather(rows, some.start, some.stop, a, b)
        return found

    total_a, total_b, size, slope = zip(*threads.map_stretches(take, n_in, GATHERED_ROWS), strict=True)
    return sum(total_a), sum(total_b), sum(size), max(slope)


def many_sums(kept: SumsKept, rows: RowPartition, n_in: int, targets: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the sums of the rows in sample where these are not moments: of each class, or of each of several targets and of weights.

    ``targets`` are what rows add to the sums of several targets.
    """
    if not kept.n_numbers:
        return None
    sums, h = np.zeros(kept.n_sums, np.int64), rows.h[:n_in]
    if not kept.targets:
        np.add.at(sums, rows.g[:n_in], h if h.shape[0] else 1)
        return sums
    assert targets is not None
    if kept.n_classes:
        add_up_classes(targets, rows.rows[:n_in], h, sums[:-1])
    else:
        add_up_amounts(targets, rows.rows[:n_in], sums[:-1])
    sums[-1] = h.sum() if h.shape[0] else n_in
    return sums
