"""The rows of a shard in the current tree: the node of each row, and the sums of nodes.

Only rows in sample are divided. The leaves of all other rows, and of rows in nodes that a single shard has grown, are found by the finished
tree. Trees of a forest that grow side by side have one object each.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import StoredSums, squares_of
from dtrees.engine.protocol.exchange import Arrays, Shards
from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.rows.categories import CategoryRows, CategorySearch
from dtrees.engine.rows.flagged_rows import FlaggedRows
from dtrees.engine.rows.packed import SumsToSend, pack
from dtrees.engine.rows.searcher import FindBars, Levelled, NumberBuffer, Scanned, Searcher, Wanted, make_sums
from dtrees.engine.rows.zone_edges import Edges
from dtrees.engine.shard.passes import by_rows, share_by_column
from dtrees.engine.shard.row_division import divide_rows, mark_by_threshold
from dtrees.engine.shard.targets.boosting_target import BoostingTarget, LeafAdder
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.places import as_columns, places_of
from dtrees.engine.shard.targets.scales import Derived, add_up_sample, many_sums
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import NodeTable
from dtrees.split.node import partition
from dtrees.split.node.partition import SplitsOfRows
from dtrees.split.numbers import hashing
from dtrees.split.policy import MAPPED_BYTES, THREAD_ROWS, flagged_bytes
from dtrees.split.table.columns import Columns
from dtrees.split.table.mmap_arrays import forget, is_on_disk
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.over_shards.node_sums import sum_many, sum_nodes
from dtrees.split.zones.over_shards.own_rows import WalkedTree, add_in_order, next_codes, walk_rows
from dtrees.split.zones.sums import Sums, lay_out_slots
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree

#: The sums that each searcher receives.
_Sent = dict[int, Arrays]
#: Numbers by which shards know some of the leaves of a tree, and the numbers of these leaves in the tree.
KnownLeaves = tuple[NDArray[np.int64], NDArray[np.int64]]


class RowsInTree:
    """The rows of a shard, tree after tree.

    Parameters
    ----------
    target : BoostingTarget or ForestTarget
    columns : Columns
        The columns of the shard's rows.
    zone_map : ZoneMap
        The zone map of these columns.
    edges : Edges
        The edges of the zones of all shards.
    shards : Shards
        The properties of all shards in the fit.
    threads : Threads

    Attributes
    ----------
    searcher : Searcher
    category_search : CategorySearch
    partition : RowPartition
        The rows in sample.
    nodes : NodeTable
    pool : ndarray of int32
        The columns of the tree.
    sent_buffer : NumberBuffer
        Memory for the rows that other shards send.
    n_side_by_side : int
        Number of trees that grow at the same time and share the limit on rows sent at a time.
    """

    def __init__(
        self,
        target: BoostingTarget | ForestTarget,
        columns: Columns,
        zone_map: ZoneMap,
        edges: Edges,
        shards: Shards,
        threads: Threads,
    ) -> None:
        self._plan, self.columns, self.target, self.threads = shards.plan, columns, target, threads
        self._adder = LeafAdder(threads)
        self._all_zones, self.edges = zone_map, edges
        self._ranges, self._shard, self._n_shards = shards.ranges[shards.shard], shards.shard, shards.n_shards
        self._n_distinct = np.diff(columns.offsets)
        self.stored = StoredSums.of(shards.plan)
        self._width = self.stored.width(not target.unit_hessian)
        self.sent_buffer, self.n_side_by_side = NumberBuffer(), 1
        self._begin()
        self._flagged = FlaggedRows(columns, edges, zone_map, self._width, threads, self.stored)
        self.categories = CategoryRows(columns, edges.n_categories, threads, self.stored)

    def _begin(self) -> None:
        """Reset the state of the tree."""
        self.pool = np.empty(0, np.int32)
        self.partition = self._spare = partition.no_rows()
        self.nodes = NodeTable(0)
        # The sums of the nodes that the searcher searched last, and the previous ones, whose buffer holds the shard's own sums. Without
        # large pages: nodes with few rows leave most of their slots untouched (sums take 1.02 to 1.05 of the time).
        self._buffers, self._to_send = [NumberBuffer(False), NumberBuffer(False)], SumsToSend(self._shard, self.threads)
        self._shift = 0

    @property
    def boosting(self) -> BoostingTarget:
        """The target, which must be for boosting."""
        assert isinstance(self.target, BoostingTarget)
        return self.target

    @property
    def forest(self) -> ForestTarget:
        """The target, which must be for a forest."""
        assert isinstance(self.target, ForestTarget)
        return self.target

    def for_another_tree(self) -> RowsInTree:
        """Return the rows for a tree that grows side by side with this one; the state that does not depend on the tree is shared."""
        other = copy.copy(self)
        other.target = self.forest.for_another_tree()
        other._flagged, other.categories = self._flagged.for_another_tree(), copy.copy(self.categories)
        other._begin()
        return other

    def replay(self, tree: Tree, place: int) -> None:
        """Add a finished tree, given its place in its round, to the predictions."""
        raw = self.boosting.raw
        if place == 0:
            self.boosting.open_round()
        value = np.ascontiguousarray(tree.value[:, 0])
        rows = np.arange(self.columns.n_rows, dtype=np.uint32)
        self.boosting.add(place % raw.shape[0], value, lambda values, total: self._walk(tree, values, total, rows))

    def begin(self, tree: int, output: int, cuts: tuple[float, ...] | None = None) -> NDArray[np.int64] | None:
        """Begin a tree, and draw rows (:meth:`BoostingTarget.draw`).

        ``cuts`` are the absolute residuals at which the loss of the round clips, one for each output, if it does.
        """
        target = self.boosting
        self._use_columns(tree)
        if cuts is not None:
            target.take_loss(target.round_of(tree), target.plan.loss.cut_at(cuts))
        return target.draw(tree - output)

    def draw_rows(self, tree: int, factor: NDArray[np.float64] | None = None) -> Derived:
        """Begin a tree of a forest: draw its rows and columns; ``factor``, if given, multiplies the draws of each class."""
        self._use_columns(tree)
        self.forest.draw(tree)
        if factor is not None:
            self.forest.weigh(factor)
        return self.forest.derived()

    def _use_columns(self, tree: int) -> None:
        """Draw the columns of a tree."""
        pool = hashing.tree_columns(self.target.seed, tree, self.columns.n_columns, self._plan.rules.columns_per_tree)
        if np.array_equal(pool, self.pool):
            return
        self.pool = pool
        self._zone_map = self._all_zones if pool.shape[0] == self.columns.n_columns else self._all_zones.take(pool.astype(np.int64))
        self._flagged.use_columns(self._zone_map, pool)
        self._layout = lay_out_slots(self._zone_map, self._width)
        # Dealt in turn, as informative columns are often adjacent, and their searcher has more work.
        self._places = [np.arange(shard, pool.shape[0], self._n_shards) for shard in range(self._n_shards)]
        places, (starts, shifts) = self._places[self._shard], self._layout
        own = pool[places]
        # All columns have slots of the same size.
        layout = np.ascontiguousarray(starts[:, : own.shape[0] + 1]), np.ascontiguousarray(shifts[:, places])
        of_searcher = self.edges.take(own), own, places, layout, self._width
        self.searcher = Searcher(*of_searcher, self.threads, self._buffers, self.stored)
        places = self.categories.deal(pool, self._n_shards)[self._shard]
        n_categories = self.edges.n_categories[pool[places]]
        self.category_search = CategorySearch(pool[places], places, n_categories, self.threads, self.stored)

    def slice_of(self, span: int) -> slice:
        """Return where the rows of a range are among the shard's rows."""
        sizes = self._ranges[:, 1] - self._ranges[:, 0]
        at = int(sizes[:span].sum())
        return slice(at, at + int(sizes[span]))

    def add_in_order(self, what: str, span: int, first: int, total: int, lanes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Continue a sum of absolute values in row order over a range; return the sums of its lanes, shape (4,).

        ``what`` is "g", "h", "step" (the hessian of Newton steps, if different), or "weight" (of the undrawn rows). The first value of the
        range is number ``first`` of ``total``.
        """
        lanes = lanes.copy()
        values = self.target.amounts(what, self.slice_of(span))
        with np.errstate(over="ignore"):
            add_in_order(values, first, total, lanes)
        return lanes

    def fix(self, exponents: tuple[int, int], summed: Levelled, shift: int) -> tuple[NDArray[np.int64], float, _Sent]:
        """Convert gradients to fixed point, order the rows in sample, and sum the root.

        Return the sums of all rows followed by the sum of squares, the largest slope of a row, and the sums for each searcher.
        """
        a, b = self.target.fix(exponents)
        in_sample = self.target.in_sample
        if in_sample is None:
            rows = self.partition.rows if self.partition.rows.shape[0] == a.shape[0] else np.empty(a.shape[0], np.uint32)
            partition.number(rows)
            self.partition = partition.RowPartition(rows, a, b)
        else:
            rows = np.flatnonzero(in_sample).astype(np.uint32)
            self.partition = partition.RowPartition(rows, a[rows], b[rows] if b.shape[0] else b)
        del a, b
        self._flagged.listed.rows_moved()
        n = rows.shape[0]
        if self._spare.rows.shape[0] < n or self._spare.h.shape[0] < self.partition.h.shape[0]:
            self._spare = self.partition.spare(n)
        own = self.partition
        g, h, _, slope = add_up_sample(self.threads, own, n, own.g, own.h, in_order=True)
        self.nodes.open(n, n, hashing.ROOT, np.empty(0, np.int64))
        many = many_sums(self.stored, own, n, self.target.added)
        sums = [g, h] if many is None else many
        return np.array([*sums, squares_of(self._plan.rules, own.g[:n])], np.int64), float(slope), self._sum(summed, shift)

    def _sum(self, summed: Levelled, shift: int) -> _Sent:
        """Sum nodes, and return the sums for each searcher; for random thresholds, sums by category only."""
        n, k, self._shift, rows, added = summed.node.shape[0], self.pool.shape[0], shift, self.partition, self.target.added
        if not n:
            return {}
        by_category = self.categories.sum(summed.node, self.nodes, rows, added) if self.categories.ids.shape[0] else []
        if self._plan.rules.random_splits:
            return dict(enumerate(by_category))
        starts, shifts = self._layout
        size = int(starts[int(summed.grain.max()), -1])
        sums = make_sums(self._buffers[1].take(n * size).reshape(n, size), starts, shifts, self._width, shift)
        sums.grains[:] = summed.grain
        first, last = self.nodes.start[summed.node], self.nodes.stop[summed.node]
        zone_map = self._zone_map

        def include(start: NDArray[np.int64], stop: NDArray[np.int64]) -> None:
            # Threads share large nodes by columns, so that nothing has to be added up.
            n_chunks = np.where((stop - start >= THREAD_ROWS) & (n < 2 * self.threads.n_threads), min(self.threads.n_threads, k), 1)
            tasks = [
                (start[i], stop[i], i, k * chunk // n_chunks[i], k * (chunk + 1) // n_chunks[i], start[i] == first[i])
                for i in np.argsort(start - stop).tolist()
                for chunk in range(n_chunks[i])
            ]
            self._include(np.array(tasks, np.int64).reshape(-1, 6), sums)

        for some in by_rows(zone_map.part, self.columns.n_rows, rows.rows, first, last):
            include(*some)
        sent: _Sent = {searcher: (own,) for searcher, own in enumerate(self._to_send.pack(sums, self._places))}
        for shard, lists in enumerate(by_category):
            sent[shard] += lists
        return sent

    def _include(self, tasks: NDArray[np.int64], sums: Sums) -> None:
        """Add rows to the sums of nodes; ``tasks`` are as for :func:`sum_nodes`."""
        zone_map, rows, targets, n_classes = self._zone_map, self.partition, self.target.added, self.stored.n_classes
        if self.stored.n_numbers:
            self.threads.share(tasks.shape[0], lambda queue, _: sum_many(queue, tasks, zone_map, rows, sums, targets, n_classes))
        else:
            self.threads.share(tasks.shape[0], lambda queue, _: sum_nodes(queue, tasks, zone_map, rows, sums))

    def find_pure(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which nodes have a constant target in the shard's rows, and its value; nothing for boosting."""
        return self.target.find_pure(self.partition, self.nodes.start[nodes], self.nodes.stop[nodes])

    def find_bars(self, message: FindBars, sent: list[Arrays]) -> NDArray[np.float64]:
        """Combine the sums of all shards; see :meth:`Searcher.find_bars`."""
        bars = self.searcher.find_bars(message, [one[0] for one in sent])
        return np.maximum(bars, self.category_search.find_bars(message, self._plan.rules, [one[1:] for one in sent]))

    def flag(self, bars: NDArray[np.float64], drawn: NDArray[np.bool_]) -> Wanted:
        """See :meth:`Searcher.flag`."""
        self.category_search.search_again(drawn)
        most = flagged_bytes(self.columns.n_rows, self.columns.n_columns)
        # With smaller batches, the steps would take longer than the rows.
        return self.searcher.flag(bars, drawn, max(most // self.n_side_by_side, min(most, MAPPED_BYTES)))

    def best(self) -> Scanned:
        """See :meth:`Searcher.best`."""
        return self.category_search.merged(self.searcher.best())

    def sum_finer(self, wanted: list[Wanted]) -> _Sent:
        """Return the result of :meth:`FlaggedRows.sum_finer`, packed for the other searchers."""
        sums = self._flagged.sum_finer(wanted, self.partition, (self.nodes.start, self.nodes.stop), self._shift)
        return {searcher: (own if searcher == self._shard else pack(own, self._width),) for searcher, own in sums.items()}

    def pick(self, wanted: list[Wanted]) -> _Sent:
        """See :meth:`FlaggedRows.pick`."""
        return self._flagged.pick(wanted, self.partition, (self.nodes.start, self.nodes.stop), self.target.added)

    def divide(self, splits: Splits, ask: NDArray[np.bool_], sets: CategorySets, summed: Levelled, shift: int) -> tuple[Arrays, _Sent]:
        """Divide nodes, and sum some of their children.

        Return the number of rows that went left, with the next value above each cut (infinite if there is none or none is wanted), and the
        sums for each searcher.

        Splits with one of the ``sets``, identified by position, go by that set. ``ask`` marks the splits for which the next value above the
        threshold is wanted.
        """
        node, n, columns, rows = splits.node, splits.node.shape[0], self.columns, self.partition
        start, stop = self.nodes.start[node], self.nodes.stop[node]
        column = splits.column.astype(np.int64)
        cut = columns.codes_up_to(column, splits.threshold).astype(np.float64) if columns.is_keyed else splits.threshold
        marks = mark_by_threshold(self.threads, columns, rows.rows, SplitsOfRows(start, stop, column, cut, splits.missing_left), sets.node)
        if sets.node.shape[0]:
            self.categories.mark(sets, splits, rows.rows, self.nodes, marks)
        _, left_stop = divide_rows(self.threads, rows, (start, stop, stop), marks, self._spare)
        self._flagged.listed.rows_moved()
        self.nodes.divide(node, splits.left, (left_stop, left_stop))
        above = np.full(n, np.inf)
        asked = ask.nonzero()[0]
        if asked.shape[0]:
            above[asked] = self._next_values(column[asked], splits.threshold[asked], left_stop[asked], stop[asked])
        return (left_stop - start, above), self._sum(summed, shift)

    def _next_values(
        self, column: NDArray[np.int64], cut: NDArray[np.float64], start: NDArray[np.int64], stop: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the lowest value above each cut in a column, over some rows; infinite if there is none."""
        cuts = self.columns.codes_up_to(column, cut)
        nodes, out = as_columns(start, stop, column), np.empty(column.shape[0], np.int64)
        columns, rows = self.columns, self.partition.rows

        share_by_column(
            self.threads, columns.codes, column,
            lambda queue, _, own, own_cuts, found: next_codes(queue, own, columns, rows, own_cuts, found),
            [nodes, cuts], [out], [columns.words],
        )  # fmt: skip
        above = self.columns.values_of(column, out)
        return np.where(np.isnan(above), np.inf, above)

    def finish(self, tree: Tree, known: KnownLeaves, output: int) -> None:
        """Add a tree to the predictions; ``known`` has nodes of this shard and the leaves they stand for."""
        value = np.ascontiguousarray(tree.value[:, 0])
        self.boosting.add(output, value, lambda values, total: self.add_values(tree, known, values, total, outside=True))

    def add_values(self, tree: Tree, known: KnownLeaves, values: NDArray[np.float64], total: NDArray[np.float64], outside: bool) -> None:
        """Add the values of a tree's leaves to a total of rows, including rows out of sample if ``outside``.

        ``known`` has nodes of this shard and the nodes of the tree they stand for; other rows are looked up in the tree.
        """
        order = np.argsort(self.nodes.start[known[0]], kind="stable")
        node, leaf = (some[order] for some in known)
        some = self.nodes.stop[node] > self.nodes.start[node]
        start, stop, value = self.nodes.start[node][some], self.nodes.stop[node][some], values[leaf[some]]
        rows = self.partition.rows
        before, after = np.append(0, stop), np.append(start, rows.shape[0])
        gaps = np.flatnonzero(after > before)  # nodes that another shard has grown: adding 0.0 would change a negative zero
        others = rows[places_of(before[gaps], (after - before)[gaps])]
        at = np.searchsorted(start, before[gaps])
        self._adder.add(total, rows, np.insert(start, at, before[gaps]), np.insert(value, at, -0.0))
        if outside and self.target.in_sample is not None:
            others = np.concatenate([others, np.flatnonzero(~self.target.in_sample).astype(np.uint32)])
        if others.shape[0]:
            self._walk(tree, values, total, others)

    def _walk(self, tree: Tree, value: NDArray[np.float64], total: NDArray[np.float64], rows: NDArray[np.uint32]) -> None:
        """Look up rows in a tree, and add the values of their leaves to a total."""
        inner = np.setdiff1d(np.flatnonzero(tree.children_left >= 0), tree.categories.node)
        cuts = np.full(tree.node_count, -1, np.int64)
        cuts[inner] = self.columns.codes_up_to(tree.feature[inner].astype(np.int64), tree.threshold[inner])
        walked = WalkedTree(tree.children_left, tree.children_right, tree.feature, tree.missing_go_to_left, value, cuts)
        codes, n_distinct, sets = self.columns.codes, self._n_distinct, self.categories.of_tree(tree)
        if is_on_disk(codes):
            rows = np.sort(rows)

        def walk(first: int, last: int) -> None:
            step = max(THREAD_ROWS, -(-(last - first) // (4 * self.threads.n_threads)))
            chunks = np.array([(at, min(at + step, last)) for at in range(first, last, step)], np.int64).reshape(-1, 2)
            self.threads.share(chunks.shape[0], lambda queue, _: walk_rows(queue, chunks, codes, n_distinct, walked, sets, rows, total))
            forget(sets.categories)

        whole = np.zeros(1, np.int64), np.array([rows.shape[0]])
        for begin, end in by_rows(codes, self.columns.n_rows, rows, *whole):
            walk(int(begin[0]), int(end[0]))

    def add_votes(self, number: int, tree: Tree) -> None:
        """Add the predictions of a tree for rows that it did not draw to their sums."""
        self.forest.draw(number)
        in_sample, votes = self.forest.in_sample, self.forest.out_of_bag
        assert in_sample is not None
        assert votes is not None
        rows, leaf = np.flatnonzero(~in_sample).astype(np.uint32), np.zeros(self.columns.n_rows)
        self._walk(tree, np.arange(tree.node_count, dtype=np.float64), leaf, rows)
        votes.add(rows, leaf[rows].astype(np.int64), tree.value)
