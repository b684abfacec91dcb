"""What leaves hold that are measured on their rows, where these are spread over shards: the steps of a tree for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import newton_steps
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.exchange import Arrays, Shards, Step, Steps
from dtrees.engine.rows.quantiles import Grouped, quantiles
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.tree.tree import Tree


def find_cuts(shards: Shards, rows: RowsInTree) -> Steps[tuple[float, ...] | None]:
    """Return where the loss of the round cuts off residuals of each output; None if it does not."""
    loss = shards.boosting.loss
    if loss.cut_quantile is None:
        return None
    n_values, sizes = shards.n_rows * loss.n_outputs, Grouped(*rows.boosting.sizes())
    return tuple((yield from _quantiles(shards, rows, sizes, loss.cut_quantile, n_values)).tolist())


def leaf_quantiles(
    shards: Shards,
    rows: RowsInTree,
    tree: Tree,
    output: int,
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    cuts: tuple[float, ...] | None,
) -> Steps[NDArray[np.float64]]:
    """Return what the leaves of a tree hold where that is a quantile of residuals, before shrinkage.

    ``known`` are nodes as shards know them, and the leaves of the tree that they are.
    """
    quantile = shards.boosting.loss.residual_quantile
    assert quantile is not None
    leaves, target, residuals = rows.find_leaves(tree, known), rows.boosting, rows.boosting.residuals(output)
    own = leaves.grouped(residuals, target.weights)
    values = yield from _quantiles(shards, rows, own, quantile, int(tree.n_node_samples[0]))
    if cuts is None:
        return values
    weights = yield from shards.gather("weights of leaves", leaves.weights(target.weights))
    totals = np.zeros(values.shape[0])
    add = partial(leaves.add_deviations, target.in_sample, residuals, target.weights, values, cuts[output])
    for shard, i in shards.by_stretches:  # a sum of floats depends on its order
        own_rows = rows.slice_of(i) if shard == shards.shard else slice(0)
        totals = yield from shards.of_one("deviations", shard, partial(add, totals, own_rows))
    return values + totals / np.sum(weights, axis=0)


def _quantiles(shards: Shards, rows: RowsInTree, own: Grouped, quantile: float, n_values: int) -> Steps[NDArray[np.float64]]:
    """Return a quantile of all groups; each shard finds those that it owns."""
    serial = next(shards.serials)

    def step(name: str, arrays: Mapping[int, Arrays], senders: Sequence[int]) -> Step:
        return shards.step(name, serial, arrays, senders)

    owned = yield from quantiles(own, quantile, n_values, shards.shard, shards.n_shards, rows.threads, step)
    found = yield from shards.gather("quantiles", owned)
    of_all = np.empty(sum(some.shape[0] for some in found))
    for shard, some in enumerate(found):
        of_all[shard :: shards.n_shards] = some
    return of_all


def leaf_steps(
    shards: Shards,
    rows: RowsInTree,
    tree: Tree,
    known: tuple[NDArray[np.int64], NDArray[np.int64]],
    exponents: tuple[int, int],
    rules: Rules,
) -> Steps[NDArray[np.float64]]:
    """Return the Newton steps of leaves whose splits were found by gradients alone; ``exponents`` are of gradients and hessians."""
    own = rows.find_leaves(tree, known).sums(rows.boosting.fix_steps(*exponents))
    sums = np.sum((yield from shards.gather("sums of leaves", own)), axis=0)
    return newton_steps(sums, exponents, rules)
