"""The best split of a node of few rows by absolute error or a quantile, all columns side by side.

As in :mod:`dtrees.split.search.tiny.tiny_node`, each row is compared with every other instead of sorting. The sum of deviations of some
rows from their quantile is a sum over the *gaps* between neighbouring targets of the node, too: where rows of weight L are below a gap and
rows of weight H above it, it costs ``min(below * L, above * H)`` times its width, as the quantile is on the cheaper side. So the targets of
the node are gone through in order, with running weights of what goes left in each column, and no quantile has to be followed.

Sums must fit 64 bits, which the targets of so few rows nearly always do; otherwise columns are searched one by one, as are those with
missing values and all under constraints.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel, shared_kernel
from dtrees.split.criteria.constraints.kinds import is_constrained
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.node.candidate import bar_for
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.numbers.hashing import draw_columns, draw_first_columns, swap_back, undraw_columns
from dtrees.split.policy import VECTOR
from dtrees.split.search.order_statistics.line_up import line_up_block
from dtrees.split.search.order_statistics.one_target import search_all_thresholds
from dtrees.split.search.thresholds.columnwise import add_left
from dtrees.split.search.tiny.cuts import (
    BEST,
    BOUND,
    COUNT_LEFT,
    CUT,
    HIGH,
    LOW,
    MISSED,
    SUM_LEFT,
    WEIGHT_LEFT,
    describe,
    fill_tile,
    forbid,
    keep_best,
)
from dtrees.split.search.tiny.tiny_node import column_of_pair
from dtrees.split.table.keys import place_in

#: Rows of the scratch space of integers: what is below a gap on the left side, and above it, times their factors, and what gaps cost.
_BELOW, _ABOVE, _COST = SUM_LEFT, 7, 8
#: Sums of costs stay below this.
_FITS = 2.0**62


@lean_kernel
def _add_two_gaps(x, y, cut, one, other, below, above, cost):
    """Add what the gaps after two rows cost, on both sides of the split of each column.

    ``one`` and ``other`` are the width of a gap, the row's weight times the factors, and that of all rows up to the gap and beyond it.
    """
    x_gap, x_low, x_high, x_low_all, x_high_all = one
    y_gap, y_low, y_high, y_low_all, y_high_all = other
    for j in range(cut.shape[0]):
        x_left, y_left = x[j] <= cut[j], y[j] <= cut[j]
        lower = below[j] + (x_low if x_left else 0)
        upper = above[j] - (x_high if x_left else 0)
        costs = x_gap * (min(lower, upper) + min(x_low_all - lower, x_high_all - upper))
        lower += y_low if y_left else 0
        upper -= y_high if y_left else 0
        below[j] = lower
        above[j] = upper
        cost[j] += costs + y_gap * (min(lower, upper) + min(y_low_all - lower, y_high_all - upper))


@inlined_kernel
def _gap_after(criterion, line, k, n, before, total):
    """Return what :func:`_add_two_gaps` is to know of the gap after element ``k``; the last has none after it."""
    weight, gap = line[k].weight, line[min(k + 1, n)].level - line[k].level
    up_to = before + weight
    return gap, criterion.below * weight, criterion.above * weight, criterion.below * up_to, criterion.above * (total - up_to)


@lean_kernel
def _gains(whole, cost, scores):
    for j in range(scores.shape[0]):
        scores[j] = float(whole - cost[j])


@lean_kernel
def _multiply(weight_left, factor, out):
    for j in range(out.shape[0]):
        out[j] = factor * weight_left[j]


@lean_kernel
def _cost_of_all(criterion, line, n, total):
    """Return the deviation of all of a node's rows, gap by gap."""
    cost = before = ZERO()
    for k in range(1, n):
        before += line[k].weight
        cost += (line[k + 1].level - line[k].level) * min(criterion.below * before, criterion.above * (total - before))
    return cost


