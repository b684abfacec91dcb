"""Growth of a node to its leaves, depth first, in one kernel.

Small nodes do not justify a step of the engine each. All splits of a subtree are found here, by the same search, under the same rules
and with the same draws as in the engine, so the tree does not depend on where a node was grown. A forest grows whole trees this way, one
in each thread. Small enough nodes are finished in a block that stays in the cache (:mod:`dtrees.split.grow.block`).

A sparse table has no blocks: its nodes are searched by their stored cells (:mod:`dtrees.split.grow.column_by_column`).

Nodes are written in preorder: a parent, its left subtree, its right subtree. Only if the number of leaves is limited is the order
different, so that few superfluous nodes are grown (:mod:`dtrees.split.grow.best_first`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, lean_entry, lean_kernel, separate_kernel
from dtrees.split.compile.methods import UNKNOWN, Hidden, hide
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.parts import weight_sums, without_words
from dtrees.split.grow.best_first import LeafBudget, bring_up_best, is_given_up, is_limited, is_to_be_split, put_in_order, waits_in_vain
from dtrees.split.grow.block import Block
from dtrees.split.grow.by_criterion import draws_columns, hand_down, search_table, search_zones
from dtrees.split.grow.small_subtree import grow_block, weight_of
from dtrees.split.grow.stack import Stack, open_node, put_children, put_root
from dtrees.split.node.limits import AnyCriterion, NodeLimits, SplitLimits, is_categorical, may_be_split
from dtrees.split.node.partition import RowPartition, Sides, divide_within, is_pure, mark_left, mark_left_sparse
from dtrees.split.node.records import CONSTANT, SPLIT, Candidates, cut_of, note_split
from dtrees.split.search.scratch import Scratch
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.zones.sum_slots import SumSlots, give_back_of, has_slots, inherit
from dtrees.split.zones.sums import note_places


@by_reference
class Task(NamedTuple):
    """Inputs and buffers of growing one subtree, except its node.

    Attributes
    ----------
    partition, spare : RowPartition
        The node's range is rearranged; ``spare`` is scratch space of the same size.
    target : ndarray, shape (n_rows,) or (0,)
        Used to detect pure nodes.
    limits : Hidden
        A hidden :class:`~dtrees.split.node.limits.SplitLimits`: only methods see the criterion.
    stops : NodeLimits
    keys : tuple of uint64
        Keys of the tree's streams of node columns and random thresholds.
    block_rows : int
        Nodes of up to this many in-sample rows are finished in the block.
    sum_slots : SumSlots or None
        If present, larger nodes are searched by zone sums that they inherit. None if the table is sparse.
    budget : LeafBudget
    methods : ndarray of int64
        The addresses of the methods in :mod:`dtrees.split.grow.by_criterion`.
    is_plain : bool
        Whether nodes of few rows are searched like larger ones, which takes fewer kernels.
    pool : ndarray of int32
        The tree's columns.
    scratch : Scratch
    best : Candidates
        A buffer for one candidate.
    bits : ndarray of uint8
        A buffer for one bit for each row.
    block : Block or None
        None if the table is sparse.
    stack : Stack
    weight : tuple of int
        Start and stop of the sums of a node that add up to its weight.
    has_words : bool
        Whether words of constraints follow the sums of a node.
    buffer : CellBuffer or None
        For finding stored cells, if the table is sparse.
    """

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: Hidden
    stops: NodeLimits
    keys: tuple[np.uint64, np.uint64]
    block_rows: int
    sum_slots: SumSlots | None
    budget: LeafBudget
    methods: NDArray[np.int64]
    is_plain: bool
    pool: NDArray[np.int32]
    scratch: Scratch
    best: Candidates
    bits: NDArray[np.uint8]
    block: Block | None
    stack: Stack
    weight: tuple[int, int]
    has_words: bool
    buffer: CellBuffer | None = None


def of_criterion(limits: SplitLimits, n_sums: int) -> dict[str, Any]:
    """Return the fields of a task that depend on its criterion, by name, before its methods are known; ``n_sums`` includes words."""
    return {
        "limits": hide(limits, limits._replace(criterion=AnyCriterion())),
        "methods": UNKNOWN.addresses,
        "weight": weight_sums(limits.criterion, n_sums),
        "has_words": without_words(limits.criterion, n_sums) < n_sums,
    }


@lean_kernel
def _give_back(sum_slots, n):
    if sum_slots is not None and has_slots(sum_slots):
        give_back_of(sum_slots, n)


@lean_kernel
def is_large(task, n_rows, depth, sums):
    """Return whether a node has to be searched, and not in a block."""
    return n_rows > task.block_rows and may_be_split(task.stops, n_rows, depth, weight_of(task, sums))


@separate_kernel(returns=types.none)
def hand_down_slot(task, n):
    """Pass the slot of the n-th node on the stack to its children, now the n-th and the next."""
    sum_slots, todo, sums = task.sum_slots, task.stack.todo, task.stack.sums
    left = is_large(task, todo[n + 1, 1] - todo[n + 1, 0], todo[n + 1, 3], sums[n + 1])
    right = is_large(task, todo[n, 1] - todo[n, 0], todo[n, 3], sums[n])
    if left or right:
        note_places(sum_slots.sums.place_of, task.partition.rows, todo[n + 1, 0], todo[n, 2])
    inherit(sum_slots, n, task.partition, todo, left, right, not is_limited(task.budget))


@optional
def _mark(buffer, columns, task, split, place, bits):
    """Set the bits of the rows going left by the split found last; ``place`` is the node's start, in_stop and stop."""
    start, in_stop, stop = place
    codes, rows = columns.codes[split.column], task.partition.rows
    if is_categorical(task.limits.categories, split.column):
        mark_left(codes, Sides(task.scratch.groups.side), rows, start, stop, bits)
    else:
        mark_left(codes, cut_of(columns, split, stop > in_stop), rows, start, stop, bits)


