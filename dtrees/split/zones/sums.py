"""The zone sums of a node in all columns, which are kept for its children.

Where every node is searched in every column, the zone sums (:mod:`dtrees.split.table.zone_map`) of a node are those of its two children
added up. So they are kept, in *slots*, and only the smaller child of each split is summed; the larger one's are its parent's minus its
sibling's, exactly, as all sums are integers. To sum all columns in one pass, the zones of a row's columns are stored side by side. A few
rows are taken from their parent's sums one by one.

The best split at a zone's edge is a node's first *bar*; :mod:`dtrees.split.zones.scan` scans what may hold a better one.

Nodes of many rows are summed by parts of zones. When a node has fewer, the sums of the parts of each zone are added up (*folded*).

Packed sums
-----------
A zone's, or part's, element of a slot is (sum of g, size and count packed, sum of h): the packed number holds, in its upper half, the sum
of ``(size >> shift) + 1``, from which follows an upper bound of the sum of sizes, and the count in its lower half. A row's size is abs(g),
or its distance from a centre. Few rows of a heavy-tailed target outweigh all others, and move its mean away from them. Nodes without them
are summed anew in a scale of their own (:func:`sharpen`): in that of the tree, sizes would rule out nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, kernel, lean_kernel, separate_kernel
from dtrees.split.compile.memory import prefetch_row
from dtrees.split.compile.work_queue import increase
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.parts import is_centred
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.limits import is_categorical
from dtrees.split.policy import AHEAD, ASKEW, COARSE, NUMBERS_PER_CELL, ROWS_PER_JOINED_SUM, ROWS_TO_ADD, SAMPLED_COLUMNS, SHARPER
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.bounds import best_edge, zone_arrays


@intrinsic
def add_pair(typing_context: Any, array: Any, i: Any, one: Any, other: Any) -> Any:
    """Add two numbers to ``array[i]`` and ``array[i + 1]``, by one load, one addition and one store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, signature.args[0], values, [arguments[1]])
        pair = ir.VectorType(ir.IntType(64), 2)
        pointer = builder.bitcast(pointer, pair.as_pointer())
        numbers = ir.Constant(pair, ir.Undefined)
        for k in range(2):
            numbers = builder.insert_element(numbers, arguments[2 + k], ir.Constant(ir.IntType(32), k))
        builder.store(builder.add(builder.load(pointer, align=8), numbers), pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.int64, types.int64), generate


@inlined_kernel
def _pair_of(a, i, scale, sign):
    """Return what a row of weight 1 adds to its elements: g, and size and count packed."""
    return sign * a[i], sign * ((((abs(a[i] - scale.centre) >> scale.shift) + 1) << 32) + 1)


@inlined_kernel
def _are_alike(starts, shifts, first, last):
    """Tell whether columns have elements as many, and parts as large: those of categories, which come first, have fewer."""
    step, n = starts[first + np.uint64(1)] - starts[first], np.int64(last - first)
    return starts[last] - starts[first] == n * step and shifts[first] == shifts[last - np.uint64(1)]


@lean_kernel
def _add_in_fours(parts, partition, start, in_stop, first, last, starts, shifts, scale, sign, sums):
    """Add rows of weight 1 to the sums of columns that are alike, but for the last up to three rows; return where these begin."""
    rows, a, last_place = partition.rows, partition.g, in_stop - 1
    step, shift = np.uint64(starts[first + np.uint64(1)] - starts[first]), shifts[first]
    for i in range(start, in_stop - 3, 4):
        for k in range(4):
            prefetch_row(parts, np.int64(rows[min(i + AHEAD + k, last_place)]))
        parts_0, parts_1, parts_2, parts_3 = (
            parts[np.uint64(rows[i])], parts[np.uint64(rows[i + 1])], parts[np.uint64(rows[i + 2])], parts[np.uint64(rows[i + 3])],
        )  # fmt: skip
        g_0, packed_0 = _pair_of(a, i, scale, sign)
        g_1, packed_1 = _pair_of(a, i + 1, scale, sign)
        g_2, packed_2 = _pair_of(a, i + 2, scale, sign)
        g_3, packed_3 = _pair_of(a, i + 3, scale, sign)
        column = np.uint64(starts[first])
        for j in range(first, last):
            add_pair(sums, column + ((np.uint64(parts_0[j]) >> shift) << np.uint64(1)), g_0, packed_0)
            add_pair(sums, column + ((np.uint64(parts_1[j]) >> shift) << np.uint64(1)), g_1, packed_1)
            add_pair(sums, column + ((np.uint64(parts_2[j]) >> shift) << np.uint64(1)), g_2, packed_2)
            add_pair(sums, column + ((np.uint64(parts_3[j]) >> shift) << np.uint64(1)), g_3, packed_3)
            column += step
    return in_stop - (in_stop - start) % 4


