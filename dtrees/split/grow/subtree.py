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
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.compile.methods import UNKNOWN, Hidden, hide
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.parts import weight_sums, without_words
from dtrees.split.grow.best_first import LeafBudget, bring_up_best, is_given_up, is_limited, is_to_be_split, put_in_order, waits_in_vain
from dtrees.split.grow.block import Block, divide_block, divide_block_by_side, fill_block, is_pure_block, write_back
from dtrees.split.grow.by_criterion import draws_columns, hand_down, search_lists, search_random, search_table, search_tiny, search_zones
from dtrees.split.node.limits import AnyCriterion, NodeLimits, SplitLimits, is_categorical, is_random, may_be_split
from dtrees.split.node.partition import RowPartition, Sides, divide, is_pure, mark_left, mark_left_sparse
from dtrees.split.node.records import CONSTANT, SPLIT, Candidates, cut_of, link, make_leaf, note_split, threshold_between
from dtrees.split.numbers.hashing import LEFT, child_path
from dtrees.split.policy import TINY_RANKED_ROWS, TINY_ROWS
from dtrees.split.search.line_up import LineUp
from dtrees.split.search.scratch import Scratch
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.zones.sum_slots import SumSlots, give_back_of, has_slots, inherit
from dtrees.split.zones.sums import note_places


@by_reference
class Stack(NamedTuple):
    """The nodes of a subtree that wait while it is grown depth first.

    Attributes
    ----------
    todo : ndarray of int64, shape (n, 7)
        Start, in_stop, stop, depth, parent, side (0 is left) and, in a block, the first out-of-sample row.
    path : ndarray of uint64, shape (n,)
        Paths of the nodes.
    sums : ndarray of int64, shape (n, n_sums)
    """

    todo: NDArray[np.int64]
    path: NDArray[np.uint64]
    sums: NDArray[np.int64]


def make_stack(n_levels: int, n_rows: int, n_sums: int) -> Stack:
    """Return buffers for a subtree of ``n_levels`` levels and ``n_rows`` rows: at each level, at most one sibling waits."""
    capacity = min(n_levels, n_rows) + 2
    # Few trees reach the largest depth, so most of this is not used.
    todo, sums = (mapped(capacity * width, np.int64, large_pages=False).reshape(capacity, width) for width in (7, n_sums))
    return Stack(todo, mapped(capacity, np.uint64, large_pages=False), sums)


@inlined_kernel
def put(stack, n, start, in_stop, stop, depth, parent, side, path):
    """Write the n-th node."""
    todo = stack.todo[n]
    todo[0], todo[1], todo[2], todo[3], todo[4], todo[5] = start, in_stop, stop, depth, parent, side
    stack.path[n] = path


@inlined_kernel
def put_root(stack, start, in_stop, stop, depth, path, sums):
    """Write the only node: the root of a subtree."""
    put(stack, ZERO(), start, in_stop, stop, depth, NONE(), ZERO(), path)
    for k in range(sums.shape[0]):
        stack.sums[0, k] = sums[k]


@inlined_kernel
def put_children(stack, n, node, right_side, middle, left_in_stop, left_sums):
    """Replace the n-th node, now number ``node``, by its two children, the left one on top."""
    start, in_stop, stop, depth, _, _, _ = stack.todo[n]
    path, sums = stack.path[n], stack.sums[n]
    right_in_stop = middle + (in_stop - start) - (left_in_stop - start)
    put(stack, n, middle, right_in_stop, stop, depth + 1, node, ZERO() + 1, child_path(path, right_side))
    put(stack, n + 1, start, left_in_stop, middle, depth + 1, node, ZERO(), child_path(path, LEFT))
    for k in range(sums.shape[0]):
        stack.sums[n, k] = sums[k] - left_sums[k]
        stack.sums[n + 1, k] = left_sums[k]


@inlined_kernel
def open_node(stack, n, nodes, node):
    """Write the n-th entry of the stack as node number ``node``, a leaf so far."""
    start, in_stop, stop, _, parent, side, _ = stack.todo[n]
    for k in range(nodes.sums.shape[1]):
        nodes.sums[node, k] = stack.sums[n, k]
    make_leaf(nodes.records[node], start, in_stop, stop)
    link(nodes.records, parent, side, node)


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
        Nodes of up to this many in-sample rows are finished in the block or, if the table is sparse, searched by their cells.
    sum_slots : SumSlots
        If there are any, larger nodes are searched by zone sums that they inherit.
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
    sum_slots: SumSlots
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


