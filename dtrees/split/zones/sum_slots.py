"""Slots for zone sums in subtrees, which children inherit while trees are grown (:mod:`dtrees.split.zones.sums` defines them).

A slot is a buffer for the zone sums of one node. Threads share the slots. A waiting node may own one; if slots run out it owns none, and
is summed when it is searched. For that, one slot is reserved for each thread: no thread takes a second one for the same node unless more
are free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, separate_kernel
from dtrees.split.compile.work_queue import acquire, load, release
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.table.sparse_zones import SparseZones
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones import sums as zone_sums
from dtrees.split.zones.by_category import SummedNode
from dtrees.split.zones.scan import scan, takes_long
from dtrees.split.zones.sums import NOTHING_KNOWN, SCALE, Sums

#: Indices in ``free``: of the lock, the number of free slots, and the first of them.
_LOCK, _COUNT, _FIRST = np.int64(0), np.int64(8), np.int64(16)


@by_reference
class SumSlots(NamedTuple):
    """The slots of the threads that grow a tree, and the state of one thread.

    Attributes
    ----------
    zone_map : ZoneMap or SparseZones
    sums : Sums
        At least one slot for each thread.
    free : ndarray of int64, shape (16 + n_slots,)
        The free slots, their number, and a lock.
    n_threads : int
        Number of threads for which a slot each is reserved.
    slot_of : ndarray of int64, shape (n,)
        The slot of each node on the thread's stack, -1 if it has none.
    ids : ndarray of int32, shape (n_columns,)
        Numbers of the columns.
    place_in_map : ndarray of int64, shape (n_columns,)
        Index of each column in the zone map, if it is there.
    bar : ndarray of float64, shape (1,)
        The best known score of the node that the thread searches.
    """

    zone_map: ZoneMap | SparseZones
    sums: Sums
    free: NDArray[np.int64]
    n_threads: int
    slot_of: NDArray[np.int64]
    ids: NDArray[np.int32]
    place_in_map: NDArray[np.int64]
    bar: NDArray[np.float64]


def make_sum_slots(
    zone_map: ZoneMap | SparseZones, sums: Sums, ids: NDArray[np.int32], n_threads: int, held: NDArray[np.int64]
) -> SumSlots:
    """Return the state that threads growing a tree share; each adds its own ``slot_of`` and ``bar``.

    All slots are free except those in ``held``; -1 is none.
    """
    n_slots, place_in_map = sums.slots.shape[0], np.full(ids.shape[0], -1)
    place_in_map[zone_map.which] = np.arange(zone_map.which.shape[0])
    free, is_free = np.zeros(int(_FIRST) + n_slots, np.int64), np.ones(n_slots, np.bool_)
    is_free[held[held >= 0]] = False
    free[_COUNT] = n_free = np.count_nonzero(is_free)
    free[_FIRST : _FIRST + n_free] = is_free.nonzero()[0]
    return SumSlots(zone_map, sums, free, n_threads, np.empty(0, np.int64), ids, place_in_map, np.empty(0))


def no_sum_slots(zone_map: ZoneMap | SparseZones) -> SumSlots:
    """Return the value for threads that search no node by zone sums, given the zone map of no columns."""
    numbers, none = np.empty((0, 0), np.int64), np.empty(0, np.int64)
    scales, shifts, places = np.empty(0, SCALE), np.empty((0, 0), np.uint64), np.empty(0, np.uint32)
    sums = Sums(numbers, none, scales, scales, numbers, shifts, 0, 0, 0, none, places, np.empty((0, 0), np.uint8), *NOTHING_KNOWN)
    return make_sum_slots(zone_map, sums, np.empty(0, np.int32), 0, none)


@inlined_kernel
def has_slots(sum_slots):
    """Return whether nodes are searched by zone sums."""
    return sum_slots.slot_of.shape[0] > 0


def for_thread(sum_slots: SumSlots, capacity: int) -> SumSlots:
    """Return a thread's copy of the slots, with a stack of ``capacity`` nodes."""
    # Each element is written before it is read: for a root when it is begun, for other nodes when they are pushed.
    slot_of = mapped(capacity, np.int64, large_pages=False)
    return sum_slots._replace(slot_of=slot_of, bar=np.full(1, -1.0))


@inner_kernel
def take(sum_slots, left):
    """Return a free slot, -1 if no more than ``left`` are free."""
    free = sum_slots.free
    slot = NONE()
    acquire(free, _LOCK)
    if free[_COUNT] > left:
        free[_COUNT] -= 1
        slot = free[_FIRST + free[_COUNT]]
    release(free, _LOCK)
    return slot


