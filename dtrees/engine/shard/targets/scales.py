"""Integer inputs of trees, and the scales (powers of two) by which targets and weights are converted to integers.

Scales are computed once, by the shard that has the targets and weights of all rows. Multi-output targets share one scale, that of the
widest target, as their gains are added up: a target whose range is a millionth of another's has 20 bits less.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import StoredSums, criterion_of
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan, Rules, Weights
from dtrees.engine.plan.row_draws import Drawing, combine_weights, find_drawing
from dtrees.engine.threads import Threads
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.several import add_up_amounts, add_up_classes
from dtrees.split.node.partition import RowPartition, gather
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import absolute_sum, add_up, exponent_for, mean_of
from dtrees.split.policy import GATHERED_ROWS
from dtrees.split.search.deviations import MOST_WEIGHT, levels_of, weights_in_bits
from dtrees.split.table.columns import presort_column

_NONE = np.empty(0, np.int64)
#: Larger than any exponent.
NO_LIMIT = 2**31


class Prepared(NamedTuple):
    """The inputs of one tree, by row number.

    Attributes
    ----------
    in_sample : ndarray of bool, shape (n_rows,), or None
        The rows from which the tree learns; None for all rows.
    g, h : ndarray of int64, shape (n_rows,)
        ``h`` is empty if every weight is 1.
    exponents : tuple of int
        The exponents of the powers of two that scale ``g`` and ``h``.
    pure_by : ndarray of float64, shape (n_rows,) or (0,)
        Nodes in which this is constant are leaves.
    levels : ndarray of int64, shape (n_targets,) or (0,)
        For absolute error and quantiles: the distinct targets in fixed point, of which ``g`` has the ranks
        (:mod:`dtrees.split.search.deviations`).
    spent : bool
        Whether ``g`` and ``h`` were made for this tree, and may be overwritten.
    totals : tuple or None
        The totals of all rows (:func:`~dtrees.split.numbers.fixed_point.add_up`), if known.
    targets : ndarray of int64, shape (n_rows, n_targets), or None
        Multi-output targets (:class:`~dtrees.engine.plan.node_limits.Targets`); ``g`` has row numbers then.
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
    """The statistics of rows that determine exponents: absolute sums of g and of h (NaN if every h is 1), and the largest of each.

    If Newton steps use other hessians, these come third. ``n_in`` rows are in sample; ``integral`` is set if all h are weights with integer
    values.
    """

    sums: tuple[float, ...]
    largest: tuple[float, ...]
    n_in: int
    integral: bool = False


def most_bits(rules: Rules) -> tuple[int, int, int]:
    """Return the largest exponents of gradients, hessians and hessians of Newton steps.

    With 120 bits, the L2 penalty dwarfs every hessian by which splits are found; further bits could only overflow.
    """
    penalty = rules.reg_lambda
    return NO_LIMIT, 120 - (math.frexp(penalty)[1] if penalty > 0 else 0), NO_LIMIT


def by_output(target: NDArray[Any]) -> NDArray[Any]:
    """Return targets in the layout of losses: multi-output targets as one contiguous row per output, like raw predictions."""
    return target if target.ndim == 1 else np.ascontiguousarray(target.T)


def add_up_sample(
    threads: Threads, rows: RowPartition, n_in: int, a: NDArray[np.int64], b: NDArray[np.int64], in_order: bool
) -> tuple[int, int, int, float]:
    """Order the summands of the rows in sample, unless they are, and add them up; see :func:`~dtrees.split.node.partition.gather`."""

    def take(some: slice) -> tuple[int, int, int, float]:
        found: tuple[int, int, int, float]
        found = add_up(a[some], b[some]) if in_order else gather(rows, some.start, some.stop, a, b)
        return found

    total_a, total_b, size, slope = zip(*threads.map_ranges(take, n_in, GATHERED_ROWS), strict=True)
    return sum(total_a), sum(total_b), sum(size), max(slope)


