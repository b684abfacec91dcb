"""Subtrees grown by several threads inside one kernel, which share the work on large nodes.

Starting threads from Python for every step of a level takes longer than many of these steps. So each thread enters once, and works until
all work is done. Two kinds of work wait: *chunks* of a step on a large node, and nodes small enough to be grown to their leaves by one
thread (:mod:`dtrees.split.grow.subtree`). Chunks go first, as more work follows from them; then the largest node. No step depends on a
thread that has not entered: the thread that finishes the last chunk of a step creates the chunks of the next::

    OPEN -> SUM, SETTLE (the root) -> LEAD -> SCAN -> DIVIDE -> MARK -> SPREAD -> SUM, SETTLE (the smaller child) -> OPEN both children

If the number of leaves is limited, nodes wait for OPEN and DIVIDE in the order in which best-first growth splits them
(:mod:`dtrees.split.grow.best_first`), so few nodes are searched or divided that the tree does not need.

A large node's rows are divided from one of the two partitions into the other, the spare one, and those of its children back again. If a
node is not divided any more, or left to one thread, its rows are copied to the first.

The tree does not depend on which thread does what. Large nodes are searched by zone sums (:mod:`dtrees.split.zones.sum_slots`), which
are also computed and read by several threads (:mod:`dtrees.split.grow.parallel_sums`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import typeof, types

from dtrees.split.compile.kernels import NONE, ZERO, lean_entry, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch_to_write
from dtrees.split.compile.methods import Methods
from dtrees.split.compile.specialised import optional
from dtrees.split.compile.work_queue import acquire, release
from dtrees.split.grow import by_criterion, parallel_sums
from dtrees.split.grow import work_pool as pools
from dtrees.split.grow.best_first import come_from, is_hopeless, is_limited, is_still_first, number_split
from dtrees.split.grow.block import fill_block
from dtrees.split.grow.subtree import Task, grow_block, grow_subtree, hand_down_slot, is_large, put_root, weight_of
from dtrees.split.node.limits import BestThreshold, is_categorical, may_be_split, most_nodes
from dtrees.split.node.partition import Sides, is_pure, mark_places, mark_places_sparse
from dtrees.split.node.records import NO_SPLIT, SPLIT, Nodes, cut_of, make_leaf, note_split
from dtrees.split.numbers.hashing import LEFT, child_path
from dtrees.split.policy import AHEAD_TO_WRITE, CHUNKS, SPARSE_CHUNKS
from dtrees.split.search.categories import search_categories_of_list
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.table.columns import Columns
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.by_category import SummedNode
from dtrees.split.zones.sum_slots import give_back, has_slots, keep, search_columns
from dtrees.split.zones.sums import are_few


@lean_entry
def grow_together(columns, work_pool, task):
    """Grow the subtrees of a work pool; each thread calls it, with its own task (:class:`~dtrees.split.grow.subtree.Task`).

    A thread returns when there is no work left to claim; :func:`wait_for_work_pool` waits for work of other threads.
    """
    while True:
        kind, i, chunk = pools.claim_work(work_pool)
        if kind == pools.DONE:
            return
        if kind == pools.GROW and work_pool.is_level:
            _search(columns, work_pool, task, i)
        elif kind == pools.GROW:
            _bring_back(work_pool, task, i)
            place = work_pool.places[i]
            start, in_stop, stop, depth, first = place.start, place.in_stop, place.stop, place.depth, place.offset
            last = first + most_nodes(task.stops, task.limits, in_stop - start, depth)
            _begin(task.sum_slots, place.slot)
            task.budget.waiting[0] = work_pool.origins[i]
            nodes = Nodes(work_pool.parts.records[first:last], work_pool.parts.sums[first:last])
            work_pool.places[i].n_nodes = grow_subtree(
                columns, task, start, in_stop, stop, depth, work_pool.paths[i], work_pool.sums[i], nodes
            )
        elif kind == pools.OPEN and pools.rows_of(work_pool, i) <= work_pool.share_rows:
            pools.set_aside(work_pool, i, pools.GROW)
        else:
            do_chunk(columns, work_pool, task, kind, i, chunk)
        acquire(work_pool.control, pools.LOCK)
        work_pool.control[pools.NODES_LEFT if kind == pools.GROW else pools.CHUNKS_LEFT] -= 1
        release(work_pool.control, pools.LOCK)


@lean_kernel
def _search(columns, work_pool, task, i):
    """Search a node of a level by one thread, if the node has to be searched."""
    place, sums = work_pool.places[i], work_pool.sums[i]
    start, in_stop = place.start, place.in_stop
    if _wants_slot(work_pool, task, i) and not is_pure(task.target, task.partition.rows, start, in_stop):
        task.stack.path[0] = work_pool.paths[i]
        _begin(task.sum_slots, place.slot)
        by_criterion.search_zones(columns, task, ZERO(), start, in_stop, sums)
        _offer(work_pool, task, i)
        place.slot = keep(task.sum_slots, task.sum_slots.slot_of[0], work_pool.n_threads)


@lean_entry
def grow_plain(columns, work_pool, task):
    """Grow the subtrees of a work pool in blocks, one after the other, with few kernels."""
    for i in range(work_pool.control[pools.N_NODES]):
        place = work_pool.places[i]
        task.budget.waiting[0] = work_pool.origins[i]
        put_root(task.stack, place.start, place.in_stop, place.stop, place.depth, work_pool.paths[i], work_pool.sums[i])
        nodes = Nodes(work_pool.parts.records[place.offset :], work_pool.parts.sums[place.offset :])
        work_pool.places[i].n_nodes = grow_block(columns, task, ZERO(), nodes, ZERO())


@lean_kernel
def _bring_back(work_pool, task, i):
    """Copy a node's rows to the first partition, if they are not there."""
    if work_pool.places[i].side != 0:
        partition, spare = task.partition, task.spare
        start, stop = work_pool.places[i].start, work_pool.places[i].stop
        for place in range(start, stop):
            partition.rows[place] = spare.rows[place]
        for place in range(start, stop):
            partition.g[place] = spare.g[place]
        if partition.h.shape[0] > 0:
            for place in range(start, stop):
                partition.h[place] = spare.h[place]


