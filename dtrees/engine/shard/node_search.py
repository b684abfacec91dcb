"""The nodes of the current tree on a shard, and the search for their best splits in its columns."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.runner import Assignment, Runner, TreeContext, rows_to_share
from dtrees.engine.shard.zone_sums import Sizes, SparseSums, ZoneSums
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import NodeTable
from dtrees.split.criteria.parts import kinds_of, n_class_sums, without_words
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.grow.best_first import LeafBudget, make_budget, origins
from dtrees.split.node.limits import NodeLimits, SplitLimits, limits_for_thread
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

#: The best candidate for each node searched, and its place among the columns drawn for the node.
Found = tuple[Candidates, NDArray[np.int64]]
_NOTHING = np.empty(0, np.int64)
_NO_BUDGET = make_budget(0)
#: The depth of nodes of a level that are not searched.
_NOT_SEARCHED = np.iinfo(np.int64).max


class NodeSearch:
    """The nodes of a tree in growth, and the search for their best splits in a shard's columns.

    Parameters
    ----------
    shard_columns : ShardColumns
    sums_zones : bool
        Whether there is memory for zone sums.
    categorical : tuple of int
        The categorical columns of the table.

    Attributes
    ----------
    runner : Runner
        The threads and buffers by which it is grown; trees that grow side by side take turns.
    rows : RowPartition
    nodes : NodeTable
    by_sums : bool
        Whether splits of the tree are found by zone sums.
    places : ndarray of int64
        The places of the shard's columns that the tree may use.
    """

    runner: Runner
    rows: RowPartition
    nodes: NodeTable
    _limits: SplitLimits
    _stops: NodeLimits
    _keys = np.uint64(0), np.uint64(0)
    _pure_by: NDArray[Any] = _NOTHING
    _levels = _NOTHING

    def __init__(self, shard_columns: ShardColumns, sums_zones: bool, categorical: tuple[int, ...] = ()) -> None:
        self._pool, self._categorical = shard_columns.everything, categorical
        self.take_columns(shard_columns, sums_zones)

    def take_columns(self, shard_columns: ShardColumns, sums_zones: bool) -> None:
        """Search these columns from now on."""
        self._shard_columns, self._may_sum = shard_columns, sums_zones
        self._zone_sums: ZoneSums | SparseSums | None = None

    def begin_search(self, sizes: Sizes, inherit: bool) -> None:
        """Begin to search the nodes of another tree, whose rows of these sizes and whose root are known.

        ``inherit`` says whether the tree's splits can be found by zone sums.
        """
        shard_columns, pool, n_in = self._shard_columns, self._pool, int(self.nodes.in_stop[0])
        self.places = shard_columns.places if pool is shard_columns.everything else shard_columns.places_among(pool)
        self.by_sums = self._may_sum and inherit and n_in < MAX_PACKED_ROWS and self.places.shape[0] > 0
        self._pool_here = pool if shard_columns.ids.shape[0] == shard_columns.n_columns_total else self.places.astype(np.int32)
        self._last_level = _NOTHING, _NOTHING
        self._to_sum: tuple[Any, ...] | None = self.places, n_in, sizes, self.rows.h.shape[0] > 0

    def _sums(self) -> ZoneSums | SparseSums:
        """Return the zone sums of the tree, which are created on first use."""
        if self._zone_sums is None:
            threads = self.runner.threads
            zone_map = self._shard_columns.zone_map(threads, self._categorical)
            self._zone_sums = ZoneSums(zone_map, threads) if isinstance(zone_map, ZoneMap) else SparseSums(zone_map)
        if self._to_sum is not None:
            self._zone_sums.start(*self._to_sum)
            self._to_sum = None
        return self._zone_sums

    def sum_slots(self, n_threads: int, most_splits: int) -> SumSlots:
        """Return zone sums for threads that grow subtrees (:attr:`by_sums`) of ``most_splits`` splits, 0 if these are not limited."""
        return self._sums().sum_slots(n_threads, self._shard_columns.ids, most_splits=most_splits)

    def scratch_for(self, thread: int) -> Scratch:
        """Return the scratch space of a thread, large enough for any node of the tree."""
        criterion, n_sums, categories = self._limits.criterion, self.nodes.sums.shape[1], self._limits.categories.some

        def make(n_rows: int, n_distinct: int) -> Scratch:
            sizes = n_class_sums(criterion, n_sums), self._levels, categories, without_words(criterion, n_sums)
            return make_scratch(n_rows, n_distinct, *sizes, SeveralDeviations in kinds_of(criterion))

        return self.runner.scratch_for(thread, int(self.nodes.in_stop[0]), categories, make)

    def context(self) -> TreeContext:
        """Return the common inputs of all nodes of the tree."""
        spare = self.runner.spare_for(self.rows)
        first, control, waiting = _NO_BUDGET
        budget = LeafBudget(first, control.copy(), waiting)  # copied, so that stopping a tree does not affect others
        return TreeContext(self.rows, spare, self._pure_by, self._limits, self._stops, self._keys, budget, self._pool)

    def find(self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64]) -> Found:
        """Search nodes, children of ``parents`` whose left ones are ``left``, in those of this shard's columns that are drawn for them."""
        place = np.zeros(nodes.shape[0], np.int64)
        if self.by_sums:
            return self._search_level(nodes, parents, left), place
        best = empty_candidates(nodes.shape[0], self.nodes.sums.shape[1])
        impure = np.flatnonzero(~self._mark_pure(nodes, best))
        which, found = self._search_each(nodes[impure])
        best_by_node(found, impure[which], best)
        return best, place

    def find_further(self, nodes: NDArray[np.int64], skip: int) -> Found:
        """Search nodes column by column, from the ``skip``-th drawn on, until one of this shard's columns varies; return its place, too."""
        shard_columns = self._shard_columns
        found = empty_candidates(nodes.shape[0], self.nodes.sums.shape[1])
        place, limits = np.empty(nodes.shape[0], np.int64), limits_for_thread(self._limits)
        search_on(
            shard_columns.columns, shard_columns.ids, self._keys[0], self._pool.copy(), skip, shard_columns.place_of,
            self.of_tree(nodes), limits, self.scratch_for(0), found, place,
        )  # fmt: skip
        return found, place

    def _search_level(self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64]) -> Candidates:
        """Search nodes by zone sums, which they inherit from their parents."""
        table, threads, (level, slots) = self.nodes, self.runner.threads, self._last_level
        children = np.stack([left, left + 1], axis=1).ravel() if parents.shape[0] else nodes
        every, n_parents = np.append(parents, children), parents.shape[0]
        depth = np.where(np.isin(every, nodes), table.depth[every], _NOT_SEARCHED)
        sizes = table.in_stop[nodes] - table.start[nodes]
        n_threads = min(threads.n_threads, 1 + int(sizes.sum()) * self.places.shape[0] // GROW_CELLS_BY_SUMS)
        held = slots[np.searchsorted(level, parents)]
        sums = partial(self._sums().sum_slots, ids=self._shard_columns.ids, held=held)
        self.scratch_for(n_threads - 1)
        roots, share_rows = table.roots(every, origins(every.shape[0]), depth), rows_to_share(int(sizes.max()), n_threads)
        assignment = Assignment(self.context()._replace(pool=self._pool_here), roots, 0, share_rows, sums, slots=held)
        found, slots = cast(SubtreeRunner, self.runner).search(n_threads, assignment)
        self._last_level = children, slots[n_parents:]
        return found.take(n_parents + np.searchsorted(children, nodes))

    def _search_each(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], Candidates]:
        """Search each node in each of the columns drawn for it; return the index of the node of each candidate, and the candidates."""
        tasks, shard_columns, threads = self._tasks(nodes), self._shard_columns, self.runner.threads
        found = empty_candidates(tasks.shape[0], self.nodes.sums.shape[1])
        if not tasks.shape[0]:
            return tasks[:, 0], found
        of_tree, n_threads = self.of_tree(nodes), threads.n_threads
        cost = np.cumsum((of_tree.in_stop - of_tree.start)[tasks[:, 0]] + 64)
        n_chunks = 1 if n_threads == 1 else int(min(4 * n_threads, cost[-1] // SEARCH_TASK_ROWS + 1))
        bounds = np.searchsorted(cost, np.linspace(0, cost[-1], n_chunks + 1)[1:-1])
        bounds = np.concatenate([[0], bounds, [tasks.shape[0]]]).astype(np.int64)
        free = [self.scratch_for(thread) for thread in range(min(n_threads, n_chunks))]

        def search_chunk(chunk: int) -> None:
            scratch = free.pop()  # list.pop and append are atomic
            limits, (first, last) = limits_for_thread(self._limits), bounds[chunk : chunk + 2]
            search_many(shard_columns.columns, shard_columns.ids, tasks, first, last, of_tree, limits, scratch, found)
            free.append(scratch)

        threads.map(search_chunk, range(n_chunks))
        return tasks[:, 0], found

    def of_tree(self, nodes: NDArray[np.int64]) -> NodesOfTree:
        """Return the arguments of kernels that search nodes column by column."""
        table = self.nodes
        return NodesOfTree(self.rows, table.start[nodes], table.in_stop[nodes], table.sums[nodes], table.path[nodes], self._keys[1])

    def _mark_pure(self, nodes: NDArray[np.int64], best: Candidates) -> NDArray[np.bool_]:
        table = self.nodes
        pure = np.zeros(nodes.shape[0], np.bool_)
        if self._pure_by.shape[0]:
            pure = find_pure(self._pure_by, self.rows.rows, table.start[nodes], table.in_stop[nodes])
        best.records["status"][pure] = NO_SPLIT
        best.records["column"][pure] = self._shard_columns.n_columns_total
        return pure

    def _tasks(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return pairs of a node (index into ``nodes``) and one of this shard's columns (index), shape (n, 2)."""
        n_drawn, pool = min(self._stops.max_features, self._pool.shape[0]), self._pool
        if n_drawn < pool.shape[0]:
            return pair_drawn(self._keys[0], self.nodes.path[nodes], pool.copy(), n_drawn, self._shard_columns.place_of)
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
