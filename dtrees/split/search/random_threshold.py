"""The random threshold of Extra-Trees.

It is searched column by column in large nodes, and for all columns side by side in the nodes of a block
(:mod:`dtrees.split.grow.block`), whose values are stored row by row.

If rows are spread over shards, a threshold follows from the lowest and the highest value of a node in a column, over all shards. Then
each shard sums its own rows on the left, and those with missing values; these sums are added, and the threshold is tried as in one
process. Pairs of a node and a column are *tasks* there.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, inlined_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.parts import is_arithmetic, node_statistic
from dtrees.split.criteria.statistics import (
    Moments,
    amount_of,
    n_changed,
    n_sums,
    nothing,
    plus_row,
    weight_at,
    which_sum,
    with_sums,
    write_sums,
)
from dtrees.split.node.records import CONSTANT, HAS_THRESHOLD, NO_SPLIT, NONE_HIGHER, SPLIT, bar_for, complete_but_threshold
from dtrees.split.numbers.hashing import draw, draw_columns, mix, undraw_columns, uniform
from dtrees.split.search.sweep import cut_after
from dtrees.split.search.vectors import add_left, add_missing, add_row_left, add_two_left, forbid, score_columns, widen, widen_two
from dtrees.split.table.columns import highest_code_below, value_at

#: Rows of a block's counts; see :func:`search_random_block`.
N_MISSING, N_LEFT, H_LEFT, LEFT = 0, 1, 2, 3


@lean_kernel
def draw_threshold(values, low, high, bits):
    """Draw a threshold between the lowest and the highest code of a node; return it and the highest code that goes left.

    If these codes do not differ, all values go left: the threshold is infinite.
    """
    if low >= high:
        return np.inf, np.int64(values.shape[0]) - 1
    threshold = draw_between(value_at(values, low), value_at(values, high), bits)
    return threshold, highest_code_below(values, low, high - 1, threshold)


@lean_kernel
def draw_between(low, high, bits):
    """Draw a threshold between two values: at least the lower one, and less than the higher one."""
    u = uniform(bits)
    threshold = low * (1.0 - u) + high * u
    return threshold if low <= threshold < high else low


@lean_kernel
def find_end_codes(codes, n_distinct, rows, start, stop):
    """Return the lowest and the highest code of some rows, ``n_distinct`` and -1 without values, and the number of missing values."""
    low, high, n_missing = np.int64(n_distinct), np.int64(-1), ZERO()
    for i in range(start, stop):
        code = np.int64(codes[rows[i]])
        if code == n_distinct:
            n_missing += 1
        else:
            low = min(low, code)
            high = max(high, code)
    return low, high, n_missing


@lean_kernel
def sum_left_and_missing(node, codes, n_distinct, partition, start, stop, cut, scratch):
    """Return the statistics of a node's rows with codes up to a cut, and of those without a value; for lean kernels only."""
    rows, a, b = partition.rows, partition.g, partition.h
    left, missing = nothing(node, scratch.classes[0]), nothing(node, scratch.classes[1])
    for i in range(start, stop):
        code = np.int64(codes[rows[i]])
        if code == n_distinct:
            missing = plus_row(missing, a[i], weight_at(b, i))
        elif code <= cut:
            left = plus_row(left, a[i], weight_at(b, i))
    return left, missing


@lean_kernel
def draw_in(pair):
    """Draw a threshold uniformly between the extreme values of a node (Geurts, Ernst and Wehenkel, 2006), as :func:`draw_threshold` does.

    Returns it, the highest code that goes left, whether the column varies in the node, and whether values are missing.
    """
    n_distinct = np.int64(pair.values.shape[0])
    low, high, n_missing = find_end_codes(pair.codes, n_distinct, pair.partition.rows, pair.start, pair.in_stop)
    threshold, cut = draw_threshold(pair.values, low, high, pair.bits)
    return threshold, cut, high >= 0 and (low < high or n_missing > 0), n_missing > 0


@lean_kernel
def search_random(pair, limits, bar, scratch):
    """Try a random threshold; parameters and result are those of :func:`~dtrees.split.search.column.search_column`."""
    threshold, cut, varies, has_missing = draw_in(pair)
    if not varies:
        return CONSTANT, 0.0, False
    n_distinct, start, in_stop = np.int64(pair.values.shape[0]), pair.start, pair.in_stop
    node = node_statistic(limits.criterion, pair.sums, in_stop - start)
    left, missing = sum_left_and_missing(node, pair.codes, n_distinct, pair.partition, start, in_stop, cut, scratch)
    top = try_threshold(limits, left, missing, node, cut, threshold, bar, scratch)
    return SPLIT if top >= 0.0 else NO_SPLIT, top, has_missing


