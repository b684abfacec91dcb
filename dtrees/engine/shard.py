"""A shard: some presorted columns of a table, and a replica of the row partition of the tree being grown.

It answers the messages of :mod:`dtrees.engine.messages`, one at a time, and does nothing on its own. In this process one shard has all
columns; on a cluster each worker has a shard of some. Work within a message is spread over the shard's threads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtrees.engine import messages as m
from dtrees.engine.crew import Crew, Ground, Roots
from dtrees.engine.divide import divide_tasks
from dtrees.engine.limits import make_limits
from dtrees.engine.node_table import NodeTable
from dtrees.engine.packing import PackedNodes
from dtrees.engine.places import places_of
from dtrees.engine.plans import BoostingPlan, ForestPlan
from dtrees.engine.slots import Slots, Workspace
from dtrees.engine.sums import Level, ZoneSums, inherits_sums, rows_in_block
from dtrees.engine.targets import BoostingTarget, ForestTarget
from dtrees.engine.threads import Threads
from dtrees.split import hashing, partition, search, status, subtree
from dtrees.split.block import block_rows
from dtrees.split.columns import Assembly, Columns
from dtrees.split.deviation import node_medians
from dtrees.split.draws import find_pure, pair_drawn, search_on
from dtrees.split.excerpt import excerpt
from dtrees.split.level import SCAN, search_level

T = TypeVar("T")

#: Rows a task of the search should have at least, over all its nodes and columns.
_TASK_ROWS = 8192
#: Rows to be marked or divided for each thread: to start a thread from Python takes as long as this many.
_THREAD_ROWS = 32_768
#: Cells of subtrees to be grown for each thread.
_GROW_CELLS = 32_768
#: The same where they are searched by zone sums.
_HEIR_CELLS = 2**15
#: Nodes of a tree that are to be left to each thread: enough that all end together.
_PARTS = 3
#: Fewest rows of a node that threads share.
_SHARE_ROWS = 2048


class _Searched(NamedTuple):
    """Nodes that are searched, the best of each so far, which of them are not pure, and those's level and bars."""

    nodes: NDArray[np.int64]
    best: search.Candidates
    impure: NDArray[np.int64]
    level: Level | None
    bars: NDArray[np.float64]


