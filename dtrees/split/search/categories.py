"""Splits by subsets of categories: the best split of a node in a column whose values have no order.

For criteria whose score is convex in the sums of one side (squared error, Newton's gain, Poisson deviance, and the impurities of two
classes), the best of all subsets is a prefix of the categories in the order of their means (Fisher 1958, "On grouping for maximum
homogeneity"; Breiman et al. 1984, theorem 4.5). So categories are ordered in each node, and the splits between neighbours are scored.
For more classes there is no such order: for each class, categories are ordered by its share, and the best of all these splits is taken.
It is the best subset for separating one class from the others, but need not be the best of all. There is no such order for several
targets either: the orders of each target are tried, and one for all targets together (:mod:`dtrees.split.search.category_orders`).

Means of categories with few rows are mostly noise. Each mean is shrunk towards the mean of the node, as if the weight ``smooth`` with
that mean were added, and categories with fewer than ``least`` rows in the node are merged. Without both, the order is that of the
theorem. Missing values are a category like the others.

Unlisted categories go right: those that no in-sample row of the node has, and the merged ones. The sides of a split are swapped for
that; if no categories are merged, the smaller side is the left one. So the categories that go left are those of the rows that go left,
and a finished tree can find them from its rows (:func:`find_subsets`).

A split is stored as a number, in place of a threshold: the number of categories that go left, from the lower end of the order or, if
negative, from its upper end; plus 2**32 times the number of the order. If it is not applied where it was found, the node's categories
are ordered again.

The best of many sets gains by chance. If categories carry no information, the gain of the first k of m categories in their order is
about the variance of a row over its weight times m H(k / m), where H is the entropy in nats: for m independent normal numbers it is m
phi(z)^2 / (p (1 - p)) with p = k / m and its normal quantile z, between 0.9 and 1.5 times that for shares from a half to a thousandth. m
H(k / m) is also about the logarithm of the number of such sets, so the rule is that of minimum description length (Rissanen 1978;
Quinlan and Rivest 1989). ``limits.chance`` times that is subtracted from the score by which a set is chosen; the stored gain is the full
one. Scores of thresholds are not changed: the best of n thresholds gains about 2 log(log(n)) of these variances by chance.

If the smaller side of a split may have only a few of the categories, only these few are ordered, at both ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.parts import node_statistic, per_gain
from dtrees.split.criteria.statistics import minus, nothing
from dtrees.split.node.limits import RandomThreshold, is_allowed, is_random
from dtrees.split.node.partition import Sides, mark_left
from dtrees.split.node.records import CONSTANT, HAS_THRESHOLD, NO_SPLIT, SPLIT, note_found, pair_of
from dtrees.split.numbers.elementary import logarithm
from dtrees.split.numbers.hashing import below, draw, mix, uniform
from dtrees.split.search import category_orders as orders
from dtrees.split.search.sweep import score_above
from dtrees.split.table.columns import value_at

#: The result of a search: status, score, and whether values are missing.
FOUND = types.Tuple((types.int64, types.float64, types.boolean))
#: The factor of the number of an order.
ORDER = np.float64(2**32)


@optional
def _set_keys(thresholds: Any, node: Any, values: Any, groups: Any, m: Any, which: Any, smooth: Any, bits: Any) -> None:
    """Write the keys by which categories are ordered: their means, or random numbers."""
    orders.set_means(node, groups, m, which, smooth)


@_set_keys.of(RandomThreshold)
def _(thresholds, node, values, groups, m, which, smooth, bits):
    for i in range(m):
        code = groups.code[i]
        number = np.int64(value_at(values, code)) if 0 <= code < values.shape[0] else NONE() - np.int64(code == orders.RARE)
        groups.key[i] = uniform(draw(mix(np.uint64(bits)), number))


@lean_kernel
def merge_rare(column, m, limits, groups):
    """Merge rare categories of a node; return the number of categories before and after. ``column`` is its number in ``limits``."""
    return m, orders.take_rare_together(groups, m, limits.categories.least[column])


@lean_kernel
def search_groups(node, column, values, counts, limits, bits, bar, scratch):
    """Find the best split of a node from the sums of its categories; the result is that of ``search_column``.

    ``counts`` are the results of :func:`merge_rare`. If there is a split, ``scratch.groups.side`` becomes 1 for the codes that go left, 0
    for others.
    """
    present, m = counts
    if present < 2:
        return CONSTANT, 0.0, True
    groups = scratch.groups
    found, buffer = scratch.found, scratch.classes
    most = min(limits.categories.most[column], m - 1)
    top, best, order = bar, ZERO(), ZERO()
    for which in range(ZERO() + 1 if is_random(limits.thresholds) else orders.n_orders(node)):
        if not (is_random(limits.thresholds) or orders.is_order(node, which)):
            continue
        _set_keys(limits.thresholds, node, values, groups, m, which, limits.categories.smooth, bits)
        orders.order_ends(groups, m, most)
        left, first, last = nothing(node, buffer[0]), ZERO() + 1, most + 1
        for upper in range(2):  # cuts with the smaller side at the lower end of the order, then those with it at the upper end
            if upper:
                first, last = max(most + 1, m - most), m
                left = minus(node, _sum_places(node, groups, first, m, buffer[1]), buffer[0])
            for cut in range(first, last):
                if cut > first or not upper:
                    left = _plus_place(left, groups, cut - 1)
                score = _score_cut(left, node, cut, m, limits, bits, top)
                if score > top:
                    top, best, order = score, cut, which
                    note_found(found, ZERO(), HAS_THRESHOLD, False, left)
    if best == 0:
        return NO_SPLIT, 0.0, True
    if order + 1 < orders.n_orders(node):  # another order has replaced it
        _set_keys(limits.thresholds, node, values, groups, m, order, limits.categories.smooth, bits)
        orders.order_ends(groups, m, most)
    _turn(node, values.shape[0], m, best, most, order, groups, found, buffer)
    _write_sides(values.shape[0], m, found.record[0].threshold, groups)
    found.record[0].by_chance = _by_chance(node, best, m, limits) if limits.chance > 0.0 else 0.0
    return SPLIT, top, True


@inlined_kernel
def _plus_place(statistic, groups, i):
    """Return a statistic plus the rows of the ``i``-th category in order."""
    place = groups.order[0, i]
    return orders.plus_group(statistic, groups.sums[place], groups.n[place])


@lean_kernel
def _sum_places(node, groups, first, last, buffer):
    """Return the statistic of the categories ``first`` to ``last`` in order."""
    total = nothing(node, buffer)
    for i in range(first, last):
        total = _plus_place(total, groups, i)
    return total


@inlined_kernel
def _score_cut(left, node, cut, m, limits, bits, top):
    """Score the split after ``cut`` of ``m`` categories; the result is -1.0 or at most ``top`` if the split is not better."""
    if is_random(limits.thresholds) and cut != 1 + below(mix(np.uint64(bits) + np.uint64(1)), m - 1):
        return -1.0
    if not is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
        return -1.0
    found = score_above(left, limits.criterion, node, top)
    return found - _by_chance(node, cut, m, limits) if limits.chance > 0.0 and found > top else found


@inlined_kernel
def _by_chance(node, cut, m, limits):
    """Return the expected score of the best ``cut`` of ``m`` categories by chance, times the share that is subtracted from scores."""
    return limits.chance * per_gain(limits.criterion, node) * (_nats(m) - _nats(cut) - _nats(m - cut))


@inlined_kernel
def _nats(n):
    return float(n) * logarithm(float(n))


@lean_kernel
def _turn(node, n_distinct, m, cut, most, order, groups, found, buffer):
    """Finish the split after ``cut`` of ``m`` ordered categories: swap its sides if unlisted categories would go left.

    Categories are ordered up to ``most`` from both ends; the cut is within one of these ranges.
    """
    rare, missing = groups.code[m - 1] == orders.RARE, m - 1
    if rare:
        missing -= 1
    has_missing = missing >= 0 and groups.code[missing] == n_distinct
    from_low = cut <= most
    first, last = (ZERO(), cut) if from_low else (cut, m)
    rare_there = missing_there = False
    for i in range(first, last):
        place = groups.order[0, i]
        rare_there |= rare and place == m - 1
        missing_there |= has_missing and place == missing
    record = found.record[0]
    turned = rare_there == from_low if rare else 2 * record.n_left > node.n
    if turned:
        there = _sum_places(node, groups, first, last, buffer[0])
        if from_low:
            there = minus(node, there, buffer[1])
        note_found(found, ZERO(), HAS_THRESHOLD, False, there)
    record.missing_left = has_missing and (missing_there == from_low) != turned
    record.threshold = -float(m - cut) - ORDER * float(order) if turned else float(cut) + ORDER * float(order)


@lean_kernel
def _write_sides(n_distinct, m, number, groups):
    """Write to ``groups.side``, by code, which rows a split of ``m`` categories sends left; they are ordered up to it from both ends."""
    side, n_left = groups.side, n_categories_left(number)
    # The categories of the side with fewer of them are listed one by one.
    some, left_is_listed = min(n_left, m - n_left), n_left <= m - n_left
    side[: n_distinct + 1] = 0
    if not left_is_listed:
        for i in range(m):
            if groups.code[i] != orders.RARE:
                side[groups.code[i]] = 1
    first = ZERO() if (number > 0.0) == left_is_listed else m - some
    for i in range(first, first + some):
        code = groups.code[groups.order[0, i]]
        if code != orders.RARE:
            side[code] = left_is_listed


@separate_kernel(returns=FOUND)
def search_categories(column, pair, limits, bar, scratch):
    """Find the best split of one node in one column of categories.

    Parameters and result are those of :func:`~dtrees.split.search.column.search_any_column`.
    """
    node, counts = _group(column, pair, limits, scratch)
    return search_groups(node, column, pair.values, counts, limits, pair.bits, bar, scratch)


@lean_kernel
def _group(column, pair, limits, scratch):
    """Sum a node's rows by category; return the node's statistic, and the results of :func:`merge_rare`."""
    node = node_statistic(limits.criterion, pair.sums, pair.in_stop - pair.start)
    m = orders.group_rows(node, pair.codes, pair.values.shape[0], pair.partition, pair.start, pair.in_stop, scratch.groups, scratch)
    return node, merge_rare(column, m, limits, scratch.groups)


@lean_kernel
def choose_sides(node, values, counts, limits, bits, number, groups):
    """Write to ``groups.side`` which rows a split sends left, given the sums of the node's categories, like :func:`search_groups`."""
    _, m = counts
    n_left = n_categories_left(number)
    _set_keys(limits.thresholds, node, values, groups, m, np.int64(abs(number) // ORDER), limits.categories.smooth, bits)
    orders.order_ends(groups, m, min(n_left, m - n_left))
    _write_sides(values.shape[0], m, number, groups)


@kernel
def n_categories_left(number):
    """Return the number of a node's categories that a split sends left, including missing values."""
    return np.int64(abs(number) - ORDER * (abs(number) // ORDER))


@lean_kernel
def _choose_sides_of_node(column, pair, limits, number, scratch):
    """Write to the scratch space, by code, which rows the split of a node sends left."""
    node, counts = _group(column, pair, limits, scratch)
    choose_sides(node, pair.values, counts, limits, pair.bits, number, scratch.groups)


@separate_kernel(returns=FOUND)
def search_categories_of_list(column, values, keys, block, place, sums, limits, bar, scratch):
    """Find the best split of a node of a block in one column of categories; ``place`` is the range of its keys."""
    first, last = place
    node = node_statistic(limits.criterion, sums, last - first)
    m = orders.group_keys(node, keys, first, last, block.g, block.h, ZERO(), scratch.groups)
    return search_groups(node, column, values, merge_rare(column, m, limits, scratch.groups), limits, ZERO(), bar, scratch)


@kernel
def mark_by_category(queue, which, nodes, splits, columns, column_ids, limits, scratch, marks):
    """Mark the rows going left by splits of categories; several threads may call it.

    Parameters
    ----------
    queue : ndarray of int64
        See :mod:`dtrees.split.compile.work_queue`.
    which : ndarray of int64
        The nodes that are split by categories.
    nodes : NodesOfTree
    splits : SplitsOfRows
        The splits of all these nodes.
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns in the whole table.
    limits : SplitLimits
    scratch : Scratch
    marks : RouteBits
        Written for splits of categories.
    """
    (bits, offsets), rows = marks, nodes.partition.rows
    for k in claimed(queue, which.shape[0]):
        i = which[k]
        j = splits.column[i]
        pair = pair_of(columns, column_ids, j, nodes, i)
        _choose_sides_of_node(j, pair, limits, splits.threshold[i], scratch)
        mark_left(pair.codes, Sides(scratch.groups.side), rows, pair.start, splits.stop[i], bits[offsets[i] : offsets[i + 1]])


@inlined_kernel
def has_category(words, first, last, number):
    """Return whether a set, the bits of ``words[first:last]``, has a category."""
    word = first + (number >> 5)
    return word < last and (words[word] >> np.uint32(number & 31)) & np.uint32(1) != np.uint32(0)


@kernel
def mark_by_sets(queue, chunks, sets, splits, columns, rows, side, marks):
    """Mark the rows going left by splits whose sets of categories are known; several threads may call it.

    Parameters
    ----------
    queue : ndarray of int64
    chunks : ndarray of int64, shape (n_chunks, 3)
        A set, and the first and last byte of its split's bits to set.
    sets : CategorySets
        Its nodes are those of the ``splits`` that have a set (:class:`~dtrees.tree.category_sets.CategorySets`).
    splits : SplitsOfRows
    columns : Columns
    rows : ndarray of uint32
    side : ndarray of uint8
        Buffer for each distinct value of a column and one more.
    marks : RouteBits
        Written.
    """
    bits, offsets = marks
    for c in claimed(queue, chunks.shape[0]):
        k, first, last = chunks[c]
        i = sets.node[k]
        j = splits.column[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        side[values.shape[0]] = splits.missing_left[i]
        for code in range(values.shape[0]):
            side[code] = has_category(sets.words, sets.offset[k], sets.offset[k + 1], np.int64(value_at(values, code)))
        begin, end = splits.start[i] + 8 * first, min(splits.start[i] + 8 * last, splits.stop[i])
        mark_left(codes, Sides(side), rows, begin, end, bits[offsets[i] + first : offsets[i] + last])


#: Number of a node's rows that are read first, and the factor by which their distance shrinks in each further pass: rows of a node whose
#: children were split lie in the order of its leaves, so that neighbours have few categories.
_FIRST_LOOKS, _CLOSER = 64, 8


@kernel
def find_subsets(columns, places, rows, starts, stops, numbers, side, found, offsets):
    """Find the categories that go left in each split: those of the rows of the left child.

    Rows are read until all categories are found. Rows out of sample add nothing: they go left only with a category of in-sample rows
    that go left.

    Parameters
    ----------
    columns : Columns
        The distinct values of columns of categories are their numbers.
    places : ndarray of int64, shape (n,)
        The column of each split.
    rows : ndarray of uint32
    starts, stops : ndarray of int64, shape (n,)
        Ranges of the rows of the left children.
    numbers : ndarray of float64, shape (n,)
        The splits, stored as numbers.
    side : ndarray of uint8
        Buffer for each distinct value of a column and one more, all 0 before and after.
    found : ndarray of int64
        Written: the numbers of the categories, of all splits in order, -1 for missing values.
    offsets : ndarray of int64, shape (n + 1,)
        Written: start of the set of each split in the result, and the end of the last one.

    Returns
    -------
    ndarray of uint32
        The sets: bit ``c % 32`` of word ``c // 32`` of a split's words is set for each category c, up to the last word that is not 0.
    """
    at, counts = ZERO(), np.empty(places.shape[0], np.int64)
    offsets[0] = 0
    for i in range(places.shape[0]):
        j = places[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        n_found, highest = _find_codes(codes, rows, starts[i], stops[i], n_categories_left(numbers[i]), side, found, at), NONE()
        for k in range(at, at + n_found):
            code = found[k]
            side[code] = 0
            found[k] = np.int64(value_at(values, code)) if code < values.shape[0] else NONE()
            highest = max(highest, found[k])
        counts[i], offsets[i + 1] = n_found, offsets[i] + (highest + 32) // 32
        at += n_found
    words, at = np.zeros(offsets[places.shape[0]], np.uint32), ZERO()
    for i in range(places.shape[0]):
        for k in range(at, at + counts[i]):
            if found[k] >= 0:
                words[offsets[i] + (found[k] >> 5)] |= np.uint32(1) << np.uint32(found[k] & 31)
        at += counts[i]
    return words


@inner_kernel
def _find_codes(codes, rows, start, stop, n_wanted, side, found, at):
    """Write ``n_wanted`` distinct codes of some rows to ``found`` from ``at`` on; return their number."""
    n_found, step = ZERO(), ZERO() + 1
    while step * _FIRST_LOOKS < stop - start:
        step *= _CLOSER
    while step > 0 and n_found < n_wanted:
        k = start
        while n_found < n_wanted and k < stop:
            code = np.int64(codes[rows[k]])
            k += step
            if side[code] == 0:
                side[code] = 1
                found[at + n_found] = code
                n_found += 1
        step //= _CLOSER
    return n_found