@lean_kernel
def _begin(sum_slots, slot):
    if has_slots(sum_slots):
        sum_slots.slot_of[0] = slot


@separate_kernel(returns=types.none)
def do_chunk(columns, work_pool, task, kind, i, chunk):
    """Do a chunk and, if it was the last of its step, the work between that step and the next."""
    sum_slots = task.sum_slots
    if kind == pools.OPEN:
        _open(sum_slots, work_pool, task, i)
    elif kind == pools.SUM:
        parallel_sums.sum_chunk(sum_slots, work_pool, task, i, chunk)
        if pools.is_last(work_pool, i):
            if parallel_sums.is_settled(work_pool, i):
                _assign(sum_slots, work_pool, task, i, parallel_sums.finish_settling(sum_slots, work_pool, i))
            else:
                parallel_sums.start_settling(sum_slots, work_pool, i)
    elif kind == pools.SETTLE:
        parallel_sums.settle_chunk(sum_slots, work_pool, i, chunk)
        if pools.is_last(work_pool, i):
            _assign(sum_slots, work_pool, task, i, parallel_sums.finish_settling(sum_slots, work_pool, i))
    elif kind == pools.LEAD:
        by_criterion.lead_chunk(work_pool, task, i, chunk)
        if pools.is_last(work_pool, i):
            _start_scans(work_pool, task, i)
    elif kind == pools.SCAN:
        _scan(columns, work_pool, task, i, chunk)
        if pools.is_last(work_pool, i):
            if work_pool.is_level:
                work_pool.places[i].slot = keep(sum_slots, work_pool.places[i].slot, work_pool.n_threads)
            else:
                _decide(sum_slots, work_pool, task, i)
    elif kind == pools.DIVIDE:
        if is_still_first(task.budget, work_pool.origins[work_pool.places[i].left_child]):
            _divide(work_pool, i)
        else:
            _end(sum_slots, work_pool, task, i)
    elif kind == pools.MARK:
        _mark(task.buffer, columns, work_pool, task, i, chunk)
        if pools.is_last(work_pool, i):
            _place_children(work_pool, task, i)
            pools.add_chunks(work_pool, pools.SPREAD, i, pools.n_chunks(work_pool, work_pool.places[i].stop - work_pool.places[i].start))
    elif kind == pools.DIVIDED:
        _hand_down(sum_slots, work_pool, task, i)
    else:
        _spread(work_pool, task, i, chunk)
        if pools.is_last(work_pool, i):
            _hand_down(sum_slots, work_pool, task, i)


