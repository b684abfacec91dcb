"""Numbers, row ranges and block losses of the rows of a whole table that are spread over shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.scoring import BLOCK_ROWS, sums_by_block
from dtrees.engine.plan.plans import Loss, Scoring
from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.rows.steps import BlockLosses

#: The first row of each range and the row after its last: an array of shape (n, 2), or pairs.
Ranges = NDArray[np.int64] | Sequence[tuple[int, int]]


def rows_of(ranges: Ranges) -> NDArray[np.int64]:
    """Return the numbers of the rows in ranges, one after the other.

    Examples
    --------
    >>> rows_of([(5, 7), (1, 2)]).tolist()
    [5, 6, 1]
    """
    return np.concatenate([np.empty(0, np.int64), *(np.arange(first, last) for first, last in ranges)])


def in_order(chunks: Sequence[NDArray[Any]], ranges: Iterable[Ranges], n_rows: int) -> NDArray[Any]:
    """Return values of all rows of a table in row order, given the values that each shard has.

    Examples
    --------
    >>> in_order([np.array([5, 6]), np.array([7])], [[(1, 2), (2, 3)], [(0, 1)]], 3).tolist()
    [7, 5, 6]
    """
    whole = np.empty((n_rows, *chunks[0].shape[1:]), np.result_type(*(chunk.dtype for chunk in chunks)))
    for chunk, own in zip(chunks, ranges, strict=True):
        begin = 0
        for first, last in own:
            whole[first:last] = chunk[begin : begin + last - first]
            begin += last - first
    return whole


class AllRows:
    """Targets and weights of all rows, or of some, by which predictions of shards are combined and scored.

    Parameters
    ----------
    target, weight : ndarray
        Values of all rows, targets as losses take them; ``weight`` may be None.
    rows : sequence of ndarray of int64
        The rows of each shard.
    some : ndarray of bool, shape (n_rows,), optional
        The rows that are used; by default all.
    """

    def __init__(
        self,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        rows: Sequence[NDArray[np.int64]],
        some: NDArray[np.bool_] | None = None,
    ) -> None:
        self._target, self._weight, self._places = target, weight, list(rows)
        if some is not None:
            self._target, self._weight = target[..., some], None if weight is None else weight[some]
            place = np.cumsum(some) - 1
            self._places = [place[mine[some[mine]]] for mine in rows]

    def _together(self, sent: Sequence[Arrays]) -> NDArray[np.float64]:
        """Combine the raw predictions that the shards sent for their own rows; shape (K, n)."""
        raw = np.empty((sent[0][0].shape[0], self._target.shape[-1]))
        for places, (own,) in zip(self._places, sent, strict=True):
            raw[:, places] = own
        return raw

    def score(self, scoring: Scoring, sent: Sequence[Arrays]) -> float:
        """Return the score of the raw predictions of all shards."""
        return scoring.score(self._target, self._together(sent), self._weight)

    def losses_of_round(self, loss: Loss, sent: Sequence[Arrays]) -> list[Loss]:
        """Return, for the rows of each shard, the loss of the round that starts from these raw predictions, computed from all rows."""
        of_round = loss.for_round(self._target, self._together(sent), self._weight)
        return [of_round.of_rows(places) for places in self._places]


class SharedLosses(NamedTuple):
    """Losses of rows in blocks that a range contains only in part.

    Attributes
    ----------
    parts : list of int
        The parts of the scores that have any losses.
    chunks : list of (int, ndarray of float64, shape (len(parts), m))
        The first row of each chunk, and the losses of the chunk.
    """

    parts: list[int]
    chunks: list[tuple[int, NDArray[np.float64]]]

    def sent(self, elsewhere: dict[int, int]) -> dict[int, tuple[NDArray[np.float64], ...]]:
        """Remove the chunks of blocks that begin on other shards; return for each such shard the first rows and losses of its chunks."""
        gone = [one for one in self.chunks if one[0] in elsewhere]
        self.chunks[:] = [one for one in self.chunks if one[0] not in elsewhere]
        return {
            shard: (np.array([first for first, _ in own], np.int64), *(chunk for _, chunk in own))
            for shard in sorted({elsewhere[first] for first, _ in gone})
            if (own := [one for one in gone if elsewhere[one[0]] == shard])
        }


def in_blocks(by_part: Sequence[NDArray[np.float64] | None], ranges: NDArray[np.int64], n_rows: int) -> tuple[BlockLosses, SharedLosses]:
    """Add up the losses of the rows in some ranges by whole blocks, and also return the losses of rows in incomplete blocks.

    ``n_rows`` is the size of the table; ``by_part`` is as returned by
    :meth:`~dtrees.engine.shard.targets.boosting_target.BoostingTarget.losses_by_part`.
    """
    there = {number: part for number, part in enumerate(by_part) if part is not None}
    shared = SharedLosses(list(there), [])
    blocks, sums, at = [np.empty(0, np.int64)], [np.empty((0, len(by_part)))], 0
    for first, last in ranges.tolist():
        begin = min(-(-first // BLOCK_ROWS) * BLOCK_ROWS, last)
        end = last if last == n_rows else max(begin, last // BLOCK_ROWS * BLOCK_ROWS)
        if begin == last:  # the range lies within a block
            end = begin
        for one, other in ((first, begin), (end, last)):
            if one < other:
                rows = slice(at + one - first, at + other - first)
                shared.chunks.append((one, np.stack([part[rows] for part in there.values()])))
        if begin < end:
            rows = slice(at + begin - first, at + end - first)
            blocks.append(np.arange(begin // BLOCK_ROWS, -(-end // BLOCK_ROWS)))
            sums.append(sums_by_block([None if part is None else part[rows] for part in by_part]))
        at += last - first
    return BlockLosses(np.concatenate(blocks), np.concatenate(sums)), shared


def shared_blocks(ranges: Sequence[NDArray[np.int64]]) -> list[tuple[dict[int, int], list[int]]]:
    """Return, for each shard, which of its ranges begin within a block of another shard, as a mapping from first row to that shard.

    Also return, for each shard, the others that have rows of blocks that begin on it.

    Examples
    --------
    >>> shared_blocks([np.array([[0, 9000]]), np.array([[9000, 9010], [9020, 20000]]), np.array([[9010, 9020]])])
    [({}, [1, 2]), ({9000: 0, 9020: 0}, []), ({9010: 0}, [])]
    """
    ranges = [some[some[:, 0] < some[:, 1]] for some in ranges]
    first = np.concatenate([some[:, 0] for some in ranges])
    shard = np.repeat(np.arange(len(ranges)), [some.shape[0] for some in ranges])
    order = np.argsort(first)
    first, shard = first[order], shard[order]
    begins = shard[np.searchsorted(first, first // BLOCK_ROWS * BLOCK_ROWS, side="right") - 1]
    elsewhere: list[dict[int, int]] = [{} for _ in ranges]
    helpers: list[set[int]] = [set() for _ in ranges]
    for row, own, other in zip(first.tolist(), shard.tolist(), begins.tolist(), strict=True):
        if own != other:
            elsewhere[own][row] = other
            helpers[other].add(own)
    return [(rows, sorted(some)) for rows, some in zip(elsewhere, helpers, strict=True)]


def add_shared_blocks(losses: BlockLosses, shared: SharedLosses, sent: Sequence[tuple[NDArray[np.float64], ...]]) -> BlockLosses:
    """Add the losses of incomplete blocks, combined with the missing chunks that other shards have sent."""
    chunks = [*shared.chunks, *(one for first, *some in sent for one in zip(first.tolist(), some, strict=True))]
    by_block: dict[int, list[tuple[int, NDArray[np.float64]]]] = {}
    for first, chunk in chunks:
        by_block.setdefault(first // BLOCK_ROWS, []).append((first, chunk))
    sums = np.zeros((len(by_block), losses.sums.shape[1]))
    for of_block, own in zip(sums, by_block.values(), strict=True):
        whole = np.concatenate([chunk for _, chunk in sorted(own, key=lambda one: one[0])], axis=1)
        of_block[shared.parts] = sums_by_block(list(whole))[0]
    block = np.array(list(by_block), np.int64)
    return BlockLosses(np.concatenate([losses.block, block]), np.concatenate([losses.sums, sums]))
