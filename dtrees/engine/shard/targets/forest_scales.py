"""What the trees of a forest have in common, found by who sees the targets and weights of all rows: the shard of a process, or one of many.

All targets that a tree learns together have one scale, that of the widest, as their gains are added up: a target whose values differ by a
millionth of another's has 20 bits less.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.plan.row_draws import Drawing, combine_weights, find_drawing
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.numbers.fixed_point import exponent_for, mean_of
from dtrees.split.search.deviations import MOST_WEIGHT, levels_of_several, weights_in_bits
from dtrees.split.table.columns import presort_column

_NONE, _NO_CODES = np.empty(0, np.int64), np.empty((0, 0), np.int64)


class ForestScales(NamedTuple):
    """What all trees have in common.

    Attributes
    ----------
    center : ndarray of float64, shape (n_targets,)
        What is taken from targets.
    exponents : tuple of int
        The powers of two that targets and weights are multiplied by, unless classes are weighed for each tree.
    vote_exponent : int
        Of the power of two that what leaves say of rows out of bag is multiplied by.
    drawing : Drawing or None
        None if trees have all rows.
    levels : ndarray of int64
        See :class:`~dtrees.engine.shard.targets.prepared.Prepared`.
    """

    center: NDArray[np.float64]
    exponents: tuple[int, int]
    vote_exponent: int
    drawing: Drawing | None
    levels: NDArray[np.int64] = _NONE


class ForestRows(NamedTuple):
    """What is known of all rows, or of some.

    Attributes
    ----------
    scales : ForestScales
    before : ndarray of int64, shape (n_groups, n_ranges)
        See :class:`~dtrees.engine.plan.row_draws.RowDraws`.
    numbers : ndarray, shape (n_rows,) or (0,)
        Of several targets, the same for rows that agree in all of them, and others for others.
    codes : ndarray of int64, shape (n_rows, n_targets) or (0, 0)
        Where there are levels, the numbers of the targets among these.
    """

    scales: ForestScales
    before: NDArray[np.int64]
    numbers: NDArray[Any] = _NONE
    codes: NDArray[np.int64] = _NO_CODES


def find_forest_rows(plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None, starts: NDArray[np.int64]) -> ForestRows:
    """Return what follows from the targets and weights of all rows.

    ``starts`` are the first rows of the ranges that rows lie in.

    Raises
    ------
    ValueError
        If the criterion is not defined for these targets, or targets or weights are out of range.
    """
    weight = combine_weights(weight, plan.class_weight, target)
    if weight is not None and not weight.any():
        raise ValueError("class_weight leaves no row with a weight above 0; wants classes of all targets above 0 that some row has")
    if not plan.n_classes:
        target = without_absent(target, weight)
    drawing, before = None, np.empty((0, starts.shape[0]), np.int64)
    if plan.n_draws is not None:
        drawing, before = find_drawing(plan, target, weight, starts)
    center, exponents, levels, codes = np.zeros(1), (0, 0), _NONE, _NO_CODES
    weighs = plan.n_draws is None and weight is not None
    by_target = target.reshape(target.shape[0], -1)
    if plan.n_classes:
        if weighs:
            exponents = (weight_exponent(cast(NDArray[np.float64], weight)),) * 2
    elif criterion_of(plan.rules).row_statistic == "rank":
        exponents, levels, codes = _levels_of(plan, by_target, weight)
    else:
        center = _center_of(plan, by_target, weight)
        exponents = _exponents_of(plan, by_target - center, weight)
    largest = 1.0 if plan.n_classes else float(np.abs(target).max(initial=0.0)) or 1.0
    vote_exponent = 40 - math.frexp(largest)[1]  # for up to 2**22 trees
    numbers = numbered(target) if plan.targets else _NONE
    return ForestRows(ForestScales(center, exponents, vote_exponent, drawing, levels), before, numbers, codes)


def _center_of(plan: ForestPlan, by_target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the means of targets, of rows that count, or zeros where criteria or numbers do not allow for it; check the targets."""
    counted, criterion = by_target if weight is None else by_target[weight > 0], criterion_of(plan.rules)
    for one in counted.T:
        criterion.check(one)
    center = np.zeros(by_target.shape[1])
    if criterion.row_statistic == "target":
        means = np.array([mean_of(one) for one in counted.T])
        center = means if np.isfinite(means).all() else center
    return center


