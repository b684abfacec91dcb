"""Columns spread anew when workers join a fit under way: newcomers take whole columns over from the workers that have most to do.

Columns go from worker to worker, and nobody holds the table twice::

    split      a worker that gives: some of its columns, as they lie in its block (nothing is copied there)
    columns    a newcomer: a chain of tasks, each of them puts some more columns into its block
    columns    a worker that gives: a block of the columns that it keeps, in place of the one before

It takes time. So it is done where the trees left to grow will make up for it, for newcomers together that come shortly after each other,
and not too often. If a worker is lost meanwhile, all stays as it was.

The columns that a giving worker keeps are there twice for a moment, and so are their zones. Where it has no memory for the columns, it
gives the last of them, and keeps those before where they lie: its block is then a part of the one before, of which nothing becomes free.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import STATE_BYTES, ZONE_BYTES, WorkerCapacity
from dtrees.cluster.data.presorting import cut
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.cluster.transport.scheduler_rpc import holders
from dtrees.split.table.columns import Assembly, Columns

#: Newcomers are waited for until none has come for so long, but no longer than that.
_SECONDS_TO_SETTLE, _MOST_SECONDS_TO_SETTLE = 4.0, 30.0
#: Trees between two times at least, and how many times as long as the last one took it has to last.
_TREES_BETWEEN, _TIMES_AS_LONG = 10, 20.0
#: What it takes: so long in any case, and the bytes of columns and of the rows' state that have to travel, by so many a second.
_SECONDS, _BYTES_PER_SECOND = 1.0, 100e6
#: It is given up if it takes longer than planned by far, and than this.
_MIN_DEADLINE = 120.0
#: What is saved has to be so many times what it takes.
_WORTH = 2.0
#: Bytes that a newcomer needs for each row, besides columns: state, target and weight.
_BYTES_PER_ROW = STATE_BYTES + 16
#: Tasks that a newcomer takes over the columns of a worker in: what is on its way at a time is this part of them.
_STEPS = 8


@dataclass(frozen=True)
class Handover:
    """Who gives which columns to whom.

    Attributes
    ----------
    given : dict from str to dict from int to list of int
        For each newcomer, for each shard that gives to it, the columns, ascending.
    before, after : float
        Bytes of columns for each thread of the busiest worker.
    n_bytes : int
        Of the columns that move.
    in_place : frozenset of int
        Shards that keep their columns where they lie.
    """

    given: dict[str, dict[int, list[int]]]
    before: float
    after: float
    n_bytes: int
    in_place: frozenset[int] = frozenset()

    @property
    def n_columns(self) -> int:
        """How many columns move."""
        return sum(len(columns) for by_shard in self.given.values() for columns in by_shard.values())

    def kept(self, ids: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """Return the columns that each shard keeps that gives some of its columns ``ids``."""
        gone: dict[int, set[int]] = {}
        for by_shard in self.given.values():
            for shard, columns in by_shard.items():
                gone.setdefault(shard, set()).update(columns)
        return {shard: [j for j in ids[shard] if j not in gone[shard]] for shard in sorted(gone)}

    def taken(self) -> dict[str, list[int]]:
        """Return the columns that each newcomer takes, ascending."""
        return {worker: sorted(j for columns in by_shard.values() for j in columns) for worker, by_shard in self.given.items()}


def share(
    ids: Sequence[Sequence[int]],
    owners: Sequence[str],
    sizes: Sequence[int],
    threads: Mapping[str, int],
    newcomers: Mapping[str, float],
    in_place: Iterable[int] = (),
    closed: Iterable[int] = (),
) -> Handover:
    """Say which columns newcomers had best take over: one after the other from the busiest worker, until that helps no more.

    Parameters
    ----------
    ids : sequence of sequence of int
        The columns of each shard.
    owners : sequence of str
        The worker of each shard.
    sizes : sequence of int
        Bytes of each column.
    threads : mapping from str to int
        Of all these workers.
    newcomers : mapping from str to float
        For each, the bytes of columns that it can take.
    in_place : iterable of int, optional
        Shards that can give only the last of their columns.
    closed : iterable of int, optional
        Shards that cannot give any.

    Examples
    --------
    >>> handover = share([[0, 1, 2], [3, 4, 5]], "ab", [9] * 6, {"a": 1, "b": 1, "c": 1}, {"c": 1000})
    >>> handover.given, handover.before, handover.after
    ({'c': {0: [2], 1: [5]}}, 27.0, 18.0)
    >>> handover.kept([[0, 1, 2], [3, 4, 5]])
    {0: [0, 1], 1: [3, 4]}
    """
    load = dict.fromkeys([*owners, *newcomers], 0)
    for columns, owner in zip(ids, owners, strict=True):
        load[owner] += sum(sizes[j] for j in columns)
    in_place, full = frozenset(in_place), set(closed)
    # The last of the largest columns of a shard is the next to go.
    left = [list(columns) if i in in_place else sorted(columns, key=lambda j: (sizes[j], j)) for i, columns in enumerate(ids)]
    given: dict[str, dict[int, list[int]]] = {}
    moved = 0
    before = max(load[worker] / threads[worker] for worker in load)
    while True:
        busiest = max(load, key=lambda worker: load[worker] / threads[worker])
        giving = [i for i, owner in enumerate(owners) if owner == busiest and i not in full and len(left[i]) > 1]
        if not giving:
            break
        shard = max(giving, key=lambda i: (len(left[i]), -i))
        size = sizes[left[shard][-1]]
        after = {
            worker: (load[worker] + size) / threads[worker] for worker, capacity in newcomers.items() if load[worker] + size <= capacity
        }
        if not after or min(after.values()) >= load[busiest] / threads[busiest]:
            break
        worker = min(after, key=lambda worker: (after[worker], worker))
        given.setdefault(worker, {}).setdefault(shard, []).append(left[shard].pop())
        load[busiest] -= size
        load[worker] += size
        moved += size
    for by_shard in given.values():
        for columns in by_shard.values():
            columns.sort()
    return Handover(given, before, max(load[worker] / threads[worker] for worker in load), moved, in_place)


class Newcomers:
    """Workers that joined a fit under way: when it is time, and worth while, to give them columns.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of each column.
    n_rows : int
    """

    def __init__(self, sizes: Sequence[int], n_rows: int) -> None:
        self._sizes = sizes
        self._n_rows = n_rows
        self._there: set[str] = set()
        self._first_came = self._last_came = 0.0
        self._not_before = 0.0
        self._n_left_then: int | None = None
        self._n_left_before, self._worked_before = 0, dict[str, float]()

    def have_settled(self, there: Iterable[str], n_left: int, worked: Mapping[str, float]) -> bool:
        """Tell whether it is time to give newcomers columns.

        Parameters
        ----------
        there : iterable of str
            Workers that have none.
        n_left : int
            Trees that are left to grow.
        worked : mapping from str to float
            Seconds that each worker has worked on this fit.
        """
        now = time.monotonic()
        there = set(there)
        if n_left > self._n_left_before:
            self._n_left_before, self._worked_before = n_left, dict(worked)
        if there - self._there:
            self._last_came = now
            if not self._there:
                self._first_came = now
        self._there = there
        if not there or now < self._not_before:
            return False
        if self._n_left_then is not None and abs(self._n_left_then - n_left) < _TREES_BETWEEN:
            return False
        return now - self._last_came >= _SECONDS_TO_SETTLE or now - self._first_came >= _MOST_SECONDS_TO_SETTLE

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
        n_grown = self._n_left_before - n_left
        if n_grown < 1 or any(worker not in workers for worker in columns.workers):
            return None
        spent = max(seconds - self._worked_before.get(worker, 0.0) for worker, seconds in worked.items())
        worker_capacities = {worker: WorkerCapacity.of(facts) for worker, facts in workers.items()}
        threads = {worker: capacity.threads for worker, capacity in worker_capacities.items()}
        takes = {worker: worker_capacities[worker].free - _BYTES_PER_ROW * self._n_rows for worker in self._there}
        in_place, closed = set[int](), set[int]()
        while True:
            handover = share(columns.ids, columns.workers, self._sizes, threads, takes, in_place, closed)
            needed = dict.fromkeys(columns.workers, 0)
            kept = handover.kept(columns.ids)
            for shard, ids in kept.items():
                again = 0 if shard in in_place else sum(self._sizes[j] for j in ids)
                needed[columns.workers[shard]] += again + ZONE_BYTES * self._n_rows * len(ids)
            short = {shard for shard in kept if needed[columns.workers[shard]] > worker_capacities[columns.workers[shard]].free}
            if not short:
                break
            closed |= short & in_place
            in_place |= short
        state = 16 * self._n_rows * len(handover.given)
        seconds = _SECONDS + (handover.n_bytes + state) / _BYTES_PER_SECOND
        saved = spent / n_grown * n_left * (1.0 - handover.after / handover.before)
        return handover if saved > _WORTH * seconds else None

    def note_handover(self, seconds: float, n_left: int) -> None:
        """Take in that columns were spread, or were to be, which took a while."""
        self._there = set()
        self._not_before = time.monotonic() + _TIMES_AS_LONG * seconds
        self._n_left_then = n_left
        self._n_left_before = 0


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
        made = [block for shard, block in enumerate(blocks) if shard in kept or shard >= len(columns.blocks)]
        if not tasks.waiter.wait_undisturbed(made, max(_MIN_DEADLINE, _TIMES_AS_LONG * handover.n_bytes / _BYTES_PER_SECOND)):
            return None
        there_now = holders(columns.client, [block.key for block in made])
        if any(workers[shard] not in there_now[block.key] for shard, block in enumerate(blocks) if block.key in there_now):
            return None
        tasks.keep(*made)
    current_fit().own(*made)
    release(columns.blocks[shard] for shard in kept)
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
