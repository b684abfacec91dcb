"""What leaves hold that are measured on their rows, where these are spread over shards: the steps of a tree for that."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.coordinator.session import Steps
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.by_order import messages as by_order
from dtrees.engine.rows.session import TreeSession
from dtrees.tree.tree import Tree


def find_cuts(session: TreeSession, output: int) -> Steps[tuple[float, ...] | None]:
    """Return where the loss of the round cuts off residuals of each output; None if it does not.

    ``output`` is that of the tree that is next: 0 at the beginning of a round.
    """
    loss = session.boosting.loss
    if loss.cut_quantile is None:
        return None
    n_values = session.executor.n_rows * loss.n_outputs
    found = yield from session.ask(by_order.MeasureSizes, session.next_serial(), output, loss.cut_quantile, n_values)
    return tuple(_together(found).tolist())


def leaf_quantiles(
    session: TreeSession, tree: Tree, output: int, known: tuple[NDArray[np.int64], NDArray[np.int64]], cuts: tuple[float, ...] | None
) -> Steps[NDArray[np.float64]]:
    """Return what the leaves of a tree hold where that is a quantile of residuals, before shrinkage.

    ``known`` are nodes as shards know them, and the leaves of the tree that they are.
    """
    loss, leaves = session.boosting.loss, np.flatnonzero(tree.children_left < 0)
    n_rows = int(tree.n_node_samples[0])
    found = yield from session.ask(by_order.MeasureLeaves, session.next_serial(), tree, output, *known, loss.residual_quantile, n_rows)
    values = _together([one.quantiles for one in found])
    if cuts is None:
        return values
    totals = np.zeros(leaves.shape[0])
    every = sorted((int(some[i, 0]), shard, i) for shard, some in enumerate(session.stretches) for i in range(some.shape[0]))
    for _, shard, i in every:  # a sum of floats depends on its order
        message = by_order.AddDeviations(session.fit, session.epoch, output, i, values, cuts[output], totals)
        totals = cast(NDArray[np.float64], (yield {shard: message})[shard])
    weights = np.sum([one.weights for one in found], axis=0)
    return cast(NDArray[np.float64], values + totals / weights)


def leaf_steps(
    session: TreeSession,
    tree: Tree,
    output: int,
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    exponents: tuple[int, int],
    rules: Rules,
) -> Steps[NDArray[np.float64]]:
    """Return the Newton steps of leaves whose splits were found by gradients alone; ``exponents`` are of gradients and hessians."""
    replies = yield from session.ask(by_order.SumLeaves, tree, output, *known, exponents[1])
    sums = np.sum(cast(list[NDArray[np.int64]], replies), axis=0)
    steps = np.empty(sums.shape[0])
    for i, (total_g, total_h) in enumerate(sums.tolist()):
        g, h = math.ldexp(float(total_g), -exponents[0]), math.ldexp(float(total_h), -exponents[1]) + rules.reg_lambda
        steps[i] = -math.copysign(max(abs(g) - rules.reg_alpha, 0.0), g) / h if h > 0.0 else 0.0
    return steps


def _together(replies: list[Any]) -> NDArray[np.float64]:
    """Return the quantiles of all groups by those that each shard owns."""
    found = np.empty(sum(some.shape[0] for some in replies))
    for shard, some in enumerate(replies):
        found[shard :: len(replies)] = some
    return found
