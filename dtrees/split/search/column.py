"""Search for the best split of one node in one column.

The level-by-level engine maps :func:`search_many` over threads; the subtree kernel calls :func:`search_column` itself. While a node's
columns are searched one after the other, the score of the best split so far is the *bar* that other splits have to exceed
(:func:`~dtrees.split.node.records.bar_for`). The best split is held in the scratch space until
:func:`~dtrees.split.node.records.complete` turns it into a candidate.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel, separate_kernel, shared_kernel
from dtrees.split.compile.specialised import optional
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints import begin_column, unconstrained
from dtrees.split.criteria.parts import node_statistic
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.criteria.statistics import Moments, nothing
from dtrees.split.node.limits import RandomThreshold, is_categorical
from dtrees.split.node.partition import is_pure
from dtrees.split.node.records import CONSTANT, NO_SPLIT, NONE_HIGHER, SPLIT, complete, pair_of
from dtrees.split.numbers.hashing import draw_columns, undraw_columns
from dtrees.split.search import sweep
from dtrees.split.search.categories import search_categories
from dtrees.split.search.order_statistics import search_deviations
from dtrees.split.search.random_threshold import search_random
from dtrees.split.search.vectors import sweep_chunks, sweeps_chunks
from dtrees.split.table.sorting import code_in, fill_bins, first_key, lower_bound, prefers_bins, sort_places


@optional
def search_column(criterion, pair, limits, bar, scratch):
    """Find the best split of one node in one column.

    Parameters
    ----------
    criterion : named tuple
        The criterion of ``limits``, without constraints.
    pair : NodeColumn
    limits : SplitLimits
    bar : float
        Only splits with a larger score are candidates.
    scratch : Scratch
        The split is written to ``scratch.found`` if there is one; otherwise that is not changed.

    Returns
    -------
    status : int
        CONSTANT, NO_SPLIT or SPLIT. A column that constraints forbid in a node counts as constant.
    score : float
    has_missing : bool
        Whether the column has missing values in this node.
    """
    return _search_sums(limits.thresholds, pair, limits, bar, scratch)


@search_column.of(Deviations, SeveralDeviations)
def _(criterion, pair, limits, bar, scratch):
    return search_deviations(limits.thresholds, criterion, pair, limits, bar, scratch)


@lean_kernel
def search_any_column(column, pair, limits, bar, scratch):
    """Find the best split of one node in one column, of numbers or categories; see :func:`search_column`.

    ``column`` is the number of the column in the categories of ``limits``.
    """
    if is_categorical(limits.categories, column):
        return search_categories(column, pair, limits, bar, scratch)
    return search_column(unconstrained(limits.criterion), pair, limits, bar, scratch)


@optional
def _search_sums(thresholds, pair, limits, bar, scratch):
    """Find the best split by a criterion of sums; parameters and result are those of :func:`search_column`."""
    return search_by_sums(pair, limits, bar, scratch)


@_search_sums.of(RandomThreshold)
def _(thresholds, pair, limits, bar, scratch):
    return search_random(pair, limits, bar, scratch)


@separate_kernel
def search_by_sums(pair, limits, bar, scratch):
    """Find the best of all splits by a criterion of sums; parameters and result are those of :func:`search_column`."""
    rows = pair.partition.rows[pair.start : pair.in_stop]
    dominant = sweep.find_dominant(pair.codes, rows, scratch)
    if dominant >= 0:
        m = sweep.list_others(pair.codes, rows, dominant, scratch.keys)
        if m >= 0:
            return sweep.search_around_dominant(scratch.keys[:m], dominant, pair, limits, bar, scratch)
    return _search_rows(node_statistic(limits.criterion, pair.sums, rows.shape[0]), pair, limits, bar, scratch)


@optional
def _search_rows(node, pair, limits, bar, scratch):
    """Find the best split from all rows of a node: sorted, or, if that is faster, by bins."""
    return _sort_and_search(pair, limits, bar, scratch)


@_search_rows.of(Moments)
def _(node, pair, limits, bar, scratch):
    if prefers_bins(node.n, pair.values.shape[0]):
        return search_bins(pair, node, limits, bar, scratch)
    return _sort_and_search(pair, limits, bar, scratch)


@lean_kernel
def _sort_and_search(pair, limits, bar, scratch):
    partition, keys = pair.partition, scratch.keys
    sort_places(pair.codes, partition.rows, pair.start, pair.in_stop, keys, scratch.spare, scratch.counts)
    rows = sweep.SortedRows(keys, ZERO(), pair.in_stop - pair.start, partition.g, partition.h, pair.start)
    return search_sorted(rows, pair.values.shape[0], pair.sums, limits, bar, scratch)


@lean_kernel
def search_bins(pair, node, limits, bar, scratch):
    """Find the best split from one bin for each distinct value; ``node`` is the node's moments."""
    m, missing = fill_bins(pair.codes, pair.values.shape[0], pair.partition, pair.start, pair.in_stop, scratch.bins)
    if m == 0 or (m == 1 and missing.n == 0):
        return CONSTANT, 0.0, False
    score = sweep.sweep_bins(limits, scratch.bins, m, missing, node, bar, scratch.found)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, missing.n > 0