class Shard:
    """See the module's text.

    Parameters
    ----------
    columns : Columns
    column_ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    n_columns_total : int
        Columns of the whole table.
    target : ndarray, shape (n_rows,)
        float64 for regression, class numbers otherwise.
    weight : ndarray of float64, shape (n_rows,), or None
    n_threads : int
    """

    def __init__(
        self,
        columns: Columns,
        column_ids: NDArray[np.int32],
        n_columns_total: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int = 1,
    ) -> None:
        self._n_columns_total = n_columns_total
        self._table = (target, weight)
        self._threads = Threads(n_threads)
        self._fit: tuple[str, int] | None = None
        self._slots = Slots([], self._threads, columns)
        self._sums_zones = True
        self._take_columns(columns, column_ids)

    def _take_columns(self, columns: Columns, column_ids: NDArray[np.int32]) -> None:
        self._columns = columns
        self._ids = np.asarray(column_ids, np.int32)
        self._place_of = np.full(self._n_columns_total, -1, np.int64)
        self._place_of[self._ids] = np.arange(self._ids.shape[0])
        self._zone_sums: ZoneSums | None = None
        self._crew = Crew(columns)
        self._rows = self._spare = partition.no_rows()
        self._use_columns(np.arange(self._n_columns_total, dtype=np.int32))

    def with_columns(self, columns: Columns, column_ids: NDArray[np.int32]) -> Shard:
        """Return a shard of other columns that stands, between two trees, where this one does, and takes its place.

        The state of the rows is not copied; this shard is not to be used any more, nor closed.
        """
        other = copy.copy(self)
        other._take_columns(columns, column_ids)
        self._slots.close()
        other._slots = Slots([other._for_one_tree() for _ in range(len(self._slots))], self._threads, columns)
        return other

    @property
    def is_whole(self) -> bool:
        """Whether this shard has every column of the table."""
        return self._ids.shape[0] == self._n_columns_total

    @property
    def n_threads(self) -> int:
        """Threads that work within a message is spread over."""
        return self._threads.n_threads

    def close(self) -> None:
        """End the shard's threads."""
        self._slots.close()
        self._threads.close()

    def handle(self, message: m.Message) -> m.Reply:
        """Carry out a message and return the reply.

        Raises
        ------
        StaleMessage
            If it is of another fit or epoch than the last ``Begin``.
        """
        if isinstance(message, m.Begin):
            return self._begin(message)
        if isinstance(message, m.Renew):
            return self._renew(message)
        if self._fit != (message.fit, message.epoch):
            raise m.StaleMessage(f"message of fit {message.fit}, epoch {message.epoch} to a shard of fit and epoch {self._fit}")
        if isinstance(message, m.Many):
            replies = self._slots.handle(message)
            self._n_finished += sum(isinstance(one, m.Finish) for one in message.messages)
            return replies
        return self._carry_out(message)

    def _carry_out(self, message: m.Message) -> m.Reply:
        match message:
            case m.Start():
                return self._start(message)
            case m.Route():
                self._route(message.output)
                return None
            case m.Fetch():
                return m.RowState([array[..., message.first : message.last] for array in self._target.state()])
            case m.Adopt():
                self._adopt(message)
                return None
            case m.Search():
                return self._search_rest(message.nodes, message.skip)
            case m.Scan():
                return self._scan(message.bars)
            case m.Evaluate():
                splits = message.splits
                return self._mark(splits.node, splits.column, splits.threshold, splits.missing_left)
            case m.Advance():
                return self._advance(message)
            case m.Grow():
                return self._grow(message.nodes)
            case m.Lend():
                return [self._excerpt(self._rows.rows[self._places_of(nodes)]) for nodes in message.nodes]
            case m.Borrow():
                return self._borrow(message)
            case m.MeasureLeaves():
                return self._measure(message)
            case m.MeasureNodes():
                return self._measure_nodes(message)
            case m.Finish():
                return self._finish(message)
        raise TypeError(f"a shard does not know messages of type {type(message).__name__}")

    def _begin(self, message: m.Begin) -> m.Begun:
        target, weight = self._table
        self._plan: ForestPlan | BoostingPlan = message.plan
        self._fit = (message.fit, message.epoch)
        self._n_finished = 0
        self._crew.forget()
        self._use_columns(np.arange(self._n_columns_total, dtype=np.int32))
        self._n_classes = message.plan.n_classes if isinstance(message.plan, ForestPlan) else 0
        self._nodes = NodeTable(self._n_classes if self._n_classes > 2 else 2)
        if isinstance(message.plan, BoostingPlan):
            boosting = BoostingTarget(message.plan, target, weight, message.initial, self._threads)
            self._target: ForestTarget | BoostingTarget = boosting
            return m.Begun(boosting.initial)
        self._target = ForestTarget(message.plan, target, weight)
        self._slots.close()
        self._slots = Slots([self._for_one_tree() for _ in range(message.n_slots)], self._threads, self._columns)
        return m.Begun(np.empty(0), 0 if self._target.out_of_bag is None else self._target.out_of_bag.exponent)

    def _use_columns(self, pool: NDArray[np.int32]) -> None:
        """Have the next trees use some columns, ascending; their arrays are never written to."""
        self._pool = pool
        places = self._place_of[pool]
        self._places = places[places >= 0]

    def _for_one_tree(self) -> Shard:
        """Return a shard of the same columns and target, for one of several trees."""
        one = copy.copy(self)
        one._rows = partition.no_rows()
        one._nodes = NodeTable(self._nodes.sums.shape[1])
        one._sums_zones = False  # room for the sums of one tree is what many trees need for all else
        return one

    def carry_out_in(self, workspace: Workspace, message: m.Message) -> m.Reply:
        """Carry out a message about one of several trees, with what they share."""
        n, n_b = self._rows.rows.shape[0], self._rows.b.shape[0]
        if workspace.spare.rows.shape[0] < n or workspace.spare.b.shape[0] < n_b:
            workspace.spare = self._rows.spare(n)
        workspace.crew.forget_nodes()
        self._threads, self._crew, self._spare = workspace.threads, workspace.crew, workspace.spare
        reply = self._carry_out(message)
        workspace.spare, self._spare = self._spare, partition.no_rows()
        return reply

    def _renew(self, message: m.Renew) -> m.Standing:
        fit, epoch = self._fit or (message.fit, message.epoch - 1)
        if fit != message.fit or epoch >= message.epoch:
            raise m.StaleMessage(f"epoch {message.epoch} of fit {message.fit} is not after epoch {epoch} of fit {fit}")
        if self._fit is None:
            return m.Standing(-1)
        self._fit = (message.fit, message.epoch)
        return m.Standing(self._n_finished)

    def _adopt(self, message: m.Adopt) -> None:
        for mine, theirs in zip(self._target.state(), message.state.arrays, strict=True):
            mine[..., message.first : message.first + theirs.shape[-1]] = theirs
        self._n_finished = message.n_finished

    @property
    def target(self) -> ForestTarget | BoostingTarget:
        """What the trees of the fit under way are split on."""
        return self._target

    def _start(self, message: m.Start) -> m.Root:
        prepared = self._target.start(message.tree, message.output)
        n_rows = prepared.a.shape[0]
        if prepared.in_sample is None:
            rows = np.arange(n_rows, dtype=np.uint32)
            n_in = n_rows
        else:
            inside = np.flatnonzero(prepared.in_sample).astype(np.uint32)
            n_in = inside.shape[0]
            if self._target.keeps_out_of_sample:
                rows = np.concatenate([inside, np.flatnonzero(~prepared.in_sample).astype(np.uint32)])
            else:
                rows = inside
        n = rows.shape[0]
        nothing = np.empty(0, np.int64)
        self._lay_out(rows, weighted=prepared.b.shape[0] > 0)
        total_a, total_b, size, slope = partition.gather(self._rows, n_in, prepared.a, prepared.b)
        prepared = prepared._replace(a=nothing, b=nothing)  # their memory may be needed
        if n_in < n:  # not what an earlier tree left there: shards that saw other trees must agree
            self._rows.a[n_in:] = 0
            self._rows.b[n_in:] = 0
        self._pure_by, self._levels = prepared.pure_by, prepared.levels
        if self._levels.shape[0]:
            self._crew.forget()  # it holds the levels, which weights drawn anew change
        moments = self._n_classes <= 2
        sums = np.array([total_a, total_b], np.int64) if moments else self._sums_of_classes(n_in)
        rules = self._plan.rules
        self._limits, self._stops = make_limits(rules, self._n_classes, sums, prepared.exponents, slope if moments else 0.0)
        seed = self._target.seed
        if rules.columns_per_tree < self._n_columns_total:
            self._use_columns(hashing.tree_columns(seed, message.tree, self._n_columns_total, rules.columns_per_tree))
        node_key = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, message.tree))
        self._keys = (node_key, np.uint64(hashing.stream_key(seed, hashing.STREAM_THRESHOLD, message.tree)))
        self._nodes.open(n_in, n, hashing.ROOT, sums)
        self._inherits = self._sums_zones and inherits_sums(rules, self._n_classes)
        if self._inherits:
            if self._zone_sums is None:
                self._zone_sums = ZoneSums(self._columns, self._threads)
            self._zone_sums.start(self._places, n_in, size, self._rows.b.shape[0] > 0)
        found = self._search(np.zeros(1, np.int64), nothing, nothing, message.way) if message.search else None
        checksum = int(partition.checksum(self._rows)) if message.check else 0
        return m.Root(n_in, n, sums, prepared.exponents, checksum, found)

    def _lay_out(self, rows: NDArray[np.uint32], weighted: bool) -> None:
        """Make the row partition of a new tree."""
        n = rows.shape[0]
        if self._rows.a.shape[0] == n and self._rows.b.shape[0] == (n if weighted else 0):
            self._rows = self._rows._replace(rows=rows)  # memory that is in use already costs no page faults
        else:
            self._rows = partition.RowPartition(rows, np.zeros(n, np.int64), np.zeros(n if weighted else 0, np.int64))
            self._spare = self._rows.spare(n)

    def _route(self, output: int) -> None:
        if isinstance(self._target, BoostingTarget) and output == 0:
            self._target.open_round()
        n_rows = self._table[0].shape[0]
        self._lay_out(np.arange(n_rows, dtype=np.uint32), weighted=False)
        self._nodes.open(0, n_rows, hashing.ROOT, np.zeros(self._nodes.sums.shape[1], np.int64))

    def _sums_of_classes(self, n_in: int) -> NDArray[np.int64]:
        a, b = self._rows.a[:n_in], self._rows.b[:n_in]
        sums = np.zeros(self._n_classes, np.int64)
        np.add.at(sums, a, b if b.shape[0] else 1)
        return sums

    # --- searching ---

    def _scratch_for(self, thread: int) -> search.Scratch:
        return self._crew.scratch_for(thread, int(self._nodes.mid[0]), self._limits.n_classes, self._levels)

    def _search(self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64], way: m.Way) -> m.Found | m.Bars:
        """Search nodes, children of ``parents``, in those of this shard's columns that are drawn for them."""
        table = self._nodes
        best = search.empty_candidates(nodes.shape[0], table.sums.shape[1])
        pure = self._mark_pure(nodes, best)
        impure = np.flatnonzero(~pure)
        level = None
        if self._inherits and self._zone_sums is not None:
            level = self._zone_sums.plan(parents, left, nodes[impure], table.start, table.mid)
        self._searched = _Searched(nodes, best, impure, level, np.full(impure.shape[0], -1.0))
        if way == m.Way.BARS:
            bars = np.full(nodes.shape[0], -1.0)
            if level is not None and impure.shape[0]:
                self._search_level(self._searched, 0, level.first_scan)
                bars[impure] = self._searched.bars
            return m.Bars(bars)
        return self._find(self._searched, 0, mark=way == m.Way.OFFER)

    def _scan(self, bars: NDArray[np.float64]) -> m.Found:
        """Finish the search that a message began, knowing the best scores that any shard knows of."""
        self._searched.bars[:] = bars[self._searched.impure]
        level = self._searched.level
        return self._find(self._searched, 0 if level is None else level.first_scan, mark=True)

    def _find(self, searched: _Searched, first: int, mark: bool) -> m.Found:
        """Find the best splits of nodes; the first tasks of their level have been done already."""
        nodes, best, impure, level, _ = searched
        if impure.shape[0]:
            if level is not None:
                which, found = self._search_level(searched, first, level.tasks.shape[0])
            else:
                which, found = self._search_each(nodes[impure])
            search.best_by_node(found, impure[which], best)
        marks = None
        if mark:
            split = best.records["status"] == status.SPLIT
            some = best.records[split]
            marks = self._mark(nodes[split], some["column"], some["threshold"], some["missing_left"]).spread(split)
        return m.Found(best, np.zeros(nodes.shape[0], np.int64), marks)

    def _search_level(self, searched: _Searched, first: int, last: int) -> tuple[NDArray[np.int64], search.Candidates]:
        """Do some of the tasks of a level; return the candidates found, and the index of the node that each belongs to."""
        level = searched.level
        assert self._zone_sums is not None
        assert level is not None
        node_sums = self._nodes.sums[searched.nodes[searched.impure]]
        zone_map, operations = self._zone_sums.zone_map, level.operations
        found = search.empty_candidates(operations.shape[0], node_sums.shape[1])
        tasks = level.tasks[first:last] - np.array([0, 0, first])

        n_tasks = tasks.shape[0]
        scratch = [self._scratch_for(thread) for thread in range(max(1, min(level.n_threads, n_tasks)))]
        self._threads.share(
            n_tasks,
            lambda queue, thread: search_level(
                queue, tasks, operations, self._columns, self._ids, zone_map, self._rows, level.sums, level.nodes, node_sums,
                self._limits, searched.bars, scratch[thread], found,
            ),
            level.n_threads,
        )  # fmt: skip
        scans = operations[:, 0] == SCAN
        return operations[scans, 1], found.take(scans)

    def _search_each(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], search.Candidates]:
        """Search each node in the columns drawn for it; return as :meth:`_search_level`."""
        table = self._nodes
        tasks = self._tasks(nodes)
        found = search.empty_candidates(tasks.shape[0], table.sums.shape[1])
        if not tasks.shape[0]:
            return tasks[:, 0], found
        starts, mids, sums, paths = table.start[nodes], table.mid[nodes], table.sums[nodes], table.path[nodes]
        cost = np.cumsum((mids - starts)[tasks[:, 0]] + 64)
        n_pieces = 1 if self.n_threads == 1 else int(min(4 * self.n_threads, cost[-1] // _TASK_ROWS + 1))
        bounds = np.searchsorted(cost, np.linspace(0, cost[-1], n_pieces + 1)[1:-1])
        bounds = np.concatenate([[0], bounds, [tasks.shape[0]]]).astype(np.int64)
        self._in_pieces(
            range(n_pieces),
            lambda piece, scratch: search.search_many(
                self._columns, self._ids, tasks, bounds[piece], bounds[piece + 1], self._rows,
                starts, mids, sums, self._limits, self._keys[1], paths, scratch, found,
            ),
        )  # fmt: skip
        return tasks[:, 0], found

    def _in_pieces(self, pieces: Sequence[T], run: Callable[[T, search.Scratch], None]) -> None:
        """Run pieces of work on the threads, each with scratch space of its own."""
        free = [self._scratch_for(thread) for thread in range(min(self.n_threads, len(pieces)))]

        def take_turns(piece: T) -> None:
            scratch = free.pop()  # list.pop and append are atomic
            run(piece, scratch)
            free.append(scratch)

        self._threads.map(take_turns, pieces)

    def _mark_pure(self, nodes: NDArray[np.int64], best: search.Candidates) -> NDArray[np.bool_]:
        table = self._nodes
        pure = np.zeros(nodes.shape[0], np.bool_)
        if self._pure_by.shape[0]:
            pure = find_pure(self._pure_by, self._rows.rows, table.start[nodes], table.mid[nodes])
        best.records["status"][pure] = status.NO_SPLIT
        best.records["column"][pure] = self._n_columns_total
        return pure

    def _tasks(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return pairs of a node (index into ``nodes``) and one of this shard's columns (index), shape (n, 2)."""
        n_drawn = min(self._stops.max_features, self._pool.shape[0])
        if n_drawn < self._pool.shape[0]:
            return pair_drawn(self._keys[0], self._nodes.path[nodes], self._pool, n_drawn, self._place_of)
        pairs = np.empty((nodes.shape[0], self._places.shape[0], 2), np.int64)
        pairs[:, :, 0], pairs[:, :, 1] = np.arange(nodes.shape[0])[:, None], self._places
        return pairs.reshape(-1, 2)

    def _search_rest(self, nodes: NDArray[np.int64], skip: int) -> m.Found:
        """Search nodes column by column, from the ``skip``-th drawn on, until one of this shard's varies."""
        table = self._nodes
        found = search.empty_candidates(nodes.shape[0], table.sums.shape[1])
        place = np.empty(nodes.shape[0], np.int64)
        search_on(
            self._columns, self._ids, self._keys[0], self._pool, skip, self._place_of, self._rows, table.start[nodes], table.mid[nodes],
            table.sums[nodes], self._limits, self._keys[1], table.path[nodes], self._scratch_for(0), found, place,
        )  # fmt: skip
        return m.Found(found, place)

    # --- applying splits ---

    def _mark(
        self,
        nodes: NDArray[np.int64],
        columns: NDArray[np.int32],
        thresholds: NDArray[np.float64],
        missing_left: NDArray[np.bool_],
    ) -> m.Marks:
        """Mark the rows that splits send left."""
        start, stop = self._nodes.start[nodes], self._nodes.stop[nodes]
        n_bytes = (stop - start + 7) // 8
        offsets = np.concatenate([[0], np.cumsum(n_bytes)]).astype(np.int64)
        bits = np.empty(offsets[-1], np.uint8)

        step = max(_TASK_ROWS // 8, int(offsets[-1]) // (2 * self.n_threads) + 1)
        pieces = [(i, k, min(k + step, n)) for i, n in enumerate(n_bytes.tolist()) for k in range(0, n, step)]
        tasks = np.array(pieces, np.int64).reshape(-1, 3)
        places = self._place_of[columns]
        thresholds, missing_left = np.ascontiguousarray(thresholds), np.ascontiguousarray(missing_left)
        self._threads.share(
            tasks.shape[0],
            lambda queue, _: partition.mark_many(
                queue, tasks, self._columns, places, thresholds, missing_left, self._rows.rows, start, stop, bits, offsets
            ),
            most=1 + bits.shape[0] * 8 // _THREAD_ROWS,
        )
        return m.Marks(bits, offsets)

    def _advance(self, message: m.Advance) -> m.Divided:
        splits = message.splits
        left_mid, left_stop = self._divide(splits, message.marks)
        found = self._search(message.search, splits.node, splits.left, message.way) if message.search.shape[0] else None
        return m.Divided(left_mid, left_stop, found)

    def _divide(self, splits: m.Splits, marks: m.Marks, rows_only: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Apply splits; return where the left children end, in sample and in all. The sums of rows stay behind, if they are not needed."""
        bits, offsets = marks
        table = self._nodes
        n = splits.node.shape[0]
        start, mid, stop = table.start[splits.node], table.mid[splits.node], table.stop[splits.node]
        left_mid, left_stop, tasks = divide_tasks(start, mid, stop, bits, offsets, self.n_threads)
        summed = start if rows_only else mid
        self._threads.share(
            tasks.shape[0],
            lambda queue, _: partition.divide_many(queue, tasks, bits, offsets, self._rows, start, summed, stop, self._spare),
            most=1 + int((stop - start).sum()) // _THREAD_ROWS,
        )
        if not np.array_equal(left_mid - start, splits.n_left):
            raise m.ReplicasDiffer("the rows that a split sends left are not as many as its search counted")
        left, right = splits.left, splits.left + 1
        table.reserve(int(right.max(initial=0)) + 1)
        table.start[left], table.mid[left], table.stop[left] = start, left_mid, left_stop
        table.start[right], table.mid[right], table.stop[right] = left_stop, left_stop + (mid - left_mid), stop
        table.sums[left] = splits.left_sums
        table.sums[right] = table.sums[splits.node] - splits.left_sums
        table.depth[left] = table.depth[right] = table.depth[splits.node] + 1
        table.path[left] = hashing.child_paths(table.path[splits.node], np.zeros(n, np.int64))
        table.path[right] = hashing.child_paths(table.path[splits.node], np.ones(n, np.int64))
        return left_mid, left_stop

    # --- whole subtrees, leaves, the end of a tree ---

    def _grow(self, nodes: NDArray[np.int64]) -> m.Subtrees:
        table = self._nodes
        places = list(zip(*(array[nodes].tolist() for array in (table.start, table.mid, table.stop, table.depth)), strict=True))
        roots = Roots(places, table.path[nodes], table.sums[nodes])
        n_columns, most_rows = self._pool.shape[0], max(mid - start for start, mid, _, _ in places)
        n_cells = sum(stop - start for start, _, stop, _ in places) * n_columns
        heirs, in_block = None, 0
        if self._zone_sums is not None and self._inherits:
            n_threads = min(self.n_threads, 1 + n_cells // _HEIR_CELLS)
            heirs = self._zone_sums.heirs(n_threads, self._n_columns_total)
        else:
            n_threads = min(self.n_threads, nodes.shape[0], 1 + n_cells // _GROW_CELLS)
        if heirs is not None:
            in_block = rows_in_block(self._plan.rules, most_rows, n_columns)
        elif not self._levels.shape[0]:
            in_block = block_rows(self._limits.random, self._stops.max_features, n_columns)
        share_rows = most_rows if heirs is None or n_threads == 1 else max(_SHARE_ROWS, most_rows // (_PARTS * n_threads))
        for thread in range(n_threads):
            self._scratch_for(thread)
        ground = Ground(self._rows, self._spare, self._pure_by, self._limits, self._stops, self._keys, self._pool)
        return self._crew.grow(self._threads, n_threads, ground, roots, in_block, share_rows, heirs)

    def _places_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes' rows, one node after the other."""
        start = self._nodes.start[nodes]
        return places_of(start, self._nodes.stop[nodes] - start)

    def _excerpt(self, rows: NDArray[np.uint32]) -> m.Loan:
        """Return this shard's columns of the tree in some rows."""
        return m.Loan(self._ids[self._places], excerpt(self._columns, self._places, rows))

    def _borrow(self, message: m.Borrow) -> m.Borrowed:
        """Grow nodes in a table of their rows alone, and leave the rows where they belong then."""
        table = self._nodes
        places = self._places_of(message.nodes)
        rows = self._rows.rows[places]
        assembly = Assembly(rows.shape[0], self._n_columns_total)
        for ids, columns in (self._excerpt(rows), *message.loans):
            assembly.take(ids.tolist(), columns)
        one = copy.copy(self)
        one._columns = assembly.finished()
        one._crew = Crew(one._columns)
        numbers = np.arange(rows.shape[0], dtype=np.uint32)
        one._rows = partition.RowPartition(numbers, self._rows.a[places], self._rows.b[places if self._rows.b.shape[0] else places[:0]])
        one._spare = one._rows.spare(rows.shape[0])
        one._pure_by = self._pure_by[rows if self._pure_by.shape[0] else rows[:0]]
        one._inherits = False
        # Node 0 are all rows, whichever nodes they are of; the nodes come after it.
        one._nodes = NodeTable(table.sums.shape[1])
        one._nodes.reserve(message.nodes.shape[0] + 1)
        one._nodes.mid[0] = one._nodes.stop[0] = rows.shape[0]
        mine = slice(1, message.nodes.shape[0] + 1)
        stop = np.cumsum(table.stop[message.nodes] - table.start[message.nodes])
        moved = stop - table.stop[message.nodes]
        one._nodes.start[mine], one._nodes.mid[mine] = table.start[message.nodes] + moved, table.mid[message.nodes] + moved
        one._nodes.stop[mine] = stop
        for name in ("depth", "path", "sums"):
            getattr(one._nodes, name)[mine] = getattr(table, name)[message.nodes]
        grown = one._grow(np.arange(1, message.nodes.shape[0] + 1))
        self._rows.rows[places], self._rows.a[places] = rows[one._rows.rows], one._rows.a
        if self._rows.b.shape[0]:
            self._rows.b[places] = one._rows.b
        outside = []
        for nodes, by in zip(grown, moved.tolist(), strict=True):
            for name in ("start", "mid", "stop"):
                nodes.records[name] -= by
            if self._target.keeps_out_of_sample:
                leaves = nodes.records[nodes.records["column"] < 0]
                outside.append(self._rows.rows[places_of(leaves["mid"], leaves["stop"] - leaves["mid"])])
            else:
                outside.append(rows[:0])
        return m.Borrowed([PackedNodes.of(nodes) for nodes in grown], outside)

    def _measure(self, message: m.MeasureLeaves) -> m.Measured:
        n = message.start.shape[0]
        mean, spread = np.empty(n), np.empty(n)
        target = self._table[0]
        bounds = np.linspace(0, n, min(n, 4 * self.n_threads) + 1).astype(np.int64)

        def measure(i: int) -> None:
            s = slice(bounds[i], bounds[i + 1])
            subtree.leaf_means(self._rows.rows, self._rows.b, target, message.start[s], message.mid[s], mean[s], spread[s])

        self._threads.map(measure, range(bounds.shape[0] - 1))
        return m.Measured(mean, spread)

    def _measure_nodes(self, message: m.MeasureNodes) -> m.Measured:
        n = message.start.shape[0]
        median, spread = np.empty(n), np.empty(n)
        node_medians(self._rows, self._table[0], message.left, message.right, message.start, message.mid, median, spread)
        return m.Measured(median, spread)

    def _finish(self, message: m.Finish) -> m.Scores:
        if message.last is not None:
            self._divide(message.last.splits, message.last.marks, rows_only=True)
        if message.lent is not None and message.outside is not None:
            mid, stop = message.mid[message.lent], message.stop[message.lent]
            self._rows.rows[places_of(mid, stop - mid)] = message.outside
        self._target.finish(message.output, self._rows.rows, message)
        self._n_finished += 1
        if message.score and isinstance(self._target, BoostingTarget):
            return m.Scores(*self._target.scores())
        return m.Scores(np.nan, np.nan)
