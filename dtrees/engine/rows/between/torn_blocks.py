"""Losses of blocks of rows whose rows are not all on one shard: they go to the shard with the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS, sums_by_block
from dtrees.engine.rows.steps import BlockLosses


class Torn(NamedTuple):
    """Losses of rows in blocks of which a stretch has not all rows.

    Attributes
    ----------
    parts : list of int
        Of which parts there are any.
    pieces : list of (int, ndarray of float64, shape (len(parts), m))
        The first row of each piece, and its losses.
    """

    parts: list[int]
    pieces: list[tuple[int, NDArray[np.float64]]]

    def sent(self, elsewhere: dict[int, int]) -> dict[int, tuple[NDArray[np.float64], ...]]:
        """Return what goes to other shards: the first rows, and the losses of each; forget it here."""
        gone = [one for one in self.pieces if one[0] in elsewhere]
        self.pieces[:] = [one for one in self.pieces if one[0] not in elsewhere]
        return {
            shard: (np.array([first for first, _ in own], np.int64), *(piece for _, piece in own))
            for shard in sorted({elsewhere[first] for first, _ in gone})
            if (own := [one for one in gone if elsewhere[one[0]] == shard])
        }


def in_blocks(by_part: Sequence[NDArray[np.float64] | None], stretches: NDArray[np.int64], n_rows: int) -> tuple[BlockLosses, Torn]:
    """Add up the losses of the rows of some stretches of a table of ``n_rows`` rows, in whole blocks; return also those of other blocks.

    ``by_part`` is as of :meth:`~dtrees.engine.shard.targets.boosting_target.BoostingTarget.losses_by_part`.
    """
    there = {number: part for number, part in enumerate(by_part) if part is not None}
    torn = Torn(list(there), [])
    blocks, sums, at = [np.empty(0, np.int64)], [np.empty((0, len(by_part)))], 0
    for first, last in stretches.tolist():
        begin = min(-(-first // BLOCK_ROWS) * BLOCK_ROWS, last)
        end = last if last == n_rows else max(begin, last // BLOCK_ROWS * BLOCK_ROWS)
        if begin == last:  # within a block
            end = begin
        for one, other in ((first, begin), (end, last)):
            if one < other:
                rows = slice(at + one - first, at + other - first)
                torn.pieces.append((one, np.stack([part[rows] for part in there.values()])))
        if begin < end:
            rows = slice(at + begin - first, at + end - first)
            blocks.append(np.arange(begin // BLOCK_ROWS, -(-end // BLOCK_ROWS)))
            sums.append(sums_by_block([None if part is None else part[rows] for part in by_part]))
        at += last - first
    return BlockLosses(np.concatenate(blocks), np.concatenate(sums)), torn


def meetings(stretches: Sequence[NDArray[np.int64]]) -> list[tuple[dict[int, int], list[int]]]:
    """Return, for each shard, the first rows of its stretches within blocks that begin on another shard, and that one.

    Beside it, the shards that have rows of blocks that begin on this one.

    Examples
    --------
    >>> meetings([np.array([[0, 9000]]), np.array([[9000, 9010], [9020, 20000]]), np.array([[9010, 9020]])])
    [({}, [1, 2]), ({9000: 0, 9020: 0}, []), ({9010: 0}, [])]
    """
    stretches = [some[some[:, 0] < some[:, 1]] for some in stretches]
    first = np.concatenate([some[:, 0] for some in stretches])
    shard = np.repeat(np.arange(len(stretches)), [some.shape[0] for some in stretches])
    order = np.argsort(first)
    first, shard = first[order], shard[order]
    begins = shard[np.searchsorted(first, first // BLOCK_ROWS * BLOCK_ROWS, side="right") - 1]
    elsewhere: list[dict[int, int]] = [{} for _ in stretches]
    helpers: list[set[int]] = [set() for _ in stretches]
    for row, own, other in zip(first.tolist(), shard.tolist(), begins.tolist(), strict=True):
        if own != other:
            elsewhere[own][row] = other
            helpers[other].add(own)
    return [(rows, sorted(some)) for rows, some in zip(elsewhere, helpers, strict=True)]


def put_together(losses: BlockLosses, torn: Torn, sent: Sequence[tuple[NDArray[np.float64], ...]]) -> BlockLosses:
    """Return the losses with those of torn blocks, of which other shards have sent the pieces that are missing here."""
    pieces = [*torn.pieces, *(one for first, *some in sent for one in zip(first.tolist(), some, strict=True))]
    by_block: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for first, piece in pieces:
        by_block.setdefault(first // BLOCK_ROWS, []).append((first, piece))
    sums = np.zeros((len(by_block), losses.sums.shape[1]))
    for of_block, own in zip(sums, by_block.values(), strict=True):
        whole = np.concatenate([piece for _, piece in sorted(own, key=lambda one: one[0])], axis=1)
        of_block[torn.parts] = sums_by_block(list(whole))[0]
    block = np.array(list(by_block), np.int64)
    return BlockLosses(np.concatenate([losses.block, block]), np.concatenate([losses.sums, sums]))
