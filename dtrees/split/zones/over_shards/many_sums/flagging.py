"""The parts of columns that may hold the best splits of nodes whose rows are spread over shards, where many numbers are summed.

It goes as with moments, but a zone or part has an element of many numbers (:mod:`dtrees.split.zones.over_shards.many_sums.elements`).

The score of a split is a sum over classes, or targets. What a class adds is convex in its weight on the left and the weight of all classes
there (:func:`~dtrees.split.criteria.parts.has_convex_terms`). Within a part, its rows come first, last, or in between, so the corners of
what may be on the left are both ends and these two extremes. What a target adds is convex in its sum on the left and the weight there; the
corners are the least and the largest sum that may be on the left, by the sizes of amounts, each with the weights at both ends
(:func:`~dtrees.split.criteria.parts.most_in_box`). The highest of each class, or target, added up is a bound of any split inside.

A part of a single value hides nothing: the split after it follows from the sums.
"""

from __future__ import annotations

import math

import numpy as np

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.kinds import unconstrained
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.parts import class_term, has_convex_terms, most_in_box, node_statistic, score_of_terms
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, plus
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.status import CONSTANT, NO_SPLIT
from dtrees.split.search.thresholds.sweep import nothing, score_above
from dtrees.split.zones.over_shards.many_sums.elements import plus_element, rows_of_element, statistic_of
from dtrees.split.zones.over_shards.requests import ALL_PARTS
from dtrees.split.zones.scan import below
from dtrees.split.zones.sums import element_of, n_elements

#: Far more than the relative error of a class's term.
_ROUNDING = 2.0**-40
#: In place of the weight of a side without rows.
_TINY = 2.0**-1000

#: A flagged part: its number in the grain of its node, and its number of rows.
MANY_FLAGGED = np.dtype([("part", np.int64), ("n", np.int64)], align=True)


def best_edge_of_elements(node, nodes, i, j, limits, bar, scratch):
    """Return the highest score of a split of a node between two parts of a column, or the bar if that is higher.

    It is the version of ``_best_edge`` of :mod:`dtrees.split.zones.over_shards.node_sums` for such sums.
    """
    if not begin_column(limits.criterion, nodes.node_sums[i], np.int64(nodes.column_ids[nodes.zone_map.which[j]])):
        return bar
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(nodes.zone_map, nodes.sums, i, j)
    room, top = scratch.classes, bar
    left, missing = nothing(node, room[0]), statistic_of(node, elements[n_parts], room[1])
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
def _bound_of_classes(criterion, left, missing, adds, light, element, whole, h_all, first, last):
    """Return what the classes ``first`` to ``last`` add at most; ``light`` is the weight of all on the left of the part."""
    weight, bound = ZERO(), 0.0
    for k in range(first, last):
        weight += element[k]
    heavy = light + weight
    for k in range(first, last):
        start, inside, all_of_class = left[k] + (missing[k] if adds else ZERO()), element[k], float(whole[k])
        most = max(
            _term(criterion, float(start), all_of_class, float(light), h_all),
            _term(criterion, float(start + inside), all_of_class, float(heavy), h_all),
        )
        if 0 < inside < weight:
            one = _term(criterion, float(start + inside), all_of_class, float(light + inside), h_all)
            most = max(most, max(one, _term(criterion, float(start), all_of_class, float(heavy - inside), h_all)))
        bound += most
    n_classes = last - first
    # Of the size of scores, whatever the criterion.
    rounding = _ROUNDING * n_classes * abs(_term(criterion, h_all / 4, h_all / 2 + h_all / 4, h_all / 2, h_all))
    return bound + score_of_terms(criterion, 0.0, 1.0, 1.0, h_all, n_classes) + rounding


@specialised
def _bound(node, criterion, left, missing, adds, element, size_shift):
    """Return what a split inside a part, or at its upper edge, scores at most; ``adds`` says whether missing rows are on the left."""


@_bound.of(Classes)
def _(node, criterion, left, missing, adds, element, size_shift):
    if not has_convex_terms(criterion):
        return math.inf
    light = left.h + (missing.h if adds else ZERO())
    n_classes, h_all = node.weights.shape[0], float(node.h)
    return _bound_of_classes(criterion, left.weights, missing.weights, adds, light, element, node.weights, h_all, ZERO(), n_classes)


