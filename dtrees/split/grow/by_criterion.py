"""Steps of growing a subtree that depend on the criterion: methods of a task (:mod:`dtrees.split.compile.methods`).

All other code that grows subtrees is compiled once for all criteria, with and without constraints. A method is compiled when it is first
called. A search that finds a split of categories writes the codes that go left to the scratch space (``groups.side``).
"""

from __future__ import annotations

import numpy as np
from numba import types

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.methods import MethodSet
from dtrees.split.compile.specialised import optional
from dtrees.split.compile.work_queue import acquire, release
from dtrees.split.criteria import constraints
from dtrees.split.grow.column_by_column import (
    InBlock,
    InTable,
    conclude,
    search_node,
    search_some,
    search_stored,
    search_summed,
    share_of,
)
from dtrees.split.grow.work_pool import LOCK, bounds_of, partition_of, place_of
from dtrees.split.node.records import NO_SPLIT, SPLIT, complete_but_threshold
from dtrees.split.numbers.hashing import draw_columns, undraw_columns
from dtrees.split.search.random_threshold import search_random_block
from dtrees.split.search.sparse import CellBuffer
from dtrees.split.search.tiny_node import search_tiny_node
from dtrees.split.zones.sum_slots import first_to_search, search_columns, slot_for, summed_by
from dtrees.split.zones.sums import best_edges, get_ready

METHODS = MethodSet()
_INT, _INTS, _HASH = types.int64, types.Array(types.int64, 1, "C"), types.uint64


@METHODS.method(_INT, _INT, _INTS, _HASH)
def search_table(columns, task, first, last, sums, path):
    """Find the best split of a node from its rows in the table; it is written to ``task.best``."""
    _search_table(task.buffer, columns, task, first, last, sums, path)


@optional
def _search_table(buffer, columns, task, first, last, sums, path):
    conclude(columns, task, last - first, sums, search_node(InTable(), columns, task, first, last, sums, path))


@_search_table.of(CellBuffer)
def _(buffer, columns, task, first, last, sums, path):
    search_stored(columns, task, first, last, sums, path)


@METHODS.method(_INT, _INT, _INT, _INTS)
def search_zones(columns, task, n, first, last, sums):
    """Find the best split of the n-th node on the stack by zone sums; it is written to ``task.best``."""
    _search_zones(task.buffer, columns, task, n, first, last, sums)


@optional
def _search_zones(buffer, columns, task, n, first, last, sums):
    slots, limits, partition, path, bar = task.sum_slots, task.limits, task.partition, task.stack.path[n], task.sum_slots.bar
    place, share = (first, last, slot_for(slots, n, partition, first, last)), (ZERO(), n_searched(task))
    summed = summed_by(slots, partition, place, sums)
    task.best.records[0].status = NO_SPLIT
    get_ready(slots.zone_map, partition, slots.sums, place, sums, limits)
    bar[0], lead = _best_edges(task, place, sums, path, share, -1.0)
    lead = first_to_search(summed, lead, limits, bar[0], task.scratch)
    search_columns(summed, lead, lead + 1, NONE(), columns, limits, bar, task.scratch, task.best)
    _search_share(columns, task, summed, path, share, lead, bar)


@_search_zones.of(CellBuffer)
def _(buffer, columns, task, n, first, last, sums):
    place, bar = (first, last, slot_for(task.sum_slots, n, task.partition, first, last)), task.sum_slots.bar
    bar[0] = -1.0
    search_summed(columns, task, task.partition, place, sums, task.stack.path[n], (ZERO(), task.sum_slots.zone_map.which.shape[0]), bar)


@lean_kernel
def draws_columns(task):
    """Return whether nodes are searched in only some of the tree's columns."""
    return task.stops.max_features < task.pool.shape[0]


@lean_kernel
def n_searched(task):
    """Return the number of columns in which a node is searched by zone sums."""
    return np.int64(min(task.stops.max_features, task.sum_slots.zone_map.which.shape[0]))


@lean_kernel
def _best_edges(task, place, sums, path, share, bar):
    """Find the best edge like :func:`~dtrees.split.zones.sums.best_edges`, in a share of the columns drawn for a node."""
    slots, key, pool, lead = task.sum_slots, task.keys[0], task.pool, NONE()
    if not draws_columns(task):
        return best_edges(slots.ids, slots.zone_map, slots.sums, place, sums, task.limits, share, bar, task.scratch)
    draw_columns(key, path, pool, ZERO(), share[1])
    for k in range(share[0], share[1]):
        j = slots.place_in_map[pool[k]]
        edge, _ = best_edges(slots.ids, slots.zone_map, slots.sums, place, sums, task.limits, (j, j + 1), bar, task.scratch)
        if edge > bar:
            bar, lead = edge, j
    undraw_columns(key, path, pool, share[1])
    return bar, lead


@lean_kernel
def _search_share(columns, task, summed, path, share, but, bar):
    """Search a node in a share of the columns drawn for it, except ``but`` of the zone map; the split is written to ``task.best``."""
    if not draws_columns(task):
        search_columns(summed, share[0], share[1], but, columns, task.limits, bar, task.scratch, task.best)
        return
    key, pool = task.keys[0], task.pool
    draw_columns(key, path, pool, ZERO(), share[1])
    for k in range(share[0], share[1]):
        j = task.sum_slots.place_in_map[pool[k]]
        if j != but:
            search_columns(summed, j, j + 1, NONE(), columns, task.limits, bar, task.scratch, task.best)
    undraw_columns(key, path, pool, share[1])


