"""The best subset of the categories that a node's rows have, and which categories a split sends left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import minus, nothing
from dtrees.split.node.candidate import CONSTANT, HAS_THRESHOLD, NO_SPLIT, SPLIT, note_found
from dtrees.split.node.limits import RandomThreshold, is_allowed, is_random
from dtrees.split.numbers.hashing import below, draw, mix, uniform
from dtrees.split.search.categories.groups import RARE, group_keys, group_rows, plus_group, take_rare_together
from dtrees.split.search.categories.orders import is_order, n_orders, order_ends, set_means
from dtrees.split.search.thresholds.sweep import score_above
from dtrees.split.table.columns import value_at

#: Status, score, and whether values are missing, of a search for a split.
FOUND = types.Tuple((types.int64, types.float64, types.boolean))
#: What the number of an order is multiplied by.
ORDER = np.float64(2**32)


@specialised
def _set_keys(thresholds: Any, node: Any, values: Any, groups: Any, m: Any, which: Any, smooth: Any, bits: Any) -> None:
    """Write what categories are ordered by: their means, or random numbers."""


@_set_keys.otherwise
def _(thresholds, node, values, groups, m, which, smooth, bits):
    set_means(node, groups, m, which, smooth)


@_set_keys.of(RandomThreshold)
def _(thresholds, node, values, groups, m, which, smooth, bits):
    for i in range(m):
        code = groups.code[i]
        number = np.int64(value_at(values, code)) if 0 <= code < values.shape[0] else NONE() - np.int64(code == RARE)
        groups.key[i] = uniform(draw(mix(np.uint64(bits)), number))


@lean_kernel
def search_groups(node, column, values, m, limits, bits, bar, groups, scratch):
    """Find the best split of a node by its rows of each category, of which there are ``m``; result as of ``search_column``.

    ``column`` is the number by which ``limits`` know the column.
    """
    if m < 2:
        return CONSTANT, 0.0, True
    m = take_rare_together(groups, m, limits.categories.least[column])
    return search_kept(node, column, values, m, limits, bits, bar, groups, scratch)


@lean_kernel
def search_kept(node, column, values, m, limits, bits, bar, groups, scratch):
    """Find the best split of a node as :func:`search_groups` does; categories of few rows have been taken together."""
    found, room = scratch.found, scratch.classes
    most = min(limits.categories.most[column], m - 1)
    top, best, order = bar, ZERO(), ZERO()
    for which in range(ZERO() + 1 if is_random(limits.thresholds) else n_orders(node)):
        if not (is_random(limits.thresholds) or is_order(node, which)):
            continue
        _set_keys(limits.thresholds, node, values, groups, m, which, limits.categories.smooth, bits)
        order_ends(groups, m, most)
        left = nothing(node, room[0])
        for cut in range(1, most + 1):
            left = _plus_place(left, groups, cut - 1)
            score = _score_cut(left, node, cut, m, limits, bits, top)
            if score > top:
                top, best, order = score, cut, which
                note_found(found, ZERO(), HAS_THRESHOLD, False, left)
        first = max(most + 1, m - most)  # of the cuts with the smaller side at the upper end
        left = minus(node, _sum_places(node, groups, first, m, room[1]), room[0])
        for cut in range(first, m):
            if cut > first:
                left = _plus_place(left, groups, cut - 1)
            score = _score_cut(left, node, cut, m, limits, bits, top)
            if score > top:
                top, best, order = score, cut, which
                note_found(found, ZERO(), HAS_THRESHOLD, False, left)
    if best == 0:
        return NO_SPLIT, 0.0, True
    if order + 1 < n_orders(node):  # another order has taken its place
        _set_keys(limits.thresholds, node, values, groups, m, order, limits.categories.smooth, bits)
        order_ends(groups, m, most)
    _turn(node, values.shape[0], m, best, most, order, groups, found, room)
    return SPLIT, top, True


@inlined_kernel
def _plus_place(statistic, groups, i):
    """Return a statistic with the rows of the category that is the ``i``-th in order."""
    place = groups.order[0, i]
    return plus_group(statistic, groups.sums[place], groups.n[place])


@lean_kernel
def _sum_places(node, groups, first, last, room):
    """Return the statistic of the categories ``first`` to ``last`` in order."""
    total = nothing(node, room)
    for i in range(first, last):
        total = _plus_place(total, groups, i)
    return total


@inlined_kernel
def _score_cut(left, node, cut, m, limits, bits, top):
    """Return the score of the split after ``cut`` of ``m`` categories; -1.0, or a number up to ``top``, if it does not count."""
    if is_random(limits.thresholds) and cut != 1 + below(mix(np.uint64(bits) + np.uint64(1)), m - 1):
        return -1.0
    if is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
        return score_above(left, limits.criterion, node, top)
    return -1.0


@lean_kernel
def _turn(node, n_distinct, m, cut, most, order, groups, found, room):
    """Finish the split after ``cut`` of ``m`` categories in their order: what is not listed is to go right.

    Categories are in order up to ``most`` from both ends, of which the cut is within one.
    """
    rare, missing = groups.code[m - 1] == RARE, m - 1
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
        there = _sum_places(node, groups, first, last, room[0])
        if from_low:
            there = minus(node, there, room[1])
        note_found(found, ZERO(), HAS_THRESHOLD, False, there)
    record.missing_left = has_missing and (missing_there == from_low) != turned
    record.threshold = -float(m - cut) - ORDER * float(order) if turned else float(cut) + ORDER * float(order)


@separate_kernel(returns=FOUND)
def search_categories(column, pair, limits, bar, scratch):
    """Find the best split of one node in one column of categories.

    Parameters and result are those of :func:`~dtrees.split.search.column.search_any_column`.
    """
    node, m = _group(pair, limits, scratch)
    return search_groups(node, column, pair.values, m, limits, pair.bits, bar, scratch.groups, scratch)


@lean_kernel
def _group(pair, limits, scratch):
    """Sum a node's rows by category; return the node's statistic, and how many categories there are."""
    node = node_statistic(limits.criterion, pair.sums, pair.in_stop - pair.start)
    m = group_rows(node, pair.codes, pair.values.shape[0], pair.partition, pair.start, pair.in_stop, scratch.groups, scratch)
    return node, m


@lean_kernel
def choose_sides(node, column, values, m, limits, bits, number, groups, side):
    """Write to ``side``, by code, which rows a split sends left, given the node's rows of each category."""
    m = take_rare_together(groups, m, limits.categories.least[column])
    choose_kept(node, values, m, limits, bits, number, groups, side)


