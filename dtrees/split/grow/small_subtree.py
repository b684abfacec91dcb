"""Growth of a small node to its leaves in a block, which stays in the cache (:mod:`dtrees.split.grow.block`)."""

from __future__ import annotations

from numba import types

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.compile.specialised import optional
from dtrees.split.grow.best_first import bring_up_best, is_to_be_split, put_in_order, waits_in_vain
from dtrees.split.grow.block import divide_block, divide_block_by_side, fill_block, is_pure_block, write_back
from dtrees.split.grow.by_criterion import hand_down, search_lists, search_random, search_tiny
from dtrees.split.grow.stack import open_node, put_children
from dtrees.split.node.limits import is_categorical, is_random, may_be_split
from dtrees.split.node.partition import is_pure
from dtrees.split.node.records import CONSTANT, SPLIT, note_split, threshold_between
from dtrees.split.policy import TINY_RANKED_ROWS, TINY_ROWS
from dtrees.split.search.line_up import LineUp


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
