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
from dtrees.cluster.growing.shards.joining.newcomers import (
    BYTES_PER_SECOND,
    SECONDS,
    WORTH,
    Handover,
    Newcomers,
    exchange_blocks,
    share_within_memory,
)
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.split.table.columns import Assembly, Columns

#: Bytes that a newcomer needs for each row, besides columns: state, target and weight.
_BYTES_PER_ROW = STATE_BYTES + 16
#: Tasks that a newcomer takes over the columns of a worker in: what is on its way at a time is this part of them.
_STEPS = 8


class ColumnNewcomers(Newcomers):
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

    def plan(
        self, columns: ClusterColumns, workers: Mapping[str, Mapping[str, Any]], n_left: int, worked: Mapping[str, float]
    ) -> Handover | None:
        """Say who gives which columns to newcomers; None if there is no memory for it, or it is not worth while.

        Parameters
        ----------
        columns : ClusterColumns
        workers : mapping from str to mapping
            What the scheduler knows of all workers.
        n_left, worked
            See :meth:`have_settled`.
        """
        spent = self.seconds_a_tree(n_left, worked)
        if spent is None or any(worker not in workers for worker in columns.workers):
            return None
        capacities = {worker: WorkerCapacity.of(facts) for worker, facts in workers.items()}
        takes = {worker: capacities[worker].free - _BYTES_PER_ROW * self._n_rows for worker in self.there}

        def needed(_: int, ids: Sequence[int], in_place: bool) -> int:
            again = 0 if in_place else sum(self._sizes[j] for j in ids)
            return again + ZONE_BYTES * self._n_rows * len(ids)

        handover = share_within_memory(columns.ids, columns.workers, self._sizes, capacities, takes, needed, has_place=True)
        state = 16 * self._n_rows * len(handover.given)
        seconds = SECONDS + (handover.moved + state) / BYTES_PER_SECOND
        saved = spent * n_left * (1.0 - handover.after / handover.before)
        return handover if saved > WORTH * seconds else None


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