@lean_kernel
def _open(sum_slots, work_pool, task, i):
    """Share a node among threads, if it is large and its sums have a slot or can get one; otherwise leave it to one thread."""
    control, places = work_pool.control, work_pool.places[i]
    start, in_stop, depth = places.start, places.in_stop, places.depth
    inner = may_be_split(task.stops, in_stop - start, depth, weight_of(task, work_pool.sums[i]))
    inner = inner and not is_hopeless(task.budget, work_pool.origins[i])
    shared = (
        in_stop - start > work_pool.share_rows
        and inner
        and not is_pure(task.target, pools.partition_of(work_pool, task, i).rows, start, in_stop)
    )
    if shared:
        acquire(control, pools.LOCK)
        shared = control[pools.N_NODES] + 2 <= work_pool.places.shape[0]
        if shared:
            places.left_child = control[pools.N_NODES]
            control[pools.N_NODES] += 2
        release(control, pools.LOCK)
    if shared:
        places.n_nodes = -1
        make_leaf(work_pool.parts.records[places.offset], start, in_stop, places.stop)
        if places.slot >= 0 or not has_slots(sum_slots):
            _start_search(task.buffer, work_pool, task, i)
        else:
            shared = parallel_sums.start_sum(sum_slots, work_pool, i, i)
    if not shared:
        pools.set_aside(work_pool, i, pools.GROW)


@lean_kernel
def _assign(sum_slots, work_pool, task, i, summed):
    """Assign a sum computed in a step of node ``i`` to its node, and continue."""
    places = work_pool.places
    node = places[i].summed
    if node == i:
        places[i].slot = summed
        _start_search(task.buffer, work_pool, task, i)
        return
    left = places[i].left_child
    other = left + 1 if node == left else left
    places[other].slot = places[i].slot
    if _wants_slot(work_pool, task, node):
        places[node].slot = summed
    else:
        give_back(sum_slots, summed)
    _open_children(work_pool, task, i)


@lean_kernel
def _go_on(work_pool, task, i, kind):
    """Let a step on a node be taken: in the order of splits if leaves are limited, otherwise next."""
    if is_limited(task.budget):
        pools.set_aside(work_pool, i, kind)
    else:
        pools.add_chunks(work_pool, kind, i, ZERO() + 1)


@lean_kernel
def _open_children(work_pool, task, i):
    left = work_pool.places[i].left_child
    _go_on(work_pool, task, left, pools.OPEN)
    _go_on(work_pool, task, left + 1, pools.OPEN)


@lean_kernel
def _wants_slot(work_pool, task, i):
    places = work_pool.places[i]
    return is_large(task, places.in_stop - places.start, places.depth, work_pool.sums[i])


@optional
def _start_search(buffer, work_pool, task, i):
    """Create the chunks of the first step of the search of a node."""
    parallel_sums.start_leading(task.sum_slots, work_pool, task, i)


@_start_search.of(CellBuffer)
def _(buffer, work_pool, task, i):
    work_pool.bars[i] = -1.0
    work_pool.found.records[i].status = NO_SPLIT
    pools.add_chunks(work_pool, pools.SCAN, i, min(CHUNKS, SPARSE_CHUNKS * work_pool.n_threads))


@lean_kernel
def _start_scans(work_pool, task, i):
    """Create the chunks of the search: the most promising column goes first, while other threads begin with the others."""
    work_pool.places[i].first_column = by_criterion.first_shared(work_pool, task, i)
    work_pool.found.records[i].status = NO_SPLIT
    pools.add_chunks(work_pool, pools.SCAN, i, min(CHUNKS - 1, by_criterion.n_searched(task)) + 1)


