"""The mean losses of boosting, on training rows and on held-out rows.

Losses are added up within *blocks* of rows, and then over blocks. The floating-point sums are therefore the same to the last bit, whichever
shards sum which blocks. A shard of columns has the predictions of all rows, and sums a share of the blocks. A shard of rows sums the blocks
whose rows it has, and sends the losses of other rows to the shard that has the first row of their block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Losses, Scores
from dtrees.split.numbers.fixed_point import add_up_blocks

#: Number of rows of a block.
BLOCK_ROWS = 8192
#: A row, and the losses of consecutive rows from it on, shape (n_parts, n).
Chunk = tuple[int, NDArray[np.float64]]


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
    """Return the number of blocks of some rows, of which the last may be incomplete."""
    return -(-n_rows // BLOCK_ROWS)


def scores_of(losses: Sequence[Losses]) -> Scores:
    """Return the mean losses, given the sums of all blocks."""
    first = losses[0]
    every = first.sums.tolist() if len(losses) == 1 else [sums for share in losses for sums in share.sums.tolist()]
    if numbers := [share.block for share in losses if share.block is not None]:
        every = [every[i] for i in np.argsort(np.concatenate(numbers)).tolist()]
    totals, *blocks = every
    for sums in blocks:
        totals = [total + more for total, more in zip(totals, sums, strict=True)]
    scores = Scores(*[total / weight if weight > 0 else math.nan for total, weight in zip(totals, first.weights.tolist(), strict=True)])
    return scores if first.score is None else scores._replace(validation=first.score)


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


def in_blocks(
    by_part: Sequence[NDArray[np.float64] | None], ranges: NDArray[np.int64], n_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], list[Chunk]]:
    """Add up the losses of the rows in some ranges by whole blocks.

    Return the numbers of these blocks, their sums, shape (n, n_parts), and the losses of the rows in incomplete blocks.

    ``n_rows`` is the size of the table; ``by_part`` is as returned by
    :meth:`~dtrees.engine.shard.targets.boosting_target.BoostingTarget.losses_by_part`.
    """
    blocks, sums, chunks, at = [np.empty(0, np.int64)], [np.empty((0, len(by_part)))], list[Chunk](), 0
    for first, last in ranges.tolist():
        begin = min(_n_blocks(first) * BLOCK_ROWS, last)
        end = last if last == n_rows else max(begin, last // BLOCK_ROWS * BLOCK_ROWS)
        for one, other in ((first, begin), (end, last)):
            if one < other:
                rows = slice(at + one - first, at + other - first)
                chunks.append((one, np.stack([np.zeros(other - one) if part is None else part[rows] for part in by_part])))
        if begin < end:
            rows = slice(at + begin - first, at + end - first)
            blocks.append(np.arange(begin // BLOCK_ROWS, _n_blocks(end)))
            sums.append(sums_by_block([None if part is None else part[rows] for part in by_part]))
        at += last - first
    return np.concatenate(blocks), np.concatenate(sums), chunks


def owners_of_blocks(ranges: Sequence[NDArray[np.int64]], n_rows: int) -> NDArray[np.int64]:
    """Return the shard that has the first row of each block.

    Examples
    --------
    >>> ranges = [np.array([[0, 9000]]), np.array([[9000, 9010], [9020, 20000]]), np.array([[9010, 9020]])]
    >>> owners_of_blocks(ranges, 20_000).tolist()
    [0, 0, 1]
    """
    first, shard = np.concatenate(ranges)[:, 0], np.repeat(np.arange(len(ranges)), [some.shape[0] for some in ranges])
    order = np.argsort(first)
    return shard[order[np.searchsorted(first[order], np.arange(0, n_rows, BLOCK_ROWS), side="right") - 1]]


def sum_chunks(chunks: Iterable[Chunk]) -> tuple[list[int], list[NDArray[np.float64]]]:
    """Return the numbers of some blocks, and their sums, given all chunks of their losses."""
    by_block: dict[int, list[NDArray[np.float64]]] = {}
    for first, chunk in sorted(chunks, key=lambda one: one[0]):
        by_block.setdefault(first // BLOCK_ROWS, []).append(chunk)
    return list(by_block), [sums_by_block(list(np.concatenate(some, axis=1)))[0] for some in by_block.values()]
