"""The best split of a node of few rows, all columns side by side.

So small a node is not worth sorting: for each row i and each column, the rows with values up to row i's are the left side of a split, and
comparing every row with every other finds their sums. As the rows' values lie row by row (the cells of :mod:`dtrees.split.block`), the
innermost loops run over columns and become vector instructions.

Columns with missing values, and entropy, are left to the sweep over sorted rows.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.block import VECTOR
from dtrees.split.criteria import ENTROPY, score_squares
from dtrees.split.group import sort_keys
from dtrees.split.hashing import draw_columns, draw_first_columns, swap_back, undraw_columns
from dtrees.split.kernel import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.lanes import add_left, add_missing, add_two_left, widen
from dtrees.split.search import KNOWN, midpoint, search_sorted
from dtrees.split.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.sweep import bar_for

#: Rows of the scratch space of reals: lowest, highest value of a column, best score, value it cuts after, weights of both sides, score.
_LOW, _HIGH, _BEST, _VALUE, _A, _B, _SCORE = 0, 1, 2, 3, 4, 5, 6
#: Rows of that of integers: missing rows of a column; H, G (or the weight of a class) and number of rows going left.
_MISSING, _H, _G, _N = 0, 1, 2, 3


@inlined_kernel
def _copy_row(x, chosen, out):
    for d in range(out.shape[0]):
        out[d] = x[chosen[d]]


@inlined_kernel
def _copy_whole_row(x, out):
    for d in range(out.shape[0]):
        out[d] = x[d]


@inlined_kernel
def _score_moments(limits, all_g, all_h, g, h, score):
    for j in range(score.shape[0]):
        a = float(h[j]) + limits.penalty
        b = float(all_h - h[j]) + limits.penalty
        s = score_squares(float(g[j]), a, float(all_g - g[j]), b)
        score[j] = s if (a > 0.0) & (b > 0.0) else -1.0


@lean_kernel
def _add_class(left, whole, a, b, score):
    """Add the part of one class, of weight ``whole``, to the sum of squares of :func:`~dtrees.split.criteria.score_classes`."""
    for j in range(score.shape[0]):
        d = left[j] * b[j] - (whole - left[j]) * a[j]
        score[j] += d * d


@lean_kernel
def _divide_by_weights(a, b, score):
    for j in range(score.shape[0]):
        found = score[j] / (a[j] * b[j])
        score[j] = found if (a[j] > 0.0) & (b[j] > 0.0) else -1.0


@lean_kernel
def _forbid(limits, least, n, total, count, h, score):
    """Take back the scores of splits that leave fewer than ``least`` rows or too little weight on a side."""
    lightest = limits.min_weight
    for j in range(score.shape[0]):
        found = score[j]
        rows = (count[j] >= least) & (n - count[j] >= least)
        score[j] = found if rows & (h[j] >= lightest) & (total - h[j] >= lightest) else -1.0


@inlined_kernel
def _keep_best(x, high, score, best, value):
    """Note where a cut after ``x``, unless the node has no higher value, is better than the best so far; the lower of equals is."""
    for j in range(x.shape[0]):
        # Read everything first: a read under a condition would be a branch, and keep the compiler from taking columns together.
        cut, top, top_value, found = x[j], best[j], value[j], score[j]
        found = found if cut < high[j] else -1.0
        better = (found > top) | ((found == top) & (cut < top_value))
        best[j] = found if better else top
        value[j] = cut if better else top_value


@lean_kernel
def _score_classes(tile, width, value, places, a, b, sums, total, reals, counts):
    """Score a cut of every column after ``value`` in the class layout, where the places are in the order of the rows' classes."""
    weighted = b.shape[0] > 0
    n = places.shape[0]
    left, h = counts[_G, :width], counts[_H, :width]
    for k in range(n):
        add_left(tile[k, :width], value, b[places[k]] if weighted else np.int64(1), h, np.int64(0), left)
    weight_left, weight_right, score = reals[_A, :width], reals[_B, :width], reals[_SCORE, :width]
    for j in range(score.shape[0]):
        weight_left[j] = float(h[j])
        weight_right[j] = float(total - h[j])
        score[j] = 0.0
    for k in range(n):
        own = a[places[k]]
        add_left(tile[k, :width], value, b[places[k]] if weighted else np.int64(1), left, np.int64(0), h)
        if k == n - 1 or a[places[k + 1]] != own:
            _add_class(left, sums[own], weight_left, weight_right, score)
            left[:] = 0
    _divide_by_weights(weight_left, weight_right, score)


