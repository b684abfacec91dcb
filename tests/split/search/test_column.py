"""The best split of a node, compared bit for bit with trying every split."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dtrees.split.grow.block import block_rows
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import CONSTANT, SPLIT, NodesOfTree, best_by_node, empty_candidates, midpoint
from dtrees.split.policy import BLOCK_CELLS, BLOCK_ROWS, MOST_BLOCK_ROWS
from dtrees.split.search.column import search_many
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import presort
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import KERNELS_OF_THEIR_OWN, one_of_each, quick_criteria, slow_for
from tests.split.nodes import KEY, best_of, candidate, comparable, expected, package_limits, same, search, search_of, widen
from tests.split.strategies import Task, as_lists, criteria_by_sums, tasks, tasks_by_order

#: Others have kernels of their own, for slow tests.
QUICK = tuple(quick_criteria(criteria_by_sums()))
OTHERS = tuple(sorted(KERNELS_OF_THEIR_OWN.intersection(criteria_by_sums())))
KINDS: dict[str, Callable[..., st.SearchStrategy[Task]]] = {
    "quick": partial(tasks, criteria=QUICK),
    "others": partial(tasks, criteria=OTHERS),
    "by order": tasks_by_order,
}
by_sums = pytest.mark.parametrize("kind", slow_for({"others"}, ["quick", "others"]))
every_kind = pytest.mark.parametrize("kind", slow_for({"others", "by order"}, KINDS))


@every_kind
@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("wide", [False, True])
@given(data=st.data())
@examples(200)
def test_the_best_of_every_split(kind: str, random: bool, wide: bool, data: st.DataObject) -> None:
    """In a table with many more values than the node has rows, these are sorted instead of put into bins, with the same result."""
    task = data.draw(KINDS[kind](random=random))
    assert same(best_of(search_of(widen(task, 150), seed=3) if wide else search_of(task)), expected(task))


def large_task(criterion: str, target: str, weighted: bool, missing: float, seed: int) -> Task:
    """A large node in columns of many values, in some more than there are bins."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2048, 9500))
    table: list[NDArray[Any]] = [rng.normal(size=n), np.exp(rng.normal(0, 9, n)), rng.integers(0, 1200, n) / 7, rng.random(n)]
    for column in table[1:]:
        column[rng.random(n) < missing] = np.nan
    b = rng.integers(1, 2**30, n) if weighted else np.empty(0, np.int64)
    # High values before low ones, between alternating values: the best cut is far inside a zone, whose edges show nothing.
    rank = np.argsort(np.argsort(table[0]))
    middle, width = int(rng.integers(0, n)), int(rng.choice([3, 15, 40]))
    turns = np.where(np.abs(rank - middle) <= width, np.sign(middle - rank + 0.5), rank % 2 * 2.0 - 1.0)
    signal = {
        "inside a zone": turns,
        "hidden inside a zone": turns * (np.abs(rank - middle) <= width) + rng.normal(0, 0.02, n),
        "step": (table[0] > 0.3) * 1.0 + rng.normal(0, 0.1, n),
        "noise": rng.normal(size=n),
        "heavy": rng.standard_cauchy(n),
        "ties": rng.choice([-1.0, 1.0], n),
        "one row": np.eye(1, n, n // 2)[0],
        "mirrored": np.where(np.abs(np.argsort(np.argsort(table[0])) - n // 2) < n // 4, 1.0, 0.0),
        "all the same": np.ones(n),
    }[target]
    if criterion in (GINI, ENTROPY):
        a = (signal > 0.5).astype(np.int64) * (b if weighted else 1)
    else:
        a = np.rint(signal * (2.0**60 / np.abs(signal).sum() if seed % 2 else 1.0)).astype(np.int64)
    inside = rng.random(n) < (1.0 if seed % 3 else 0.99)
    penalty = float(rng.choice([0.0, 1.0, 1e6])) if criterion == NEWTON else 0.0
    limits = naive.SplitLimits(criterion, penalty=penalty, min_samples=int(rng.choice([1, 1, 20, n // 3])))
    return Task(table, a, b, inside, limits)


TARGETS = ["step", "noise", "heavy", "ties", "one row", "mirrored", "all the same", "inside a zone", "hidden inside a zone"]


@pytest.mark.parametrize(
    ("criterion", "target"), one_of_each(slow_for(KERNELS_OF_THEIR_OWN, [SQUARED_ERROR, GINI, ENTROPY, NEWTON]), TARGETS)
)
def test_large_nodes(criterion: str, target: str) -> None:
    """The split equals that of the full scan, of every column and of all, whatever part of a large node's rows is skipped."""
    cases = [(False, 0.0), (True, 0.0), (False, 0.2), (True, 0.9), (False, 0.0), (True, 0.01), (False, 0.0), (False, 0.0), (True, 0.0)]
    for seed, (weighted, missing) in enumerate(cases):
        task = large_task(criterion, target, weighted, missing, seed)
        rows = np.flatnonzero(task.inside)
        b = task.h[rows] if weighted else np.ones(rows.shape[0], np.int64)
        answers = [naive.full_scan(x[rows], j, task.g[rows], b, task.limits) for j, x in enumerate(task.table)]
        found = search_of(task, seed)
        scores = np.where(found.records["status"] == SPLIT, found.records["score"], -1.0)
        for j, answer in enumerate(answers):
            alone = search_of(task._replace(table=[task.table[j]]), seed)
            alone.records["column"] = j
            assert same(candidate(alone, 0), comparable(answer))
        # Of several columns only the best must be found: the search of a column that cannot win may stop early.
        top = max((answer for answer in answers if answer[1]), key=lambda answer: answer[1].score, default=None)
        assert (scores.max() >= 0) == (top is not None)
        if top is not None:
            assert same(best_of(found), comparable(top))


@every_kind
@given(data=st.data(), random=st.booleans())
def test_rows_divide_as_the_threshold_says(kind: str, data: st.DataObject, random: bool) -> None:
    """By value or by code, with missing values on their side: the number of rows and the sums equal those of the search."""
    task = data.draw(KINDS[kind](max_rows=60, random=random and kind != "others"))
    columns = presort(task.table)
    found = search(task, columns)
    for j in np.flatnonzero(found.records["status"] == SPLIT):
        values, codes = task.table[j].astype(np.float64), columns.codes[j].astype(np.int64)
        threshold, cut, to_left, n_left = found.records[["threshold", "cut", "missing_left", "n_left"]][j]
        by_value = np.where(np.isnan(values), to_left, values <= threshold) & task.inside
        by_code = np.where(codes == columns.distinct(j).shape[0], to_left, codes <= cut) & task.inside
        assert np.array_equal(by_value, by_code)
        assert by_value.sum() == n_left
        b = task.h.tolist() or None
        assert tuple(found.left[j]) == naive.node_sums(np.flatnonzero(by_value).tolist(), task.g.tolist(), b, task.limits.n_classes)


@by_sums
@given(data=st.data())
@examples(200)
def test_no_split_is_better_but_for_rounding(kind: str, data: st.DataObject) -> None:
    """Compared with fractions, over every allowed split."""
    task = data.draw(KINDS[kind](max_rows=20))
    lists, rows = as_lists(task.table), np.flatnonzero(task.inside).tolist()
    a, b, limits = task.g.tolist(), task.h.tolist() or None, task.limits
    total = naive.node_sums(rows, a, b, limits.n_classes)
    status, best = best_of(search_of(task))
    splits = [split for j, x in enumerate(lists) for split in naive.every_split(x, j, rows, a, b, limits)]
    if not splits:
        assert status != SPLIT
        return
    gains = [float(naive.exact_gain(split.left, total, limits)) for split in splits]
    slack = max(rounding_error(split.left, total, limits, gain) for split, gain in zip(splits, gains, strict=True))
    if best is None:
        assert max(gains) <= max(limits.min_gain, 0.0) + slack or all(naive.is_constant(x, rows) for x in lists)
        return
    chosen = float(naive.exact_gain(best.left, total, limits))
    assert chosen >= max(gains) - slack
    assert best.gain == pytest.approx(chosen, rel=1e-9, abs=slack)
    if math.isfinite(best.threshold):
        x = [lists[best.column][i] for i in rows]
        below, above = [v for v in x if v <= best.threshold], [v for v in x if v > best.threshold]
        assert max(below) <= best.threshold < min(above)


def rounding_error(left: tuple[int, ...], total: tuple[int, ...], limits: naive.SplitLimits, gain: float) -> float:
    """An upper bound of the error of the float gain of a split."""
    if limits.criterion == ENTROPY or limits.n_classes:
        return 1e-13 * sum(total)
    right = naive.subtract(total, left)
    (x, a), (y, b) = ((float(g), float(Fraction(h) + Fraction(limits.penalty))) for g, h in (left, right))
    d_error = 1e-15 * (abs(x) * b + abs(y) * a)
    d = abs(x * b - y * a) + d_error
    node = 1e-15 * (x * x / a + y * y / b) if limits.penalty else 0.0
    return 2.0 * (2 * d * d_error / (a * b * (a + b)) + node + 1e-15 * gain)


def stump_thresholds(x: NDArray[Any], n: int) -> NDArray[np.float64]:
    """Random thresholds of one column for many identities."""
    columns = presort([x])
    limits = package_limits(naive.SplitLimits(SQUARED_ERROR, random=True))
    m = x.shape[0]
    partition = RowPartition(np.arange(m, dtype=np.uint32), np.arange(m), np.empty(0, np.int64))
    out = empty_candidates(n, 2)
    pairs = np.stack([np.arange(n), np.zeros(n, np.int64)], axis=1)
    sums, paths = np.tile([m * (m - 1) // 2, m], (n, 1)), np.arange(n).astype(np.uint64)
    nodes = NodesOfTree(partition, np.zeros(n, np.int64), np.full(n, m), sums, paths, KEY)
    search_many(columns, np.zeros(1, np.int32), pairs, 0, n, nodes, limits, make_scratch(m, m, 0), out)
    assert np.all(out.records["status"] == SPLIT)
    assert out.records["n_left"].tolist() == [(x <= t).sum() for t in out.records["threshold"]]
    return out.records["threshold"]


def test_random_thresholds_are_uniform() -> None:
    thresholds = stump_thresholds(np.array([-3.0, 0.0, 5.0]), 4000)
    assert -3.0 <= thresholds.min() < -2.9
    assert 4.9 < thresholds.max() < 5.0
    assert np.histogram(thresholds, bins=8, range=(-3, 5))[0] / 4000 == pytest.approx(np.full(8, 1 / 8), abs=0.025)


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.0, np.nextafter(1.0, 2)]),
        np.array([-np.finfo(float).max, np.finfo(float).max]),
        np.array([0.0, 5e-324]),
        np.array([-5e-324, 0.0, 5e-324]),
        np.array([np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))], np.float32),
    ],
)
def test_random_thresholds_lie_between(x: NDArray[Any]) -> None:
    thresholds = stump_thresholds(x, 200)
    assert np.all((x.min() <= thresholds) & (thresholds < x.max()))


def test_midpoints() -> None:
    largest = np.finfo(float).max
    assert midpoint(1.0, 3.0) == 2.0
    assert midpoint(-largest, largest) == 0.0
    assert midpoint(largest / 2, largest) == 0.75 * largest
    for low in (1.0, -1.0, 5e-324, -1e-323, 1e300, np.nextafter(2.0, 1.0)):
        high = np.nextafter(low, math.inf)
        assert low <= midpoint(low, high) < high


def test_order_of_candidates() -> None:
    """Larger score, then lower column, in whatever order they come."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = 12
        found = empty_candidates(n, 2)
        found.records["status"] = rng.integers(0, 3, n)
        found.records["score"] = rng.integers(0, 2, n)
        found.records["column"] = rng.permutation(n)
        nodes = rng.integers(0, 3, n)
        best = empty_candidates(3, 2)
        best_by_node(found, nodes, best)
        keys = [
            (status, score if status == SPLIT else 0.0, -column)
            for status, score, column in found.records[["status", "score", "column"]].tolist()
        ]
        for k in range(3):
            status, score, column = max((key for key, node in zip(keys, nodes, strict=True) if node == k), default=(CONSTANT, 0.0, 1))
            assert best.records["status"][k] == status
            if status == SPLIT:
                assert best.records[["score", "column"]][k].tolist() == (score, -column)


def test_sizes_of_blocks() -> None:
    """Large if columns are few, even larger if nothing is sorted; none if nearly all the work would be on columns not drawn."""
    assert block_rows(False, 1, 2000) == BLOCK_ROWS
    assert block_rows(False, 1, 100) == BLOCK_CELLS // 100
    assert block_rows(False, 1, 3) == MOST_BLOCK_ROWS
    assert block_rows(True, 28, 28) > 2 * BLOCK_ROWS
    assert block_rows(True, 2000, 2000) == BLOCK_ROWS
    assert block_rows(True, 45, 2000) == 0
