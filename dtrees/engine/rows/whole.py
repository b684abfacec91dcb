"""Computations on the rows of all shards: sums in the order of one process, losses, and leaf values that are measured on rows.

Sums are of absolute gradients, for the scales of fixed point, and of weights. Means of leaves are sums of floats in row order, so each leaf
must be summed in one place: every shard measures some of the leaves, and receives their rows from all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import measure_leaves
from dtrees.engine.outcome.scoring import BLOCK_ROWS, in_blocks, owners_of_blocks, sum_chunks
from dtrees.engine.outcome.values import newton_steps
from dtrees.engine.plan.node_limits import criterion_of
from dtrees.engine.plan.plans import Rules
from dtrees.engine.protocol.exchange import Shards, Steps, Turn
from dtrees.engine.protocol.messages import Losses, Measured
from dtrees.engine.rows.all_rows import rows_of
from dtrees.engine.rows.quantiles import Grouped, quantiles
from dtrees.engine.rows.rows_in_tree import KnownLeaves, RowsInTree
from dtrees.engine.shard.targets.scales import Derived, most_bits
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.tree.tree import Tree

_EPSILON = 2.0**-52
_LIMIT = 61
#: Number of values with which a row is sent if leaves are measured, besides its targets.
_CELLS_MEASURED = 2
#: The number of rows of each leaf; then, leaf by leaf, the numbers of the rows in the table, their targets, and their weights if not all
#: are 1.
RowsOfLeaves = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64], NDArray[np.int64]]


class LeafRows:
    """A shard's rows in sample, ordered by leaf.

    Parameters
    ----------
    rows : RowsInTree
    tree : Tree
        The tree that has been grown.
    known : KnownLeaves
    """

    def __init__(self, rows: RowsInTree, tree: Tree, known: KnownLeaves) -> None:
        node_of, leaves, partition = np.zeros(rows.columns.n_rows), np.flatnonzero(tree.children_left < 0), rows.partition
        rows.add_values(tree, known, np.arange(tree.node_count, dtype=np.float64), node_of, outside=False)
        number = np.zeros(int(leaves[-1]) + 1, np.uint16 if leaves.shape[0] <= 2**16 else np.int64)
        number[leaves] = np.arange(leaves.shape[0])
        self._rows, self._partition = rows, partition
        self._leaf_of = number[node_of.astype(np.int64)]
        self._order = np.argsort(self._leaf_of[partition.rows], kind="stable")  # places by leaf
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._leaf_of[partition.rows], minlength=leaves.shape[0]))])

    def grouped(self, residuals: NDArray[np.float64]) -> Grouped:
        """Return the residuals of the rows, grouped by leaf."""
        rows, weights = self._partition.rows[self._order], self._rows.boosting.weights
        return Grouped(residuals[rows], weights[rows] if weights.shape[0] else weights, self._bounds)

    def rows_of(self, first: int, last: int, numbers: NDArray[np.uint32], target: NDArray[np.float64]) -> RowsOfLeaves:
        """Return the number of rows of each leaf in a range, and the numbers of these rows in the table, their targets, and their weights.

        ``numbers`` and ``target`` are for all rows of the shard.
        """
        places, h = self._order[self._bounds[first] : self._bounds[last]], self._partition.h
        rows = self._partition.rows[places]
        return np.diff(self._bounds[first : last + 1]), numbers[rows], target[rows], h[places] if h.shape[0] else h

    def weights(self) -> NDArray[np.int64]:
        """Return the total weight of the rows of each leaf."""
        weights = self._rows.boosting.weights
        return self._add_up(weights[self._partition.rows[self._order]]) if weights.shape[0] else np.diff(self._bounds)

    def sums(self, hessian: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of g and of a hessian, in fixed point, over the rows of each leaf, shape (n_leaves, 2)."""
        return np.stack([self._add_up(self._partition.g[self._order]), self._add_up(hessian[self._partition.rows[self._order]])], axis=1)

    def _add_up(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of values by leaf; the values are in the order of leaves."""
        total = np.append(0, np.cumsum(values))
        return total[self._bounds[1:]] - total[self._bounds[:-1]]

    def add_deviations(
        self, residuals: NDArray[np.float64], center: NDArray[np.float64], cut: float, totals: NDArray[np.float64], rows: slice
    ) -> NDArray[np.float64]:
        """Add the clipped deviations of residuals from the centers of their leaves to the totals of leaves, row by row.

        ``rows`` selects some of the shard's rows; ``residuals`` has those of all.
        """
        in_sample, weights = self._rows.boosting.in_sample, self._rows.boosting.weights
        totals, some = totals.copy(), slice(None) if in_sample is None else in_sample[rows]
        leaf = self._leaf_of[rows][some].astype(np.int64)
        deviations = np.minimum(np.maximum(residuals[rows][some] - center[leaf], -cut), cut)
        if weights.shape[0]:
            deviations *= weights[rows][some]
        np.add.at(totals, leaf, deviations)
        return totals


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
    return min(_LIMIT - math.frexp(max(one.largest[which] for one in derived))[1] - n_rows.bit_length(), most)


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
    by_part, own_ranges, n_rows = target.losses_by_part(slice(0, target.raw.shape[1])), shards.ranges[shards.shard], shards.n_rows
    block, sums, chunks = in_blocks(by_part, own_ranges, n_rows)
    owners, n_parts = owners_of_blocks(shards.ranges, n_rows), len(by_part)
    to_send = {shard: tuple(one for one in chunks if owners[one[0] // BLOCK_ROWS] == shard) for shard in shards.everyone}
    sent = yield shards.step("losses", cast(Any, to_send), shards.everyone)
    others, more = sum_chunks(one for some in sent for one in some)
    weights = np.append(target.scales.weights, np.full(n_parts - 2, (yield from undrawn_weight(shards, rows))))
    blocks = np.concatenate([block, np.array(others, np.int64)])
    return Losses(np.concatenate([sums, np.array(more).reshape(-1, n_parts)]), weights, score, blocks)


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
    return tuple((yield from quantiles(sizes, loss.cut_quantile, n_values, shards, rows.threads)).tolist())


def leaf_quantiles(
    shards: Shards, rows: RowsInTree, leaves: LeafRows, n_in: int, output: int, cuts: tuple[float, ...] | None
) -> Steps[NDArray[np.float64]]:
    """Return the unshrunk leaf values of a tree if these are quantiles of residuals.

    ``leaves`` has the shard's rows by leaf; ``n_in`` is the number of rows of all shards.
    """
    of_outputs = shards.boosting.loss.residual_quantiles
    assert of_outputs is not None
    residuals = rows.boosting.residuals(output)
    values = yield from quantiles(leaves.grouped(residuals), of_outputs[output], n_in, shards, rows.threads)
    if cuts is None:
        return values
    weights = yield from shards.gather("weights of leaves", leaves.weights())
    totals = np.zeros(values.shape[0])
    add = partial(leaves.add_deviations, residuals, values, cuts[output])
    for shard, i in shards.by_ranges:  # a sum of floats depends on its order
        own_rows = rows.slice_of(i) if shard == shards.shard else slice(0)
        totals = yield from shards.of_one("deviations", shard, partial(add, totals, own_rows))
    return values + totals / np.sum(weights, axis=0)


def leaf_steps(shards: Shards, rows: RowsInTree, leaves: LeafRows, exponents: tuple[int, int], rules: Rules) -> Steps[NDArray[np.float64]]:
    """Return the Newton steps of leaves whose splits were found by gradients alone; ``exponents`` are for gradients and hessians."""
    own = leaves.sums(rows.boosting.fix_steps(*exponents))
    sums = np.sum((yield from shards.gather("sums of leaves", own)), axis=0)
    return newton_steps(sums, exponents, rules)


def leaf_means(shards: Shards, rows: RowsInTree, tree: Tree, known: KnownLeaves) -> Steps[Measured]:
    """Return the mean targets of the leaves of a tree, and their spreads; each shard measures some of the leaves."""
    plan, begins = shards.forest, share_leaves(tree.n_node_samples[tree.children_left < 0], shards.n_shards)
    yield Turn(int(tree.n_node_samples[0]) * (_CELLS_MEASURED + plan.n_values))  # before any of these rows takes memory
    leaves, numbers = LeafRows(rows, tree, known), rows_of(shards.ranges[shards.shard]).astype(np.uint32)
    own = {i: leaves.rows_of(*some, numbers, rows.forest.by_target) for i, some in enumerate(pairwise(begins.tolist()))}
    sent = yield shards.step("leaves", own, shards.everyone)
    del leaves, numbers, own
    found = yield from shards.gather("means", measure_means(plan.rules, sent, rows.threads))
    return Measured(*(np.concatenate(some) for some in zip(*found, strict=True)))


def share_leaves(n_samples: NDArray[np.int64], n_shards: int) -> NDArray[np.int64]:
    """Divide leaves among shards so that each measures about the same number of rows; return the bounds of each shard's range of leaves.

    Examples
    --------
    >>> share_leaves(np.array([3, 1, 1, 1, 4]), 2).tolist()
    [0, 3, 5]
    """
    ends = np.cumsum(n_samples)
    wanted = ends[-1] * np.arange(1, n_shards) // n_shards
    return np.concatenate([[0], np.searchsorted(ends - n_samples // 2, wanted, side="right"), [n_samples.shape[0]]]).astype(np.int64)


def measure_means(rules: Rules, sent: Sequence[tuple[NDArray[Any], ...]], threads: Threads) -> Measured:
    """Return the means and spreads of leaves, given their rows on each shard."""
    counts = np.stack([one[0] for one in sent])
    numbers, target, weight = (np.concatenate([one[i] for one in sent]) for i in range(1, 4))
    leaf = np.concatenate([np.repeat(np.arange(counts.shape[1]), own) for own in counts])
    order = np.lexsort((numbers, leaf))
    stop = np.cumsum(counts.sum(axis=0))
    h = weight[order] if weight.shape[0] else weight
    rows = RowPartition(np.arange(order.shape[0], dtype=np.uint32), h, h)
    return measure_leaves(rows, np.asfortranarray(target[order]), criterion_of(rules), stop - counts.sum(axis=0), stop, threads)