@lean_kernel
def try_threshold(limits, left, missing, node, cut, threshold, bar, scratch):
    """Try a threshold with the missing rows on the left and on the right; if it is infinite, only separate the missing rows.

    The better split is written to ``scratch.found``. Returns its score, -1.0 if none is above the bar.
    """
    next_code = HAS_THRESHOLD if threshold < np.inf else NONE_HIGHER
    top = cut_after(limits, left, missing, node, cut, next_code, bar, scratch.classes[2], scratch.found)
    if top > bar:
        scratch.found.record[0].threshold = threshold
        return top
    return -1.0


@inlined_kernel
def _find_extremes(cells, places, low, high, n_missing, has_missing):
    """Find the lowest and highest value of each column over some rows, and count the missing values."""
    low[:] = np.inf
    high[:] = -np.inf
    n_missing[:] = 0
    n = places.shape[0]
    if n & 1:
        widen(cells[places[n - 1]], low, high)
    for i in range(0, n - 1, 2):  # two rows at a time: extreme values are read and written half as often
        widen_two(cells[places[i]], cells[places[i + 1]], low, high)
    if has_missing:
        for place in places:
            add_missing(cells[place], np.int64(1), n_missing)


@lean_kernel
def _draw_thresholds(low, high, key, identity, threshold):
    """Draw a threshold for each column, uniformly between its extremes; infinity if they are equal."""
    for j in range(threshold.shape[0]):
        u = uniform(mix(key ^ identity[j]))
        t = low[j] * (1.0 - u) + high[j] * u
        t = t if (low[j] <= t) & (t < high[j]) else low[j]
        threshold[j] = t if low[j] < high[j] else np.inf


@lean_kernel
def _sum_each(node, block, places, has_missing, threshold, counts):
    weighted = block.h.shape[0] > 0
    for place in places:
        x, a, h = block.cells[place], block.g[place], weight_at(block.h, place)
        add_row_left(node, x, threshold, a, h, np.int64(1), counts[N_LEFT], counts[LEFT:])
        if weighted:
            add_left(x, threshold, np.int64(0), counts[N_LEFT], h, counts[H_LEFT])
        if has_missing:
            missing = counts[LEFT + n_sums(node) :]
            add_missing(x, h, missing[0])
            for t in range(n_changed(node)):
                add_missing(x, amount_of(node, a, t, h), missing[1 + which_sum(node, a, t)])


@lean_kernel
def _sum_pairs(cells, a, places, threshold, g_left, n_left):
    n, one = places.shape[0], np.int64(1)
    if n & 1:
        place = places[n - 1]
        add_left(cells[place], threshold, a[place], g_left, one, n_left)
    for i in range(0, n - 1, 2):
        x, y = places[i], places[i + 1]
        add_two_left(cells[x], cells[y], threshold, a[x], a[y], g_left, one, one, n_left)


@optional
def _sum_rows(node, block, places, has_missing, threshold, counts):
    """Sum the rows going left and the missing rows; weights only if they are not all 1."""
    _sum_each(node, block, places, has_missing, threshold, counts)


@_sum_rows.of(Moments)
def _(node, block, places, has_missing, threshold, counts):
    if block.h.shape[0] > 0 or has_missing:
        _sum_each(node, block, places, has_missing, threshold, counts)
    else:  # two rows at a time: extra-trees take three quarters of the time
        _sum_pairs(block.cells, block.g, places, threshold, counts[LEFT], counts[N_LEFT])


@inlined_kernel
def _sum_sides(node, block, places, has_missing):
    """Sum the rows going left and the missing rows, for all columns at once."""
    threshold, counts, weighted = block.reals[2], block.counts, block.h.shape[0] > 0
    counts[1:] = 0
    _sum_rows(node, block, places, has_missing, threshold, counts)
    if not weighted:
        for j in range(threshold.shape[0]):
            counts[H_LEFT, j] = counts[N_LEFT, j]


