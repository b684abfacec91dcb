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

from dtrees.split.compile.kernels import ZERO, inlined_kernel, lean_kernel
from dtrees.split.search.thresholds.columnwise import add_left
from dtrees.split.search.tiny.cuts import (
    BEST,
    BOUND,
    COUNT_LEFT,
    CUT,
    HIGH,
    SUM_LEFT,
    WEIGHT_LEFT,
    forbid,
    keep_best,
)

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
def scan_gaps(criterion, limits, line, node, block, width):
    """Find the best cut of every column, if sums fit, which is returned; the rows of the block's tile are in the order of their targets."""
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
