"""Search by order statistics (absolute error or a quantile): linear time for one node and one column, once its rows are sorted.

The gain of a split is the node's sum of weighted deviations from its (weighted) quantile minus those of the two children, so a search
needs the deviation of every prefix and every suffix of the node's rows in the order of the column. A quantile is hard to follow while
rows are added, and easy while they are removed: put the rows into a doubly linked list in the order of the target and *remove* them in
reverse column order. Each removal moves the pointer to the quantile by about a step, and the sum of deviations is updated. One pass
gives the prefixes, another the suffixes; missing values stay in the list or are removed before.

Terms
-----
line
    the node's in-sample rows in the order of the target, as a linked list: elements 1 to n; 0 is both ends.
level
    a target in fixed point. A tree's ``a`` are *ranks* of targets (0 for the lowest of the table), ``levels`` maps them to values.
quantile
    for a set of rows, the target up to which a share ``above / (above + below)`` of the weight lies; the median if both are 1.
deviation
    sum of weight * abs(level - quantile), times ``above`` or ``below``, an exact integer in two parts
    (:mod:`dtrees.split.search.deviations`). Gains are exact, too, so equal gains tie.

If weights are very unequal, the pointer may move far at every removal. Such a pass stops after a while and is repeated with a Fenwick
tree, in O(log n) a row.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inner_kernel, kernel, shared_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.constraints import allows_quantiles, compares_sides, note_quantiles
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.criteria.statistics import no_moments, plus, plus_row
from dtrees.split.node.limits import RandomThreshold
from dtrees.split.node.records import CONSTANT, HAS_THRESHOLD, NO_SPLIT, NONE_HIGHER, SPLIT, note_found
from dtrees.split.policy import BOUNDED_BY_TARGET, GAINS_AT_ONCE, POINTER_STEPS
from dtrees.split.search.deviations import gain_of, halfway, may_be_taken, note, note_all_quantiles
from dtrees.split.search.line_up import (
    deviations,
    first_state,
    list_items,
    n_targets,
    note_item,
    of_one_target,
    put_block_in_line,
    put_in_line,
)
from dtrees.split.search.random_threshold import draw_in, sum_left_and_missing
from dtrees.split.table.sorting import code_in, code_of, place_in


@inner_kernel
def _note_some(criterion, line_up, keys, n, cut, missing, which, out):
    """Write the deviation of some of a node's rows; return their quantile, or the midpoint to the next target if either may be it.

    ``which`` selects the rows with codes up to the cut, above it, or missing; ``keys[i]`` is the code of element i + 1.
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
def add_deviations(found, total, anew):
    """Add the deviations of one target to those of the targets before it; the first target (``anew``) replaces them."""
    for i in range(found.shape[0]):
        if anew:
            total[i] = found[i]
        else:
            total[i].high += found[i].high
            total[i].low += found[i].low


@inner_kernel
def _sum_rows(pair, cut, scratch):
    """Return the moments of the rows of a node with codes up to ``cut``, and of those without a value."""
    n_distinct = np.int64(pair.values.shape[0])
    return sum_left_and_missing(no_moments(), pair.codes, n_distinct, pair.partition, pair.start, pair.in_stop, cut, scratch)


@kernel
def search_deviations_at_random(criterion, pair, limits, bar, scratch):
    """Try one random threshold; parameters and result are those of :func:`~dtrees.split.search.column.search_column`."""
    threshold, cut, varies, has_missing = draw_in(pair)
    if not varies:
        return CONSTANT, 0.0, False
    n, one, line_up, keys = pair.in_stop - pair.start, of_one_target(criterion), scratch.line_up, scratch.keys
    found, totals, quantiles, missing = line_up.left, line_up.totals, line_up.quantiles, np.uint64(pair.values.shape[0])
    first_side = 0 if has_missing and threshold < np.inf else 1
    for t in range(n_targets(criterion)):
        put_in_line(criterion, t, pair.partition, pair.start, pair.in_stop, scratch)
        for i in range(n):
            keys[i] = pair.codes[line_up.line[i + 1].row]
        _note_some(one, line_up, keys, n, np.uint64(cut), missing, (True, True, True), found[0])
        add_deviations(found[:1], totals[0, 1:2], t == 0)
        for side in range(first_side, 2):  # missing values go left, then right
            for right in range(2):
                which = right == 0, right == 1, side == right
                quantiles[right, side] = _note_some(one, line_up, keys, n, np.uint64(cut), missing, which, found[0])
                add_deviations(found[:1], totals[2 * side + right, :1], t == 0)
    (left, without), top, missing_left = _sum_rows(pair, cut, scratch), bar, False
    for side in range(first_side, 2):
        mine, other = totals[2 * side, 0], totals[2 * side + 1, 0]
        if not may_be_taken(limits, left.n + without.n if side == 0 else left.n, n, mine, other):
            continue
        lower, higher = quantiles[0, side], quantiles[1, side]
        if compares_sides(limits.criterion) and not allows_quantiles(limits.criterion, lower, higher):
            continue
        gain = gain_of(totals[0, 1], mine, other)
        if gain > top:
            top, missing_left = gain, side == 0
            note_quantiles(limits.criterion, lower, higher)
    if top == bar:
        return NO_SPLIT, -1.0, has_missing
    next_code = HAS_THRESHOLD if threshold < np.inf else NONE_HIGHER
    note_found(scratch.found, cut, next_code, missing_left, plus(left, without, scratch.classes[0]) if missing_left else left)
    scratch.found.record[0].threshold = threshold
    return SPLIT, top, has_missing