def many_sums(stored: StoredSums, rows: RowPartition, n_in: int, targets: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the sums of the rows in sample if these are not moments: weights by class, or sums by target and the weight.

    ``targets`` has the summands of rows for multi-output targets.
    """
    if not stored.n_numbers:
        return None
    sums, h = np.zeros(stored.n_sums, np.int64), rows.h[:n_in]
    if not stored.targets:
        np.add.at(sums, rows.g[:n_in], h if h.shape[0] else 1)
        return sums
    assert targets is not None
    if stored.n_classes:
        add_up_classes(targets, rows.rows[:n_in], h, sums[:-1])
    else:
        add_up_amounts(targets, rows.rows[:n_in], sums[:-1])
    sums[-1] = h.sum() if h.shape[0] else n_in
    return sums


class BoostedRows(NamedTuple):
    """The results computed from all rows in boosting, for all rows or for some.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,) or (K, n_rows)
        The initial raw prediction.
    weights : ndarray of float64, shape (2,)
        The total weight of training rows, and of held-out rows.
    weight_exponent : int
        The exponent of the scale of weights, if quantiles depend on weights.
    held_out : ndarray of bool, shape (n_rows,), or None
        The rows that are only used for validation.
    eligible : ndarray of uint8
        A bit for each row of the table that may be drawn for a round; empty if all may.
    n_rows : int
        Number of rows of the table.
    """

    initial: NDArray[np.float64]
    weights: NDArray[np.float64]
    weight_exponent: int
    held_out: NDArray[np.bool_] | None
    eligible: NDArray[np.uint8]
    n_rows: int


def find_boosted_rows(plan: BoostingPlan, target: NDArray[Any], weight: Weights, initial: NDArray[np.float64] | None) -> BoostedRows:
    """Return the results computed from the targets and weights of all rows; raise ValueError if the loss is not defined for them.

    ``initial`` is the initial raw prediction; None lets the loss choose.
    """
    weight = combine_weights(weight, plan.class_weight, target)
    held_out = rows_held_out(plan, target, weight)
    train = rows_trained_on(held_out, weight)
    some = by_output(target)[..., slice(None) if train is None else train]
    plan.loss.check(some)
    if initial is None:
        initial = plan.loss.initial(some, weight if weight is None or train is None else weight[train])
    exponent = 0
    if weight is not None and plan.loss.measures_leaves:
        exponent = weights_in_bits(weight if train is None else np.where(train, weight, 0.0))[1]
    weights = weight_of(target.shape[0], weight, train), 0.0 if held_out is None else weight_of(target.shape[0], weight, held_out)
    eligible = np.packbits(train if train is not None and plan.subsample < 1.0 else np.empty(0, np.bool_))
    return BoostedRows(np.array(initial, np.float64), np.array(weights), exponent, held_out, eligible, target.shape[0])


def rows_held_out(plan: BoostingPlan, target: NDArray[Any], weight: Weights) -> NDArray[np.bool_] | None:
    """Draw the held-out rows: a share of each class, but never all rows of a class; None if the plan holds out none.

    ``weight`` includes the weights of classes.
    """
    if not plan.holds_out:
        return None
    assert plan.validation_fraction is not None
    n, seed = target.shape[0], hashing.as_seed(plan.seed)
    held_out = np.zeros(n, np.bool_)
    chosen = np.empty(n, np.bool_)
    for k in range(max(plan.n_classes, 1)):
        eligible = target == k if plan.n_classes else np.ones(n, np.bool_)
        if weight is not None:
            eligible &= weight > 0
        n_eligible = int(eligible.sum())
        n_wanted = max(0, min(math.ceil(plan.validation_fraction * n_eligible), n_eligible - 1))
        hashing.subsample(seed, hashing.STREAM_VALIDATION, k, n_wanted, eligible, chosen)
        held_out |= chosen
    if not held_out.any():
        raise ValueError(
            f"n_iter_no_change={plan.n_iter_no_change} holds out some rows{' of each class' * bool(plan.n_classes)}, but "
            f"never the last one with a weight above 0, and of {n} rows none can be; wants more rows, or n_iter_no_change=None"
        )
    return held_out


def rows_trained_on(held_out: NDArray[np.bool_] | None, weight: Weights) -> NDArray[np.bool_] | None:
    """Return which rows are trained on, None for all: rows that are not held out and have a positive weight."""
    train = None if held_out is None else ~held_out
    if weight is not None and not weight.all():
        train = weight > 0 if train is None else train & (weight > 0)
    return train


def weights_trained_on(n_rows: int, weight: Weights, held_out: NDArray[np.bool_] | None) -> Weights:
    """Return the weights of rows, 0 for held-out rows; None if all rows have weight 1."""
    return weight if held_out is None else np.where(held_out, 0.0, np.ones(n_rows) if weight is None else weight)


def weight_of(n_rows: int, weight: Weights, part: NDArray[np.bool_] | None) -> float:
    """Return the total weight of the rows of a part, None for all rows."""
    if weight is None:
        return float(n_rows if part is None else np.count_nonzero(part))
    return float(absolute_sum(weight if part is None else weight[part]))


_NONE, _NO_CODES = np.empty(0, np.int64), np.empty((0, 0), np.int64)


class ForestRows(NamedTuple):
    """The results computed from all rows in a forest, for all rows or for some.

    Attributes
    ----------
    center : ndarray of float64, shape (n_targets,)
        Subtracted from targets.
    exponents : tuple of int
        The exponents of the scales of targets and weights, unless classes are weighed for each tree.
    vote_exponent : int
        The exponent of the scale of out-of-bag sums.
    drawing : Drawing or None
        None if trees use all rows.
    before : ndarray of int64, shape (n_groups, n_ranges)
        See :class:`~dtrees.engine.plan.row_draws.RowDraws`.
    levels : ndarray of int64
        See :class:`~dtrees.engine.shard.targets.scales.Prepared`.
    numbers : ndarray, shape (n_rows,) or (0,)
        For multi-output targets, a number for each distinct row of targets.
    codes : ndarray of int64, shape (n_rows, n_targets) or (0, 0)
        The ranks of targets, if there are levels.
    """

    center: NDArray[np.float64]
    exponents: tuple[int, int]
    vote_exponent: int
    drawing: Drawing | None
    before: NDArray[np.int64]
    levels: NDArray[np.int64] = _NONE
    numbers: NDArray[Any] = _NONE
    codes: NDArray[np.int64] = _NO_CODES


def find_forest_rows(plan: ForestPlan, target: NDArray[Any], weight: Weights, starts: NDArray[np.int64]) -> ForestRows:
    """Return the results computed from the targets and weights of all rows.

    ``starts`` are the first rows of the row ranges.

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
    return ForestRows(center, exponents, vote_exponent, drawing, before, levels, numbers, codes)


