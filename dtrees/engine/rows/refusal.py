"""Reasons why a fit cannot be grown over shards of rows."""

from __future__ import annotations

from typing import Any

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan


def rows_placement_refusal(plan: ForestPlan | BoostingPlan, loss: Any = None) -> str | None:
    """Return the reason, with the parameter's name, why a plan cannot be grown over shards of rows; None if it can.

    ``loss`` is the loss as given by the user: a name or a function.

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
    if plan.loss.measures_leaves and plan.loss.residual_quantiles is None:
        return (
            f'placement="rows" does not take loss={given}: its leaves are measured on rows in one place, and are no quantiles of residuals'
        )
    return None


def too_many_rows(n_rows: int) -> str | None:
    """Return the reason why a table of this size cannot be grown over shards of rows; None if it can."""
    from dtrees.split.zones.sums import MAX_PACKED_ROWS  # imports Numba

    if n_rows < MAX_PACKED_ROWS:
        return None
    return f'placement="rows" takes fewer than {MAX_PACKED_ROWS} rows, as their numbers are packed with sums; X has {n_rows}'


def _refusal_of_forest(plan: ForestPlan) -> str | None:
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    if not criterion_named(plan.rules.criterion).by_sums:
        return (
            f'placement="rows" does not take criterion={plan.rules.criterion!r}: what a split is worth follows from the order of the '
            "targets of all rows in a node, not from sums"
        )
    return None
