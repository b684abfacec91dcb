"""The mean losses of boosting, on training rows and on held-out rows.

Losses are added up within *blocks* of rows, and then over blocks. The floating-point sums are therefore the same to the last bit, whichever
shards sum which blocks. A shard of columns has the predictions of all rows, and sums a share of the blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.split.numbers.fixed_point import add_up_blocks

#: Number of rows of a block.
BLOCK_ROWS = 8192


def sums_by_block(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64]:
    """Return the sums of losses by block, shape (n_blocks, n_parts). A block begins at the first row.

    ``parts`` has one array for each part of the scores, with the loss of each row, 0 for rows of other parts. None stands for zeros, but
    not for the first part.
    """
    assert parts[0] is not None
    sums = np.zeros((_n_blocks(parts[0].shape[0]), len(parts)))
    for column, losses in enumerate(parts):
        if losses is not None:
            add_up_blocks(losses, BLOCK_ROWS, sums, column)
    return sums


def _n_blocks(n_rows: int) -> int:
    return -(-n_rows // BLOCK_ROWS)


def scores_of(losses: Sequence[Losses]) -> Scores:
    """Return the mean losses, given the sums of all blocks."""
    every = [sums for share in losses for sums in share.sums.tolist()]
    if numbers := [share.block for share in losses if share.block is not None]:
        every = [every[i] for i in np.argsort(np.concatenate(numbers)).tolist()]
    totals, *blocks = every
    for sums in blocks:
        totals = [total + more for total, more in zip(totals, sums, strict=True)]
    scores = Scores(*[total / weight if weight > 0 else math.nan for total, weight in zip(totals, losses[0].weights.tolist(), strict=True)])
    return scores if losses[0].score is None else scores._replace(validation=losses[0].score)


def shares_of(n_rows: int, n_shares: int) -> list[tuple[int, int]]:
    """Divide rows into shares of whole blocks; return the first row of each share and the row after its last.

    Examples
    --------
    >>> shares_of(20_000, 2)
    [(0, 8192), (8192, 20000)]
    """
    n_blocks = _n_blocks(n_rows)
    bounds = [min(n_blocks * k // n_shares * BLOCK_ROWS, n_rows) for k in range(n_shares + 1)]
    return list(itertools.pairwise(bounds))