@_mark.of(CellBuffer)
def _(buffer, columns, task, split, place, bits):
    start, in_stop, stop = place
    rule = cut_of(columns, split, stop > in_stop)
    mark_left_sparse(columns, np.int64(split.column), rule, task.partition.rows, buffer.place_of, start, stop, bits)


@lean_kernel
def _note_places(buffer, task, start, stop):
    if buffer is not None:
        note_places(buffer.place_of, task.partition.rows, start, stop)


@lean_kernel
def _divide(columns, task, start, in_stop, stop, depth):
    """Apply the split found last to the rows of its node; return the numbers going left, in sample and out of sample."""
    partition, split, place = task.partition, task.best.records[0], (start, in_stop, stop)
    used = task.bits[: (stop - start + 7) // 8]
    _mark(task.buffer, columns, task, split, place, used)
    if depth + 1 < task.stops.max_depth or task.stops.keeps_rows:
        inside, outside = divide_within(used, partition, start, in_stop, stop, task.spare)
    else:  # the numbers of these rows are not needed any more: they are divided like out-of-sample rows
        inside = split.n_left
        outside = divide_within(used, partition, start, start, stop, task.spare)[1] - inside
    _note_places(task.buffer, task, start, stop)
    return inside, outside


@optional
def _grow_in_block(block, columns, task, n, nodes, n_nodes):
    """Grow the subtree of the n-th node on the stack, which is small, in a block; return the new number of nodes."""
    return n_nodes  # sparse tables have no block


@_grow_in_block.of(Block)
def _(block, columns, task, n, nodes, n_nodes):
    return grow_block(columns, task, n, nodes, n_nodes)


@separate_kernel
def grow_subtree(columns, task, start, in_stop, stop, depth, path, sums, nodes):
    """Grow the subtree of the node at places start..in_stop..stop.

    Parameters
    ----------
    columns : Columns
        All columns of the table.
    task : Task
    depth : int
    path : uint64
    sums : ndarray of int64, shape (n_sums,)
    nodes : Nodes
        Written; a buffer for the largest possible number of nodes (:func:`most_nodes`).

    Returns
    -------
    int
        The number of nodes.
    """
    partition, stops, best, stack = task.partition, task.stops, task.best, task.stack
    put_root(stack, start, in_stop, stop, depth, path, sums)
    n_todo = 1
    n_nodes = ZERO()
    while n_todo > 0 and not is_given_up(task.budget):
        bring_up_best(task.sum_slots, task.budget, stack, ZERO(), n_todo)
        n_todo -= 1
        start, in_stop, stop, depth, _, _, _ = stack.todo[n_todo]
        path = stack.path[n_todo]
        if in_stop - start <= task.block_rows:
            n_nodes = _grow_in_block(task.block, columns, task, n_todo, nodes, n_nodes)
            continue
        node = n_nodes
        n_nodes += 1
        open_node(stack, n_todo, nodes, node)
        node_sums = stack.sums[n_todo]
        if waits_in_vain(task.budget, n_todo) or not may_be_split(stops, in_stop - start, depth, weight_of(task, node_sums)):
            _give_back(task.sum_slots, n_todo)
            continue
        best.records[0].status = CONSTANT
        if not is_pure(task.target, partition.rows, start, in_stop):
            if has_slots(task.sum_slots):
                search_zones(columns, task, n_todo, start, in_stop, node_sums)
            if not has_slots(task.sum_slots) or (best.records[0].status != SPLIT and draws_columns(task)):
                search_table(columns, task, start, in_stop, node_sums, path)
        split = best.records[0]
        if split.status != SPLIT or not is_to_be_split(task.budget, n_todo, split.gain):
            _give_back(task.sum_slots, n_todo)
            continue
        note_split(nodes.records[node], split)
        inside, outside = _divide(columns, task, start, in_stop, stop, depth)
        middle = start + inside + outside
        put_children(stack, n_todo, node, stops.right_side, middle, start + inside, best.left[0])
        if task.has_words:
            hand_down(task, split.column, stack.sums[n_todo + 1], stack.sums[n_todo])
        if has_slots(task.sum_slots):
            hand_down_slot(task, np.int64(n_todo))
        n_todo += 2
        put_in_order(task.sum_slots, task.budget, stack, ZERO(), n_todo)
    return n_nodes


@lean_entry
def grow_sparse(columns, task, root, path, sums, origin, nodes):
    """Grow the subtree of a node of a sparse table; parameters and result are those of :func:`grow_subtree`.

    ``root``, int64 of shape (4,), has the start of the node, the end of its in-sample rows and of all its rows, and its depth;
    ``origin`` is its ORIGIN (:mod:`dtrees.split.grow.best_first`).
    """
    note_places(task.buffer.place_of, task.partition.rows, root[0], root[2])
    task.budget.waiting[0] = origin
    return grow_subtree(columns, task, root[0], root[1], root[2], root[3], path, sums, nodes)


@lean_entry
def divide_shared(columns, task, start, in_stop, stop, depth):
    """Apply the split in ``task.best`` to a node of a sparse table; return the numbers going left, in sample and out of sample."""
    return _divide(columns, task, start, in_stop, stop, depth)
