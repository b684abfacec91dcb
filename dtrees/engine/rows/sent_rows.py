"""Growth of small nodes to their ends on one shard, to which all others have sent their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Root
from dtrees.engine.protocol.nodes import DelegatedNodes
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.shard.grower import Grower
from dtrees.engine.shard.node_search import ShardColumns
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.tree_state import TreeState
from dtrees.split.node.partition import RowPartition
from dtrees.split.table.columns import Columns, make_bench, number_values, sort_float64


def grow_sent(
    rows: RowsInTree, tree: int, root: Root, grower: Grower, nodes: NDArray[np.int64], sent: Sequence[tuple[NDArray[Any], ...]]
) -> DelegatedNodes:
    """Grow nodes to their ends, given the rows of each shard, as :meth:`.RowsInTree.send_rows` returns them.

    Nodes with constant targets are leaves.
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
    state = TreeState(columns, target.plan, target, pure_by, sums_zones=False)
    state.open_nodes(tree, root, grower.table.extract(nodes), partition, pure_by, several, rows.threads)
    return state.grow_nodes(grower.table.start[nodes], grower.origin[nodes], grower.first_splits())[1]


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
