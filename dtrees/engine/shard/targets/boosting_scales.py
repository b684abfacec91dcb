"""What boosting starts from, found by who sees the targets and weights of all rows: the shard of a process, or one of many."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import BoostingPlan
from dtrees.engine.plan.row_draws import combine_weights
from dtrees.engine.shard.targets.prepared import by_output
from dtrees.split.numbers import hashing
from dtrees.split.numbers.fixed_point import absolute_sum
from dtrees.split.search.deviations import weights_in_bits


class BoostingScales(NamedTuple):
    """What all rows have in common.

    Attributes
    ----------
    initial : ndarray of float64, shape (K,) or (K, n_rows)
        The raw prediction to start from.
    weights : ndarray of float64, shape (2,)
        What the rows trained on, and those held out, weigh.
    weight_exponent : int
        Of the power of two that weights are multiplied by where they decide about quantiles.
    """

    initial: NDArray[np.float64]
    weights: NDArray[np.float64]
    weight_exponent: int


class BoostedRows(NamedTuple):
    """What is known of all rows.

    Attributes
    ----------
    scales : BoostingScales
    held_out : ndarray of bool, shape (n_rows,), or None
        Which are only validated on.
    eligible : ndarray of uint8
        A bit for each, whether it may be drawn for a round; empty if all may.
    """

    scales: BoostingScales
    held_out: NDArray[np.bool_] | None
    eligible: NDArray[np.uint8]


def find_boosted_rows(
    plan: BoostingPlan, target: NDArray[Any], weight: NDArray[np.float64] | None, initial: NDArray[np.float64] | None
) -> BoostedRows:
    """Return what follows from the targets and weights of all rows; raise ValueError if the loss is not defined for these.

    ``initial`` is where to start from; None lets the loss choose.
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
    return BoostedRows(BoostingScales(np.array(initial, np.float64), np.array(weights), exponent), held_out, eligible)


def rows_held_out(plan: BoostingPlan, target: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.bool_] | None:
    """Draw the rows held out for validation, a share of each class, but never all that it has; None if the plan holds out none.

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


def rows_trained_on(held_out: NDArray[np.bool_] | None, weight: NDArray[np.float64] | None) -> NDArray[np.bool_] | None:
    """Return which rows are trained on, None for all: those that are not held out, and weigh more than nothing."""
    train = None if held_out is None else ~held_out
    if weight is not None and not weight.all():
        train = weight > 0 if train is None else train & (weight > 0)
    return train


def weight_of(n_rows: int, weight: NDArray[np.float64] | None, part: NDArray[np.bool_] | None) -> float:
    """Return what the rows of a part, None for all, weigh."""
    if weight is None:
        return float(n_rows if part is None else np.count_nonzero(part))
    return float(absolute_sum(weight if part is None else weight[part]))
