"""What a tree is grown on, as targets prepare it: integers that are summed, and the powers of two that they were multiplied by."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import Rules

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
