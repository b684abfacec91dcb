"""Computations on the rows of all shards: sums in the order of one process, and leaf values that are measured on rows.

Sums are of absolute gradients, for the scales of fixed point, and of weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS
from dtrees.engine.outcome.values import newton_steps
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.exchange import Shards, Steps
from dtrees.engine.protocol.messages import Losses
from dtrees.engine.rows.all_rows import in_blocks, owners_of_blocks, sum_chunks
from dtrees.engine.rows.leaf_rows import LeafRows
from dtrees.engine.rows.quantiles import Grouped, quantiles
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.targets.scales import Derived, most_bits

_EPSILON = 2.0**-52
_LIMIT = 61


def exponents_of(shards: Shards, rows: RowsInTree, derived: list[Derived]) -> Steps[tuple[int, int]]:
    """Return the exponents of the scales of gradients and hessians, the same as in one process."""
    return (yield from exponent_of(shards, rows, derived, 0)), (yield from exponent_of(shards, rows, derived, 1))


def exponent_of(shards: Shards, rows: RowsInTree, derived: Sequence[Derived], which: int) -> Steps[int]:
    """Return the exponent of gradients (0), hessians (1), or hessians of Newton steps (2)."""
    n_rows, most = shards.n_rows, most_bits(shards.plan.rules)[which]
    parts = [one.sums[which] for one in derived]
    if any(map(math.isnan, parts)):  # every hessian is 1 and is not converted
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
    """Return a sum over all rows in the order of one process; ``counts[shard][i]`` values are in range i, by default one for each row."""
    lanes, first = np.zeros(4), 0
    sizes = [some[:, 1] - some[:, 0] for some in shards.ranges] if counts is None else counts
    total = int(sum(some.sum() for some in sizes))
    for shard, i in shards.by_ranges:
        lanes = yield from shards.of_one("sum in order", shard, partial(rows.add_in_order, what, i, first, total, lanes))
        first += int(sizes[shard][i])
    one, other, third, fourth = lanes.tolist()
    return (one + other) + (third + fourth)


def losses_of_blocks(shards: Shards, rows: RowsInTree, score: float | None) -> Steps[Losses]:
    """Return the losses of blocks of which this shard has all rows, or has the first row."""
    target = rows.boosting
    own = in_blocks(target.losses_by_part(slice(0, target.raw.shape[1])), shards.ranges[shards.shard], shards.n_rows)
    owners = owners_of_blocks(shards.ranges, shards.n_rows)
    chunks = {shard: tuple(one for one in own.chunks if owners[one[0] // BLOCK_ROWS] == shard) for shard in shards.everyone}
    sent = yield shards.step("losses", cast(Any, chunks), shards.everyone)
    block, sums = sum_chunks(one for some in sent for one in some)
    weights = np.append(target.scales.weights, np.full(own.sums.shape[1] - 2, (yield from undrawn_weight(shards, rows))))
    block_of_all = np.concatenate([own.block, np.array(block, np.int64)])
    return Losses(np.concatenate([own.sums, np.array(sums).reshape(-1, own.sums.shape[1])]), weights, score, block_of_all)


def undrawn_weight(shards: Shards, rows: RowsInTree) -> Steps[float]:
    """Return the weight of the training rows that were not drawn, if rounds draw rows."""
    target = rows.boosting
    if not target.draws:
        return 0.0
    n_undrawn = yield from shards.gather("undrawn", target.undrawn_by_range())
    if target.weight is not None:
        return (yield from sum_in_order(shards, rows, "weight", n_undrawn))
    return float(sum(some.sum() for some in n_undrawn))


def find_cuts(shards: Shards, rows: RowsInTree) -> Steps[tuple[float, ...] | None]:
    """Return the absolute residuals at which the loss of the round clips, one for each output; None if it does not."""
    loss = shards.boosting.loss
    if loss.cut_quantile is None:
        return None
    n_values, sizes = shards.n_rows * loss.n_outputs, Grouped(*rows.boosting.sizes())
    return tuple((yield from _quantiles(shards, rows, sizes, loss.cut_quantile, n_values)).tolist())


def leaf_quantiles(
    shards: Shards, rows: RowsInTree, leaves: LeafRows, n_in: int, output: int, cuts: tuple[float, ...] | None
) -> Steps[NDArray[np.float64]]:
    """Return the unshrunk leaf values of a tree if these are quantiles of residuals.

    ``leaves`` has the shard's rows by leaf; ``n_in`` is the number of rows of all shards.
    """
    of_outputs = shards.boosting.loss.residual_quantiles
    assert of_outputs is not None
    target, residuals = rows.boosting, rows.boosting.residuals(output)
    own = leaves.grouped(residuals, target.weights)
    values = yield from _quantiles(shards, rows, own, of_outputs[output], n_in)
    if cuts is None:
        return values
    weights = yield from shards.gather("weights of leaves", leaves.weights(target.weights))
    totals = np.zeros(values.shape[0])
    add = partial(leaves.add_deviations, target.in_sample, residuals, target.weights, values, cuts[output])
    for shard, i in shards.by_ranges:  # a sum of floats depends on its order
        own_rows = rows.slice_of(i) if shard == shards.shard else slice(0)
        totals = yield from shards.of_one("deviations", shard, partial(add, totals, own_rows))
    return values + totals / np.sum(weights, axis=0)


def _quantiles(shards: Shards, rows: RowsInTree, own: Grouped, quantile: float, n_values: int) -> Steps[NDArray[np.float64]]:
    """Return a quantile of each group; each shard finds the quantiles of its own groups."""
    owned = yield from quantiles(own, quantile, n_values, shards, rows.threads)
    found = yield from shards.gather("quantiles", owned)
    of_all = np.empty(sum(some.shape[0] for some in found))
    for shard, some in enumerate(found):
        of_all[shard :: shards.n_shards] = some
    return of_all


def leaf_steps(shards: Shards, rows: RowsInTree, leaves: LeafRows, exponents: tuple[int, int], rules: Rules) -> Steps[NDArray[np.float64]]:
    """Return the Newton steps of leaves whose splits were found by gradients alone; ``exponents`` are for gradients and hessians."""
    own = leaves.sums(rows.boosting.fix_steps(*exponents))
    sums = np.sum((yield from shards.gather("sums of leaves", own)), axis=0)
    return newton_steps(sums, exponents, rules)
