"""The search for the best splits of the nodes of a tree under way, in a shard's columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol import messages as m
from dtrees.engine.shard.levels.node_table import NodeTable
from dtrees.engine.shard.levels.zone_planner import Level, Sizes, ZoneSums
from dtrees.engine.shard.shard_columns import ShardColumns
from dtrees.engine.shard.subtrees.runner import TreeContext
from dtrees.engine.shard.workspace import Workspace
from dtrees.split.criteria.parts import kinds_of, n_class_sums, without_words
from dtrees.split.criteria.several import SeveralDeviations
from dtrees.split.grow.level import SCAN, SummedLevel, search_level
from dtrees.split.node import status
from dtrees.split.node.candidate import Candidates, best_by_node, empty_candidates
from dtrees.split.node.limits import Categories, SplitLimits, limits_for_thread
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import SEARCH_TASK_ROWS
from dtrees.split.search.column import search_many
from dtrees.split.search.node_batches import find_pure, pair_drawn, search_on
from dtrees.split.search.node_column import NodesOfTree
from dtrees.split.search.scratch import Scratch
from dtrees.split.zones.sum_slots import SumSlots


class _Searched(NamedTuple):
    """Nodes that are searched, the best of each so far, which of them are not pure, and those's level and bars."""

    nodes: NDArray[np.int64]
    best: Candidates
    impure: NDArray[np.int64]
    level: Level | None
    bars: NDArray[np.float64]


