"""The nodes of the current tree on a shard, and the search for their best splits in its columns."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.grower import NodeTable
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, rows_to_share
from dtrees.engine.shard.zone_sums import Sizes, SparseSums, ZoneSums
from dtrees.engine.threads import Threads
from dtrees.split.criteria.parts import kinds_of, n_class_sums, without_words
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.grow.best_first import origins
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node.limits import SplitLimits, limits_for_thread
from dtrees.split.node.partition import RowPartition
from dtrees.split.node.records import NO_SPLIT, Candidates, NodesOfTree, best_by_node, empty_candidates
from dtrees.split.policy import GROW_CELLS_BY_SUMS, SEARCH_TASK_ROWS, SERIAL_MAP_CELLS
from dtrees.split.search.column import find_pure, pair_drawn, search_many, search_on
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns
from dtrees.split.table.sparse_zones import SparseZones, find_zones
from dtrees.split.table.zone_map import ZoneMap, map_zones
from dtrees.split.zones.sum_slots import SumSlots
from dtrees.split.zones.sums import MAX_PACKED_ROWS

_NOTHING = np.empty(0, np.int64)
#: The depth of nodes of a level that are not searched.
_NOT_SEARCHED = np.iinfo(np.int64).max


class NodeSearch:
    """The search for the best splits of nodes. It has no state of a tree beyond :meth:`open`.

    Parameters
    ----------
    shard_columns : ShardColumns
    sums_zones : bool
        Whether there is memory for zone sums.

    Attributes
    ----------
    by_sums : bool
        Whether splits of the tree are found by zone sums.
    places : ndarray of int64
        The places of the shard's columns that the tree may use.
    """

    def __init__(self, shard_columns: ShardColumns, sums_zones: bool) -> None:
        self._shard_columns = shard_columns
        self._may_sum = sums_zones
        self._zone_sums: ZoneSums | SparseSums | None = None
        self.by_sums = False
        self._categorical: tuple[int, ...] = ()

    def open(
        self,
        runner: Runner,
        pool: NDArray[np.int32],
        nodes: NodeTable,
        levels: NDArray[np.int64],
        rows: RowPartition,
        sizes: Sizes,
        inherit: bool,
        categorical: tuple[int, ...] = (),
    ) -> None:
        """Begin another tree.

        Parameters
        ----------
        runner : Runner
        pool : ndarray of int32
            The columns of the table that the tree may use.
        nodes : NodeTable
            The nodes of the tree, with the root.
        levels : ndarray of int64
            See :class:`~dtrees.engine.shard.targets.scales.Prepared`.
        rows : RowPartition
        sizes : Sizes
            The sizes of the rows.
        inherit : bool
            Whether the tree's splits can be found by zone sums.
        categorical : tuple of int
            The categorical columns of the table.
        """
        shard_columns = self._shard_columns
        self._nodes, self._levels = nodes, levels
        self.places = shard_columns.places if pool is shard_columns.everything else shard_columns.places_among(pool)
        self.by_sums = self._may_sum and inherit and int(nodes.in_stop[0]) < MAX_PACKED_ROWS and self.places.shape[0] > 0
        self._pool = pool if shard_columns.ids.shape[0] == shard_columns.n_columns_total else self.places.astype(np.int32)
        self._last_level = _NOTHING, _NOTHING
        self._begin: tuple[Any, ...] | None = runner, categorical, (self.places, int(nodes.in_stop[0]), sizes, rows.h.shape[0] > 0)

    def _sums(self) -> ZoneSums | SparseSums:
        """Return the zone sums of the tree, which are created on first use."""
        if self._begin is not None:
            (runner, categorical, tree), self._begin = self._begin, None
            if self._zone_sums is None or categorical != self._categorical:
                self._categorical = categorical
                zone_map = self._shard_columns.zone_map(runner.threads, categorical)
                self._zone_sums = ZoneSums(zone_map, runner.threads) if isinstance(zone_map, ZoneMap) else SparseSums(zone_map)
            self._zone_sums.start(*tree)
        assert self._zone_sums is not None
        return self._zone_sums

    def sum_slots(self, n_threads: int, most_splits: int) -> SumSlots:
        """Return zone sums for threads that grow subtrees (:attr:`by_sums`) of ``most_splits`` splits, 0 if these are not limited."""
        return self._sums().sum_slots(n_threads, self._shard_columns.ids, most_splits=most_splits)

    def scratch_for(self, thread: int, runner: Runner, limits: SplitLimits) -> Scratch:
        """Return the scratch space of a thread, large enough for any node of the tree."""
        n_sums, levels, categories = self._nodes.sums.shape[1], self._levels, limits.categories.some

        def make(n_rows: int, n_distinct: int) -> Scratch:
            sizes = n_class_sums(limits.criterion, n_sums), levels, categories, without_words(limits.criterion, n_sums)
            return make_scratch(n_rows, n_distinct, *sizes, SeveralDeviations in kinds_of(limits.criterion))

        return runner.scratch_for(thread, int(self._nodes.in_stop[0]), categories, make)

    def find(
        self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64], runner: Runner, context: TreeContext
    ) -> Candidates:
        """Return the best splits of nodes, children of ``parents``, in those of this shard's columns that are drawn for them."""
        if self.by_sums:
            return self._search_level(nodes, parents, left, runner, context)
        best = empty_candidates(nodes.shape[0], self._nodes.sums.shape[1])
        impure = np.flatnonzero(~self._mark_pure(nodes, best, context))
        which, found = self._search_each(nodes[impure], runner, context)
        best_by_node(found, impure[which], best)
        return best

    def search_rest(
        self, nodes: NDArray[np.int64], skip: int, runner: Runner, context: TreeContext
    ) -> tuple[Candidates, NDArray[np.int64]]:
        """Search nodes column by column, from the ``skip``-th drawn on, until one of this shard's columns varies; return its place, too."""
        shard_columns = self._shard_columns
        found = empty_candidates(nodes.shape[0], self._nodes.sums.shape[1])
        place, limits = np.empty(nodes.shape[0], np.int64), limits_for_thread(context.limits)
        search_on(
            shard_columns.columns, shard_columns.ids, context.keys[0], context.pool.copy(), skip, shard_columns.place_of,
            self._of_tree(nodes, context), limits, self.scratch_for(0, runner, context.limits), found, place,
        )  # fmt: skip
        return found, place

    def _search_level(
        self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64], runner: Runner, context: TreeContext
    ) -> Candidates:
        """Search nodes by zone sums, which they inherit from their parents."""
        table, (level, slots) = self._nodes, self._last_level
        children = np.stack([left, left + 1], axis=1).ravel() if parents.shape[0] else nodes
        every, n_parents = np.append(parents, children), parents.shape[0]
        depth = np.where(np.isin(every, nodes), table.depth[every], _NOT_SEARCHED)
        places = list(zip(*(array.tolist() for array in (table.start[every], table.in_stop[every], table.stop[every], depth)), strict=True))
        sizes = table.in_stop[nodes] - table.start[nodes]
        n_threads = min(runner.threads.n_threads, 1 + int(sizes.sum()) * self.places.shape[0] // GROW_CELLS_BY_SUMS)
        roots = Roots(places, table.path[every], table.sums[every], origins(every.shape[0]))
        held = slots[np.searchsorted(level, parents)]
        sums = partial(self._sums().sum_slots, n_threads, self._shard_columns.ids, held)
        self.scratch_for(n_threads - 1, runner, context.limits)
        assignment = Assignment(context._replace(pool=self._pool), roots, 0, rows_to_share(int(sizes.max()), n_threads), sums, slots=held)
        found, slots = cast(SubtreeRunner, runner).search(n_threads, assignment)
        self._last_level = children, slots[n_parents:]
        return found.take(n_parents + np.searchsorted(children, nodes))

    def _search_each(self, nodes: NDArray[np.int64], runner: Runner, context: TreeContext) -> tuple[NDArray[np.int64], Candidates]:
        """Search each node in the columns drawn for it; return as :meth:`_search_level`."""
        table = self._nodes
        tasks, shard_columns = self._tasks(nodes, context), self._shard_columns
        found = empty_candidates(tasks.shape[0], table.sums.shape[1])
        if not tasks.shape[0]:
            return tasks[:, 0], found
        of_tree = self._of_tree(nodes, context)
        cost = np.cumsum((of_tree.in_stop - of_tree.start)[tasks[:, 0]] + 64)
        n_threads = runner.threads.n_threads
        n_chunks = 1 if n_threads == 1 else int(min(4 * n_threads, cost[-1] // SEARCH_TASK_ROWS + 1))
        bounds = np.searchsorted(cost, np.linspace(0, cost[-1], n_chunks + 1)[1:-1])
        bounds = np.concatenate([[0], bounds, [tasks.shape[0]]]).astype(np.int64)
        free = [self.scratch_for(thread, runner, context.limits) for thread in range(min(n_threads, n_chunks))]

        def search_chunk(chunk: int) -> None:
            scratch = free.pop()  # list.pop and append are atomic
            limits, (first, last) = limits_for_thread(context.limits), bounds[chunk : chunk + 2]
            search_many(shard_columns.columns, shard_columns.ids, tasks, first, last, of_tree, limits, scratch, found)
            free.append(scratch)

        runner.threads.map(search_chunk, range(n_chunks))
        return tasks[:, 0], found

    def _of_tree(self, nodes: NDArray[np.int64], context: TreeContext) -> NodesOfTree:
        """Return the arguments of kernels that search nodes column by column."""
        table = self._nodes
        return NodesOfTree(
            context.partition, table.start[nodes], table.in_stop[nodes], table.sums[nodes], table.path[nodes], context.keys[1]
        )

    def _mark_pure(self, nodes: NDArray[np.int64], best: Candidates, context: TreeContext) -> NDArray[np.bool_]:
        table = self._nodes
        pure = np.zeros(nodes.shape[0], np.bool_)
        if context.target.shape[0]:
            pure = find_pure(context.target, context.partition.rows, table.start[nodes], table.in_stop[nodes])
        best.records["status"][pure] = NO_SPLIT
        best.records["column"][pure] = self._shard_columns.n_columns_total
        return pure

    def _tasks(self, nodes: NDArray[np.int64], context: TreeContext) -> NDArray[np.int64]:
        """Return pairs of a node (index into ``nodes``) and one of this shard's columns (index), shape (n, 2)."""
        n_drawn = min(context.stops.max_features, context.pool.shape[0])
        if n_drawn < context.pool.shape[0]:
            return pair_drawn(context.keys[0], self._nodes.path[nodes], context.pool.copy(), n_drawn, self._shard_columns.place_of)
        pairs = np.empty((nodes.shape[0], self.places.shape[0], 2), np.int64)
        pairs[:, :, 0], pairs[:, :, 1] = np.arange(nodes.shape[0])[:, None], self.places
        return pairs.reshape(-1, 2)


class ShardColumns:
    """The columns of a shard, and the place of each column of the table; immutable.

    Parameters
    ----------
    columns : Columns or SparseColumns
    ids : ndarray of int32, shape (n_columns,)
        Their numbers in the whole table, ascending.
    n_columns_total : int
        Number of columns of the whole table.

    Attributes
    ----------
    place_of : ndarray of int64, shape (n_columns_total,)
        The index in ``columns`` of each column of the table; -1 if another shard has it.
    everything : ndarray of int32, shape (n_columns_total,)
        The numbers of all columns of the table.
    places : ndarray of int64, shape (n_columns,)
        The index in ``columns`` of every column.
    """

    def __init__(self, columns: AnyColumns, ids: NDArray[np.int32], n_columns_total: int) -> None:
        self.columns, self.ids, self.n_columns_total = columns, np.asarray(ids, np.int32), n_columns_total
        self.places = np.arange(self.ids.shape[0])
        self.place_of = np.full(n_columns_total, -1, np.int64)
        self.place_of[self.ids] = self.places
        self.everything = np.arange(n_columns_total, dtype=np.int32)
        self._lock = threading.Lock()
        self._zone_map: ZoneMap | SparseZones | None = None
        self._categorical: tuple[int, ...] = ()

    def places_among(self, pool: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the indices in ``columns`` of given columns of the table, without those of other shards."""
        places = self.place_of[pool]
        return places[places >= 0]

    def zone_map(self, threads: Threads, categorical: tuple[int, ...]) -> ZoneMap | SparseZones:
        """Return the zone map, given the categorical columns of the table: created on first use by these threads.

        Concurrent threads share it.
        """
        with self._lock:
            if self._zone_map is None or self._categorical != categorical:
                columns, self._categorical = self.columns, categorical
                if isinstance(columns, SparseColumns):
                    self._zone_map = find_zones(columns)
                    return self._zone_map
                in_turn = columns.n_rows * columns.n_columns <= SERIAL_MAP_CELLS
                here = tuple(self.places_among(np.array(categorical, np.int32)).tolist())
                self._zone_map = map_zones(columns, map if in_turn else threads.map, categorical=here)
            return self._zone_map
