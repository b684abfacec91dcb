"""Sets of categories found from the rows of left children, against those of all these rows."""

from __future__ import annotations

import numpy as np
import pytest

from dtrees.engine.outcome.values import CategorySplits
from dtrees.engine.shard.row_division import find_sets
from dtrees.split.table.columns import presort
from dtrees.tree.category_sets import CategorySets


def _splits(stretches, codes, rows):
    start, stop = np.array(stretches, np.int64).T
    n_left = [np.unique(codes[rows[first:last]]).shape[0] for first, last in stretches]
    node = np.arange(len(stretches))
    return CategorySplits(node, np.zeros(len(stretches), np.int32), np.array(n_left, np.float64), start, stop)


@pytest.mark.parametrize("in_order", [False, True])
def test_sets_are_those_of_all_rows_wherever_they_lie(in_order):
    """Rows may lie in the order of their categories, as those of a node do that was split further; one category has a single row."""
    random = np.random.default_rng(0)
    values = random.integers(0, 70, 3000).astype(np.float32)
    values[values == 69] = 68
    values[1234] = 69
    values[::50] = np.nan
    columns = presort([values])
    codes = columns.codes[0]
    rows = np.argsort(codes, kind="stable").astype(np.uint32) if in_order else random.permutation(3000).astype(np.uint32)
    stretches = [(0, 3000), (0, 1), (5, 9), (1000, 1063), (1000, 1064), (1000, 1065), (2000, 3000), (17, 2999)]
    found = find_sets(columns, np.zeros(len(stretches), np.int64), rows, _splits(stretches, codes, rows))
    wanted = [values[rows[first:last]] for first, last in stretches]
    assert found.equals(CategorySets.of(np.arange(len(stretches)), [np.unique(some[~np.isnan(some)]).astype(np.int64) for some in wanted]))
