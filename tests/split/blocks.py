"""A node in the middle of a block, searched by the kernels that take all its columns side by side."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.specialised import specialised
from dtrees.split.grow.block import fill_block, make_block
from dtrees.split.node.limits import BestThreshold, RandomThreshold
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import CONSTANT, SPLIT, complete, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.search.random_threshold import search_random_block
from dtrees.split.search.scratch import make_scratch
from dtrees.split.search.tiny_node import search_tiny_node
from dtrees.split.table.columns import presort
from tests import naive
from tests.split.nodes import KEY, Answer, candidate, comparable, draws, package_limits, slope_of, sums_of
from tests.split.strategies import Task, as_lists

NODE_KEY = np.uint64(777)


@specialised
def _search_block(thresholds, columns, limits, max_features, pool, block, first, last, sums, scratch):  # type: ignore[no-untyped-def]
    """The node's best split by all thresholds or by random ones."""


@_search_block.of(RandomThreshold)
def _(thresholds, columns, limits, max_features, pool, block, first, last, sums, scratch):  # type: ignore[no-untyped-def]
    drawing = hashing.ColumnDrawing(max_features, NODE_KEY, pool)
    return search_random_block(limits, drawing, KEY, block, first, last, sums, hashing.ROOT, scratch)


@_search_block.of(BestThreshold)
def _(thresholds, columns, limits, max_features, pool, block, first, last, sums, scratch):  # type: ignore[no-untyped-def]
    drawing = hashing.ColumnDrawing(max_features, NODE_KEY, pool)
    return search_tiny_node(columns, limits, drawing, block, first, last, sums, hashing.ROOT, scratch)


@kernel
def _search(columns, partition, places, first, last, limits, max_features, pool, block, sums, scratch, out):  # type: ignore[no-untyped-def]
    n = partition.rows.shape[0]
    fill_block(columns, pool, partition, np.empty(0), 0, n, n, block, limits.thresholds, scratch)
    for i in range(n):
        block.places[i] = places[i]
    found = _search_block(limits.thresholds, columns, limits, max_features, pool, block, first, last, sums, scratch)
    status, score, has_missing, column = found
    out.records[0].status = status
    out.records[0].column = column
    if status == SPLIT:
        values = columns.words[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, column, last - first, sums, limits, score, has_missing, scratch.found, out, 0)


def search_in_block(task: Task, max_features: int, pool: NDArray[np.int32]) -> Answer:
    """The best split over the columns drawn from the pool, the task's node being some of the rows of a block."""
    columns = presort(task.table)
    n = columns.n_rows
    inside, outside = np.flatnonzero(task.inside), np.flatnonzero(~task.inside)
    first = outside.shape[0] // 2
    places = np.concatenate([outside[:first], inside, outside[first:]]).astype(np.uint32)
    sums = sums_of(task)
    n_classes = task.limits.n_classes
    scratch = make_scratch(n, int(np.diff(columns.offsets).max(initial=0)), n_classes)
    block = make_block(n, 0, task.h.shape[0] > 0, pool, columns, task.limits.random, n_classes)
    out = empty_candidates(1, sums.shape[0])
    drawn_from = pool.copy()
    _search(
        columns, RowPartition(np.arange(n, dtype=np.uint32), task.g, task.h), places, first, first + inside.shape[0],
        package_limits(task.limits, slope_of(task)), max_features, drawn_from, block, sums, scratch, out,
    )  # fmt: skip
    assert np.array_equal(drawn_from, pool)  # every node starts from the same arrangement
    return candidate(out, 0)


def expected_of_drawn(task: Task, max_features: int, pool: NDArray[np.int32]) -> Answer:
    """The oracle's answer: columns are drawn until there are enough, and on while all are constant."""
    lists, rows = as_lists(task.table), np.flatnonzero(task.inside).tolist()
    drawn = pool.copy()
    hashing.draw_columns(NODE_KEY, hashing.ROOT, drawn, 0, pool.shape[0])
    for n in range(max_features, pool.shape[0] + 1):
        which = pool.tolist() if n == pool.shape[0] else sorted(drawn[:n].tolist())
        answer = naive.best_split(lists, which, rows, task.g.tolist(), task.h.tolist() or None, task.limits, draws(len(lists)))
        if answer[0] != CONSTANT:
            break
    return comparable(answer)
