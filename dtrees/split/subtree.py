"""A node grown to its end, depth first, in one kernel.

Small nodes are not worth a visit of the engine each. All of a subtree's splits are found here, by the same search, under the same rules
and with the same draws as in the engine, so it makes no difference to the tree where a node was grown. A forest grows whole trees this
way, one a thread. Nodes small enough are finished in a block that stays in the cache (:mod:`dtrees.split.block`).

Nodes come out in preorder: a parent, its left subtree, its right subtree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.block import FEW_ROWS, Block, divide_block, empty_block, fill_block, is_pure_block
from dtrees.split.columns import highest_code_below
from dtrees.split.criteria import NEWTON
from dtrees.split.few import search_few
from dtrees.split.hashing import draw, draw_columns, undraw_columns
from dtrees.split.heirs import Heirs, begin_search, give_back_of, inherit, search_columns, slot_for
from dtrees.split.kernel import NONE, ZERO, inlined_kernel, kernel, lean_kernel, merged_kernel
from dtrees.split.nodes import link, make_leaf, note_split
from dtrees.split.partition import RowPartition, divide_within, is_pure, mark_left
from dtrees.split.random_split import search_random_block
from dtrees.split.search import Candidates, Scratch, complete, search_column, search_sorted
from dtrees.split.stack import Stack, put, put_children
from dtrees.split.status import CONSTANT, SPLIT
from dtrees.split.sweep import Limits, bar_for
from dtrees.split.zone_sums import note_places


class Stops(NamedTuple):
    """When a node is not searched at all.

    Attributes
    ----------
    max_depth : int
    min_samples : int
        Fewest in-sample rows of a node to be split.
    min_weight : int
        Smallest H (weight) of a node to be split.
    max_features : int
        Columns drawn for each node.
    """

    max_depth: int
    min_samples: int
    min_weight: int
    max_features: int


@kernel
def may_be_split(stops, n_rows, depth, weight):
    """Tell whether a node is to be searched, from its size alone."""
    return depth < stops.max_depth and n_rows >= stops.min_samples and weight >= stops.min_weight


@kernel
def node_weight(limits, sums):
    """Return the weight of a node from its sums."""
    if limits.n_classes > 0:
        weight = 0
        for k in range(sums.shape[0]):
            weight += sums[k]
        return weight
    return sums[1]


@kernel
def most_nodes(stops, limits, n_rows, depth):
    """Return how many nodes a subtree of so many in-sample rows can have."""
    leaves = max(1, n_rows // max(1, limits.min_samples))
    levels = stops.max_depth - depth
    if levels < 40:
        leaves = min(leaves, 1 << max(levels, 0))
    return 2 * leaves - 1


class Task(NamedTuple):
    """What one subtree is grown by: everything but its node.

    Attributes
    ----------
    partition, spare : RowPartition
        The node's stretch is rearranged; ``spare`` has room for it.
    target : ndarray, shape (n_rows,) or (0,)
        By which pure nodes are known.
    limits : Limits
    stops : Stops
    keys : tuple of uint64
        Of the tree's streams of node columns and random thresholds.
    pool : ndarray of int32
        The tree's columns.
    scratch : Scratch
    best : Candidates
        Room for one.
    bits : ndarray of uint8
        Room for a bit a row.
    block : Block
    block_rows : int
        Nodes of up to this many in-sample rows are finished in the block.
    stack : Stack
    heirs : Heirs or None
        Given, larger nodes are searched by zone sums that they inherit.
    """

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: Limits
    stops: Stops
    keys: tuple[np.uint64, np.uint64]
    pool: NDArray[np.int32]
    scratch: Scratch
    best: Candidates
    bits: NDArray[np.uint8]
    block: Block
    block_rows: int
    stack: Stack
    heirs: Heirs | None


@lean_kernel
def search_node(columns, task, first, last, sums, path, in_block):
    """Find the best split of one node over the columns drawn for it; return as :func:`~dtrees.split.few.search_few`.

    As in scikit-learn, drawing goes on beyond ``max_features`` while all columns drawn so far are constant in the node. The node's
    in-sample rows are the places first..last of the partition or, ``in_block``, of the block's lists.
    """
    limits, stops, scratch, pool, block = task.limits, task.stops, task.scratch, task.pool, task.block
    partition = task.partition
    node_key, threshold_key = task.keys
    n_columns = pool.shape[0]
    everything = stops.max_features >= n_columns
    status = CONSTANT
    score = -1.0
    winner = -1
    has_missing = False
    drawn = 0
    while drawn < n_columns and (drawn < stops.max_features or status == CONSTANT):
        if not everything:
            draw_columns(node_key, path, pool, drawn, drawn + 1)
        column = pool[drawn]
        drawn += 1
        bar = bar_for(column, winner, score)
        offset, end = columns.offsets[column], columns.offsets[column + 1]
        if in_block:
            keys = block.keys[block.place_of[column]]
            found = search_sorted(keys, first, last, end - offset, block.a, block.b, ZERO(), sums, limits, bar, scratch)
        else:
            bits = draw(np.uint64(threshold_key) ^ path, column)
            codes, values = columns.codes[column], columns.values[offset:end]
            found = search_column(scratch.absolute, codes, values, partition, first, last, sums, limits, bits, bar, scratch)
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    if not everything:
        undraw_columns(node_key, path, pool, drawn)
    return status, score, has_missing, winner


@inlined_kernel
def _conclude(columns, task, n, sums, status, score, has_missing, column):
    """Write what the search of a node of ``n`` rows found to ``task.best``."""
    task.best.records[0].status = status
    if status == SPLIT:
        values = columns.values[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, column, n, sums, task.limits, score, has_missing, task.scratch, task.best, ZERO())


@inlined_kernel
def _open_node(stack, n, nodes, node):
    """Make node number ``node``, a leaf so far, of the n-th entry of the stack."""
    start, mid, stop, _, parent, side, _ = stack.todo[n]
    for k in range(nodes.sums.shape[1]):
        nodes.sums[node, k] = stack.sums[n, k]
    make_leaf(nodes.records[node], start, mid, stop)
    link(nodes.records, parent, side, node)


@lean_kernel
def _search_large(heirs, columns, task, n, first, last, sums, path):
    """Find the best split of the n-th node of the stack, which is not in a block."""
    if heirs is None:  # decided by type: only one way is compiled
        status, score, has_missing, column = search_node(columns, task, first, last, sums, path, first < 0)
        _conclude(columns, task, last - first, sums, status, score, has_missing, column)
        return
    place = (first, last, slot_for(heirs, n, task.partition, first, last))
    limits, partition, scratch, best, bar = task.limits, task.partition, task.scratch, task.best, heirs.bar
    lead = begin_search(heirs, partition, place, sums, limits, bar, ZERO(), scratch, best)
    n_columns = heirs.zone_map.which.shape[0]
    for turn in range(2):
        start, stop, but = (lead, lead + 1, NONE()) if turn == 0 else (ZERO(), n_columns, lead)
        search_columns(heirs, start, stop, but, columns, limits, partition, place, sums, bar, ZERO(), scratch, best)


@lean_kernel
def _give_back(heirs, n):
    if heirs is not None:
        give_back_of(heirs, n)


@lean_kernel
def is_large(task, n_rows, depth, sums):
    """Tell whether a node is to be searched, and not in a block."""
    return n_rows > task.block_rows and may_be_split(task.stops, n_rows, depth, node_weight(task.limits, sums))


@lean_kernel
def _inherit(heirs, task, n):
    if heirs is not None:
        todo, sums = task.stack.todo, task.stack.sums
        left = is_large(task, todo[n + 1, 1] - todo[n + 1, 0], todo[n + 1, 3], sums[n + 1])
        right = is_large(task, todo[n, 1] - todo[n, 0], todo[n, 3], sums[n])
        if left or right:
            note_places(heirs.sums.place_of, task.partition.rows, todo[n + 1, 0], todo[n, 2])
        inherit(heirs, n, task.partition, todo, left, right)


@merged_kernel
def grow_subtree(columns, task, start, mid, stop, depth, path, sums, nodes):
    """Grow the subtree of the node at places start..mid..stop.

    Parameters
    ----------
    columns : Columns
        All columns of the table.
    task : Task
    depth : int
    path : uint64
    sums : ndarray of int64, shape (n_sums,)
    nodes : Nodes
        Written; room for every node there can be (:func:`most_nodes`).

    Returns
    -------
    int
        The number of nodes.
    """
    partition, limits, stops, best = task.partition, task.limits, task.stops, task.best
    stack = task.stack
    put(stack, ZERO(), start, mid, stop, depth, NONE(), ZERO(), path)
    for k in range(sums.shape[0]):
        stack.sums[0, k] = sums[k]
    n_todo = 1
    n_nodes = ZERO()
    while n_todo > 0:
        n_todo -= 1
        start, mid, stop, depth, _, _, _ = stack.todo[n_todo]
        path = stack.path[n_todo]
        if mid - start <= task.block_rows:
            n_nodes = _grow_block(columns, task, stack, n_todo, nodes, n_nodes)
            continue
        node = n_nodes
        n_nodes += 1
        _open_node(stack, n_todo, nodes, node)
        node_sums = stack.sums[n_todo]
        if not may_be_split(stops, mid - start, depth, node_weight(limits, node_sums)):
            continue
        best.records[0].status = CONSTANT
        if not is_pure(task.target, partition.rows, start, mid):
            _search_large(task.heirs, columns, task, n_todo, start, mid, node_sums, path)
        split = best.records[0]
        if split.status != SPLIT:
            _give_back(task.heirs, n_todo)
            continue
        note_split(nodes.records[node], split)
        column = split.column
        values = columns.values[columns.offsets[column] : columns.offsets[column + 1]]
        missing_code = values.shape[0]
        cut = split.cut
        if stop > mid:  # rows out of sample may have values between those in sample
            cut = highest_code_below(values, cut, missing_code - 1, split.threshold)
        used = task.bits[: (stop - start + 7) // 8]
        mark_left(columns.codes[column], cut, missing_code, split.missing_left, partition.rows, start, stop, used)
        if depth + 1 < stops.max_depth or limits.criterion != NEWTON:
            inside, outside = divide_within(used, partition, start, mid, stop, task.spare)
        else:  # nobody wants the sums of these rows any more: they may be divided as those out of sample are
            inside = split.n_left
            outside = divide_within(used, partition, start, start, stop, task.spare)[1] - inside
        middle = start + inside + outside
        put_children(stack, n_todo, node, start, mid, stop, depth, path, middle, start + inside, node_sums, best.left[0])
        _inherit(task.heirs, task, n_todo)
        n_todo += 2
    return n_nodes


@merged_kernel
def _grow_block(columns, task, stack, bottom, nodes, n_nodes):
    """Grow the subtree of a small node, number ``bottom`` on the stack, in a block; its nodes are numbered from ``n_nodes``.

    Here a node's in-sample rows are ``first:last`` of the block's lists and its rows out of sample ``out_first:out_last``; places in
    the partition follow from both. Returns the number of nodes then.
    """
    limits, stops, best, block = task.limits, task.stops, task.best, task.block
    base, mid, stop, depth, _, _, _ = stack.todo[bottom]
    first_node = n_nodes
    weight = node_weight(limits, stack.sums[bottom])
    if not may_be_split(stops, mid - base, depth, weight) or is_pure(task.target, task.partition.rows, base, mid):
        _open_node(stack, bottom, nodes, n_nodes)
        return n_nodes + 1
    fill_block(columns, task.pool, task.partition, task.target, base, mid, stop, block, limits.random, task.scratch)
    stack.todo[bottom, 6] = 0
    n_todo = bottom + 1
    while n_todo > bottom:
        n_todo -= 1
        start, mid, stop, depth, _, _, out_first = stack.todo[n_todo]
        path = stack.path[n_todo]
        node = n_nodes
        n_nodes += 1
        _open_node(stack, n_todo, nodes, node)
        node_sums = stack.sums[n_todo]
        n_rows = mid - start
        if not may_be_split(stops, n_rows, depth, node_weight(limits, node_sums)):
            continue
        out_last = out_first + stop - mid
        first = start - base - out_first
        last = first + n_rows
        if is_pure_block(task.target, block, first, last):
            continue
        if limits.random:
            status, score, has_missing, column = search_random_block(
                limits, stops.max_features, task.keys, task.pool, block, first, last, node_sums, path, task.scratch
            )
        elif n_rows <= FEW_ROWS:
            status, score, has_missing, column = search_few(
                columns, limits, stops.max_features, task.keys[0], task.pool, block, first, last, node_sums, path, task.scratch
            )
        else:
            status, score, has_missing, column = search_node(columns, task, first, last, node_sums, path, first >= 0)
        _conclude(columns, task, n_rows, node_sums, status, score, has_missing, column)
        split = best.records[0]
        if split.status != SPLIT:
            continue
        note_split(nodes.records[node], split)
        larger = max(split.n_left, n_rows - split.n_left)
        keep_sorted = not limits.random and larger >= max(stops.min_samples, FEW_ROWS + 1) and depth + 1 < stops.max_depth
        places = (first, last, out_first, out_last)
        middle, out_middle = divide_block(columns, block, task.scratch.spare, task.pool, split, places, keep_sorted)
        left_mid = start + middle - first
        left_stop = left_mid + out_middle - out_first
        put_children(stack, n_todo, node, start, mid, stop, depth, path, left_stop, left_mid, node_sums, best.left[0])
        stack.todo[n_todo, 6] = out_middle
        stack.todo[n_todo + 1, 6] = out_first
        n_todo += 2
    empty_block(task.partition, block, nodes, first_node, n_nodes)
    return n_nodes
