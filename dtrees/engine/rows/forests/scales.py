"""What the trees of a forest have in common, found out by the shard that is sent the targets and weights of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.rows.all_rows import rows_of
from dtrees.engine.rows.forests.messages import ForestScales
from dtrees.engine.shard.targets.forest_target import ForestTarget, largest_vote, without_absent
from dtrees.engine.shard.targets.several_targets import ForestTargets

_NONE = np.empty(0, np.int64)


def scales_of(
    plan: ForestPlan, target: NDArray[Any], weight: NDArray[np.float64] | None, stretches: Sequence[NDArray[np.int64]]
) -> tuple[ForestScales, list[tuple[NDArray[Any], ...]]]:
    """Return the scales of a forest, as one process has them, and for each shard what rows before its stretches come to.

    Of several targets, each shard's rows are numbered besides, the same where all targets are
    (:class:`~dtrees.engine.rows.forests.several_targets.ForestRowsOfTargets`).

    Parameters
    ----------
    plan : ForestPlan
    target, weight : ndarray
        Of all rows.
    stretches : sequence of ndarray of int64, shape (n, 2)
        Of each shard.

    Raises
    ------
    ValueError
        If the criterion is not defined for these targets.
    """
    if not plan.n_classes:
        target = without_absent(target, weight)
    one = (ForestTargets if plan.targets else ForestTarget)(replace(plan, out_of_bag=False), target, weight)
    largest = largest_vote(plan, target)
    numbers = [(one.target[rows_of(some)].astype(np.uint32),) if plan.targets else () for some in stretches]
    if one.draws is None:
        scales = ForestScales(one.center, one.exponents, largest, 0, 0, _NONE, _NONE)
        before = [np.empty((0, some.shape[0]), np.int64) for some in stretches]
        return scales, [(mine, *own) for mine, own in zip(before, numbers, strict=True)]
    classes = _NONE
    if plan.balanced_draws:
        classes = np.unique(target if one.weight is None else target[one.weight > 0]).astype(np.int64)
    points = one.draws.points_before(np.array([target.shape[0]]))[:, 0]
    scales = ForestScales(one.center, one.exponents, largest, one.draws.n_each, one.draws.exponent, points, classes)
    before = [one.draws.points_before(some[:, 0]) for some in stretches]
    return scales, [(mine, *own) for mine, own in zip(before, numbers, strict=True)]
