"""Rows spread anew when workers join a fit where rows stay: newcomers take partitions over from the workers that have most of the rows.

It is a loss that was planned. Newcomers load partitions as a worker does that takes a lost one's place, and then the finished trees are
replayed on all shards, if the fit has that done after a loss (:mod:`dtrees.engine.rows.fit`)::

    rows    a newcomer: the partitions that it takes over, from the user's data
    rows    a worker that gives: the rows that it keeps, out of its block, and in its place

If a worker is lost meanwhile, all stays as it was. The rows that a giving worker keeps are there twice for a moment; one that has no memory
for that gives none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dtrees.cluster.data.costs import seconds_beside_rows
from dtrees.cluster.data.memory import WorkerCapacity
from dtrees.cluster.data.row_blocks import ClusterRows, RowBlock, Stretch
from dtrees.cluster.errors import FitCancelled
from dtrees.cluster.growing.shards.joining.newcomers import Handover, Newcomers, exchange_blocks, share_within_memory
from dtrees.cluster.reliability.tasks import Tasks

logger = logging.getLogger("dtrees.cluster")

#: What a finished tree takes when it is replayed: for each row of a thread, and besides. Measured: 63 ns a row of depth 6.
_REPLAY_SECONDS_A_ROW, _REPLAY_SECONDS = 65e-9, 3e-3


class RowNewcomers(Newcomers[ClusterRows]):
    """Workers that joined, to be given partitions where it is worth while. These are numbered in the order of their rows.

    Parameters
    ----------
    n_trees : int
        That the fit is to have in all.
    replays : bool, default=True
        Whether the finished ones are replayed then.
    """

    def __init__(self, n_trees: int, *, replays: bool = True) -> None:
        super().__init__()
        self._n_trees, self._replays = n_trees, replays

    def _share(self, pieces: ClusterRows, capacities: Mapping[str, WorkerCapacity]) -> Handover:
        lengths, ids = _numbered(pieces.stretches)
        on_disk = pieces.encoding.is_on_disk

        def needed(worker: str, n_rows: int) -> int:
            return pieces.sizes.needed_for_rows(n_rows, min(capacities[worker].threads, pieces.n_columns), on_disk=on_disk)

        takes = {}
        for worker in self.there:
            base = needed(worker, 0)
            each = (needed(worker, pieces.n_rows) - base) / pieces.n_rows
            if not on_disk:  # all partitions that it is to load are there at once
                each += pieces.sizes.partition / max(lengths)
            takes[worker] = (capacities[worker].free - base) / each

        def needed_again(shard: int, some: Sequence[int], _: bool) -> int:
            return needed(pieces.workers[shard], sum(lengths[i] for i in some))

        return share_within_memory(ids, pieces.workers, lengths, capacities, takes, needed_again, has_place=False)

    def _costs(self, pieces: ClusterRows, handover: Handover, n_left: int) -> tuple[float, float, float]:
        replay = _REPLAY_SECONDS + _REPLAY_SECONDS_A_ROW * handover.after
        n_shards = len(pieces.workers)
        each_tree = seconds_beside_rows(n_shards + len(handover.given)) - seconds_beside_rows(n_shards)
        return _bytes_moved(pieces, handover), self._replays * (self._n_trees - n_left) * replay, each_tree


def hand_over(rows: ClusterRows, handover: Handover) -> list[int] | None:
    """Have newcomers take over partitions.

    Returns
    -------
    list of int, or None
        The shards that gave some; those of newcomers are at the end of ``rows``. None if a worker was lost meanwhile, if it took too long,
        or if the user's data cannot be loaded again: then all is as it was.
    """
    try:
        return _hand_over(rows, handover)
    except FitCancelled:
        raise
    except Exception as error:  # of the user's own code, perhaps; it is not needed, where the rows are there
        logger.warning("partitions could not be loaded by workers that joined: %s", error)
        return None


def _hand_over(rows: ClusterRows, handover: Handover) -> list[int] | None:
    _, ids = _numbered(rows.stretches)
    places = {i: (shard, place) for shard, some in enumerate(ids) for place, i in enumerate(some)}
    kept, taken = handover.kept(ids), handover.taken()
    with Tasks(rows.client) as tasks:
        blocks, stretches, parts, workers = list(rows.blocks), list(rows.stretches), list(rows.parts), [*rows.workers, *taken]
        for shard, some in kept.items():
            stretches[shard], parts[shard] = rows.partitions([places[i] for i in some])
            mine = [places[i][1] for i in some]
            there: dict[str, Any] = {"workers": [workers[shard]], "allow_other_workers": not rows.encoding.is_on_disk}
            blocks[shard] = tasks.submit("rows", _only, blocks[shard], mine, **there)
        for worker, some in taken.items():
            stretch, keys = rows.partitions([places[i] for i in some])
            stretches.append(stretch)
            parts.append(keys)
            blocks.append(rows.load(tasks, stretch, keys, worker))
        if not exchange_blocks(tasks, rows.blocks, blocks, workers, kept, _bytes_moved(rows, handover)):
            return None
    rows.blocks[:], rows.stretches[:], rows.parts[:], rows.workers[:] = blocks, stretches, parts, workers
    return list(kept)


def _numbered(stretches: Sequence[Sequence[Stretch]]) -> tuple[list[int], list[list[int]]]:
    """Return the lengths of all partitions, in the order of their rows, and which are of each shard.

    Examples
    --------
    >>> _numbered([[(0, 2), (5, 6)], [(2, 5)]])
    ([2, 3, 1], [[0, 2], [1]])
    """
    ordered = sorted((stretch, shard) for shard, some in enumerate(stretches) for stretch in some)
    ids: list[list[int]] = [[] for _ in stretches]
    for i, (_, shard) in enumerate(ordered):
        ids[shard].append(i)
    return [last - first for (first, last), _ in ordered], ids


def _bytes_moved(rows: ClusterRows, handover: Handover) -> float:
    return rows.sizes.table * handover.moved / rows.n_rows


def _only(block: RowBlock, places: Sequence[int]) -> RowBlock:
    return block.of_partitions(places)
