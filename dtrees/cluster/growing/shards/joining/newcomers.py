"""Workers that joined a fit under way: when it is time to give them something, and what they had best be given.

What shards have is in *pieces*: columns, or partitions of rows. It takes time to hand them over. So it is done where the trees left to grow
will make up for it, for newcomers together that come shortly after each other, and not too often.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from distributed import Future

from dtrees.cluster.data.memory import WorkerCapacity
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.cluster.transport.scheduler_rpc import holders

#: Newcomers are waited for until none has come for so long, but no longer than that.
_SECONDS_TO_SETTLE, _MOST_SECONDS_TO_SETTLE = 4.0, 30.0
#: Trees between two times at least, and how many times as long as the last one took it has to last.
_TREES_BETWEEN, _TIMES_AS_LONG = 10, 20.0
#: What it takes: so long in any case, and the bytes that have to travel, by so many a second.
_SECONDS, _BYTES_PER_SECOND = 1.0, 100e6
#: It is given up if it takes longer than planned by far, and than this.
_MIN_DEADLINE = 120.0
#: What is saved has to be so many times what it takes.
WORTH = 2.0


@dataclass(frozen=True)
class Handover:
    """Who gives which pieces to whom.

    Attributes
    ----------
    given : dict from str to dict from int to list of int
        For each newcomer, for each shard that gives to it, the pieces, ascending.
    before, after : float
        What each thread of the busiest worker has to do: the sizes of its pieces.
    moved : int
        The sizes of the pieces that move.
    in_place : frozenset of int
        Shards that keep their pieces where they lie.
    """

    given: dict[str, dict[int, list[int]]]
    before: float
    after: float
    moved: int
    in_place: frozenset[int] = frozenset()

    @property
    def n_pieces(self) -> int:
        """How many pieces move."""
        return sum(len(pieces) for by_shard in self.given.values() for pieces in by_shard.values())

    def kept(self, ids: Sequence[Sequence[int]]) -> dict[int, list[int]]:
        """Return the pieces that each shard keeps that gives some of its pieces ``ids``."""
        gone: dict[int, set[int]] = {}
        for by_shard in self.given.values():
            for shard, pieces in by_shard.items():
                gone.setdefault(shard, set()).update(pieces)
        return {shard: [j for j in ids[shard] if j not in gone[shard]] for shard in sorted(gone)}

    def taken(self) -> dict[str, list[int]]:
        """Return the pieces that each newcomer takes, ascending."""
        return {worker: sorted(j for pieces in by_shard.values() for j in pieces) for worker, by_shard in self.given.items()}


def share(
    ids: Sequence[Sequence[int]],
    owners: Sequence[str],
    sizes: Sequence[int],
    threads: Mapping[str, int],
    newcomers: Mapping[str, float],
    in_place: Iterable[int] = (),
    closed: Iterable[int] = (),
) -> Handover:
    """Say which pieces newcomers had best take over: one after the other from the busiest worker, until that helps no more.

    Parameters
    ----------
    ids : sequence of sequence of int
        The pieces of each shard.
    owners : sequence of str
        The worker of each shard.
    sizes : sequence of int
        Of each piece: how much there is to do with it.
    threads : mapping from str to int
        Of all these workers.
    newcomers : mapping from str to float
        For each, the sizes of pieces that it can take.
    in_place : iterable of int, optional
        Shards that can give only the last of their pieces.
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
    for pieces, owner in zip(ids, owners, strict=True):
        load[owner] += sum(sizes[j] for j in pieces)
    in_place, full = frozenset(in_place), set(closed)
    # The last of the largest pieces of a shard is the next to go.
    left = [list(pieces) if i in in_place else sorted(pieces, key=lambda j: (sizes[j], j)) for i, pieces in enumerate(ids)]
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
        for pieces in by_shard.values():
            pieces.sort()
    return Handover(given, before, max(load[worker] / threads[worker] for worker in load), moved, in_place)


def share_within_memory(
    ids: Sequence[Sequence[int]],
    owners: Sequence[str],
    sizes: Sequence[int],
    capacities: Mapping[str, WorkerCapacity],
    newcomers: Mapping[str, float],
    needed: Callable[[int, Sequence[int], bool], int],
    has_place: bool,
) -> Handover:
    """Say which pieces newcomers had best take over, as :func:`share` does, from shards whose workers have memory for what they keep.

    Parameters
    ----------
    ids, owners, sizes, newcomers
        As of :func:`share`.
    capacities : mapping from str to WorkerCapacity
        Of all these workers.
    needed : callable
        How many bytes a shard needs to keep some pieces, for as long as it has its old block, too. It is given the shard, these pieces, and
        whether they stay where they lie.
    has_place : bool
        Whether pieces can be kept where they lie. Shards that lack memory otherwise do that, and give the last of their pieces.
    """
    threads = {worker: capacity.threads for worker, capacity in capacities.items()}
    in_place, closed = set[int](), set[int]()
    while True:
        handover = share(ids, owners, sizes, threads, newcomers, in_place, closed)
        kept = handover.kept(ids)
        again = Counter[str]()
        for shard, pieces in kept.items():
            again[owners[shard]] += needed(shard, pieces, shard in in_place)
        short = {shard for shard in kept if again[owners[shard]] > capacities[owners[shard]].free}
        if not short:
            return handover
        closed |= short & in_place if has_place else short
        if has_place:
            in_place |= short


