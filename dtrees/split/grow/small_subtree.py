"""A small node grown to its end in a block, which stays in the cache (:mod:`dtrees.split.grow.block`)."""

from __future__ import annotations

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints import hand_down, unconstrained
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.grow.best_first import bring_up_best, is_to_be_split, put_in_order, waits_in_vain
from dtrees.split.grow.block import divide_block, divide_block_by_side, fill_block, is_pure_block, write_back
from dtrees.split.grow.column_by_column import InBlock, search_node
from dtrees.split.grow.stack import open_node, put_children
from dtrees.split.node.limits import BestThreshold, RandomThreshold, is_categorical, is_random, may_be_split, node_weight
from dtrees.split.node.partition import is_pure
from dtrees.split.node.records import CONSTANT, SPLIT, complete_but_threshold, note_split, threshold_between
from dtrees.split.numbers.hashing import ColumnDrawing
from dtrees.split.policy import TINY_RANKED_ROWS, TINY_ROWS
from dtrees.split.search.categories import choose_sides_of_list
from dtrees.split.search.random_threshold import search_random_block
from dtrees.split.search.tiny_node import search_tiny_node


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


@inlined_kernel
def _conclude_small(columns, task, n, sums, status, score, has_missing, column):
    """Write what the search of a node of a block found to ``task.best``, but for thresholds that are to be read from the table."""
    task.best.records[0].status = status
    if status == SPLIT:
        n_distinct, found = columns.offsets[column + 1] - columns.offsets[column], task.scratch.found
        complete_but_threshold(n_distinct, column, n, sums, task.limits, score, has_missing, found, task.best, ZERO())


@inlined_kernel
def _drawing_of(task):
    """Return how the columns of a node are drawn."""
    return ColumnDrawing(task.stops.max_features, task.keys[0], task.pool)


@specialised
def _search_small(thresholds, columns, task, first, last, sums, path):
    """Find the best split of a node of a block; result as of :func:`search_node`."""


@_search_small.of(RandomThreshold)
def _(thresholds, columns, task, first, last, sums, path):
    return search_random_block(task.limits, _drawing_of(task), task.keys[1], task.block, first, last, sums, path, task.scratch)


@_search_small.of(BestThreshold)
def _(thresholds, columns, task, first, last, sums, path):
    if task.limits.categories.some or last - first > _most_unsorted(unconstrained(task.limits.criterion)):
        return search_node(InBlock(), columns, task, first, last, sums, path)
    return search_tiny_node(columns, task.limits, _drawing_of(task), task.block, first, last, sums, path, task.scratch)


@optional
def _most_unsorted(criterion):
    """Return up to how many rows a node of a block is searched all columns side by side, without sorted lists."""
    return TINY_ROWS


@_most_unsorted.of(Deviations)
def _(criterion):
    return TINY_RANKED_ROWS


@optional
def grow_small(criterion, columns, task, bottom, nodes, n_nodes):
    """Grow the subtree of a small node; see :func:`grow_block`."""
    return grow_block(columns, task, bottom, nodes, n_nodes)


@grow_small.of(Deviations)
def _(criterion, columns, task, bottom, nodes, n_nodes):
    return _grow_ranked(task.limits.thresholds, columns, task, bottom, nodes, n_nodes)


@grow_small.of(SeveralDeviations)
def _(criterion, columns, task, bottom, nodes, n_nodes):
    return n_nodes  # several targets are not grown in blocks


@specialised
def _grow_ranked(thresholds, columns, task, bottom, nodes, n_nodes):
    """Grow the subtree of a small node whose rows carry the numbers of their targets; see :func:`grow_block`."""


@_grow_ranked.of(BestThreshold)
def _(thresholds, columns, task, bottom, nodes, n_nodes):
    task.scratch.line_up.node[0] = -1  # another block's nodes had the same places
    return grow_block(columns, task, bottom, nodes, n_nodes)


@_grow_ranked.of(RandomThreshold)
def _(thresholds, columns, task, bottom, nodes, n_nodes):
    return n_nodes  # thresholds drawn at random are searched in blocks by sums only


