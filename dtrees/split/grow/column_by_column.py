"""The search of one node of a subtree over its columns, with its rows in the table, in a block, or in a sparse table.

Nodes of a sparse table are searched by the stored cells of their rows only. Columns without such cells are constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints import begin_column, is_constrained, unconstrained
from dtrees.split.criteria.statistics import G0, G1, H0, H1, N0, N1, SIZE, Moments, no_moments
from dtrees.split.node.limits import is_categorical
from dtrees.split.node.records import CONSTANT, NO_SPLIT, SPLIT, NodeColumn, bar_for, better, complete
from dtrees.split.numbers.hashing import draw, draw_columns, undraw_columns
from dtrees.split.policy import ZONES_AT_ONCE
from dtrees.split.search.categories import search_categories_of_list
from dtrees.split.search.column import search_any_column, search_sorted
from dtrees.split.search.order_statistics import search_deviations_of_list
from dtrees.split.search.sparse import any_varies, find_cells, forget_cells, list_cells, lists_all, may_list_all, search_cells
from dtrees.split.search.sweep import SortedRows
from dtrees.split.zones.bounds import best_edge, flag_zones, sums_in
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import numbers_of, slope_of


class InTable(NamedTuple):
    """A source of rows: the places of the row partition."""


class InBlock(NamedTuple):
    """A source of rows: the sorted lists of the block."""


@specialised
def _search_column_from(source, columns, column, task, first, last, sums, path, bar):
    """Find the best split of a node in one column; the result is that of :func:`~dtrees.split.search.column.search_column`."""


@_search_column_from.of(InTable)
def _(source, columns, column, task, first, last, sums, path, bar):
    limits = task.limits
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    bits = draw(np.uint64(task.keys[1]) ^ path, column)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    pair = NodeColumn(columns.codes[column], values, task.partition, first, last, sums, bits)
    return search_any_column(column, pair, limits, bar, task.scratch)


@_search_column_from.of(InBlock)
def _(source, columns, column, task, first, last, sums, path, bar):
    limits = task.limits
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    block = task.block
    keys = block.keys[block.place_of[column]]
    if is_categorical(limits.categories, column):
        return search_categories_of_list(column, values, keys, block, (first, last), sums, limits, bar, task.scratch)
    return _search_numbers(unconstrained(limits.criterion), keys, values.shape[0], block, (first, last), sums, limits, bar, task.scratch)


@optional
def _search_numbers(criterion, keys, n_distinct, block, place, sums, limits, bar, scratch):
    """Find the best split of a node in one numeric column from the block's sorted list; ``place`` is the range of its keys."""
    rows = SortedRows(keys, place[0], place[1], block.g, block.h, ZERO())
    return search_sorted(rows, n_distinct, sums, limits, bar, scratch)


@_search_numbers.of(Deviations)
def _(criterion, keys, n_distinct, block, place, sums, limits, bar, scratch):
    return search_deviations_of_list(criterion, keys, n_distinct, block, place[0], place[1], limits, bar, scratch)


@lean_kernel
def search_node(source, columns, task, first, last, sums, path):
    """Find the best split of one node over the columns drawn for it.

    The result is that of :func:`~dtrees.split.search.tiny_node.search_tiny_node`. As in scikit-learn, drawing continues beyond
    ``max_features`` while all columns drawn so far are constant in the node. The node's in-sample rows are the places first..last of the
    partition (``source`` is InTable) or of the block's lists (InBlock).
    """
    stops, pool, node_key = task.stops, task.pool, task.keys[0]
    n_columns = pool.shape[0]
    everything = stops.max_features >= n_columns
    best, drawn = (CONSTANT, -1.0, False, np.int64(-1)), 0
    while drawn < n_columns and (drawn < stops.max_features or best[0] == CONSTANT):
        if not everything:
            draw_columns(node_key, path, pool, drawn, drawn + 1)
        column = pool[drawn]
        drawn += 1
        bar = bar_for(column, best[3], best[1])
        best = better(best, _search_column_from(source, columns, column, task, first, last, sums, path, bar), column)
    if not everything:
        undraw_columns(node_key, path, pool, drawn)
    return best


@inlined_kernel
def conclude(columns, task, n, sums, best):
    """Write the result of a search of a node of ``n`` rows to ``task.best``."""
    status, score, has_missing, column = best
    task.best.records[0].status = status
    if status == SPLIT:
        values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, column, n, sums, task.limits, score, has_missing, task.scratch.found, task.best, ZERO())


@lean_kernel
def _search_listed(columns, task, partition, column, keys, first, last, sums, path, bar):
    """Find the best split of a node in a column, given the keys of its cells."""
    limits, buffer = task.limits, task.buffer
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    bits = draw(np.uint64(task.keys[1]) ^ path, column)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    pair = NodeColumn(buffer.dense, values, partition, first, last, sums, bits)
    return search_cells(unconstrained(limits.criterion), columns.zero_code[column], keys, pair, limits, bar, task.scratch)


