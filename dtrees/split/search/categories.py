"""The best subset of categories: splits of a node in a column whose values have no order.

For criteria whose score is convex in the sums of one side (squared error, Newton's gain, Poisson deviance, and the impurities of two
classes), the best of all subsets is among those that come first when categories are ordered by their mean (Fisher 1958, "On grouping for
maximum homogeneity"; Breiman et al. 1984, theorem 4.5). So categories are ordered anew in each node, and the splits between neighbours are
scored. For more classes there is no such order: for each class, categories are ordered by its share, and the best of all these splits is
taken. It need not be the best of all subsets, but is the best of those that tell one class from the others. Nor is there one for several
targets: the orders of each are tried, and one of all together (:mod:`dtrees.split.search.category_orders`).

Means of categories with few rows are mostly noise. Each is moved towards the mean of the node, as if ``smooth`` more weight had that mean,
and categories of fewer than ``least`` rows in the node are taken together, as one. With neither, the order is that of the theorem. Missing
values are a category like the others.

What is not listed goes right: categories that no in-sample row of the node has, and, if there are any, those taken together. A split is
turned round for that; where nothing is taken together, the smaller side is the left one. So the categories that go left are those of the
rows that go left, and a finished tree can read them off its rows (:func:`find_subsets`).

A split is kept as a number, in place of a threshold: how many categories from the lower end of the order go left or, if it is negative,
from its upper end; plus 2**32 times the number of the order. Whoever applies the split orders the node's categories once more.

Where the smaller side of a split may have but a few of the categories, only these few are put in order, at both ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments, minus, plus_row, weight_at, write_sums
from dtrees.split.node.found import HAS_THRESHOLD, note_found
from dtrees.split.node.limits import BestThreshold, RandomThreshold, SortedThreshold, is_allowed, is_random
from dtrees.split.node.partition import mark_left_by_side
from dtrees.split.node.status import CONSTANT, NO_SPLIT, SPLIT
from dtrees.split.numbers.hashing import below, draw, mix, uniform
from dtrees.split.policy import CATEGORY_BUCKETS, DENSE_CATEGORIES
from dtrees.split.search.category_orders import is_order, n_orders, order_ends, set_means
from dtrees.split.search.sweep import nothing, score_above
from dtrees.split.table.columns import value_at
from dtrees.split.table.keys import code_of, place_in
from dtrees.split.table.sorting import sort_places

#: The code of categories taken together.
RARE = np.int64(-1)
#: What the number of an order is multiplied by.
ORDER = np.float64(2**32)


@by_reference
class Groups(NamedTuple):
    """Room for the rows of a node by category.

    Attributes
    ----------
    code, n : ndarray of int64, shape (size,)
        Of each category, and how many rows have it.
    sums : ndarray of int64, shape (size, n_sums)
    key : ndarray of float64, shape (size,)
        By which they are ordered.
    order : ndarray of int64, shape (2, size)
        The places of categories in their order, and as many places to sort by.
    counts : ndarray of int64, shape (CATEGORY_BUCKETS,)
        How many categories there are in stretches of keys.
    side : ndarray of uint8, shape (size,)
        By code, whether rows go left.
    direction : ndarray of float64, shape (2, n_sums)
        Of the means of several targets, and as much room.
    """

    code: NDArray[np.int64]
    n: NDArray[np.int64]
    sums: NDArray[np.int64]
    key: NDArray[np.float64]
    order: NDArray[np.int64]
    counts: NDArray[np.int64]
    side: NDArray[np.uint8]
    direction: NDArray[np.float64]


def make_groups(max_distinct: int, n_sums: int) -> Groups:
    """Return room for the categories of columns of up to so many distinct values."""
    size = max_distinct + 2  # one for missing values, and one for categories taken together
    return Groups(
        code=np.empty(size, np.int64),
        n=np.empty(size, np.int64),
        sums=np.empty((size, n_sums), np.int64),
        key=np.empty(size),
        order=np.empty((2, size), np.int64),
        counts=np.empty(CATEGORY_BUCKETS, np.int64),
        side=np.empty(size, np.uint8),
        direction=np.empty((2, n_sums)),
    )


@specialised
def _add_row(statistic: Any, sums: Any, place: Any, a: Any, weight: Any) -> None:
    """Add a row to the sums at a place; the statistic tells what is summed."""


@_add_row.of(Moments)
def _(statistic, sums, place, a, weight):
    sums[place, 0] += a
    sums[place, 1] += weight


@_add_row.of(Classes)
def _(statistic, sums, place, a, weight):
    sums[place, a] += weight


@_add_row.of(AmountsOfTargets)
def _(statistic, sums, place, a, weight):
    n_targets = statistic.sums.shape[0]
    for t in range(n_targets):
        sums[place, t] += statistic.rows[a, t]
    sums[place, n_targets] += weight


@_add_row.of(ClassesOfTargets)
def _(statistic, sums, place, a, weight):
    for t in range(statistic.rows.shape[1]):
        sums[place, statistic.rows[a, t]] += weight
    sums[place, statistic.sums.shape[0]] += weight


@specialised
def _no_rows(statistic: Any, sums: Any) -> Any:
    """Return the statistic of no rows, of the kind of another one, which is added up in the sums of a category, if it needs room."""


@_no_rows.otherwise
def _(statistic, sums):
    return nothing(statistic, sums)


@_no_rows.of(AmountsOfTargets)
@_no_rows.of(ClassesOfTargets)
def _(statistic, sums):
    return nothing(statistic, sums[: statistic.sums.shape[0]])


@specialised
def _plus_group(statistic: Any, sums: Any, n: Any) -> Any:
    """Return a statistic with ``n`` more rows of these sums. The weights of classes are changed in place."""


@_plus_group.of(Moments)
def _(statistic, sums, n):
    return Moments(statistic.g + sums[0], statistic.h + sums[1], statistic.n + n)


@_plus_group.of(Classes)
def _(statistic, sums, n):
    total = ZERO()
    for k in range(sums.shape[0]):
        statistic.weights[k] += sums[k]
        total += sums[k]
    return Classes(statistic.weights, statistic.h + total, statistic.n + n)


@_plus_group.of(AmountsOfTargets)
def _(statistic, sums, n):
    return AmountsOfTargets(statistic.rows, statistic.sums, statistic.h + _add_to(statistic.sums, sums), statistic.n + n)


@_plus_group.of(ClassesOfTargets)
def _(statistic, sums, n):
    h = statistic.h + _add_to(statistic.sums, sums)
    return ClassesOfTargets(statistic.rows, statistic.first, statistic.sums, h, statistic.n + n)


@inlined_kernel
def _add_to(total, sums):
    """Add the sums of a category to others, and return its weight, which comes after them."""
    for k in range(total.shape[0]):
        total[k] += sums[k]
    return sums[total.shape[0]]


@lean_kernel
def group_rows(node, codes, n_distinct, partition, start, in_stop, groups, scratch):
    """Sum the in-sample rows of a node by code; return how many codes there are. They come in ascending order."""
    rows, a, b = partition.rows, partition.g, partition.h
    n = in_stop - start
    if n_distinct > DENSE_CATEGORIES * n:
        sort_places(codes, rows, start, in_stop, scratch.keys, scratch.spare, scratch.counts)
        return group_keys(node, scratch.keys, ZERO(), n, a, b, start, groups)
    groups.n[: n_distinct + 1] = 0
    groups.sums[: n_distinct + 1] = 0
    for i in range(start, in_stop):
        code = np.int64(codes[rows[i]])
        groups.n[code] += 1
        _add_row(node, groups.sums, code, a[i], weight_at(b, i))
    m = ZERO()
    for c in range(n_distinct + 1):
        if groups.n[c] > 0:
            groups.code[m] = c
            _move(groups, c, m)
            m += 1
    return m


@lean_kernel
def group_keys(node, keys, first, last, a, b, base, groups):
    """Sum rows that are sorted by code, as :func:`group_rows` does; ``a``, ``b`` and ``base`` are those of ``sweep_sorted``."""
    m, i = ZERO(), first
    while i < last:
        code, total = code_of(keys[i]), _no_rows(node, groups.sums[m])
        while i < last and code_of(keys[i]) == code:
            place = base + np.int64(place_in(keys[i]))
            total = plus_row(total, a[place], weight_at(b, place))
            i += 1
        groups.code[m], groups.n[m] = code, total.n
        write_sums(total, groups.sums[m])
        m += 1
    return m


@inlined_kernel
def _move(groups, source, target):
    """Copy what is summed from one place to another."""
    groups.n[target] = groups.n[source]
    for k in range(groups.sums.shape[1]):
        groups.sums[target, k] = groups.sums[source, k]


@lean_kernel
def take_rare_together(groups, m, least):
    """Make one of those of ``m`` categories that have fewer than ``least`` rows, the last one; return how many there are then."""
    if least <= 1:
        return m
    rare, kept = groups.code.shape[0] - 1, ZERO()
    n, sums = ZERO(), groups.sums[rare]
    for i in range(m):
        if groups.n[i] < least:
            if n == 0:
                sums[:] = 0
            n += groups.n[i]
            for k in range(sums.shape[0]):
                sums[k] += groups.sums[i, k]
        else:
            groups.code[kept] = groups.code[i]
            _move(groups, i, kept)
            kept += 1
    if n > 0:
        groups.n[rare] = n
        groups.code[kept] = RARE
        _move(groups, rare, kept)
        kept += 1
    return kept


@specialised
def _set_keys(thresholds: Any, node: Any, values: Any, groups: Any, m: Any, which: Any, smooth: Any, bits: Any) -> None:
    """Write what categories are ordered by: their means, or random numbers."""


def _by_mean(thresholds, node, values, groups, m, which, smooth, bits):
    set_means(node, groups, m, which, smooth)


def _at_random(thresholds, node, values, groups, m, which, smooth, bits):
    for i in range(m):
        code = groups.code[i]
        number = np.int64(value_at(values, code)) if 0 <= code < values.shape[0] else NONE() - np.int64(code == RARE)
        groups.key[i] = uniform(draw(mix(np.uint64(bits)), number))


_set_keys.of(BestThreshold)(_by_mean)
_set_keys.of(SortedThreshold)(_by_mean)
_set_keys.of(RandomThreshold)(_at_random)


@specialised
def _counts(thresholds: Any, cut: Any, m: Any, bits: Any) -> Any:
    """Tell whether the split after ``cut`` of ``m`` categories counts."""


def _always(thresholds, cut, m, bits):
    return True


def _if_drawn(thresholds, cut, m, bits):
    return cut == 1 + below(mix(np.uint64(bits) + np.uint64(1)), m - 1)


_counts.of(BestThreshold)(_always)
_counts.of(SortedThreshold)(_always)
_counts.of(RandomThreshold)(_if_drawn)


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
    return _plus_group(statistic, groups.sums[place], groups.n[place])


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
    if _counts(limits.thresholds, cut, m, bits) and is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
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


@separate_kernel
def search_categories(column, codes, values, partition, start, in_stop, sums, limits, bits, bar, scratch):
    """Find the best split of one node in one column of categories.

    Parameters and result are those of :func:`~dtrees.split.search.column.search_any_column`.
    """
    node = node_statistic(limits.criterion, sums, in_stop - start)
    m = group_rows(node, codes, values.shape[0], partition, start, in_stop, scratch.groups, scratch)
    return search_groups(node, column, values, m, limits, bits, bar, scratch.groups, scratch)


@lean_kernel
def choose_sides(node, column, values, m, limits, bits, number, groups, side):
    """Write to ``side``, by code, which rows a split sends left, given the node's rows of each category; see above."""
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


