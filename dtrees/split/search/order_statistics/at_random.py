"""Absolute error, or a quantile, at the random threshold of Extra-Trees: a few passes over the node's rows in the order of the target."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import inner_kernel, kernel
from dtrees.split.criteria.constraints.kinds import allows_quantiles, compares_sides, note_quantiles
from dtrees.split.criteria.statistics import no_moments, plus_row, weight_at
from dtrees.split.node.candidate import CONSTANT, HAS_THRESHOLD, NO_SPLIT, NONE_HIGHER, SPLIT, note_found
from dtrees.split.search.order_statistics.deviations import gain_of, halfway, may_be_taken, note
from dtrees.split.search.order_statistics.line_up import first_state, n_targets, of_one_target, put_in_line
from dtrees.split.search.thresholds.random_threshold import draw_threshold


@inner_kernel
def _note_some(criterion, line_up, keys, n, cut, missing, which, out):
    """Write the deviation of some of a node's rows; return their quantile, halfway to the next target where it may be either.

    ``which`` tells whether to take the rows with codes up to the cut, above it, and missing; ``keys[i]`` is the code of element i + 1.
    """
    line, links, before = line_up.line, line_up.links[0], 0
    for i in range(n):
        if which[2 if keys[i] == missing else int(keys[i] > cut)]:
            links[before].next, links[i + 1].previous = i + 1, before
            before = i + 1
    links[before].next, links[0].previous = 0, before
    total, quantile, before, high, low = first_state(criterion, line, links)
    note(out, high, low, total)
    following = np.int64(links[quantile].next)
    at_share = (criterion.above + criterion.below) * (before + line[quantile].weight) == criterion.above * total
    return halfway(line[quantile].level, line[following if at_share and following > 0 else quantile].level)


@inner_kernel
def list_codes(line, codes, n, missing, keys):
    """Write the codes of elements in line to ``keys``.

    Returns whether they vary, the lowest and the highest that is not missing, and how many are.
    """
    low, high, n_missing = missing, np.uint64(0), 0
    for i in range(n):
        code = np.uint64(codes[line[i + 1].row])
        keys[i] = code
        if code == missing:
            n_missing += 1
        else:
            low = min(low, code)
            high = max(high, code)
    return n_missing < n and (low != high or n_missing > 0), low, high, n_missing


@inner_kernel
def add_deviations(found, total, anew):
    """Add the deviations of one target to those of the targets before it, of which there are none yet if ``anew``."""
    for i in range(found.shape[0]):
        if anew:
            total[i] = found[i]
        else:
            total[i].high += found[i].high
            total[i].low += found[i].low


@inner_kernel
def sum_left(pair, cut, missing_left):
    """Return the moments of the rows of a node with codes up to ``cut``, with the missing ones if they go left."""
    left, missing = no_moments(), pair.values.shape[0]
    for i in range(pair.start, pair.in_stop):
        code = np.int64(pair.codes[pair.partition.rows[i]])
        if missing_left if code == missing else code <= cut:
            left = plus_row(left, pair.partition.g[i], weight_at(pair.partition.h, i))
    return left


@kernel
def search_deviations_at_random(criterion, pair, limits, bar, scratch):
    """Try one random threshold; parameters and result as of :func:`~dtrees.split.search.column.search_column`."""
    n, codes, values, one = pair.in_stop - pair.start, pair.codes, pair.values, of_one_target(criterion)
    line_up, keys, missing = scratch.line_up, scratch.keys, np.uint64(pair.values.shape[0])
    found, totals, quantiles = line_up.left, line_up.totals, line_up.quantiles
    threshold, cut, low, high, n_missing = np.inf, np.int64(values.shape[0] - 1), missing, missing, 0
    for t in range(n_targets(criterion)):
        put_in_line(criterion, t, pair.partition, pair.start, pair.in_stop, scratch)
        varies, low, high, n_missing = list_codes(line_up.line, codes, n, missing, keys)
        if not varies:
            return CONSTANT, 0.0, False
        if t == 0 and low < high:
            threshold, cut = draw_threshold(values, np.int64(low), np.int64(high), pair.bits)
        _note_some(one, line_up, keys, n, np.uint64(cut), missing, (True, True, True), found[0])
        add_deviations(found[:1], totals[0, 1:2], t == 0)
        for side in range(0 if n_missing > 0 and low < high else 1, 2):  # missing values go left, then right
            for right in range(2):
                which = right == 0, right == 1, side == right
                quantiles[right, side] = _note_some(one, line_up, keys, n, np.uint64(cut), missing, which, found[0])
                add_deviations(found[:1], totals[2 * side + right, :1], t == 0)
    n_below = 0
    for i in range(n):
        n_below += keys[i] <= np.uint64(cut)
    top, missing_left = bar, False
    for side in range(0 if n_missing > 0 and low < high else 1, 2):
        mine, other = totals[2 * side, 0], totals[2 * side + 1, 0]
        if not may_be_taken(limits, n_below + n_missing if side == 0 else n_below, n, mine, other):
            continue
        lower, higher = quantiles[0, side], quantiles[1, side]
        if compares_sides(limits.criterion) and not allows_quantiles(limits.criterion, lower, higher):
            continue
        gain = gain_of(totals[0, 1], mine, other)
        if gain > top:
            top, missing_left = gain, side == 0
            note_quantiles(limits.criterion, lower, higher)
    if top == bar:
        return NO_SPLIT, -1.0, n_missing > 0
    note_found(scratch.found, cut, HAS_THRESHOLD if low < high else NONE_HIGHER, missing_left, sum_left(pair, cut, missing_left))
    scratch.found.record[0].threshold = threshold
    return SPLIT, top, n_missing > 0
