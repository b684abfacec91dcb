"""The levels of a tree over shards of rows: which sums of their nodes are computed, and how all shards search the nodes together.

Every shard is the searcher of some columns. The names of payloads are: "sums" of nodes, sent to the searchers of columns; "bars" of
searchers, to all shards; "flags" (the parts that may hold a better split), to all; "finer sums" and "finer flags" of parts with many rows;
and "picked", the rows in these parts, to searchers. The steps from "finer sums" to "picked" are repeated for each further batch of flagged
rows, with the number of the batch in the name. "further columns" is the result of a search in further columns, sent to all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays, Shards, Steps
from dtrees.engine.protocol.messages import Root
from dtrees.engine.protocol.nodes import Splits
from dtrees.engine.rows.all_rows import pure_in_all
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.searcher import FindBars, Levelled, Scanned, Wanted
from dtrees.engine.shard.grower import Grower
from dtrees.split.node.records import CANDIDATE, CONSTANT, Candidates, best_by_node, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.policy import FOLD, MAX_ZONES, ROWS_PER_PART
from dtrees.split.zones.sums import grain_for
from dtrees.tree.category_sets import CategorySets

#: A node part has four times the rows that it has in one process, as sums are sent. This reduces what late trees of 1M x 28 on two shards
#: send from 21.4 to 16.9 MB, in 0.92 of the processor time; trees of noise send 16.4 instead of 18.9 MB in the same time. With eight times
#: the rows, the first 100 trees send 0.8 of that in the same time; first trees of noise take 1.03 of the time.
_ROWS_PER_PART = 4 * ROWS_PER_PART
_NOTHING = np.empty(0, np.int64)
#: The best splits of nodes, the next value above each cut (NaN if unknown), and the words of their sets of categories, by node.
Found = tuple[Candidates, NDArray[np.float64], dict[int, NDArray[np.uint32]]]


class Columns:
    """The columns in which nodes, identified by their paths, are searched, in the order in which they are drawn for each."""

    def __init__(self, shards: Shards, tree: int, paths: NDArray[np.uint64]) -> None:
        rules, seed = shards.plan.rules, hashing.as_seed(shards.plan.seed)
        n, k = shards.n_columns, rules.columns_per_tree
        self.n_drawn, self.n_columns, self.paths = min(rules.max_features, k), k, paths
        self.order = np.empty((0, 0), np.int64)
        if self.n_drawn < k:
            pool = hashing.tree_columns(seed, tree, n, k) if k < n else np.arange(n, dtype=np.int32)
            key, self.order = np.uint64(hashing.stream_key(seed, hashing.STREAM_NODE, tree)), np.empty((len(paths), k), np.int64)
            for i, path in enumerate(paths):
                drawn = pool.copy()
                hashing.draw_columns(key, path, drawn, 0, k)
                self.order[i] = np.searchsorted(pool, drawn)

    def drawn(self) -> NDArray[np.bool_]:
        """Return the columns in which each node is searched first; empty if all."""
        found = np.zeros((self.order.shape[0], self.n_columns if self.order.shape[0] else 0), np.bool_)
        if self.order.shape[0]:
            np.put_along_axis(found, self.order[:, : self.n_drawn], True, axis=1)
        return found


class Levels:
    """The sums of the levels of a tree, and the search of their nodes.

    Parameters
    ----------
    shards : Shards
    rows : RowsInTree
        The rows of this shard.
    tree : int

    Attributes
    ----------
    summed : Levelled
        The sums that shards are to compute for the next level.
    """

    def __init__(self, shards: Shards, rows: RowsInTree, tree: int) -> None:
        self.shards, self.rows, self.tree = shards, rows, tree
        self.summed = Levelled(_NOTHING, _NOTHING)
        self._grain: dict[int, int] = {}
        self._slot: dict[int, int] = {}  # slots of the nodes searched last
        self._tasks, self._n_slots = np.empty((0, 4), np.int64), 0
        self._searched: FindBars
        self._columns: Columns

    def _grain_for(self, n_rows: int) -> int:
        most_grain = self.shards.grain.current
        return int(grain_for.py_func(most_grain, _ROWS_PER_PART * (MAX_ZONES - 1) << (most_grain or FOLD), n_rows))

    def plan_root(self, n_rows: int) -> None:
        """Schedule the sums of the root."""
        self._grain = {0: self._grain_for(n_rows)}
        self._note([(0, -1, -1, 0)], [(0, self._grain[0])], 1)

    def plan(self, grower: Grower, splits: Splits) -> None:
        """Schedule the sums of the children of new splits: only of the smaller child, as the sums of the larger one follow by subtraction.

        Both are summed if finer parts are wanted than those of their parent.
        """
        wanted = {node: i for i, node in enumerate(grower.to_search.tolist())}
        before, self._grain, n_slots = self._grain, {}, len(wanted)
        tasks, summed = [], []
        of_splits = (splits.node.tolist(), splits.left.tolist(), splits.n_left.tolist(), grower.about(splits.node)[0].tolist())
        for parent, left, n_left, n_rows in zip(*of_splits, strict=True):
            sizes = {left: n_left, left + 1: n_rows - n_left}
            smaller, larger = (left, left + 1) if 2 * n_left <= n_rows else (left + 1, left)
            grains = {node: self._grain_for(sizes[node]) for node in (smaller, larger) if node in wanted}
            if larger in wanted and before[parent] >= grains[larger]:
                summed.append((smaller, grains[larger]))
                if smaller in wanted:
                    grains[smaller] = min(grains.values())
                slot = wanted.get(smaller, n_slots)
                n_slots += slot == n_slots
                tasks.append((wanted.get(smaller, -1), wanted[larger], self._slot[parent], slot))
            else:
                tasks += [(wanted[node], -1, -1, wanted[node]) for node in grains]
                summed += grains.items()
            self._grain |= grains
        self._note(tasks, summed, n_slots)

    def _note(self, tasks: Sequence[tuple[int, ...]], summed: Sequence[tuple[int, int]], n_slots: int) -> None:
        pairs = np.array(summed, np.int64).reshape(-1, 2)
        self.summed = Levelled(pairs[:, 0].copy(), pairs[:, 1].copy())
        self._tasks, self._n_slots = np.array(tasks, np.int64).reshape(-1, 4), n_slots

    def open(self, grower: Grower, root: Root) -> None:
        """Begin the search of the nodes whose sums were scheduled."""
        nodes = grower.to_search
        self._columns = columns = Columns(self.shards, self.tree, grower.table.path[nodes])
        grain = np.array([self._grain[node] for node in nodes.tolist()], np.int64)
        self._slot = {node: i for i, node in enumerate(nodes.tolist())}
        n_rows, sums, _ = grower.about(nodes)
        self._searched = FindBars(root, self._tasks, self.summed, self._n_slots, nodes, n_rows, grain, sums, columns.drawn(), columns.paths)

    def search(self, sent: list[Arrays]) -> Steps[tuple[Scanned, int, NDArray[np.intp]]]:
        """Find the best splits of the nodes being searched in this shard's columns, given the sums of all shards.

        Also return the number of rows that were scanned, and which nodes are leaves because their target is constant.
        """
        own = self.rows.find_bars(self._searched, sent), *self.rows.find_pure(self._searched.node)
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

    def found(self, own: Scanned, flagged: int) -> Steps[Found]:
        """Return the best splits that any searcher has found for the nodes, and record how many of their cells were flagged."""
        n_cells = int(self._searched.n_rows.sum()) * self.shards.plan.rules.columns_per_tree
        found, of_all = yield from self._best_of_all("level", own, flagged)
        self.shards.grain.note(of_all, n_cells)
        return found

    def _best_of_all(self, name: str, own: Scanned, flagged: int = 0) -> Steps[tuple[Found, int]]:
        """Exchange the best splits and numbers of flagged rows; return the best splits over all searchers and the total number.

        Splits are sent as arrays of numbers: pickling and reading tuples of records takes six times as long.
        """
        arrays = own.candidates.records.view(np.uint8), own.candidates.left, own.above, *own.sets, np.array([flagged])
        every = yield self.shards.to_all(name, arrays)
        scanned = [Scanned(Candidates(one[0].view(CANDIDATE), one[1]), one[2], CategorySets(*one[3:6])) for one in every]
        return self._best(scanned), sum(int(one[6][0]) for one in every)

    def search_rest(self, which: NDArray[np.int64]) -> Steps[Found]:
        """Search some of the nodes in their further columns, each until a column varies in it."""
        columns, left = self._columns, which
        best, above, words = self._best([])
        for place in range(columns.n_drawn, columns.n_columns):
            drawn = np.zeros((above.shape[0], columns.n_columns), np.bool_)
            drawn[left, columns.order[left, place]] = True
            own = yield from self._search_further(drawn)
            (found, next_above, more), _ = yield from self._best_of_all("further columns", own)
            best.records[left], best.left[left], above[left] = found.records[left], found.left[left], next_above[left]
            words |= {i: more[i] for i in left.tolist() if i in more}
            left = left[best.records["status"][left] == CONSTANT]
            if not left.shape[0]:
                break
        return best.take(which), above[which], words

    def _search_further(self, drawn: NDArray[np.bool_]) -> Steps[Scanned]:
        """Search the nodes in other columns; ``drawn`` is as for :class:`~dtrees.engine.rows.searcher.FindBars`."""
        return (yield from self._scan(np.full(drawn.shape[0], -1.0), drawn))[0]

    def _best(self, scanned: list[Scanned]) -> Found:
        n, n_sums = self._searched.sums.shape
        best, every = empty_candidates(n, n_sums), np.arange(n)
        for one in scanned:
            best_by_node(one.candidates, every, best)
        above, words = np.full(n, np.nan), dict[int, NDArray[np.uint32]]()
        for one in scanned:
            mine = one.candidates.records["column"] == best.records["column"]
            above[mine] = one.above[mine]
            words.update((i, some) for i, some in one.sets.by_node.items() if mine[i])
        return best, above, words