@lean_kernel
def _scan(columns, work_pool, task, i, chunk):
    """Search some columns: the last chunk, claimed first, is the most promising one, the others share the rest."""
    task.best.records[0].status = NO_SPLIT
    if has_slots(task.sum_slots):
        by_criterion.search_shared(columns, work_pool, task, i, chunk, work_pool.places[i].n_chunks)
    else:
        by_criterion.search_cells_shared(columns, work_pool, task, i, chunk, work_pool.places[i].n_chunks)
    _offer(work_pool, task, i)


@lean_kernel
def _offer(work_pool, task, i):
    """Store the split that a thread found as the best split of a node, if it is better."""
    mine, best = task.best.records[0], work_pool.found.records[i]
    if mine.status == SPLIT:
        acquire(work_pool.control, pools.LOCK)
        if best.status != SPLIT or mine.score > best.score or (mine.score == best.score and mine.column < best.column):
            work_pool.found.records[i] = mine
            work_pool.bars[i] = max(work_pool.bars[i], mine.score)
            for k in range(task.best.left.shape[1]):
                work_pool.found.left[i, k] = task.best.left[0, k]
            if is_categorical(task.limits.categories, mine.column) and not work_pool.is_level:
                sides = task.sum_slots.sums.sides[work_pool.places[i].slot]
                for code in range(sides.shape[0]):
                    sides[code] = task.scratch.groups.side[code]
        release(work_pool.control, pools.LOCK)


@lean_kernel
def _decide(sum_slots, work_pool, task, i):
    """Begin to divide a node if a split was found; if leaves are limited, after the nodes that are split first."""
    split, node, rank = work_pool.found.records[i], NONE(), 0.0
    if split.status == SPLIT:
        node, rank = number_split(task.budget, work_pool.origins[i], split.gain)
    if node >= 0:
        left = work_pool.places[i].left_child
        come_from(work_pool.origins[left], node, ZERO(), rank)
        come_from(work_pool.origins[left + 1], node, ZERO() + 1, rank)
        _go_on(work_pool, task, i, pools.DIVIDE)
    elif split.status != SPLIT and by_criterion.draws_columns(task):  # more columns may be drawn
        pools.set_aside(work_pool, i, pools.GROW)
    else:
        _end(sum_slots, work_pool, task, i)


@lean_kernel
def _divide(work_pool, i):
    """Begin to divide the rows of a node by its split."""
    places, split = work_pool.places[i], work_pool.found.records[i]
    note_split(work_pool.parts.records[places.offset], split)
    pools.add_chunks(work_pool, pools.MARK, i, pools.n_chunks(work_pool, places.stop - places.start))


@lean_kernel
def _end(sum_slots, work_pool, task, i):
    """Make a shared node a leaf."""
    give_back(sum_slots, work_pool.places[i].slot)
    _bring_back(work_pool, task, i)


@optional
def _mark(buffer, columns, work_pool, task, i, chunk):
    """Mark the rows of a chunk that go left, and count them in sample and out of sample."""
    split, sum_slots = work_pool.found.records[i], task.sum_slots
    if is_categorical(task.limits.categories, split.column):
        rule = Sides(sum_slots.sums.sides[work_pool.places[i].slot])
        _mark_by_rule(columns.codes[split.column], rule, work_pool, task, i, chunk)
    else:
        _mark_by_rule(columns.codes[split.column], cut_of(columns, split, True), work_pool, task, i, chunk)


@_mark.of(CellBuffer)
def _(buffer, columns, work_pool, task, i, chunk):
    split, counts, marks = work_pool.found.records[i], work_pool.counts[i, chunk], work_pool.goes_left
    (first, middle, last), column, rule = _places_of_chunk(work_pool, i, chunk), np.int64(split.column), cut_of(columns, split, True)
    counts[0] = mark_places_sparse(columns, column, rule, buffer.place_of, first, middle, marks)
    counts[1] = mark_places_sparse(columns, column, rule, buffer.place_of, middle, last, marks)


@lean_kernel
def _places_of_chunk(work_pool, i, chunk):
    """Return the first place of a chunk of the rows of a node, the end of its in-sample rows, and that of all."""
    start, in_stop, stop = work_pool.places[i].start, work_pool.places[i].in_stop, work_pool.places[i].stop
    first, last = pools.bounds_of(start, stop, chunk, pools.n_chunks(work_pool, stop - start))
    return first, min(max(first, in_stop), last), last


