"""The search of columns for the best splits of nodes, by sums and rows that shards of rows have sent.

Every shard of rows is the searcher of some columns. It adds up the sums of all shards (:meth:`Searcher.find_bars`), flags the parts that
may hold the best split of a node (:meth:`Searcher.flag`), examines parts with many rows by sums of finer parts (:meth:`Searcher.refine`),
and scans the rows of the parts that are still flagged (:meth:`Searcher.scan`), batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import StoredSums
from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.protocol.messages import Root
from dtrees.engine.rows.packed import add_up
from dtrees.engine.rows.zone_edges import Edges, searcher_zone_map
from dtrees.engine.shard.targets.places import as_columns, bounds_of, places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.limits import SplitLimits, limits_for_thread
from dtrees.split.node.records import Candidates, best_by_node, empty_candidates
from dtrees.split.policy import FEWEST_FINER_PARTS, MAX_PARTS, ROWS_PER_FINER_PART
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.zones.over_shards.finer_parts import RefinedParts, refine_nodes
from dtrees.split.zones.over_shards.flagging import flag_nodes, settle_sums
from dtrees.split.zones.over_shards.records import (
    ALL_PARTS,
    CHUNK,
    FLAGGED,
    REQUEST,
    ColumnSplits,
    Flags,
    SearchedNodes,
    ValueElements,
    ValueSums,
)
from dtrees.split.zones.over_shards.scanning import RowsSent, scan_rows
from dtrees.split.zones.sums import NOTHING_KNOWN, SCALE, Sums
from dtrees.tree.category_sets import NO_SETS, CategorySets

_NO_PLACES, _NO_SIDES = np.empty(0, np.uint32), np.empty((0, 0), np.uint8)


class RowsMismatch(RuntimeError):
    """The rows received from shards do not match their sums."""


def make_sums(slots: NDArray[np.int64], starts: NDArray[np.int64], shifts: NDArray[np.uint64], width: int, shift: int) -> Sums:
    """Return sums in slots with grain 0 and a common scale."""
    scales = np.zeros(slots.shape[0] + 1, SCALE)
    scales["shift"], scales["slope"] = shift, np.inf
    grains, flagged = np.zeros(slots.shape[0], np.int64), np.zeros(2, np.int64)
    return Sums(slots, grains, scales[1:], scales[:1], starts, shifts, width, 0, 2**62, flagged, _NO_PLACES, _NO_SIDES, *NOTHING_KNOWN)


class NumberBuffer:
    """A reusable buffer for int64 numbers: allocating it again takes longer than filling it.

    Parameters
    ----------
    large_pages : bool, default=True
        Whether to ask for large pages; without them, a mostly unused buffer takes little memory.

    Examples
    --------
    >>> buffer = NumberBuffer()
    >>> first = buffer.take(3)
    >>> first.shape, buffer.take(2).base is first.base
    ((3,), True)
    """

    def __init__(self, large_pages: bool = True) -> None:
        self._large_pages = large_pages
        self._numbers = mapped(0, np.int64)

    def take(self, n: int) -> NDArray[np.int64]:
        """Return an uninitialized buffer of ``n`` numbers; invalidates the one returned before."""
        if self._numbers.shape[0] < n:
            self._numbers = mapped(n, np.int64, self._large_pages)
        return self._numbers[:n]


class Levelled(NamedTuple):
    """Nodes to be summed, arrays of shape (n,); ``grain`` is the fineness of their sums."""

    node: NDArray[np.int64]
    grain: NDArray[np.int64]


class FindBars(NamedTuple):
    """Nodes whose best splits are to be found.

    Attributes
    ----------
    root : Root
    limits : SplitLimits
        The limits of the tree.
    tasks : ndarray of int64, shape (n_summed, 4)
        See :func:`~dtrees.split.zones.over_shards.flagging.settle_sums`; parents are positions among the nodes searched last.
    summed : Levelled
        The nodes whose sums shards have sent, in the order of ``tasks``.
    n_slots : int
        Number of slots, for these nodes and those of which only sums are needed.
    node, n_rows, grain : ndarray of int64, shape (n_nodes,)
        The nodes to be searched, their numbers of rows, and the fineness of their sums.
    sums : ndarray of int64, shape (n_nodes, n_sums)
    drawn : ndarray of bool, shape (n_nodes, n_columns) or (0, 0)
        Which of the tree's columns are searched for each node; empty for all.
    path : ndarray of uint64, shape (n_nodes,)
        The identities of the nodes.
    """

    root: Root
    limits: SplitLimits
    tasks: NDArray[np.int64]
    summed: Levelled
    n_slots: int
    node: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    grain: NDArray[np.int64]
    sums: NDArray[np.int64]
    drawn: NDArray[np.bool_]
    path: NDArray[np.uint64]


class Scanned(NamedTuple):
    """The best splits of nodes in a shard's columns, the next value above each cut (NaN if unknown), and sets of categories.

    ``sets.node`` refers to positions in these arrays.
    """

    candidates: Candidates
    above: NDArray[np.float64]
    sets: CategorySets = NO_SETS


class Wanted(NamedTuple):
    """The rows that a searcher requests from every shard.

    Attributes
    ----------
    tasks : ndarray of int64, shape (n, 5)
        The node, the place among the tree's columns, the shift of parts, the number of rows over all shards, and the number of finer parts
        into which each flagged part is to be cut, or has been; 0 for none.
    begins : ndarray of int64, shape (n + 1,)
    parts : ndarray of uint16
        The flagged parts of task k are ``parts[begins[k]:begins[k + 1]]``.
    batches : ndarray of int64, shape (n_batches + 1,)
        Batch k, whose rows are sent together, has the tasks ``batches[k]`` to ``batches[k + 1] - 1``.

    Examples
    --------
    >>> wanted = Wanted(np.zeros((2, 5), np.int64), np.array([0, 2, 3]), np.array([4, 7, 5], np.uint16), np.array([0, 1, 2]))
    >>> wanted.n_batches, [wanted.batch(k).parts.tolist() for k in range(3)]
    (2, [[4, 7], [5], []])
    """

    tasks: NDArray[np.int64]
    begins: NDArray[np.int64]
    parts: NDArray[np.uint16]
    batches: NDArray[np.int64]

    @property
    def n_batches(self) -> int:
        """The number of batches in which rows are sent."""
        return self.batches.shape[0] - 1

    def batch(self, number: int) -> Wanted:
        """Return the requests of a batch; empty for numbers past the last."""
        if self.n_batches == 1 and number == 0:
            return self
        first, stop = self.batches[[number, number + 1]] if number < self.n_batches else (0, 0)
        begins = self.begins[first : stop + 1]
        return Wanted(self.tasks[first:stop], begins - begins[0], self.parts[begins[0] : begins[-1]], np.array([0, stop - first]))

    @property
    def is_cut(self) -> bool:
        """Whether sums of finer parts are requested."""
        return bool(self.tasks[:, 4].any())


class Searcher:
    """The search of one tree in some of its columns.

    Parameters
    ----------
    edges : Edges
        The edges of the zones of these columns.
    ids : ndarray of int32, shape (k,)
        The numbers of the columns in the table.
    places : ndarray of int64, shape (k,)
        The places of the columns among the tree's columns.
    layout : tuple of ndarray
        Where columns begin in slots, and the shifts of their parts (:func:`~dtrees.split.zones.sums.lay_out_slots`).
    width : int
        The number of values of an element.
    threads : Threads
    buffers : list of NumberBuffer
        For the sums of the nodes searched last, and of those searched before. The latter buffer is free while other nodes are summed; sums
        written there must be sent before :meth:`find_bars`.
    stored : StoredSums
        Which sums are stored.
    """

    def __init__(
        self,
        edges: Edges,
        ids: NDArray[np.int32],
        places: NDArray[np.int64],
        layout: tuple[NDArray[np.int64], NDArray[np.uint64]],
        width: int,
        threads: Threads,
        buffers: list[NumberBuffer],
        stored: StoredSums,
    ) -> None:
        self._stored, self._is_of_many = stored, stored.n_numbers > 0
        self._zone_map, self._upper, self._ids, self._places = searcher_zone_map(edges), edges.upper, ids, places
        self._starts, self._shifts = layout
        self._width, self._threads = width, threads
        self._sums = make_sums(np.empty((0, 0), np.int64), *layout, width, 0)
        self._buffers = buffers
        self._limits: SplitLimits
        self._message: FindBars
        self._chunks: NDArray[Any] | None
        self._nodes: SearchedNodes
        self._flags: Flags

    @cached_property
    def _scratch(self) -> list[Scratch]:
        """Scratch space of each thread; a searcher of random thresholds, or of a tree that one shard grows, needs none."""
        stored = self._stored
        return [make_scratch(MAX_PARTS, MAX_PARTS, stored.n_numbers, n_sums=stored.n_sums) for _ in range(self._threads.n_threads)]

    def find_bars(self, message: FindBars, sent: list[NDArray[Any]]) -> NDArray[np.float64]:
        """Add up the sums of nodes, and return their bars; ``sent`` has the sums of each shard, node by node."""
        n, k = message.node.shape[0], self._ids.shape[0]
        bars = np.full(n, -1.0)
        self._message, self._limits = message, message.limits
        if not k:
            self._nodes = SearchedNodes(self._ids, self._zone_map, self._upper, self._sums, message.n_rows, message.sums, bars)
            return bars
        size = int(self._starts[int(message.summed.grain.max(initial=0)), -1])
        self._buffers.reverse()
        slots = self._buffers[0].take(message.n_slots * size).reshape(message.n_slots, size)
        sums = make_sums(slots, self._starts, self._shifts, self._width, message.root.shift)
        of_tasks = message.tasks[:, 3]
        sums.grains[of_tasks] = message.summed.grain
        add_up(sent, slots.reshape(-1), of_tasks * size, self._starts[message.summed.grain, -1], self._threads)
        before, self._sums = self._sums, sums
        self._nodes = nodes = SearchedNodes(self._ids, self._zone_map, self._upper, sums, message.n_rows, message.sums, bars)
        tasks, grain, drawn = message.tasks, message.grain, self._own(message.drawn)
        self._share(tasks.shape[0], lambda queue, *own: settle_sums(queue, tasks, before, nodes, grain, drawn, *own))
        return bars

    def _share(self, n_tasks: int, search: Callable[[NDArray[np.int64], SplitLimits, Scratch], None]) -> None:
        """Have threads call a kernel, each with the queue of tasks, and with limits and scratch space of its own."""
        limits, scratch = self._limits, self._scratch  # local names, which remain valid for a thread that starts late
        self._threads.share(n_tasks, lambda queue, thread: search(queue, limits_for_thread(limits), scratch[thread]))

    def _own(self, drawn: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Restrict the columns in which nodes are searched to those of this shard; all if ``drawn`` is empty."""
        k = self._ids.shape[0]
        if not drawn.shape[0]:
            return np.ones((self._message.node.shape[0], k), np.bool_)
        return np.ascontiguousarray(drawn[:, self._places])

    def flag(self, bars: NDArray[np.float64], drawn: NDArray[np.bool_], most_bytes: int) -> Wanted:
        """Flag parts that may hold better splits than the bars, in the columns drawn, and return the rows needed.

        ``most_bytes`` limits the rows of a batch, unless it has a single part.
        """
        message, k = self._message, self._ids.shape[0]
        n = message.node.shape[0]
        self._splits = splits = ColumnSplits(empty_candidates(n * k, message.sums.shape[1]), np.full(n * k, np.nan))
        offsets = bounds_of((self._zone_map.n_zones.max(initial=0) << message.grain) * k)
        # The buffer has space for all parts of every node, although few are flagged.
        self._flags = flags = Flags(np.zeros((n, k), REQUEST), mapped(int(offsets[-1]), FLAGGED, large_pages=False))
        if k:
            self._nodes = nodes = self._nodes._replace(bars=bars.copy())
            draws, own = drawn.shape[0] > 0, self._own(drawn)
            self._share(n, lambda queue, limits, scratch: flag_nodes(queue, nodes, limits, own, draws, scratch, offsets, flags, splits))
        self._all_flagged = flags.parts
        # A row is sent with its value, the sums of the rows of that value, and their number.
        row_bytes = 8 + 8 * self._width_picked if self._is_of_many else 8 * self._width + 4
        return self._in_batches(self._wanted_tasks(flags.requests), max(1, most_bytes // row_bytes))

    @property
    def _width_picked(self) -> int:
        """The number of values that are sent with a distinct value, for classes and multi-output targets."""
        return self._stored.width_picked(self._width > self._stored.n_numbers)

    def _in_batches(self, tasks: NDArray[np.int64], most_rows: int) -> Wanted:
        """Return the requests in batches of limited size."""
        wanted = self._flags.requests[tasks[:, 0], tasks[:, 1]]
        self._batches, self._chunks = np.array([0, tasks.shape[0]]), None
        if int(wanted["n_rows"].sum()) > most_rows:
            # Ordered by column: finer parts are bounded again by the results of earlier batches for all nodes, and for a table on disk, few
            # columns are read for each batch.
            order = np.lexsort(tasks[:, :2].T)
            place, wanted, self._batches = in_batches(wanted[order], self._all_flagged, most_rows)
            tasks, self._chunks = tasks[order[place]], wanted
        self._tasks = self._all_tasks = tasks
        return self._wanted(self._all_flagged["part"], wanted, self._batches)

    def open_batch(self, number: int) -> None:
        """Begin a batch of requests, which may be empty."""
        first, stop = self._batches[number : number + 2].tolist() if number < self._batches.shape[0] - 1 else (0, 0)
        self._tasks, self._flags = self._all_tasks[first:stop], self._flags._replace(parts=self._all_flagged)
        if self._chunks is not None:
            node, column, _ = self._tasks.T
            for name in CHUNK.names or ():
                self._flags.requests[name][node, column] = self._chunks[name][first:stop]

    def _wanted_tasks(self, requests: NDArray[Any]) -> NDArray[np.int64]:
        """Return the nodes and columns whose rows are requested, and into how many finer parts each flagged part is cut.

        No part is cut for classes and multi-output targets.
        """
        if self._is_of_many:
            node, column = requests["looks"].nonzero()
            return as_columns(node, column, np.zeros(node.shape[0]))
        node, column = ((requests["last"] > requests["first"]) | (requests["score"] >= 0.0)).nonzero()
        wanted = requests[node, column]
        counts = wanted["last"] - wanted["first"]
        cut = np.minimum(wanted["n_rows"] // ROWS_PER_FINER_PART, MAX_PARTS) // np.maximum(counts, 1)
        cut[(cut < FEWEST_FINER_PARTS) | (wanted["bar"] < 0.0)] = 0
        return as_columns(node, column, cut)

    def _wanted(self, numbers: NDArray[np.integer[Any]], wanted: NDArray[Any], batches: NDArray[np.int64]) -> Wanted:
        """Return the requests, given the number of each flagged part, and which parts each task needs."""
        message, (node, column, cut) = self._message, self._tasks.T
        first = wanted["first"]
        counts = wanted["last"] - first
        tasks = as_columns(message.node[node], self._places[column], self._zone_map.fold - message.grain[node], wanted["n_rows"], cut)
        return Wanted(tasks, bounds_of(counts), numbers[places_of(first, counts)].astype(np.uint16), batches)

    def refine(self, sent: list[NDArray[Any]]) -> Wanted:
        """Flag finer parts of a batch by the sums of all shards, and return the rows needed."""
        node, column, cut = self._tasks.T
        totals = add_up(sent).reshape(-1, self._width)
        nodes, flags = self._nodes, self._flags
        wanted = flags.requests[node, column]
        counts = wanted["last"] - wanted["first"]
        offsets, firsts = bounds_of(counts * np.maximum(cut, 1)), bounds_of(counts * cut)
        total = int(offsets[-1])
        order = (cut == 0).argsort(kind="stable")
        tasks, finer = self._tasks[order], (firsts[order], totals)
        refined = RefinedParts(offsets[order], np.empty(total, np.uint16), np.empty(total, FLAGGED))
        failed = np.zeros(1, np.int64)
        self._share(tasks.shape[0], lambda queue, *own: refine_nodes(queue, tasks, nodes, *own, flags, finer, refined, failed))
        if failed[0]:
            raise RowsMismatch("shards summed other rows of a node in finer parts than before")
        self._flags = flags._replace(parts=refined.parts)
        return self._wanted(refined.numbers, flags.requests[node, column], np.array([0, node.shape[0]]))

    def scan(self, sent: list[Arrays]) -> None:
        """Search the rows of a batch for better splits; each shard has sent the number of values of each task, and the values with sums."""
        n_tasks = self._tasks.shape[0]
        if n_tasks:
            counts = np.array([one[0] for one in sent])
            begins = np.zeros((len(sent), n_tasks + 1), np.int64)
            counts.cumsum(axis=1, out=begins[:, 1:])
            begins[1:] += begins[:-1, -1].cumsum()[:, None]
            runs = self._runs(sent)
            merged: list[Any] = [np.empty_like(of) for of in runs]
            rows_sent = RowsSent(runs, begins, bounds_of(counts.sum(axis=0)), type(runs)(*merged))
            failed, tasks = np.zeros(1, np.int64), self._tasks[:, :2].copy()
            nodes, flags, splits = self._nodes, self._flags, self._splits
            self._share(n_tasks, lambda queue, *own: scan_rows(queue, tasks, nodes, *own, flags, rows_sent, splits, failed))
            if failed[0]:
                raise RowsMismatch("shards sent other rows of a node than they had summed")

    def _runs(self, sent: list[Arrays]) -> ValueSums | ValueElements:
        """Return the rows of all shards, concatenated."""
        values, *sums = (np.concatenate([one[i] for one in sent]) for i in range(1, len(sent[0])))
        return ValueElements(values, sums[0].reshape(-1, self._width_picked)) if self._is_of_many else ValueSums(values, *sums)

    def best(self) -> Scanned:
        """Return the best split of each node over this searcher's columns."""
        n, k = self._message.node.shape[0], self._ids.shape[0]
        best = empty_candidates(n, self._message.sums.shape[1])
        best_by_node(self._splits.candidates, np.repeat(np.arange(n), k), best)
        place = np.searchsorted(self._ids, best.records["column"]) if k else np.zeros(n, np.int64)
        above = self._splits.above[np.arange(n) * k + place] if k else np.full(n, np.nan)
        del self._flags, self._all_flagged
        return Scanned(Candidates(best.records, best.left), above)


def in_batches(requests: NDArray[Any], flagged: NDArray[Any], most: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Divide flagged parts into batches of at most ``most`` rows, or a single part.

    The share of a request (a node in a column) in a batch is a *chunk*: consecutive flagged parts, and the parts between them. It limits
    the memory for the rows that shards send, whatever is flagged.

    Parameters
    ----------
    requests : ndarray, shape (n,)
        ``flagged[first:last]`` are the parts of each request.
    flagged : ndarray
        The number ``part`` of each flagged part, and its number of rows ``n``.
    most : int

    Returns
    -------
    place : ndarray of int64, shape (n_chunks,)
        The request of each chunk; ascending.
    chunks : ndarray of CHUNK, shape (n_chunks,)
    batches : ndarray of int64, shape (n_batches + 1,)
        Batch k has the chunks ``batches[k]`` to ``batches[k + 1] - 1``.

    Examples
    --------
    >>> requests = np.array([(0, 2), (2, 2), (2, 5)], [("first", np.int64), ("last", np.int64)])
    >>> flagged = np.array([(1, 4), (3, 4), (2, 4), (5, 4), (6, 4)], [("part", np.int64), ("n", np.int64)])
    >>> place, chunks, batches = in_batches(requests, flagged, 10)
    >>> place.tolist(), chunks["first"].tolist(), chunks["last"].tolist(), batches.tolist()
    ([0, 1, 2, 2], [0, 2, 2, 3], [2, 2, 3, 5], [0, 3, 4])
    >>> chunks["n_rows"].tolist(), chunks["first_part"].tolist(), [int(part) for part in chunks["stop_part"] if part < ALL_PARTS]
    ([8, 0, 4, 8], [0, 0, 0, 5], [5])
    """
    counts = requests["last"] - requests["first"]
    begins, places = bounds_of(counts), places_of(requests["first"], counts)
    rows = bounds_of(flagged["n"][places])
    batch = rows[:-1] // most
    starts = np.append(True, batch[1:] != batch[:-1])
    batch, cuts = starts.cumsum() - 1, starts.nonzero()[0]
    of_cut = begins.searchsorted(cuts, side="right") - 1
    inside = begins[of_cut] < cuts
    place, first = (np.concatenate(both) for both in ((np.arange(counts.shape[0]), of_cut[inside]), (begins[:-1], cuts[inside])))
    order = np.lexsort((first, place))
    place, first = place[order], first[order]
    goes_on = place[1:] == place[:-1]
    stop = np.where(np.append(goes_on, False), np.append(first[1:], 0), begins[place + 1])
    chunks = np.empty(place.shape[0], CHUNK)
    shift = requests["first"][place] - begins[place]
    chunks["first"], chunks["last"], chunks["n_rows"] = first + shift, stop + shift, rows[stop] - rows[first]
    cut_at = flagged["part"][chunks["first"][1:][goes_on]]
    chunks["first_part"], chunks["stop_part"] = 0, ALL_PARTS
    chunks["first_part"][1:][goes_on] = chunks["stop_part"][:-1][goes_on] = cut_at
    of_chunk = batch[np.minimum(first, batch.shape[0] - 1)]
    return place, chunks, of_chunk.searchsorted(np.arange(batch[-1] + 2))
