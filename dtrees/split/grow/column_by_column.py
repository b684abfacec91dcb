"""The search of one node of a subtree over its columns, wherever its rows are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dtrees.split.compile.kernels import ZERO, inlined_kernel, lean_kernel
from dtrees.split.compile.specialised import optional, specialised
from dtrees.split.criteria.absolute_error import Deviations
from dtrees.split.criteria.constraints.kinds import unconstrained
from dtrees.split.criteria.constraints.words import begin_column
from dtrees.split.node.limits import is_categorical
from dtrees.split.node.records import CONSTANT, SPLIT, NodeColumn, bar_for, complete
from dtrees.split.numbers.hashing import draw, draw_columns, undraw_columns
from dtrees.split.search.categories import search_categories_of_list
from dtrees.split.search.column import search_any_column, search_sorted
from dtrees.split.search.order_statistics import search_deviations_of_list
from dtrees.split.search.sweep import SortedRows


class InTable(NamedTuple):
    """A node's rows are places of the row partition."""


class InBlock(NamedTuple):
    """A node's rows are in the sorted lists of the block."""


@specialised
def _search_column_from(source, columns, column, task, first, last, sums, path, bar):
    """Find the best split of a node in one column; result as of :func:`~dtrees.split.search.column.search_column`."""


@_search_column_from.of(InTable)
def _(source, columns, column, task, first, last, sums, path, bar):
    limits = task.limits
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    bits = draw(np.uint64(task.keys[1]) ^ path, column)
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    pair = NodeColumn(columns.codes[column], values, task.partition, first, last, sums, bits)
    return search_any_column(column, pair, limits, bar, task.scratch)


@_search_column_from.of(InBlock)
def _(source, columns, column, task, first, last, sums, path, bar):
    limits = task.limits
    if not begin_column(limits.criterion, sums, column):
        return CONSTANT, 0.0, False
    values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
    block = task.block
    keys = block.keys[block.place_of[column]]
    if is_categorical(limits.categories, column):
        return search_categories_of_list(column, values, keys, block, (first, last), sums, limits, bar, task.scratch)
    return _search_numbers(unconstrained(limits.criterion), keys, values.shape[0], block, (first, last), sums, limits, bar, task.scratch)


@optional
def _search_numbers(criterion, keys, n_distinct, block, place, sums, limits, bar, scratch):
    """Find the best split of a node in one column of numbers by the block's sorted list; ``place`` is where its keys begin and end."""
    rows = SortedRows(keys, place[0], place[1], block.g, block.h, ZERO())
    return search_sorted(rows, n_distinct, sums, limits, bar, scratch)


@_search_numbers.of(Deviations)
def _(criterion, keys, n_distinct, block, place, sums, limits, bar, scratch):
    return search_deviations_of_list(criterion, keys, n_distinct, block, place[0], place[1], limits, bar, scratch)


@lean_kernel
def search_node(source, columns, task, first, last, sums, path):
    """Find the best split of one node over the columns drawn for it.

    The result is as of :func:`~dtrees.split.search.tiny_node.search_tiny_node`.
    As in scikit-learn, drawing goes on beyond ``max_features`` while all columns drawn so far are constant in the node. The node's
    in-sample rows are the places first..last of the partition (``source`` is InTable) or of the block's lists (InBlock).
    """
    stops, pool, node_key = task.stops, task.pool, task.keys[0]
    n_columns = pool.shape[0]
    everything = stops.max_features >= n_columns
    status = CONSTANT
    score = -1.0
    winner = -1
    has_missing = False
    drawn = 0
    while drawn < n_columns and (drawn < stops.max_features or status == CONSTANT):
        if not everything:
            draw_columns(node_key, path, pool, drawn, drawn + 1)
        column = pool[drawn]
        drawn += 1
        bar = bar_for(column, winner, score)
        found = _search_column_from(source, columns, column, task, first, last, sums, path, bar)
        status = max(status, found[0])
        if found[0] == SPLIT:
            _, score, has_missing = found
            winner = column
    if not everything:
        undraw_columns(node_key, path, pool, drawn)
    return status, score, has_missing, winner


@inlined_kernel
def conclude(columns, task, n, sums, status, score, has_missing, column):
    """Write what the search of a node of ``n`` rows found to ``task.best``."""
    task.best.records[0].status = status
    if status == SPLIT:
        values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, column, n, sums, task.limits, score, has_missing, task.scratch.found, task.best, ZERO())
