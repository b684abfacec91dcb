"""The mean losses of boosting, of the rows trained on and of those held out.

Losses are added up within *blocks* of rows, and then over blocks. So the sums are the same, to the last bit, whoever adds up which blocks.
Every shard has the predictions of all rows, and adds up a share of the blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.split.numbers.fixed_point import add_up_blocks

#: Rows of a block.
BLOCK_ROWS = 8192


def sums_by_block(parts: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64]:
    """Return the losses of parts of some rows, the first of which begins a block, added up by blocks, shape (n_blocks, n_parts).

    ``parts`` are losses of all of these rows, 0 for those of other parts; None (but not for the first part) is 0 for all.
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
    """Return the mean losses, by those of all rows, in their order."""
    totals, *blocks = [block for share in losses for block in share.sums.tolist()]
    for sums in blocks:
        totals = [total + more for total, more in zip(totals, sums, strict=True)]
    scores = Scores(*[total / weight if weight > 0 else math.nan for total, weight in zip(totals, losses[0].weights.tolist(), strict=True)])
    return scores if losses[-1].score is None else scores._replace(validation=losses[-1].score)


def shares_of(n_rows: int, n_shares: int) -> list[tuple[int, int]]:
    """Divide rows into shares of whole blocks: the first row of each, and the one after its last.

    Examples
    --------
    >>> shares_of(20_000, 2)
    [(0, 8192), (8192, 20000)]
    """
    n_blocks = _n_blocks(n_rows)
    bounds = [min(n_blocks * k // n_shares * BLOCK_ROWS, n_rows) for k in range(n_shares + 1)]
    return list(itertools.pairwise(bounds))