@inlined_kernel
def _score_thresholds(limits, node, scores, counts):
    """Score the thresholds of all columns with missing rows on the right, -1.0 if they are not allowed."""
    score_columns(node, limits.criterion, counts[LEFT:], counts[H_LEFT], scores)
    forbid(limits, counts[N_LEFT], node.n, counts[H_LEFT], node.h, scores)


@optional
def _statistics_of_column(node, j, counts, buffer):
    """Return the statistics of the rows going left in a column of the block, and of the missing rows."""
    n = node.sums.shape[0]
    for k in range(n):
        buffer[0, k], buffer[1, k] = counts[LEFT + k, j], counts[LEFT + n + 1 + k, j]
    left = with_sums(node, buffer[0], counts[H_LEFT, j], counts[N_LEFT, j])
    return left, with_sums(node, buffer[1], counts[LEFT + n, j], counts[N_MISSING, j])


@_statistics_of_column.of(Moments)
def _(node, j, counts, buffer):
    left = Moments(counts[LEFT, j], counts[H_LEFT, j], counts[N_LEFT, j])
    return left, Moments(counts[LEFT + 2, j], counts[LEFT + 1, j], counts[N_MISSING, j])


@lean_kernel
def _try_column(limits, node, block, j, bar, scratch):
    """Try the threshold of one column with missing rows on either side; see :func:`try_threshold`."""
    left, missing = _statistics_of_column(node, j, block.counts, scratch.classes)
    return try_threshold(limits, left, missing, node, ZERO(), block.reals[2, j], bar, scratch)


@inlined_kernel
def search_random_block(limits, drawing, key, block, first, last, sums, path, scratch):
    """Find the best of the random thresholds of a node of a block (:mod:`dtrees.split.grow.block`), all columns side by side.

    It finds the same thresholds and split as :func:`search_random` column by column. ``drawing`` is the number of columns for each node,
    the key of the tree's stream of columns of nodes, and the tree's columns, ascending; ``key`` is that of the tree's thresholds. Rows
    of ``block.reals`` are lowest and highest value, threshold, and score; rows of ``block.counts`` are missing rows, rows going left,
    their H, their other sums, then H and the other sums of the missing rows.

    Returns
    -------
    status, score, has_missing
        As in :func:`~dtrees.split.search.column.search_column`.
    column : int
        Column of the split.
    """
    max_features, column_key, pool = drawing
    reals, counts = block.reals, block.counts
    low, high, n_missing, scores = reals[0], reals[1], counts[N_MISSING], reals[3]
    places = block.places[first:last]
    n = last - first
    has_missing = block.has_missing[0] > 0
    n_columns = pool.shape[0]
    _find_extremes(block.cells, places, low, high, n_missing, has_missing)
    n_drawn = 0
    varied = False
    while n_drawn < n_columns and (n_drawn < max_features or not varied):
        if max_features < n_columns:
            draw_columns(column_key, path, pool, n_drawn, n_drawn + 1)
        j = block.place_of[pool[n_drawn]]
        usable = begin_column(limits.criterion, sums, np.int64(pool[n_drawn]))
        varied |= usable and n_missing[j] < n and (low[j] < high[j] or n_missing[j] > 0)
        n_drawn += 1
    status, score, winner = CONSTANT, -1.0, np.int64(-1)
    if varied:
        status = NO_SPLIT
        node = node_statistic(limits.criterion, sums, n)
        arithmetic = is_arithmetic(limits.criterion)
        _draw_thresholds(low, high, key ^ path, block.identity, reals[2])
        _sum_sides(node, block, places, has_missing)
        if arithmetic:
            _score_thresholds(limits, node, scores, counts)
        for d in range(n_drawn):
            column = np.int64(pool[d])
            j = block.place_of[column]
            if n_missing[j] > 0 or not arithmetic:
                if n_missing[j] == n or (low[j] == high[j] and n_missing[j] == 0) or not begin_column(limits.criterion, sums, column):
                    continue
                found = _try_column(limits, node, block, j, bar_for(column, winner, score), scratch)
            else:
                found = scores[j] if low[j] < high[j] else -1.0
            if found > score or (found == score and column < winner):
                status, score, winner = SPLIT, found, column
        if winner >= 0:
            begin_column(limits.criterion, sums, winner)
            _try_column(limits, node, block, np.int64(block.place_of[winner]), -1.0, scratch)
    if max_features < n_columns:
        undraw_columns(column_key, path, pool, n_drawn)
    return status, score, winner >= 0 and n_missing[block.place_of[winner]] > 0, winner


