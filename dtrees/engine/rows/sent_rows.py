"""Growth of small nodes to their ends on one shard, to which all others have sent their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import splits_of_categories
from dtrees.engine.plan.node_limits import StoredSums, limited_splits
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.searcher import NumberBuffer
from dtrees.engine.rows.steps import GrowSent
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.row_division import find_sets
from dtrees.engine.shard.runner import Assignment, TreeContext
from dtrees.engine.threads import Threads
from dtrees.split.grow.best_first import in_preorder, make_budget
from dtrees.split.grow.block import block_rows
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import Nodes
from dtrees.split.numbers import hashing
from dtrees.split.policy import GROW_CELLS
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import Columns, make_bench, number_values, sort_float64
from dtrees.tree.category_sets import NO_SETS, CategorySets

_NO_LEVELS, _NO_TARGET = np.empty(0, np.int64), np.empty(0)


def grow_sent(
    message: GrowSent,
    rules: Rules,
    seed: np.uint64,
    pool: NDArray[np.int32],
    n_columns: int,
    threads: Threads,
    sent: list[tuple[NDArray[Any], ...]],
    buffer: NumberBuffer,
    stored: StoredSums,
) -> tuple[list[Nodes], list[CategorySets]]:
    """Grow nodes to their ends, given the rows of each shard: numbers of rows by node, values by column, g, h, and targets if multi-output.

    Nodes with constant targets are leaves. Return the subtrees, and the sets of categories of each.

    Parameters
    ----------
    message : GrowSent
    rules : Rules
    seed : uint64
    pool : ndarray of int32
        The columns of the tree.
    n_columns : int
        Number of columns of the table.
    threads : Threads
    sent : list of tuple of ndarray
    buffer : NumberBuffer
        Memory for values and their codes.
    stored : StoredSums
        Which sums are stored. For classes, g has the class numbers; for multi-output targets, the summands, row by row.
    """
    # The rows arrive by shard, then by node, and are reordered by node.
    n_nodes = message.depth.shape[0]
    order = np.argsort(np.concatenate([np.repeat(np.arange(n_nodes), one[0]) for one in sent]), kind="stable")
    n_rows, first, place = order.shape[0], 0, np.empty_like(order)
    place[order] = np.arange(n_rows)
    n_values = pool.shape[0] * n_rows
    numbers = buffer.take(n_values + (n_columns * n_rows + 1) // 2)
    values = numbers[:n_values].view(np.float64).reshape(-1, n_rows)
    codes = numbers[n_values:].view(np.uint32)[: n_columns * n_rows].reshape(-1, n_rows)
    for one in sent:
        last = first + one[1].shape[1]
        values[:, place[first:last]] = one[1]
        first = last
    columns = _presort(values, pool, codes)
    g, h = (np.concatenate([one[i] for one in sent]) for i in (2, 3))
    target = np.concatenate([one[4] for one in sent])[order] if len(sent[0]) > 4 else _NO_TARGET
    rows = None
    if stored.targets:
        rows, g = g.reshape(n_rows, -1)[order], np.arange(n_rows)
    else:
        g = g[order]
    partition = RowPartition(np.arange(n_rows, dtype=np.uint32), g, h[order] if h.shape[0] else h)
    stop = np.cumsum(np.sum([one[0] for one in sent], axis=0))
    start = np.concatenate([[0], stop[:-1]])
    root = message.root
    everything = np.arange(n_columns, dtype=np.int32)
    limits, stops = stored.limits(rules, root.sums, root.exponents, root.slope, root.noise, everything, rows)
    keys = tuple(np.uint64(hashing.stream_key(seed, stream, message.tree)) for stream in (hashing.STREAM_NODE, hashing.STREAM_THRESHOLD))
    most_splits = limited_splits(rules, root.n_in)
    budget = make_budget(most_splits, message.first)
    context = TreeContext(partition, partition.spare(n_rows), target, limits, stops, (keys[0], keys[1]), budget, pool)
    runner = SubtreeRunner(columns)
    places = list(zip(start.tolist(), stop.tolist(), stop.tolist(), message.depth.tolist(), strict=True))
    n_threads = min(threads.n_threads, n_nodes, 1 + n_rows * pool.shape[0] // GROW_CELLS)
    most_rows = int((stop - start).max())
    sizes = stored.n_numbers, _NO_LEVELS, bool(rules.categorical), stored.n_sums
    runner.scratch_for(n_threads - 1, most_rows, bool(rules.categorical), lambda n, n_distinct: make_scratch(n, n_distinct, *sizes))
    in_block = 0  # blocks do not support sets of categories
    if not (rules.random_splits and rules.categorical):
        in_block = block_rows(rules.random_splits, stops.max_features, pool.shape[0])
    roots = Roots(places, message.path, message.sums, message.origin)
    grown = runner.grow(threads, n_threads, Assignment(context, roots, in_block, most_rows))
    if most_splits:
        grown = [in_preorder(nodes) for nodes in grown]
    if not rules.categorical:
        return grown, [NO_SETS] * n_nodes
    sets = []
    for nodes in grown:
        splits = splits_of_categories(nodes.records, rules)
        sets.append(find_sets(columns, splits.column.astype(np.int64), partition.rows, splits))
    return grown, sets


def _presort(values: NDArray[np.float64], pool: NDArray[np.int32], codes: NDArray[np.uint32]) -> Columns:
    """Sort the columns of a pool in ascending order; other columns have no values, and meaningless codes.

    Equivalent to :func:`~dtrees.split.table.columns.presort` for few rows, where the overhead around its sort kernels would take as long as
    the sort. Distinct values overwrite ``values``.
    """
    keys, spare, counts = make_bench(values.shape[1])
    distinct, offsets, at = values.reshape(-1), np.zeros(codes.shape[0] + 1, np.int64), 0
    for column, all_values in zip(pool.tolist(), values, strict=True):
        own = all_values.copy()
        sort_float64(own.view(np.uint64), keys, spare, counts)
        offsets[column + 1] = number_values(own, keys, codes[column], distinct[at:])
        at += int(offsets[column + 1])
    return Columns.of(codes, distinct[:at], offsets.cumsum())