@lean_kernel
def add_rows(parts, partition, start, in_stop, first, last, starts, shifts, scale, sign, sums, width):
    """Add in-sample rows to the sums of the columns ``first`` to ``last``, or take them from these.

    Two rows at a time; unsigned indices spare the test for negative ones.

    Parameters
    ----------
    parts : ndarray of uint16, shape (n_rows, k)
    partition : RowPartition
    start, in_stop : int
    first, last : int
    starts : ndarray of int64
        Where each column begins in ``sums``.
    shifts : ndarray of uint64
        The parts of each column are shifted right by so much.
    scale : SCALE
    sign : int
        1 or -1.
    sums : ndarray of int64
        Of the columns, elements of ``width`` numbers.
    width : int
    """
    rows, a, b = partition.rows, partition.g, partition.h
    shift, centre = scale.shift, scale.centre
    last_place, first, last = in_stop - 1, np.uint64(first), np.uint64(last)
    if width == 2 and _are_alike(starts, shifts, first, last):
        start = _add_in_fours(parts, partition, start, in_stop, first, last, starts, shifts, scale, sign, sums)
    for i in range(start, in_stop, 2):
        if i + AHEAD < last_place:
            prefetch_row(parts, np.int64(rows[i + AHEAD]))
            prefetch_row(parts, np.int64(rows[i + AHEAD + 1]))
        other = min(i + 1, last_place)
        second = sign if other > i else np.int64(0)
        parts_0, parts_1 = parts[np.uint64(rows[i])], parts[np.uint64(rows[other])]
        if width == 3:
            size_0, size_1 = abs(a[i] - centre * b[i]), abs(a[other] - centre * b[other])
            g_0, packed_0, h_0 = sign * a[i], sign * ((((size_0 >> shift) + 1) << 32) + 1), sign * b[i]
            g_1, packed_1, h_1 = second * a[other], second * ((((size_1 >> shift) + 1) << 32) + 1), second * b[other]
            for j in range(first, last):
                column, shift_of_parts = np.uint64(starts[j]), shifts[j]
                at = column + (np.uint64(parts_0[j]) >> shift_of_parts) * np.uint64(3)
                add_pair(sums, at, g_0, packed_0)
                sums[at + np.uint64(2)] += h_0
                at = column + (np.uint64(parts_1[j]) >> shift_of_parts) * np.uint64(3)
                add_pair(sums, at, g_1, packed_1)
                sums[at + np.uint64(2)] += h_1
        else:
            g_0, packed_0 = sign * a[i], sign * ((((abs(a[i] - centre) >> shift) + 1) << 32) + 1)
            g_1, packed_1 = second * a[other], second * ((((abs(a[other] - centre) >> shift) + 1) << 32) + 1)
            for j in range(first, last):
                column, shift_of_parts = np.uint64(starts[j]), shifts[j]
                add_pair(sums, column + ((np.uint64(parts_0[j]) >> shift_of_parts) << np.uint64(1)), g_0, packed_0)
                add_pair(sums, column + ((np.uint64(parts_1[j]) >> shift_of_parts) << np.uint64(1)), g_1, packed_1)