@kernel
def find_ends(queue, tasks, columns, rows, ends):
    """Find the lowest and the highest code of nodes in columns, and the number of missing values, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 3)
        First and last place of a node, and a column.
    columns : Columns
    rows : ndarray of uint32
    ends : ndarray of int64, shape (n, 3)
        Written. For a node without values, the lowest code is the number of distinct values, and the highest is -1.
    """
    for k in claimed(queue, tasks.shape[0]):
        start, stop, column = tasks[k]
        codes, n_distinct = columns.codes[column], np.int64(columns.offsets[column + 1] - columns.offsets[column])
        ends[k, 0], ends[k, 1], ends[k, 2] = find_end_codes(codes, n_distinct, rows, start, stop)


@kernel
def draw_thresholds(key, paths, columns, low, high, out):
    """Draw a threshold between two values for each task: a path of a node and a column; infinity if the values are equal."""
    for k in range(paths.shape[0]):
        out[k] = np.inf
        if low[k] < high[k]:
            out[k] = draw_between(low[k], high[k], draw(np.uint64(key) ^ paths[k], columns[k]))


@kernel
def sum_sides(queue, tasks, columns, partition, cuts, node_sums, limits, scratch, left, missing):
    """Sum the rows of nodes on the left of thresholds, and the missing rows, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column, the node, and the place for the sums of missing rows, -1 if there are none.
    columns : Columns
    partition : RowPartition
    cuts : ndarray of int64, shape (n,)
        The highest code that goes left.
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
        Sums over all shards.
    limits : SplitLimits
    scratch : Scratch
    left, missing : ndarray of int64, shape (n, n_sums + 1)
        Written, all 0 before: sums, and the number of rows last.
    """
    for k in claimed(queue, tasks.shape[0]):
        _sum_node(tasks[k], columns, partition, cuts[k], node_sums, limits, scratch, left[k], missing)


@lean_kernel
def _sum_node(task, columns, partition, cut, node_sums, limits, scratch, left, missing):
    start, stop, column, number, place = task
    node = node_statistic(limits.criterion, node_sums[number], ZERO())
    n_distinct = np.int64(columns.offsets[column + 1] - columns.offsets[column])
    on_left, without = sum_left_and_missing(node, columns.codes[column], n_distinct, partition, start, stop, cut, scratch)
    _write(on_left, left)
    if place >= 0:
        _write(without, missing[place])


@lean_kernel
def _write(statistic, out):
    """Write sums and the number of rows; the words of constraints stay 0."""
    n = out.shape[0] - 1
    write_sums(statistic, out[:n])
    out[n] = statistic.n


@kernel
def try_thresholds(queue, tasks, thresholds, left, missing, nodes, node_sums, limits, scratch, out):
    """Try the threshold of each task, given the sums over all shards, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 3)
        A node, a column of the table, and the place of the sums of missing rows, -1 if there are none.
    thresholds : ndarray of float64, shape (n,)
        Infinity if all values are equal.
    left, missing : ndarray of int64
        As in :func:`sum_sides`.
    nodes : ndarray of int64, shape (n_nodes,)
        The number of rows of each node.
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
    limits : SplitLimits
    scratch : Scratch
    out : Candidates
        One for each task.
    """
    none = np.zeros(left.shape[1], np.int64)
    for k in claimed(queue, tasks.shape[0]):
        node, column, place = tasks[k]
        out.records[k].column, out.records[k].status = column, CONSTANT
        if (thresholds[k] < np.inf or place >= 0) and begin_column(limits.criterion, node_sums[node], column):
            missing_sums = missing[place] if place >= 0 else none
            score = _try(thresholds[k], left[k], missing_sums, nodes[node], node_sums[node], limits, scratch)
            out.records[k].status = NO_SPLIT
            if score >= 0.0:
                out.records[k].status = SPLIT
                complete_but_threshold(ZERO(), column, nodes[node], node_sums[node], limits, score, place >= 0, scratch.found, out, k)


@lean_kernel
def _try(threshold, left, missing, n_rows, sums, limits, scratch):
    n = sums.shape[0]
    node = node_statistic(limits.criterion, sums, n_rows)
    lefts = node_statistic(limits.criterion, left[:n], left[n])
    missings = node_statistic(limits.criterion, missing[:n], missing[n])
    return try_threshold(limits, lefts, missings, node, ZERO(), threshold, -1.0, scratch)
