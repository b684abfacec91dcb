"""The levels of a tree over shards of rows if thresholds are random.

A random threshold depends on the lowest and the highest value of its node in its column. Shards therefore exchange these values of their
own rows ("ends"), and each draws the thresholds itself. Then each sums its rows on the left of the thresholds, and sends each sum ("sides")
to the shard that evaluates the threshold. No zones are summed, and no rows are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.exchange import Arrays, Shards, Steps
from dtrees.engine.rows.all_rows import pure_in_all
from dtrees.engine.rows.levels import Levels
from dtrees.engine.rows.packed import add_up
from dtrees.engine.rows.rows_in_tree import RowsInTree
from dtrees.engine.rows.searcher import Scanned
from dtrees.engine.shard.passes import share_by_column
from dtrees.engine.shard.targets.scales import Derived
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.node.records import best_by_node, empty_candidates
from dtrees.split.numbers import hashing
from dtrees.split.search.random_threshold import draw_thresholds, find_ends, sum_sides, try_thresholds
from dtrees.split.search.scratch import make_scratch

_NOTHING = np.empty(0, np.int64)


class Ends(NamedTuple):
    """Ends of the value ranges of pairs of a node and a column, from which thresholds are drawn.

    Attributes
    ----------
    low, high : ndarray of float64, shape (n,)
        The lowest and the highest value; infinity and minus infinity if there are no values.
    has_missing : ndarray of bool, shape (n,)
    pure : ndarray of bool, shape (n_nodes,) or (0,)
        The nodes whose target is constant, if requested.
    first : ndarray of float64, shape (n_nodes,) or (0,)
        The target of the first row of each node, NaN for a node without rows.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    has_missing: NDArray[np.bool_]
    pure: NDArray[np.bool_] = np.empty(0, np.bool_)
    first: NDArray[np.float64] = np.empty(0)


def joined_ends(sent: Sequence[Arrays]) -> Ends:
    """Combine the ends found by several shards.

    Examples
    --------
    >>> one = Ends(np.array([1.0]), np.array([2.0]), np.array([False]))
    >>> other = Ends(np.array([0.5]), np.array([0.5]), np.array([True]))
    >>> joined_ends([one, other])[:3]
    (array([0.5]), array([2.]), array([ True]))
    """
    low, high, has_missing, pure, first = zip(*sent, strict=True)
    return Ends(np.minimum.reduce(low), np.maximum.reduce(high), np.logical_or.reduce(has_missing), pure_in_all(pure, first))


