"""The zone sums of one node, and their edges, by several threads: steps of :mod:`dtrees.split.grow.parallel_subtree`.

The rows to be summed are divided into more chunks than there are threads, which are never equally fast. Each thread adds its chunks to a
slot that no other thread uses, which serves the next chunk afterwards. Then the slots are added, some columns in each chunk, and
subtracted from the parent's; and the best edge is found, again some columns in each chunk. If there are too few rows for adding slots to
pay, a chunk is all rows in some columns.
"""

from __future__ import annotations

from dtrees.split.compile.kernels import NONE, ZERO, lean_kernel
from dtrees.split.compile.work_queue import acquire, release
from dtrees.split.grow.by_criterion import ready_shared
from dtrees.split.grow.work_pool import LEAD, LOCK, SETTLE, SUM, add_chunks, bounds_of, n_chunks, partition_of, rows_of
from dtrees.split.policy import CHUNK_NUMBERS, CHUNKS, TAKEN_ROWS
from dtrees.split.zones import sums as zone_sums
from dtrees.split.zones.sum_slots import give_back, take


@lean_kernel
def start_sum(sum_slots, work_pool, i, node):
    """Create the chunks of a step of node ``i``, the sum of ``node``; return whether there was a slot for it."""
    places, sums, n_rows = work_pool.places[i], sum_slots.sums, rows_of(work_pool, node)
    wanted = n_chunks(work_pool, n_rows)
    most = min(work_pool.n_threads, CHUNKS)
    n = ZERO()
    while n < most:
        slot = take(sum_slots, work_pool.n_threads)
        if slot < 0:
            break
        if node == i:
            zone_sums.begin_slot(sums, slot, n_rows)
        else:
            zone_sums.follow_slot(sums, slot, places.slot, rows_of(work_pool, i) - n_rows)
        if min(wanted, n_rows // zone_sums.chunk_rows(sum_slots.zone_map, sums, slot)) < most:
            most = 1
        work_pool.counts[i, n, 0], work_pool.counts[i, n, 1] = slot, 0
        n += 1
    if n == 0:
        return False
    if node != i:
        zone_sums.fold_like(sum_slots.zone_map, sums, places.slot, work_pool.counts[i, 0, 0])
    places.summed, places.n_slots, places.idle_slots = node, n, n
    add_chunks(
        work_pool, SUM, i, _chunks_of_columns(sum_slots, work_pool) if n == 1 else wanted if n == min(work_pool.n_threads, CHUNKS) else n
    )
    return True


@lean_kernel
def start_taking(sum_slots, work_pool, i, node):
    """Create the chunks of a step of node ``i``: subtract the rows of ``node``, a child, from its slot for the other child."""
    work_pool.places[i].summed, work_pool.places[i].n_slots = node, 0
    add_chunks(work_pool, SUM, i, min(_chunks_of_columns(sum_slots, work_pool), 1 + rows_of(work_pool, node) // TAKEN_ROWS))


@lean_kernel
def _chunks_of_columns(sum_slots, work_pool):
    return max(1, min(min(CHUNKS, work_pool.n_threads), zone_sums.n_parts(sum_slots.zone_map)))


@lean_kernel
def is_settled(work_pool, i):
    """Return whether a sum of node ``i`` was made column by column: there are no slots to add, nor to subtract from the parent's."""
    return work_pool.places[i].n_slots < 2


@lean_kernel
def _sum_columns(sum_slots, work_pool, task, i, chunk):
    """Sum all rows in the columns of a chunk, and subtract the sums, or the rows themselves, from the parent's."""
    zone_map, sums, places, node = sum_slots.zone_map, sum_slots.sums, work_pool.places[i], work_pool.places[i].summed
    first, last = bounds_of(ZERO(), zone_map.which.shape[0], chunk, places.n_chunks)
    partition, start, in_stop = partition_of(work_pool, task, node), work_pool.places[node].start, work_pool.places[node].in_stop
    if places.n_slots == 0:
        zone_sums.include_columns(zone_map, partition, start, in_stop, first, last, sums, places.slot, NONE())
        return
    slot = work_pool.counts[i, 0, 0]
    zone_sums.numbers_of(sums, slot, first, last)[:] = 0
    zone_sums.include_columns(zone_map, partition, start, in_stop, first, last, sums, slot, ZERO() + 1)
    if node != i:
        zone_sums.subtract(sums, places.slot, slot, first, last)


@lean_kernel
def sum_chunk(sum_slots, work_pool, task, i, chunk):
    """Add the rows of a chunk to a slot that no other thread uses."""
    if is_settled(work_pool, i):
        _sum_columns(sum_slots, work_pool, task, i, chunk)
        return
    places, node = work_pool.places[i], work_pool.places[i].summed
    acquire(work_pool.control, LOCK)
    places.idle_slots -= 1
    slot, used = work_pool.counts[i, places.idle_slots]
    release(work_pool.control, LOCK)
    if not used:
        zone_sums.clear(sum_slots.zone_map, sum_slots.sums, slot)
    first, last = bounds_of(work_pool.places[node].start, work_pool.places[node].in_stop, chunk, places.n_chunks)
    zone_sums.include(sum_slots.zone_map, partition_of(work_pool, task, node), first, last, sum_slots.sums, slot, ZERO() + 1)
    acquire(work_pool.control, LOCK)
    work_pool.counts[i, places.idle_slots, 0], work_pool.counts[i, places.idle_slots, 1] = slot, 1
    places.idle_slots += 1
    release(work_pool.control, LOCK)


@lean_kernel
def start_settling(sum_slots, work_pool, i):
    """Create the chunks that add slots; unused slots are freed."""
    counts, n = work_pool.counts[i], ZERO()
    for k in range(work_pool.places[i].n_slots):
        if counts[k, 1]:
            counts[n, 0] = counts[k, 0]
            n += 1
        else:
            give_back(sum_slots, counts[k, 0])
    work_pool.places[i].n_slots = n
    add_chunks(work_pool, SETTLE, i, _chunks_of(sum_slots, work_pool, counts[0, 0]))


@lean_kernel
def settle_chunk(sum_slots, work_pool, i, chunk):
    """Add the slots of a sum in some columns; subtract the result from the parent's, if it is that of a child."""
    zone_map, sums, places = sum_slots.zone_map, sum_slots.sums, work_pool.places[i]
    first, last = bounds_of(ZERO(), zone_map.which.shape[0], chunk, places.n_chunks)
    summed = work_pool.counts[i, 0, 0]
    for k in range(1, places.n_slots):
        zone_sums.add(sums, summed, work_pool.counts[i, k, 0], first, last)
    if places.summed != i:
        zone_sums.subtract(sums, places.slot, summed, first, last)


@lean_kernel
def finish_settling(sum_slots, work_pool, i):
    """Return the slot with the sum, -1 if there is none; the others are freed."""
    if work_pool.places[i].n_slots == 0:
        return NONE()
    for k in range(1, work_pool.places[i].n_slots):
        give_back(sum_slots, work_pool.counts[i, k, 0])
    return work_pool.counts[i, 0, 0]


@lean_kernel
def start_leading(sum_slots, work_pool, task, i):
    """Create the chunks of the search for the best edge of a node that has a slot."""
    ready_shared(work_pool, task, i)
    work_pool.bars[i] = -1.0
    work_pool.places[i].first_column = NONE()
    add_chunks(work_pool, LEAD, i, _chunks_of(sum_slots, work_pool, work_pool.places[i].slot))


@lean_kernel
def _chunks_of(sum_slots, work_pool, slot):
    """Return the number of chunks of a step on the columns of a slot."""
    numbers = zone_sums.size_of(sum_slots.sums, slot)
    return max(1, min(min(CHUNKS, 2 * work_pool.n_threads), min(sum_slots.zone_map.which.shape[0], numbers // CHUNK_NUMBERS)))
