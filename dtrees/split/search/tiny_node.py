"""The best split of a node of few rows, all columns side by side.

For few rows sorting does not pay: for each row i and each column, the rows with values up to row i's are the left side of a split, and
comparing all pairs of rows gives their sums. As the rows' codes are stored row by row (the cells of :mod:`dtrees.split.grow.block`), the
innermost loops run over columns and are vectorised.

If scores are not plain arithmetic but have a bound that is, the bounds are computed in this way, and the cuts of a column are scored one
by one, the most promising column first, only if their bounds exceed the best score. The same holds for a monotonic column, whose scores
without constraints are the bounds. Columns with missing values, and criteria without a bound, are left to the sweep over sorted rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel, shared_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints import begin_column, begin_node, is_constrained, may_use, sign_of, unconstrained
from dtrees.split.criteria.parts import is_arithmetic, is_bounded, node_statistic
from dtrees.split.criteria.statistics import nothing, plus_row, weight_at
from dtrees.split.node.records import CONSTANT, NO_SPLIT, SPLIT, bar_for, better
from dtrees.split.numbers.hashing import draw_columns, draw_first_columns, swap_back, undraw_columns
from dtrees.split.policy import VECTOR
from dtrees.split.search import tiny_cuts
from dtrees.split.search.column import search_sorted
from dtrees.split.search.line_up import line_up_block
from dtrees.split.search.order_statistics import search_all_thresholds
from dtrees.split.search.sweep import SortedRows, cut_after
from dtrees.split.table.sorting import MISSING, key_of, place_in, sort_keys

#: If one column in this many is monotonic, the cuts of all columns are checked for their signs, otherwise those of each monotonic
#: column.
_MONOTONIC_SHARE = 4


@optional
def sweep_column(
    criterion: Any, columns: Any, column: Any, block: Any, first: Any, last: Any, sums: Any, limits: Any, bar: Any, scratch: Any
):
    """Search one column by sorting the rows; the result is that of :func:`~dtrees.split.search.column.search_column`.

    ``criterion`` is that of ``limits``, without constraints.
    """
    return _sort_and_sweep(columns, column, block, first, last, sums, limits, bar, scratch)


@sweep_column.of(Deviations)
def _(criterion, columns, column, block, first, last, sums, limits, bar, scratch):
    return _search_in_line(criterion, columns, column, last - first, block, sums, limits, bar, scratch)


@shared_kernel
def _sort_and_sweep(columns, column, block, first, last, sums, limits, bar, scratch):
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    codes = columns.codes[column]
    n = last - first
    for i in range(n):
        place = block.places[first + i]
        scratch.keys[i] = key_of(codes[block.rows[place]], place)
    sort_keys(scratch.keys, scratch.spare, n, scratch.counts)
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    rows = SortedRows(scratch.keys, ZERO(), n, block.g, block.h, ZERO())
    return search_sorted(rows, n_distinct, sums, limits, bar, scratch)


@shared_kernel
def _search_in_line(criterion, columns, column, n, block, sums, limits, bar, scratch):
    """Search one column of a node whose rows are already in the order of their targets."""
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    return search_all_thresholds(criterion, columns.codes[column], n_distinct, n, block.h.shape[0] > 0, limits, bar, scratch)


@inlined_kernel
def column_of_pair(block, drawing, first, path):
    """Return the column that separates a node of two rows, -1 if none does.

    All columns in which they differ have the same score, so it is the lowest of those drawn.
    """
    max_features, key, pool = drawing
    x, y = block.cells[block.places[first]], block.cells[block.places[first + 1]]
    n_columns = pool.shape[0]
    width = min(max_features, n_columns)
    everything = width == n_columns
    if not everything:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    winner = np.int64(n_columns)  # index into the tree's columns, which ascend
    for d in range(width):
        j = np.int64(block.place_of[pool[d]])
        if x[j] != y[j]:
            winner = min(winner, j)
            if everything:
                break
    drawn = width
    while drawn < n_columns and winner == n_columns:  # all columns so far are constant: continue drawing
        draw_columns(key, path, pool, drawn, drawn + 1)
        j = np.int64(block.place_of[pool[drawn]])
        drawn += 1
        if x[j] != y[j]:
            winner = j
    if drawn > width:
        undraw_columns(key, path, pool, drawn)
    elif not everything:
        swap_back(pool, width, block.swaps)
    return np.int64(block.column_at[winner]) if winner < n_columns else np.int64(-1)


@optional
def _search_pair(criterion, columns, limits, node, block, column, first, sums, scratch):
    """Split a node of two rows in a column in which they differ; the result is that of ``search_column``."""
    j = block.place_of[column]
    left, right = block.places[first], block.places[first + 1]
    if block.cells[right, j] < block.cells[left, j]:
        left, right = right, left
    low, high = block.cells[left, j], block.cells[right, j]
    if high == MISSING:
        return _sort_and_sweep(columns, column, block, first, first + 2, sums, limits, -1.0, scratch)
    one = plus_row(nothing(node, scratch.classes[0]), block.g[left], weight_at(block.h, left))
    missing = nothing(node, scratch.classes[1])
    score = cut_after(limits, one, missing, node, np.int64(low), np.int64(high), -1.0, scratch.classes[2], scratch.found)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, False


@_search_pair.of(Deviations)
def _(criterion, columns, limits, node, block, column, first, sums, scratch):
    line_up_block(criterion, block, first, first + 2, scratch)
    return _search_in_line(criterion, columns, column, ZERO() + 2, block, sums, limits, -1.0, scratch)


@optional
def _list_places(criterion, node, block, first, scratch):
    """Write the places of a node's rows to the block, in the order that :func:`_scan` needs."""
    for i in range(node.n):
        block.some_places[i] = block.places[first + i]


