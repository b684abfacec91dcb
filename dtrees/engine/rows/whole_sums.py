"""Sums over the rows of all shards as one process makes them: of gradients, for the powers of two they are multiplied by, and of losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS, scores_of
from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.engine.rows import steps as s
from dtrees.engine.rows.exchange import Shards, Steps
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.targets.prepared import Derived, most_bits

_EPSILON = 2.0**-52
_LIMIT = 61


def exponents_of(shards: Shards, rows: RowsInTree, derived: list[Derived]) -> Steps[tuple[int, int]]:
    """Return the powers of two by which gradients and hessians are multiplied, as one process finds them."""
    return (yield from exponent_of(shards, rows, derived, 0)), (yield from exponent_of(shards, rows, derived, 1))


def exponent_of(shards: Shards, rows: RowsInTree, derived: Sequence[Derived], which: int) -> Steps[int]:
    """Return the power of two of gradients (0), hessians (1), or those of Newton steps (2)."""
    n_rows, most = shards.n_rows, most_bits(shards.plan.rules)[which]
    parts = [one.sums[which] for one in derived]
    if any(map(math.isnan, parts)):  # every hessian is 1, and is not put in fixed point
        return 0
    total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.inf
    error = total * (n_rows + 8) * _EPSILON
    if total == 0.0:
        return min(0, most)
    if not math.isfinite(total + error) or math.frexp(total - error)[1] != math.frexp(total + error)[1]:
        total = yield from sum_in_order(shards, rows, ("g", "h", "step")[which])
    if math.isfinite(total):
        return min(_LIMIT - math.frexp(total)[1], most)
    exponent = _LIMIT - math.frexp(max(one.largest[which] for one in derived))[1]
    n = n_rows
    while n > 0:
        exponent -= 1
        n >>= 1
    return min(exponent, most)


def sum_in_order(shards: Shards, rows: RowsInTree, what: str, counts: list[NDArray[np.int64]] | None = None) -> Steps[float]:
    """Return a sum over all rows as one process makes it, ``counts[shard][i]`` of stretch i; by default, of all."""
    lanes, first = np.zeros(4), 0
    sizes = [some[:, 1] - some[:, 0] for some in shards.stretches] if counts is None else counts
    total = int(sum(some.sum() for some in sizes))
    for shard, i in shards.by_stretches:
        lanes = yield from shards.of_one("sum in order", shard, partial(rows.add_in_order, what, i, first, total, lanes))
        first += int(sizes[shard][i])
    one, other, third, fourth = lanes.tolist()
    return (one + other) + (third + fourth)


def scores_of_all(n_rows: int, losses: list[s.BlockLosses], weights: NDArray[np.float64], undrawn: float, score: float | None) -> Scores:
    """Return the mean losses by those of all shards' rows, and the score of those held out, if there is one.

    ``weights`` is what the rows trained on and held out weigh, ``undrawn`` what those trained on weigh that are not drawn, where rows are
    drawn for each round.
    """
    sums = np.zeros((-(-n_rows // BLOCK_ROWS), losses[0].sums.shape[1]))
    for one in losses:
        sums[one.block] = one.sums
    return scores_of([Losses(sums, np.append(weights, np.full(sums.shape[1] - weights.shape[0], undrawn)), score)])


def undrawn_weight(shards: Shards, rows: RowsInTree) -> Steps[float]:
    """Return what the rows trained on weigh that are not drawn, where rows are drawn for each round."""
    target = rows.boosting
    if not target.draws:
        return 0.0
    n_undrawn = yield from shards.gather("undrawn", target.undrawn_by_range())
    if target.weight is not None:
        return (yield from sum_in_order(shards, rows, "weight", n_undrawn))
    return float(sum(some.sum() for some in n_undrawn))