@lean_kernel
def _scan_gaps(criterion, limits, line, node, block, width):
    """Find the best cut of every column; the rows of the block's tile are in the order of their targets."""
    n, total, tile, reals, counts = node.n, node.h, block.tile, block.reals, block.counts
    h, n_left, below, above, cost = (
        counts[WEIGHT_LEFT, :width],
        counts[COUNT_LEFT, :width],
        counts[_BELOW, :width],
        counts[_ABOVE, :width],
        counts[_COST, :width],
    )
    scores = reals[BOUND, :width]
    whole = _cost_of_all(criterion, line, n, total)
    for i in range(n):
        cut = tile[i, :width]
        h[:] = 0
        n_left[:] = 0
        for k in range(n):
            add_left(tile[k, :width], cut, line[k + 1].weight, h, np.int64(1), n_left)
        cost[:] = 0
        below[:] = 0
        _multiply(h, criterion.above, above)
        before = ZERO()
        for k in range(1, n, 2):  # the last element, if left over, costs nothing
            one = _gap_after(criterion, line, k, n, before, total)
            before += line[k].weight
            other = _gap_after(criterion, line, k + 1, n, before, total)
            before += line[k + 1].weight
            _add_two_gaps(tile[k - 1, :width], tile[k, :width], cut, one, other, below, above, cost)
        _gains(whole, cost, scores)
        if limits.min_weight > 0 or limits.min_samples > 1:
            forbid(limits, n_left, n, h, total, scores)
        keep_best(cut, counts[HIGH, :width], scores, reals[BEST, :width], counts[CUT, :width])


@shared_kernel
def _search_in_line(criterion, columns, column, n, block, sums, limits, bar, scratch):
    """Search one column by following quantiles; result as of :func:`~dtrees.split.search.column.search_column`."""
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    return search_all_thresholds(criterion, columns.codes[column], n_distinct, n, block.h.shape[0] > 0, limits, bar, scratch)


@lean_kernel
def search_tiny_deviations(criterion, columns, limits, drawing, block, first, last, sums, path, scratch):
    """Find the best split of a node of at most TINY_RANKED_ROWS rows; parameters and result as of ``search_tiny_node``.

    ``criterion`` is the :class:`~dtrees.split.criteria.absolute_error.Deviations` in ``limits``.
    """
    max_features, key, pool = drawing
    line_up_block(criterion, block, first, last, scratch)
    node, n_columns, line = node_statistic(limits.criterion, sums, last - first), np.int64(pool.shape[0]), scratch.line_up.line
    n, total = node.n, node.h
    span = float(line[n].level - line[1].level) * float(total)
    fits = (span * float(max(criterion.above, criterion.below)) < _FITS) & (not is_constrained(limits.criterion))
    places = block.some_places[:n]
    width = min(max_features, n_columns)
    if n == 2 and not is_constrained(limits.criterion):
        column = column_of_pair(block, drawing, first, path)
        if column < 0:
            return CONSTANT, -1.0, False, NONE()
        status, score, has_missing = _search_in_line(criterion, columns, column, n, block, sums, limits, -1.0, scratch)
        return status, score, has_missing, column if status == SPLIT else NONE()
    if width < n_columns:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    lanes = (width + VECTOR - 1) // VECTOR * VECTOR
    counts, reals, again = block.counts, block.reals, block.again
    for k in range(n):  # in the order of targets
        places[k] = place_in(scratch.keys[k])
    fill_tile(block, pool, width, lanes, places)
    if fits:
        _scan_gaps(criterion, limits, line, node, block, lanes)
    status, score, winner, best_place, n_again = CONSTANT, -1.0, NONE(), NONE(), ZERO()
    for d in range(width):
        column = np.int64(pool[d])
        if counts[MISSED, d] == 0 and counts[LOW, d] == counts[HIGH, d]:
            continue
        if not fits or counts[MISSED, d] > 0:
            again[n_again] = column
            n_again += 1
            continue
        status = max(status, NO_SPLIT)
        top = reals[BEST, d]
        if top > score or (top == score and column < winner):
            status, score, winner, best_place = SPLIT, top, column, np.int64(d)
    if width < n_columns:
        swap_back(pool, width, block.swaps)
    has_missing = False
    if best_place >= 0:
        describe(node, block, best_place, counts[CUT, best_place], scratch)
    for k in range(n_again):
        column = again[k]
        found = _search_in_line(criterion, columns, column, n, block, sums, limits, bar_for(column, winner, score), scratch)
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    n_drawn = ZERO()
    while status == CONSTANT and width < n_columns:  # all columns so far are constant: go on drawing
        width += 1
        draw_columns(key, path, pool, n_drawn, width)
        n_drawn = width
        column = np.int64(pool[width - 1])
        status, score, has_missing = _search_in_line(criterion, columns, column, n, block, sums, limits, -1.0, scratch)
        winner = column if status == SPLIT else NONE()
    undraw_columns(key, path, pool, n_drawn)
    return status, score, has_missing, winner
