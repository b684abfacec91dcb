"""The threads that grow subtrees on a shard, and what they need for it.

A small tree takes a few microseconds to grow, and far longer to allocate everything for, and to have the types of it all looked up. So the
room is kept from tree to tree as long as it is large enough (if it is very large, it is not), and the kernel is bound to its types
(:func:`~dtrees.split.kernel.bind`).
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
from dtrees.split.board import Opening, Team, begin, give_up, grown, make_team, opening, wait_for_team
from dtrees.split.columns import Columns
from dtrees.split.criteria import ABSOLUTE_ERROR, SQUARED_ERROR
from dtrees.split.heirs import Heirs, for_thread
from dtrees.split.kernel import bind
from dtrees.split.nodes import Nodes
from dtrees.split.partition import RowPartition, no_rows
from dtrees.split.stack import make_stack
from dtrees.split.subtree import Stops, Task
from dtrees.split.sweep import Limits
from dtrees.split.team import grow_together
from dtrees.split.zone_sums import note_places

#: Room for more nodes is not kept: it would be needed together with the tree that is made of them.
_MOST_KEPT = 2**18
#: The place of rows that a tree does not have.
_NOWHERE = 2**32 - 1


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

    places: list[tuple[int, int, int, int]]
    paths: NDArray[np.uint64]
    sums: NDArray[np.int64]


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
        self._made_for: tuple[Any, ...] = ()
        self._kind: tuple[Any, ...] = ()
        self._pool: NDArray[np.int32] | None = None
        self._team: Team | None = None
        self._team_size: tuple[int, ...] = ()
        self._opening: Opening
        self._tasks: list[Task] = []
        self._task_size: tuple[int, ...] = ()
        self._run: Callable[[Columns, Team, Task], None] | None = None

    def forget_nodes(self) -> None:
        """Forget the nodes that scratch space knows something about: another tree is next."""
        for scratch in self._scratch:
            if scratch.absolute is not None:
                scratch.absolute.node[:] = -1

    def scratch_for(self, thread: int, n_rows: int, n_classes: int, levels: NDArray[np.int64]) -> search.Scratch:
        """Return the scratch space of a thread for nodes of up to so many rows; see :func:`~dtrees.split.search.make_scratch`.

        The threads before it have some then, too.
        """
        if self._scratch and self._scratch[0].keys.shape[0] <= n_rows:
            self._scratch, self._tasks, self._made_for = [], [], ()
        while len(self._scratch) <= thread:
            self._scratch.append(search.make_scratch(n_rows, self._max_distinct, n_classes, levels))
        return self._scratch[thread]

    def grow(
        self,
        threads: Threads,
        n_threads: int,
        ground: Ground,
        roots: Roots,
        block_rows: int,
        share_rows: int,
        heirs: Heirs | None,
        keep: bool = True,
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
        keep : bool, default=True
            Whether the nodes are needed when others are grown; otherwise they may lie where those will.
        """
        self._make_room(ground, roots, block_rows, share_rows, heirs is not None)
        for thread in range(len(self._tasks), n_threads):
            self._tasks.append(self._task(thread, ground, heirs))
        assert self._team is not None
        if heirs is not None and self._task_size[0] > min(block_rows, share_rows):  # nodes are searched by zone sums
            rows, place_of = ground.partition.rows, heirs.sums.place_of
            if rows.shape[0] < place_of.shape[0]:  # the others are nowhere
                place_of.fill(_NOWHERE)
            note_places(place_of, rows, 0, rows.shape[0])
        team = begin(self._team, self._opening, roots.paths, roots.sums, share_rows, n_threads)
        tasks = [_on(ground, task, block_rows, heirs) for task in self._tasks[:n_threads]]
        run = self._run
        if run is None:
            run = self._run = bind(grow_together, self._columns, team, tasks[0])
        if n_threads == 1:
            run(self._columns, team, tasks[0])
        else:
            self._run_together(threads, team, tasks, run)
        room_is_kept = team.parts.records.shape[0] <= _MOST_KEPT
        if not room_is_kept:
            self._team, self._made_for = None, ()
        return [grown(team, i, copy=keep and room_is_kept) for i in range(len(roots.places))]

    def _run_together(self, threads: Threads, team: Team, tasks: list[Task], run: Callable[[Columns, Team, Task], None]) -> None:
        """Have a thread run each task. Should one fail, nobody waits for what it will not do any more, and its error is raised."""
        errors: list[BaseException] = []

        def run_one(thread: int) -> None:
            try:
                run(self._columns, team, tasks[thread])
            except BaseException as error:
                errors.append(error)
                give_up(team.control)

        threads.together(len(tasks), run_one)
        wait_for_team(team.control)
        if errors:
            raise errors[0]

    def _make_room(self, ground: Ground, roots: Roots, block_rows: int, share_rows: int, inherit: bool) -> None:
        """See to it that there is room for all that is to be grown."""
        limits, stops, places = ground.limits, ground.stops, roots.places
        n_sums, weighted = roots.sums.shape[1], ground.partition.b.shape[0] > 0
        kind = (n_sums, weighted, limits.random, limits.n_classes, inherit)
        wanted = (places, block_rows, share_rows, stops.max_depth, limits.min_samples, kind)
        if wanted == self._made_for and ground.pool is self._pool:
            return
        sizes = [mid - start for start, mid, _, _ in places]
        most_nodes = subtree.most_nodes.py_func
        n_nodes = [most_nodes(stops, limits, mid - start, depth) for start, mid, _, depth in places]
        most_shared = last = 0
        if max(sizes) > share_rows:
            most_shared = sum(sizes) // max(1, share_rows) + 1
            last = max(stop for _, _, stop, _ in places)
        team_size = (len(places), most_shared, last, sum(n_nodes))
        if self._team is None or kind != self._kind or not all(map(ge, self._team_size, team_size)):
            # Where every weight is 1, nothing but the number of rows is wanted of a node whose value is measured in the end.
            measured = not weighted and limits.criterion in (SQUARED_ERROR, ABSOLUTE_ERROR)
            self._team, self._team_size = make_team(*team_size, n_sums, 0 if measured else n_sums), team_size
        self._opening = opening(self._team, places, n_nodes)
        n_levels = stops.max_depth - min(depth for _, _, _, depth in places)
        task_size = (max(sizes), max(stop - mid for _, mid, stop, _ in places), n_levels, min(max(sizes), block_rows))
        if not self._tasks or kind != self._kind or ground.pool is not self._pool or not all(map(ge, self._task_size, task_size)):
            self._tasks, self._task_size, self._run = [], task_size, None
        self._made_for, self._kind, self._pool = wanted, kind, ground.pool

    def _task(self, thread: int, ground: Ground, heirs: Heirs | None) -> Task:
        """Make room for what a thread needs to grow nodes of ``_task_size``."""
        n_sums, weighted, random, n_classes, _ = self._kind
        most_rows, outside, n_levels, block_rows = self._task_size
        stack = make_stack(n_levels, most_rows, n_sums)
        return Task(
            # What the trees of a fit have in turn is put in for each, and no longer needed then.
            partition=no_rows(),
            spare=no_rows(),
            target=ground.target[:0].copy(),
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


def _on(ground: Ground, task: Task, block_rows: int, heirs: Heirs | None) -> Task:
    """Return a thread's task for another tree."""
    own = task.heirs
    if heirs is not None and own is not None:
        own = Heirs(heirs.zone_map, heirs.sums, heirs.free, heirs.n_threads, own.slot_of, heirs.ids, own.bar)
    _, _, _, _, _, _, pool, scratch, best, bits, block, _, stack, _ = task
    return Task(*ground[:-1], pool, scratch, best, bits, block, block_rows, stack, own)