@lean_kernel
def _mark_by_rule(codes, rule, work_pool, task, i, chunk):
    (first, middle, last), counts, marks = _places_of_chunk(work_pool, i, chunk), work_pool.counts[i, chunk], work_pool.goes_left
    rows = pools.partition_of(work_pool, task, i).rows
    counts[0] = mark_places(codes, rule, rows[first:middle], marks[first:middle])
    counts[1] = mark_places(codes, rule, rows[middle:last], marks[middle:last])


@lean_kernel
def _place_children(work_pool, task, i):
    """Compute the ranges of the children, and the destinations of each chunk's rows going left."""
    place = work_pool.places[i]
    start, in_stop, stop, depth, left = place.start, place.in_stop, place.stop, place.depth, place.left_child
    inside = outside = ZERO()
    for chunk in range(pools.n_chunks(work_pool, stop - start)):
        counts = work_pool.counts[i, chunk]
        counts[0], counts[1], inside, outside = inside, outside, inside + counts[0], outside + counts[1]
    middle = start + inside + outside
    one, other = work_pool.places[left], work_pool.places[left + 1]
    one.start, one.in_stop, one.stop, one.depth = start, start + inside, middle, depth + 1
    other.start, other.in_stop, other.stop, other.depth = middle, middle + in_stop - start - inside, stop, depth + 1
    one.side = other.side = 1 - work_pool.places[i].side
    one.offset = work_pool.places[i].offset + 1
    other.offset = one.offset + most_nodes(task.stops, task.limits, inside, depth + 1)
    path = work_pool.paths[i]
    work_pool.paths[left], work_pool.paths[left + 1] = child_path(path, LEFT), child_path(path, task.stops.right_side)
    sums = work_pool.sums
    for k in range(sums.shape[1]):
        sums[left, k] = work_pool.found.left[i, k]
        sums[left + 1, k] = sums[i, k] - sums[left, k]
    if task.has_words:
        by_criterion.hand_down(task, work_pool.found.records[i].column, sums[left], sums[left + 1])


@lean_kernel
def _spread(work_pool, task, i, chunk):
    """Copy the rows of a chunk to their final places in the other partition."""
    start, in_stop, stop = work_pool.places[i].start, work_pool.places[i].in_stop, work_pool.places[i].stop
    one, other = work_pool.places[work_pool.places[i].left_child], work_pool.places[work_pool.places[i].left_child + 1]
    inside, outside = work_pool.counts[i, chunk]
    goes_left = work_pool.goes_left
    partition, spare = pools.partition_of(work_pool, task, i), pools.partition_of(work_pool, task, work_pool.places[i].left_child)
    rows, a, b = partition.rows, partition.g, partition.h
    spare_rows, spare_a, spare_b = spare.rows, spare.g, spare.h
    inner, noted = work_pool.places[i].depth + 1 < task.stops.max_depth, task.sum_slots.sums.place_of
    # Places of rows of leaves are not looked up, and their numbers are needed only if the tree's values are computed from them.
    has_places, has_sums = inner and noted.shape[0] > 0, inner or task.stops.keeps_rows
    has_b = has_sums and b.shape[0] > 0
    first, last = pools.bounds_of(start, stop, chunk, pools.n_chunks(work_pool, stop - start))
    middle = min(max(first, in_stop), last)
    left, right = np.uint64(start + inside), np.uint64(other.start + min(first, in_stop) - start - inside)
    for k in range(np.uint64(first), np.uint64(middle)):  # an unsigned index spares the check for negative ones
        side = np.uint64(goes_left[k])
        place = left if side else right
        spare_rows[place] = rows[k]
        if has_places:
            prefetch_to_write(noted, rows[min(k + np.uint64(AHEAD_TO_WRITE), np.uint64(middle) - np.uint64(1))])
            noted[rows[k]] = place
        if has_sums:
            spare_a[place] = a[k]
        if has_b:
            spare_b[place] = b[k]
        left += side
        right += np.uint64(1) - side
    left, right = np.uint64(one.in_stop + outside), np.uint64(other.in_stop + middle - in_stop - outside)
    for k in range(np.uint64(middle), np.uint64(last)):
        side = np.uint64(goes_left[k])
        place = left if side else right
        spare_rows[place] = rows[k]
        if has_places:
            noted[rows[k]] = place
        left += side
        right += np.uint64(1) - side


