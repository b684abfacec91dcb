"""The best split of a node of few rows, all columns side by side.

So small a node is not worth sorting: for each row i and each column, the rows with values up to row i's are the left side of a split, and
comparing every row with every other finds their sums. As the rows' codes lie row by row (the cells of :mod:`dtrees.split.grow.block`), the
innermost loops run over columns and become vector instructions.

Columns with missing values, and criteria whose scores are not plain arithmetic, are left to the sweep over sorted rows. Where these have a
bound that is arithmetic, it is found likewise, and columns are swept, the most promising one first, only if it passes the best score.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.parts import is_arithmetic, is_bounded, node_statistic
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments, plus_row, weight_at
from dtrees.split.node.candidate import bar_for
from dtrees.split.node.found import note_found
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.numbers.hashing import draw_columns, draw_first_columns, swap_back, undraw_columns
from dtrees.split.policy import VECTOR
from dtrees.split.search.column import search_sorted
from dtrees.split.search.columnwise import (
    add_class_terms,
    add_left,
    add_two_left,
    bound_columns,
    finish_class_scores,
    finish_target_scores,
    widen,
)
from dtrees.split.search.sweep import cut_after, nothing
from dtrees.split.table.keys import MISSING, key_of
from dtrees.split.table.sorting import sort_keys

#: Rows of the scratch space of reals: best score of a column, and score.
_BEST, _SCORE = 0, 1
#: Rows of that of integers: missing rows of a column; weight and number of rows going left, and g (or the weight of a class) of these;
#: lowest and highest code, and the code that the best split is after.
_MISSING, _H, _N, _G, _LOW, _HIGH, _CUT = 0, 1, 2, 3, 4, 5, 6
#: What goes left of another one of several targets, or of the first of their classes, after which come the others.
_MORE = 7


@inlined_kernel
def _copy_row(codes, chosen, out):
    for d in range(out.shape[0]):
        out[d] = codes[chosen[d]]


@inlined_kernel
def _copy_whole_row(codes, out):
    for d in range(out.shape[0]):
        out[d] = codes[d]


@lean_kernel
def _count_missing(x, n_missing):
    for j in range(n_missing.shape[0]):
        n_missing[j] += x[j] == np.int64(MISSING)


@lean_kernel
def _forbid(limits, n_left, n, h, total, score):
    """Take back the scores of splits that may not be taken."""
    for j in range(score.shape[0]):
        found = score[j]
        score[j] = found if is_allowed(limits, n_left[j], n - n_left[j], h[j], total - h[j]) else -1.0


@inlined_kernel
def _keep_best(x, high, score, best, best_cut):
    """Note where a cut after ``x``, unless the node has no higher code, is better than the best so far; the lower of equals is."""
    for j in range(x.shape[0]):
        # Read everything first: a read under a condition would be a branch, and keep the compiler from taking columns together.
        cut, top, top_cut, found = x[j], best[j], best_cut[j], score[j]
        found = found if cut < high[j] else -1.0
        better = (found > top) | ((found == top) & (cut < top_cut))
        best[j] = found if better else top
        best_cut[j] = cut if better else top_cut


@specialised
def _score_cut(node, criterion, tile, width, cut, places, a, b, reals, counts):
    """Score, or bound, a cut of every column after the codes ``cut``; the weight that goes left, zero so far, is left in ``counts``."""


@_score_cut.of(Moments)
def _(node, criterion, tile, width, cut, places, a, b, reals, counts):
    n = places.shape[0]
    g, h = counts[_G, :width], counts[_H, :width]
    g[:] = 0
    if n & 1:
        place = places[n - 1]
        add_left(tile[n - 1, :width], cut, a[place], g, weight_at(b, place), h)
    for k in range(0, n - 1, 2):
        one, other = places[k], places[k + 1]
        add_two_left(tile[k, :width], tile[k + 1, :width], cut, a[one], a[other], g, weight_at(b, one), weight_at(b, other), h)
    bound_columns(node, criterion, g, h, reals[_SCORE, :width])


@_score_cut.of(Classes)
def _(node, criterion, tile, width, cut, places, a, b, reals, counts):
    _score_cut_of_classes(node, criterion, tile, width, cut, places, a, b, reals, counts)


@lean_kernel
def _score_cut_of_classes(node, criterion, tile, width, cut, places, a, b, reals, counts):
    """Score a cut; the places are in the order of the rows' classes, so that one class after the other is summed."""
    n = places.shape[0]
    left, h, ignored, scores = counts[_G, :width], counts[_H, :width], counts[_N, :width], reals[_SCORE, :width]
    for k in range(n):
        add_left(tile[k, :width], cut, weight_at(b, places[k]), h, np.int64(0), ignored)
    scores[:] = 0.0
    left[:] = 0
    for k in range(n):
        own = a[places[k]]
        add_left(tile[k, :width], cut, weight_at(b, places[k]), left, np.int64(0), ignored)
        if k == n - 1 or a[places[k + 1]] != own:
            add_class_terms(criterion, left, node.weights[own], h, node.h, scores)
            left[:] = 0
    finish_class_scores(criterion, h, node, scores)


