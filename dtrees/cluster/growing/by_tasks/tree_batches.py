"""Which worker of a cluster grows which trees of a forest: decided as the fit goes on, a batch of trees at a time.

Each thread has a batch that it grows and one that waits, so that none is idle for the time of a message. Batches get smaller towards the
end, so that all threads end at about the same time. Workers that join get theirs, if they have the memory for the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import WorkerCapacity
from dtrees.cluster.data.placement import needed_for_all

#: Batches that a thread has at a time: one grows, the others wait.
_AT_A_TIME = 2
#: A batch has so many times fewer trees than there are left for each thread.
_SHARE = 3


@dataclass(frozen=True)
class Batch:
    """The trees ``first`` to ``last - 1``, where they had best be grown, and with how many threads."""

    first: int
    last: int
    worker: str
    n_threads: int


class Batches:
    """The trees that are still to be given to workers.

    Parameters
    ----------
    first, last : int
        The trees to grow are ``first`` to ``last - 1``.
    per_thread : int or None, default=None
        Batches for each thread, all of the same size and given away at once; None for batches that get smaller.
    size : int or None, default=None
        Trees of each batch; batches are given away as threads become free.

    Examples
    --------
    >>> batches = Batches(0, 24)
    >>> [(batch.first, batch.last, batch.worker) for batch in batches.give({"a": 1, "b": 1})]
    [(0, 4, 'a'), (4, 7, 'b'), (7, 9, 'a'), (9, 11, 'b')]
    >>> batches.done(1)
    >>> batches.give({"a": 1, "b": 1})
    [Batch(first=11, last=13, worker='b', n_threads=1)]
    >>> Batches(0, 1).give({"a": 4})
    [Batch(first=0, last=1, worker='a', n_threads=4)]
    """

    def __init__(self, first: int, last: int, per_thread: int | None = None, size: int | None = None) -> None:
        self._left = range(first, last)
        self._per_thread = per_thread
        self._size = size
        self._given: list[Batch] = []
        self._under_way: Counter[str] = Counter()

    def give(self, threads: Mapping[str, int]) -> list[Batch]:
        """Give batches to workers that have too few; ``threads`` are those of the workers that there are."""
        n_threads = sum(threads.values())
        if self._per_thread is not None and self._size is None:
            self._size = -(-len(self._left) // (self._per_thread * n_threads))
        given: list[tuple[int, int, str]] = []
        while self._left:
            worker = min(threads, key=lambda worker: (self._under_way[worker] / threads[worker], worker))
            if self._per_thread is None and self._under_way[worker] >= _AT_A_TIME * threads[worker]:
                break
            size = self._size or max(1, len(self._left) // (_SHARE * n_threads))
            given.append((self._left[0], self._left[:size][-1] + 1, worker))
            self._left = self._left[size:]
            self._under_way[worker] += 1
        # Where there are fewer trees than threads, a tree gets several threads.
        batches = [Batch(first, last, worker, max(1, threads[worker] // self._under_way[worker])) for first, last, worker in given]
        self._given += batches
        return batches

    def done(self, i: int) -> None:
        """Take in that the ``i``-th batch of all that were given is done."""
        self._under_way[self._given[i].worker] -= 1


class ForestWorkers:
    """The workers that grow the trees of a forest.

    Parameters
    ----------
    columns : ClusterColumns
    n_trees : int
    """

    def __init__(self, columns: ClusterColumns, n_trees: int) -> None:
        self._columns = columns
        self._n_trees = n_trees
        self._able = set(columns.placement.workers)
        self._threads: dict[str, int] = {}

    def threads(self, worker_capacities: Mapping[str, WorkerCapacity]) -> dict[str, int]:
        """Return the threads of those among the workers that there are; where there are none, of those that there were."""
        if self._columns.placement.kind == "replicated":
            self._able |= {worker for worker, capacity in worker_capacities.items() if self._needed(capacity) <= capacity.free}
        # Where all that the table was made for are lost, any will do.
        able = self._able & worker_capacities.keys() or worker_capacities.keys()
        self._threads = {worker: worker_capacities[worker].threads for worker in sorted(able)} or self._threads
        return self._threads

    def _needed(self, capacity: WorkerCapacity) -> int:
        return needed_for_all(self._columns.sizes, capacity.threads, self._n_trees)
