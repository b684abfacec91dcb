"""A block of all rows of a table is the same for every tree."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtrees.split.compile.kernels import kernel
from dtrees.split.grow.block import Block, fill_block, make_block
from dtrees.split.node.limits import BestThreshold, RandomThreshold
from dtrees.split.node.partition import RowPartition
from dtrees.split.search.scratch import make_scratch
from dtrees.split.table.columns import Columns, presort

TABLE = [np.array([3.0, 1.0, np.nan, 1.0, 2.0, 0.5] * 4), np.array([0.0, 1.0, 0.0, 2.0, 5.0, 4.0] * 4)]


@kernel
def _fill(columns, pool, partition, first, last, block, thresholds, scratch):  # type: ignore[no-untyped-def]
    fill_block(columns, pool, partition, np.empty(0), first, last, last, block, thresholds, scratch)


def fill(block: Block, columns: Columns, first: int, last: int, factor: int, random: bool) -> None:
    n = columns.n_rows
    partition = RowPartition(np.arange(n, dtype=np.uint32), factor * np.arange(n), np.empty(0, np.int64))
    scratch, thresholds = make_scratch(n, n, 0), RandomThreshold() if random else BestThreshold()
    _fill(columns, np.arange(columns.n_columns, dtype=np.int32), partition, first, last, block, thresholds, scratch)


def content(block: Block, n: int) -> list[NDArray[np.generic]]:
    return [np.array(x) for x in (block.keys[:, :n], block.places[:n], block.rows[:n], block.g[:n], block.cells[:n], block.has_missing)]


@pytest.mark.slow  # kernels of its own; trees of a forest are grown in one block by other tests
@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("before", [[], [(0, 24)], [(0, 24), (3, 9)], [(3, 9), (0, 24), (0, 24)]])
def test_whatever_it_held_before(before: list[tuple[int, int]], random: bool) -> None:
    """Also when a tree has divided the lists since, and when a smaller node has taken the place of all rows."""
    columns = presort(TABLE)
    blocks = [make_block(24, 0, False, np.arange(2, dtype=np.int32), columns, random, 0) for _ in range(2)]
    for first, last in before:
        fill(blocks[0], columns, first, last, 1, random)
        blocks[0].keys[:] = blocks[0].keys[:, ::-1].copy()
        blocks[0].places[:] = blocks[0].places[::-1].copy()
    for block in blocks:
        fill(block, columns, 0, 24, 2, random)
    for found, expected in zip(content(blocks[0], 24), content(blocks[1], 24), strict=True):
        np.testing.assert_array_equal(found, expected)