@inlined_kernel
def are_joined(zone_map, n_rows):
    """Tell whether so many rows are to be summed by joined columns."""
    joined = zone_map.joined
    return joined.elements.shape[1] > 0 and n_rows >= ROWS_PER_JOINED_SUM * joined.begins[joined.elements.shape[1]]


@separate_kernel
def include_joined(zone_map, partition, start, in_stop, starts, scale, sign, numbers, width):
    """Add in-sample rows to the sums of joined columns in a slot, or take them from these.

    Parameters
    ----------
    zone_map : ZoneMap
    partition : RowPartition
    start, in_stop : int
    starts : ndarray of int64
        Where each column begins in ``numbers``.
    scale : SCALE
    sign : int
        1 or -1.
    numbers : ndarray of int64
        The slot, at whose end there is room for the sums by joined columns.
    width : int
        Numbers of an element.
    """
    joined = zone_map.joined
    by_element = numbers[numbers.shape[0] - width * joined.begins[joined.elements.shape[1]] :]
    for i in range(by_element.shape[0]):
        by_element[i] = 0
    _add_rows(joined.elements, partition, start, in_stop, scale, sign, by_element, np.uint64(width))
    for j in range(joined.stride.shape[0]):
        table = joined.table_of[j]
        mine = by_element[width * joined.begins[table] : width * joined.begins[table + 1]]
        _add_by_code(mine, zone_map.n_zones[j] + 1, joined.stride[j] * width, width, numbers[starts[j] : starts[j + 1]])


@lean_kernel
def _add_rows(elements, partition, start, in_stop, scale, sign, sums, width):
    """Add rows to the sums of their ``elements``, as :func:`~dtrees.split.zones.sums.add_rows` does."""
    rows, a, b = partition.rows, partition.g, partition.h
    shift, centre, last_place, n_tables = scale.shift, scale.centre, in_stop - 1, np.uint64(elements.shape[1])
    for i in range(start, in_stop, 2):
        if i + AHEAD < last_place:
            prefetch_row(elements, np.int64(rows[i + AHEAD]))
            prefetch_row(elements, np.int64(rows[i + AHEAD + 1]))
        other = min(i + 1, last_place)
        second = sign if other > i else np.int64(0)
        elements_0, elements_1 = elements[np.uint64(rows[i])], elements[np.uint64(rows[other])]
        h_0, h_1 = (b[i], b[other]) if width > np.uint64(2) else (np.int64(1), np.int64(1))
        g_0, packed_0 = sign * a[i], sign * ((((abs(a[i] - centre * h_0) >> shift) + 1) << 32) + 1)
        g_1, packed_1 = second * a[other], second * ((((abs(a[other] - centre * h_1) >> shift) + 1) << 32) + 1)
        if width > np.uint64(2):
            h_0, h_1 = sign * h_0, second * h_1
            for t in range(n_tables):
                at = np.uint64(elements_0[t]) * np.uint64(3)
                add_pair(sums, at, g_0, packed_0)
                sums[at + np.uint64(2)] += h_0
                at = np.uint64(elements_1[t]) * np.uint64(3)
                add_pair(sums, at, g_1, packed_1)
                sums[at + np.uint64(2)] += h_1
        else:
            for t in range(n_tables):
                add_pair(sums, np.uint64(elements_0[t]) << np.uint64(1), g_0, packed_0)
                add_pair(sums, np.uint64(elements_1[t]) << np.uint64(1), g_1, packed_1)


@lean_kernel
def _add_by_code(joined, n_codes, step, width, numbers):
    """Add the sums of elements to those of the codes of one column, which is another one every ``step`` numbers."""
    at = np.uint64(0)
    while at < np.uint64(joined.shape[0]):
        for code in range(np.uint64(n_codes)):
            place = code * np.uint64(width)
            for _ in range(0, step, width):
                for k in range(np.uint64(width)):
                    numbers[place + k] += joined[at + k]
                at += np.uint64(width)