@optional
def _write_ranks(criterion, partition, block, start, first, last):
    """Write the numbers of targets of the rows of a leaf back to the partition: values are measured by them."""


@_write_ranks.of(Deviations)
def _(criterion, partition, block, start, first, last):
    for k in range(last - first):
        partition.g[start + k] = block.g[block.places[first + k]]


@inlined_kernel
def _fewest_sorted(limits):
    """Return from how many rows on the lists of a node of a block must be sorted for it to be searched."""
    return 2 if limits.categories.some else _most_unsorted(unconstrained(limits.criterion)) + 1


@lean_kernel
def _divide_block(columns, task, split, places, sums, keep_sorted):
    """Apply a split to a node of the block; see :func:`~dtrees.split.grow.block.divide_block`."""
    limits, block, column = task.limits, task.block, split.column
    if is_categorical(limits.categories, column):
        values, keys = columns.words[columns.offsets[column] : columns.offsets[column + 1]], block.keys[block.place_of[column]]
        choose_sides_of_list(column, values, keys, block, (places[0], places[1]), sums, limits, split.threshold, task.scratch)
        side = task.scratch.groups.side
        return divide_block_by_side(columns, block, side, task.scratch.spare, task.pool, split, places, keep_sorted)
    return divide_block(columns, block, limits.thresholds, task.scratch.spare, task.pool, split, places, keep_sorted)


@lean_kernel
def grow_block(columns, task, bottom, nodes, n_nodes):
    """Grow the subtree of a small node, number ``bottom`` on the stack, in a block; its nodes are numbered from ``n_nodes``.

    Here a node's in-sample rows are ``first:last`` of the block's lists and its rows out of sample ``out_first:out_last``; places in
    the partition follow from both. Returns the number of nodes then.
    """
    limits, stops, best, block, stack = task.limits, task.stops, task.best, task.block, task.stack
    base, in_stop, stop, depth, _, _, _ = stack.todo[bottom]
    weight = node_weight(limits, stack.sums[bottom])
    may_not = waits_in_vain(task.budget, bottom) or not may_be_split(stops, in_stop - base, depth, weight)
    if may_not or is_pure(task.target, task.partition.rows, base, in_stop):
        open_node(stack, bottom, nodes, n_nodes)
        return n_nodes + 1
    fill_block(columns, task.pool, task.partition, task.target, base, in_stop, stop, block, limits.thresholds, task.scratch)
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
        may_be = may_be_split(stops, n_rows, depth, node_weight(limits, node_sums)) and not waits_in_vain(task.budget, n_todo)
        if may_be and not is_pure_block(task.target, block, first, last):
            status, score, has_missing, column = _search_small(limits.thresholds, columns, task, first, last, node_sums, path)
            _conclude_small(columns, task, n_rows, node_sums, status, score, has_missing, column)
        split = best.records[0]
        if split.status != SPLIT or not is_to_be_split(task.budget, n_todo, split.gain):
            write_back(task.partition, block, start, first, last, out_first, out_last)
            _write_ranks(unconstrained(limits.criterion), task.partition, block, start, first, last)
            continue
        if not is_random(limits.thresholds):
            # The two values that a threshold lies between are asked for now and read when the next node is split.
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
        least = max(stops.min_samples, _fewest_sorted(limits))
        keep_sorted = not is_random(limits.thresholds) and larger >= least and depth + 1 < stops.max_depth
        places = (first, last, out_first, out_last)
        middle, out_middle = _divide_block(columns, task, split, places, node_sums, keep_sorted)
        left_in_stop = start + middle - first
        left_stop = left_in_stop + out_middle - out_first
        put_children(stack, n_todo, node, stops.right_side, left_stop, left_in_stop, best.left[0])
        hand_down(limits.criterion, split.column, stack.sums[n_todo + 1], stack.sums[n_todo])
        stack.todo[n_todo, 6] = out_middle
        stack.todo[n_todo + 1, 6] = out_first
        n_todo += 2
        put_in_order(task.sum_slots, task.budget, stack, bottom, n_todo)
    _read_threshold(columns, nodes, unread, code, next_code)
    return n_nodes