def _center_of(plan: ForestPlan, by_target: NDArray[Any], weight: Weights) -> NDArray[np.float64]:
    """Check the targets; return their means over rows that count, or zeros for classes and criteria that require it."""
    counted, criterion = by_target if weight is None else by_target[weight > 0], criterion_of(plan.rules)
    for one in counted.T:
        criterion.check(one)
    center = np.zeros(by_target.shape[1])
    if criterion.row_statistic == "target":
        means = np.array([mean_of(one) for one in counted.T])
        center = means if np.isfinite(means).all() else center
    return center


def _exponents_of(plan: ForestPlan, centered: NDArray[np.float64], weight: Weights) -> tuple[int, int]:
    """Return the exponents of the scales of centered targets and weights."""
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


def _levels_of(plan: ForestPlan, by_target: NDArray[Any], weight: Weights) -> tuple[tuple[int, int], NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct values of all targets consecutively, and convert them to fixed point with one scale.

    Return the exponents of targets and weights, the values, and the number of each row's value.
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
    levels, level_exponent = levels_of([distinct for _, distinct in presorted], total_weight * factor)
    return (level_exponent, exponent), levels, codes


def weight_exponent(weight: NDArray[np.float64]) -> int:
    """Return the exponent of the scale of weights; integers are not scaled if possible."""
    return exponent_for(weight, integral=bool((weight == np.rint(weight)).all()))


def without_absent(target: NDArray[Any], weight: Weights, instead: Any = None) -> NDArray[Any]:
    """Replace the targets of rows of weight 0, by default by the first target that counts, so that no scale depends on them."""
    if weight is None or weight.all():
        return target
    instead = target[np.argmax(weight > 0)] if instead is None else instead
    return np.where((weight > 0)[(...,) + (None,) * (target.ndim - 1)], target, instead)


def numbered(target: NDArray[Any]) -> NDArray[np.float64]:
    """Return a number for each row, equal for rows that agree in all targets, and different otherwise."""
    order = np.lexsort(target.T)
    ordered = target[order]
    differs = np.any(ordered[1:] != ordered[:-1], axis=1)
    numbers = np.empty(target.shape[0])
    numbers[order] = np.concatenate([[0], np.cumsum(differs)])
    return numbers
