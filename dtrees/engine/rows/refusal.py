"""Which fits cannot be grown over shards of rows, and why."""

from __future__ import annotations

from dtrees.engine.plan.plans import BoostingPlan, ForestPlan


def rows_placement_refusal(plan: ForestPlan | BoostingPlan, loss: str | None = None) -> str | None:
    """Return why a plan cannot be grown where rows stay where they are, naming the parameter; None if it can.

    ``loss`` is the loss as the user gave it.

    Examples
    --------
    >>> from dtrees.engine.plan.plans import ForestPlan, Rules
    >>> rows_placement_refusal(ForestPlan(Rules("squared_error", 3, 3), seed=0))
    'placement="rows" is for gradient boosting: the trees of a forest each draw rows of the whole table'
    """
    if not isinstance(plan, BoostingPlan):
        return 'placement="rows" is for gradient boosting: the trees of a forest each draw rows of the whole table'
    rules, given = plan.rules, repr(plan.loss) if loss is None else repr(loss)
    if plan.loss.measures_leaves and plan.loss.residual_quantile is None:
        return (
            f'placement="rows" does not take loss={given}: its leaves are measured on rows in one place, and are no quantiles of residuals'
        )
    if plan.loss.takes_all_rows:
        return f'placement="rows" does not take loss={given}: its gradients are computed from all rows at once'
    if rules.random_splits:
        return 'placement="rows" does not take random thresholds: where they lie follows from the range of all rows'
    return None
