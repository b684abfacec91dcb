"""Memory for the zone sums of nodes on a shard: the number of slots, their fineness and scale (:mod:`dtrees.split.zones.sums`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.threads import Threads
from dtrees.split.policy import (
    COARSER_FOLD,
    FINE_SLOTS_PER_THREAD,
    FLAGGED_SHARE,
    FOLD,
    JOINED_SLOTS,
    KEPT_SHARE,
    MUCH_FLAGGED_SHARE,
    ROWS_PER_PART,
    SLOTS_BYTES_PER_CELL,
    SLOTS_BYTES_PER_ROW,
    SLOTS_MIN_BYTES,
    SLOTS_PER_THREAD,
)
from dtrees.split.table.sparse_zones import SparseZones
from dtrees.split.table.zone_map import ZoneMap, not_joined
from dtrees.split.zones.sum_slots import SumSlots, make_sum_slots
from dtrees.split.zones.sums import NOTHING_KNOWN, SCALE, Sums, grain_for, lay_out_slots, size_shift

_NO_PLACES, _NONE = np.empty(0, np.uint32), np.empty(0, np.int64)


class Sizes(NamedTuple):
    """Bounds on the distances of rows from a center: their total, and the largest for a unit of weight."""

    total: int
    centre: int = 0
    slope: float = math.inf


def _no_sums(known: NDArray[np.int64], kept: NDArray[np.uint64]) -> Sums:
    """Return sums without slots."""
    numbers, scales, shifts, sides = _NONE.reshape(0, 0), np.zeros(1, SCALE), np.zeros((1, 0), np.uint64), np.empty((0, 0), np.uint8)
    return Sums(numbers, _NONE, scales[:0], scales, numbers, shifts, 0, 0, 0, np.zeros(2, np.int64), _NO_PLACES, sides, known, kept)


def _with_slots(sums: Sums, n_slots: int, most_codes: int = 0) -> Sums:
    """Return sums with at least ``n_slots`` slots, whose contents may be lost."""
    if sums.slots.shape[0] >= n_slots:
        return sums
    slots, sides = np.empty((n_slots, sums.slots.shape[1]), np.int64), np.empty((n_slots, most_codes), np.uint8)
    return sums._replace(slots=slots, sides=sides, grains=np.zeros(n_slots, np.int64), scales=np.zeros(n_slots, SCALE))


class SparseSums:
    """The slots of a shard for the zone sums of a sparse table; methods are those of :class:`ZoneSums`."""

    def __init__(self, zones: SparseZones) -> None:
        self._zones = zones
        self._sums = _no_sums(*NOTHING_KNOWN)._replace(shifts=np.zeros((1, zones.which.shape[0]), np.uint64), fine_rows=2**62)

    def start(self, places: NDArray[np.int64], n_in: int, sizes: Sizes, weighted: bool) -> None:
        """Begin a new tree; discard all sums."""
        width = 3 if weighted else 2
        if width != self._sums.width:
            starts = width * self._zones.begins[np.newaxis]
            self._sums = self._sums._replace(slots=np.empty((0, int(starts[0, -1])), np.int64), starts=starts, width=width)
        self._sums.first_scale[0] = int(size_shift(sizes.total)), 0, sizes.slope

    def sum_slots(self, n_threads: int, ids: NDArray[np.int32], held: NDArray[np.int64] | None = None, most_splits: int = 0) -> SumSlots:
        """Return slots for threads that grow subtrees."""
        n_bytes = max(SLOTS_MIN_BYTES, SLOTS_BYTES_PER_CELL * self._zones.elements.shape[0])
        most = max(n_threads, n_bytes // max(1, 8 * self._sums.slots.shape[1]))
        self._sums = _with_slots(self._sums, min(max(SLOTS_PER_THREAD * n_threads, most_splits + n_threads), most))
        return make_sum_slots(self._zones, self._sums, ids, n_threads, _NONE)


class ZoneSums:
    """The slots of a shard for zone sums.

    Parameters
    ----------
    zone_map : ZoneMap
        The zone map of all columns of the shard.
    threads : Threads
    fine_rows : int, optional
        Nodes of at least this many rows are summed by the smallest parts of zones, those of half as many by parts of twice the size, and so
        on.
    """

    def __init__(self, zone_map: ZoneMap, threads: Threads, fine_rows: int | None = None) -> None:
        self._all = self.zone_map = zone_map
        self._threads, self._places, self._grain, self._most_grain = threads, _NONE, 0, FOLD - 1
        self._fine_rows = ROWS_PER_PART * (zone_map.firsts.shape[1] - 1) if fine_rows is None else fine_rows
        self._place_of = np.empty(zone_map.lists.shape[1], np.uint32)
        n_rows, (k, capacity) = 0 if self._place_of.shape[0] else zone_map.part.shape[0], zone_map.firsts.shape
        known, stored_rows = np.full((2, k if n_rows else 0, capacity + 1), -1), np.empty((k, n_rows // KEPT_SHARE), np.uint64)
        self._sums = _no_sums(known, stored_rows)

    def start(self, places: NDArray[np.int64], n_in: int, sizes: Sizes, weighted: bool) -> None:
        """Begin a new tree, with the columns at ``places`` and ``n_in`` rows of these sizes; discard all sums."""
        width, sums = 3 if weighted else 2, self._sums
        if places is not self._places or width != sums.width:
            self._places = places
            sums.known[1, :, -1] = -1
            self.zone_map = self._all if places.shape[0] == self._all.which.shape[0] else self._all.take(places)
            starts, shifts = lay_out_slots(self.zone_map, width)
            self._sums = sums = sums._replace(starts=starts, shifts=shifts, width=width)
            if self._capacity(self._slot_size(0)) < JOINED_SLOTS:
                self.zone_map = self.zone_map._replace(joined=not_joined(self.zone_map.part.shape[0]))
        listed, (flagged, n_rows) = self._place_of.shape[0] > 0, sums.flagged.tolist()
        if listed:
            self._most_grain = FOLD - COARSER_FOLD  # flagged rows are listed: scanning them is cheaper than smaller parts
        elif n_rows > 0:
            self._most_grain = (
                FOLD if flagged * MUCH_FLAGGED_SHARE > n_rows else FOLD - COARSER_FOLD if flagged * FLAGGED_SHARE > n_rows else 0
            )
        sums.flagged[:] = 0
        sums.known[0, :, -1] = -1
        # Slots are enlarged for the smallest parts on first use; a single tree, or one with a strong signal, does not use them.
        finest = self._most_grain if listed else max(FOLD - 1, self._most_grain, self._grain)
        grain = grain_for(finest, self._fine_rows >> (FOLD - finest), n_in)
        while grain > 0 and self._capacity(self._slot_size(grain)) < FINE_SLOTS_PER_THREAD * self._threads.n_threads:
            grain -= 1
        size, most_grain = self._slot_size(grain), min(grain, self._most_grain)
        self._grain, self._max_slots = grain, self._capacity(size)
        slots = sums.slots if size == sums.slots.shape[1] else np.empty((0, size), np.int64)
        fine_rows = self._fine_rows >> (FOLD - (most_grain or grain))
        self._sums = sums._replace(slots=slots, most_grain=most_grain, fine_rows=fine_rows)
        sums.first_scale[0] = int(size_shift(sizes.total)), sizes.centre, sizes.slope

    def _slot_size(self, grain: int) -> int:
        return int(self._sums.starts[grain, -1]) + self._sums.width * self.zone_map.joined.n_elements

    def _capacity(self, size: int) -> int:
        """Return the number of slots of ``size`` numbers for which there is capacity."""
        return max(SLOTS_MIN_BYTES, SLOTS_BYTES_PER_ROW * self._all.part.shape[0]) // max(1, size * 8)

    def sum_slots(self, n_threads: int, ids: NDArray[np.int32], held: NDArray[np.int64] | None = None, most_splits: int = 0) -> SumSlots:
        """Return slots for threads that grow subtrees of a table with these column numbers, if zone sums can be used.

        If the number of splits is limited, every node may wait with a slot until it is split. For the search of a level, all available
        slots are used, at least one more than threads, for a shared node; ``held`` has the slots that nodes already have.
        """
        wanted = FINE_SLOTS_PER_THREAD if self._grain else SLOTS_PER_THREAD
        n_slots = max(n_threads, min(max(wanted * n_threads, most_splits + n_threads), self._max_slots))
        if held is not None:
            n_slots = max(self._threads.n_threads + 1, self._max_slots)  # for every level, whatever the number of threads that search it
        self._sums = sums = _with_slots(self._sums, n_slots, self.zone_map.most_codes)
        # The places of the rows of a level are not stored.
        sums = sums._replace(slots=sums.slots[:n_slots], place_of=self._place_of if held is None else _NO_PLACES)
        return make_sum_slots(self.zone_map, sums, ids, n_threads, _NONE if held is None else held)