@lean_kernel
def search_stored(columns, task, first, last, sums, path):
    """Find the best split of a node over the columns drawn for it; it is written to ``task.best``.

    As in a dense table, drawing continues beyond ``max_features`` while all columns drawn so far are constant in the node.
    """
    pool, buffer, max_features = task.pool, task.buffer, task.stops.max_features
    rows = task.partition.rows[first:last]
    n_drawn = min(max_features, pool.shape[0])
    everything = n_drawn == pool.shape[0]
    n_present, n_looked_at = ZERO(), np.int64(pool.shape[0])
    listed = lists_all(columns, rows, n_drawn, buffer)
    if listed:
        n_present = list_cells(columns, rows, buffer)
        if everything:
            n_looked_at = n_present
    best, drawn = (CONSTANT, -1.0, False, np.int64(-1)), ZERO()
    while drawn < n_looked_at and (drawn < n_drawn or best[0] == CONSTANT):
        if drawn == n_drawn:  # all were constant: does any vary?
            if not listed and may_list_all(columns, rows, buffer):
                listed = True
                n_present = list_cells(columns, rows, buffer)
            if listed and not any_varies(buffer, n_present, last - first):
                break
        if not everything:
            draw_columns(task.keys[0], path, pool, drawn, drawn + 1)
        column = np.int64(buffer.present[drawn]) if everything and listed else np.int64(pool[drawn])
        drawn += 1
        m, end = np.int64(buffer.n_listed[column]), buffer.end[column]
        if not listed:
            m = find_cells(columns, column, rows, first, buffer)
            end = m
        if m == 0:
            continue
        bar = bar_for(column, best[3], best[1])
        keys = buffer.keys[end - m : end]
        found = _search_listed(columns, task, task.partition, column, keys, first, last, sums, path, bar)
        best = better(best, found, column)
    if not everything:
        undraw_columns(task.keys[0], path, pool, drawn)
    forget_cells(buffer, n_present)
    conclude(columns, task, last - first, sums, best)


@lean_kernel
def _outline_columns(task, slot, node, low, high):
    """Write the sums of a node in the zones of columns from ``low`` on, up to ``high``, to the scratch space.

    Returns the column after the last one, and the sums of missing values. Columns follow each other with an empty zone in between, at which
    no split is allowed. A column with missing values is outlined by itself, and so are those that do not fit.
    """
    zones, sums, out = task.sum_slots.zone_map, task.sum_slots.sums, task.scratch.sums
    numbers = numbers_of(sums, slot, ZERO(), zones.which.shape[0]).reshape(-1, sums.width)
    shift, at, missing = sums.scales[slot].shift, ZERO(), no_moments()
    for j in range(low, high):
        first, n_zones, zero = zones.begins[j], zones.n_zones[j], zones.zero_zone[j]
        absent = sums_in(numbers, first + n_zones)
        if j > low and (missing.n > 0 or absent.n > 0 or at + n_zones >= ZONES_AT_ONCE):
            return j, missing
        missing = absent
        g, h, n = node.g - missing.g, node.h - missing.h, node.n - missing.n
        for z in range(n_zones if zero >= 0 else 0):
            if z != zero:
                own = sums_in(numbers, first + z)
                g, h, n = g - own.g, h - own.h, n - own.n
        zeros, g, h, n = Moments(g, h, n), ZERO(), ZERO(), ZERO()
        for z in range(n_zones + 1):
            own, size = sums_in(numbers, first + z), (numbers[first + z, 1] >> 32) << shift
            if z == zero:
                own, size = zeros, ZERO()
            if z == n_zones:
                own = no_moments()
            out[G0, at], out[H0, at], out[N0, at], out[SIZE, at] = g, h, n, size
            g, h, n = g + own.g, h + own.h, n + own.n
            out[G1, at], out[H1, at], out[N1, at] = g, h, n
            at += 1
    return high, missing