def _exponents_of(plan: ForestPlan, centered: NDArray[np.float64], weight: NDArray[np.float64] | None) -> tuple[int, int]:
    """Return the powers of two that centred targets, which are centred, and weights are multiplied by."""
    if plan.n_draws is not None or weight is None:
        # Weights are counts here (or 1): the sum of drawn targets is below draws * max.
        n_counted = centered.shape[0] if weight is None else np.count_nonzero(weight > 0)
        bound = max(plan.n_draws or 0, n_counted) * float(np.abs(centered).max())
        if not math.isfinite(bound):
            return exponent_for(centered.ravel()), 0
        return 0 if bound == 0.0 else 61 - math.frexp(bound)[1], 0
    with np.errstate(over="ignore"):
        weighted = weight[:, np.newaxis] * centered
    if not np.isfinite(weighted).all():
        raise ValueError("sample_weight times y is beyond the range of float64; divide sample_weight by a constant, it changes no tree")
    return exponent_for(weighted.ravel()), weight_exponent(weight)


def _levels_of(
    plan: ForestPlan, by_target: NDArray[Any], weight: NDArray[np.float64] | None
) -> tuple[tuple[int, int], NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct values of all targets through, and put them in fixed point of one scale.

    Return the powers of two that targets and weights are multiplied by, the values, and the numbers of those of all rows.
    """
    criterion = criterion_of(plan.rules)
    factor = cast(Deviations, criterion.for_targets() if plan.targets else criterion.for_kernels(0, 0.0)).largest
    presorted = [presort_column(np.ascontiguousarray(one, np.float64)) for one in by_target.T]
    first = np.cumsum([0, *(distinct.shape[0] for _, distinct in presorted)])
    codes = np.stack([codes + first[t] for t, (codes, _) in enumerate(presorted)], axis=1).astype(np.int64)
    total_weight, exponent = plan.n_draws or by_target.shape[0], 0
    if plan.n_draws is None and weight is not None:
        weights, exponent = weights_in_bits(weight, factor)
        total_weight = int(weights.sum())
    if total_weight * factor > MOST_WEIGHT:
        raise ValueError(
            f"{total_weight:,} rows are too many for criterion={plan.rules.criterion!r} with alpha={plan.rules.alpha}, whose "
            f"deviations count up to {factor} times; wants a fraction of a smaller denominator, such as alpha=0.9"
        )
    levels, level_exponent = levels_of_several([distinct for _, distinct in presorted], total_weight * factor)
    return (level_exponent, exponent), levels, codes


def weight_exponent(weight: NDArray[np.float64]) -> int:
    """Return the power of two that weights are multiplied by; whole numbers stay as they are, if they can."""
    return exponent_for(weight, integral=bool((weight == np.rint(weight)).all()))


def without_absent(target: NDArray[Any], weight: NDArray[np.float64] | None, instead: Any = None) -> NDArray[Any]:
    """Return targets of which those of rows of weight 0 are replaced, by default by the first that counts: no scale depends on them."""
    if weight is None or weight.all():
        return target
    instead = target[np.argmax(weight > 0)] if instead is None else instead
    return np.where((weight > 0)[(...,) + (None,) * (target.ndim - 1)], target, instead)


def numbered(target: NDArray[Any]) -> NDArray[np.float64]:
    """Return the same number for rows that agree in all targets, and others for others."""
    order = np.lexsort(target.T)
    ordered = target[order]
    differs = np.any(ordered[1:] != ordered[:-1], axis=1)
    numbers = np.empty(target.shape[0])
    numbers[order] = np.concatenate([[0], np.cumsum(differs)])
    return numbers
