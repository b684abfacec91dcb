"""A node searched by the package and by the oracles, for comparison."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.split.node.limits import NO_CATEGORIES, BestThreshold, RandomThreshold, SplitLimits
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import SPLIT, Candidates, NodesOfTree, best_by_node, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.search.column import search_many
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import Columns, presort
from tests import naive
from tests.split.strategies import Task, as_lists

KEY = np.uint64(12345)

#: The status of a search, and the best split.
Answer = tuple[int, naive.Split | None]


def package_limits(limits: naive.SplitLimits, slope: float = 0.0) -> SplitLimits:
    """Return the limits in the package's form; ``slope`` is the largest abs(a) / b."""
    criterion = naive.kernel_value(limits)
    return SplitLimits(
        RandomThreshold() if limits.random else BestThreshold(),
        slope,
        limits.min_samples,
        math.ceil(limits.min_weight),
        limits.min_gain,
        NO_CATEGORIES,
        criterion,
    )


def slope_of(task: Task) -> float:
    b = task.h if task.h.shape[0] else np.ones(task.g.shape[0], np.int64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(task.g == 0, 0.0, np.abs(task.g) / b)[task.inside].max())


def node_in(task: Task, seed: int) -> tuple[RowPartition, int, int]:
    """Return a row partition that contains the task's node."""
    rng = np.random.default_rng(seed)
    inside = np.flatnonzero(task.inside)
    outside = rng.permutation(np.flatnonzero(~task.inside))
    start = int(rng.integers(0, outside.shape[0] + 1))
    rows = np.concatenate([outside[:start], inside, outside[start:]]).astype(np.uint32)
    return RowPartition(rows, task.g[rows], task.h[rows] if task.h.shape[0] else task.h), start, start + inside.shape[0]


def sums_of(task: Task) -> NDArray[np.int64]:
    rows = np.flatnonzero(task.inside).tolist()
    return np.array(naive.node_sums(rows, task.g.tolist(), task.h.tolist() or None, task.limits.n_classes), np.int64)


def search(task: Task, columns: Columns, seed: int = 0) -> Candidates:
    """The best split of the task's node in each of the columns."""
    partition, start, in_stop = node_in(task, seed)
    sums = sums_of(task)
    n_columns = columns.n_columns
    out = empty_candidates(n_columns, sums.shape[0])
    levels = np.array(task.limits.levels, np.int64)
    scratch = make_scratch(in_stop - start, int(np.diff(columns.offsets).max(initial=0)), task.limits.n_classes, levels)
    pairs = np.stack([np.zeros(n_columns, np.int64), np.arange(n_columns)], axis=1)
    nodes = NodesOfTree(partition, np.array([start]), np.array([in_stop]), sums[None], np.array([hashing.ROOT]), KEY)
    ids, limits = np.arange(n_columns, dtype=np.int32), package_limits(task.limits, slope_of(task))
    search_many(columns, ids, pairs, 0, n_columns, nodes, limits, scratch, out)
    return out


def candidate(candidates: Candidates, i: int) -> Answer:
    """Return one candidate in the oracle's form."""
    found = candidates.records[i]
    if found["status"] != SPLIT:
        return int(found["status"]), None
    return SPLIT, naive.Split(
        int(found["column"]),
        math.nan,
        float(found["threshold"]),
        bool(found["missing_left"]),
        int(found["n_left"]),
        tuple(candidates.left[i].tolist()),
        gain=float(found["gain"]),
    )


def best_of(candidates: Candidates) -> Answer:
    """The best of all candidates."""
    best = empty_candidates(1, candidates.left.shape[1])
    best_by_node(candidates, np.zeros(candidates.left.shape[0], np.int64), best)
    return candidate(best, 0)


def draws(n_columns: int) -> list[int]:
    return [int(hashing.draw(KEY ^ hashing.ROOT, j)) for j in range(n_columns)]


def comparable(answer: Answer) -> Answer:
    """Return an answer without the fields that the package does not have."""
    status, split = answer
    return status, split and split._replace(score=0.0, value=math.nan)


def expected(task: Task) -> Answer:
    """The oracle's answer."""
    lists, rows = as_lists(task.table), np.flatnonzero(task.inside).tolist()
    a, b = task.g.tolist(), task.h.tolist() or None
    return comparable(naive.best_split(lists, range(len(lists)), rows, a, b, task.limits, draws(len(lists))))


def same(one: Answer, other: Answer) -> bool:
    """Return whether two answers are equal to the last bit, with NaN equal to NaN."""
    return repr(one) == repr(other)


def widen(task: Task, n_more: int) -> Task:
    """Return the same node in a table with more rows, whose values lie between and beyond the node's."""
    rng = np.random.default_rng(1)
    table: list[NDArray[Any]] = []
    for column in task.table:
        values = column.astype(np.float64)
        valid = values[~np.isnan(values)]
        low, high = (valid.min(), valid.max()) if valid.size else (0.0, 1.0)
        u = rng.random(n_more)
        between = low * (1 - u) + high * u + rng.choice([0.0, 1.0, -1.0], n_more)
        table.append(np.concatenate([values, np.clip(between, np.finfo(float).min, np.finfo(float).max)]))
    return Task(
        table,
        np.concatenate([task.g, np.zeros(n_more, np.int64)]),
        np.concatenate([task.h, np.ones(n_more, np.int64)]) if task.h.shape[0] else task.h,
        np.concatenate([task.inside, np.zeros(n_more, np.bool_)]),
        task.limits,
    )


def search_of(task: Task, seed: int = 0) -> Candidates:
    return search(task, presort(task.table), seed)
