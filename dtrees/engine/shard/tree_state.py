"""A tree under way on a shard: where its rows lie, and its nodes.

It answers the messages that are about a tree; what a shard has for longer than that is with :mod:`dtrees.engine.shard.shard`.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.ending import draft_tree, finish_tree
from dtrees.engine.outcome.leaf_measures import measure_leaves, measure_nodes
from dtrees.engine.outcome.scoring import scores_of
from dtrees.engine.outcome.values import CategorySplits, places_of_leaves, pruned, splits_of_categories
from dtrees.engine.plan.node_limits import (
    LimitsOfFit,
    SumsKept,
    Targets,
    categories_of,
    constraints_of,
    criterion_of,
    limited_splits,
    n_sums_of,
)
from dtrees.engine.plan.plans import BoostingPlan, ForestPlan
from dtrees.engine.plan.search_plan import inherits_sums, rows_in_block
from dtrees.engine.protocol import messages as m
from dtrees.engine.protocol.packed_nodes import PackedNodes
from dtrees.engine.protocol.splits import RouteBits, Splits
from dtrees.engine.shard.category_splits import find_sets
from dtrees.engine.shard.levels.marking import mark_by_known_sets, mark_by_number, mark_by_threshold
from dtrees.engine.shard.levels.node_search import NodeSearch
from dtrees.engine.shard.levels.node_table import NodeTable
from dtrees.engine.shard.levels.row_division import divide_tasks
from dtrees.engine.shard.levels.zone_planner import Sizes
from dtrees.engine.shard.sample_sums import add_up_sample, many_sums
from dtrees.engine.shard.shard_columns import ShardColumns, make_shard_columns
from dtrees.engine.shard.subtrees.dense_runner import SubtreeRunner
from dtrees.engine.shard.subtrees.runner import Assignment, TreeContext
from dtrees.engine.shard.targets.boosting_target import BoostingTarget
from dtrees.engine.shard.targets.forest_target import ForestTarget
from dtrees.engine.shard.targets.places import places_of
from dtrees.engine.shard.workspace import Workspace
from dtrees.split.criteria.constraints.words import divide_sums, root_words
from dtrees.split.grow.best_first import LeafBudget, make_budget, merge_rows, origins
from dtrees.split.grow.block import block_rows
from dtrees.split.grow.work_pool import Roots
from dtrees.split.node import partition, status
from dtrees.split.node.limits import Categories
from dtrees.split.node.marking import SplitsOfRows
from dtrees.split.node.records import Nodes
from dtrees.split.numbers import hashing
from dtrees.split.policy import GROW_CELLS, GROW_CELLS_BY_SUMS, NODES_PER_THREAD, SHARE_ROWS, THREAD_ROWS
from dtrees.split.table.columns import Assembly, Columns
from dtrees.split.table.take_rows import take_rows
from dtrees.tree.category_sets import NO_SETS, CategorySets

_NOTHING = np.empty(0, np.int64)
_ROOT_ORIGIN = origins(1)
_NO_BUDGET, _NO_SCORES = make_budget(0), m.Scores(np.nan, np.nan)


class _Manner(NamedTuple):
    """How nodes are grown to their ends, as far as it follows from where they lie: the same for one tree after the other.

    Attributes
    ----------
    n_threads : int
    block_rows, share_rows : int
        See :class:`~dtrees.engine.shard.subtrees.runner.Assignment`.
    """

    n_threads: int
    block_rows: int
    share_rows: int


class TreeState:
    """A tree under way: its rows, its nodes, and how it answers messages. One tree takes the place of another.

    Parameters
    ----------
    shard_columns : ShardColumns
    plan : ForestPlan or BoostingPlan
    target : ForestTarget or BoostingTarget
        What the trees of the fit are split on.
    labels : ndarray, shape (n_rows,)
        The target of the table.
    search : NodeSearch
        In the same columns; to be used by this tree alone.
    """

    def __init__(
        self,
        shard_columns: ShardColumns,
        plan: ForestPlan | BoostingPlan,
        target: ForestTarget | BoostingTarget,
        labels: NDArray[Any],
        search: NodeSearch,
    ) -> None:
        self._shard_columns = shard_columns
        self._plan = plan
        self._target = target
        self._labels = labels
        self._search = search
        self._n_classes, self._classes = (plan.n_classes, plan.targets) if isinstance(plan, ForestPlan) else (0, ())
        self._kept = SumsKept.of(plan)
        self._targets: NDArray[np.int64] | None = None
        self._inherits = inherits_sums(plan)
        self._draws = plan.rules.max_features < plan.rules.columns_per_tree or plan.rules.random_splits
        self._keys = (np.uint64(0), np.uint64(0))
        self._rows = partition.no_rows()
        self._limits_of_fit = LimitsOfFit(plan.rules, self._n_classes, shard_columns.ids)
        constraints = constraints_of(plan.rules)
        self._words = _NOTHING if constraints is None else root_words(constraints)
        self._nodes = NodeTable(n_sums_of(plan) + self._words.shape[0])
        self._grows = False
        self._manner_for: tuple[Any, ...] = ()
        self._manner: _Manner

    def carry_out(self, message: m.Message, workspace: Workspace) -> m.Reply:
        """Carry out a message and return the reply."""
        match message:
            case m.BoostTree():
                return self._boost(message, workspace)
            case m.Start():
                return self._start(message, workspace)
            case m.Route():
                self._route(message.output)
                return None
            case m.Search():
                return self._search.search_rest(message.nodes, message.skip, workspace, self._context(workspace))
            case m.Scan():
                return self._offer(self._search.scan(message.bars, workspace, self._context(workspace)), workspace)
            case m.Evaluate():
                splits = message.splits
                return self._mark(workspace, splits.node, splits.column, splits.threshold, splits.missing_left, message.sets)
            case m.FindSets():
                which = np.arange(message.column.shape[0])
                return self._find_sets(CategorySplits(which, message.column, message.number, message.start, message.stop))
            case m.Advance():
                return self._advance(message, workspace)
            case m.Grow():
                return self._grow(message, workspace)
            case m.Merge():
                merge_rows(self._rows, *message.leaves)
                return None
            case m.ShareRows():
                return [self._share_rows(self._rows.rows[self._places_of(nodes)]) for nodes in message.nodes]
            case m.GrowDelegated():
                return self._grow_delegated(message, workspace)
            case m.MeasureLeaves():
                return measure_leaves(
                    self._rows, self._labels, criterion_of(self._plan.rules), message.start, message.in_stop, workspace.threads
                )
            case m.MeasureNodes():
                return measure_nodes(self._rows, self._labels, self._targets, criterion_of(self._plan.rules), message)
            case m.MeasureSteps():
                return self._boosting.measure_leaves(message.output, self._rows.rows, message.start, message.in_stop)
            case m.Finish():
                return self._finish(message, workspace)
        raise TypeError(f"a shard does not know messages of type {type(message).__name__}")

    def give_up_columns(self, shard_columns: ShardColumns, search: NodeSearch) -> None:
        """Have a shard_columns without columns: no more nodes are to be searched."""
        self._shard_columns, self._search = shard_columns, search

    def _start(self, message: m.Start, workspace: Workspace) -> m.Root:
        n_in, n, sums, exponents = self._open(message.tree, message.output, workspace, by_levels=message.search, plain=message.plain)
        found = self._search_nodes(np.zeros(1, np.int64), _NOTHING, _NOTHING, message.mode, workspace) if message.search else None
        checksum = int(partition.checksum(self._rows)) if message.check else 0
        if message.check and self._targets is not None:  # rows carry no more than their numbers
            checksum ^= int(partition.checksum(self._rows._replace(g=self._targets.ravel())))
        return m.Root(n_in, n, sums, exponents, checksum, found)

    def _open(
        self, tree: int, output: int, workspace: Workspace, by_levels: bool, plain: bool = False
    ) -> tuple[int, int, NDArray[np.int64], tuple[int, int]]:
        """Begin a tree; return how many rows are in sample and in all, the root's sums, and the exponents of these.

        Unless levels are to be searched, the tree is grown at once. ``plain`` is as of :class:`~dtrees.engine.protocol.messages.Start`.
        """
        in_sample, a, b, exponents, self._pure_by, self._levels, spent, totals, self._targets = self._target.start(tree, output)
        inside = None if in_sample is None else in_sample.nonzero()[0]
        n_in = a.shape[0] if inside is None else inside.shape[0]
        n = a.shape[0] if self._target.keeps_out_of_sample else n_in
        in_order = in_sample is None and spent
        self._lay_out(n, a if in_order else None, b)
        if in_sample is None or inside is None:
            partition.number(self._rows.rows)
        else:
            self._rows.rows[:n_in] = inside
            if n > n_in:
                self._rows.rows[n_in:] = np.flatnonzero(~in_sample)
        if not in_order or totals is None:
            totals = add_up_sample(workspace.threads, self._rows, n_in, a, b, in_order)
        total_a, total_b, size, slope = totals
        if spent and not in_order:
            workspace.divide_in(a, b)
        del a, b, inside  # their memory may be needed
        if n_in < n:  # not what an earlier tree left there: shards that saw other trees must agree
            self._rows.g[n_in:] = self._rows.h[n_in:] = 0
        if self._levels.shape[0]:
            workspace.runner.forget()  # it holds the levels, which weights drawn anew change
        rules, several = self._plan.rules, None if self._targets is None else Targets(self._classes, self._targets)
        many = None if self._levels.shape[0] else many_sums(self._kept, self._rows, n_in, self._targets)
        sums = np.array([total_a, total_b], np.int64) if many is None else many
        self._limits, self._stops = self._limits_of_fit.of_tree(sums, exponents, slope if many is None else 0.0, plain, several)
        seed = self._target.seed
        self._pool = everything = self._shard_columns.everything
        n_columns = everything.shape[0]
        if rules.columns_per_tree < n_columns:
            self._pool = hashing.tree_columns(seed, tree, n_columns, rules.columns_per_tree)
        if self._draws:
            node_key = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree))
            self._keys = (node_key, np.uint64(hashing.stream_key(seed, hashing.STREAM_THRESHOLD, tree)))
        if self._words.shape[0]:
            sums = np.concatenate([sums, self._words])
        self._nodes.open(n_in, n, hashing.ROOT, sums)
        self._grows = True
        inherit = self._inherits and not plain and (by_levels or rows_in_block(rules, n_in, self._pool.shape[0]) < n_in)
        sizes = Sizes(size)
        if inherit and total_b > 0 and criterion_of(rules).row_statistic == "amount":  # none is below zero: their mean is a better centre
            centre = total_a // total_b
            sizes = Sizes(size + centre * total_b, centre, max(float(centre), slope))
        self._search.open(workspace, self._pool, self._nodes, self._levels, self._rows, sizes, inherit, self._plan.rules.categorical)
        return n_in, n, sums, exponents

    def _boost(self, message: m.BoostTree, workspace: Workspace) -> m.Boosted:
        """Grow a tree, and add its values to the predictions."""
        target = self._boosting
        n_in, n, _, exponents = self._open(message.tree, message.output, workspace, by_levels=False)
        roots = Roots([(0, n_in, n, 0)], self._nodes.path[:1], self._nodes.sums[:1], _ROOT_ORIGIN)
        nodes = self._grow_roots(roots, workspace, keep=False)[0]
        nodes, merged = pruned(nodes, exponents, self._plan.rules)
        for leaves in merged if target.measures_leaves else ():
            merge_rows(self._rows, *leaves)
        tree = draft_tree(self._plan, nodes, exponents, message.learning_rate)
        if self._plan.rules.categorical:
            tree = tree.with_categories(self._find_sets(splits_of_categories(nodes.records, self._plan.rules)))
        steps = None
        if target.measures_leaves:
            steps = target.measure_leaves(message.output, self._rows.rows, *places_of_leaves(nodes.records)[1:3])
        tree, _ = finish_tree(self._plan, nodes, exponents, tree, steps, message.learning_rate)
        target.add_tree(message.output, self._rows.rows, nodes.records, tree.value)
        return m.Boosted(tree, scores_of([target.losses(0, n)]) if message.score else _NO_SCORES)

    def _find_sets(self, splits: CategorySplits) -> CategorySets:
        """Return the categories that go left in splits of this shard's columns, once the rows lie where they belong."""
        return find_sets(self._shard_columns.columns, self._shard_columns.place_of[splits.column], self._rows.rows, splits)

    @property
    def _boosting(self) -> BoostingTarget:
        assert isinstance(self._target, BoostingTarget)
        return self._target

    def _lay_out(self, n: int, a: NDArray[np.int64] | None, b: NDArray[np.int64]) -> None:
        """Make the row partition of a new tree of ``n`` rows, which are still to be written to it; ``a`` and ``b`` in order are not."""
        rows = self._rows  # memory that is in use already costs no page faults
        if a is not None:
            if a is rows.g and b is rows.h:
                return
            self._rows = partition.RowPartition(rows.rows if rows.rows.shape[0] == n else np.empty(n, np.uint32), a, b)
        elif rows.g.shape[0] != n or rows.h.shape[0] != (n if b.shape[0] else 0):
            self._rows = rows = partition.no_rows()
            self._rows = partition.RowPartition(np.empty(n, np.uint32), np.zeros(n, np.int64), np.zeros(n if b.shape[0] else 0, np.int64))

    def _route(self, output: int) -> None:
        if isinstance(self._target, BoostingTarget) and output == 0:
            self._target.open_round()
        n_rows = self._labels.shape[0]
        self._lay_out(n_rows, None, _NOTHING)
        partition.number(self._rows.rows)
        self._grows = False
        self._nodes.open(0, n_rows, hashing.ROOT, np.zeros(self._nodes.sums.shape[1], np.int64))

    def _search_nodes(
        self, nodes: NDArray[np.int64], parents: NDArray[np.int64], left: NDArray[np.int64], mode: m.SearchMode, workspace: Workspace
    ) -> m.Found | m.Bars:
        """Search nodes, children of ``parents``, the way a message says."""
        context = self._context(workspace)
        found = self._search.find(nodes, parents, left, workspace, context, bars_only=mode == m.SearchMode.BARS)
        return self._offer(found, workspace) if mode == m.SearchMode.OFFER and isinstance(found, m.Found) else found

    def _offer(self, found: m.Found, workspace: Workspace) -> m.Found:
        """Mark the rows that the splits found would send left."""
        records = found.candidates.records
        split = records["status"] == status.SPLIT
        some = records[split]
        marks = self._mark(workspace, self._search.searched[split], some["column"], some["threshold"], some["missing_left"])
        return found._replace(marks=marks.spread(split))

    def _mark(
        self,
        workspace: Workspace,
        nodes: NDArray[np.int64],
        columns: NDArray[np.int32],
        thresholds: NDArray[np.float64],
        missing_left: NDArray[np.bool_],
        sets: CategorySets | None = None,
    ) -> RouteBits:
        """Mark the rows that splits send left; ``sets`` are those of a tree that is known already."""
        columns_here, places, table = self._shard_columns.columns, self._shard_columns.place_of[columns], self._nodes
        thresholds, missing_left = np.ascontiguousarray(thresholds), np.ascontiguousarray(missing_left)
        splits, by_set = SplitsOfRows(table.start[nodes], table.stop[nodes], places, thresholds, missing_left), self._by_set(columns, sets)
        marks = mark_by_threshold(workspace.threads, columns_here, self._rows.rows, splits, by_set)
        if by_set.shape[0]:
            if sets is not None:
                mark_by_known_sets(columns_here, self._rows.rows, splits, sets, marks)
            else:
                scratch = [self._search.scratch_for(thread, workspace, self._limits) for thread in range(workspace.threads.n_threads)]
                known = table.by_category(nodes, by_set, columns)
                mark_by_number(workspace.threads, columns_here, self._rows, splits, known, self._limits, self._keys[1], scratch, marks)
        return marks

    def _by_set(self, columns: NDArray[np.int32], sets: CategorySets | None) -> NDArray[np.int64]:
        """Return which of some splits have a set of categories; see :meth:`_mark`."""
        if sets is not None:
            return sets.node.astype(np.int64)
        categorical = self._plan.rules.categorical
        return np.flatnonzero(np.isin(columns, categorical)) if categorical else _NOTHING

    def _advance(self, message: m.Advance, workspace: Workspace) -> m.Divided:
        splits = message.splits
        left_in_stop, left_stop = self._divide(splits, message.marks, workspace)
        found = None
        if message.search.shape[0]:
            found = self._search_nodes(message.search, splits.node, splits.left, message.mode, workspace)
        return m.Divided(left_in_stop, left_stop, found)

    def _divide(
        self, splits: Splits, marks: RouteBits, workspace: Workspace, rows_only: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Apply splits; return where the left children end, in sample and in all. The sums of rows stay behind, if they are not needed."""
        bits, offsets = marks
        table = self._nodes
        start, in_stop, stop = table.start[splits.node], table.in_stop[splits.node], table.stop[splits.node]
        left_in_stop, left_stop, tasks = divide_tasks(start, in_stop, stop, bits, offsets, workspace.threads.n_threads)
        summed, spare = start if rows_only else in_stop, workspace.spare_for(self._rows)
        workspace.threads.share(
            tasks.shape[0],
            lambda queue, _: partition.divide_many(queue, tasks, bits, offsets, self._rows, start, summed, stop, spare),
            most=1 + int((stop - start).sum()) // THREAD_ROWS,
        )
        if not np.array_equal(left_in_stop - start, splits.n_left):
            raise m.ReplicasDiffer("the rows that a split sends left are not as many as its search counted")
        table.divide(splits.node, splits.left, left_in_stop, left_stop, self._plan.rules.by_level)
        if self._grows:  # a finished tree is only put through the rows
            sums = divide_sums(self._limits.criterion, splits.column, table.sums[splits.node], splits.left_sums)
            table.sums[splits.left], table.sums[splits.left + 1] = sums
        return left_in_stop, left_stop

    def _grow(self, message: m.Grow, workspace: Workspace) -> m.Subtrees:
        table, nodes = self._nodes, message.nodes
        places = list(zip(*(array[nodes].tolist() for array in (table.start, table.in_stop, table.stop, table.depth)), strict=True))
        # A tree is finished before the next one is grown where this would lie, unless trees take turns.
        roots = Roots(places, table.path[nodes], table.sums[nodes], message.origin)
        return self._grow_roots(roots, workspace, keep=workspace.by_turns, known=message.first)

    def _grow_roots(self, roots: Roots, workspace: Workspace, keep: bool, known: NDArray[Any] | None = None) -> list[Nodes]:
        """Grow nodes to their ends; see :meth:`~dtrees.engine.shard.subtrees.runner.Runner.grow`."""
        wanted = roots.places, self._pool.shape[0], self._search.by_sums, workspace.threads.n_threads
        if wanted != self._manner_for:
            self._manner_for, self._manner = wanted, self._manner_of(*wanted)
        n_threads, block_rows, share_rows = self._manner
        self._search.scratch_for(n_threads - 1, workspace, self._limits)  # and for those before
        context = self._context(workspace)
        most_splits = limited_splits(self._plan.rules, int(self._nodes.in_stop[0]))
        if most_splits:
            context = context._replace(budget=make_budget(most_splits, known))
        sum_slots = self._search.sum_slots(n_threads)
        return workspace.runner.grow(workspace.threads, n_threads, Assignment(context, roots, block_rows, share_rows, sum_slots, keep))

    def _manner_of(self, places: list[tuple[int, int, int, int]], n_columns: int, by_sums: bool, most_threads: int) -> _Manner:
        """Return how to grow nodes that lie in these places (see :class:`~dtrees.split.grow.work_pool.Roots`)."""
        rules, most_rows = self._plan.rules, max(in_stop - start for start, in_stop, _, _ in places)
        n_cells = sum(stop - start for start, _, stop, _ in places) * n_columns
        if by_sums:
            n_threads = min(most_threads, 1 + n_cells // GROW_CELLS_BY_SUMS)
            share_rows = most_rows if n_threads == 1 else max(SHARE_ROWS, most_rows // (NODES_PER_THREAD * n_threads))
            return _Manner(n_threads, rows_in_block(rules, most_rows, n_columns), share_rows)
        in_block = block_rows(rules.random_splits, rules.max_features, n_columns) if self._fits_blocks() else 0
        return _Manner(min(most_threads, len(places), 1 + n_cells // GROW_CELLS), in_block, most_rows)

    def _fits_blocks(self) -> bool:
        """Tell whether small nodes are grown in blocks: no sets are drawn there, and ranks are those of one target."""
        by_ranks = self._levels.shape[0] > 0
        if self._plan.rules.random_splits:
            return not by_ranks and not self._plan.rules.categorical
        return not by_ranks or self._targets is None

    def _context(self, workspace: Workspace) -> TreeContext:
        """Return what all nodes of the tree have in common."""
        spare = workspace.spare_for(self._rows)
        first, control, waiting = _NO_BUDGET
        budget = LeafBudget(first, control.copy(), waiting)  # a tree that is given up is no other's business
        return TreeContext(self._rows, spare, self._pure_by, self._limits, self._stops, self._keys, budget, self._pool)

    def _places_of(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of nodes' rows, one node after the other."""
        start = self._nodes.start[nodes]
        return places_of(start, self._nodes.stop[nodes] - start)

    def _share_rows(self, rows: NDArray[np.uint32]) -> m.SharedRows:
        """Return this shard's columns of the tree in some rows."""
        places, columns = self._search.places, self._shard_columns.columns
        assert isinstance(columns, Columns), "shards of one table are dense"
        return m.SharedRows(self._shard_columns.ids[places], take_rows(columns, places, rows))

    def _grow_delegated(self, message: m.GrowDelegated, workspace: Workspace) -> m.GrownDelegated:
        """Grow nodes in a table of their rows alone, and leave the rows where they belong then."""
        places = self._places_of(message.nodes)
        rows = self._rows.rows[places]
        n_columns = self._shard_columns.n_columns_total
        assembly = Assembly(rows.shape[0], n_columns)
        for ids, columns in (self._share_rows(rows), *message.shared):
            assembly.take(ids.tolist(), columns)
        one = copy.copy(self)
        assembled = assembly.finished()
        one._shard_columns = make_shard_columns(assembled, self._shard_columns.everything, n_columns)
        if isinstance(self._limits.categories, Categories):  # of this shard's columns
            categories = categories_of(self._plan.rules, self._shard_columns.everything, self._limits.categories.smooth)
            one._limits = self._limits._replace(categories=categories)
        numbers = np.arange(rows.shape[0], dtype=np.uint32)
        one._rows = partition.RowPartition(numbers, self._rows.g[places], self._rows.h[places if self._rows.h.shape[0] else places[:0]])
        one._pure_by = self._pure_by[rows if self._pure_by.shape[0] else rows[:0]]
        one._nodes, moved = self._nodes.apart(message.nodes)
        apart = Workspace(workspace.threads, SubtreeRunner(assembled))
        one._search = NodeSearch(one._shard_columns, sums_zones=False)
        one._search.open(apart, one._pool, one._nodes, one._levels, one._rows, Sizes(0), inherit=False)
        n = message.nodes.shape[0]
        grown = one._grow(m.Grow(message.fit, message.epoch, np.arange(1, n + 1), origins(n)), apart)
        self._rows.rows[places], self._rows.g[places] = rows[one._rows.rows], one._rows.g
        if self._rows.h.shape[0]:
            self._rows.h[places] = one._rows.h
        outside, sets = [], []
        for nodes, by in zip(grown, moved.tolist(), strict=True):
            if self._plan.rules.categorical:
                sets.append(one._find_sets(splits_of_categories(nodes.records, self._plan.rules)))
            else:
                sets.append(NO_SETS)
            for name in ("start", "in_stop", "stop"):
                nodes.records[name] = nodes.records[name].astype(np.int64) - by
            if self._target.keeps_out_of_sample:
                leaves = nodes.records[nodes.records["column"] < 0]
                outside.append(
                    self._rows.rows[places_of(leaves["in_stop"].astype(np.int64), (leaves["stop"] - leaves["in_stop"]).astype(np.int64))]
                )
            else:
                outside.append(rows[:0])
        return m.GrownDelegated([PackedNodes.of(nodes) for nodes in grown], outside, sets)

    def _finish(self, message: m.Finish, workspace: Workspace) -> m.Losses | None:
        if message.last is not None:
            self._divide(message.last.splits, message.last.marks, workspace, rows_only=True)
        if message.delegated is not None and message.outside is not None:
            in_stop, stop = message.in_stop[message.delegated], message.stop[message.delegated]
            self._rows.rows[places_of(in_stop, stop - in_stop)] = message.outside
        self._target.finish(message.output, self._rows.rows, message)
        if message.scored is None or not isinstance(self._target, BoostingTarget):
            return None
        return self._target.losses(*message.scored)