@_score_cut.of(AmountsOfTargets)
def _(node, criterion, tile, width, cut, places, a, b, reals, counts):
    _score_cut_of_amounts(node, criterion, tile, width, cut, places, a, b, reals, counts)


@lean_kernel
def _score_cut_of_amounts(node, criterion, tile, width, cut, places, a, b, reals, counts):
    """Score a cut: the weight and the first target are summed, and then two more targets at a time."""
    n, n_targets, rows = places.shape[0], node.sums.shape[0], node.rows
    h, one, other, scores = counts[_H, :width], counts[_G, :width], counts[_MORE, :width], reals[_SCORE, :width]
    scores[:] = 0.0
    one[:] = 0
    for k in range(n):
        add_left(tile[k, :width], cut, rows[a[places[k]], 0], one, weight_at(b, places[k]), h)
    add_class_terms(criterion, one, node.sums[0], h, node.h, scores)
    for t in range(1, n_targets, 2):
        one[:] = 0
        other[:] = 0
        following = min(t + 1, n_targets - 1)
        for k in range(n):
            row = a[places[k]]
            add_left(tile[k, :width], cut, rows[row, t], one, rows[row, following], other)
        add_class_terms(criterion, one, node.sums[t], h, node.h, scores)
        if following > t:
            add_class_terms(criterion, other, node.sums[following], h, node.h, scores)
    finish_target_scores(criterion, h, node, scores)


@_score_cut.of(ClassesOfTargets)
def _(node, criterion, tile, width, cut, places, a, b, reals, counts):
    _score_cut_of_class_lists(node, criterion, tile, width, cut, places, a, b, reals, counts)


@lean_kernel
def _score_cut_of_class_lists(node, criterion, tile, width, cut, places, a, b, reals, counts):
    """Score a cut: rows add their weight to the classes that they are of in all targets; classes that no row is of add nothing."""
    n, n_classes, rows = places.shape[0], node.sums.shape[0], node.rows
    h, ignored, scores = counts[_H, :width], counts[_N, :width], reals[_SCORE, :width]
    for c in range(n_classes):
        if node.sums[c] > 0:
            counts[_MORE + c, :width] = 0
    for k in range(n):
        weight, row = weight_at(b, places[k]), a[places[k]]
        add_left(tile[k, :width], cut, weight, h, weight, counts[_MORE + rows[row, 0], :width])
        for t in range(1, rows.shape[1]):
            add_left(tile[k, :width], cut, weight, counts[_MORE + rows[row, t], :width], np.int64(0), ignored)
    scores[:] = 0.0
    for c in range(n_classes):
        if node.sums[c] > 0:
            add_class_terms(criterion, counts[_MORE + c, :width], node.sums[c], h, node.h, scores)
    finish_target_scores(criterion, h, node, scores)


@inlined_kernel
def _scan_columns(limits, node, tile, width, places, a, b, reals, counts):
    """Find the best cut of every column, whose codes of the node's rows are in ``tile``."""
    n = places.shape[0]
    h, n_left, score = counts[_H, :width], counts[_N, :width], reals[_SCORE, :width]
    counted = b.shape[0] > 0 and limits.min_samples > 1
    for i in range(n):
        cut = tile[i, :width]
        h[:] = 0
        _score_cut(node, limits.criterion, tile, width, cut, places, a, b, reals, counts)
        if counted:
            n_left[:] = 0
            for k in range(n):
                add_left(tile[k, :width], cut, np.int64(1), n_left, np.int64(0), counts[_G, :width])
            _forbid(limits, n_left, node.n, h, node.h, score)
        elif limits.min_weight > 0 or limits.min_samples > 1:
            # Either every weight is 1, and the weight is the number of rows, or one row is enough.
            _forbid(limits, h, node.h, h, node.h, score)
        _keep_best(cut, counts[_HIGH, :width], score, reals[_BEST, :width], counts[_CUT, :width])


