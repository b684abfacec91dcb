"""A node in the middle of a block, searched by the kernels that take all its columns side by side."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from dtrees.split import hashing
from dtrees.split.block import fill_block, make_block
from dtrees.split.columns import presort
from dtrees.split.few import search_few
from dtrees.split.partition import RowPartition
from dtrees.split.random_split import search_random_block
from dtrees.split.search import CONSTANT, SPLIT, complete, empty_candidates, make_scratch
from tests import naive
from tests.split.nodes import KEY, Answer, candidate, comparable, draws, package_limits, slope_of, sums_of
from tests.split.strategies import Task, as_lists

NODE_KEY = np.uint64(777)


@numba.njit
def _search(columns, partition, places, first, last, limits, max_features, pool, block, sums, scratch, out):  # type: ignore[no-untyped-def]
    n = partition.rows.shape[0]
    fill_block(columns, pool, partition, np.empty(0), 0, n, n, block, limits.random, scratch)
    for i in range(n):
        block.places[i] = places[i]
    if limits.random:
        keys = (NODE_KEY, KEY)
        found = search_random_block(limits, max_features, keys, pool, block, first, last, sums, hashing.ROOT, scratch)
    else:
        found = search_few(columns, limits, max_features, NODE_KEY, pool, block, first, last, sums, hashing.ROOT, scratch)
    status, score, has_missing, column = found
    out.records[0].status = status
    out.records[0].column = column
    if status == SPLIT:
        values = columns.values[columns.offsets[column] : columns.offsets[column + 1]]
        complete(values, column, last - first, sums, limits, score, has_missing, scratch, out, 0)


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
    block = make_block(n, 0, task.b.shape[0] > 0, pool, columns, task.limits.random, n_classes)
    out = empty_candidates(1, sums.shape[0])
    drawn_from = pool.copy()
    _search(
        columns, RowPartition(np.arange(n, dtype=np.uint32), task.a, task.b), places, first, first + inside.shape[0],
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
        answer = naive.best_split(lists, which, rows, task.a.tolist(), task.b.tolist() or None, task.limits, draws(len(lists)))
        if answer[0] != CONSTANT:
            break
    return comparable(answer)
