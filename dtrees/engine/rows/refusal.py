"""Which fits cannot be grown over shards of rows, and why."""

from __future__ import annotations

from typing import Any

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan


def rows_placement_refusal(plan: ForestPlan | BoostingPlan, loss: Any = None) -> str | None:
    """Return why a plan cannot be grown where rows stay where they are, naming the parameter; None if it can.

    ``loss`` is the loss as the user gave it: a name, or a function.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import ForestPlan, Rules
    >>> rows_placement_refusal(ForestPlan(Rules("squared_error", 3, 3), seed=0))
    >>> print(rows_placement_refusal(ForestPlan(Rules("absolute_error", 3, 3), seed=0))[:57])
    placement="rows" does not take criterion='absolute_error'
    """
    if isinstance(plan, ForestPlan):
        return _refusal_of_forest(plan)
    given = getattr(loss, "__name__", None) or repr(plan.loss if loss is None else loss)
    if plan.loss.measures_leaves and plan.loss.residual_quantile is None:
        return (
            f'placement="rows" does not take loss={given}: its leaves are measured on rows in one place, and are no quantiles of residuals'
        )
    if plan.loss.takes_all_rows:
        return (
            f'placement="rows" does not take loss={given}: an objective of your own is called on y, raw predictions and weights of all '
            "rows at once, and no worker has these"
        )
    return None


def _refusal_of_forest(plan: ForestPlan) -> str | None:
    from dtrees.split.criteria.criterion import criterion_named  # brings in the compiler

    if not criterion_named(plan.rules.criterion).by_sums:
        return (
            f'placement="rows" does not take criterion={plan.rules.criterion!r}: what a split is worth follows from the order of the '
            "targets of all rows in a node, not from sums"
        )
    return targets_refusal(max(1, len(plan.targets)))


def targets_refusal(n_targets: int) -> str | None:
    """Return why forests, and single trees, cannot be grown there for so many targets; None if they can.

    Examples
    --------
    >>> targets_refusal(1)
    >>> targets_refusal(3)
    'placement="rows" does not take y of 3 targets for trees and forests: sums by zones are of one target'
    """
    if n_targets > 1:
        return f'placement="rows" does not take y of {n_targets} targets for trees and forests: sums by zones are of one target'
    return None