#: Rows beyond which sizes and counts cannot be packed.
MAX_PACKED_ROWS = 2**30
#: Sizes are packed in so many bits, half of what there is room for: the other half is for the ones that are added.
_SIZE_BITS = 30

#: How sizes are measured in a slot.
SCALE = np.dtype([("shift", np.int64), ("centre", np.int64), ("slope", np.float64)])
_CACHE_LINE = 64
#: What is ``known`` and ``kept`` of parts where nothing is.
NOTHING_KNOWN = np.empty((2, 0, 0), np.int64), np.empty((0, 0), np.uint64)


@by_reference
class Sums(NamedTuple):
    """The zone sums of nodes, each in a slot.

    Attributes
    ----------
    slots : ndarray of int64, shape (n_slots, capacity)
        Of each slot the beginning is used: see :func:`element_of`. Where columns are joined, there is room for their elements at the end.
    grains : ndarray of int64, shape (n_slots,)
        What a slot holds the sums of: zones cut into ``2**grain`` parts.
    scales : ndarray of SCALE, shape (n_slots,)
        The sizes in a slot are of ``g - centre * h``; no row's is more than ``slope * h``.
    first_scale : ndarray of SCALE, shape (1,)
        That of nodes without a parent's slot.
    starts : ndarray of int64, shape (fold + 1, k + 1)
        Where each column begins in a slot of each grain, and where the last one ends.
    shifts : ndarray of uint64, shape (fold + 1, k)
        By how much the parts of each column are shifted to the right to be elements of a slot of each grain.
    width : int
        Numbers of an element, 2 or 3.
    most_grain : int
        The grain of nodes of at least ``fine_rows`` rows; that of others is less by 1 for each time that they have half as many.
    fine_rows : int
    flagged : ndarray of int64, shape (2,)
        Of nodes of at least ``fine_rows`` rows, in some columns: how many rows are in zones, uncut, that might have to be scanned, and how
        many there are. Added up while a tree is grown, by all threads.
    place_of : ndarray of uint32, shape (n_rows,) or (0,)
        The place of each row, unless its node will not be searched, for rows to be picked from lists
        (:class:`~dtrees.split.table.zone_map.ZoneMap`).
    sides : ndarray of uint8, shape (n_slots, most codes)
        Which categories go left in the split of the node that has a slot, by code.
    known : ndarray of int64, shape (2, k, most parts + 2) or (2, 0, 0)
        What finer sums have shown of the parts of large nodes, and whose rows are kept (:func:`~dtrees.split.zones.gather_rows.known_of`).
    kept : ndarray of uint64, shape (k, capacity)
        ``code << 32 | row`` of these rows.
    """

    slots: NDArray[np.int64]
    grains: NDArray[np.int64]
    scales: NDArray[Any]
    first_scale: NDArray[Any]
    starts: NDArray[np.int64]
    shifts: NDArray[np.uint64]
    width: int
    most_grain: int
    fine_rows: int
    flagged: NDArray[np.int64]
    place_of: NDArray[np.uint32]
    sides: NDArray[np.uint8]
    known: NDArray[np.int64]
    kept: NDArray[np.uint64]


def _capacity(n: int, width: int) -> int:
    """Return how many elements there is room for in a column of ``n`` zones or parts.

    One more than these, for missing values, or some more, so that no few columns are a multiple of 4 kB apart: the same zone of them, as
    where most values are 0, would have the same place in the cache, and a sum take ten times as long.
    """
    capacity = n + 1
    while capacity % 8 != 5 or (8 * width * capacity + _CACHE_LINE) % 2048 < 2 * _CACHE_LINE:
        capacity += 1
    return capacity


