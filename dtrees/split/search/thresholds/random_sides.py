"""Random thresholds of nodes whose rows are spread over shards.

A threshold follows from the lowest and the highest value of a node in a column, over all shards. Then each shard sums its own rows on the
left of it, and those whose value is missing; with these sums added up, the threshold is tried as in one process
(:func:`~dtrees.split.search.thresholds.random_threshold.search_random`). Pairs of a node and a column are *tasks*.
"""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.statistics import write_sums
from dtrees.split.node.candidate import CONSTANT, NO_SPLIT, SPLIT, complete_but_threshold
from dtrees.split.numbers.hashing import draw
from dtrees.split.search.thresholds.random_threshold import draw_between, find_end_codes, sum_left_and_missing, try_threshold


@kernel
def find_ends(queue, tasks, columns, rows, ends):
    """Find the lowest and the highest code of nodes in columns, and how many values are missing, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 3)
        First and last place of a node, and a column.
    columns : Columns
    rows : ndarray of uint32
    ends : ndarray of int64, shape (n, 3)
        Written. Without values, the lowest code is the number of distinct values, and the highest is -1.
    """
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        start, stop, column = tasks[k]
        codes, n_distinct = columns.codes[column], np.int64(columns.offsets[column + 1] - columns.offsets[column])
        ends[k, 0], ends[k, 1], ends[k, 2] = find_end_codes(codes, n_distinct, rows, start, stop)
        finish(queue)


@kernel
def draw_thresholds(key, paths, columns, low, high, out):
    """Draw a threshold for each task: of a node of a path, in a column of the table, between two values; infinity if these are the same."""
    for k in range(paths.shape[0]):
        out[k] = np.inf
        if low[k] < high[k]:
            out[k] = draw_between(low[k], high[k], draw(np.uint64(key) ^ paths[k], columns[k]))


@kernel
def sum_sides(queue, tasks, columns, partition, cuts, node_sums, limits, scratch, left, missing):
    """Sum the rows of nodes on the left of thresholds, and those whose value is missing, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 5)
        First and last place of a node, a column, the node, and where to write the sums of missing rows, -1 if there are none.
    columns : Columns
    partition : RowPartition
    cuts : ndarray of int64, shape (n,)
        The highest code that goes left.
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
        Of the rows of all shards.
    limits : SplitLimits
    scratch : Scratch
    left, missing : ndarray of int64, shape (n, n_sums + 1)
        Written, all 0 before: sums, and last the number of rows.
    """
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        _sum_node(tasks[k], columns, partition, cuts[k], node_sums, limits, scratch, left[k], missing)
        finish(queue)


@lean_kernel
def _sum_node(task, columns, partition, cut, node_sums, limits, scratch, left, missing):
    start, stop, column, number, place = task
    node = node_statistic(limits.criterion, node_sums[number], ZERO())
    n_distinct = np.int64(columns.offsets[column + 1] - columns.offsets[column])
    on_left, without = sum_left_and_missing(node, columns.codes[column], n_distinct, partition, start, stop, cut, scratch)
    _write(on_left, left)
    if place >= 0:
        _write(without, missing[place])


@lean_kernel
def _write(statistic, out):
    """Write sums and the number of rows; what constraints know of a node stays 0."""
    n = out.shape[0] - 1
    write_sums(statistic, out[:n])
    out[n] = statistic.n


@kernel
def try_thresholds(queue, tasks, thresholds, left, missing, nodes, node_sums, limits, scratch, out):
    """Try the threshold of each task, given the sums over all shards, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 3)
        A node, a column of the table, and where the sums of missing rows are, -1 if there are none.
    thresholds : ndarray of float64, shape (n,)
        Infinity where all values are the same.
    left, missing : ndarray of int64
        As of :func:`sum_sides`.
    nodes : ndarray of int64, shape (n_nodes,)
        The number of rows of each.
    node_sums : ndarray of int64, shape (n_nodes, n_sums)
    limits : SplitLimits
    scratch : Scratch
    out : Candidates
        One for each task.
    """
    none = np.zeros(left.shape[1], np.int64)
    while True:
        k = claim(queue)
        if k >= tasks.shape[0]:
            return
        node, column, place = tasks[k]
        out.records[k].column, out.records[k].status = column, CONSTANT
        if (thresholds[k] < np.inf or place >= 0) and begin_column(limits.criterion, node_sums[node], column):
            missing_sums = missing[place] if place >= 0 else none
            score = _try(thresholds[k], left[k], missing_sums, nodes[node], node_sums[node], limits, scratch)
            out.records[k].status = NO_SPLIT
            if score >= 0.0:
                out.records[k].status = SPLIT
                complete_but_threshold(ZERO(), column, nodes[node], node_sums[node], limits, score, place >= 0, scratch.found, out, k)
        finish(queue)


@lean_kernel
def _try(threshold, left, missing, n_rows, sums, limits, scratch):
    n = sums.shape[0]
    node = node_statistic(limits.criterion, sums, n_rows)
    lefts = node_statistic(limits.criterion, left[:n], left[n])
    missings = node_statistic(limits.criterion, missing[:n], missing[n])
    return try_threshold(limits, lefts, missings, node, threshold < np.inf, ZERO(), threshold, -1.0, scratch)