# Nodes that are grown in a block ---------------------------------------------------------------------------------------------------------


@inlined_kernel
def _threshold_in(columns, column, code, next_code):
    """Return the threshold between two codes of a column."""
    return threshold_between(columns.words[columns.offsets[column] : columns.offsets[column + 1]], code, next_code)


@inlined_kernel
def _read_threshold(columns, nodes, unread, code, next_code):
    """Read the threshold of node number ``unread``, if there is one (-1: none)."""
    if unread >= 0:
        record = nodes.records[unread]
        record.threshold = _threshold_in(columns, record.column, code, next_code)


@lean_kernel
def _search(columns, task, first, last, sums, path):
    """Find the best split of a node of the block and write it to ``task.best``, without thresholds that are read from the table."""
    if is_random(task.limits.thresholds):
        search_random(columns, task, first, last, sums, path)
    elif last - first < _fewest_sorted(task):
        search_tiny(columns, task, first, last, sums, path)
    else:
        search_lists(columns, task, first, last, sums, path)


@optional
def _forget_block(line_up):
    """Forget the rows of another block's nodes, which had the same places."""


@_forget_block.of(LineUp)
def _(line_up):
    line_up.node[0] = -1


@optional
def _write_ranks(line_up, partition, block, start, first, last):
    """Write the ranks of targets of the rows of a leaf back to the partition, which measuring values needs."""


@_write_ranks.of(LineUp)
def _(line_up, partition, block, start, first, last):
    for k in range(last - first):
        partition.g[start + k] = block.g[block.places[first + k]]


@inlined_kernel
def _fewest_sorted(task):
    """Return the smallest number of rows for which the lists of a node of a block must be sorted; smaller ones are searched unsorted."""
    most_unsorted = TINY_ROWS if task.scratch.line_up is None else TINY_RANKED_ROWS
    return 2 if task.limits.categories.some or task.is_plain else most_unsorted + 1


@lean_kernel
def _divide_block(columns, task, split, places, keep_sorted):
    """Apply the split found last to its node of the block; see :func:`~dtrees.split.grow.block.divide_block`."""
    limits, block, column = task.limits, task.block, split.column
    if is_categorical(limits.categories, column):
        side = task.scratch.groups.side
        return divide_block_by_side(columns, block, side, task.scratch.spare, task.pool, split, places, keep_sorted)
    return divide_block(columns, block, limits.thresholds, task.scratch.spare, task.pool, split, places, keep_sorted)


@lean_kernel
def weight_of(task, sums):
    """Return the weight of a node, given its sums."""
    weight, (first, last) = ZERO(), task.weight
    for k in range(first, last):
        weight += sums[k]
    return weight


