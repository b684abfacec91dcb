"""The cuts of a node of few rows, scored in all columns side by side (:mod:`dtrees.split.search.tiny_node`).

For absolute error or a quantile, the sum of deviations of some rows from their quantile is a sum over the *gaps* between neighbouring
targets of the node: with rows of weight L below a gap and rows of weight H above it, it costs ``min(below * L, above * H)`` times its
width, as the quantile is on the cheaper side. So the targets of the node are read in order, with running weights of the left side in
each column, and no quantile has to be followed. Sums must fit 64 bits, as those of so few rows nearly always do; otherwise columns are
searched one by one, as are those with missing values and all under constraints.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.constraints import forbid_out_of_order, is_constrained
from dtrees.split.criteria.parts import is_bounded, score
from dtrees.split.criteria.statistics import AmountsOfTargets, Moments, nothing, plus_row, weight_at
from dtrees.split.node.records import note_found
from dtrees.split.search.vectors import add_class_terms, add_left, add_row_left, add_two_left, bound_columns, finish_scores, forbid, widen
from dtrees.split.table.sorting import MISSING

#: Rows of the scratch space of floats: best score of a column, that of columns to be searched again, signs of monotonic columns, and the
#: scores of each cut.
BEST, BOUND, SIGNS, SCORES = 0, 1, 2, 3
#: Rows of the scratch space of integers: missing rows of a column; weight and number of rows going left, and their g (or weight of a
#: class); lowest and highest code, and the code after which the best split is.
MISSED, WEIGHT_LEFT, COUNT_LEFT, SUM_LEFT, LOW, HIGH, CUT = 0, 1, 2, 3, 4, 5, 6
#: First row for the left sums of the first class, or target; the others follow.
MORE_LEFT = 7


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


@inlined_kernel
def keep_best(x, high, score, best, best_cut):
    """Store a cut after ``x`` if it is better than the best so far and the node has a higher code; the lower of equal cuts wins."""
    for j in range(x.shape[0]):
        # Read everything first: a conditional read is a branch, which would prevent vectorisation over columns.
        cut, top, top_cut, found = x[j], best[j], best_cut[j], score[j]
        found = found if cut < high[j] else -1.0
        better = (found > top) | ((found == top) & (cut < top_cut))
        best[j] = found if better else top
        best_cut[j] = cut if better else top_cut


@optional
def _score_cut(node, criterion, block, width, cut, scores):
    """Score, or bound, a cut of every column of the block's tile after the codes ``cut``.

    The weight that goes left, zero before, is written to the block's counts. Classes without rows add nothing.
    """
    n, tile, places, a, b = node.n, block.tile, block.some_places, block.g, block.h
    h, left = block.counts[WEIGHT_LEFT, :width], block.counts[MORE_LEFT:]
    for k in range(node.sums.shape[0]):
        if node.sums[k] > 0:
            left[k, :width] = 0
    for i in range(n):
        weight = weight_at(b, places[i])
        add_row_left(node, tile[i, :width], cut, a[places[i]], weight, weight, h, left)
    scores[:] = 0.0
    for k in range(node.sums.shape[0]):
        if node.sums[k] > 0:
            add_class_terms(criterion, left[k], node.sums[k], h, node.h, scores)
    finish_scores(criterion, h, node, scores)


@_score_cut.of(Moments)
def _(node, criterion, block, width, cut, scores):
    n, tile, places, a, b, counts = node.n, block.tile, block.some_places, block.g, block.h, block.counts
    g, h = counts[SUM_LEFT, :width], counts[WEIGHT_LEFT, :width]
    g[:] = 0
    if n & 1:
        place = places[n - 1]
        add_left(tile[n - 1, :width], cut, a[place], g, weight_at(b, place), h)
    for k in range(0, n - 1, 2):
        one, other = places[k], places[k + 1]
        add_two_left(tile[k, :width], tile[k + 1, :width], cut, a[one], a[other], g, weight_at(b, one), weight_at(b, other), h)
    bound_columns(node, criterion, g, h, scores)


@_score_cut.of(AmountsOfTargets)
def _(node, criterion, block, width, cut, scores):
    # The weight and the first target are summed, and then two more targets at a time, over all rows: their sums stay in registers.
    n, tile, places, a, b, counts = node.n, block.tile, block.some_places, block.g, block.h, block.counts
    n_targets, rows = node.sums.shape[0], node.rows
    h, one, other = counts[WEIGHT_LEFT, :width], counts[SUM_LEFT, :width], counts[MORE_LEFT, :width]
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
    finish_scores(criterion, h, node, scores)


@inlined_kernel
def scan_columns(limits, node, block, width, by_sign):
    """Find the best cut of each of the first ``width`` columns of the block's tile; ``by_sign`` says whether signs are respected."""
    n, tile, reals, counts = node.n, block.tile, block.reals, block.counts
    h, n_left = counts[WEIGHT_LEFT, :width], counts[COUNT_LEFT, :width]
    counted = block.h.shape[0] > 0 and limits.min_samples > 1
    keeps = is_bounded(limits.criterion) or is_constrained(limits.criterion)  # only if needed, to save stores
    for i in range(n):
        cut, score = tile[i, :width], reals[SCORES + (i if keeps else 0), :width]
        h[:] = 0
        _score_cut(node, limits.criterion, block, width, cut, score)
        if counted:
            n_left[:] = 0
            for k in range(n):
                add_left(tile[k, :width], cut, np.int64(1), n_left, np.int64(0), counts[SUM_LEFT, :width])
            forbid(limits, n_left, node.n, h, node.h, score)
        elif limits.min_weight > 0 or limits.min_samples > 1:
            # Either every weight is 1, and the weight is the number of rows, or one row is enough.
            forbid(limits, h, node.h, h, node.h, score)
        if by_sign:
            _heed_signs(node, limits.criterion, counts[SUM_LEFT, :width], h, reals[SIGNS, :width], score)
        keep_best(cut, counts[HIGH, :width], score, reals[BEST, :width], counts[CUT, :width])