@shared_kernel
def search_sorted(rows, n_distinct, sums, limits, bar, scratch):
    """Find the best split from sorted rows; the code of missing values is ``n_distinct``."""
    highest = code_in(rows.keys[rows.last - 1])
    if code_in(rows.keys[rows.first]) == highest:
        return CONSTANT, 0.0, False
    node = node_statistic(limits.criterion, sums, rows.last - rows.first)
    has_missing = highest == np.uint64(n_distinct)
    if not has_missing and sweeps_chunks(limits.criterion, node):
        score = sweep_chunks(node, limits, rows, bar, scratch.classes[0], scratch.found, scratch.chunk)
    else:
        score, has_missing = _sweep_all(rows, n_distinct, sums, limits, bar, scratch)
    return SPLIT if score >= 0.0 else NO_SPLIT, score, has_missing


@separate_kernel(returns=types.Tuple((types.float64, types.boolean)))
def _sweep_all(rows, n_distinct, sums, limits, bar, scratch):
    """Sweep all rows of a node, some of which may miss the value; return the best score, and whether any does."""
    node, buffer = node_statistic(limits.criterion, sums, rows.last - rows.first), scratch.classes
    end = lower_bound(rows.keys, rows.first, rows.last, first_key(n_distinct))
    missing = sweep.sum_rows(sweep.rows_between(rows, end, rows.last), nothing(node, buffer[1]))
    present, none = sweep.rows_between(rows, rows.first, end), nothing(node, buffer[0])
    score = sweep.sweep_sorted(limits, present, none, missing, node, NONE_HIGHER, bar, buffer[2], scratch.found)
    return score, end < rows.last


@kernel
def search_many(columns, column_ids, tasks, first, last, nodes, limits, scratch, out):
    """Search the pairs of node and column ``tasks[first:last]`` and write each candidate at its place in ``out``.

    Parameters
    ----------
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns in the whole table.
    tasks : ndarray of int64, shape (n_tasks, 2)
        Node (index into ``nodes``) and column (index into ``columns``).
    nodes : NodesOfTree
    """
    for t in range(first, last):
        node, j = tasks[t, 0], tasks[t, 1]
        column = np.int64(column_ids[j])
        out.records[t].column = column
        pair = pair_of(columns, column_ids, j, nodes, node)
        if not begin_column(limits.criterion, pair.sums, column):
            out.records[t].status = CONSTANT
            continue
        status, score, has_missing = search_any_column(j, pair, limits, -1.0, scratch)
        out.records[t].status = status
        if status == SPLIT:
            complete(pair.values, column, pair.in_stop - pair.start, pair.sums, limits, score, has_missing, scratch.found, out, t)


@kernel
def find_pure(target, rows, starts, in_stops):
    """Return which nodes have the same target in all in-sample rows; see :func:`~dtrees.split.node.partition.is_pure`."""
    pure = np.empty(starts.shape[0], np.bool_)
    for i in range(starts.shape[0]):
        pure[i] = is_pure(target, rows, starts[i], in_stops[i])
    return pure


@kernel
def pair_drawn(key, paths, pool, n_drawn, place_of):
    """Draw columns for nodes; return pairs of a node (index into ``paths``) and the place of a drawn column, if it is known.

    Parameters
    ----------
    key : uint64
        Key of the tree's stream of node columns.
    paths : ndarray of uint64, shape (n_nodes,)
    pool : ndarray of int32
        The tree's columns; reordered during the call, so no other thread may use the array.
    n_drawn : int
    place_of : ndarray of int64
        By column; -1 if unknown.

    Returns
    -------
    ndarray of int64, shape (n_pairs, 2)
    """
    pairs = np.empty((paths.shape[0] * n_drawn, 2), np.int64)
    n = 0
    for i in range(paths.shape[0]):
        draw_columns(key, paths[i], pool, np.int64(0), n_drawn)
        for k in range(n_drawn):
            place = place_of[pool[k]]
            if place >= 0:
                pairs[n, 0], pairs[n, 1] = i, place
                n += 1
        undraw_columns(key, paths[i], pool, n_drawn)
    return pairs[:n].copy()


@kernel
def search_on(columns, column_ids, key, pool, skip, place_of, nodes, limits, scratch, out, first):
    """Search nodes column by column, from the ``skip``-th drawn on, until one at a known place varies.

    The candidates are written to ``out``, and the number of the draw of each to ``first``: the number of columns if none varies.
    Parameters are those of :func:`pair_drawn` and :func:`~dtrees.split.search.column.search_many`.
    """
    n_columns, paths = pool.shape[0], nodes.path
    task = np.zeros((paths.shape[0], 2), np.int64)
    for i in range(paths.shape[0]):
        draw_columns(key, paths[i], pool, np.int64(0), n_columns)
        task[i, 0] = i
        first[i] = n_columns
        for k in range(skip, n_columns):
            task[i, 1] = place_of[pool[k]]
            if task[i, 1] < 0:
                continue
            search_many(columns, column_ids, task, i, i + 1, nodes, limits, scratch, out)
            if out.records[i].status != CONSTANT:
                first[i] = k
                break
        undraw_columns(key, paths[i], pool, n_columns)