@inner_kernel
def give_back(sum_slots, slot):
    """Free a slot; -1 is none."""
    if slot >= 0:
        free = sum_slots.free
        acquire(free, _LOCK)
        free[_FIRST + free[_COUNT]] = slot
        free[_COUNT] += 1
        release(free, _LOCK)


@inner_kernel
def give_back_of(sum_slots, n):
    """Free the slot of the n-th node on the stack, if it has one."""
    give_back(sum_slots, sum_slots.slot_of[n])
    sum_slots.slot_of[n] = NONE()


@inner_kernel
def slot_for(sum_slots, n, partition, start, in_stop):
    """Return the slot of the n-th node on the stack; the node is summed if it has none."""
    if sum_slots.slot_of[n] < 0:
        slot = sum_slots.slot_of[n] = take(sum_slots, ZERO())
        zone_sums.begin_slot(sum_slots.sums, slot, in_stop - start)
        zone_sums.sum_rows(sum_slots.zone_map, partition, start, in_stop, sum_slots.sums, slot)
    return sum_slots.slot_of[n]


@inner_kernel
def keep(sum_slots, slot, n_threads):
    """Keep a slot that is no longer needed if more than ``n_threads`` others are free; otherwise free it, and return -1."""
    if slot < 0 or load(sum_slots.free, _COUNT) > n_threads:
        return slot
    give_back(sum_slots, slot)
    return NONE()


@inlined_kernel
def summed_by(sum_slots, partition, place, node_sums):
    """Return a node that has a slot; ``place`` is its start, its in_stop and the slot."""
    return SummedNode(sum_slots.zone_map, sum_slots.ids, sum_slots.sums, partition, place, node_sums)


@separate_kernel(returns=types.none)
def search_columns(summed, first, last, lead, columns, limits, bar, scratch, best):
    """Find the best split of a node in the columns ``first`` to ``last`` of the zone map, except ``lead``.

    The split is written to ``best`` if it is better. If ``first`` is -1, no column is searched.
    """
    if first < 0:
        return
    scan(columns, summed, (first, last, lead), limits, bar, scratch, best, ZERO())


@inner_kernel
def first_to_search(summed, lead, limits, bar, scratch):
    """Return the column of the best edge, -1 if searching it takes long, or if there is none."""
    if lead < 0 or takes_long(summed, lead, limits, bar, scratch):
        return NONE()
    return lead


@inner_kernel
def inherit(sum_slots, n, partition, todo, left_wanted, right_wanted, in_turn):
    """Pass the slot of the n-th node on the stack to its children, now at ``todo[n]`` (the right one) and ``todo[n + 1]``.

    Only those that are wanted, which will be searched by zones, get one. ``in_turn`` says that they are searched next. Otherwise a child
    must not wait with the last slot, which another node may need before.
    """
    slot = sum_slots.slot_of[n]
    sum_slots.slot_of[n + 1] = NONE()
    smaller, larger = n, n + 1
    if todo[n, 1] - todo[n, 0] > todo[n + 1, 1] - todo[n + 1, 0]:
        smaller, larger = n + 1, n
    larger_wanted, smaller_wanted = (left_wanted, right_wanted) if larger == n + 1 else (right_wanted, left_wanted)
    zone_map, sums, start, in_stop = sum_slots.zone_map, sum_slots.sums, todo[smaller, 0], todo[smaller, 1]
    # If both are wanted, the thread would continue without a slot while the larger one waits with this one, and might find none.
    spared = in_turn or load(sum_slots.free, _COUNT) >= sum_slots.n_threads
    if larger_wanted and not smaller_wanted and spared and zone_sums.are_few(zone_map, sums, slot, in_stop - start):
        zone_sums.include(zone_map, partition, start, in_stop, sums, slot, NONE())
        sum_slots.slot_of[smaller] = NONE()
        sum_slots.slot_of[larger] = slot
        return
    other = take(sum_slots, sum_slots.n_threads) if larger_wanted else NONE()
    if other < 0:
        give_back_of(sum_slots, n)
        return
    zone_sums.follow_slot(sums, other, slot, todo[larger, 1] - todo[larger, 0])
    zone_sums.sum_rows(zone_map, partition, start, in_stop, sums, other)
    zone_sums.fold_like(zone_map, sums, slot, other)
    zone_sums.subtract(sums, slot, other, ZERO(), zone_map.which.shape[0])
    sum_slots.slot_of[smaller] = other
    sum_slots.slot_of[larger] = slot
    if not smaller_wanted:
        give_back_of(sum_slots, smaller)
