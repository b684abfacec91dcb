"""The levels of a tree over shards of rows: which sums of their nodes are computed, and how all shards search the nodes together.

Every shard is the searcher of some columns. The names of payloads are: "sums" of nodes, sent to the searchers of columns; "bars" of
searchers, to all shards; "flags" (the parts that may hold a better split), to all; "finer sums" and "finer flags" of parts with many rows;
"picked", the rows in these parts, to searchers; and "level", the best splits, to all. The steps from "finer sums" to "picked" are repeated
for each further batch of flagged rows, with the number of the batch in the name. "further columns" is the result of a search in further
columns, sent to all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.outcome.values import places_of_leaves
from dtrees.engine.plan.node_limits import LimitsOfFit, limited_splits, noise_of
from dtrees.engine.plan.plans import ForestPlan
from dtrees.engine.protocol.exchange import Arrays, Shards, Steps
from dtrees.engine.protocol.messages import Measured, Root, ShardsDisagree
from dtrees.engine.protocol.nodes import DelegatedNodes, Splits
from dtrees.engine.rows.all_rows import pure_in_all
from dtrees.engine.rows.rows_in_tree import KnownLeaves, RowsInTree
from dtrees.engine.rows.searcher import FindBars, Levelled, Scanned, Wanted
from dtrees.engine.rows.sent_rows import grow_sent, send_rows
from dtrees.engine.rows.whole import LeafRows, exponent_of, leaf_means, leaf_quantiles, leaf_steps
from dtrees.engine.shard.targets.scales import Derived
from dtrees.engine.tree.grower import Grower, NodeTable, merge
from dtrees.engine.tree.program import Layout
from dtrees.split.grow.best_first import MergedLeaves
from dtrees.split.node.records import CANDIDATE, CONSTANT, NO_SPLIT, Candidates, Nodes, midpoint
from dtrees.split.numbers import hashing
from dtrees.split.policy import FOLD, MAX_ZONES, ROWS_PER_PART, SHARED_CELLS
from dtrees.split.search.column import pair_drawn
from dtrees.split.zones.sums import grain_for, size_shift
from dtrees.tree.category_sets import CategorySets
from dtrees.tree.tree import Tree

#: A node part has four times the rows that it has in one process, as sums are sent. This reduces what late trees of 1M x 28 on two shards
#: send from 21.4 to 16.9 MB, in 0.92 of the processor time; trees of noise send 16.4 instead of 18.9 MB in the same time. With eight times
#: the rows, the first 100 trees send 0.8 of that in the same time; first trees of noise take 1.03 of the time.
_ROWS_PER_PART = 4 * ROWS_PER_PART
#: The best splits of nodes, the next value above each cut (NaN if unknown), and the words of their sets of categories, by node.
Found = tuple[Candidates, NDArray[np.float64], dict[int, NDArray[np.uint32]]]


class Levels(Layout):
    """An unfinished tree on a shard of rows, which sums its rows by parts of columns, and finds the best splits in some columns.

    Parameters
    ----------
    shards : Shards
    rows : RowsInTree
        The rows of this shard.
    tree : int
        The identity of the tree in random draws.
    derived : list of Derived
        The :class:`~dtrees.engine.shard.targets.scales.Derived` of each shard.
    output : int, default=0
        The raw prediction that the tree improves.
    cuts : tuple of float or None
        See :func:`~dtrees.engine.rows.whole.find_cuts`.

    Attributes
    ----------
    summed : Levelled
        The sums that shards are to compute for the next level.
    """

    def __init__(
        self, shards: Shards, rows: RowsInTree, tree: int, derived: list[Derived], output: int = 0, cuts: tuple[float, ...] | None = None
    ) -> None:
        self.shards, self.rows, self.number, self._derived, self._output, self._cuts = shards, rows, tree, derived, output, cuts
        self.cells_of_row = rows.stored.cells_sent(shards.plan.rules)
        self._grain: dict[int, int] = {}
        self._note([], [], 0)
        self._key = np.uint64(hashing.stream_key(rows.target.seed, hashing.STREAM_NODE, tree))
        self._place_of = np.full(shards.n_columns, -1)
        self._place_of[rows.pool] = np.arange(rows.pool.shape[0])
        self._searched: FindBars
        self._found: Found

    def begin(self, exponents: tuple[int, int], rounded: int = 0) -> Steps[None]:
        """Sum the root, together with the other shards.

        Parameters
        ----------
        exponents : tuple of int
            The exponents of the powers of two that scale gradients and hessians.
        rounded : int, default=0
            Rounding error by which the sizes of all rows may exceed those of the shards, besides one for each row.
        """
        shards, rows, rules, n_in = self.shards, self.rows, self.shards.plan.rules, sum(one.n_in for one in self._derived)
        size = math.ldexp(sum(one.sums[0] for one in self._derived), exponents[0]) + n_in + rounded
        shift = int(size_shift.py_func(min(int(size), 2**62))) if math.isfinite(size) else 32
        if n_in > shards.sent_rows:
            self._grain = {0: self._grain_for(n_in)}
            self._note([(0, -1, -1, 0)], [(0, self._grain[0])], 1)
        totals, slope, sums = rows.fix(exponents, self.summed, shift)
        sent = yield from self._send_sums((totals, np.array(slope)), sums)
        added, of_fit = np.sum([total for total, _ in sent], axis=0), LimitsOfFit(rules, rows.stored)
        noise = noise_of(rules, n_in, added[:-1], int(added[-1]))
        of_root = np.concatenate([added[:-1], of_fit.root_words])
        self.root = root = Root(n_in, n_in, of_root, exponents, float(np.max([slope for _, slope in sent])), shift, noise)
        table, targets = NodeTable(of_root.shape[0]), rows.target.added if rows.stored.targets else None
        table.open(n_in, n_in, hashing.ROOT, of_root)
        self._limits, stops = of_fit.of_tree(of_root, exponents, root.slope, noise, targets)
        most_splits = limited_splits(rules, n_in)
        self.grower = Grower(self._limits, stops, most_splits, rules.columns_per_tree, shards.sent_rows, table)

    def _send_sums(self, own: Arrays, sums: dict[int, Arrays]) -> Steps[list[Arrays]]:
        """Send two arrays to all shards, and the sums of nodes to the searchers; return the two arrays of each shard."""
        to_send = {shard: (*own, *sums.get(shard, ())) for shard in self.shards.everyone}
        sent = yield self.shards.step("sums", to_send, self.shards.everyone)
        self._sums = [one[2:] for one in sent]
        return [one[:2] for one in sent]

    def _grain_for(self, n_rows: int) -> int:
        most_grain = self.shards.grain.current
        return int(grain_for.py_func(most_grain, _ROWS_PER_PART * (MAX_ZONES - 1) << (most_grain or FOLD), n_rows))

    def plan(self, splits: Splits) -> None:
        """Schedule the sums of the children of new splits: only of the smaller child, as the sums of the larger one follow by subtraction.

        Both are summed if finer parts are wanted than those of their parent.
        """
        wanted = {node: i for i, node in enumerate(self.grower.to_search.tolist())}
        before, self._grain, n_slots, tasks, summed = self._searched, {}, len(wanted), [], []
        parents = np.searchsorted(before.node, splits.node)
        of_splits = (parents, before.grain[parents], before.n_rows[parents], splits.left, splits.n_left)
        for parent, grain, n_rows, left, n_left in zip(*(some.tolist() for some in of_splits), strict=True):
            sizes = {left: n_left, left + 1: n_rows - n_left}
            smaller, larger = (left, left + 1) if 2 * n_left <= n_rows else (left + 1, left)
            grains = {node: self._grain_for(sizes[node]) for node in (smaller, larger) if node in wanted}
            if larger in wanted and grain >= grains[larger]:
                summed.append((smaller, grains[larger]))
                if smaller in wanted:
                    grains[smaller] = min(grains.values())
                slot = wanted.get(smaller, n_slots)
                n_slots += slot == n_slots
                tasks.append((wanted.get(smaller, -1), wanted[larger], parent, slot))
            else:
                tasks += [(wanted[node], -1, -1, wanted[node]) for node in grains]
                summed += grains.items()
            self._grain |= grains
        self._note(tasks, summed, n_slots)

    def _note(self, tasks: Sequence[tuple[int, ...]], summed: Sequence[tuple[int, int]], n_slots: int) -> None:
        pairs = np.array(summed, np.int64).reshape(-1, 2)
        self.summed = Levelled(pairs[:, 0].copy(), pairs[:, 1].copy())
        self._tasks, self._n_slots = np.array(tasks, np.int64).reshape(-1, 4), n_slots

    def _drawn(self, paths: NDArray[np.uint64], n: int) -> NDArray[np.int64]:
        """Return the first ``n`` of the tree's columns that are drawn for each node, as places among these, in order."""
        return pair_drawn(self._key, paths, self.rows.pool.copy(), n, self._place_of)[:, 1].reshape(-1, n)

    def _open(self, nodes: NDArray[np.int64]) -> None:
        """Begin the search of the nodes whose sums were scheduled."""
        grower, n, k = self.grower, nodes.shape[0], self.rows.pool.shape[0]
        (n_rows, sums, _), path, n_drawn = grower.about(nodes), grower.table.path[nodes], grower.n_drawn
        grain = np.array([self._grain[node] for node in nodes.tolist()], np.int64)
        drawn = np.zeros((n, k) if n_drawn < k else (0, 0), np.bool_)
        if n_drawn < k:
            np.put_along_axis(drawn, self._drawn(path, n_drawn), True, axis=1)
        about = self._tasks, self.summed, self._n_slots, nodes, n_rows, grain, sums, drawn, path
        self._searched = FindBars(self.root, self._limits, *about)

    def search(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of nodes; a node with a constant target has none."""
        self._open(nodes)
        n_cells = int(self._searched.n_rows.sum()) * self.rows.pool.shape[0]
        own, n_flagged, pure = yield from self._search()
        self._sums = []  # the memory is needed to receive the next sums
        self._found, of_all = yield from self._best_of_all("level", own, n_flagged)
        self.shards.grain.note(of_all, n_cells)
        best = self._found[0]
        best.records["status"][pure] = NO_SPLIT
        return best

    def _search(self) -> Steps[tuple[Scanned, int, NDArray[np.intp]]]:
        """Find the best splits of the nodes being searched in this shard's columns, given the sums of all shards.

        Also return the number of rows that were scanned, and which nodes are leaves because their target is constant.
        """
        own = self.rows.find_bars(self._searched, self._sums), *self.rows.find_pure(self._searched.node)
        every = yield self.shards.to_all("bars", own)
        bars = np.max([one[0] for one in every], axis=0)
        pure = np.flatnonzero(pure_in_all([one[1] for one in every], [one[2] for one in every]))
        bars[pure] = np.inf
        return (*(yield from self._scan(bars, self._searched.drawn)), pure)

    def _scan(self, bars: NDArray[np.float64], drawn: NDArray[np.bool_]) -> Steps[tuple[Scanned, int]]:
        """Find the best splits of nodes, given their sums and bars; also return the number of rows that were scanned."""
        shards, rows = self.shards, self.rows
        own = rows.flag(bars, drawn)
        every = [Wanted(*one) for one in (yield shards.to_all("flags", own))]
        for number in range(max(one.n_batches for one in every)):
            batch, of_batch = [one.batch(number) for one in every], f" of batch {number}" if number else ""
            rows.searcher.open_batch(number)
            if any(one.is_cut for one in batch):
                sums = yield shards.step("finer sums" + of_batch, rows.sum_finer(batch), shards.everyone)
                finer = rows.searcher.refine([one[0] for one in sums])
                del sums
                batch = [Wanted(*one) for one in (yield shards.to_all("finer flags" + of_batch, finer))]
            if any(one.tasks.shape[0] for one in batch):
                rows.searcher.scan((yield shards.step("picked" + of_batch, rows.pick(batch), shards.everyone)))
        return rows.best(), int(own.tasks[:, 3].sum())

    def _best_of_all(self, name: str, own: Scanned, flagged: int = 0) -> Steps[tuple[Found, int]]:
        """Exchange the best splits and numbers of flagged rows; return the best splits over all searchers and the total number.

        Splits are sent as arrays of numbers: pickling and reading tuples of records takes six times as long.
        """
        arrays = own.candidates.records.view(np.uint8), own.candidates.left, own.above, *own.sets, np.array([flagged])
        every = yield self.shards.to_all(name, arrays)
        scanned = [Scanned(Candidates(one[0].view(CANDIDATE), one[1]), one[2], CategorySets(*one[3:6])) for one in every]
        n, words = self._searched.node.shape[0], dict[int, NDArray[np.uint32]]()
        best, above = merge([(one.candidates, np.zeros(n, np.int64)) for one in scanned]), np.full(n, np.nan)
        for one in scanned:
            mine = one.candidates.records["column"] == best.records["column"]
            above[mine] = one.above[mine]
            words.update((i, some) for i, some in one.sets.by_node.items() if mine[i])
        return (best, above, words), sum(int(one[6][0]) for one in every)

    def search_further(self, nodes: NDArray[np.int64]) -> Steps[Candidates]:
        """Find the best splits of some of the nodes in their further columns, each until a column varies in it."""
        which = left = np.searchsorted(self._searched.node, nodes)
        (best, above, words), k = self._found, self.rows.pool.shape[0]
        order = self._drawn(self._searched.path, k)
        for place in range(self.grower.n_drawn, k):
            drawn = np.zeros(order.shape, np.bool_)
            drawn[left, order[left, place]] = True
            own = yield from self._search_further(drawn)
            (found, next_above, more), _ = yield from self._best_of_all("further columns", own)
            best.records[left], best.left[left], above[left] = found.records[left], found.left[left], next_above[left]
            words |= {i: more[i] for i in left.tolist() if i in more}
            left = left[best.records["status"][left] == CONSTANT]
            if not left.shape[0]:
                break
        return best.take(which)

    def _search_further(self, drawn: NDArray[np.bool_]) -> Steps[Scanned]:
        """Search the nodes in other columns; ``drawn`` is as for :class:`~dtrees.engine.rows.searcher.FindBars`."""
        return (yield from self._scan(np.full(drawn.shape[0], -1.0), drawn))[0]

    def apply(self, splits: Splits) -> Steps[None]:
        """Divide the rows of nodes, set the thresholds, and sum some of the children.

        Raises
        ------
        ShardsDisagree
        """
        grower, rules, (_, above, words) = self.grower, self.shards.plan.rules, self._found
        at = np.searchsorted(self._searched.node, splits.node)
        above, sets = above[at], CategorySets.of_words({i: words[node] for i, node in enumerate(at.tolist()) if node in words})
        middle = grower.places(splits.node)[0] + splits.n_left  # in the row partition that the whole table would have
        grower.table.divide(splits.node, splits.left, (middle, middle), rules.by_level)
        self.plan(splits)
        grower.sets.add(grower.records_of(splits.node), sets)
        sent = yield from self._send_sums(*self.rows.divide(splits, np.isnan(above), sets, self.summed, self.root.shift))
        if not np.array_equal(sum(n_left for n_left, _ in sent), splits.n_left):
            raise ShardsDisagree(f"shards have divided nodes of tree {self.number} otherwise than their splits say")
        if not rules.random_splits:
            above = np.where(np.isnan(above), np.min([found for _, found in sent], axis=0), above)
            pairs = zip(splits.threshold.tolist(), above.tolist(), strict=True)
            thresholds = np.array([math.inf if high == math.inf else midpoint(low, high) for low, high in pairs])
            thresholds[sets.node] = splits.threshold[sets.node]  # codes of splits on categories, not thresholds
            grower.settle(splits.node, thresholds)

    def deal(self) -> list[list[NDArray[np.int64]]]:
        """Deal the small nodes to shards, in batches that fit the memory."""
        n_shards = self.shards.n_shards
        return self.grower.deal(self.number, n_shards, SHARED_CELLS * n_shards // self.cells_of_row)

    def send_rows(self, nodes: Sequence[NDArray[np.int64]]) -> dict[int, Arrays]:
        """Return the rows of nodes, for the shards that grow the nodes."""
        return send_rows(self.rows, nodes)

    def grow_delegated(self, nodes: NDArray[np.int64], sent: Sequence[Arrays]) -> DelegatedNodes:
        """Grow nodes to their ends, given the rows of each shard."""
        return grow_sent(self.rows, self, nodes, sent)

    def merge(self, merged: Sequence[MergedLeaves]) -> None:
        """Do nothing: rows of merged leaves are looked up in the finished tree."""

    def sets_of(self, nodes: Nodes) -> Steps[CategorySets]:
        """Return the categories that go left, which all shards know."""
        yield from ()
        return self.grower.sets.of_tree(nodes.records, self.shards.plan.rules)

    def measure(self, nodes: Nodes, tree: Tree) -> Steps[NDArray[np.float64] | Measured]:
        """Measure the values of leaves, together with the other shards."""
        shards, rows, plan, known = self.shards, self.rows, self.shards.plan, self.known_leaves(nodes.records)
        if isinstance(plan, ForestPlan):
            return (yield from leaf_means(shards, rows, tree, known))
        leaves = LeafRows(rows, tree, known)
        if plan.loss.measures_leaves:
            return (yield from leaf_quantiles(shards, rows, leaves, self.root.n_in, self._output, self._cuts))
        of_steps = self.root.exponents[0], (yield from exponent_of(shards, rows, self._derived, 2))
        return (yield from leaf_steps(shards, rows, leaves, of_steps, plan.rules))

    def known_leaves(self, records: NDArray[Any]) -> KnownLeaves:
        """Return the numbers by which shards know leaves of the tree: those that no single shard has grown, and are not pruned."""
        grower = self.grower
        divided = np.setdiff1d(np.arange(grower.n_nodes), grower.to_grow)  # by all shards
        start, stop, _ = grower.places(divided)
        number_of = dict(zip(zip(start.tolist(), stop.tolist(), strict=True), divided.tolist(), strict=True))
        leaf, first, last, _ = places_of_leaves(records)
        numbers = np.array([number_of.get(place, -1) for place in zip(first.tolist(), last.tolist(), strict=True)], np.int64)
        mine = numbers >= 0
        return numbers[mine], np.flatnonzero(leaf)[mine]
