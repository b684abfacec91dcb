"""Sums over the rows of all shards as one process makes them: of gradients, for the powers of two they are multiplied by, and of losses."""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Steps
from dtrees.engine.outcome.scoring import BLOCK_ROWS, scores_of
from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.engine.rows import messages as m
from dtrees.engine.rows.session import RowsSession, TreeSession

_EPSILON = 2.0**-52
_LIMIT, _NO_LIMIT = 61, 2**31


def exponents_of(session: TreeSession, derived: list[m.Derived]) -> Steps[tuple[int, int]]:
    """Return the powers of two by which gradients and hessians are multiplied, as one process finds them."""
    return (yield from exponent_of(session, derived, 0)), (yield from exponent_of(session, derived, 1))


def exponent_of(session: TreeSession, derived: list[m.Derived], which: int) -> Steps[int]:
    """Return the power of two of gradients (0), hessians (1), or those of Newton steps (2)."""
    n_rows, most = session.executor.n_rows, _most_bits(session.plan.rules.reg_lambda)[which]
    parts = [one.sums[which] for one in derived]
    if any(map(math.isnan, parts)):  # every hessian is 1, and is not put in fixed point
        return 0
    total = math.fsum(parts) if all(map(math.isfinite, parts)) else math.inf
    error = total * (n_rows + 8) * _EPSILON
    if total == 0.0:
        return min(0, most)
    if not math.isfinite(total + error) or math.frexp(total - error)[1] != math.frexp(total + error)[1]:
        total = yield from _sum_in_order(session, ("g", "h", "step")[which])
    if math.isfinite(total):
        return min(_LIMIT - math.frexp(total)[1], most)
    exponent = _LIMIT - math.frexp(max(one.largest[which] for one in derived))[1]
    n = n_rows
    while n > 0:
        exponent -= 1
        n >>= 1
    return min(exponent, most)


def _most_bits(penalty: float) -> tuple[int, int, int]:
    """Return how many bits they may have: past 120 the L2 penalty dwarfs every hessian that splits are found by."""
    return _NO_LIMIT, 120 - (math.frexp(penalty)[1] if penalty > 0 else 0), _NO_LIMIT


def _sum_in_order(session: TreeSession, what: str, counts: list[NDArray[np.int64]] | None = None) -> Steps[float]:
    """Return a sum over all rows as one process makes it, ``counts[shard][i]`` of stretch i; by default, of all."""
    lanes, first = np.zeros(4), 0
    sizes = [some[:, 1] - some[:, 0] for some in session.stretches] if counts is None else counts
    total = int(sum(some.sum() for some in sizes))
    every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(session.stretches) for i in range(some.shape[0]))
    for _, shard, i in every:
        replies = yield {shard: m.AddInOrder(session.fit, session.epoch, what, i, first, total, lanes)}
        lanes = cast(NDArray[np.float64], replies[shard])
        first += int(sizes[shard][i])
    one, other, third, fourth = lanes.tolist()
    return (one + other) + (third + fourth)


def scores_of_all(session: RowsSession, losses: list[m.BlockLosses], score: float | None) -> Scores:
    """Return the mean losses by those of all shards' rows, and the score of those held out, if there is one."""
    n_blocks = -(-session.executor.n_rows // BLOCK_ROWS)
    sums = np.zeros((n_blocks, losses[0].sums.shape[1]))
    for one in losses:
        sums[one.block] = one.sums
    weights = losses[0].weights
    if sums.shape[1] > weights.shape[0]:
        n_undrawn = [one.n_undrawn for one in losses]
        undrawn = float(sum(some.sum() for some in n_undrawn))
        if losses[0].is_weighted:
            undrawn = session.run(_sum_in_order(session, "weight", n_undrawn))
        weights = np.append(weights, np.full(sums.shape[1] - weights.shape[0], undrawn))
    return scores_of([Losses(sums, weights, score)])