@lean_kernel
def _hand_down(sum_slots, work_pool, task, i):
    """Open the children of a node; if the larger one inherits sums, sum the smaller one first."""
    places = work_pool.places
    left = places[i].left_child
    record = work_pool.parts.records[work_pool.places[i].offset]
    record.left, record.right = left, left + 1
    smaller, larger = (left, left + 1) if pools.rows_of(work_pool, left) <= pools.rows_of(work_pool, left + 1) else (left + 1, left)
    if has_slots(sum_slots) and _wants_slot(work_pool, task, larger):
        if are_few(sum_slots.zone_map, sum_slots.sums, places[i].slot, pools.rows_of(work_pool, smaller)):
            parallel_sums.start_taking(sum_slots, work_pool, i, smaller)
            return
        if parallel_sums.start_sum(sum_slots, work_pool, i, smaller):
            return
    give_back(sum_slots, places[i].slot)
    _open_children(work_pool, task, i)


#: A kernel, and its argument types.
Wanted = tuple[Any, tuple[Any, ...]]


def likely_kernels(
    columns: Columns, work_pool: pools.WorkPool, task: Task, methods: Methods, n_rows: int, by_sums: bool
) -> tuple[list[Wanted], list[Wanted]]:
    """Return the kernels that are called first to grow a node of ``n_rows`` rows: those for a block, if it fits one, and others.

    The last of each list calls the others, except the one that searches tiny nodes: until that is compiled, they are searched like
    larger ones.
    """
    shared, number = (typeof(columns), typeof(work_pool), typeof(task)), types.int64
    first, found, large = list[Any](), list[Wanted](), n_rows > task.block_rows
    if by_sums:
        slots, limits, sums = task.sum_slots, task.limits.hidden, work_pool.sums[0]
        assert slots is not None
        assert isinstance(slots.zone_map, ZoneMap)
        summed = SummedNode(slots.zone_map, slots.ids, slots.sums, task.partition, (0, 0, 0), sums)
        searched = typeof(summed), number, number, number, *map(typeof, (columns, limits, slots.bar, task.scratch, task.best))
        found += [(search_columns.kernel, searched), (hand_down_slot.kernel, (typeof(task), number))]
        wanted = [by_criterion.search_zones]
        if n_rows > work_pool.share_rows:
            found.append((do_chunk.kernel, (*shared, number, number, number)))
            wanted += [by_criterion.ready_shared, by_criterion.lead_chunk, by_criterion.first_shared, by_criterion.search_shared]
    else:
        wanted = [by_criterion.search_table]
    wanted *= large
    tiny = []
    if task.block_rows > 0 and isinstance(task.limits.seen.thresholds, BestThreshold):
        first, tiny = [by_criterion.search_lists], [by_criterion.search_tiny]
    else:
        first, wanted = wanted + [by_criterion.search_random] * (task.block_rows > 0), []
    now, later, last = ([(method.kernel, methods.arguments(method)) for method in some] for some in (first, wanted, tiny))
    others = [*found * large, *later, (grow_together, shared), *last]
    return [*_kernels_of_block(columns, work_pool, task), *now, (grow_plain, shared)], others


def _kernels_of_block(columns: Columns, work_pool: pools.WorkPool, task: Task) -> list[Wanted]:
    """Return the kernels that grow nodes in blocks, if any are grown so, without methods."""
    block, number, own = task.block, types.int64, (typeof(columns), typeof(task))
    if block is None or task.block_rows == 0:
        return []
    wanted = [(grow_block.kernel, (*own, number, typeof(work_pool.parts), number)), (fill_block.kernel, (*own, number, number, number))]
    if task.limits.seen.categories.some and isinstance(task.limits.seen.thresholds, BestThreshold):
        place = types.UniTuple(number, 2)
        of_node = map(typeof, (work_pool.sums[0], task.limits.hidden, 0.0, task.scratch))
        of_column = types.int32, *map(typeof, (columns.words, block.keys[0], block))
        wanted.append((search_categories_of_list.kernel, (*of_column, place, *of_node)))
    return wanted
