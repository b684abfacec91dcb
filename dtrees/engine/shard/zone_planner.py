"""Which nodes of a level sum their zones, and which inherit them; see :mod:`dtrees.split.grow.level`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads
from dtrees.split.grow.level import ADD, BAR, SCAN, SUBTRACT, SUM
from dtrees.split.policy import (
    BOUNDS_ROWS,
    COARSER_FOLD,
    FINE_SLOTS_PER_THREAD,
    FLAGGED_SHARE,
    FOLD,
    JOINED_SLOTS,
    KEPT_SHARE,
    LEVEL_CHUNK_ROWS,
    LEVEL_THREAD_CELLS,
    MUCH_FLAGGED_SHARE,
    ROWS_PER_PART,
    SLOTS_BYTES_PER_ROW,
    SLOTS_MIN_BYTES,
    SLOTS_PER_THREAD,
)
from dtrees.split.table.zone_map import ZoneMap, not_joined
from dtrees.split.zones.sum_slots import SumSlots, make_sum_slots
from dtrees.split.zones.sums import (
    SCALE,
    Sums,
    begin_slot,
    chunk_rows,
    fold,
    follow_slot,
    grain_for,
    lay_out_slots,
    size_shift,
)

_NO_PLACES = np.empty(0, np.uint32)

Operation = tuple[int, int, int, int]


class Sizes(NamedTuple):
    """How large the rows of a tree are, about a centre: at most so much in all, and each for its weight."""

    total: int
    centre: int = 0
    slope: float = math.inf


class ZoneSums:
    """The slots of one shard, and the nodes they belong to.

    Parameters
    ----------
    zone_map : ZoneMap
        Of all columns of the shard.
    threads : Threads
    fine_rows : int, optional
        Nodes of at least so many rows are summed by the smallest parts of zones, those of half as many by parts twice as large, and so on.
    """

    def __init__(self, zone_map: ZoneMap, threads: Threads, fine_rows: int | None = None) -> None:
        self._all = zone_map
        self._fine_rows = ROWS_PER_PART * (self._all.firsts.shape[1] - 1) if fine_rows is None else fine_rows
        self._place_of = np.empty(self._all.lists.shape[1], np.uint32)
        self._threads = threads
        self.zone_map = self._all
        self._sum_slots: SumSlots | None = None
        self._places: NDArray[np.int64] | None = None
        self._width, self._grain = 0, 0
        self._starts, self._shifts = np.zeros((1, 1), np.int64), np.zeros((1, 0), np.uint64)
        self._slots = np.empty((0, 0), np.int64)
        self._grains = np.empty(0, np.int64)
        self._scales = np.zeros(0, SCALE)
        self._sides = np.empty((0, 0), np.uint8)
        self._first_scale = np.zeros(1, SCALE)
        self._flagged = np.zeros(2, np.int64)
        n_rows, (k, room) = 0 if self._place_of.shape[0] else zone_map.part.shape[0], zone_map.firsts.shape
        self._known = np.full((2, k if n_rows else 0, room + 1), -1)
        self._kept = np.empty((k, n_rows // KEPT_SHARE), np.uint64)
        self._most_grain = FOLD - 1
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []

    def start(self, places: NDArray[np.int64], n_in: int, sizes: Sizes, weighted: bool) -> None:
        """Forget all nodes: a new tree, of the columns at ``places``, with ``n_in`` rows of these sizes."""
        width = 3 if weighted else 2
        if places is not self._places or width != self._width:
            self._places, self._width = places, width
            self._known[1, :, -1] = -1
            self.zone_map = self._all if places.shape[0] == self._all.which.shape[0] else self._all.take(places)
            self._starts, self._shifts = lay_out_slots(self.zone_map, width)
            if self._room(self._slot_size(0)) < JOINED_SLOTS:
                self.zone_map = self.zone_map._replace(joined=not_joined(self.zone_map.part.shape[0]))
        self._slot_of = {}
        listed = self._place_of.shape[0] > 0
        if listed:
            self._most_grain = FOLD - COARSER_FOLD  # what is flagged is listed: to scan it costs less than to sum and bound smaller parts
        elif self._flagged[1] > 0:
            flagged, n_rows = self._flagged.tolist()
            self._most_grain = (
                FOLD if flagged * MUCH_FLAGGED_SHARE > n_rows else FOLD - COARSER_FOLD if flagged * FLAGGED_SHARE > n_rows else 0
            )
        self._flagged[:] = 0
        self._known[0, :, -1] = -1
        # Slots get room for the smallest parts when these are first wanted: a single tree, or one of much signal, is summed without.
        finest = self._most_grain if listed else max(FOLD - 1, self._most_grain, self._grain)
        grain = grain_for(finest, self._fine_rows >> (FOLD - finest), n_in)
        while grain > 0 and self._room(self._slot_size(grain)) < FINE_SLOTS_PER_THREAD * self._threads.n_threads:
            grain -= 1
        self._shape_slots(grain)
        self._first_scale[0] = int(size_shift(sizes.total)), sizes.centre, sizes.slope

    def _slot_size(self, grain: int) -> int:
        return int(self._starts[grain, -1]) + self._width * self.zone_map.joined.n_elements

    def _shape_slots(self, grain: int) -> None:
        """Have slots with room for a grain."""
        size = self._slot_size(grain)
        self._grain = grain
        if size != self._slots.shape[1]:
            self._slots = np.empty((0, size), np.int64)
            self._allocate(0)
        self._max_slots = self._room(size)
        self._free = list(range(self._slots.shape[0]))

    def _room(self, size: int) -> int:
        """Return for how many slots of so many numbers there is room."""
        return max(SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW * self._all.part.shape[0]) // max(1, size * 8)

    def _sums(self) -> Sums:
        grain = self._grain
        most_grain = min(grain, self._most_grain)
        fine_rows = self._fine_rows >> (FOLD - (most_grain or grain))
        return Sums(
            self._slots, self._grains, self._scales, self._first_scale, self._starts, self._shifts, self._width, most_grain, fine_rows,
            self._flagged, _NO_PLACES, self._sides, self._known, self._kept,
        )  # fmt: skip

    def _fold_all(self) -> None:
        """Fold the sums of all nodes, for there to be more slots."""
        sums = self._sums()
        for slot in self._slot_of.values():
            if self._grains[slot]:
                fold(self.zone_map, sums, slot, 0)
        slots, scales, size = self._slots, self._scales, self._slot_size(0)
        live = list(self._slot_of.values())
        self._shape_slots(0)
        self._allocate(max(4, 2 * len(live)))
        self._slots[: len(live)], self._scales[: len(live)] = slots[live, :size], scales[live]
        self._slot_of = dict(zip(self._slot_of, range(len(live)), strict=True))
        self._free = list(range(len(live), self._slots.shape[0]))

    def _take(self) -> int:
        if not self._free:
            n, slots, grains, scales = self._slots.shape[0], self._slots, self._grains, self._scales
            self._allocate(max(4, 2 * n))
            self._slots[:n], self._grains[:n], self._scales[:n] = slots, grains, scales
            self._free = list(range(n, self._slots.shape[0]))
        return self._free.pop()

    def _allocate(self, n_slots: int) -> None:
        self._slots = np.empty((n_slots, self._slots.shape[1]), np.int64)
        self._grains, self._scales = np.zeros(n_slots, np.int64), np.zeros(n_slots, SCALE)
        self._sides = np.empty((n_slots, self.zone_map.most_codes), np.uint8)

    def sum_slots(self, n_threads: int, n_columns: int) -> SumSlots:
        """Return slots for threads that grow subtrees of a table of ``n_columns`` columns, if they are usable at all.

        To be used when no level needs slots any more.
        """
        wanted = FINE_SLOTS_PER_THREAD if self._grain else SLOTS_PER_THREAD
        n_slots = max(n_threads, min(wanted * n_threads, self._max_slots))
        if self._slots.shape[0] < n_slots:
            self._allocate(n_slots)
        sum_slots = self._sum_slots
        if (
            sum_slots is None
            or sum_slots.zone_map is not self.zone_map
            or sum_slots.sums.slots.base is not self._slots
            or sum_slots.n_threads != n_threads
        ):
            sums = self._sums()
            sum_slots = self._sum_slots = make_sum_slots(self.zone_map, sums._replace(slots=self._slots[:n_slots]), n_columns, n_threads)
        return sum_slots._replace(
            sums=self._sums()._replace(slots=sum_slots.sums.slots, place_of=self._place_of), free=sum_slots.free.copy()
        )

    def plan(
        self,
        parents: NDArray[np.int64],
        left: NDArray[np.int64],
        search: NDArray[np.int64],
        start: NDArray[np.int64],
        in_stop: NDArray[np.int64],
    ) -> Level | None:
        """Say how nodes are to be searched, and give them slots.

        Parameters
        ----------
        parents, left : ndarray of int64, shape (n,)
            Nodes just split, and their left children; the right ones have the next number.
        search : ndarray of int64
            The nodes to be searched.
        start, in_stop : ndarray of int64
            Places of all nodes.

        Returns
        -------
        Level or None
            None if there is no room.
        """
        n_columns = self.zone_map.which.shape[0]
        costs = (in_stop[search] - start[search] + BOUNDS_ROWS).tolist()
        n_threads = min(self._threads.n_threads, 1 + sum(costs) * n_columns // LEVEL_THREAD_CELLS)
        n_slots = len(self._slot_of) - parents.shape[0] + 2 * search.shape[0] + 2 * n_threads
        if self._grain and n_slots > self._max_slots:
            self._fold_all()
        inherited = {}
        for parent, child in zip(parents.tolist(), left.tolist(), strict=True):
            slot = self._slot_of.pop(parent, None)
            if slot is not None:
                inherited[child] = slot
        if len(self._slot_of) + 2 * search.shape[0] + 2 * n_threads > self._max_slots:
            self._free.extend(inherited.values())
            return None
        wanted = {node: i for i, node in enumerate(search.tolist())}
        summed: list[tuple[int, int]] = []
        settle: list[list[Operation]] = []
        temporary: list[int] = []
        for child, slot in inherited.items():
            n_left, n_right = (int(in_stop[node] - start[node]) for node in (child, child + 1))
            smaller, larger = (child, child + 1) if n_left <= n_right else (child + 1, child)
            if larger in wanted:
                other = self._take()
                follow_slot.py_func(self._sums(), other, slot, max(n_left, n_right))
                summed.append((smaller, other))
                settle.append([(SUBTRACT, slot, other, 0), (BAR, wanted.pop(larger), 0, 0)])
                self._slot_of[larger] = slot
            elif smaller in wanted:
                other = slot
                follow_slot.py_func(self._sums(), slot, slot, min(n_left, n_right))
                summed.append((smaller, slot))
                settle.append([])
            else:
                self._free.append(slot)
                continue
            if smaller in wanted:
                settle[-1].append((BAR, wanted.pop(smaller), 0, 0))
                self._slot_of[smaller] = other
            else:
                temporary.append(other)
        for node, i in wanted.items():
            self._slot_of[node] = slot = self._take()
            begin_slot.py_func(self._sums(), slot, int(in_stop[node] - start[node]))
            summed.append((node, slot))
            settle.append([(BAR, i, 0, 0)])
        sizes = [int(in_stop[node] - start[node]) for node, _ in summed]
        chunk = max(LEVEL_CHUNK_ROWS, sum(sizes) // (2 * n_threads) + 1) if n_threads > 1 else self._all.part.shape[0]
        sums: list[list[Operation]] = []
        for (node, slot), size, after in zip(summed, sizes, settle, strict=True):
            n_chunks = -(-size // max(chunk, chunk_rows.py_func(self._sums(), int(self._grains[slot]))))
            bounds = [int(start[node]) + size * k // n_chunks for k in range(n_chunks + 1)]
            slots = [slot] + [self._take() for _ in range(n_chunks - 1)]
            self._grains[slots], self._scales[slots] = self._grains[slot], self._scales[slot]
            sums.extend([(SUM, bounds[k], bounds[k + 1], slots[k])] for k in range(n_chunks))
            after[:0] = [(ADD, slot, other, 0) for other in slots[1:]]
            temporary.extend(slots[1:])
        self._free.extend(temporary)
        share = sum(costs) / (6 * n_threads) if n_threads > 1 else math.inf
        scans: list[list[Operation]] = []
        filled = math.inf
        for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
            n_chunks = min(-(-n_columns // 2), 1 + int(costs[i] / share))
            for k in range(n_chunks):
                if filled >= share:
                    scans.append([])
                    filled = 0.0
                scans[-1].append((SCAN, i, n_columns * k // n_chunks, n_columns * (k + 1) // n_chunks))
                filled += costs[i] / n_chunks
        places = [(int(start[node]), int(in_stop[node]), self._slot_of[node]) for node in search.tolist()]
        nodes = np.array(places, np.int64).reshape(-1, 3)
        return Level(self._sums(), nodes, [sums, settle, scans], n_threads)


class Level:
    """What is to be done on a level.

    Parameters
    ----------
    sums : Sums
    nodes : ndarray of int64, shape (n, 3)
        See :func:`~dtrees.split.grow.level.search_level`.
    phases : list of list of list of Operation
        Tasks of operations; those of a phase may be done in any order, when the phases before are done.
    n_threads : int
        How many threads that is worth.

    Attributes
    ----------
    operations : ndarray of int64, shape (n, 4)
    tasks : ndarray of int64, shape (n_tasks, 3)
        See there too.
    """

    def __init__(self, sums: Sums, nodes: NDArray[np.int64], phases: list[list[list[Operation]]], n_threads: int) -> None:
        self.sums, self.nodes, self.n_threads = sums, nodes, n_threads
        operations: list[Operation] = []
        tasks: list[tuple[int, int, int]] = []
        for phase in phases:
            before = len(tasks)
            for task in phase:
                tasks.append((len(operations), len(operations) + len(task), before))
                operations.extend(task)
        self.operations, self.tasks = np.array(operations, np.int64), np.array(tasks, np.int64)