@lean_kernel
def _bound_columns(task, slot, node, sums, low, high, bar, n_wanted):
    """Find out in which columns from ``low`` on, up to ``high``, a split may score above the bar; add these to ``task.buffer.present``.

    Returns the column after the last one, the number of columns in ``present``, and the best score above the bar at an edge of zones, -1.0
    if there is none. The column of that edge is added if it is the only one; if there are several, they may lack it, as bounds of splits
    inside of zones are only compared with that score.
    """
    zones, limits, scratch, scales = task.sum_slots.zone_map, task.limits, task.scratch, task.sum_slots.sums.scales
    if not begin_column(limits.criterion, sums, low):
        return low + 1, n_wanted, -1.0
    high, missing = _outline_columns(task, slot, node, low, low + 1 if is_constrained(limits.criterion) else high)
    first, n_zones, numbers, wanted = zones.begins[low], zones.begins[high] - zones.begins[low] - 1, scratch.numbers, task.buffer.present
    edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
    if edge > bar:
        bar = below(edge)
    for z in range(n_zones):
        numbers[z] = z
    slope = slope_of(limits, scales[slot])
    n = flag_zones(limits, scratch.sums, n_zones, missing, node, bar, ZERO(), slope, numbers, scratch.flags)
    column, last = low, NONE()
    for k in range(n):
        place = first + numbers[k]
        while place >= zones.begins[column + 1]:
            column += 1
        if column != last and not zones.alone[place]:
            wanted[n_wanted], last = column, column
            n_wanted += 1
    if edge >= 0.0 and high == low + 1 and last < 0:
        wanted[n_wanted] = low
        n_wanted += 1
    return high, n_wanted, edge


@lean_kernel
def _search_stored_column(columns, task, partition, column, first, last, sums, path, best, bar):
    """Return the best split of a node, given the best one in other columns, and the bar that it must exceed."""
    m = find_cells(columns, column, partition.rows[first:last], first, task.buffer)
    if m == 0:
        return best
    bar = max(bar, bar_for(column, best[3], best[1]))
    found = _search_listed(columns, task, partition, column, task.buffer.keys[:m], first, last, sums, path, bar)
    return better(best, found, column)


@inlined_kernel
def _tied(bar):
    """Return the bar that a split as good as the best known one exceeds; -1.0 if there is none."""
    return below(bar) if bar >= 0.0 else -1.0


@lean_kernel
def search_summed(columns, task, partition, place, sums, path, share, bar):
    """Find the best split of a node in some columns, if it may be the best in all; it is written to ``task.best``.

    Only columns in which a split may exceed the best one at an edge of a zone are searched, those next to that edge first.

    Parameters
    ----------
    columns : SparseColumns
    task : Task
    partition : RowPartition
        It has the rows of the node.
    place : tuple of int
        The start of the node, the end of its in-sample rows, and its slot.
    sums : ndarray of int64
    path : uint64
    share : tuple of int
        The columns: start and stop.
    bar : ndarray of float64, shape (1,)
        The best known score of the node, -1.0 if there is none. Threads that search the node share it.
    """
    (first, last, slot), (j, high), wanted = place, share, task.buffer.present
    node, n_wanted, lead, lead_stop, lead_edge = Moments(sums[0], sums[1], last - first), ZERO(), ZERO(), ZERO(), -1.0
    while j < high:
        begun = j
        j, n_wanted, edge = _bound_columns(task, slot, node, sums, j, high, _tied(bar[0]), n_wanted)
        if edge > lead_edge:  # it may equal the bar that another thread has found in a later column
            bar[0], lead, lead_stop, lead_edge = max(bar[0], edge), begun, j, edge
    while lead < lead_stop and _bound_columns(task, slot, node, sums, lead, lead + 1, _tied(lead_edge), n_wanted)[2] < lead_edge:
        lead += 1
    best, has_lead = (NO_SPLIT, -1.0, False, NONE()), lead < lead_stop
    for k in range(-1 if has_lead else 0, n_wanted):
        column, top = lead if k < 0 else np.int64(wanted[k]), _tied(max(bar[0], best[1]))
        if k >= 0 and has_lead and column == lead:
            continue
        if _bound_columns(task, slot, node, sums, column, column + 1, top, n_wanted)[1] > n_wanted:
            best = _search_stored_column(columns, task, partition, column, first, last, sums, path, best, top)
    conclude(columns, task, last - first, sums, best)


@lean_kernel
def search_some(columns, task, partition, place, sums, path, share, bar):
    """Find the best split of a node like :func:`search_summed`, without sums, in those columns that the tree may use."""
    (first, last, _), (low, high), best = place, share, (CONSTANT, -1.0, False, NONE())
    for column in task.pool:
        if low <= column < high:
            best = _search_stored_column(columns, task, partition, np.int64(column), first, last, sums, path, best, _tied(bar[0]))
    conclude(columns, task, last - first, sums, best)


@lean_kernel
def share_of(columns, chunk, n):
    """Return the start and the stop of the columns of one of ``n`` chunks, of about as many stored cells each."""
    return _column_at(columns, chunk, n), _column_at(columns, chunk + 1, n)


@lean_kernel
def _column_at(columns, part, n):
    """Return the first column with at least ``part`` out of ``n`` of all stored cells before it, counting one more for each column."""
    starts = columns.starts
    k = starts.shape[0] - 1
    low, high, wanted = ZERO(), k, (starts[k] + k) * part // n
    while low < high:
        middle = (low + high) // 2
        if starts[middle] + middle < wanted:
            low = middle + 1
        else:
            high = middle
    return low
