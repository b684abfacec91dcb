"""Requirements of a fit on the placement of its table.

They follow from parameters and arguments, so that they are known before the table is loaded. A placement that does not meet one is refused
with its reason, and is not chosen by "auto" (:mod:`dtrees.cluster.data.placement`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from dtrees.engine.plan.plans import Loss

#: All rows on one worker, for some of the columns; all rows and columns on one worker; trees that grow one after the other.
ALL_ROWS, WHOLE_TABLE, IN_TURN = "all rows", "whole table", "in turn"


class Want(NamedTuple):
    """A requirement, and why: a text that names the parameter or argument."""

    what: str
    reason: str


ROUNDS = Want(IN_TURN, "in boosting each tree depends on those before it")
BAG = Want(WHOLE_TABLE, "X is for a bag, each of whose boosters grows on one worker")
SPARSE = Want(WHOLE_TABLE, "X is sparse, and trees of a sparse table grow on one worker")
WEIGHTS_OF_ALL = Want(ALL_ROWS, "sample_weight without bootstrap draws each row at most once, by the weights of all rows")


def of_criterion(criterion: str) -> tuple[Want, ...]:
    """Return the requirements of trees and forests.

    >>> of_criterion("squared_error"), of_criterion("absolute_error")[0].what
    ((), 'all rows')
    """
    from dtrees.split.criteria.criterion import criterion_named  # imports Numba

    reason = f"criterion={criterion!r} rates a split by the order of the targets of all rows in a node, not by sums"
    return () if criterion_named(criterion).by_sums else (Want(ALL_ROWS, reason),)


def of_loss(loss: Loss, given: Any) -> tuple[Want, ...]:
    """Return the requirements of boosting; ``given`` is the loss as the user gave it."""
    reason = f"loss={given!r} measures leaves on all of their rows, other than by quantiles of residuals"
    return (ROUNDS, Want(ALL_ROWS, reason)) if loss.measures_leaves and loss.residual_quantiles is None else (ROUNDS,)


def of_rows(n_rows: int) -> tuple[Want, ...]:
    """Return the requirements of a table with this number of rows."""
    from dtrees.split.zones.sums import MAX_PACKED_ROWS  # imports Numba

    reason = f"X has {n_rows} rows, and their numbers are packed with sums only below {MAX_PACKED_ROWS}"
    return () if n_rows < MAX_PACKED_ROWS else (Want(ALL_ROWS, reason),)