class RandomLevels(Levels):
    """The search of the nodes of levels with random thresholds, for each node separately and without zones."""

    def __init__(self, shards: Shards, rows: RowsInTree, tree: int, derived: list[Derived]) -> None:
        super().__init__(shards, rows, tree, derived)
        self._threshold_key = np.uint64(hashing.stream_key(rows.target.seed, hashing.STREAM_THRESHOLD, tree))
        stored = rows.stored
        self._scratch = [make_scratch(1, 1, stored.n_numbers, n_sums=stored.n_sums) for _ in range(rows.threads.n_threads)]

    def _grain_for(self, n_rows: int) -> int:
        return 0  # nodes are summed by category only

    def _search(self) -> Steps[tuple[Scanned, int, NDArray[np.intp]]]:
        """Find the best random thresholds of nodes."""
        message = self._searched
        self.rows.category_search.find_bars(message, self.shards.plan.rules, self._sums, self._threshold_key)
        scanned, pure = yield from self._try_thresholds(message.drawn, message.node)
        return scanned, 0, np.flatnonzero(pure)

    def _search_further(self, drawn: NDArray[np.bool_]) -> Steps[Scanned]:
        return (yield from self._try_thresholds(drawn))[0]

    def _try_thresholds(self, drawn: NDArray[np.bool_], nodes: NDArray[np.int64] = _NOTHING) -> Steps[tuple[Scanned, NDArray[np.bool_]]]:
        """Find the best random thresholds of the nodes being searched; return them, and which of ``nodes`` have a constant target."""
        shards = self.shards
        ends = joined_ends((yield shards.to_all("ends", self._find_ends(drawn, nodes))))
        sent = yield shards.step("sides", self._sum_sides(ends), shards.everyone)
        return self._evaluate(sent), ends.pure

    def _find_ends(self, drawn: NDArray[np.bool_], nodes: NDArray[np.int64]) -> Ends:
        """Return the ends of this shard's rows in the columns drawn for each node (all if empty); determine which ``nodes`` are pure."""
        message, own, pool = self._searched, self.rows, self.rows.pool
        columns, rows, searched = own.columns, own.partition.rows, ~(own.edges.n_categories > 0)[pool]
        if not nodes.shape[0]:  # a continued search
            own.category_search.search_again(drawn)
        chosen = drawn & searched if drawn.shape[0] else np.broadcast_to(searched, (message.node.shape[0], searched.shape[0]))
        self._node, place = np.nonzero(chosen)
        self._column = pool[place].astype(np.int64)
        of_pairs = message.node[self._node]
        tasks = np.stack([own.nodes.start[of_pairs], own.nodes.stop[of_pairs], self._column], axis=1)
        codes = np.empty((tasks.shape[0], 3), np.int64)

        share_by_column(
            own.threads, columns.codes, self._column,
            lambda queue, _, some, found: find_ends(queue, some, columns, rows, found),
            [tasks], [codes], [columns.words],
        )  # fmt: skip
        low, high = columns.values_of(self._column, codes[:, 0]), columns.values_of(self._column, np.maximum(codes[:, 1], 0))
        none, (pure, first) = codes[:, 1] < 0, own.find_pure(nodes)
        return Ends(np.where(none, np.inf, low), np.where(none, -np.inf, high), codes[:, 2] > 0, pure, first)

    def _sum_sides(self, ends: Ends) -> dict[int, tuple[NDArray[np.int64]]]:
        """Draw thresholds; return the sums of the shard's rows, for each shard those of the thresholds that it evaluates.

        Columns that vary in their nodes are dealt to the shards in turn; nodes with a constant target are left out.
        """
        message, own, n_shards = self._searched, self.rows, self.shards.n_shards
        columns, rows, nodes = own.columns, own.partition, own.nodes
        varies = (ends.low < ends.high) | (ends.has_missing & (ends.low <= ends.high))
        if ends.pure.shape[0]:
            varies &= ~ends.pure[self._node]
        some = np.flatnonzero(varies)
        node, column = self._node[some], self._column[some]
        thresholds = np.empty(some.shape[0])
        draw_thresholds(self._threshold_key, message.path[node], column, ends.low[some], ends.high[some], thresholds)
        with_missing, n = ends.has_missing[some], some.shape[0]
        missing_place = np.where(with_missing, np.cumsum(with_missing) - 1, -1)
        self._tries = np.stack([node, column, missing_place], axis=1), thresholds
        width = message.sums.shape[1] + 1
        left, missing = np.zeros((n, width), np.int64), np.zeros((int(with_missing.sum()), width), np.int64)
        cuts = columns.codes_up_to(column, thresholds)
        of_tries = message.node[node]
        tasks = np.stack([nodes.start[of_tries], nodes.stop[of_tries], column, node, missing_place], axis=1)
        limits, scratch = self._limits, self._scratch

        share_by_column(
            own.threads, columns.codes, column,
            lambda queue, thread, some, own_cuts, own_left: sum_sides(
                queue, some, columns, rows, own_cuts, message.sums, limits_for_thread(limits), scratch[thread], own_left, missing
            ),
            [tasks, cuts], [left], [columns.words],
        )  # fmt: skip
        return {
            shard: (np.concatenate([left[shard::n_shards].ravel(), missing[self._of_shard(shard)[0]].ravel()]),)
            for shard in range(n_shards)
        }

    def _of_shard(self, shard: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the sums of missing rows for a shard's thresholds, and the index of each threshold among these (or -1)."""
        place = self._tries[0][shard :: self.shards.n_shards, 2]
        has = place >= 0
        return place[has], np.where(has, np.cumsum(has) - 1, -1)

    def _evaluate(self, sent: Sequence[Arrays]) -> Scanned:
        """Evaluate this shard's thresholds, given the sums of all shards; return the best split of each node, categories included."""
        message, (tries, thresholds), shard, n_shards = self._searched, self._tries, self.shards.shard, self.shards.n_shards
        tasks = tries[shard::n_shards].copy()
        node, n, n_sums = tasks[:, 0].copy(), tasks.shape[0], message.sums.shape[1]
        tasks[:, 2] = self._of_shard(shard)[1]
        sums = add_up([one for (one,) in sent]).reshape(-1, n_sums + 1)
        own_thresholds, out = thresholds[shard::n_shards].copy(), empty_candidates(n, n_sums)
        limits, scratch, left, missing = self._limits, self._scratch, sums[:n], sums[n:]
        self.rows.threads.share(
            n,
            lambda queue, thread: try_thresholds(
                queue, tasks, own_thresholds, left, missing, message.n_rows, message.sums, limits_for_thread(limits), scratch[thread], out
            ),
        )
        best = empty_candidates(message.node.shape[0], n_sums)
        best_by_node(out, node, best)
        return self.rows.category_search.merged(Scanned(best, np.full(message.node.shape[0], np.inf)))
