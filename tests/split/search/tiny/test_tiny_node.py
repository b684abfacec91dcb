"""Nodes of few rows, all columns side by side: bit for bit against trying every split.

The kernel that searches such a node alone takes long to compile, so that these tests are slow ones: in every run, whole trees, which end in
such nodes, are compared with trees grown by the book (test_naive_trees.py).
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.node.records import NO_SPLIT, SPLIT
from dtrees.split.policy import TINY_ROWS
from tests import naive
from tests.examples import examples
from tests.naive import ENTROPY, GINI, SQUARED_ERROR
from tests.slow import KERNELS_OF_THEIR_OWN, thorough_for
from tests.split.blocks import expected_of_drawn, search_in_block
from tests.split.nodes import same
from tests.split.strategies import Task, criteria_by_sums, tasks


@pytest.mark.slow
@pytest.mark.parametrize("criterion", thorough_for(KERNELS_OF_THEIR_OWN, criteria_by_sums()))
@given(data=st.data())
@examples(200)
def test_the_best_of_the_columns_drawn(criterion: str, data: st.DataObject) -> None:
    task = data.draw(tasks(max_rows=TINY_ROWS, max_columns=6, criteria=(criterion,)))
    n_columns = len(task.table)
    pool = np.array(sorted(data.draw(st.sets(st.integers(0, n_columns - 1), min_size=1))), np.int32)
    max_features = data.draw(st.integers(1, pool.shape[0]))
    assert same(search_in_block(task, max_features, pool), expected_of_drawn(task, max_features, pool))


def continuous(n: int, n_columns: int, criterion: str, n_classes: int, weighted: bool, missing: float, seed: int) -> Task:
    """Columns without ties, as many as several vectors hold; some rows of the block are not in the node."""
    rng = np.random.default_rng(seed)
    m = n + 3
    table = [rng.normal(size=m) for _ in range(n_columns)]
    for column in table[1::2]:
        column[rng.random(m) < missing] = np.nan
    b = rng.integers(1, 2**20, m) if weighted else np.empty(0, np.int64)
    if n_classes:
        a = rng.integers(0, n_classes, m)
    elif criterion in (GINI, ENTROPY):
        a = rng.integers(0, 2, m) * (b if weighted else 1)
    else:
        a = rng.integers(-(2**40), 2**40, m)
    inside = np.zeros(m, np.bool_)
    inside[rng.permutation(m)[:n]] = True
    limits = naive.SplitLimits(criterion, n_classes, min_samples=int(rng.choice([1, 1, 1 + n // 3])))
    return Task(table, a, b, inside, limits)


#: Two classes by Gini are searched as numbers are, more of them by kernels of their own, as within trees.
CASES = thorough_for({ENTROPY}, [(SQUARED_ERROR, 0), (GINI, 0), (GINI, 4), (ENTROPY, 0), (ENTROPY, 4)])


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_number_of_rows_and_many_columns(criterion: str, n_classes: int, weighted: bool) -> None:
    n_split = 0
    for seed, n in enumerate([*range(1, TINY_ROWS + 1)] * 2):
        task = continuous(n, [1, 7, 19, 33][seed % 4], criterion, n_classes, weighted, 0.3 * (seed % 3 == 0), seed)
        pool = np.arange(len(task.table), dtype=np.int32)
        for max_features in {1, 1 + len(pool) // 3, len(pool)}:
            answer = search_in_block(task, max_features, pool)
            assert same(answer, expected_of_drawn(task, max_features, pool))
            n_split += answer[0] == SPLIT
    assert n_split > 40


@pytest.mark.slow
def test_more_classes_than_rows() -> None:
    task = continuous(9, 5, GINI, 300, False, 0.0, 3)
    pool = np.arange(5, dtype=np.int32)
    assert same(search_in_block(task, 5, pool), expected_of_drawn(task, 5, pool))


@pytest.mark.slow
def test_two_rows() -> None:
    """They part alike in every column in which they differ, missing or not: the lowest counts."""
    nan = np.nan
    table = [np.array(x) for x in ([1.0, 1.0], [nan, nan], [2.0, nan], [3.0, 4.0])]
    task = Task(table, np.array([5, 7]), np.empty(0, np.int64), np.ones(2, np.bool_), naive.SplitLimits(SQUARED_ERROR))
    pool = np.arange(4, dtype=np.int32)
    status, split = search_in_block(task, 4, pool)
    assert status == SPLIT
    assert split is not None
    assert (split.column, split.threshold, split.missing_left) == (2, np.inf, False)
    task = task._replace(limits=naive.SplitLimits(SQUARED_ERROR, min_samples=2))
    assert search_in_block(task, 4, pool)[0] == NO_SPLIT
    assert search_in_block(task._replace(table=table[:2]), 2, pool[:2]) == expected_of_drawn(task._replace(table=table[:2]), 2, pool[:2])


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 9, TINY_ROWS])
def test_cells_of_float32(n: int) -> None:
    """A block keeps values in the columns' own type; thresholds are those of float64 all the same."""
    task = continuous(n, 9, SQUARED_ERROR, 0, False, 0.2, n)
    task = task._replace(table=[column.astype(np.float32) for column in task.table], limits=naive.SplitLimits(SQUARED_ERROR))
    pool = np.arange(9, dtype=np.int32)
    for max_features in (3, 9):
        answer = search_in_block(task, max_features, pool)
        assert answer[0] == SPLIT
        assert same(answer, expected_of_drawn(task, max_features, pool))