@specialised
def _put_in_order(node, places, a):
    """Put a node's places in the order that :func:`_score_cut` wants."""


@_put_in_order.of(AmountsOfTargets)
@_put_in_order.of(ClassesOfTargets)
@_put_in_order.of(Moments)
def _(node, places, a):
    pass


@_put_in_order.of(Classes)
def _(node, places, a):
    for i in range(1, places.shape[0]):
        place = places[i]
        k = i - 1
        while k >= 0 and a[places[k]] > a[place]:
            places[k + 1] = places[k]
            k -= 1
        places[k + 1] = place


@lean_kernel
def sweep_column(columns, column, block, first, last, sums, limits, bar, scratch):
    """Search one column by sorting the rows; see :func:`~dtrees.split.search.column.search_sorted`."""
    codes = columns.codes[column]
    n = last - first
    for i in range(n):
        place = block.places[first + i]
        scratch.keys[i] = key_of(codes[block.rows[place]], place)
    sort_keys(scratch.keys, scratch.spare, n, scratch.counts)
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    return search_sorted(scratch.keys, ZERO(), n, n_distinct, block.g, block.h, ZERO(), sums, limits, bar, scratch)


@inlined_kernel
def _describe(node, tile, d, places, a, b, cut, scratch):
    """Write what goes left of the best cut, which is after the code ``cut`` in column ``d`` of the tile."""
    higher = np.int64(MISSING)
    left = nothing(node, scratch.classes[0])
    for i in range(places.shape[0]):
        code = tile[i, d]
        if code <= cut:
            left = plus_row(left, a[places[i]], weight_at(b, places[i]))
        else:
            higher = min(higher, code)
    note_found(scratch.found, cut, higher, False, left)


@inlined_kernel
def _column_of_pair(block, max_features, key, pool, first, path):
    """Return the column that parts a node of two rows, -1 if none does.

    All columns in which they differ part them alike, so it is the lowest of those drawn.
    """
    x, y = block.cells[block.places[first]], block.cells[block.places[first + 1]]
    n_columns = pool.shape[0]
    width = min(max_features, n_columns)
    everything = width == n_columns
    if not everything:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    winner = np.int64(n_columns)  # a place among the tree's columns, which ascend
    for d in range(width):
        j = np.int64(block.place_of[pool[d]])
        if x[j] != y[j]:
            winner = min(winner, j)
            if everything:
                break
    drawn = width
    while drawn < n_columns and winner == n_columns:  # all columns so far are constant: go on drawing
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


@inlined_kernel
def _search_pair(columns, limits, node, block, column, first, sums, scratch):
    """Split a node of two rows by a column in which they differ; return as :func:`~dtrees.split.search.column.search_column`."""
    j = block.place_of[column]
    left, right = block.places[first], block.places[first + 1]
    if block.cells[right, j] < block.cells[left, j]:
        left, right = right, left
    low, high = block.cells[left, j], block.cells[right, j]
    if high == MISSING:
        return sweep_column(columns, column, block, first, first + 2, sums, limits, -1.0, scratch)
    one = plus_row(nothing(node, scratch.classes[0]), block.g[left], weight_at(block.h, left))
    missing = nothing(node, scratch.classes[1])
    score = cut_after(limits, one, missing, node, np.int64(low), np.int64(high), -1.0, scratch.classes[2], scratch.found)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, False


