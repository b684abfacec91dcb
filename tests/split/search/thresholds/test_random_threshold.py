"""Random thresholds in a block, all columns side by side: bit for bit against drawing them one by one.

As with tiny nodes, this takes kernels of its own, and whole trees with random thresholds are grown by the book in every run.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtrees.split.grow.block import block_rows
from dtrees.split.node.records import SPLIT
from dtrees.split.policy import BLOCK_CELLS, BLOCK_ROWS, MOST_BLOCK_ROWS
from tests.examples import examples
from tests.naive import ENTROPY, GINI, NEWTON, SQUARED_ERROR
from tests.slow import KERNELS_OF_THEIR_OWN, thorough_for
from tests.split.blocks import expected_of_drawn, search_in_block
from tests.split.nodes import same
from tests.split.search.tiny.test_tiny_node import continuous
from tests.split.strategies import criteria_by_sums, tasks

#: A criterion has no more to do here than to score a split: of those with kernels of their own, one is enough. Whole trees try them all.
FEW = sorted(set(criteria_by_sums()) - KERNELS_OF_THEIR_OWN | {ENTROPY})


@pytest.mark.slow
@pytest.mark.parametrize("criterion", thorough_for(KERNELS_OF_THEIR_OWN, FEW))
@given(data=st.data())
@examples(200)
def test_the_best_of_the_columns_drawn(criterion: str, data: st.DataObject) -> None:
    task = data.draw(tasks(max_rows=25, max_columns=6, random=True, criteria=(criterion,)))
    n_columns = len(task.table)
    pool = np.array(sorted(data.draw(st.sets(st.integers(0, n_columns - 1), min_size=1))), np.int32)
    max_features = data.draw(st.integers(1, pool.shape[0]))
    assert same(search_in_block(task, max_features, pool), expected_of_drawn(task, max_features, pool))


CASES = thorough_for({ENTROPY}, [(SQUARED_ERROR, 0), (NEWTON, 0), (GINI, 0), (GINI, 4), (ENTROPY, 0), (ENTROPY, 4)])


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "n_classes"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_larger_nodes_of_many_columns(criterion: str, n_classes: int, weighted: bool) -> None:
    n_split = 0
    for seed, n in enumerate([2, 3, 17, 40, 129, 300]):
        task = continuous(n, [1, 7, 19, 33][seed % 4], criterion, n_classes, weighted, 0.3 * (seed % 3 == 0), seed)
        task = task._replace(limits=task.limits._replace(random=True))
        pool = np.arange(len(task.table), dtype=np.int32)
        for max_features in {1 + len(pool) // 3, len(pool)}:
            answer = search_in_block(task, max_features, pool)
            assert same(answer, expected_of_drawn(task, max_features, pool))
            n_split += answer[0] == SPLIT
    assert n_split > 5


def test_sizes_of_blocks() -> None:
    """Large where columns are few, more so where nothing is sorted; none where nearly all of the work would be on columns not drawn."""
    assert block_rows(False, 1, 2000) == BLOCK_ROWS
    assert block_rows(False, 1, 100) == BLOCK_CELLS // 100
    assert block_rows(False, 1, 3) == MOST_BLOCK_ROWS
    assert block_rows(True, 28, 28) > 2 * BLOCK_ROWS
    assert block_rows(True, 2000, 2000) == BLOCK_ROWS
    assert block_rows(True, 45, 2000) == 0