@inlined_kernel
def _scan_columns(limits, tile, width, places, a, b, sums, total, reals, counts):
    """Find the best cut of every column, whose values of the node's rows are in ``tile``; scores and values go to ``reals``."""
    n = places.shape[0]
    g, h, count, score = counts[_G, :width], counts[_H, :width], counts[_N, :width], reals[_SCORE, :width]
    weighted = b.shape[0] > 0
    counted = weighted and limits.min_samples > 1
    for i in range(n):
        value = tile[i, :width]
        g[:] = 0
        h[:] = 0
        if limits.n_classes > 0:
            _score_classes(tile, width, value, places, a, b, sums, total, reals, counts)
        else:
            if n & 1:
                place = places[n - 1]
                add_left(tile[n - 1, :width], value, a[place], g, b[place] if weighted else np.int64(1), h)
            for k in range(0, n - 1, 2):
                one, other = places[k], places[k + 1]
                one_h, other_h = (b[one], b[other]) if weighted else (np.int64(1), np.int64(1))
                add_two_left(tile[k, :width], tile[k + 1, :width], value, a[one], a[other], g, one_h, other_h, h)
            _score_moments(limits, sums[0], total, g, h, score)
        if counted:
            count[:] = 0
            for k in range(n):
                add_left(tile[k, :width], value, np.int64(1), count, np.int64(0), g)
            _forbid(limits, limits.min_samples, n, total, count, h, score)
        elif limits.min_weight > 0 or limits.min_samples > 1:
            _forbid(limits, np.int64(0) if weighted else limits.min_samples, total, total, h, h, score)
        _keep_best(value, reals[_HIGH, :width], score, reals[_BEST, :width], reals[_VALUE, :width])


@lean_kernel
def _sort_by_class(places, a):
    for i in range(1, places.shape[0]):
        place = places[i]
        k = i - 1
        while k >= 0 and a[places[k]] > a[place]:
            places[k + 1] = places[k]
            k -= 1
        places[k + 1] = place


@lean_kernel
def _sweep_column(columns, column, block, first, last, sums, limits, bar, scratch):
    """Search one column by sorting the rows; see :func:`~dtrees.split.search.search_sorted`."""
    codes = columns.codes[column]
    n = last - first
    for i in range(n):
        place = np.uint64(block.places[first + i])
        scratch.keys[i] = np.uint64(codes[block.rows[place]]) << np.uint64(32) | place
    sort_keys(scratch.keys, scratch.spare, n, scratch.counts)
    n_distinct = columns.offsets[column + 1] - columns.offsets[column]
    return search_sorted(scratch.keys, ZERO(), n, n_distinct, block.a, block.b, ZERO(), sums, limits, bar, scratch)


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
        if x[j] != y[j] and (x[j] == x[j] or y[j] == y[j]):
            winner = min(winner, j)
            if everything:
                break
    drawn = width
    while drawn < n_columns and winner == n_columns:  # all columns so far are constant: go on drawing
        draw_columns(key, path, pool, drawn, drawn + 1)
        j = np.int64(block.place_of[pool[drawn]])
        drawn += 1
        if x[j] != y[j] and (x[j] == x[j] or y[j] == y[j]):
            winner = j
    if drawn > width:
        undraw_columns(key, path, pool, drawn)
    elif not everything:
        swap_back(pool, width, block.swaps)
    return np.int64(block.column_at[winner]) if winner < n_columns else np.int64(-1)


@inlined_kernel
def _describe(limits, tile, d, places, a, b, value, best, threshold, best_left):
    """Write what goes left of the best cut, which is after ``value`` in column ``d`` of the tile."""
    n = places.shape[0]
    following = np.inf
    g = h = count = 0
    for k in range(limits.n_classes):
        best_left[k] = 0
    for i in range(n):
        x = tile[i, d]
        if x <= value:
            w = b[places[i]] if b.shape[0] > 0 else 1
            if limits.n_classes > 0:
                best_left[a[places[i]]] += w
            else:
                g += a[places[i]]
            h += w
            count += 1
        else:
            following = min(following, x)
    threshold[0] = midpoint(value, following)
    best[0], best[1], best[2], best[3], best[4], best[5] = 0, KNOWN, 0, g, h, count


