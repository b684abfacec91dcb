"""The search of some columns for the best splits of nodes, by sums and rows that shards of rows have sent.

Every shard of rows is the searcher of some columns. It puts together what all shards have summed (:meth:`Searcher.find_bars`), flags the
parts that may hold the best split of a node (:meth:`Searcher.flag`), looks closer at those of many rows, by sums of finer parts
(:meth:`Searcher.refine`), and finds the split by the rows in what is still flagged (:meth:`Searcher.scan`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import SumsKept
from dtrees.engine.plan.plans import Rules
from dtrees.engine.rows.between.packed import add_up
from dtrees.engine.rows.messages import FindBars, Rooted, Scanned
from dtrees.engine.shard.targets.places import as_columns, bounds_of, places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.candidate import Candidates, best_by_node, empty_candidates
from dtrees.split.node.limits import SplitLimits, limits_for_thread
from dtrees.split.policy import FEWEST_FINER_PARTS, MAX_PARTS, ROWS_PER_FINER_PART
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.over_shards.finer_parts import FinerTotals, RefinedParts, refine_nodes
from dtrees.split.zones.over_shards.flagging import flag_nodes
from dtrees.split.zones.over_shards.node_sums import settle_sums
from dtrees.split.zones.over_shards.requests import FLAGGED, REQUEST, ColumnSplits, Flags, SearchedNodes
from dtrees.split.zones.over_shards.scanning import RowsSent, scan_rows
from dtrees.split.zones.over_shards.value_sums import ValueSums
from dtrees.split.zones.sums import SCALE, Sums

_NO_PLACES, _NO_SIDES = np.empty(0, np.uint32), np.empty((0, 0), np.uint8)


class RowsSentOfOthers(RuntimeError):
    """Rows that shards sent are not those that they had summed."""


def make_sums(slots: NDArray[np.int64], starts: NDArray[np.int64], shifts: NDArray[np.uint64], width: int, shift: int) -> Sums:
    """Return sums in slots whose grains are 0, all in one scale."""
    scales = np.zeros(slots.shape[0], SCALE)
    scales["shift"], scales["slope"] = shift, np.inf
    first = np.zeros(1, SCALE)
    first["shift"], first["slope"] = shift, np.inf
    grains = np.zeros(slots.shape[0], np.int64)
    flagged = np.zeros(2, np.int64)
    return Sums(slots, grains, scales, first, starts, shifts, width, 0, 2**62, flagged, _NO_PLACES, _NO_SIDES)


class NumbersKept:
    """Room for int64 numbers that is kept from one use to the next: to have the system make it anew takes longer than to fill it.

    Parameters
    ----------
    large_pages : bool, default=True
        Whether large pages are asked for; without them, a room of which little is used takes little memory.

    Examples
    --------
    >>> kept = NumbersKept()
    >>> first = kept.room(3)
    >>> first.shape, kept.room(2).base is first.base
    ((3,), True)
    """

    def __init__(self, large_pages: bool = True) -> None:
        self._large_pages = large_pages
        self._numbers = mapped(0, np.int64)

    def room(self, n: int) -> NDArray[np.int64]:
        """Return room for ``n`` numbers, with anything in it, in place of what was returned before."""
        if self._numbers.shape[0] < n:
            self._numbers = mapped(n, np.int64, self._large_pages)
        return self._numbers[:n]


class Wanted(NamedTuple):
    """Rows that a searcher wants of every shard.

    Attributes
    ----------
    tasks : ndarray of int64, shape (n, 5)
        A node, a place among the tree's columns, by how much parts are shifted, how many rows all shards have, and into how many finer
        parts each flagged one is to be cut, or has been; 0 for none.
    begins : ndarray of int64, shape (n + 1,)
    parts : ndarray of uint16
        The flagged parts of task k are ``parts[begins[k]:begins[k + 1]]``.
    """

    tasks: NDArray[np.int64]
    begins: NDArray[np.int64]
    parts: NDArray[np.uint16]

    @property
    def is_cut(self) -> bool:
        """Whether sums by finer parts are wanted."""
        return bool(self.tasks[:, 4].any())


class Searcher:
    """The search of one tree in some of its columns.

    Parameters
    ----------
    zone_map : ZoneMap
        Of these columns (:func:`~dtrees.engine.rows.searching.zone_edges.searcher_zone_map`).
    upper : ndarray of float64, shape (k, most parts)
    ids : ndarray of int32, shape (k,)
        Numbers of the columns in the table.
    places : ndarray of int64, shape (k,)
        Of these among the tree's columns.
    layout : tuple of ndarray
        Where columns begin in slots, and how parts are shifted (:func:`~dtrees.split.zones.sums.lay_out_slots`).
    width : int
        Numbers of an element.
    threads : Threads
    rooms : list of NumbersKept
        For sums: those of the nodes searched last, and those of nodes searched before, which nobody wants while others are summed. These
        are to be sent before :meth:`find_bars`, if they were made there.
    kept : SumsKept
        What is summed.
    """

    _flag_nodes: Callable[..., None] = staticmethod(flag_nodes)
    _request: np.dtype[Any] = REQUEST
    _flagged: np.dtype[Any] = FLAGGED

    def __init__(
        self,
        zone_map: ZoneMap,
        upper: NDArray[np.float64],
        ids: NDArray[np.int32],
        places: NDArray[np.int64],
        layout: tuple[NDArray[np.int64], NDArray[np.uint64]],
        width: int,
        threads: Threads,
        rooms: list[NumbersKept],
        kept: SumsKept,
    ) -> None:
        self._kept = kept
        # Within the zone map, columns are numbered from 0.
        self._zone_map, self._upper, self._ids, self._places = zone_map._replace(which=np.arange(ids.shape[0])), upper, ids, places
        self._starts, self._shifts = layout
        self._width, self._threads = width, threads
        self._sums = make_sums(np.empty((0, 0), np.int64), *layout, width, 0)
        self._rooms = rooms
        self._scratch: list[Scratch] = []
        self._limits: SplitLimits
        self._limits_of: tuple[Any, ...] = ()
        self._nodes: SearchedNodes
        self._flags: Flags

    def _make_scratch(self) -> None:
        while len(self._scratch) < self._threads.n_threads:
            self._scratch.append(make_scratch(MAX_PARTS, MAX_PARTS, self._kept.n_numbers, n_sums=self._kept.n_sums))

    def find_bars(self, message: FindBars, rules: Rules, sent: list[NDArray[Any]]) -> NDArray[np.float64]:
        """Put together the sums of nodes, and return their bars; ``sent`` are those of each shard, one node after the other."""
        self._make_scratch()
        n, k, root = message.node.shape[0], self._ids.shape[0], message.root
        bars = np.full(n, -1.0)
        self._note_limits(rules, root)
        self._message = message
        if not k:
            return bars
        room = int(self._starts[int(message.summed.grain.max(initial=0)), -1])
        self._rooms.reverse()
        slots = self._rooms[0].room(message.n_slots * room).reshape(message.n_slots, room)
        sums = make_sums(slots, self._starts, self._shifts, self._width, root.shift)
        of_tasks = message.tasks[:, 3]
        sums.grains[of_tasks] = message.summed.grain
        add_up(sent, slots.reshape(-1), of_tasks * room, self._starts[message.summed.grain, -1], self._threads)
        before, self._sums = self._sums, sums
        self._nodes = nodes = SearchedNodes(self._ids, self._zone_map, self._upper, sums, message.n_rows, message.sums, bars)
        # What is named here is still there when a thread comes late.
        drawn, limits, scratch = self._own(message.drawn), self._limits, self._scratch
        self._threads.share(
            message.tasks.shape[0],
            lambda queue, thread: settle_sums(
                queue, message.tasks, before, nodes, message.grain, drawn, limits_for_thread(limits), scratch[thread]
            ),
        )
        return bars

    def _note_limits(self, rules: Rules, root: Rooted) -> None:
        """Find the limits on splits, once for each tree."""
        tree = root.exponents, root.slope, root.sums.tobytes()
        if tree != self._limits_of:
            self._limits_of, self._limits = tree, self._kept.limits(rules, root.sums, root.exponents, root.slope)[0]

    def _own(self, drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the columns here nodes are to be searched in, given which of the tree's; all if that is empty."""
        k = self._ids.shape[0]
        if not drawn.shape[0]:
            return np.ones((self._message.node.shape[0], k), np.bool_)
        return np.ascontiguousarray(drawn[:, self._places])

    def flag(self, bars: NDArray[np.float64], drawn: NDArray[np.bool_]) -> Wanted:
        """Flag parts that may hold better splits than the bars, in columns drawn, and return what rows that takes."""
        message, k = self._message, self._ids.shape[0]
        n = message.node.shape[0]
        self._splits = splits = ColumnSplits(empty_candidates(n * k, message.sums.shape[1]), np.full(n * k, np.nan))
        rooms = bounds_of((self._zone_map.n_zones.max(initial=0) << message.grain) * k)
        # There is room for all parts of every node, of which few are flagged.
        self._flags = flags = Flags(np.zeros((n, k), self._request), mapped(int(rooms[-1]), self._flagged, large_pages=False))
        if k:
            self._nodes = nodes = self._nodes._replace(bars=bars.copy())
            limits, scratch, flag_nodes = self._limits, self._scratch, self._flag_nodes
            draws, own = drawn.shape[0] > 0, self._own(drawn)
            self._threads.share(
                n,
                lambda queue, thread: flag_nodes(
                    queue, nodes, limits_for_thread(limits), own, draws, scratch[thread], rooms, flags, splits
                ),
            )
        self._tasks = self._wanted_tasks(flags.requests)
        return self._wanted(self._numbers(flags.parts))

    def _wanted_tasks(self, requests: NDArray[Any]) -> NDArray[np.int64]:
        """Return the nodes and columns whose rows are wanted, and into how many finer parts each flagged one is to be cut."""
        node, column = ((requests["last"] > requests["first"]) | (requests["score"] >= 0.0)).nonzero()
        wanted = requests[node, column]
        counts = wanted["last"] - wanted["first"]
        cut = np.minimum(wanted["n_rows"] // ROWS_PER_FINER_PART, MAX_PARTS) // np.maximum(counts, 1)
        cut[(cut < FEWEST_FINER_PARTS) | (wanted["bar"] < 0.0)] = 0
        return as_columns(node, column, cut)

    def _numbers(self, parts: NDArray[Any]) -> NDArray[np.int64]:
        """Return the numbers of flagged parts."""
        return np.asarray(parts["part"])

    def _wanted(self, numbers: NDArray[np.integer[Any]]) -> Wanted:
        """Return what is wanted of shards, given the number of each flagged part."""
        message, (node, column, cut) = self._message, self._tasks.T
        wanted = self._flags.requests[node, column]
        first = wanted["first"]
        counts = wanted["last"] - first
        tasks = as_columns(message.node[node], self._places[column], self._zone_map.fold - message.grain[node], wanted["n_rows"], cut)
        return Wanted(tasks, bounds_of(counts), numbers[places_of(first, counts)].astype(np.uint16))

    def refine(self, sent: list[NDArray[Any]]) -> Wanted:
        """Flag finer parts by what all shards have summed, and return what rows that takes."""
        node, column, cut = self._tasks.T
        totals = add_up(sent).reshape(-1, self._width)
        nodes, flags = self._nodes, self._flags
        wanted = flags.requests[node, column]
        counts = wanted["last"] - wanted["first"]
        rooms, firsts = bounds_of(counts * np.maximum(cut, 1)), bounds_of(counts * cut)
        room = int(rooms[-1])
        order = (cut == 0).argsort(kind="stable")
        tasks, finer = self._tasks[order], FinerTotals(firsts[order], totals)
        refined = RefinedParts(rooms[order], np.empty(room, np.uint16), np.empty(room, FLAGGED))
        failed, limits, scratch = np.zeros(1, np.int64), self._limits, self._scratch
        self._threads.share(
            tasks.shape[0],
            lambda queue, thread: refine_nodes(
                queue, tasks, nodes, limits_for_thread(limits), scratch[thread], flags, finer, refined, failed
            ),
        )
        if failed[0]:
            raise RowsSentOfOthers("shards summed other rows of a node in finer parts than before")
        self._flags = flags._replace(parts=refined.parts)
        return self._wanted(refined.numbers)

    def scan(self, sent: list[tuple[NDArray[Any], ...]]) -> Scanned:
        """Find the best splits by the rows that shards have sent: for each how many values of each task, and their runs."""
        n_tasks = self._tasks.shape[0]
        if n_tasks:
            counts = np.array([one[0] for one in sent])
            begins = np.zeros((len(sent), n_tasks + 1), np.int64)
            counts.cumsum(axis=1, out=begins[:, 1:])
            begins[1:] += begins[:-1, -1].cumsum()[:, None]
            runs, merged = self._rows_sent(sent)
            rows_sent = RowsSent(runs, begins, bounds_of(counts.sum(axis=0)), merged)
            failed, tasks = np.zeros(1, np.int64), self._tasks[:, :2].copy()
            nodes, limits, scratch, flags, splits = self._nodes, self._limits, self._scratch, self._flags, self._splits
            self._threads.share(
                n_tasks,
                lambda queue, thread: scan_rows(
                    queue, tasks, nodes, limits_for_thread(limits), scratch[thread], flags, rows_sent, splits, failed
                ),
            )
            if failed[0]:
                raise RowsSentOfOthers("shards sent other rows of a node than they had summed")
        return self._best()

    def _rows_sent(self, sent: list[tuple[NDArray[Any], ...]]) -> tuple[Any, Any]:
        """Return the rows of all shards, shard by shard, and room for so many."""
        runs = ValueSums(*(np.concatenate([one[i] for one in sent]) for i in range(1, 5)))
        room: list[Any] = [np.empty_like(of) for of in runs]
        return runs, ValueSums(*room)

    def _best(self) -> Scanned:
        """Return the best split of each node, of those in all columns here."""
        n, k = self._message.node.shape[0], self._ids.shape[0]
        best = empty_candidates(n, self._message.sums.shape[1])
        best_by_node(self._splits.candidates, np.repeat(np.arange(n), k), best)
        place = np.searchsorted(self._ids, best.records["column"]) if k else np.zeros(n, np.int64)
        above = self._splits.above[np.arange(n) * k + place] if k else np.full(n, np.nan)
        del self._flags
        return Scanned(Candidates(best.records, best.left), above)
