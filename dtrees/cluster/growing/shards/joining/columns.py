"""Columns spread anew when workers join a fit under way: newcomers take whole columns over from the workers that have most to do.

Columns go from worker to worker, and nobody holds the table twice::

    split      a worker that gives: some of its columns, as they lie in its block (nothing is copied there)
    columns    a newcomer: a chain of tasks, each of them puts some more columns into its block
    columns    a worker that gives: a block of the columns that it keeps, in place of the one before

If a worker is lost meanwhile, all stays as it was.

The columns that a giving worker keeps are there twice for a moment, and so are their zones. Where it has no memory for the columns, it
gives the last of them, and keeps those before where they lie: its block is then a part of the one before, of which nothing becomes free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import STATE_BYTES, ZONE_BYTES, WorkerCapacity
from dtrees.cluster.data.presorting import cut
from dtrees.cluster.growing.shards.joining.newcomers import Handover, Newcomers, exchange_blocks, share_within_memory
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.split.table.columns import Assembly, Columns

#: Bytes that a newcomer needs for each row, besides columns: state, target and weight.
_BYTES_PER_ROW = STATE_BYTES + 16
#: Tasks that a newcomer takes over the columns of a worker in: what is on its way at a time is this part of them.
_STEPS = 8


class ColumnNewcomers(Newcomers[ClusterColumns]):
    """Workers that joined, to be given columns where it is worth while.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each column.
    n_rows : int
    """

    def __init__(self, sizes: Sequence[int], n_rows: int) -> None:
        super().__init__()
        self._sizes = sizes
        self._n_rows = n_rows

    def _share(self, pieces: ClusterColumns, capacities: Mapping[str, WorkerCapacity]) -> Handover:
        takes = {worker: capacities[worker].free - _BYTES_PER_ROW * self._n_rows for worker in self.there}

        def needed(_: int, ids: Sequence[int], in_place: bool) -> int:
            again = 0 if in_place else sum(self._sizes[j] for j in ids)
            return again + ZONE_BYTES * self._n_rows * len(ids)

        return share_within_memory(pieces.ids, pieces.workers, self._sizes, capacities, takes, needed, has_place=True)

    def _costs(self, pieces: ClusterColumns, handover: Handover, n_left: int) -> tuple[float, float, float]:
        state = 16 * self._n_rows * len(handover.given)
        return handover.moved + state, 0.0, 0.0


def hand_over(columns: ClusterColumns, handover: Handover) -> list[int] | None:
    """Have newcomers take over columns.

    Returns
    -------
    list of int, or None
        The shards that gave columns; those of newcomers are at the end of ``columns``. None if a worker was lost meanwhile, or it took too
        long: then all is as it was.
    """
    kept = handover.kept(columns.ids)
    taken = handover.taken()
    with Tasks(columns.client) as tasks:
        blocks, workers = list(columns.blocks), [*columns.workers, *handover.given]
        on_the_way = []
        for worker, by_shard in handover.given.items():
            there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
            assembly = tasks.submit("columns", Assembly, columns.n_rows, len(taken[worker]), **there)
            for shard, ids in by_shard.items():
                for step in cut(ids, _STEPS):
                    giver: dict[str, Any] = {"workers": [columns.workers[shard]], "allow_other_workers": True}
                    pieces = tasks.submit("split", _some, columns.blocks[shard], _places(columns.ids[shard], step), **giver)
                    on_the_way += [assembly, pieces]
                    assembly = tasks.submit("columns", _take_each, assembly, _places(taken[worker], step), pieces, **there)
            on_the_way.append(assembly)
            blocks.append(tasks.submit("columns", _finished, assembly, **there))
        for shard, ids in kept.items():
            giver = {"workers": [columns.workers[shard]], "allow_other_workers": True}
            keep = _first if shard in handover.in_place else _only
            blocks[shard] = tasks.submit("columns", keep, columns.blocks[shard], _places(columns.ids[shard], ids), **giver)
        release(on_the_way)  # each goes when the tasks that need it are done
        if not exchange_blocks(tasks, columns.blocks, blocks, workers, kept, handover.moved):
            return None
    columns.blocks[:] = blocks
    columns.workers[:] = workers
    for shard, ids in kept.items():
        columns.ids[shard] = ids
    columns.ids.extend(taken.values())
    return list(kept)


def _places(ids: Sequence[int], some: Sequence[int]) -> list[int]:
    place_of = {j: place for place, j in enumerate(ids)}
    return [place_of[j] for j in some]


def _some(block: Columns, places: Sequence[int]) -> list[Columns]:
    """Return columns of a block, each by itself, as they lie there."""
    return [
        Columns.of(block.codes[j : j + 1], block.distinct(j), np.array([0, block.offsets[j + 1] - block.offsets[j]], np.int64))
        for j in places
    ]


def _take_each(assembly: Assembly, places: Sequence[int], pieces: Sequence[Columns]) -> Assembly:
    for place, piece in zip(places, pieces, strict=True):
        assembly.take([place], piece)
    return assembly


def _first(block: Columns, places: Sequence[int]) -> Columns:
    """Return a block of the first columns of another, where they lie."""
    n = len(places)
    return Columns(block.codes[:n], block.words[: block.offsets[n]], block.offsets[: n + 1])


def _only(block: Columns, places: Sequence[int]) -> Columns:
    """Return a block of some of the columns of another."""
    assembly = Assembly(block.n_rows, len(places))
    return _finished(_take_each(assembly, range(len(places)), _some(block, places)))


def _finished(assembly: Assembly) -> Columns:
    return assembly.finished()