@_list_places.of(Deviations)
def _(criterion, node, block, first, scratch):
    line_up_block(criterion, block, first, first + node.n, scratch)
    for i in range(node.n):  # in the order of targets
        block.some_places[i] = place_in(scratch.keys[i])


@optional
def _scan(criterion, limits, node, sums, block, lanes, by_sign, scratch):
    """Find the best cut of every column of the tile; return whether that was possible, and whether its score is exact, not a bound."""
    arithmetic, bounded = is_arithmetic(criterion), is_bounded(criterion)
    if arithmetic or bounded:
        begin_node(limits.criterion, sums)
        tiny_cuts.scan_columns(limits, node, block, lanes, by_sign)
    return arithmetic or bounded, arithmetic


@_scan.of(Deviations)
def _(criterion, limits, node, sums, block, lanes, by_sign, scratch):
    scanned = not is_constrained(limits.criterion) and tiny_cuts.scan_gaps(criterion, limits, scratch.line_up.line, node, block, lanes)
    return scanned, scanned


@optional
def _score_column(criterion, node, limits, block, d, bar, known):
    """Score the cuts of a column of the tile that were bounded; see :func:`~dtrees.split.search.tiny_cuts.score_column`."""
    return tiny_cuts.score_column(node, limits, block, d, bar, known)


@_score_column.of(Deviations)
def _(criterion, node, limits, block, d, bar, known):
    return -1.0, NONE()  # there are no bounds


@inlined_kernel
def _compare_columns(criterion, block, limits, node, sums, drawing, first, path, scratch):
    """Draw columns for a node and find the best cut in them.

    Columns to be searched again are written to ``block.again``, as places in the tile, and the bounds of their scores to a row of
    floats, infinity if they must be swept. Returns whether any column varies that need not be swept, the best score of the finished
    columns, its column, that column's place in the tile, and the number of columns left.
    """
    max_features, key, pool = drawing
    width = min(max_features, pool.shape[0])
    everything = width == pool.shape[0]
    if not everything:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    lanes, reals, counts = (width + VECTOR - 1) // VECTOR * VECTOR, block.reals, block.counts
    _list_places(criterion, node, block, first, scratch)
    tiny_cuts.fill_tile(block, pool, width, lanes, block.some_places[: node.n])
    low, high, n_missing = counts[tiny_cuts.LOW, :lanes], counts[tiny_cuts.HIGH, :lanes], counts[tiny_cuts.MISSED, :lanes]
    by_sign = is_constrained(limits.criterion) and _list_signs(limits.criterion, pool[:width], reals[tiny_cuts.SIGNS, :lanes])
    scans, exact = _scan(criterion, limits, node, sums, block, lanes, by_sign, scratch)
    varies, score, winner, best_place, n_again = False, -1.0, np.int64(-1), np.int64(-1), 0
    for d in range(width):
        column = np.int64(pool[d])
        if (n_missing[d] == 0 and low[d] == high[d]) or not may_use(limits.criterion, sums, column):
            continue
        scanned = scans and n_missing[d] == 0
        varies |= scanned
        if not scanned or not exact or (not by_sign and sign_of(limits.criterion, column) != 0):
            reals[tiny_cuts.BOUND, n_again] = reals[tiny_cuts.BEST, d] if scanned else np.inf
            block.again[n_again] = d
            n_again += 1
            continue
        top = reals[tiny_cuts.BEST, d]
        if top > score or (top == score and column < winner):
            score, winner, best_place = top, column, np.int64(d)
    if not everything:
        swap_back(pool, width, block.swaps)
    return varies, score, winner, best_place, n_again