@inlined_kernel
def _compare_columns(block, limits, node, max_features, key, pool, first, path):
    """Draw columns for a node and find the best cut in them.

    Columns that must be swept instead are left in ``block.to_sweep``, the bounds of their scores in a row of reals. Returns whether any
    column varies, the best score, its column, that column's place in the tile, and the number of columns to be swept.
    """
    width = min(max_features, pool.shape[0])
    everything = width == pool.shape[0]
    if not everything:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    lanes, n = (width + VECTOR - 1) // VECTOR * VECTOR, node.n
    places, tile, reals, counts, chosen = block.some_places[:n], block.tile, block.reals, block.counts, block.chosen[:width]
    for i in range(n):
        places[i] = block.places[first + i]
    _put_in_order(node, places, block.g)
    for d in range(width):
        chosen[d] = block.place_of[pool[d]]
    low, high, n_missing = counts[_LOW, :lanes], counts[_HIGH, :lanes], counts[_MISSING, :lanes]
    low[:] = MISSING
    high[:] = -1
    n_missing[:] = 0
    for i in range(n):
        x = tile[i, :lanes]
        x[width:] = 0  # columns that fill up a vector; the loops over whole vectors are the fast ones
        if everything:
            _copy_whole_row(block.cells[places[i]], x[:width])
        else:
            _copy_row(block.cells[places[i]], chosen, x[:width])
        widen(x, low, high)
        if block.has_missing[0]:
            _count_missing(x, n_missing)
    reals[_BEST, :lanes] = -1.0
    counts[_CUT, :lanes] = MISSING
    arithmetic, bounded = is_arithmetic(limits.criterion), is_bounded(limits.criterion)
    if arithmetic or bounded:
        _scan_columns(limits, node, tile, lanes, places, block.g, block.h, reals, counts)
    varies, score, winner, best_place, n_to_sweep = False, -1.0, np.int64(-1), np.int64(-1), 0
    for d in range(width):
        column = np.int64(pool[d])
        if n_missing[d] == 0 and low[d] == high[d]:
            continue
        if n_missing[d] > 0 or not arithmetic:
            reals[_SCORE, n_to_sweep] = reals[_BEST, d] if bounded and n_missing[d] == 0 else np.inf
            block.to_sweep[n_to_sweep] = column
            n_to_sweep += 1
            continue
        varies = True
        top = reals[_BEST, d]
        if top > score or (top == score and column < winner):
            score, winner, best_place = top, column, np.int64(d)
    if not everything:
        swap_back(pool, width, block.swaps)
    return varies, score, winner, best_place, n_to_sweep


@inlined_kernel
def _bring_up_best(to_sweep, bounds, n):
    """Exchange the first of ``n`` columns with that of the largest bound."""
    best = ZERO()
    for k in range(1, n):
        best = k if bounds[k] > bounds[best] else best
    to_sweep[0], to_sweep[best] = to_sweep[best], to_sweep[0]
    bounds[0], bounds[best] = bounds[best], bounds[0]


@inlined_kernel
def search_tiny_node(columns, limits, max_features, key, pool, block, first, last, sums, path, scratch):
    """Find the best split of a node of at most TINY_ROWS rows of a block.

    The same split as :func:`~dtrees.split.search.column.search_sorted` finds column by column; ``key`` is that of the node's columns.

    Returns
    -------
    status, score, has_missing
        As :func:`~dtrees.split.search.column.search_column`.
    column : int
        Of the split.
    """
    n_columns = pool.shape[0]
    to_sweep, node = block.to_sweep, node_statistic(limits.criterion, sums, last - first)
    if node.n == 2:
        column = _column_of_pair(block, max_features, key, pool, first, path)
        if column < 0:
            return CONSTANT, -1.0, False, NONE()
        status, score, has_missing = _search_pair(columns, limits, node, block, column, first, sums, scratch)
        return status, score, has_missing, column if status == SPLIT else NONE()
    width = min(max_features, np.int64(n_columns))
    varies, score, winner, d, n_to_sweep = _compare_columns(block, limits, node, max_features, key, pool, first, path)
    status, has_missing = CONSTANT, False
    if varies:
        status = SPLIT if d >= 0 else NO_SPLIT
    if d >= 0:
        _describe(node, block.tile, d, block.some_places[: node.n], block.g, block.h, block.counts[_CUT, d], scratch)
    bounded, bounds = is_bounded(limits.criterion), block.reals[_SCORE]
    if bounded and n_to_sweep > 0:
        _bring_up_best(to_sweep, bounds, n_to_sweep)
    n_drawn = ZERO()
    swept = 0
    while swept < n_to_sweep or (status == CONSTANT and width < n_columns):
        if swept == n_to_sweep:  # all columns so far are constant: go on drawing
            width += 1
            draw_columns(key, path, pool, n_drawn, width)
            n_drawn = width
            to_sweep[n_to_sweep] = pool[width - 1]
            bounds[n_to_sweep] = np.inf
            n_to_sweep += 1
        column, bar = to_sweep[swept], bar_for(to_sweep[swept], winner, score)
        swept += 1
        if bounded and bounds[swept - 1] <= bar and status != CONSTANT:
            continue
        found = sweep_column(columns, column, block, first, last, sums, limits, bar, scratch)
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    undraw_columns(key, path, pool, n_drawn)
    return status, score, has_missing, winner