def exchange_blocks(
    tasks: Tasks, before: Sequence[Future], blocks: Sequence[Future], workers: Sequence[str], kept: Iterable[int], n_bytes: float
) -> bool:
    """Wait for the blocks of shards that give pieces, and of newcomers; own them, and let those go in whose places they are.

    Parameters
    ----------
    tasks : Tasks
        That make the blocks.
    before, blocks : sequence of Future
        Of all shards; those of newcomers are at the end of ``blocks``.
    workers : sequence of str
        Where each of ``blocks`` belongs.
    kept : iterable of int
        The shards that give pieces.
    n_bytes : float
        How much travels, which says how long that may take.

    Returns
    -------
    bool
        False if a worker was lost meanwhile, or it took too long: then all is as it was.
    """
    kept = set(kept)
    made = [block for shard, block in enumerate(blocks) if shard in kept or shard >= len(before)]
    if not tasks.waiter.wait_undisturbed(made, max(_MIN_DEADLINE, _TIMES_AS_LONG * n_bytes / _BYTES_PER_SECOND)):
        return False
    there_now = holders(tasks.client, [block.key for block in made])
    if any(workers[shard] not in there_now[block.key] for shard, block in enumerate(blocks) if block.key in there_now):
        return False
    tasks.keep(*made)
    current_fit().own(*made)
    release(before[shard] for shard in kept)
    return True


class Pieces(Protocol):
    """What shards have of a table: its columns, or its rows."""

    @property
    def workers(self) -> Sequence[str]:
        """The worker of each shard."""


PiecesT = TypeVar("PiecesT", bound=Pieces)


class Newcomers(ABC, Generic[PiecesT]):
    """Workers that joined a fit under way: when it is time to give them something, and what."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self._first_came = self._last_came = 0.0
        self._not_before = 0.0
        self._n_left_then: int | None = None
        self._n_left_before, self._worked_before = 0, dict[str, float]()

    def have_settled(self, there: Iterable[str], n_left: int, worked: Mapping[str, float]) -> bool:
        """Tell whether it is time to give newcomers something.

        Parameters
        ----------
        there : iterable of str
            Workers that have nothing.
        n_left : int
            Trees that are left to grow.
        worked : mapping from str to float
            Seconds that each worker has worked on this fit.
        """
        now = time.monotonic()
        there = set(there)
        if n_left > self._n_left_before:
            self._n_left_before, self._worked_before = n_left, dict(worked)
        if there - self.there:
            self._last_came = now
            if not self.there:
                self._first_came = now
        self.there = there
        if not there or now < self._not_before:
            return False
        if self._n_left_then is not None and abs(self._n_left_then - n_left) < _TREES_BETWEEN:
            return False
        return now - self._last_came >= _SECONDS_TO_SETTLE or now - self._first_came >= _MOST_SECONDS_TO_SETTLE

    def plan(self, pieces: PiecesT, workers: Mapping[str, Mapping[str, Any]], n_left: int, worked: Mapping[str, float]) -> Handover | None:
        """Say who gives what to newcomers; None if there is no memory for it, or it is not worth while.

        Parameters
        ----------
        pieces : ClusterColumns or ClusterRows
        workers : mapping from str to mapping
            What the scheduler knows of all workers.
        n_left, worked
            See :meth:`have_settled`.
        """
        spent = self._seconds_a_tree(n_left, worked)
        if spent is None or any(worker not in workers for worker in pieces.workers):
            return None
        handover = self._share(pieces, {worker: WorkerCapacity.of(facts) for worker, facts in workers.items()})
        n_bytes, once, each_tree = self._costs(pieces, handover, n_left)
        saved = n_left * (spent * (1.0 - handover.after / handover.before) - each_tree)
        return handover if saved > WORTH * (_SECONDS + n_bytes / _BYTES_PER_SECOND + once) else None

    @abstractmethod
    def _share(self, pieces: PiecesT, capacities: Mapping[str, WorkerCapacity]) -> Handover:
        """Say who had best give what to newcomers, of all workers, within their memory."""

    @abstractmethod
    def _costs(self, pieces: PiecesT, handover: Handover, n_left: int) -> tuple[float, float, float]:
        """Return how many bytes travel, and the seconds that it takes besides: once, and for each tree from then on."""

    def _seconds_a_tree(self, n_left: int, worked: Mapping[str, float]) -> float | None:
        """Return how long the busiest worker has worked on a tree; None before there is one. See :meth:`have_settled`."""
        n_grown = self._n_left_before - n_left
        if n_grown < 1:
            return None
        return max(seconds - self._worked_before.get(worker, 0.0) for worker, seconds in worked.items()) / n_grown

    def note_handover(self, seconds: float, n_left: int) -> None:
        """Take in that something was handed over, or was to be, which took a while."""
        self.there = set()
        self._not_before = time.monotonic() + _TIMES_AS_LONG * seconds
        self._n_left_then = n_left
        self._n_left_before = 0
