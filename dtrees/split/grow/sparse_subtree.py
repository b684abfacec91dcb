"""A node of a sparse table grown to its end, depth first, in one kernel, by one thread.

The same splits under the same rules and with the same draws as in :mod:`dtrees.split.grow.subtree`, which is for dense tables. A node is
searched by the stored cells of its rows only. Columns that have none there are constant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, lean_entry, lean_kernel
from dtrees.split.criteria.constraints.words import begin_column, hand_down
from dtrees.split.grow.best_first import LeafBudget, bring_up_best, is_given_up, is_to_be_split, put_in_order, waits_in_vain
from dtrees.split.grow.column_by_column import conclude
from dtrees.split.grow.stack import Stack, put, put_children
from dtrees.split.node.candidate import Candidates, bar_for
from dtrees.split.node.limits import NodeLimits, SplitLimits, may_be_split, node_weight
from dtrees.split.node.partition import RowPartition, divide_within, is_pure
from dtrees.split.node.records import link, make_leaf, note_split
from dtrees.split.node.sparse_division import mark_left_sparse
from dtrees.split.node.status import CONSTANT, SPLIT
from dtrees.split.numbers.hashing import draw, draw_columns, undraw_columns
from dtrees.split.search.node_column import NodeColumn
from dtrees.split.search.scratch import Scratch
from dtrees.split.search.sparse.sparse_column import search_cells
from dtrees.split.search.sparse.stored_cells import CellRoom, any_varies, find_cells, forget_cells, list_cells, lists_all, may_list_all
from dtrees.split.table.columns import highest_code_below
from dtrees.split.zones.sums import note_places


@by_reference
class SparseTask(NamedTuple):
    """What a subtree of a sparse table is grown by: everything but its node.

    Attributes are those of :class:`~dtrees.split.grow.subtree.Task`, and ``room``, to find stored cells.
    """

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: SplitLimits
    stops: NodeLimits
    keys: tuple[np.uint64, np.uint64]
    budget: LeafBudget
    pool: NDArray[np.int32]
    scratch: Scratch
    best: Candidates
    bits: NDArray[np.uint8]
    stack: Stack
    room: CellRoom


@lean_kernel
def search_listed(columns, task, column, keys, first, last, sums, path, bar):
    """Find the best split of a node in a column, whose cells have these keys."""
    limits, room = task.limits, task.room
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    bits = draw(np.uint64(task.keys[1]) ^ path, column)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    pair = NodeColumn(room.dense, values, task.partition, first, last, sums, bits)
    return search_cells(limits.criterion, columns.zero_code[column], keys, pair, limits, bar, task.scratch)


@lean_kernel
def _search(columns, task, first, last, sums, path):
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


@lean_kernel
def divide_sparse(columns, task, start, in_stop, stop, depth):
    """Apply the split found to the node's rows; return how many go left, in sample and out of sample."""
    partition, split = task.partition, task.best.records[0]
    column, cut = np.int64(split.column), split.cut
    if stop > in_stop:  # rows out of sample may have values between those in sample
        values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
        cut = highest_code_below(values, cut, np.int64(values.shape[0]) - 1, split.threshold)
    used = task.bits[: (stop - start + 7) // 8]
    mark_left_sparse(columns, column, cut, split.missing_left, partition.rows, task.room.place_of, start, stop, used)
    if depth + 1 < task.stops.max_depth or task.stops.keeps_rows:
        inside, outside = divide_within(used, partition, start, in_stop, stop, task.spare)
    else:  # nobody wants the sums of these rows any more: they may be divided as those out of sample are
        inside = split.n_left
        outside = divide_within(used, partition, start, start, stop, task.spare)[1] - inside
    note_places(task.room.place_of, partition.rows, start, stop)
    return inside, outside


@lean_entry
def grow_sparse(columns, task, root, path, sums, origin, nodes):
    """Grow the subtree of a node.

    Parameters
    ----------
    columns : SparseColumns
    task : SparseTask
    root : ndarray of int64, shape (4,)
        Where the node starts, where its rows in sample and all of them stop, and its depth.
    path : uint64
    sums : ndarray of int64, shape (n_sums,)
    origin : ORIGIN
        Of the node (:mod:`dtrees.split.grow.best_first`).
    nodes : Nodes
        Written; room for every node there can be.

    Returns
    -------
    int
        The number of nodes.
    """
    limits, stops, best, stack, budget = task.limits, task.stops, task.best, task.stack, task.budget
    note_places(task.room.place_of, task.partition.rows, root[0], root[2])
    put(stack, ZERO(), root[0], root[1], root[2], root[3], NONE(), ZERO(), path)
    budget.waiting[0] = origin
    for k in range(sums.shape[0]):
        stack.sums[0, k] = sums[k]
    n_todo = ZERO() + 1
    n_nodes = ZERO()
    while n_todo > 0 and not is_given_up(budget):
        bring_up_best(None, budget, stack, ZERO(), n_todo)
        n_todo -= 1
        start, in_stop, stop, depth, parent, side, _ = stack.todo[n_todo]
        path, node_sums = stack.path[n_todo], stack.sums[n_todo]
        node = n_nodes
        n_nodes += 1
        for k in range(nodes.sums.shape[1]):
            nodes.sums[node, k] = node_sums[k]
        make_leaf(nodes.records[node], start, in_stop, stop)
        link(nodes.records, parent, side, node)
        if waits_in_vain(budget, n_todo) or not may_be_split(stops, in_stop - start, depth, node_weight(limits, node_sums)):
            continue
        if is_pure(task.target, task.partition.rows, start, in_stop):
            continue
        _search(columns, task, start, in_stop, node_sums, path)
        split = best.records[0]
        if split.status != SPLIT or not is_to_be_split(budget, n_todo, split.gain):
            continue
        note_split(nodes.records[node], split)
        inside, outside = divide_sparse(columns, task, start, in_stop, stop, depth)
        middle = start + inside + outside
        put_children(stack, n_todo, node, stops.right_side, middle, start + inside, best.left[0])
        hand_down(limits.criterion, split.column, stack.sums[n_todo + 1], stack.sums[n_todo])
        n_todo += 2
        put_in_order(None, budget, stack, ZERO(), n_todo)
    return n_nodes
