"""The best splits of nodes whose rows are spread over shards, where the weights of three and more classes are summed.

It goes as with two, but a zone or part has an element of as many numbers as there are classes: the weight
of each. Where rows have weights, their number comes after these.

The score of a split is a sum over classes, and what a class adds is convex in its weight on the left and the weight of all classes there
(:func:`~dtrees.split.criteria.parts.has_convex_terms`). Within a part, its rows come first, last, or in between, so the corners of what may
be on the left are both ends and these two extremes. The highest of each class added up is a bound of any split inside.

A part of a single value hides nothing: the split after it follows from the sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.prefetch import prefetch_row
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.kinds import unconstrained
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.parts import class_term, has_convex_terms, node_statistic, score_of_terms
from dtrees.split.criteria.statistics import Classes, plus
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.status import CONSTANT, NO_SPLIT
from dtrees.split.policy import AHEAD
from dtrees.split.search.thresholds.sweep import score_above
from dtrees.split.zones.over_shards.node_sums import find_other
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import element_of, fold, n_elements, numbers_of

#: Far more than the relative error of a class's term.
_ROUNDING = 2.0**-40
#: In place of the weight of a side without rows.
_TINY = 2.0**-1000

#: A column of a node as its searcher left it: its flagged parts are ``first:last`` of all, which have ``n_rows`` rows, and the bar that
#: splits have to pass. ``looks`` says whether it is to be scanned.
CLASS_REQUEST = np.dtype(
    [("first", np.int64), ("last", np.int64), ("n_rows", np.int64), ("bar", np.float64), ("looks", np.bool_)], align=True
)


@kernel
def sum_classes(queue, tasks, zone_map, partition, sums, n_classes):
    """Sum nodes into slots by class, by several threads.

    ``tasks`` are as of :func:`~dtrees.split.zones.over_shards.node_sums.sum_nodes`.
    """
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, slot, first, last, begins = tasks[k]
        if begins:
            numbers_of(sums, slot, first, last)[:] = 0
        grain = sums.grains[slot]
        _add_rows(
            zone_map.part,
            partition,
            start,
            stop,
            first,
            last,
            sums.starts[grain],
            sums.shifts[grain],
            sums.slots[slot],
            sums.width,
            n_classes,
        )
        finish(queue)


@lean_kernel
def _add_rows(parts, partition, start, stop, first, last, starts, shifts, sums, width, n_classes):
    """Add rows to the sums of the columns ``first`` to ``last``."""
    rows, a, b = partition.rows, partition.g, partition.h
    weighted, one, width, counts = b.shape[0] > 0, np.int64(1), np.uint64(width), np.uint64(n_classes)
    for i in range(start, stop):
        prefetch_row(parts, np.int64(rows[min(i + AHEAD, stop - 1)]))
        own, own_class, weight = parts[np.uint64(rows[i])], np.uint64(a[i]), b[i] if weighted else one
        for j in range(np.uint64(first), np.uint64(last)):
            at = np.uint64(starts[j]) + (np.uint64(own[j]) >> shifts[j]) * width
            sums[at + own_class] += weight
            if weighted:
                sums[at + counts] += one


@kernel
def _add_classes(a, b, out):
    for i in range(a.shape[0]):
        out[a[i]] += b[i] if b.shape[0] > 0 else ZERO() + 1


def add_up_classes(a: NDArray[np.int64], b: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """Return the weights of the classes ``a`` of rows; ``b`` is empty where every weight is 1."""
    out = np.zeros(n_classes, np.int64)
    _add_classes(a, b, out)
    return out


@lean_kernel
def weight_and_rows(element, n_classes):
    """Return the weight of all classes of an element, and its number of rows."""
    weight = ZERO()
    for k in range(n_classes):
        weight += element[k]
    return weight, element[n_classes] if element.shape[0] > n_classes else weight


@lean_kernel
def classes_of(element, room):
    """Return the statistic of an element; weights are written to ``room``."""
    n_classes = room.shape[0]
    for k in range(n_classes):
        room[k] = element[k]
    weight, n = weight_and_rows(element, n_classes)
    return Classes(room, weight, n)


@lean_kernel
def no_classes(room):
    """Return the statistic of no rows; its weights are in ``room``."""
    room[:] = 0
    return Classes(room, ZERO(), ZERO())


@lean_kernel
def plus_element(statistic, element):
    """Return a statistic with the rows of an element; its weights are changed in place."""
    for k in range(statistic.weights.shape[0]):
        statistic.weights[k] += element[k]
    weight, n = weight_and_rows(element, statistic.weights.shape[0])
    return Classes(statistic.weights, statistic.h + weight, statistic.n + n)


@kernel
def settle_classes(queue, tasks, zone_map, before, sums, grains, drawn, bars, column_ids, nodes, node_sums, limits, scratch):
    """Have the sums of nodes ready, and find their bars, by several threads.

    Parameters are those of :func:`~dtrees.split.zones.over_shards.node_sums.settle_sums`; bars are of the edges of parts.
    """
    n_columns = zone_map.which.shape[0]
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        one, other, parent, slot = tasks[k]
        if other >= 0:
            find_other(zone_map, before, parent, sums, slot, other)
        for side in range(2):
            i = other if side else one
            if i < 0:
                continue
            if sums.grains[i] > grains[i]:
                fold(zone_map, sums, i, grains[i])
            bar = -1.0
            for j in range(n_columns):
                if drawn[i, j] and begin_column(limits.criterion, node_sums[i], np.int64(column_ids[zone_map.which[j]])):
                    elements, n_parts = element_of(sums, i, j), n_elements(zone_map, sums, i, j)
                    bar = _best_edge(limits, elements, n_parts, node_sums[i], nodes[i], bar, scratch.classes)
            bars[i] = bar
        finish(queue)


@lean_kernel
def _best_edge(limits, elements, n_parts, node_sums, n_rows, bar, room):
    """Return the highest score of a split between two parts, or the bar if that is higher."""
    node, top = node_statistic(limits.criterion, node_sums, n_rows), bar
    left, missing = no_classes(room[0]), classes_of(elements[n_parts], room[1])
    present = node.n - missing.n
    for p in range(n_parts):
        before = left.n
        left = plus_element(left, elements[p])
        if left.n == before:
            continue
        if left.n < node.n and is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
            top = max(top, score_above(left, limits.criterion, node, top))
        if missing.n > 0 and left.n < present:
            both = plus(left, missing, room[2])
            if is_allowed(limits, both.n, node.n - both.n, both.h, node.h - both.h):
                top = max(top, score_above(both, limits.criterion, node, top))
    return top


@inner_kernel
def _term(criterion, left, whole, h, h_all):
    """Return what a class adds to the score of a split, or, where one side is empty, what it comes to there."""
    h, other_h = max(h, _TINY), max(h_all - h, _TINY)
    return score_of_terms(criterion, class_term(criterion, left, whole - left, h, other_h), h, other_h, h_all, 1)


@lean_kernel
def _bound(criterion, left, missing, adds, element, node):
    """Return what a split inside a part, or at its upper edge, scores at most; ``adds`` says whether missing rows are on the left."""
    h_all, weight, n_classes = float(node.h), ZERO(), node.weights.shape[0]
    for k in range(n_classes):
        weight += element[k]
    light = left.h + (missing.h if adds else ZERO())
    heavy, bound = light + weight, 0.0
    for k in range(n_classes):
        start, inside, whole = left.weights[k] + (missing.weights[k] if adds else ZERO()), element[k], float(node.weights[k])
        most = max(
            _term(criterion, float(start), whole, float(light), h_all),
            _term(criterion, float(start + inside), whole, float(heavy), h_all),
        )
        if 0 < inside < weight:
            first = _term(criterion, float(start + inside), whole, float(light + inside), h_all)
            most = max(most, max(first, _term(criterion, float(start), whole, float(heavy - inside), h_all)))
        bound += most
    # Of the size of scores, whatever the criterion.
    rounding = _ROUNDING * n_classes * abs(_term(criterion, h_all / 4, h_all / 2 + h_all / 4, h_all / 2, h_all))
    return bound + score_of_terms(criterion, 0.0, 1.0, 1.0, h_all, n_classes) + rounding


@kernel
def flag_classes(queue, column_ids, zone_map, sums, nodes, node_sums, limits, drawn, bars, scratch, rooms, requests, flagged, out):
    """Flag the parts of every column of nodes that may hold a better split than the bar, by several threads.

    Parameters are those of :func:`~dtrees.split.zones.over_shards.flagging.flag_nodes`, but for these.

    Parameters
    ----------
    requests : ndarray of CLASS_REQUEST, shape (n_nodes, k)
        Written.
    flagged : ndarray of int64
        Written: the numbers of parts.
    out : Candidates
        Of node i in column j at ``i * k + j``.
    """
    k = zone_map.which.shape[0]
    while True:
        i = claim(queue)
        if i >= nodes.shape[0]:
            return
        at, shift = rooms[i], zone_map.fold - sums.grains[i]
        for j in range(k):
            request, t = requests[i, j], i * k + j
            request.first = request.last = at
            request.n_rows, request.looks = 0, False
            column = np.int64(column_ids[zone_map.which[j]])
            out.records[t].column, out.records[t].status = column if drawn[i, j] else -1, CONSTANT
            if not drawn[i, j] or not begin_column(limits.criterion, node_sums[i], column):
                continue
            elements, n_parts = element_of(sums, i, j), n_elements(zone_map, sums, i, j)
            if _is_spread(elements, n_parts, scratch.classes.shape[1]):
                out.records[t].status = NO_SPLIT
            request.bar = below(bars[i]) if bars[i] >= 0.0 else bars[i]
            n, request.n_rows, request.looks = _flag_parts(
                limits,
                elements,
                n_parts,
                zone_map.first_codes[j],
                shift,
                node_sums[i],
                nodes[i],
                request.bar,
                scratch.classes,
                flagged[at:],
            )
            at += n
            request.last = at
        finish(queue)


@lean_kernel
def _is_spread(elements, n_parts, n_classes):
    """Tell whether the rows of a node are in several parts; those without a value count as one."""
    n_filled = ZERO()
    for p in range(n_parts + 1):
        _, n = weight_and_rows(elements[p], n_classes)
        n_filled += n > 0
    return n_filled > 1


@lean_kernel
def _flag_parts(limits, elements, n_parts, first_codes, shift, node_sums, n_rows, bar, room, flagged):
    """Write the numbers of parts that may hold a better split; return how many there are, their rows, and whether any part may."""
    node, criterion = node_statistic(limits.criterion, node_sums, n_rows), unconstrained(limits.criterion)
    left, missing = no_classes(room[0]), classes_of(elements[n_parts], room[1])
    at, n_flagged, looks, bounded = ZERO(), ZERO(), False, has_convex_terms(criterion)
    for p in range(n_parts):
        _, n = weight_and_rows(elements[p], room.shape[1])
        if n == 0:
            continue
        may = not bounded or _bound(criterion, left, missing, False, elements[p], node) > bar
        if not may and missing.n > 0:
            may = _bound(criterion, left, missing, True, elements[p], node) > bar
        if may:
            looks = True
            if first_codes[(p + 1) << shift] - first_codes[p << shift] > 1:
                flagged[at] = p
                at += 1
                n_flagged += n
        left = plus_element(left, elements[p])
    return at, n_flagged, looks
