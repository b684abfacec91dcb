"""The state of an unfinished tree on a shard: its row partition and its nodes.

Its methods are called in the steps of the tree (:mod:`dtrees.engine.shard.tree`); state that outlives a tree is in
:mod:`dtrees.engine.shard.shard`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import CategorySplits, splits_of_categories
from dtrees.engine.plan.node_limits import LimitsOfFit, StoredSums, inherits_sums, limited_splits, limits_leaves, n_sums_of, rows_in_block
from dtrees.engine.protocol.messages import Root, ShardsDisagree
from dtrees.engine.protocol.nodes import DelegatedNodes, PackedNodes, RouteBits, Splits
from dtrees.engine.shard.dense_runner import SubtreeRunner
from dtrees.engine.shard.node_search import NodeSearch, ShardColumns
from dtrees.engine.shard.row_division import divide_rows, find_sets, mark_by_set, mark_by_threshold
from dtrees.engine.shard.runner import Assignment, rows_to_share
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.scales import add_up_sample, many_sums
from dtrees.engine.shard.zone_sums import Sizes
from dtrees.engine.threads import Threads
from dtrees.engine.tree.grower import Grower, NodeTable
from dtrees.engine.tree.program import Layout
from dtrees.split.grow.best_first import in_preorder, make_budget
from dtrees.split.grow.block import block_rows
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node import partition
from dtrees.split.node.partition import RowPartition, SplitsOfRows
from dtrees.split.node.records import Nodes
from dtrees.split.numbers import hashing
from dtrees.split.policy import GROW_CELLS, GROW_CELLS_BY_SUMS, SUMMED_CELLS, THREAD_ROWS
from dtrees.split.search.categories import mark_by_category
from dtrees.split.table.columns import Columns
from dtrees.split.table.sparse_columns import SparseColumns
from dtrees.tree.category_sets import NO_SETS, CategorySets

_NOTHING = np.empty(0, np.int64)


class TreeState(NodeSearch):
    """The rows and nodes of a tree in growth, with the operations on them. The object is reused for each tree.

    Parameters
    ----------
    shard_columns : ShardColumns
    target : ForestTarget or BoostingTarget
        The values on which the trees of the fit are split.
    labels : ndarray, shape (n_rows,)
        The target of the table.
    sums_zones : bool
        Whether there is memory for zone sums.

    Attributes
    ----------
    target : ForestTarget or BoostingTarget
    labels : ndarray, shape (n_rows,)
        The target of the table.
    targets : ndarray of int64, shape (n_rows, n_targets), or None
        Multi-output targets of the current tree (:class:`~dtrees.engine.shard.targets.scales.Prepared`).
    set_aside : int
        Nodes of up to this many rows are grown to their ends by one shard.
    root : Root
        The root of the current tree.
    number, output : int
        The identity of the tree, and the raw prediction that it improves.
    """

    set_aside: int
    root: Root

    def __init__(self, shard_columns: ShardColumns, target: ForestTarget | BoostingTarget, labels: NDArray[Any], sums_zones: bool) -> None:
        self._plan = plan = target.plan
        super().__init__(shard_columns, sums_zones, plan.rules.categorical)
        self.target, self.labels = target, labels
        self.targets: NDArray[np.int64] | None = None
        self._inherits = inherits_sums(plan)
        self._draws = plan.rules.max_features < plan.rules.columns_per_tree or plan.rules.random_splits
        columns, n_columns = shard_columns.columns, shard_columns.n_columns_total
        if isinstance(columns, SparseColumns):  # in the many small nodes of a fully grown tree, sums exclude few columns
            whole = not self._draws and plan.rules.columns_per_tree == n_columns and columns.rows.shape[0] >= SUMMED_CELLS * n_columns
            self._inherits = self._inherits and whole and limits_leaves(plan.rules, labels.shape[0])
        self.rows = partition.no_rows()
        self._limits_of_fit = LimitsOfFit(plan.rules, StoredSums.of(plan), shard_columns.ids)
        self.nodes = NodeTable(n_sums_of(plan) + self._limits_of_fit.root_words.shape[0])
        self._manner_for: tuple[Any, ...] = ()
        self._manner: tuple[int, int, int]  # how nodes at these places are grown: the same for successive trees

    def route(self, place: int) -> None:
        """Begin the replay of a finished tree, given its place in its round, with all rows out of sample."""
        if isinstance(self.target, BoostingTarget) and place == 0:
            self.target.open_round()
        n_rows = self.labels.shape[0]
        self._lay_out(n_rows, None, _NOTHING)
        partition.number(self.rows.rows)
        self.nodes.open(0, n_rows, hashing.ROOT, np.zeros(self.nodes.sums.shape[1], np.int64))

    def open(self, tree: int, output: int, by_levels: bool) -> Root:
        """Begin a tree: draw its rows, or compute the gradients of an output.

        ``by_levels`` is False if the whole tree is grown by one call.
        """
        in_sample, a, b, exponents, self._pure_by, self._levels, spent, totals, self.targets = self.target.start(tree, output)
        inside = None if in_sample is None else in_sample.nonzero()[0]
        n_in = a.shape[0] if inside is None else inside.shape[0]
        n = a.shape[0] if self.target.keeps_out_of_sample else n_in
        in_order = in_sample is None and spent
        self._lay_out(n, a if in_order else None, b)
        if in_sample is None or inside is None:
            partition.number(self.rows.rows)
        else:
            self.rows.rows[:n_in] = inside
            if n > n_in:
                self.rows.rows[n_in:] = np.flatnonzero(~in_sample)
        if not in_order or totals is None:
            totals = add_up_sample(self.runner.threads, self.rows, n_in, a, b, in_order)
        total_a, total_b, size, slope = totals
        if spent and not in_order:
            self.runner.divide_in(a, b)
        del a, b, inside  # frees memory
        if n_in < n:  # must not depend on earlier trees: shards with other histories must agree
            self.rows.g[n_in:] = self.rows.h[n_in:] = 0
        if self._levels.shape[0]:
            self.runner.forget()  # it refers to the levels, which depend on the redrawn weights
        rules, of_fit = self._plan.rules, self._limits_of_fit
        many = None if self._levels.shape[0] else many_sums(of_fit.stored, self.rows, n_in, self.targets)
        sums = np.array([total_a, total_b], np.int64) if many is None else many
        noise = of_fit.noise(sums, self.rows.g[:n_in])
        slope = slope if many is None else 0.0
        self._limits, self._stops = of_fit.of_tree(sums, exponents, slope, noise, self.targets)
        if not size and of_fit.criterion.task == "boosting":  # no split has a gain
            self._stops = self._stops._replace(max_depth=0)
        self._draw_columns(tree)
        self._most_splits = limited_splits(rules, n_in)
        if of_fit.root_words.shape[0]:
            sums = np.concatenate([sums, of_fit.root_words])
        self.nodes.open(n_in, n, hashing.ROOT, sums)
        inherit = self._inherits and (not self._draws if by_levels else rows_in_block(rules, n_in, self._pool.shape[0]) < n_in)
        sizes = Sizes(size)
        if inherit and total_b > 0 and of_fit.criterion.row_statistic == "amount":  # none is negative: their mean is a better center
            centre = total_a // total_b
            sizes = Sizes(size + centre * total_b, centre, max(float(centre), slope))
        self.begin_search(sizes, inherit)
        self.number, self.output, self.root = tree, output, Root(n_in, n, sums, exponents, slope, noise=noise)
        if by_levels:
            self.grower = Grower(self._limits, self._stops, self._most_splits, self._pool.shape[0], self.set_aside, self.nodes)
            self._divided = _NOTHING, _NOTHING
        return self.root

    def _draw_columns(self, tree: int) -> None:
        """Draw the columns of a tree, and set the keys of its nodes."""
        seed, n_drawn = self.target.seed, self._plan.rules.columns_per_tree
        self._pool = everything = self._shard_columns.everything
        if n_drawn < everything.shape[0]:
            self._pool = hashing.tree_columns(seed, tree, everything.shape[0], n_drawn)
        if self._draws:
            node_key = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree))
            self._keys = (node_key, np.uint64(hashing.stream_key(seed, hashing.STREAM_THRESHOLD, tree)))

    def checksum(self) -> int:
        """Return a checksum of the rows of a tree just begun."""
        checksum = int(partition.checksum(self.rows))
        if self.targets is not None:  # rows carry only their numbers
            checksum ^= int(partition.checksum(self.rows._replace(g=self.targets.ravel())))
        return checksum

    def find_sets(self, splits: CategorySplits) -> CategorySets:
        """Return the categories that go left in splits of this shard's columns, after the tree is grown."""
        return find_sets(self._shard_columns.columns, self._shard_columns.place_of[splits.column], self.rows.rows, splits)

    @property
    def boosting(self) -> BoostingTarget:
        """The target, which must be for boosting."""
        assert isinstance(self.target, BoostingTarget)
        return self.target

    def _lay_out(self, n: int, a: NDArray[np.int64] | None, b: NDArray[np.int64]) -> None:
        """Allocate the row partition of a new tree of ``n`` rows, to be written by the caller; ``a`` and ``b`` are in row order already."""
        rows = self.rows  # memory that is already in use causes no page faults
        if a is not None:
            if a is rows.g and b is rows.h:
                return
            self.rows = RowPartition(rows.rows if rows.rows.shape[0] == n else np.empty(n, np.uint32), a, b)
        elif rows.g.shape[0] != n or rows.h.shape[0] != (n if b.shape[0] else 0):
            self.rows = rows = partition.no_rows()
            self.rows = RowPartition(np.empty(n, np.uint32), np.zeros(n, np.int64), np.zeros(n if b.shape[0] else 0, np.int64))

    def mark(self, splits: Splits, sets: CategorySets | None = None) -> RouteBits:
        """Return which rows the splits of this shard's columns send left; ``sets`` are those of a finished tree that is replayed."""
        nodes, columns = splits.node, splits.column
        thresholds, missing_left = np.ascontiguousarray(splits.threshold), np.ascontiguousarray(splits.missing_left)
        columns_here, places, table = self._shard_columns.columns, self._shard_columns.place_of[columns], self.nodes
        threads, categorical = self.runner.threads, self._categorical
        of_rows = SplitsOfRows(table.start[nodes], table.stop[nodes], places, thresholds, missing_left)
        by_set = np.flatnonzero(np.isin(columns, categorical)) if categorical and sets is None else _NOTHING
        marks = mark_by_threshold(threads, columns_here, self.rows.rows, of_rows, by_set if sets is None else sets.node)
        if sets is not None and sets.node.shape[0]:
            mark_by_set(threads, columns_here, self.rows.rows, of_rows, sets, marks)
        elif by_set.shape[0]:
            limits, ids, n = self._limits, self._shard_columns.ids, by_set.shape[0]
            scratch, known = [self.scratch_for(thread) for thread in range(threads.n_threads)], self.of_tree(nodes)
            threads.share(
                n,
                lambda queue, thread: mark_by_category(queue, by_set, known, of_rows, columns_here, ids, limits, scratch[thread], marks),
                most=min(n, 1 + int((of_rows.stop - of_rows.start)[by_set].sum()) // THREAD_ROWS),
            )
        return marks

    def divide(self, splits: Splits, marks: RouteBits, rows_only: bool = False) -> None:
        """Apply splits. With ``rows_only``, the summands of rows are not moved."""
        table, threads, nodes = self.nodes, self.runner.threads, splits.node
        places, spare = (table.start[nodes], table.in_stop[nodes], table.stop[nodes]), self.runner.spare_for(self.rows)
        left_in_stop, left_stop = divide_rows(threads, self.rows, places, marks, spare, rows_only)
        if not np.array_equal(left_in_stop - places[0], splits.n_left):
            raise ShardsDisagree("the rows that a split sends left are not as many as its search counted")
        table.divide(nodes, splits.left, (left_in_stop, left_stop), self._plan.rules.by_level)

    def grow(self, nodes: NDArray[np.int64], origin: NDArray[Any], first: NDArray[Any] | None = None) -> list[Nodes]:
        """Grow nodes to their ends. This shard must have all columns.

        If the number of leaves is limited, ``origin``, shape (n,), has the parents of the nodes, and ``first`` the first known splits of
        the tree (:mod:`dtrees.split.grow.best_first`).
        """
        return self.grow_roots(self.nodes.roots(nodes, origin), first)

    def grow_part(
        self,
        layout: Layout,
        nodes: NDArray[np.int64],
        rows: RowPartition,
        targets: NDArray[np.int64] | None,
        levels: NDArray[np.int64],
        threads: Threads,
    ) -> tuple[list[Nodes], DelegatedNodes]:
        """Grow some nodes of a tree to their ends; return them as they are here, and for messages.

        This object has all columns, and the rows of these nodes only, which follow each other. ``layout`` is the unfinished tree;
        ``targets`` and ``levels`` are as for :class:`Prepared`.
        """
        root, grower, rules, n = layout.root, layout.grower, self._plan.rules, nodes.shape[0]
        self._draw_columns(layout.number)
        self.targets, self._levels, self._most_splits = targets, levels, limited_splits(rules, root.n_in)
        self._limits, self._stops = self._limits_of_fit.of_tree(root.sums, root.exponents, root.slope, root.noise, targets)
        self.nodes, self.rows, self._pure_by = grower.table.extract(nodes), rows, self.labels
        self.runner = SubtreeRunner(cast(Columns, self._shard_columns.columns), threads)
        self.begin_search(Sizes(0), inherit=False)
        grown = self.grow(np.arange(1, n + 1), grower.origin[nodes], grower.first_splits())
        if self._most_splits:
            grown = [in_preorder(some) for some in grown]
        packed = [PackedNodes.of(some, place) for some, place in zip(grown, grower.table.start[nodes].tolist(), strict=True)]
        sets = [self.find_sets(splits_of_categories(some.records, rules)) if rules.categorical else NO_SETS for some in grown]
        return grown, DelegatedNodes(packed, [rows.rows[:0]] * n, sets)

    def grow_roots(self, roots: Roots, known: NDArray[Any] | None = None) -> list[Nodes]:
        """Grow nodes to their ends; see :meth:`~dtrees.engine.shard.runner.Runner.grow`."""
        runner = self.runner
        wanted = roots.places, self._pool.shape[0], self.by_sums, runner.threads.n_threads
        if wanted != self._manner_for:
            self._manner_for, self._manner = wanted, self._manner_of(*wanted)
        n_threads, block_rows, share_rows = self._manner
        self.scratch_for(n_threads - 1)  # and those of lower-numbered threads
        context, most_splits = self.context(), self._most_splits
        if most_splits:
            context = context._replace(budget=make_budget(most_splits, known))
        sum_slots = partial(self.sum_slots, most_splits=most_splits) if self.by_sums else None
        # The result may be overwritten by the next tree, unless trees take turns.
        assignment = Assignment(context, roots, block_rows, share_rows, sum_slots, keep=runner.by_turns)
        return runner.grow(n_threads, assignment)

    def _manner_of(self, places: list[tuple[int, int, int, int]], n_columns: int, by_sums: bool, most_threads: int) -> tuple[int, int, int]:
        """Return how nodes at these places are grown: number of threads, largest size in a block, size above which threads share a node."""
        rules, most_rows = self._plan.rules, max(in_stop - start for start, in_stop, _, _ in places)
        n_cells = sum(stop - start for start, _, stop, _ in places) * n_columns
        if by_sums:
            n_threads = min(most_threads, 1 + n_cells // GROW_CELLS_BY_SUMS)
            return n_threads, rows_in_block(rules, most_rows, n_columns), rows_to_share(most_rows, n_threads)
        in_block = block_rows(rules.random_splits, rules.max_features, n_columns) if self._fits_blocks() else 0
        return min(most_threads, len(places), 1 + n_cells // GROW_CELLS), in_block, most_rows

    def _fits_blocks(self) -> bool:
        """Return whether small nodes may be grown in blocks, which support neither sets of categories nor ranks of several targets."""
        by_ranks = self._levels.shape[0] > 0
        if self._plan.rules.random_splits:
            return not by_ranks and not self._plan.rules.categorical
        return not by_ranks or self.targets is None
