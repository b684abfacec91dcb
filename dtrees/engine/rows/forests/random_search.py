"""Random thresholds of nodes whose rows are spread over shards: what a shard says of its rows, and tries of all.

Where a threshold lies follows from the lowest and the highest value of its node in its column, so shards tell one another these of their
own rows, and draw thresholds each for itself. Then each sums its rows on the left of the thresholds, and sends the sums of each to the
shard that tries it. No zones are summed, and no rows are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.between.packed import add_up
from dtrees.engine.rows.searching.passes import by_column
from dtrees.engine.rows.steps import FindBars, Scanned
from dtrees.engine.threads import Threads
from dtrees.split.node.candidate import best_by_node, empty_candidates
from dtrees.split.node.limits import limits_for_thread
from dtrees.split.node.partition import RowPartition
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.search.thresholds.random_sides import draw_thresholds, find_ends, sum_sides, try_thresholds
from dtrees.split.table.columns import Columns

_NOTHING, _NO_VALUES = np.empty(0, np.bool_), np.empty(0)


class Ends(NamedTuple):
    """What is known of pairs of a node and a column before thresholds are drawn.

    Attributes
    ----------
    low, high : ndarray of float64, shape (n,)
        The lowest and the highest value; infinite, and the other way round, where there are none.
    has_missing : ndarray of bool, shape (n,)
    pure : ndarray of bool, shape (n_nodes,) or (0,)
        Which nodes have one target in all rows, if that is asked for.
    first, last : ndarray of float64, shape (n_nodes,) or (0,)
        The lowest and the highest of the targets of their first rows, NaN without rows.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    has_missing: NDArray[np.bool_]
    pure: NDArray[np.bool_] = _NOTHING
    first: NDArray[np.float64] = _NO_VALUES
    last: NDArray[np.float64] = _NO_VALUES

    @property
    def of_one_target(self) -> NDArray[np.bool_]:
        """Which nodes have one target in all their rows."""
        found: NDArray[np.bool_] = self.pure & ~(self.first < self.last)
        return found


def joined_ends(sent: Sequence[tuple[NDArray[Any], ...]]) -> Ends:
    """Return what several shards know as one.

    Examples
    --------
    >>> one = Ends(np.array([1.0]), np.array([2.0]), np.array([False]))
    >>> other = Ends(np.array([0.5]), np.array([0.5]), np.array([True]))
    >>> joined_ends([one, other])[:3]
    (array([0.5]), array([2.]), array([ True]))
    """
    low, high, has_missing, pure, first, last = zip(*sent, strict=True)
    return Ends(
        np.minimum.reduce(low),
        np.maximum.reduce(high),
        np.logical_or.reduce(has_missing),
        np.logical_and.reduce(pure),
        np.fmin.reduce(first),
        np.fmax.reduce(last),
    )


