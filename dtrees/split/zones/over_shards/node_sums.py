"""Sums of nodes by zones and parts: made by every shard, put in order by the searcher that has added them up."""

from __future__ import annotations

from typing import Any

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import AmountsOfTargets, Classes, ClassesOfTargets, Moments
from dtrees.split.zones.over_shards.many_sums.flagging import best_edge_of_elements
from dtrees.split.zones.sums import best_edges, fold, include_columns, numbers_of


@kernel
def sum_nodes(queue, tasks, zone_map, partition, sums):
    """Sum nodes into slots, by several threads.

    ``tasks``, shape (n, 6), are first and last place, slot, first and last column, and whether the slot begins with these places; else they
    are added to what it has.
    """
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, slot, first, last, begins = tasks[k]
        if begins:
            numbers_of(sums, slot, first, last)[:] = 0
        include_columns(zone_map, partition, start, stop, first, last, sums, slot, ZERO() + 1)
        finish(queue)


@kernel
def settle_sums(queue, tasks, before, nodes, grains, drawn, limits, scratch):
    """Have the sums of nodes ready, and find their bars, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 4)
        A node, or -1; its sibling, or -1; the slot of the parent in ``before`` (-1: none); and the slot that holds the sums of one of the
        two: of the first of them, if there is a parent. The other's are then the parent's without these.
    before : Sums
        Slots of the parents.
    nodes : SearchedNodes
        Written: the best score of each at an edge of a zone, or of a part where many numbers are summed; -1.0 if there is none.
    grains : ndarray of int64, shape (n_nodes,)
        What nodes are to be searched in.
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns that each is to be searched in.
    """
    zone_map, sums = nodes.zone_map, nodes.sums
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
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
        finish(queue)


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


for _kind in (Classes, ClassesOfTargets, AmountsOfTargets):
    _best_edge.of(_kind)(best_edge_of_elements)


@inner_kernel
def _find_other(zone_map, before, parent, sums, slot, other):
    """Write the sums of a child, given its parent's and its sibling's, which is in ``slot``."""
    n_columns = zone_map.which.shape[0]
    if before.grains[parent] > sums.grains[slot]:
        fold(zone_map, before, parent, sums.grains[slot])
    sums.grains[other] = sums.grains[slot]
    _subtract(
        numbers_of(before, parent, ZERO(), n_columns),
        numbers_of(sums, slot, ZERO(), n_columns),
        numbers_of(sums, other, ZERO(), n_columns),
    )


@lean_kernel
def _subtract(whole, part, rest):
    for i in range(rest.shape[0]):
        rest[i] = whole[i] - part[i]