def lay_out_slots(zone_map: ZoneMap, width: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return where columns begin in slots whose elements have ``width`` numbers, and by how much their parts are shifted; see above.

    All columns of numbers have the same capacity, that of the one that has most zones.
    """
    by_category, k = zone_map.by_category, zone_map.which.shape[0]
    most_zones = int(zone_map.n_zones[~by_category].max(initial=0))
    starts, shifts = np.zeros((zone_map.fold + 1, k + 1), np.int64), np.zeros((zone_map.fold + 1, k), np.uint64)
    own = np.array([_capacity(int(n), width) for n in zone_map.n_zones[by_category]], np.int64)
    for grain in range(zone_map.fold + 1):
        capacity = np.full(k, _capacity(most_zones << grain, width))
        capacity[by_category] = own
        np.cumsum(capacity * width, out=starts[grain, 1:])
        shifts[grain] = np.where(by_category, 0, zone_map.fold - grain)
    return starts, shifts


@inner_kernel
def element_of(sums, slot, j):
    """Return the elements of a column in a slot, shape (capacity of the column, width); after the last comes that of missing values."""
    return numbers_of(sums, slot, j, j + 1).reshape(-1, sums.width)


@inner_kernel
def numbers_of(sums, slot, first, last):
    """Return all numbers of the columns ``first`` to ``last`` in a slot."""
    starts = sums.starts[sums.grains[slot]]
    return sums.slots[slot, starts[first] : starts[last]]


@inner_kernel
def size_of(sums, slot):
    """Return how many numbers of a slot are used."""
    return sums.starts[sums.grains[slot], sums.starts.shape[1] - 1]


@inner_kernel
def n_elements(zone_map, sums, slot, j):
    """Return how many elements a column has in a slot, without that of missing values."""
    return zone_map.n_zones[j] << (ZERO() if zone_map.by_category[j] else sums.grains[slot])


@kernel
def grain_for(most_grain, fine_rows, n_rows):
    """Return the grain in which to search a node of so many rows."""
    grain = most_grain
    while grain > 0 and n_rows < fine_rows:
        grain -= 1
        fine_rows >>= 1
    return grain


@kernel
def chunk_rows(sums, grain):
    """Return the fewest rows of a chunk of a sum: chunks must be added up."""
    k = sums.starts.shape[1] - 1
    return max(1, ROWS_TO_ADD * sums.starts[grain, k] // max(1, k * sums.width))


@kernel
def begin_slot(sums, slot, n_rows):
    """Say what a slot is to hold: the sums of a node of so many rows, without a parent's to inherit from."""
    sums.grains[slot] = grain_for(sums.most_grain, sums.fine_rows, n_rows)
    sums.scales[slot] = sums.first_scale[0]


@kernel
def follow_slot(sums, slot, other, n_rows):
    """Say what a slot is to hold: sums to be added to, or taken from, those of another one, of which ``n_rows`` rows are searched then."""
    sums.grains[slot] = min(sums.grains[other], grain_for(sums.most_grain, sums.fine_rows, n_rows))
    sums.scales[slot] = sums.scales[other]


@kernel
def note_places(place_of, rows, start, stop):
    """Note where rows lie now, if that is wanted."""
    if place_of.shape[0] > 0:
        for place in range(start, stop):
            place_of[rows[place]] = place


@kernel
def size_shift(size):
    """Return by how much sizes must be shifted that add up to ``size``, so that they can be packed."""
    shift = ZERO()
    while size >> shift >= 1 << _SIZE_BITS:
        shift += 1
    return shift


@inner_kernel
def slope_of(limits, scale):
    """Return the largest size of a row, for its weight, in the scale of a slot."""
    return scale.slope if scale.centre != 0 else min(scale.slope, limits.slope)


@inner_kernel
def _measure(partition, start, in_stop, centre):
    """Return the sum of sizes of in-sample rows about a centre, and an upper bound of the largest for its weight."""
    a, b = partition.g, partition.h
    total, slope = ZERO(), 0.0
    if b.shape[0] > 0:
        for i in range(start, in_stop):
            size = abs(a[i] - centre * b[i])
            total += size
            if size > 0:
                slope = max(slope, float(size) / float(b[i]))
    else:
        largest = ZERO()
        for i in range(start, in_stop):
            size = abs(a[i] - centre)
            total += size
            largest = max(largest, size)
        slope = float(largest)
    return total, slope * (1.0 + 2.0**-44)


@inner_kernel
def sharpen(zone_map, partition, place, node_sums, may_move, sums):
    """Sum a node anew in a scale of its own, about a centre if it may have one, where sizes in that of its slot say little."""
    start, in_stop, slot = place
    scale = sums.scales[slot]
    n, units = in_stop - start, ZERO()
    if zone_map.which.shape[0] == 0:
        return
    first_column = element_of(sums, slot, ZERO())
    for z in range(n_elements(zone_map, sums, slot, ZERO()) + 1):
        units += first_column[z, 1] >> 32
    size = (units - n) << scale.shift
    moves = may_move and node_sums[1] > 0
    askew = moves and abs(float(node_sums[0] - scale.centre * node_sums[1])) > ASKEW * float(size)
    if not askew and (scale.shift == 0 or units >= (COARSE + 1) * n):
        return
    centre = ZERO()
    if moves:  # towards zero, so that no multiple of it is out of range
        centre = abs(node_sums[0]) // node_sums[1]
        centre = centre if node_sums[0] >= 0 else -centre
    total, slope = _measure(partition, start, in_stop, centre)
    if total < units << scale.shift >> SHARPER:
        scale.shift, scale.centre, scale.slope = size_shift(total), centre, slope
        sum_rows(zone_map, partition, start, in_stop, sums, slot)


@inner_kernel
def clear(zone_map, sums, slot):
    """Have a slot of its grain, and of no rows."""
    numbers_of(sums, slot, ZERO(), zone_map.which.shape[0])[:] = 0


@inner_kernel
def sum_rows(zone_map, partition, start, in_stop, sums, slot):
    """Sum in-sample rows by the zones of all columns, in the grain and scale of the slot."""
    clear(zone_map, sums, slot)
    include(zone_map, partition, start, in_stop, sums, slot, ZERO() + 1)


@inner_kernel
def include(zone_map, partition, start, in_stop, sums, slot, sign):
    """Add in-sample rows to a slot, or take them from it (``sign`` is -1)."""
    include_columns(zone_map, partition, start, in_stop, ZERO(), zone_map.which.shape[0], sums, slot, sign)


@separate_kernel
def include_columns(zone_map, partition, start, in_stop, first, last, sums, slot, sign):
    """Add in-sample rows to a slot in some columns, or take them from it."""
    grain, scale, numbers, width = sums.grains[slot], sums.scales[slot], sums.slots[slot], sums.width
    starts, shifts = sums.starts[grain], sums.shifts[grain]
    if last - first == zone_map.which.shape[0] and are_joined(zone_map, in_stop - start):
        include_joined(zone_map, partition, start, in_stop, starts, scale, sign, numbers, width)
        first = zone_map.joined.stride.shape[0]
    if first < last:
        add_rows(zone_map.part, partition, start, in_stop, first, last, starts, shifts, scale, sign, numbers, width)


@inner_kernel
def are_few(zone_map, sums, slot, n_rows):
    """Tell whether to take so many rows from a slot, one by one, is faster than to sum them and to take these sums from it."""
    return NUMBERS_PER_CELL * n_rows * zone_map.which.shape[0] < size_of(sums, slot)


@inner_kernel
def add(zone_map, sums, slot, other, first, last):
    """Add some columns of one slot to those of another of the same grain."""
    _add(numbers_of(sums, slot, first, last), numbers_of(sums, other, first, last))


@lean_kernel
def _add(into, other):
    for i in range(into.shape[0]):
        into[i] += other[i]


@inner_kernel
def subtract(zone_map, sums, slot, other, first, last):
    """Take some columns of one slot from those of another of the same grain."""
    _subtract(numbers_of(sums, slot, first, last), numbers_of(sums, other, first, last))


@lean_kernel
def _subtract(into, other):
    for i in range(into.shape[0]):
        into[i] -= other[i]


@kernel
def fold(zone_map, sums, slot, grain):
    """Add up the sums of parts to those of a grain, in place: what is written lies before all that is still to be read."""
    while sums.grains[slot] > grain:
        fine = sums.grains[slot]
        sums.grains[slot] -= 1
        for j in range(zone_map.which.shape[0]):
            source = sums.slots[slot, sums.starts[fine, j] : sums.starts[fine, j + 1]]
            if zone_map.by_category[j]:
                _move(source, numbers_of(sums, slot, j, j + 1))
            else:
                _fold_pairs(source, numbers_of(sums, slot, j, j + 1), np.uint64(sums.width), n_elements(zone_map, sums, slot, j))


@lean_kernel
def _fold_pairs(fine, coarse, width, n):
    """Add up the elements of one column two by two, and keep the last, that of missing values."""
    at, one, two = np.uint64(0), np.uint64(1), np.uint64(2)
    if width == two:
        for _ in range(n):
            k = two * at
            g, packed = fine[k] + fine[k + two], fine[k + one] + fine[k + two + one]
            coarse[at], coarse[at + one] = g, packed
            at += two
    else:
        for _ in range(n):
            k = two * at
            for i in range(width):
                coarse[at + i] = fine[k + i] + fine[k + width + i]
            at += width
    for i in range(width):
        coarse[at + i] = fine[two * at + i]


@lean_kernel
def _move(source, target):
    """Copy numbers to a place before theirs, which may overlap."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@inner_kernel
def fold_like(zone_map, sums, slot, other):
    """Fold a slot as another is folded."""
    if sums.grains[slot] > sums.grains[other]:
        fold(zone_map, sums, slot, sums.grains[other])


@inlined_kernel
def get_ready(zone_map, partition, sums, place, node_sums, limits):
    """Fold the sums of a node that is to be searched, if it has few rows, and sharpen them, if need be."""
    _get_ready(zone_map, partition, sums, place, node_sums, is_centred(limits.criterion))


@separate_kernel
def _get_ready(zone_map, partition, sums, place, node_sums, may_move):
    start, in_stop, slot = place
    grain = grain_for(sums.most_grain, sums.fine_rows, in_stop - start)
    if sums.grains[slot] > grain:
        fold(zone_map, sums, slot, grain)
    sharpen(zone_map, partition, place, node_sums, may_move, sums)


@inner_kernel
def best_edges(column_ids, zone_map, sums, place, node_sums, limits, span, bar, scratch):
    """Return the best score above the bar of a split at an edge of a zone in a range of columns, and the first of these that has it.

    Where there is none, these are the bar and -1. Edges of parts within a zone are left to the search of those that may be better.
    """
    start, in_stop, slot = place
    first, last = span
    node = Moments(node_sums[0], node_sums[1], in_stop - start)
    lead = NONE()
    for j in range(first, last):
        if is_categorical(limits.categories, zone_map.which[j]):
            continue  # edges between categories by number are no splits
        if not begin_column(limits.criterion, node_sums, np.int64(column_ids[zone_map.which[j]])):
            continue
        n_zones = zone_map.n_zones[j]
        missing = zone_arrays(element_of(sums, slot, j), n_zones, sums.grains[slot], sums.scales[slot].shift, scratch.sums)
        edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
        if edge > bar:
            bar, lead = edge, j
    return bar, lead


@inner_kernel
def count_flagged(zone_map, sums, place, j, n_flagged):
    """Count what is flagged of a large node in a column before its zones are cut into parts; a few of the columns are enough."""
    start, in_stop, _ = place
    if in_stop - start >= sums.fine_rows and j % SAMPLED_COLUMNS == 0:
        increase(sums.flagged, ZERO(), n_flagged)
        increase(sums.flagged, ZERO() + 1, in_stop - start)
