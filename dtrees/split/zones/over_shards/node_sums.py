"""Sums of nodes by zones and parts: made by every shard, put in order by the searcher that has added them up."""

from __future__ import annotations

from dtrees.split.compile.kernels import ZERO, inner_kernel, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
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
def settle_sums(queue, tasks, zone_map, before, sums, grains, drawn, bars, column_ids, nodes, node_sums, limits, scratch):
    """Have the sums of nodes ready, and find their bars, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 4)
        A node, or -1; its sibling, or -1; the slot of the parent in ``before`` (-1: none); and the slot that holds the sums of one of the
        two: of the first of them, if there is a parent. The other's are then the parent's without these.
    zone_map : ZoneMap
        Of a searcher.
    before, sums : Sums
        Slots of the parents, and of the nodes: node i has slot i.
    grains : ndarray of int64, shape (n_nodes,)
        What nodes are to be searched in.
    drawn : ndarray of bool, shape (n_nodes, k)
        The columns that each is to be searched in.
    bars : ndarray of float64, shape (n_nodes,)
        Written: the best score at an edge of a zone, -1.0 if there is none.
    nodes : ndarray of int64, shape (n_nodes,)
        The number of rows of each.
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
            node = other if side else one
            if node < 0:
                continue
            if sums.grains[node] > grains[node]:
                fold(zone_map, sums, node, grains[node])
            place = (ZERO(), nodes[node], node)
            bar = -1.0
            for j in range(n_columns):
                if drawn[node, j]:
                    bar, _ = best_edges(column_ids, zone_map, sums, place, node_sums[node], limits, j, j + 1, bar, scratch)
            bars[node] = bar
        finish(queue)


@inner_kernel
def find_other(zone_map, before, parent, sums, slot, other):
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
