"""The best splits of all nodes of a level, by zone sums inherited from their parents (:mod:`dtrees.split.zones.sums`).

The work on a level is a list of *operations* on nodes, stretches of rows and columns; the caller says which must be done before which, and
spreads them over threads. First the sums, then the bars, then the scans. What threads share is only the best score known of each node;
seeing it late costs time, never the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import NONE, ZERO, kernel
from dtrees.split.compile.work_queue import claim, finish, wait_for
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NO_SPLIT
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.by_category import SummedNode
from dtrees.split.zones.scan import scan
from dtrees.split.zones.sums import Sums, add, best_edges, fold_like, get_ready, subtract, sum_rows

#: Operations, each a row (kind, x, y, z) of an int64 array. Sum the rows x..y into slot z.
SUM = 0
#: Add slot y to slot x.
ADD = 1
#: Take slot y from slot x.
SUBTRACT = 2
#: Find the bar of node x.
BAR = 3
#: Search node x in the columns y..z of the zone map.
SCAN = 4


class SummedLevel(NamedTuple):
    """The nodes of a level that are to be searched, and their sums by zone.

    Attributes
    ----------
    zone_map, ids, sums, partition
        As of :class:`~dtrees.split.zones.by_category.SummedNode`.
    nodes : ndarray of int64, shape (n_nodes, 3)
        First and last in-sample place, and slot.
    node_sums : ndarray of int64, shape (n_nodes, 2)
    bars : ndarray of float64, shape (n_nodes,)
        The best score known of each node, -1.0 at first; shared by all threads.
    """

    zone_map: ZoneMap
    ids: NDArray[np.int32]
    sums: Sums
    partition: RowPartition
    nodes: NDArray[np.int64]
    node_sums: NDArray[np.int64]
    bars: NDArray[np.float64]


@kernel
def search_level(queue, tasks, operations, columns, level, limits, scratch, out):
    """Carry out the operations of those tasks that other threads do not claim.

    Parameters
    ----------
    queue : ndarray of int64
        See :mod:`dtrees.split.compile.work_queue`.
    tasks : ndarray of int64, shape (n_tasks, 3)
        Task k is the operations ``tasks[k, 0]:tasks[k, 1]``, to begin when the first ``tasks[k, 2]`` tasks are finished.
    operations : ndarray of int64, shape (n, 4)
    columns : Columns
    level : SummedLevel
    limits : SplitLimits
    scratch : Scratch
    out : Candidates
        For each operation of kind SCAN, the best split that it found.
    """
    zone_map, ids, sums, partition, nodes, node_sums, bars = level
    n_columns = zone_map.which.shape[0]
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        wait_for(queue, tasks[k, 2])
        for t in range(tasks[k, 0], tasks[k, 1]):
            kind, x, y, z = operations[t]
            if kind == SUM:
                sum_rows(zone_map, partition, x, y, sums, z)
            elif kind == ADD:
                add(zone_map, sums, x, y, ZERO(), n_columns)
            elif kind == SUBTRACT:
                fold_like(zone_map, sums, x, y)
                subtract(zone_map, sums, x, y, ZERO(), n_columns)
            elif kind == BAR:
                get_ready(zone_map, partition, sums, (nodes[x, 0], nodes[x, 1], nodes[x, 2]), node_sums[x], limits)
                bars[x], _ = best_edges(ids, zone_map, sums, nodes[x], node_sums[x], limits, (ZERO(), n_columns), bars[x], scratch)
            else:
                out.records[t].status = NO_SPLIT
                out.records[t].column = ids[zone_map.which[y]]
                summed = SummedNode(zone_map, ids, sums, partition, (nodes[x, 0], nodes[x, 1], nodes[x, 2]), node_sums[x])
                scan(columns, summed, (y, z, NONE()), limits, bars[x : x + 1], scratch, out, t)
        finish(queue)
