"""The search of a node of a sparse table by the stored cells of its rows only. Columns that have none there are constant."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, lean_entry, lean_kernel
from dtrees.split.criteria.constraints.kinds import unconstrained
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.grow.column_by_column import conclude
from dtrees.split.node.records import CONSTANT, SPLIT, NodeColumn, bar_for
from dtrees.split.numbers.hashing import draw, draw_columns, undraw_columns
from dtrees.split.search.sparse import any_varies, find_cells, forget_cells, list_cells, lists_all, may_list_all, search_cells


@lean_kernel
def search_listed(columns, task, column, keys, first, last, sums, path, bar):
    """Find the best split of a node in a column, whose cells have these keys."""
    limits, room = task.limits, task.room
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    bits = draw(np.uint64(task.keys[1]) ^ path, column)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    pair = NodeColumn(room.dense, values, task.partition, first, last, sums, bits)
    return search_cells(unconstrained(limits.criterion), columns.zero_code[column], keys, pair, limits, bar, task.scratch)


@lean_kernel
def search_stored(columns, task, first, last, sums, path):
    """Find the best split of a node over the columns drawn for it; it goes to ``task.best``.

    Drawing goes on beyond ``max_features`` while all columns drawn so far are constant in the node, as in a dense table.
    """
    pool, room, max_features = task.pool, task.room, task.stops.max_features
    rows = task.partition.rows[first:last]
    n_drawn = min(max_features, pool.shape[0])
    everything = n_drawn == pool.shape[0]
    n_present, n_looked_at = ZERO(), np.int64(pool.shape[0])
    listed = lists_all(columns, rows, n_drawn, room)
    if listed:
        n_present = list_cells(columns, rows, room)
        if everything:
            n_looked_at = n_present
    status, score, has_missing, winner = CONSTANT, -1.0, False, np.int64(-1)
    drawn = ZERO()
    while drawn < n_looked_at and (drawn < n_drawn or status == CONSTANT):
        if drawn == n_drawn:  # all were constant: is any not?
            if not listed and may_list_all(columns, rows, room):
                listed = True
                n_present = list_cells(columns, rows, room)
            if listed and not any_varies(room, n_present, last - first):
                break
        if not everything:
            draw_columns(task.keys[0], path, pool, drawn, drawn + 1)
        column = np.int64(room.present[drawn]) if everything and listed else np.int64(pool[drawn])
        drawn += 1
        m, end = np.int64(room.n_listed[column]), room.end[column]
        if not listed:
            m = find_cells(columns, column, rows, first, room)
            end = m
        if m == 0:
            continue
        found = search_listed(columns, task, column, room.keys[end - m : end], first, last, sums, path, bar_for(column, winner, score))
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    if not everything:
        undraw_columns(task.keys[0], path, pool, drawn)
    forget_cells(room, n_present)
    conclude(columns, task, last - first, sums, status, score, has_missing, winner)


@lean_entry
def search_some(columns, task, first, last, path, sums, low, high):
    """Find the best split of the node at places first..last in the columns ``low:high`` of the tree's; it goes to ``task.best``.

    Parameters
    ----------
    columns : SparseColumns
    task : Task
        Of this thread; ``task.room.place_of`` is shared, and says where the rows lie.
    """
    room, rows = task.room, task.partition.rows[first:last]
    status, score, has_missing, winner = CONSTANT, -1.0, False, np.int64(-1)
    for k in range(low, high):
        column = np.int64(task.pool[k])
        m = find_cells(columns, column, rows, first, room)
        if m == 0:
            continue
        found = search_listed(columns, task, column, task.room.keys[:m], first, last, sums, path, bar_for(column, winner, score))
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    task.best.records[0].column = -1
    conclude(columns, task, last - first, sums, status, score, has_missing, winner)
