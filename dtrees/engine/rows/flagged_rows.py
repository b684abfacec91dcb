"""A shard's rows in the parts that searchers have flagged: their sums by finer parts, and the rows themselves.

The requests of all searchers form one list of tasks for the kernels, as each searcher of many requests little.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.plan.node_limits import StoredSums
from dtrees.engine.protocol.exchange import Arrays
from dtrees.engine.rows.searcher import NumberBuffer, Wanted
from dtrees.engine.rows.zone_edges import Edges
from dtrees.engine.shard.passes import by_column, take_tasks
from dtrees.engine.shard.targets.places import as_columns, bounds_of, places_of
from dtrees.engine.threads import Threads
from dtrees.split.node.partition import RowPartition
from dtrees.split.policy import CODES_FOR_LISTS, LARGE_NODE_SHARE
from dtrees.split.search.scratch import Scratch, make_scratch
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import NO_LISTS, PartLists, list_parts
from dtrees.split.table.mmap_arrays import is_on_disk, mapped
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.over_shards.finer_parts import sum_finer
from dtrees.split.zones.over_shards.own_rows import pick_rows
from dtrees.split.zones.over_shards.records import PartTasks, ShardRows, StoredRows, ValueElements, ValueSums
from dtrees.split.zones.sums import note_places

#: The first place of each node, and the place after its last.
_Places = tuple[NDArray[np.int64], NDArray[np.int64]]
#: Small batches of picked rows are mostly at the ends of columns, and listed there; only the codes of 1 / 8 of such nodes are compared.
_COMPARED_SHARE = 8
_ONE_TARGET = np.empty((0, 0), np.int64)
_NO_CACHED_ROWS = StoredRows(np.empty(0, np.uint64), np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.int64))


class _Listed:
    """Rows of all columns listed by part, once that pays; all trees share the lists."""

    def __init__(self, part: NDArray[np.uint16], n_parts: NDArray[np.int64], threads: Threads) -> None:
        self._part, self._n_parts, self._threads = part, n_parts, threads
        self._n_compared = 0
        self._lists: PartLists | None = None
        self._noted: object = None

    def rows_moved(self) -> None:
        """Require that the places of rows are noted again before the next lookup."""
        self._noted = None

    def lists(self, tree: object, rows: RowPartition, sizes: NDArray[np.int64], share: int = 1) -> PartLists:
        """Return lists for looking up rows, with their places in a tree; empty lists if comparing codes is faster.

        ``sizes`` are the numbers of rows of nodes, of which one in ``share`` would have its codes compared.
        """
        n_rows, n_columns = self._part.shape
        self._n_compared += int(sizes.sum()) // share
        if not n_rows or is_on_disk(self._part) or int(sizes[sizes * LARGE_NODE_SHARE >= n_rows].sum()) < share * n_rows:
            return NO_LISTS
        if self._lists is None and self._n_compared >= CODES_FOR_LISTS * n_rows * n_columns:
            self._lists = list_parts(self._part, self._n_parts, self._threads.share)
        if self._lists is None:
            return NO_LISTS
        if self._noted is not tree:
            n_in = rows.rows.shape[0]
            if n_in < n_rows:
                self._lists.place_of[:] = 0xFFFFFFFF
            note_places(self._lists.place_of, rows.rows, 0, n_in)
            self._noted = tree
        return self._lists


class FlaggedRows:
    """A shard's answers to the searchers about its rows in flagged parts.

    Parameters
    ----------
    columns : Columns
        The columns of the shard's rows.
    edges : Edges
        The edges of the zones of all shards.
    zone_map : ZoneMap
        The zone map of all columns.
    width : int
        The number of values of an element of sums.
    threads : Threads
    stored : StoredSums
        Which sums are stored.

    Attributes
    ----------
    listed : _Listed
        The rows listed by part.
    """

    def __init__(self, columns: Columns, edges: Edges, zone_map: ZoneMap, width: int, threads: Threads, stored: StoredSums) -> None:
        self._stored = stored
        self._columns, self._edges, self._width, self._threads = columns, edges, width, threads
        self._shift = zone_map.shift
        self.listed = _Listed(zone_map.part, zone_map.n_zones << zone_map.fold, threads)
        self._scratch: list[Scratch] = []
        self._begin()

    def _begin(self) -> None:
        self._cached_rows = _NO_CACHED_ROWS
        # No large pages, as the buffers have space for the flagged rows of all shards, and this one has only a share of them.
        self._keys, self._finer, self._sums = NumberBuffer(False), NumberBuffer(False), NumberBuffer()

    def for_another_tree(self) -> Self:
        """Return a copy for a tree that grows side by side with this one; scratch space is shared."""
        other = copy.copy(self)
        other._begin()
        return other

    def use_columns(self, zone_map: ZoneMap, pool: NDArray[np.int32]) -> None:
        """Use the columns of a new tree, and their zone map."""
        self._zone_map, self._pool = zone_map, pool

    def sum_finer(self, wanted: Sequence[Wanted], rows: RowPartition, places: _Places, size_shift: int) -> dict[int, NDArray[np.int64]]:
        """Return the sums of the finer parts that searchers request; :meth:`pick` will be asked for the rows in some of them.

        Parameters
        ----------
        wanted : sequence of Wanted
            The requests of each searcher.
        rows : RowPartition
        places : tuple of ndarray of int64, shape (n_nodes,)
            The first place of each node, and the place after its last.
        size_shift : int
            The number of bits by which sizes are shifted before they are packed.
        """
        self._make_scratch()
        whole, ends = joined(wanted)
        node, place, shift, n_rows, cut = whole.tasks.T
        start, stop, n_parts = places[0][node], places[1][node], whole.begins[1:] - whole.begins[:-1]
        offsets, firsts = bounds_of(np.minimum(n_rows, stop - start) * (cut > 0)), bounds_of(n_parts * cut)
        n, n_finer, counts = int(offsets[-1]), int(firsts[-1]), np.empty(node.shape[0], np.int64)
        keys, finer = self._keys.take(n).view(np.uint64), self._finer.take(-(-n // 4)).view(np.uint16)
        sums, parts = self._sums.take(n_finer * self._width).reshape(n_finer, self._width), whole.parts.astype(np.int64)
        sums[:] = 0
        tasks, ids = as_columns(start, stop, place, shift, cut), self._pool[place]
        ranges = self._edges.ranges(ids.repeat(n_parts), parts, shift.repeat(n_parts), cut.repeat(n_parts))
        own_rows, scratch = self._of_shard(rows, _ONE_TARGET, (stop - start)[cut > 0]), self._scratch

        def add(some: Any) -> None:
            *of_tasks, own_ranges = take_tasks(some, tasks, whole.begins, parts, ranges)
            own, own_firsts, cached = PartTasks(*of_tasks), firsts[some], StoredRows(keys, finer, offsets[some], counts[some])
            self._threads.share(
                own.tasks.shape[0],
                lambda queue, thread: sum_finer(queue, own, own_ranges, own_rows, scratch[thread], size_shift, own_firsts, cached, sums),
            )
            counts[some] = cached.counts

        for some in by_column(self._columns.codes, ids, self._columns.words):
            add(some)
        self._cached_rows = StoredRows(keys, finer, offsets, counts)
        bounds = firsts[ends].tolist()
        return {searcher: sums[first:last].reshape(-1) for searcher, (first, last) in enumerate(pairwise(bounds))}

    def _of_shard(self, rows: RowPartition, targets: NDArray[np.int64], sizes: NDArray[np.int64], share: int = 1) -> ShardRows:
        """Return rows as kernels take them; ``sizes`` and ``share`` are as for :meth:`_Listed.lists`."""
        lists = NO_LISTS if self._stored.n_numbers else self.listed.lists(self, rows, sizes, share)
        return ShardRows(self._columns, self._zone_map, lists, rows, targets, self._stored.n_classes)

    def pick(self, wanted: Sequence[Wanted], rows: RowPartition, places: _Places, targets: NDArray[np.int64]) -> dict[int, Arrays]:
        """Return the rows that searchers request: the number of values of each task, and the values with the sums of their rows.

        ``targets`` has the summands of all rows for multi-output targets; shape (0, 0) for one target.
        """
        self._make_scratch()
        cached, self._cached_rows = self._cached_rows, _NO_CACHED_ROWS
        whole, ends = joined(wanted)
        node, column, shift, n_rows, cut = whole.tasks.T
        start, stop = places[0][node], places[1][node]
        offsets = bounds_of(np.minimum(n_rows, stop - start))
        picked, counts = self._allocate(int(offsets[-1]), rows.h.shape[0] > 0), np.zeros(node.shape[0], np.int64)
        tasks, parts = as_columns(start, stop, column, shift, cut), whole.parts.astype(np.int64)
        own_rows, scratch = self._of_shard(rows, targets, (stop - start)[cut == 0], _COMPARED_SHARE), self._scratch

        def pick(some: Any) -> None:
            own, own_offsets, own_counts = PartTasks(*take_tasks(some, tasks, whole.begins, parts)), offsets[some], counts[some]
            own_cached = cached._replace(offsets=cached.offsets[some], counts=cached.counts[some]) if cached.offsets.shape[0] else cached
            self._threads.share(
                own.tasks.shape[0],
                lambda queue, thread: pick_rows(queue, own, own_rows, scratch[thread], own_cached, own_offsets, picked, own_counts),
            )
            counts[some] = own_counts

        for some in by_column(self._columns.codes, self._pool[column], self._columns.words):
            pick(some)
        sent: list[NDArray[Any]] = list(picked)
        if int(counts.sum()) < int(offsets[-1]):
            at = places_of(offsets[:-1], counts)
            sent = [of[at] if of.shape[0] else of for of in sent]
        bounds = bounds_of(counts)[ends].tolist()
        return {
            searcher: (counts[i:j], *(of[first:last].reshape(-1) for of in sent))
            for searcher, ((i, j), (first, last)) in enumerate(zip(pairwise(ends.tolist()), pairwise(bounds), strict=True))
        }

    def _allocate(self, n: int, weighted: bool) -> ValueSums | ValueElements:
        """Return buffers for the sums of ``n`` values."""
        if self._stored.n_numbers:
            width = self._stored.width_picked(weighted)
            elements = mapped(n * width, np.int64, large_pages=False).reshape(n, width)
            return ValueElements(mapped(n, np.float64, large_pages=False), elements)
        kinds = ((n, np.float64), (n, np.int64), (n if weighted else 0, np.int64), (n, np.uint32))
        # No large pages, as these buffers also have space for the rows of all shards.
        sums: list[Any] = [mapped(size, kind, large_pages=False) for size, kind in kinds]
        return ValueSums(*sums)

    def _make_scratch(self) -> None:
        n_distinct = np.diff(self._columns.offsets)
        while len(self._scratch) < self._threads.n_threads:
            scratch = make_scratch(self._columns.n_rows, int(n_distinct.max(initial=0)), self._stored.n_numbers)
            n_marks = int((n_distinct >> self._shift).max(initial=0)) // 64 + 2
            self._scratch.append(scratch if scratch.marks.shape[0] >= n_marks else scratch._replace(marks=np.zeros(n_marks, np.uint64)))


def joined(wanted: Sequence[Wanted]) -> tuple[Wanted, NDArray[np.int64]]:
    """Concatenate the requests of several searchers; return them, and the bounds of the tasks of each."""
    n_parts = bounds_of(np.array([one.parts.shape[0] for one in wanted]))
    begins = np.concatenate([*(one.begins[:-1] + first for one, first in zip(wanted, n_parts[:-1], strict=True)), n_parts[-1:]])
    ends = bounds_of(np.array([one.tasks.shape[0] for one in wanted]))
    whole = Wanted(np.concatenate([one.tasks for one in wanted]), begins, np.concatenate([one.parts for one in wanted]), ends[[0, -1]])
    return whole, ends