@lean_kernel
def choose_kept(node, values, m, limits, bits, number, groups, side):
    """Write which rows go left as :func:`choose_sides` does; categories of few rows have been taken together."""
    which, n_left = np.int64(abs(number) // ORDER), n_categories_left(number)
    from_low, n_right = number > 0.0, m - n_left
    _set_keys(limits.thresholds, node, values, groups, m, which, limits.categories.smooth, bits)
    # The categories of the side that has fewer are told one by one.
    some = min(n_left, n_right)
    order_ends(groups, m, some)
    left_is_told = n_left <= n_right
    side[: values.shape[0] + 1] = 0
    if not left_is_told:
        for i in range(m):
            if groups.code[i] != RARE:
                side[groups.code[i]] = 1
    first = ZERO() if from_low == left_is_told else m - some
    for i in range(first, first + some):
        code = groups.code[groups.order[0, i]]
        if code != RARE:
            side[code] = left_is_told


@kernel
def n_categories_left(number):
    """Return how many of a node's categories a split sends left, missing values included."""
    return np.int64(abs(number) - ORDER * (abs(number) // ORDER))


@separate_kernel(returns=types.none)
def choose_sides_of_node(column, pair, limits, number, scratch, side):
    """Write to ``side``, by code, which rows the split of a node sends left."""
    node, m = _group(pair, limits, scratch)
    choose_sides(node, column, pair.values, m, limits, pair.bits, number, scratch.groups, side)


@separate_kernel(returns=FOUND)
def search_categories_of_list(column, values, keys, block, place, sums, limits, bar, scratch):
    """Find the best split of a node of a block in one column of categories; ``place`` is where its keys begin and end."""
    node, m = _group_list(keys, block, place, sums, limits, scratch)
    return search_groups(node, column, values, m, limits, ZERO(), bar, scratch.groups, scratch)


@lean_kernel
def _group_list(keys, block, place, sums, limits, scratch):
    """Sum the rows of a node of a block by category; return as :func:`_group` does."""
    first, last = place
    node = node_statistic(limits.criterion, sums, last - first)
    return node, group_keys(node, keys, first, last, block.g, block.h, ZERO(), scratch.groups)


@separate_kernel(returns=types.none)
def choose_sides_of_list(column, values, keys, block, place, sums, limits, number, scratch):
    """Write to the scratch space, by code, which rows the split of a node of a block sends left."""
    node, m = _group_list(keys, block, place, sums, limits, scratch)
    choose_sides(node, column, values, m, limits, ZERO(), number, scratch.groups, scratch.groups.side)