@inner_kernel
def _sum_left(line, items, end, last, cut, missing_left):
    """Return the moments of the rows before ``cut``, including missing ones if they go left."""
    left = no_moments()
    for i in range(last):
        if i < cut or (missing_left and i >= end):
            element = line[items[i].element]
            left = plus_row(left, np.int64(element.number), element.weight)
    return left


@optional
def search_deviations(thresholds, criterion, pair, limits, bar, scratch):
    """Find the best split of a node in one column; the result is that of :func:`~dtrees.split.search.column.search_column`.

    ``thresholds`` are those of ``limits``, whose type selects the version.
    """
    return _search_all(criterion, pair, limits, bar, scratch)


@search_deviations.of(RandomThreshold)
def _(thresholds, criterion, pair, limits, bar, scratch):
    return search_deviations_at_random(criterion, pair, limits, bar, scratch)


@optional
def _search_all(criterion, pair, limits, bar, scratch):
    """Find the best of all splits."""
    put_in_line(criterion, ZERO(), pair.partition, pair.start, pair.in_stop, scratch)
    n, weighted = pair.in_stop - pair.start, pair.partition.h.shape[0] > 0
    return search_all_thresholds(criterion, pair.codes, pair.values.shape[0], n, weighted, limits, bar, scratch)


@_search_all.of(SeveralDeviations)
def _(criterion, pair, limits, bar, scratch):
    return _search_targets(criterion, pair, limits, bar, scratch)


@kernel
def _search_targets(criterion, pair, limits, bar, scratch):
    """Find the best split for several targets.

    For each target, the node's rows are put in line and the deviations of both sides of all splits are computed as for one target; they
    are added over targets, and the split with the largest total gain is chosen. Deviations and their sums are exact: levels have fewer
    bits for more targets.
    """
    n, weighted, line_up, totals, end = pair.in_stop - pair.start, pair.partition.h.shape[0] > 0, scratch.line_up, scratch.line_up.totals, 0
    for t in range(criterion.rows.shape[1]):
        put_in_line(criterion, t, pair.partition, pair.start, pair.in_stop, scratch)
        end = list_items(pair.codes, pair.values.shape[0], n, scratch)
        if end < 0:
            return CONSTANT, 0.0, False
        for side in range(0 if end < n else 1, 2):
            _find_deviations(criterion.criterion, line_up, n, end, side, weighted)
            add_deviations(line_up.left[: end + 1], totals[2 * side, : end + 1], t == 0)
            add_deviations(line_up.right[: end + 1], totals[2 * side + 1, : end + 1], t == 0)
    best = bar, NONE(), False
    for side in range(0 if end < n else 1, 2):
        best = _best_cut(limits, scratch.keys, n, end, side, totals[2 * side], totals[2 * side + 1], line_up.quantiles, best)
    top, cut, missing_left = best
    if cut < 0:
        return NO_SPLIT, -1.0, end < n
    code, next_code = code_of(scratch.keys[cut - 1]), code_of(scratch.keys[cut]) if cut < end else NONE_HIGHER
    left, without = _sum_rows(pair, code, scratch)
    note_found(scratch.found, code, next_code, missing_left, plus(left, without, scratch.classes[0]) if missing_left else left)
    return SPLIT, top, end < n


@inner_kernel
def _find_deviations(criterion, line_up, n, end, side, weighted):
    """Write the deviations of both sides of all splits of the items to ``line_up``, with missing values on one side (0: left)."""
    node, steps = line_up.node, POINTER_STEPS * n
    whole = node[2], node[3], node[4], node[5], node[6]
    left_last, right_last = (n, end) if side == 0 else (end, n)
    line, links, items, left, right = line_up.line, line_up.links, line_up.items, line_up.left, line_up.right
    deviations(criterion, line, links, items, whole, n, end, left_last, right_last, weighted, steps, left, right)