@METHODS.method(_INT, _INT, _INTS, _HASH)
def search_lists(columns, task, first, last, sums, path):
    """Find the best split of a node of a block by sorted lists; it is written to ``task.best``."""
    _conclude(columns, task, last - first, sums, search_node(InBlock(), columns, task, first, last, sums, path))


@METHODS.method(_INT, _INT, _INTS, _HASH)
def search_tiny(columns, task, first, last, sums, path):
    """Find the best split of a node of few rows of a block; it is written to ``task.best``."""
    found = search_tiny_node(columns, task.limits, _drawing_of(task), task.block, first, last, sums, path, task.scratch)
    _conclude(columns, task, last - first, sums, found)


@METHODS.method(_INT, _INT, _INTS, _HASH)
def search_random(columns, task, first, last, sums, path):
    """Find the best split of a node of a block with random thresholds; it is written to ``task.best``."""
    found = search_random_block(task.limits, _drawing_of(task), task.keys[1], task.block, first, last, sums, path, task.scratch)
    _conclude(columns, task, last - first, sums, found)


@inlined_kernel
def _conclude(columns, task, n, sums, best):
    """Write the result of a search of a node of a block to ``task.best``, without thresholds that are read from the table."""
    status, score, has_missing, column = best
    task.best.records[0].status = status
    if status == SPLIT:
        n_distinct, found = columns.offsets[column + 1] - columns.offsets[column], task.scratch.found
        complete_but_threshold(n_distinct, column, n, sums, task.limits, score, has_missing, found, task.best, ZERO())


@inlined_kernel
def _drawing_of(task):
    """Return how many columns are drawn for a node, the key of the tree's stream of these draws, and the tree's columns."""
    return task.stops.max_features, task.keys[0], task.pool


@METHODS.method(_INT, _INTS, _INTS)
def hand_down(task, column, left, right):
    """Write the words of constraints of both children of a split on a column."""
    constraints.hand_down(task.limits.criterion, column, left, right)


@inlined_kernel
def _summed(work_pool, task, i):
    """Return a node of the work pool that has a slot."""
    return summed_by(task.sum_slots, partition_of(work_pool, task, i), place_of(work_pool, i), work_pool.sums[i])


@METHODS.method(_INT)
def ready_shared(work_pool, task, i):
    """Prepare the zone sums of a node of the work pool for a search."""
    sum_slots, partition = task.sum_slots, partition_of(work_pool, task, i)
    get_ready(sum_slots.zone_map, partition, sum_slots.sums, place_of(work_pool, i), work_pool.sums[i], task.limits)


@METHODS.method(_INT, _INT)
def lead_chunk(work_pool, task, i, chunk):
    """Find the best edge of a node of the work pool in some columns."""
    share = bounds_of(ZERO(), n_searched(task), chunk, work_pool.places[i].n_chunks)
    edge, lead = _best_edges(task, place_of(work_pool, i), work_pool.sums[i], work_pool.paths[i], share, work_pool.bars[i])
    acquire(work_pool.control, LOCK)
    if edge > work_pool.bars[i]:
        work_pool.bars[i] = edge
        work_pool.places[i].first_column = lead
    release(work_pool.control, LOCK)


@METHODS.method(_INT, returns=_INT)
def first_shared(work_pool, task, i):
    """Return the column in which a node of the work pool is searched first, -1 if there is none."""
    lead = work_pool.places[i].first_column
    return np.int64(first_to_search(_summed(work_pool, task, i), lead, task.limits, work_pool.bars[i], task.scratch))


@METHODS.method(_INT, _INT, _INT)
def search_shared(columns, work_pool, task, i, chunk, n):
    """Search a node of the work pool: the last of ``n`` chunks is the most promising column, the others share the rest."""
    _search_shared(task.buffer, columns, work_pool, task, i, chunk, n)


@optional
def _search_shared(buffer, columns, work_pool, task, i, chunk, n):
    bar, lead, summed = work_pool.bars[i : i + 1], work_pool.places[i].first_column, _summed(work_pool, task, i)
    if chunk == n - 1:
        search_columns(summed, lead, lead + 1, NONE(), columns, task.limits, bar, task.scratch, task.best)
    else:
        share = bounds_of(ZERO(), n_searched(task), chunk, n - 1)
        _search_share(columns, task, summed, work_pool.paths[i], share, lead, bar)


@_search_shared.of(CellBuffer)
def _(buffer, columns, work_pool, task, i, chunk, n):
    partition, place, sums = partition_of(work_pool, task, i), place_of(work_pool, i), work_pool.sums[i]
    search_summed(columns, task, partition, place, sums, work_pool.paths[i], share_of(columns, chunk, n), work_pool.bars[i : i + 1])


@METHODS.method(_INT, _INT, _INT)
def search_cells_shared(columns, work_pool, task, i, chunk, n):
    """Search a node of the work pool, of a sparse table, without sums: one of ``n`` chunks."""
    partition, place, sums = partition_of(work_pool, task, i), place_of(work_pool, i), work_pool.sums[i]
    search_some(columns, task, partition, place, sums, work_pool.paths[i], share_of(columns, chunk, n), work_pool.bars[i : i + 1])