@inlined_kernel
def _compare_columns(block, limits, max_features, key, pool, first, n, sums, path, to_sweep):
    """Draw columns for a node and find the best cut in them.

    Columns that must be swept instead are left in ``to_sweep``. Returns whether any column varies, the best score, its column, that
    column's place in the tile, and the number of columns to be swept.
    """
    width = min(max_features, pool.shape[0])
    everything = width == pool.shape[0]
    if not everything:
        draw_first_columns(key, path, pool, width, block.counters, block.swaps)
    lanes = (width + VECTOR - 1) // VECTOR * VECTOR
    places, tile, reals, counts, chosen = block.few[:n], block.tile, block.reals, block.counts, block.chosen[:width]
    for i in range(n):
        places[i] = block.places[first + i]
    if limits.n_classes > 0:
        _sort_by_class(places, block.a)
    for d in range(width):
        chosen[d] = block.place_of[pool[d]]
    low, high, n_missing = reals[_LOW, :lanes], reals[_HIGH, :lanes], counts[_MISSING, :lanes]
    low[:] = np.inf
    high[:] = -np.inf
    n_missing[:] = 0
    for i in range(n):
        x = tile[i, :lanes]
        x[width:] = 0.0  # columns that fill up a vector; the loops over whole vectors are the fast ones
        if everything:
            _copy_whole_row(block.cells[places[i]], x[:width])
        else:
            _copy_row(block.cells[places[i]], chosen, x[:width])
        widen(x, low, high)
        if block.has_missing[0]:
            add_missing(x, np.int64(1), n_missing)
    reals[_BEST, :lanes] = -1.0
    reals[_VALUE, :lanes] = np.inf
    if limits.criterion != ENTROPY:
        total = sums[1] if limits.n_classes == 0 else sums.sum()
        _scan_columns(limits, tile, lanes, places, block.a, block.b, sums, total, reals, counts)
    varies, score, winner, best_place, n_to_sweep = False, -1.0, np.int64(-1), np.int64(-1), 0
    for d in range(width):
        column = np.int64(pool[d])
        if n_missing[d] == 0 and low[d] == high[d]:
            continue
        if n_missing[d] > 0 or limits.criterion == ENTROPY:
            to_sweep[n_to_sweep] = column
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
def _can_be_parted(limits, block, column, first):
    """Tell whether :func:`_part_pair` may be used for a node of two rows that differ in a column."""
    if limits.n_classes > 0 or limits.criterion == ENTROPY:
        return False
    j = block.place_of[column]
    x, y = block.cells[block.places[first], j], block.cells[block.places[first + 1], j]
    return x == x and y == y


@inlined_kernel
def _part_pair(limits, block, column, first, sums, scratch):
    """Split a node of two rows by a column in which they differ and none is missing; return status and score."""
    j = block.place_of[column]
    left, right = block.places[first], block.places[first + 1]
    if block.cells[right, j] < block.cells[left, j]:
        left, right = right, left
    g, h, other_h = block.a[left], np.int64(1), np.int64(1)
    if block.b.shape[0] > 0:
        h, other_h = block.b[left], block.b[right]
    p, q = float(h) + limits.penalty, float(other_h) + limits.penalty
    if limits.min_samples > 1 or min(h, other_h) < limits.min_weight or p <= 0.0 or q <= 0.0:
        return NO_SPLIT, -1.0
    best = scratch.best
    best[0], best[1], best[2], best[3], best[4], best[5] = 0, KNOWN, 0, g, h, 1
    scratch.threshold[0] = midpoint(np.float64(block.cells[left, j]), np.float64(block.cells[right, j]))
    return SPLIT, score_squares(float(g), p, float(sums[0] - g), q)


@inlined_kernel
def search_few(columns, limits, max_features, key, pool, block, first, last, sums, path, scratch):
    """Find the best split of a node of at most FEW_ROWS rows of a block.

    The same split as :func:`~dtrees.split.search.search_sorted` finds column by column; ``key`` is that of the node's columns.

    Returns
    -------
    status, score, has_missing
        As :func:`~dtrees.split.search.search_column`.
    column : int
        Of the split.
    """
    n = last - first
    n_columns = pool.shape[0]
    to_sweep = block.to_sweep
    status, score, has_missing, winner = CONSTANT, -1.0, False, np.int64(-1)
    width = np.int64(n_columns)
    if n == 2:
        column = _column_of_pair(block, max_features, key, pool, first, path)
        if column >= 0 and _can_be_parted(limits, block, column, first):
            status, score = _part_pair(limits, block, column, first, sums, scratch)
            return status, score, False, column if status == SPLIT else NONE()
        to_sweep[0] = column
        n_to_sweep = np.int64(column >= 0)
    else:
        width = min(max_features, width)
        varies, score, winner, d, n_to_sweep = _compare_columns(block, limits, max_features, key, pool, first, n, sums, path, to_sweep)
        if d >= 0:
            places, value = block.few[:n], block.reals[_VALUE, d]
            _describe(limits, block.tile, d, places, block.a, block.b, value, scratch.best, scratch.threshold, scratch.classes[3])
        if varies:
            status = SPLIT if d >= 0 else NO_SPLIT
    n_drawn = ZERO()
    swept = 0
    while swept < n_to_sweep or (status == CONSTANT and width < n_columns):
        if swept == n_to_sweep:  # all columns so far are constant: go on drawing
            width += 1
            draw_columns(key, path, pool, n_drawn, width)
            n_drawn = width
            to_sweep[n_to_sweep] = pool[width - 1]
            n_to_sweep += 1
        column = to_sweep[swept]
        swept += 1
        found = _sweep_column(columns, column, block, first, last, sums, limits, bar_for(column, winner, score), scratch)
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    undraw_columns(key, path, pool, n_drawn)
    return status, score, has_missing, winner