@inner_kernel
def _most_gain(criterion, n, weighted, line_up):
    """Return an upper bound of the gain of any split of the ``n`` rows in line: the gain of the best cut of the line.

    For any two quantiles of the sides, deviations are least if each row is on the side with the closer quantile, and a target separates
    these rows.
    """
    line, items, most = line_up.line, line_up.items, line_up.most
    if most[0] < 0.0:
        for i in range(n):
            items[i].element, items[i].level, items[i].weight = i + 1, line[i + 1].level, line[i + 1].weight
        _find_deviations(criterion, line_up, n, n, ZERO(), weighted)
        for k in range(n):
            most[0] = max(most[0], gain_of(line_up.left[n], line_up.left[k], line_up.right[k]))
    return most[0]


@kernel
def search_all_thresholds(criterion, codes, n_distinct, n, weighted, limits, bar, scratch):
    """Find the best of all splits of a node whose ``n`` rows are in line; the result is that of :func:`search_deviations`."""
    if bar >= 0.0 and n <= BOUNDED_BY_TARGET and bar >= _most_gain(criterion, n, weighted, scratch.line_up):
        return NO_SPLIT, -1.0, False
    end = list_items(codes, n_distinct, n, scratch)
    if end < 0:
        return CONSTANT, 0.0, False
    return _search_items(criterion, scratch.keys, n, end, weighted, limits, bar, scratch)


@kernel
def search_deviations_of_list(criterion, keys, n_distinct, block, first, last, limits, bar, scratch):
    """Find the best split of a node of a block in a column from ``keys[first:last]``; see :func:`search_all_thresholds`."""
    keys, n = keys[first:last], last - first
    if code_in(keys[0]) == code_in(keys[n - 1]):
        return CONSTANT, 0.0, False
    put_block_in_line(criterion, block, first, last, scratch)
    end, line, items, elements = n, scratch.line_up.line, scratch.line_up.items, scratch.line_up.elements
    while code_in(keys[end - 1]) == np.uint64(n_distinct):
        end -= 1
    for i in range(n):
        note_item(items[i], line, np.int64(elements[place_in(keys[i])]))
    return _search_items(criterion, keys, n, end, block.h.shape[0] > 0, limits, bar, scratch)


@shared_kernel
def _search_items(criterion, keys, n, end, weighted, limits, bar, scratch):
    """Find the best split of ``n`` items in the order of ``keys``; the first ``end`` have a value."""
    line_up = scratch.line_up
    line, items, quantiles, best = line_up.line, line_up.items, line_up.quantiles, (bar, NONE(), False)
    for side in range(0 if end < n else 1, 2):  # missing values go left, then right
        _find_deviations(criterion, line_up, n, end, side, weighted)
        if compares_sides(limits.criterion):
            note_all_quantiles(criterion, line, items, n, end, n if side == 0 else end, False, quantiles[0])
            note_all_quantiles(criterion, line, items, n, end, end if side == 0 else n, True, quantiles[1])
        best = _best_cut(limits, keys, n, end, side, line_up.left, line_up.right, quantiles, best)
    top, cut, missing_left = best
    if cut < 0:
        return NO_SPLIT, -1.0, end < n
    next_code = code_of(keys[cut]) if cut < end else NONE_HIGHER
    note_found(scratch.found, code_of(keys[cut - 1]), next_code, missing_left, _sum_left(line, items, end, n, cut, missing_left))
    return SPLIT, top, end < n


@inner_kernel
def _best_cut(limits, keys, n, end, side, left, right, quantiles, best):
    """Return the better of the best split so far and those with missing values on one side (0: left), given the sides' deviations.

    A split is its gain, the number of items before it (-1 if there is none), and whether missing values go left.
    """
    top, cut, missing_left = best
    whole = left[end] if side == 0 else right[0]
    n_left_missing = n - end if side == 0 else 0
    stop = end + (side == 1 and end < n)
    for start in range(1, stop, GAINS_AT_ONCE):
        pause = min(start + GAINS_AT_ONCE, stop)
        if gain_of(whole, left[start], right[pause - 1]) < top:  # adding rows cannot reduce a deviation
            continue
        for k in range(start, pause):
            if k < end and code_in(keys[k - 1]) == code_in(keys[k]):
                continue
            if not may_be_taken(limits, k + n_left_missing, n, left[k], right[k]):
                continue
            if compares_sides(limits.criterion) and not allows_quantiles(limits.criterion, quantiles[0, k], quantiles[1, k]):
                continue
            gain = gain_of(whole, left[k], right[k])
            # Lower thresholds come first, then missing left.
            if gain > top or (gain == top and cut > k):
                top, cut, missing_left = gain, np.int64(k), side == 0
                if compares_sides(limits.criterion):
                    note_quantiles(limits.criterion, quantiles[0, k], quantiles[1, k])
    return top, cut, missing_left