@optional
def _heed_signs(node, criterion, g, h, signs, scores):
    """Discard the scores of splits that violate the signs of their columns."""
    # no columns are monotonic


@_heed_signs.of(Moments)
def _(node, criterion, g, h, signs, scores):
    forbid_out_of_order(criterion, node, g, h, signs, scores)


@optional
def score_column(node, limits, block, d, bar, known):
    """Score the cuts of column ``d`` of the tile whose bounds exceed the bar; no value of the column may be missing.

    Returns the best score and the code before the cut; -1.0 if none is above the bar. The cut with the highest bound is scored first, so
    that few others have to be. ``known`` are the sums and the score of the best cut of another column: in a node of few rows, many
    columns divide them alike.
    """
    return -1.0, NONE()  # these have no bounds, and no monotonic columns


@score_column.of(Moments)
def _(node, limits, block, d, bar, known):
    tile, bounds, high, first = block.tile, block.reals[SCORES:], block.counts[HIGH, d], block.counts[CUT, d]
    top, best = bar, NONE()
    mine = _score_one_cut(node, limits, block, d, first, known)
    if mine > top:
        top, best = mine, first
    for i in range(node.n):
        code = tile[i, d]
        if code in (high, first) or bounds[i, d] < max(top, 0.0):
            continue
        mine = _score_one_cut(node, limits, block, d, code, known)
        if mine > top or (mine == top and code < best):
            top, best = mine, code
    return top if top > bar else -1.0, best


@lean_kernel
def _score_one_cut(node, limits, block, d, code, known):
    tile, places, a, b = block.tile, block.some_places, block.g, block.h
    g = h = ZERO()
    for k in range(node.n):
        left, place = tile[k, d] <= code, places[k]
        g += a[place] if left else 0
        h += weight_at(b, place) if left else 0
    known_g, known_h, known_score = known
    if not is_constrained(limits.criterion) and ((g == known_g and h == known_h) or (g == node.g - known_g and h == node.h - known_h)):
        return known_score
    return score(limits.criterion, float(g), float(h), float(node.g - g), float(node.h - h))


@inlined_kernel
def describe(node, block, d, cut, scratch):
    """Store the left side of the best cut, which is after the code ``cut`` in column ``d`` of the block's tile."""
    higher = np.int64(MISSING)
    left = nothing(node, scratch.classes[0])
    for i in range(node.n):
        code, place = block.tile[i, d], block.some_places[i]
        if code <= cut:
            left = plus_row(left, block.g[place], weight_at(block.h, place))
        else:
            higher = min(higher, code)
    note_found(scratch.found, cut, higher, False, left)


@inlined_kernel
def fill_tile(block, pool, width, lanes, places):
    """Copy the cells of a node's rows in the first ``width`` columns of the pool, and store the lowest and highest codes of each."""
    tile, counts, chosen, everything = block.tile, block.counts, block.chosen[:width], width == pool.shape[0]
    for d in range(width):
        chosen[d] = block.place_of[pool[d]]
    low, high, n_missing = counts[LOW, :lanes], counts[HIGH, :lanes], counts[MISSED, :lanes]
    low[:] = MISSING
    high[:] = -1
    n_missing[:] = 0
    for i in range(places.shape[0]):
        x = tile[i, :lanes]
        x[width:] = 0  # padding to whole vectors, for which loops are fast
        if everything:
            _copy_whole_row(block.cells[places[i]], x[:width])
        else:
            _copy_row(block.cells[places[i]], chosen, x[:width])
        widen(x, low, high)
        if block.has_missing[0]:
            _count_missing(x, n_missing)
    block.reals[BEST, :lanes] = -1.0
    counts[CUT, :lanes] = MISSING


#: Rows of the scratch space of integers: weights below a gap on the left side, and above it, times their factors, and costs of gaps.
_BELOW, _ABOVE, _COST = SUM_LEFT, 7, 8
#: Upper bound of sums of costs.
_FITS = 2.0**62


@lean_kernel
def _add_two_gaps(x, y, cut, one, other, below, above, cost):
    """Add the costs of the gaps after two rows, on both sides of the split of each column.

    ``one`` and ``other`` are the width of a gap, the row's weight times the factors, and the weights of all rows up to the gap and
    beyond it.
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
    """Return the arguments of :func:`_add_two_gaps` for the gap after element ``k``; there is none after the last."""
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
    """Return the deviation of all of a node's rows, summed over gaps."""
    cost = before = ZERO()
    for k in range(1, n):
        before += line[k].weight
        cost += (line[k + 1].level - line[k].level) * min(criterion.below * before, criterion.above * (total - before))
    return cost


@lean_kernel
def scan_gaps(criterion, limits, line, node, block, width):
    """Find the best cut of every column and return True, if sums fit; the rows of the block's tile are in the order of their targets."""
    n, total, tile, reals, counts = node.n, node.h, block.tile, block.reals, block.counts
    span = float(line[n].level - line[1].level) * float(total)
    if span * float(max(criterion.above, criterion.below)) >= _FITS:
        return False
    h, n_left = counts[WEIGHT_LEFT, :width], counts[COUNT_LEFT, :width]
    below, above, cost = counts[_BELOW, :width], counts[_ABOVE, :width], counts[_COST, :width]
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
    return True