@separate_kernel
def choose_sides_of_node(column, codes, values, partition, start, in_stop, sums, limits, bits, number, scratch, side):
    """Write to ``side``, by code, which rows the split of a node sends left."""
    node = node_statistic(limits.criterion, sums, in_stop - start)
    m = group_rows(node, codes, values.shape[0], partition, start, in_stop, scratch.groups, scratch)
    choose_sides(node, column, values, m, limits, bits, number, scratch.groups, side)


@kernel
def mark_by_category(
    queue, which, columns, places, numbers, partition, starts, in_stops, stops, sums, limits, key, paths, ids, scratch, bits, offsets
):
    """Mark the rows that splits of categories send left; several threads may.

    Parameters
    ----------
    queue : ndarray of int64
        See :mod:`dtrees.split.compile.work_queue`.
    which : ndarray of int64
        The splits that are to be marked.
    columns : Columns
    places, ids : ndarray, shape (n,)
        The column of each split: its place here, and its number in the whole table.
    numbers : ndarray of float64, shape (n,)
        The splits, as numbers.
    partition : RowPartition
    starts, in_stops, stops, sums, paths : ndarray, of n nodes
    limits : SplitLimits
    key : uint64
        Of the tree's stream of random thresholds.
    scratch : Scratch
    bits, offsets : ndarray
        As of :func:`~dtrees.split.node.partition.mark_many`.
    """
    while True:
        k = claim(queue)
        if k >= which.shape[0]:
            return
        i = which[k]
        j = places[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        random_bits = draw(np.uint64(key) ^ paths[i], np.int64(ids[i]))
        side = scratch.groups.side
        choose_sides_of_node(j, codes, values, partition, starts[i], in_stops[i], sums[i], limits, random_bits, numbers[i], scratch, side)
        mark_left_by_side(codes, side, partition.rows, starts[i], stops[i], bits[offsets[i] : offsets[i + 1]])
        finish(queue)


@kernel
def mark_by_sets(nodes, set_offsets, words, columns, places, missing_left, rows, starts, stops, side, bits, offsets):
    """Mark the rows that splits send left whose sets of categories are known.

    ``nodes`` are the splits that have a set, ``set_offsets`` and ``words`` these (:class:`~dtrees.tree.category_sets.CategorySets`);
    ``side`` has room for a number for each distinct value of a column and one more. The others are those of :func:`mark_by_category`.
    """
    for k in range(nodes.shape[0]):
        i = nodes[k]
        j = places[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        mine = words[set_offsets[k] : set_offsets[k + 1]]
        for code in range(values.shape[0]):
            number = np.int64(value_at(values, code))
            word = number >> 5
            side[code] = (mine[word] >> np.uint32(number & 31)) & np.uint32(1) if word < mine.shape[0] else np.uint32(0)
        side[values.shape[0]] = missing_left[i]
        mark_left_by_side(codes, side, rows, starts[i], stops[i], bits[offsets[i] : offsets[i + 1]])


@kernel
def find_subsets(columns, places, rows, starts, stops, numbers, side, found, sizes):
    """Find the categories that go left in each of some splits: those of the rows of the left child.

    Rows are looked at until all that are to be found are. Rows out of sample change nothing: they go left only with a category that rows in
    sample go left with.

    Parameters
    ----------
    columns : Columns
        The distinct values of columns of categories are their numbers.
    places : ndarray of int64, shape (n,)
        The column of each split.
    rows : ndarray of uint32
    starts, stops : ndarray of int64, shape (n,)
        Where the rows of the left children are.
    numbers : ndarray of float64, shape (n,)
        The splits, as numbers.
    side : ndarray of uint8
        Room for a number for each distinct value of a column and one more, all 0, as they are again in the end.
    found : ndarray of int64
        Written: the numbers of the categories, of all splits in turn, -1 for missing values.
    sizes : ndarray of int64, shape (n, 2)
        Written: how many of these there are of each split, and how many words of 32 bits its set takes up to the last that is not 0.
    """
    at = ZERO()
    for i in range(places.shape[0]):
        j = places[i]
        codes, values = columns.codes[j], columns.words[columns.offsets[j] : columns.offsets[j + 1]]
        n_left, n_found, highest = n_categories_left(numbers[i]), ZERO(), NONE()
        k = end = starts[i]
        while n_found < n_left and k < stops[i]:
            code = np.int64(codes[rows[k]])
            k += 1
            if side[code] == 0:
                side[code] = 1
                number = np.int64(value_at(values, code)) if code < values.shape[0] else NONE()
                found[at + n_found] = number
                highest = max(highest, number)
                n_found += 1
                end = k
        for k in range(starts[i], end):
            side[codes[rows[k]]] = 0
        sizes[i, 0], sizes[i, 1] = n_found, (highest + 32) // 32
        at += n_found


@kernel
def write_sets(found, sizes, words):
    """Set bit ``c % 32`` of word ``c // 32`` of each split's words for the categories c that :func:`find_subsets` found."""
    at = first = ZERO()
    for i in range(sizes.shape[0]):
        for k in range(at, at + sizes[i, 0]):
            if found[k] >= 0:
                words[first + (found[k] >> 5)] |= np.uint32(1) << np.uint32(found[k] & 31)
        at += sizes[i, 0]
        first += sizes[i, 1]