@lean_kernel
def _list_signs(criterion, columns, signs):
    """Write the signs of columns, 0 for padding; return whether many are monotonic."""
    n = 0
    signs[:] = 0.0
    for d in range(columns.shape[0]):
        sign = sign_of(criterion, np.int64(columns[d]))
        signs[d] = sign
        n += sign != 0
    return _MONOTONIC_SHARE * n >= columns.shape[0]


@inlined_kernel
def bring_up_best(again, bounds, n):
    """Exchange the first of ``n`` columns with the one that has the largest bound."""
    best = ZERO()
    for k in range(1, n):
        best = k if bounds[k] > bounds[best] else best
    again[0], again[best] = again[best], again[0]
    bounds[0], bounds[best] = bounds[best], bounds[0]


@inlined_kernel
def search_tiny_node(columns, limits, drawing, block, first, last, sums, path, scratch):
    """Find the best split of a node of few rows of a block.

    It is the same split as :func:`~dtrees.split.search.column.search_sorted` finds column by column; ``drawing`` is that of
    :func:`~dtrees.split.search.random_threshold.search_random_block`.

    Returns
    -------
    status, score, has_missing
        As in :func:`~dtrees.split.search.column.search_column`.
    column : int
        Column of the split.
    """
    max_features, key, pool = drawing
    n_columns, node, criterion = pool.shape[0], node_statistic(limits.criterion, sums, last - first), unconstrained(limits.criterion)
    if node.n == 2 and not is_constrained(limits.criterion):
        column = column_of_pair(block, drawing, first, path)
        if column < 0:
            return CONSTANT, -1.0, False, NONE()
        status, score, has_missing = _search_pair(criterion, columns, limits, node, block, column, first, sums, scratch)
        return status, score, has_missing, column if status == SPLIT else NONE()
    width = min(max_features, np.int64(n_columns))
    varies, score, winner, d, n_again = _compare_columns(criterion, block, limits, node, sums, drawing, first, path, scratch)
    status, has_missing = CONSTANT, False
    if varies:
        status = SPLIT if d >= 0 else NO_SPLIT
    if d >= 0:
        tiny_cuts.describe(node, block, d, block.counts[tiny_cuts.CUT, d], scratch)
    again, bounds = block.again, block.reals[tiny_cuts.BOUND]
    if n_again > 1 and (is_bounded(limits.criterion) or is_constrained(limits.criterion)):
        bring_up_best(again, bounds, n_again)
    for k in range(n_again):
        column = np.int64(block.column_at[block.chosen[again[k]]])
        bar = bar_for(column, winner, score)
        if bounds[k] <= bar:
            continue
        if bounds[k] < np.inf:
            begin_column(limits.criterion, sums, column)
            d = again[k]
            known = scratch.found.left[0], scratch.found.left[1] if winner >= 0 else NONE(), score  # no side has the weight -1
            found, cut = _score_column(criterion, node, limits, block, d, bar, known)
            if found >= 0.0:
                status, score, has_missing, winner = SPLIT, found, False, column
                tiny_cuts.describe(node, block, d, cut, scratch)
            continue
        swept = sweep_column(criterion, columns, column, block, first, last, sums, limits, bar, scratch)
        status, score, has_missing, winner = better((status, score, has_missing, winner), swept, column)
    n_drawn = ZERO()
    while status == CONSTANT and width < n_columns:  # all columns so far are constant: continue drawing
        width += 1
        draw_columns(key, path, pool, n_drawn, width)
        n_drawn = width
        column = np.int64(pool[width - 1])
        status, score, has_missing = sweep_column(criterion, columns, column, block, first, last, sums, limits, -1.0, scratch)
        winner = column if status == SPLIT else NONE()
    undraw_columns(key, path, pool, n_drawn)
    return status, score, has_missing, winner