@_bound.of(ClassesOfTargets)
def _(node, criterion, left, missing, adds, element, size_shift):
    if not has_convex_terms(criterion):
        return math.inf
    light, bound, h_all = left.h + (missing.h if adds else ZERO()), 0.0, float(node.h)
    for t in range(node.first.shape[0] - 1):
        first, last = node.first[t], node.first[t + 1]
        bound += _bound_of_classes(criterion, left.sums, missing.sums, adds, light, element, node.sums, h_all, first, last)
    return bound


@_bound.of(AmountsOfTargets)
def _(node, criterion, left, missing, adds, element, size_shift):
    n_targets, bound, unit = node.sums.shape[0], 0.0, math.ldexp(1.0, size_shift)
    light = left.h + (missing.h if adds else ZERO())
    heavy = light + element[n_targets]
    weights = float(light), float(node.h - light), float(heavy), float(node.h - heavy)
    for t in range(n_targets):
        start, inside = float(left.sums[t] + (missing.sums[t] if adds else ZERO())), float(element[t])
        size = float(element[n_targets + 2 + t]) * unit
        bound += most_in_box(criterion, start - 0.5 * (size - inside), start + 0.5 * (size + inside), float(node.sums[t]), weights)
    return bound


@kernel
def flag_many(queue, nodes, limits, drawn, draws, scratch, rooms, flags, splits):
    """Flag the parts of every column of nodes that may hold a better split than the bar, by several threads.

    Parameters are those of :func:`~dtrees.split.zones.over_shards.flagging.flag_nodes`; which columns are constant is
    always known.
    """
    zone_map, records = nodes.zone_map, splits.candidates.records
    k = zone_map.which.shape[0]
    while True:
        i = claim(queue)
        if i >= nodes.n_rows.shape[0]:
            return
        at, bar = rooms[i], nodes.bars[i]
        for j in range(k):
            request, t = flags.requests[i, j], i * k + j
            request.first = request.last = at
            request.n_rows, request.looks = 0, False
            request.first_part, request.stop_part, request.best = 0, ALL_PARTS, -1.0
            column = np.int64(nodes.column_ids[zone_map.which[j]])
            records[t].column, records[t].status = column if drawn[i, j] else -1, CONSTANT
            if not drawn[i, j] or not begin_column(limits.criterion, nodes.node_sums[i], column):
                continue
            if _is_spread(nodes, i, j, limits.criterion):
                records[t].status = NO_SPLIT
            request.bar = below(bar) if bar >= 0.0 else bar
            n, request.n_rows, request.looks = _flag_parts(nodes, i, j, limits, request.bar, scratch.classes, flags.parts[at:])
            at += n
            request.last = at
        finish(queue)


@lean_kernel
def _is_spread(nodes, i, j, criterion):
    """Tell whether the rows of a node are in several parts; those without a value count as one."""
    node, n_filled = node_statistic(criterion, nodes.node_sums[i], nodes.n_rows[i]), ZERO()
    elements = element_of(nodes.sums, i, j)
    for p in range(n_elements(nodes.zone_map, nodes.sums, i, j) + 1):
        n_filled += rows_of_element(node, elements[p]) > 0
    return n_filled > 1


@lean_kernel
def _flag_parts(nodes, i, j, limits, bar, room, flagged):
    """Write the parts that may hold a better split; return how many there are, their rows, and whether any part may."""
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(nodes.zone_map, nodes.sums, i, j)
    first_codes, shift, size_shift = nodes.zone_map.first_codes[j], nodes.zone_map.fold - nodes.sums.grains[i], nodes.sums.scales[i].shift
    node, criterion = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i]), unconstrained(limits.criterion)
    left, missing = nothing(node, room[0]), statistic_of(node, elements[n_parts], room[1])
    at, n_flagged, looks = ZERO(), ZERO(), False
    for p in range(n_parts):
        n = rows_of_element(node, elements[p])
        if n == 0:
            continue
        may = _bound(node, criterion, left, missing, False, elements[p], size_shift) > bar
        if not may and missing.n > 0:
            may = _bound(node, criterion, left, missing, True, elements[p], size_shift) > bar
        if may:
            looks = True
            if first_codes[(p + 1) << shift] - first_codes[p << shift] > 1:
                flagged[at].part, flagged[at].n = p, n
                at += 1
                n_flagged += n
        left = plus_element(left, elements[p])
    return at, n_flagged, looks