class NodeSearch:
    """The search for the best splits of nodes. It knows a tree only by what :meth:`open` and the messages about it say.

    Parameters
    ----------
    shard_columns : ShardColumns
    sums_zones : bool
        Whether there is room for zone sums.
    """

    def __init__(self, shard_columns: ShardColumns, sums_zones: bool) -> None:
        self._shard_columns = shard_columns
        self._may_sum = sums_zones
        self._zone_sums: ZoneSums | None = None
        self._categorical: tuple[int, ...] = ()

    def open(
        self,
        workspace: Workspace,
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
        workspace : Workspace
        pool : ndarray of int32
            The columns of the table that the tree may use.
        nodes : NodeTable
            Of the tree, with the root in it.
        levels : ndarray of int64
            See :class:`~dtrees.engine.shard.targets.prepared.Prepared`.
        rows : RowPartition
        sizes : Sizes
            Of their rows.
        inherit : bool
            Whether the tree's splits can be found by zone sums.
        categorical : tuple of int
            The columns of the table that hold categories.
        """
        shard_columns = self._shard_columns
        self._nodes, self._levels = nodes, levels
        self._places = shard_columns.places if pool is shard_columns.everything else shard_columns.places_among(pool)
        self._by_sums = self._may_sum and inherit
        if self._by_sums:
            if self._zone_sums is None or categorical != self._categorical:
                self._categorical = categorical
                zone_map = shard_columns.zones.get(workspace.threads, shard_columns.places_of(categorical))
                self._zone_sums = ZoneSums(zone_map, workspace.threads)
            self._zone_sums.start(self._places, int(nodes.in_stop[0]), sizes, rows.h.shape[0] > 0)

    @property
    def by_sums(self) -> bool:
        """Whether threads that grow subtrees of the tree find splits by zone sums."""
        return self._by_sums and self._zone_sums is not None and self._zone_sums.is_usable

    @property
    def searched(self) -> NDArray[np.int64]:
        """The nodes searched last."""
        return self._searched.nodes

    @property
    def places(self) -> NDArray[np.int64]:
        """Which of the shard's columns the tree may use."""
        return self._places

    def sum_slots(self, n_threads: int) -> SumSlots | None:
        """Return zone sums for threads that grow subtrees; None if they are to do without (:attr:`by_sums`)."""
        if self._zone_sums is None or not self.by_sums:
            return None
        return self._zone_sums.sum_slots(n_threads, self._shard_columns.n_columns_total)

    def scratch_for(self, thread: int, workspace: Workspace, limits: SplitLimits) -> Scratch:
        """Return the scratch space of a thread for any node of the tree."""
        n_rows, categories = int(self._nodes.in_stop[0]), isinstance(limits.categories, Categories)
        at_hand = workspace.runner.scratch_at_hand(thread, n_rows, categories)
        if at_hand is not None:  # from the tree before: what it is made for need not be found out again
            return at_hand
        return workspace.runner.scratch_for(
            thread,
            n_rows,
            n_class_sums(limits.criterion, self._nodes.sums.shape[1]),
            self._levels,
            categories,
            without_words(limits.criterion, self._nodes.sums.shape[1]),
            SeveralDeviations in kinds_of(limits.criterion),
        )

    def find(
        self,
        nodes: NDArray[np.int64],
        parents: NDArray[np.int64],
        left: NDArray[np.int64],
        workspace: Workspace,
        context: TreeContext,
        bars_only: bool,
    ) -> m.Found | m.Bars:
        """Search nodes, children of ``parents``, in those of this shard's columns that are drawn for them, or only begin to."""
        table = self._nodes
        best = empty_candidates(nodes.shape[0], table.sums.shape[1])
        pure = self._mark_pure(nodes, best, context)
        impure = np.flatnonzero(~pure)
        level = None
        if self._by_sums and self._zone_sums is not None:
            level = self._zone_sums.plan(parents, left, nodes[impure], table.start, table.in_stop)
        self._searched = _Searched(nodes, best, impure, level, np.full(impure.shape[0], -1.0))
        if bars_only:
            bars = np.full(nodes.shape[0], -1.0)
            if level is not None and impure.shape[0]:
                self._search_level(self._searched, 0, level.first_scan, workspace, context)
                bars[impure] = self._searched.bars
            return m.Bars(bars)
        return self._find(self._searched, 0, workspace, context)

    def scan(self, bars: NDArray[np.float64], workspace: Workspace, context: TreeContext) -> m.Found:
        """Finish the search that a message began, knowing the best scores that any shard knows of."""
        self._searched.bars[:] = bars[self._searched.impure]
        level = self._searched.level
        return self._find(self._searched, 0 if level is None else level.first_scan, workspace, context)

    def search_rest(self, nodes: NDArray[np.int64], skip: int, workspace: Workspace, context: TreeContext) -> m.Found:
        """Search nodes column by column, from the ``skip``-th drawn on, until one of this shard's varies."""
        table, shard_columns = self._nodes, self._shard_columns
        found = empty_candidates(nodes.shape[0], table.sums.shape[1])
        place, limits = np.empty(nodes.shape[0], np.int64), limits_for_thread(context.limits)
        search_on(
            shard_columns.columns, shard_columns.ids, context.keys[0], context.pool.copy(), skip, shard_columns.place_of,
            self._of_tree(nodes, context), limits, self.scratch_for(0, workspace, context.limits), found, place,
        )  # fmt: skip
        return m.Found(found, place)

    def _find(self, searched: _Searched, first: int, workspace: Workspace, context: TreeContext) -> m.Found:
        """Find the best splits of nodes; the first tasks of their level have been done already."""
        nodes, best, impure, level, _ = searched
        if impure.shape[0]:
            if level is not None:
                which, found = self._search_level(searched, first, level.tasks.shape[0], workspace, context)
            else:
                which, found = self._search_each(nodes[impure], workspace, context)
            best_by_node(found, impure[which], best)
        return m.Found(best, np.zeros(nodes.shape[0], np.int64))

    def _search_level(
        self, searched: _Searched, first: int, last: int, workspace: Workspace, context: TreeContext
    ) -> tuple[NDArray[np.int64], Candidates]:
        """Do some of the tasks of a level; return the candidates found, and the index of the node that each belongs to."""
        level = searched.level
        assert self._zone_sums is not None
        assert level is not None
        node_sums = self._nodes.sums[searched.nodes[searched.impure]]
        zone_map, operations = self._zone_sums.zone_map, level.operations
        found = empty_candidates(operations.shape[0], node_sums.shape[1])
        tasks = level.tasks[first:last] - np.array([0, 0, first])

        n_tasks, shard_columns = tasks.shape[0], self._shard_columns
        summed = SummedLevel(zone_map, shard_columns.ids, level.sums, context.partition, level.nodes, node_sums, searched.bars)
        scratch = [self.scratch_for(thread, workspace, context.limits) for thread in range(max(1, min(level.n_threads, n_tasks)))]
        workspace.threads.share(
            n_tasks,
            lambda queue, thread: search_level(
                queue, tasks, operations, shard_columns.columns, summed, limits_for_thread(context.limits), scratch[thread], found
            ),
            level.n_threads,
        )
        scans = operations[:, 0] == SCAN
        return operations[scans, 1], found.take(scans)

    def _search_each(self, nodes: NDArray[np.int64], workspace: Workspace, context: TreeContext) -> tuple[NDArray[np.int64], Candidates]:
        """Search each node in the columns drawn for it; return as :meth:`_search_level`."""
        table = self._nodes
        tasks, shard_columns = self._tasks(nodes, context), self._shard_columns
        found = empty_candidates(tasks.shape[0], table.sums.shape[1])
        if not tasks.shape[0]:
            return tasks[:, 0], found
        of_tree = self._of_tree(nodes, context)
        cost = np.cumsum((of_tree.in_stop - of_tree.start)[tasks[:, 0]] + 64)
        n_threads = workspace.threads.n_threads
        n_pieces = 1 if n_threads == 1 else int(min(4 * n_threads, cost[-1] // SEARCH_TASK_ROWS + 1))
        bounds = np.searchsorted(cost, np.linspace(0, cost[-1], n_pieces + 1)[1:-1])
        bounds = np.concatenate([[0], bounds, [tasks.shape[0]]]).astype(np.int64)
        free = [self.scratch_for(thread, workspace, context.limits) for thread in range(min(n_threads, n_pieces))]

        def search_piece(piece: int) -> None:
            scratch = free.pop()  # list.pop and append are atomic
            limits, (first, last) = limits_for_thread(context.limits), bounds[piece : piece + 2]
            search_many(shard_columns.columns, shard_columns.ids, tasks, first, last, of_tree, limits, scratch, found)
            free.append(scratch)

        workspace.threads.map(search_piece, range(n_pieces))
        return tasks[:, 0], found

    def _of_tree(self, nodes: NDArray[np.int64], context: TreeContext) -> NodesOfTree:
        """Return nodes as kernels get them that search column by column."""
        table = self._nodes
        return NodesOfTree(
            context.partition, table.start[nodes], table.in_stop[nodes], table.sums[nodes], table.path[nodes], context.keys[1]
        )

    def _mark_pure(self, nodes: NDArray[np.int64], best: Candidates, context: TreeContext) -> NDArray[np.bool_]:
        table = self._nodes
        pure = np.zeros(nodes.shape[0], np.bool_)
        if context.target.shape[0]:
            pure = find_pure(context.target, context.partition.rows, table.start[nodes], table.in_stop[nodes])
        best.records["status"][pure] = status.NO_SPLIT
        best.records["column"][pure] = self._shard_columns.n_columns_total
        return pure

    def _tasks(self, nodes: NDArray[np.int64], context: TreeContext) -> NDArray[np.int64]:
        """Return pairs of a node (index into ``nodes``) and one of this shard's columns (index), shape (n, 2)."""
        n_drawn = min(context.stops.max_features, context.pool.shape[0])
        if n_drawn < context.pool.shape[0]:
            return pair_drawn(context.keys[0], self._nodes.path[nodes], context.pool.copy(), n_drawn, self._shard_columns.place_of)
        pairs = np.empty((nodes.shape[0], self._places.shape[0], 2), np.int64)
        pairs[:, :, 0], pairs[:, :, 1] = np.arange(nodes.shape[0])[:, None], self._places
        return pairs.reshape(-1, 2)
