"""The rows of small nodes, which every shard of rows sends, and which one shard grows to their ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.protocol.nodes import DelegatedNodes
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.passes import values_of_rows
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.places import bounds_of, places_of
from dtrees.engine.shard.tree_state import TreeState
from dtrees.engine.tree.program import Layout
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.columns import Columns, make_bench, number_values, sort_float64

_NO_LEVELS = np.empty(0, np.int64)


def send_rows(rows: RowsInTree, nodes: Sequence[NDArray[np.int64]]) -> dict[int, Arrays]:
    """Return the rows of nodes, for the shards that grow the nodes: numbers of rows by node, values by column, g, h and targets.

    The targets are those that are constant in pure nodes, if there are such. For multi-output targets, the summands of each row are sent in
    place of g.
    """
    target, partition, whole = rows.target, rows.partition, np.concatenate(nodes)
    start, sizes = rows.nodes.start[whole], rows.nodes.stop[whole] - rows.nodes.start[whole]
    places = places_of(start, sizes)
    own, g, h = partition.rows[places], partition.g[places], partition.h[places] if partition.h.shape[0] else partition.h
    g, pure_by = target.added[g] if rows.stored.targets else g, target.pure_by[own] if target.pure_by.shape[0] else target.pure_by
    values = values_of_rows(rows.columns, rows.pool, own)
    ends = bounds_of(np.array([some.shape[0] for some in nodes]))
    bounds = bounds_of(sizes)[ends].tolist()
    return {
        shard: (sizes[i:j], np.ascontiguousarray(values[:, first:last]), g[first:last].reshape(-1), h[first:last], pure_by[first:last])
        for shard, ((i, j), (first, last)) in enumerate(zip(pairwise(ends.tolist()), pairwise(bounds), strict=True))
        if j > i
    }


def grow_sent(rows: RowsInTree, layout: Layout, nodes: NDArray[np.int64], sent: Sequence[Arrays]) -> DelegatedNodes:
    """Grow nodes to their ends, given the rows of each shard, as :func:`send_rows` returns them.

    ``layout`` is the unfinished tree. Nodes with constant targets are leaves.
    """
    target, pool, n_columns = rows.target, rows.pool, rows.columns.n_columns
    # The rows arrive by shard, then by node, and are reordered by node.
    order = np.argsort(np.concatenate([np.repeat(np.arange(nodes.shape[0]), one[0]) for one in sent]), kind="stable")
    n_rows, first, place = order.shape[0], 0, np.empty_like(order)
    place[order] = np.arange(n_rows)
    n_values = pool.shape[0] * n_rows
    numbers = rows.sent_buffer.take(n_values + (n_columns * n_rows + 1) // 2)
    values = numbers[:n_values].view(np.float64).reshape(-1, n_rows)
    codes = numbers[n_values:].view(np.uint32)[: n_columns * n_rows].reshape(-1, n_rows)
    for one in sent:
        last = first + one[1].shape[1]
        values[:, place[first:last]] = one[1]
        first = last
    g, h, pure_by = (np.concatenate([one[i] for one in sent]) for i in (2, 3, 4))
    pure_by = pure_by[order] if pure_by.shape[0] else pure_by
    several = g.reshape(n_rows, -1)[order] if isinstance(target, ForestTarget) and target.plan.targets else None
    g = g[order] if several is None else np.arange(n_rows)
    partition = RowPartition(np.arange(n_rows, dtype=np.uint32), g, h[order] if h.shape[0] else h)
    columns = ShardColumns(_presort(values, pool, codes), np.arange(n_columns, dtype=np.int32), n_columns)
    state = TreeState(columns, target, pure_by, sums_zones=False)
    return state.grow_part(layout, nodes, partition, several, _NO_LEVELS, rows.threads)[1]


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