class RandomSearch:
    """The random thresholds of a tree, and what a shard's rows are to them.

    Parameters
    ----------
    columns : Columns
        Of the shard's rows.
    is_category : ndarray of bool, shape (n_columns,)
        Which columns hold categories: these are searched elsewhere.
    pool : ndarray of int32
        The columns of the tree.
    key : uint64
        Of the tree's stream of random thresholds.
    threads : Threads
    kept : SumsKept
        What is summed.

    Attributes
    ----------
    key : uint64
    """

    def __init__(
        self,
        columns: Columns,
        is_category: NDArray[np.bool_],
        pool: NDArray[np.int32],
        key: np.uint64,
        threads: Threads,
        kept: SumsKept,
    ) -> None:
        self._columns, self._pool, self.key, self._threads, self._kept = columns, pool.astype(np.int64), key, threads, kept
        self._searched = ~is_category[pool]
        self._scratch: list[Scratch] = []

    def open(self, message: FindBars, rules: Rules, targets: NDArray[np.int64] | None) -> None:
        """Begin the search of some nodes; ``targets`` are what all rows add to the sums of several."""
        root = message.root
        self._message = message
        self._limits, _ = self._kept.limits(rules, root.sums, root.exponents, root.slope, rows=targets)

    def find_ends(
        self, drawn: NDArray[np.bool_], rows: NDArray[np.uint32], places: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
        """Return the first three of :class:`Ends` of the shard's rows, in the columns drawn for each node; in all if ``drawn`` is empty.

        ``places`` are the first of each node, and the one after its last.
        """
        message, columns = self._message, self._columns
        n, k = message.node.shape[0], self._pool.shape[0]
        chosen = drawn & self._searched if drawn.shape[0] else np.broadcast_to(self._searched, (n, k))
        self._node, place = np.nonzero(chosen)
        self._column = self._pool[place]
        node = message.node[self._node]
        tasks = np.stack([places[0][node], places[1][node], self._column], axis=1)
        codes = np.empty((tasks.shape[0], 3), np.int64)

        def find(some: Any) -> None:
            own, found = tasks[some], codes[some]
            self._threads.share(own.shape[0], lambda queue, _: find_ends(queue, own, columns, rows, found))
            codes[some] = found

        for some in by_column(columns.codes, self._column, columns.words):
            find(some)
        low, high = columns.values_of(self._column, codes[:, 0]), columns.values_of(self._column, np.maximum(codes[:, 1], 0))
        none = codes[:, 1] < 0
        return np.where(none, np.inf, low), np.where(none, -np.inf, high), codes[:, 2] > 0

    def sum_sides(
        self, ends: Ends, rows: RowPartition, places: tuple[NDArray[np.int64], NDArray[np.int64]], n_shards: int
    ) -> dict[int, tuple[NDArray[np.int64]]]:
        """Draw thresholds; return the sums of the shard's rows, for each shard those of the thresholds that it tries.

        These are the ones in columns that vary in their nodes, dealt by turns; nodes of one target are left out.
        """
        message, columns = self._message, self._columns
        varies = (ends.low < ends.high) | (ends.has_missing & (ends.low <= ends.high))
        if ends.pure.shape[0]:
            varies &= ~ends.of_one_target[self._node]
        some = np.flatnonzero(varies)
        node, column = self._node[some], self._column[some]
        thresholds = np.empty(some.shape[0])
        draw_thresholds(self.key, message.path[node], column, ends.low[some], ends.high[some], thresholds)
        with_missing, n = ends.has_missing[some], some.shape[0]
        missing_place = np.where(with_missing, np.cumsum(with_missing) - 1, -1)
        self._tries = np.stack([node, column, missing_place], axis=1), thresholds
        width = message.sums.shape[1] + 1
        left, missing = np.zeros((n, width), np.int64), np.zeros((int(with_missing.sum()), width), np.int64)
        cuts = columns.codes_up_to(column, thresholds)
        which = message.node[node]
        tasks = np.stack([places[0][which], places[1][which], column, node, missing_place], axis=1)
        limits, scratch = self._limits, self._make_scratch()

        def add(some: Any) -> None:
            own, own_cuts, own_left = tasks[some], cuts[some], left[some]
            self._threads.share(
                own.shape[0],
                lambda queue, thread: sum_sides(
                    queue, own, columns, rows, own_cuts, message.sums, limits_for_thread(limits), scratch[thread], own_left, missing
                ),
            )
            left[some] = own_left

        for some in by_column(columns.codes, column, columns.words):
            add(some)
        return {
            shard: (np.concatenate([left[shard::n_shards].ravel(), missing[self._of_shard(shard, n_shards)[0]].ravel()]),)
            for shard in range(n_shards)
        }

    def _of_shard(self, shard: int, n_shards: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the missing rows of the thresholds that a shard tries are, and where they are among these."""
        place = self._tries[0][shard::n_shards, 2]
        has = place >= 0
        return place[has], np.where(has, np.cumsum(has) - 1, -1)

    def scan(self, sent: Sequence[tuple[NDArray[Any], ...]], shard: int, n_shards: int) -> Scanned:
        """Try the thresholds of this shard, given the sums of all; return the best split of each node."""
        message, (tries, thresholds) = self._message, self._tries
        tasks = tries[shard::n_shards].copy()
        node, n, n_sums = tasks[:, 0].copy(), tasks.shape[0], message.sums.shape[1]
        tasks[:, 2] = self._of_shard(shard, n_shards)[1]
        sums = add_up([one for (one,) in sent]).reshape(-1, n_sums + 1)
        own_thresholds, out = thresholds[shard::n_shards].copy(), empty_candidates(n, n_sums)
        limits, scratch, left, missing = self._limits, self._make_scratch(), sums[:n], sums[n:]
        self._threads.share(
            n,
            lambda queue, thread: try_thresholds(
                queue, tasks, own_thresholds, left, missing, message.n_rows, message.sums, limits_for_thread(limits), scratch[thread], out
            ),
        )
        best = empty_candidates(message.node.shape[0], n_sums)
        best_by_node(out, node, best)
        return Scanned(best, np.full(message.node.shape[0], np.inf))

    def _make_scratch(self) -> list[Scratch]:
        while len(self._scratch) < self._threads.n_threads:
            self._scratch.append(make_scratch(1, 1, self._kept.n_numbers, n_sums=self._kept.n_sums))
        return self._scratch
