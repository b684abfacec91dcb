"""The threads that grow subtrees on a shard, and what they need for it.

A small tree takes a few microseconds to grow, and far longer to allocate everything for, and to have the types of it all looked up. So the
room is kept from tree to tree, as long as it is large enough, and the kernel is bound to its types (:func:`~dtrees.split.kernel.bind`).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import ge
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads
from dtrees.split import search, subtree
from dtrees.split.block import make_block
from dtrees.split.board import Team, begin, grown, make_team, wait_for_team
from dtrees.split.columns import Columns
from dtrees.split.heirs import Heirs, for_thread
from dtrees.split.kernel import bind
from dtrees.split.partition import RowPartition
from dtrees.split.stack import make_stack
from dtrees.split.subtree import Nodes, Stops, Task
from dtrees.split.sweep import Limits
from dtrees.split.team import grow_together


class Ground(NamedTuple):
    """What the nodes of a tree under way have in common; see :class:`~dtrees.split.subtree.Task`."""

    partition: RowPartition
    spare: RowPartition
    target: NDArray[Any]
    limits: Limits
    stops: Stops
    keys: tuple[np.uint64, np.uint64]
    pool: NDArray[np.int32]  # never written to: another one is another array


class Roots(NamedTuple):
    """Nodes to be grown to their ends.

    Attributes
    ----------
    places : list of (start, mid, stop, depth)
    paths : ndarray of uint64, shape (n,)
    sums : ndarray of int64, shape (n, n_sums)
    """

    places: list[list[int]]
    paths: NDArray[np.uint64]
    sums: NDArray[np.int64]

    @property
    def most_rows(self) -> int:
        """Most in-sample rows of one of them."""
        return max(mid - start for start, mid, _, _ in self.places)


class Crew:
    """See the module's text. To be used by one message at a time, with the same threads each time.

    Parameters
    ----------
    columns : Columns
        All columns of the table.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._max_distinct = int(np.diff(columns.offsets).max(initial=0))
        self.forget()

    def forget(self) -> None:
        """Give up all room."""
        self._scratch: list[search.Scratch] = []
        self._team: Team | None = None
        self._team_size = (0,)
        self._tasks: list[Task] = []
        self._task_size = (0,)
        self._kind: tuple[Any, ...] = ()
        self._pool: NDArray[np.int32] | None = None
        self._run: Callable[[Columns, Team, Task], None] | None = None

    def forget_nodes(self) -> None:
        """Forget the nodes that scratch space knows something about: another tree is next."""
        for scratch in self._scratch:
            if scratch.absolute is not None:
                scratch.absolute.node[:] = -1

    def scratch_for(self, thread: int, n_rows: int, n_classes: int, levels: NDArray[np.int64]) -> search.Scratch:
        """Return the scratch space of a thread for nodes of up to so many rows; see :func:`~dtrees.split.search.make_scratch`."""
        if self._scratch and self._scratch[0].keys.shape[0] <= n_rows:
            self._scratch, self._tasks = [], []
        while len(self._scratch) <= thread:
            self._scratch.append(search.make_scratch(n_rows, self._max_distinct, n_classes, levels))
        return self._scratch[thread]

    def grow(
        self, threads: Threads, n_threads: int, ground: Ground, roots: Roots, block_rows: int, share_rows: int, heirs: Heirs | None
    ) -> list[Nodes]:
        """Grow nodes to their ends, by ``n_threads`` threads which have scratch space already.

        Parameters
        ----------
        threads : Threads
        n_threads : int
        ground : Ground
        roots : Roots
        block_rows : int
            Nodes of up to this many in-sample rows are finished in a block.
        share_rows : int
            Nodes of more rows are shared out.
        heirs : Heirs or None
            Given, larger nodes are searched by zone sums.
        """
        team = self._begin(ground, roots, share_rows, n_threads)
        tasks = self._tasks_of(n_threads, ground, roots, block_rows, heirs)
        run = self._run
        if run is None:
            run = self._run = bind(grow_together, self._columns, team, tasks[0])
        if n_threads == 1:
            run(self._columns, team, tasks[0])
        else:
            threads.together(n_threads, lambda thread: run(self._columns, team, tasks[thread]))
            wait_for_team(team)
        return [grown(team, i) for i in range(len(roots.places))]

    def _begin(self, ground: Ground, roots: Roots, share_rows: int, n_threads: int) -> Team:
        """Return a team with the roots as its work."""
        places = roots.places
        most_nodes = subtree.most_nodes.py_func
        room = sum(most_nodes(ground.stops, ground.limits, mid - start, depth) for start, mid, _, depth in places)
        most_shared = last = 0
        if roots.most_rows > share_rows:
            most_shared = sum(mid - start for start, mid, _, _ in places) // max(1, share_rows) + 1
            last = max(stop for _, _, stop, _ in places)
        size = (len(places), most_shared, last, room)
        if self._team is None or not all(map(ge, self._team_size, size)):
            self._team, self._team_size = make_team(*size, roots.sums.shape[1]), size
        self._team = begin(self._team, *roots, share_rows, n_threads)
        return self._team

    def _tasks_of(self, n_threads: int, ground: Ground, roots: Roots, block_rows: int, heirs: Heirs | None) -> list[Task]:
        """Return what each thread needs."""
        limits, weighted = ground.limits, ground.partition.b.shape[0] > 0
        kind = (roots.sums.shape[1], weighted, limits.random, limits.n_classes, heirs is None)
        most_rows = roots.most_rows
        outside = max(stop - mid for _, mid, stop, _ in roots.places)
        n_levels = ground.stops.max_depth - min(depth for _, _, _, depth in roots.places)
        size = (most_rows, outside, n_levels, min(most_rows, block_rows))
        if kind != self._kind or ground.pool is not self._pool or not all(map(ge, self._task_size, size)):
            self._tasks = []
        if not self._tasks:
            self._kind, self._pool, self._task_size, self._run = kind, ground.pool, size, None
        for thread in range(len(self._tasks), n_threads):
            self._tasks.append(self._task(thread, ground, heirs))
        tasks = []
        for task in self._tasks[:n_threads]:
            task.pool[:] = ground.pool
            own = None if heirs is None or task.heirs is None else heirs._replace(slot_of=task.heirs.slot_of, bar=task.heirs.bar)
            tasks.append(Task(
                ground.partition, ground.spare, ground.target, limits, ground.stops, ground.keys, task.pool, task.scratch, task.best,
                task.bits, task.block, block_rows, task.stack, own,
            ))  # fmt: skip
        return tasks

    def _task(self, thread: int, ground: Ground, heirs: Heirs | None) -> Task:
        """Make room for what a thread needs to grow nodes of ``_task_size``."""
        n_sums, weighted, random, n_classes, _ = self._kind
        most_rows, outside, n_levels, block_rows = self._task_size
        stack = make_stack(n_levels, most_rows, n_sums)
        return Task(
            partition=ground.partition,
            spare=ground.spare,
            target=ground.target,
            limits=ground.limits,
            stops=ground.stops,
            keys=ground.keys,
            pool=ground.pool.copy(),
            scratch=self._scratch[thread],
            best=search.empty_candidates(1, n_sums),
            bits=np.empty((most_rows + outside + 7) // 8, np.uint8),
            block=make_block(block_rows, outside, weighted, ground.pool, self._columns, random, n_classes),
            block_rows=block_rows,
            stack=stack,
            heirs=None if heirs is None else for_thread(heirs, stack.path.shape[0]),
        )
