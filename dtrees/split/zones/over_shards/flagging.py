"""Parts of columns that may hold a split above the bar, flagged by the searcher from the sums of all shards.

Moments are bounded as in one process (:mod:`dtrees.split.zones.scan`). For other statistics, the sums of a zone or part are an element
of several numbers (:mod:`dtrees.split.zones.over_shards.node_sums`).

The score of a split is a sum over classes, or targets. The term of a class is convex in its weight on the left and the weight of all
classes there (:func:`~dtrees.split.criteria.parts.has_convex_terms`). Within a part, its rows come first, last, or in between, so the
corners of the region are both ends and these two extremes. The term of a target is convex in its sum on the left and the weight there;
the corners are the least and the largest possible left sum, bounded by the sizes of amounts, each with the weights at both ends
(:func:`~dtrees.split.criteria.parts.most_in_box`). The sum of the highest terms over classes, or targets, is a bound of any split
inside.

A part with a single value needs no bound: the score of the split after it follows from the sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claimed
from dtrees.split.criteria.constraints import begin_column, unconstrained
from dtrees.split.criteria.parts import class_term, has_convex_terms, most_in_box, node_statistic, score_of_terms
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments, nothing, plus
from dtrees.split.node.limits import is_allowed
from dtrees.split.node.records import CONSTANT, NO_SPLIT, NONE_HIGHER
from dtrees.split.search.sweep import score_above
from dtrees.split.zones.over_shards.node_sums import plus_element, rows_of_element, statistic_of
from dtrees.split.zones.over_shards.records import ALL_PARTS, note_split
from dtrees.split.zones.scan import below, flag_column, sweep_values
from dtrees.split.zones.sums import best_edges, element_of, fold, n_elements, numbers_of


@kernel
def settle_sums(queue, tasks, before, nodes, grains, drawn, limits, scratch):
    """Complete the sums of nodes, and find their bars, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 4)
        A node, or -1; its sibling, or -1; the slot of the parent in ``before`` (-1: none); and the slot with the sums of one of the two:
        of the first, if there is a parent. The sums of the other are then the parent's minus these.
    before : Sums
        Slots of the parents.
    nodes : SearchedNodes
        Bars are written: the best score of each at an edge of a zone, or of a part if elements have several numbers; -1.0 if there is
        none.
    grains : ndarray of int64, shape (n_nodes,)
        Grains in which nodes are searched.
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns in which each node is searched.
    """
    zone_map, sums = nodes.zone_map, nodes.sums
    for k in claimed(queue, tasks.shape[0]):
        one, other, parent, slot = tasks[k]
        if other >= 0:
            _find_other(zone_map, before, parent, sums, slot, other)
        for side in range(2):
            i = other if side else one
            if i < 0:
                continue
            if sums.grains[i] > grains[i]:
                fold(zone_map, sums, i, grains[i])
            nodes.bars[i] = _find_bar(nodes, i, drawn, limits, scratch)


@lean_kernel
def _find_bar(nodes, i, drawn, limits, scratch):
    """Return the best score of a node at an edge, -1.0 if there is none."""
    node = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i])
    bar = -1.0
    for j in range(nodes.zone_map.which.shape[0]):
        if drawn[i, j]:
            bar = _best_edge(node, nodes, i, j, limits, bar, scratch)
    return bar


@specialised
def _best_edge(node: Any, nodes: Any, i: Any, j: Any, limits: Any, bar: Any, scratch: Any) -> Any:
    """Return the best score of a node at an edge in a column, or the bar if that is higher."""


@_best_edge.of(Moments)
def _(node, nodes, i, j, limits, bar, scratch):
    place = (ZERO(), node.n, i)
    return best_edges(nodes.column_ids, nodes.zone_map, nodes.sums, place, nodes.node_sums[i], limits, (j, j + 1), bar, scratch)[0]


@_best_edge.of(Classes, AmountsOfTargets, ClassesOfTargets)
def _(node, nodes, i, j, limits, bar, scratch):
    if not begin_column(limits.criterion, nodes.node_sums[i], np.int64(nodes.column_ids[nodes.zone_map.which[j]])):
        return bar
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(nodes.zone_map, nodes.sums, i, j)
    buffer, top = scratch.classes, bar
    left, missing = nothing(node, buffer[0]), statistic_of(node, elements[n_parts], buffer[1])
    present = node.n - missing.n
    for p in range(n_parts):
        before = left.n
        left = plus_element(left, elements[p])
        if left.n == before:
            continue
        if left.n < node.n and is_allowed(limits, left.n, node.n - left.n, left.h, node.h - left.h):
            top = max(top, score_above(left, limits.criterion, node, top))
        if missing.n > 0 and left.n < present:
            both = plus(left, missing, buffer[2])
            if is_allowed(limits, both.n, node.n - both.n, both.h, node.h - both.h):
                top = max(top, score_above(both, limits.criterion, node, top))
    return top


@inner_kernel
def _find_other(zone_map, before, parent, sums, slot, other):
    """Write the sums of a child, given its parent's and its sibling's, which are in ``slot``."""
    n_columns = zone_map.which.shape[0]
    if before.grains[parent] > sums.grains[slot]:
        fold(zone_map, before, parent, sums.grains[slot])
    sums.grains[other] = sums.grains[slot]
    whole, part = numbers_of(before, parent, ZERO(), n_columns), numbers_of(sums, slot, ZERO(), n_columns)
    _subtract(whole, part, numbers_of(sums, other, ZERO(), n_columns))


@lean_kernel
def _subtract(whole, part, rest):
    for i in range(rest.shape[0]):
        rest[i] = whole[i] - part[i]


@kernel
def flag_nodes(queue, nodes, limits, drawn, draws, scratch, offsets, flags, splits):
    """Flag the parts of every column of nodes that may hold a split above the bar, by several threads.

    Parameters
    ----------
    nodes : SearchedNodes
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns in which each node is searched.
    draws : bool
        Whether these are only some of the columns, so that columns that are constant in the node have to be found.
    offsets : ndarray of int64, shape (n_nodes,)
        Start of the buffer for the flagged parts of each node.
    flags : Flags
        Written.
    splits : ColumnSplits
        Written for columns of which no rows are needed.
    """
    for i in claimed(queue, nodes.n_rows.shape[0]):
        _flag_node(nodes, i, limits, drawn[i], draws, scratch, offsets[i], flags, splits)


@lean_kernel
def _flag_node(nodes, i, limits, drawn, draws, scratch, at, flags, splits):
    """Flag parts of the columns of one node, and write them from index ``at`` on."""
    node, k = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i]), nodes.zone_map.which.shape[0]
    for j in range(k):
        request, record = flags.requests[i, j], splits.candidates.records[i * k + j]
        column = np.int64(nodes.column_ids[nodes.zone_map.which[j]])
        request.first = request.last = at
        request.n_rows, request.first_part, request.stop_part, request.best, request.score = 0, 0, ALL_PARTS, -1.0, -1.0
        record.column, record.status = column if drawn[j] else -1, CONSTANT
        if drawn[j] and begin_column(limits.criterion, nodes.node_sums[i], column):
            at += _flag_column(node, nodes, i, j, limits, draws, scratch, flags.parts[at:], request, splits, i * k + j)
            request.last = at


@specialised
def _flag_column(
    node: Any, nodes: Any, i: Any, j: Any, limits: Any, draws: Any, scratch: Any, flagged: Any, request: Any, splits: Any, t: Any
):
    """Write the parts of a column that may hold a better split of node ``i``, and its request; return the number of these parts."""


@_flag_column.of(Moments)
def _(node, nodes, i, j, limits, draws, scratch, flagged, request, splits, t):
    zone_map, sums, upper, bars, records = nodes.zone_map, nodes.sums, nodes.upper, nodes.bars, splits.candidates.records
    grain, place = sums.grains[i], (ZERO(), node.n, i)
    if draws:
        part = _only_part(zone_map, sums, i, j)
        if part >= 0 and (zone_map.exact[j] or part == n_elements(zone_map, sums, i, j) or _is_single(zone_map, sums, i, j, part)):
            return 0
        if part >= 0 and bars[i] < 0.0:  # its rows are needed to find out
            request.bar, request.n_rows = bars[i], node.n
            request.missing_g, request.missing_h, request.missing_n = 0, 0, 0
            _note_flagged(flagged[0], part, ZERO(), ZERO(), ZERO(), node.n)
            return 1
    records[t].status = NO_SPLIT
    bar = below(bars[i]) if bars[i] >= 0.0 else bars[i]
    if zone_map.exact[j]:
        n_zones = zone_map.n_zones[j] << grain
        score, missing = sweep_values(limits, element_of(sums, i, j), n_zones, grain, node, bar, scratch)
        if score >= 0.0:
            found = scratch.found.record[0]
            cut = upper[j, found.code << zone_map.fold]
            above = np.inf if found.next_code == NONE_HIGHER else upper[j, found.next_code << zone_map.fold]
            note_split(nodes, i, np.int64(records[t].column), limits, score, cut, above, missing.n > 0, scratch.found, splits, t)
        return 0
    n_flagged, n_in_parts, _, missing, edge, score = flag_column(zone_map, j, sums, place, node, limits, bar, scratch)
    if max(edge, score) > bar:
        bars[i] = max(bars[i], max(edge, score))
        bar = below(max(edge, score))
    request.bar, request.n_rows, request.score = bar, n_in_parts, score
    request.missing_g, request.missing_h, request.missing_n = missing.g, missing.h, missing.n
    if score >= 0.0:
        found = scratch.found.record[0]
        request.code, request.next_code, request.n_left = found.code, found.next_code, found.n_left
        request.missing_left = found.missing_left
        request.left_g, request.left_h = scratch.found.left[0], scratch.found.left[1]
    for z in range(n_flagged):
        zone = scratch.zones[z]
        _note_flagged(flagged[z], scratch.numbers[z], zone.g_before, zone.h_before, zone.n_before, zone.n)
    return n_flagged


@inlined_kernel
def _note_flagged(flagged, part, g, h, before, n):
    """Write a flagged part: its number, the sums before it, and its number of rows."""
    flagged.part, flagged.g_before, flagged.h_before, flagged.n_before, flagged.n = part, g, h, before, n


@lean_kernel
def _only_part(zone_map, sums, slot, j):
    """Return the only part with rows of a node, -1 if there are several; missing values count as the last part."""
    element, only = element_of(sums, slot, j), NONE()
    for z in range(n_elements(zone_map, sums, slot, j) + 1):
        if element[z, 1] != 0:
            if only >= 0:
                return NONE()
            only = z
    return only


@lean_kernel
def _is_single(zone_map, sums, slot, j, part):
    """Return whether a part has a single value."""
    shift, first_codes = zone_map.fold - sums.grains[slot], zone_map.first_codes[j]
    return first_codes[(part + 1) << shift] - first_codes[part << shift] == 1


#: Far above the relative error of a class's term.
_ROUNDING = 2.0**-40
#: Replaces the weight of an empty side.
_TINY = 2.0**-1000


@inner_kernel
def _term(criterion, left, whole, h, h_all):
    """Return the term of a class in the score of a split, or its limit if one side is empty."""
    h, other_h = max(h, _TINY), max(h_all - h, _TINY)
    return score_of_terms(criterion, class_term(criterion, left, whole - left, h, other_h), h, other_h, h_all, 1)


@lean_kernel
def _bound_of_classes(criterion, left, missing, adds, light, element, whole, h_all, first, last):
    """Bound the terms of the classes ``first`` to ``last``; ``light`` is the total weight on the left of the part."""
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
    # In the order of magnitude of scores, for any criterion.
    rounding = _ROUNDING * n_classes * abs(_term(criterion, h_all / 4, h_all / 2 + h_all / 4, h_all / 2, h_all))
    return bound + score_of_terms(criterion, 0.0, 1.0, 1.0, h_all, n_classes) + rounding


@specialised
def _bound(node, criterion, left, missing, adds, element, size_shift):
    """Bound the score of splits inside a part, or at its upper edge; ``adds`` says whether missing rows are on the left."""


@_bound.of(Classes)
def _(node, criterion, left, missing, adds, element, size_shift):
    if not has_convex_terms(criterion):
        return math.inf
    light = left.h + (missing.h if adds else ZERO())
    n_classes, h_all = node.sums.shape[0], float(node.h)
    return _bound_of_classes(criterion, left.sums, missing.sums, adds, light, element, node.sums, h_all, ZERO(), n_classes)


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


@_flag_column.of(Classes, AmountsOfTargets, ClassesOfTargets)
def _(node, nodes, i, j, limits, draws, scratch, flagged, request, splits, t):
    if _is_spread(nodes, i, j, limits.criterion):  # constant columns are always detected
        splits.candidates.records[t].status = NO_SPLIT
    request.bar = below(nodes.bars[i]) if nodes.bars[i] >= 0.0 else nodes.bars[i]
    n, request.n_rows, request.looks = _flag_parts(nodes, i, j, limits, request.bar, scratch.classes, flagged)
    return n


@lean_kernel
def _is_spread(nodes, i, j, criterion):
    """Return whether the rows of a node are in several parts; missing values count as one."""
    node, n_filled = node_statistic(criterion, nodes.node_sums[i], nodes.n_rows[i]), ZERO()
    elements = element_of(nodes.sums, i, j)
    for p in range(n_elements(nodes.zone_map, nodes.sums, i, j) + 1):
        n_filled += rows_of_element(node, elements[p]) > 0
    return n_filled > 1


@lean_kernel
def _flag_parts(nodes, i, j, limits, bar, buffer, flagged):
    """Write the parts that may hold a better split; return their number, the number of their rows, and whether any part may."""
    elements, n_parts = element_of(nodes.sums, i, j), n_elements(nodes.zone_map, nodes.sums, i, j)
    first_codes, shift, size_shift = nodes.zone_map.first_codes[j], nodes.zone_map.fold - nodes.sums.grains[i], nodes.sums.scales[i].shift
    node, criterion = node_statistic(limits.criterion, nodes.node_sums[i], nodes.n_rows[i]), unconstrained(limits.criterion)
    left, missing = nothing(node, buffer[0]), statistic_of(node, elements[n_parts], buffer[1])
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
                _note_flagged(flagged[at], p, ZERO(), ZERO(), ZERO(), n)
                at += 1
                n_flagged += n
        left = plus_element(left, elements[p])
    return at, n_flagged, looks