@separate_kernel(returns=types.int64)
def grow_block(columns, task, bottom, nodes, n_nodes):
    """Grow the subtree of a small node, number ``bottom`` on the stack, in a block; its nodes are numbered from ``n_nodes``.

    A node's in-sample rows are ``first:last`` of the block's lists, and its out-of-sample rows ``out_first:out_last``; places in the
    partition follow from both. Returns the new number of nodes.
    """
    limits, stops, best, block, stack = task.limits, task.stops, task.best, task.block, task.stack
    base, in_stop, stop, depth, _, _, _ = stack.todo[bottom]
    may_not = waits_in_vain(task.budget, bottom) or not may_be_split(stops, in_stop - base, depth, weight_of(task, stack.sums[bottom]))
    if may_not or is_pure(task.target, task.partition.rows, base, in_stop):
        open_node(stack, bottom, nodes, n_nodes)
        return n_nodes + 1
    fill_block(columns, task, base, in_stop, stop)
    _forget_block(task.scratch.line_up)
    stack.todo[bottom, 6] = 0
    n_todo = bottom + 1
    unread, code, next_code = NONE(), ZERO(), ZERO()
    while n_todo > bottom:
        bring_up_best(task.sum_slots, task.budget, stack, bottom, n_todo)
        n_todo -= 1
        start, in_stop, stop, depth, _, _, out_first = stack.todo[n_todo]
        path = stack.path[n_todo]
        node = n_nodes
        n_nodes += 1
        open_node(stack, n_todo, nodes, node)
        node_sums = stack.sums[n_todo]
        n_rows = in_stop - start
        out_last = out_first + stop - in_stop
        first = start - base - out_first
        last = first + n_rows
        best.records[0].status = CONSTANT
        may_be = may_be_split(stops, n_rows, depth, weight_of(task, node_sums)) and not waits_in_vain(task.budget, n_todo)
        if may_be and not is_pure_block(task.target, block, first, last):
            _search(columns, task, first, last, node_sums, path)
        split = best.records[0]
        if split.status != SPLIT or not is_to_be_split(task.budget, n_todo, split.gain):
            write_back(task.partition, block, start, first, last, out_first, out_last)
            _write_ranks(task.scratch.line_up, task.partition, block, start, first, last)
            continue
        if not is_random(limits.thresholds):
            # The two values around a threshold are prefetched now and read when the next node is split.
            _read_threshold(columns, nodes, unread, code, next_code)
            unread, code, next_code = node, task.scratch.found.record[0].code, task.scratch.found.record[0].next_code
            if is_categorical(limits.categories, split.column):
                unread = NONE()
            else:
                if out_last > out_first:
                    split.threshold = _threshold_in(columns, split.column, code, next_code)
                prefetch_row(columns.words, columns.offsets[split.column] + code)
                prefetch_row(columns.words, columns.offsets[split.column] + next_code)
        note_split(nodes.records[node], split)
        larger = max(split.n_left, n_rows - split.n_left)
        least = max(stops.min_samples, _fewest_sorted(task))
        keep_sorted = not is_random(limits.thresholds) and larger >= least and depth + 1 < stops.max_depth
        places = (first, last, out_first, out_last)
        middle, out_middle = _divide_block(columns, task, split, places, keep_sorted)
        left_in_stop = start + middle - first
        left_stop = left_in_stop + out_middle - out_first
        put_children(stack, n_todo, node, stops.right_side, left_stop, left_in_stop, best.left[0])
        if task.has_words:
            hand_down(task, split.column, stack.sums[n_todo + 1], stack.sums[n_todo])
        stack.todo[n_todo, 6] = out_middle
        stack.todo[n_todo + 1, 6] = out_first
        n_todo += 2
        put_in_order(task.sum_slots, task.budget, stack, bottom, n_todo)
    _read_threshold(columns, nodes, unread, code, next_code)
    return n_nodes


# Larger nodes ----------------------------------------------------------------------------------------------------------------------------


@lean_kernel
def _give_back(sum_slots, n):
    if has_slots(sum_slots):
        give_back_of(sum_slots, n)


@lean_kernel
def is_large(task, n_rows, depth, sums):
    """Return whether a node has to be searched by zone sums, if there are any."""
    return n_rows > task.block_rows and may_be_split(task.stops, n_rows, depth, weight_of(task, sums))


@separate_kernel(returns=types.none)
def hand_down_slot(task, n):
    """Pass the slot of the n-th node on the stack to its children, now the n-th and the next."""
    sum_slots, todo, sums = task.sum_slots, task.stack.todo, task.stack.sums
    left = is_large(task, todo[n + 1, 1] - todo[n + 1, 0], todo[n + 1, 3], sums[n + 1])
    right = is_large(task, todo[n, 1] - todo[n, 0], todo[n, 3], sums[n])
    if task.buffer is None and (left or right):  # places in sparse tables are always noted
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
        inside, outside = divide(used, partition, start, in_stop, stop, task.spare)
    else:  # the numbers of these rows are not needed any more: they are divided like out-of-sample rows
        inside = split.n_left
        outside = divide(used, partition, start, start, stop, task.spare)[1] - inside
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
        if task.block is not None and in_stop - start <= task.block_rows:
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
            by_zones = has_slots(task.sum_slots) and in_stop - start > task.block_rows
            if by_zones:
                search_zones(columns, task, n_todo, start, in_stop, node_sums)
            if not by_zones or (best.records[0].status != SPLIT and draws_columns(task)):
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
