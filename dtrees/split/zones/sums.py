"""The zone sums of a node in all columns, which are stored for its children.

If every node is searched in every column, the zone sums (:mod:`dtrees.split.table.zone_map`) of a node are the sums of its two
children's. So they are stored, in *slots*, and only the smaller child of each split is summed; those of the larger one are its parent's
minus its sibling's, exactly, as all sums are integers. To sum all columns in one pass, the zones of a row's columns are stored side by
side. If the smaller child has very few rows, these are subtracted from the parent's sums one by one.

The best split at a zone's edge is a node's first *bar*; :mod:`dtrees.split.zones.scan` scans the zones that may hold a better one.

Nodes of many rows are summed by parts of zones. For smaller nodes, the sums of the parts of each zone are added (*folded*).

Packed sums
-----------
An element of a slot, for a zone or part, is (sum of g, size and count packed, sum of h): the packed number has in its upper half the sum
of ``(size >> shift) + 1``, which gives an upper bound of the sum of sizes, and in its lower half the count. A row's size is abs(g), or
its distance from a centre. In a heavy-tailed target a few rows outweigh all others and move its mean away from them. Nodes without these
rows are summed again in a scale of their own (:func:`sharpen`): with the scale of the tree, sizes would not prune anything.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import NONE, ZERO, inlined_kernel, inner_kernel, kernel, lean_kernel, pointer_to, separate_kernel
from dtrees.split.compile.memory import prefetch, prefetch_row
from dtrees.split.compile.specialised import optional
from dtrees.split.compile.work_queue import increase
from dtrees.split.criteria.constraints import begin_column
from dtrees.split.criteria.parts import is_centred
from dtrees.split.criteria.statistics import Moments
from dtrees.split.node.limits import is_categorical
from dtrees.split.policy import AHEAD, ASKEW, COARSE, NUMBERS_PER_CELL, ROWS_PER_JOINED_SUM, ROWS_TO_ADD, SAMPLED_COLUMNS, SHARPER
from dtrees.split.table.sparse_zones import SparseZones
from dtrees.split.table.zone_map import ZoneMap
from dtrees.split.zones.bounds import best_edge, zone_arrays


@intrinsic
def add_pair(typing_context: Any, array: Any, i: Any, one: Any, other: Any) -> Any:
    """Add two numbers to ``array[i]`` and ``array[i + 1]``, by one load, one addition and one store."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pair = ir.VectorType(ir.IntType(64), 2)
        pointer = builder.bitcast(pointer_to(context, builder, signature.args[0], arguments[0], [arguments[1]]), pair.as_pointer())
        numbers = ir.Constant(pair, ir.Undefined)
        for k in range(2):
            numbers = builder.insert_element(numbers, arguments[2 + k], ir.Constant(ir.IntType(32), k))
        builder.store(builder.add(builder.load(pointer, align=8), numbers), pointer, align=8)
        return context.get_dummy_value()

    return types.void(array, types.uint64, types.int64, types.int64), generate


@inlined_kernel
def _numbers_of(partition, i, scale, sign):
    """Return the numbers that a row adds to its elements: g, size and count packed, h."""
    shift, centre = scale
    g, h = partition.g[i], partition.h[i] if partition.h.shape[0] > 0 else np.int64(1)
    return sign * g, sign * ((((abs(g - centre * h) >> shift) + 1) << 32) + 1), sign * h


@inlined_kernel
def _add_to_element(sums, column, element, numbers, weighted):
    """Add the numbers of a row to an element of a column."""
    g, packed, h = numbers
    at = column + (element << np.uint64(1)) + (element if weighted else np.uint64(0))
    add_pair(sums, at, g, packed)
    if weighted:
        sums[at + np.uint64(2)] += h


@inlined_kernel
def _add_fours(parts, rows, columns, alike, sums, weighted, are_alike):
    """Add rows to the sums of columns, except the last up to three rows; return where these begin. See :func:`_add_rows`."""
    (partition, start, in_stop, scale, sign), (first, last, starts, shifts) = rows, columns
    numbers, last_place = partition.rows, in_stop - 1
    for i in range(start, in_stop - 3, 4):
        for k in range(4):
            prefetch_row(parts, np.int64(numbers[min(i + AHEAD + k, last_place)]))
        parts_0, parts_1 = parts[np.uint64(numbers[i])], parts[np.uint64(numbers[i + 1])]
        parts_2, parts_3 = parts[np.uint64(numbers[i + 2])], parts[np.uint64(numbers[i + 3])]
        row_0, row_1 = _numbers_of(partition, i, scale, sign), _numbers_of(partition, i + 1, scale, sign)
        row_2, row_3 = _numbers_of(partition, i + 2, scale, sign), _numbers_of(partition, i + 3, scale, sign)
        column, shift, step = alike
        for j in range(first, last):
            if not are_alike:
                column, shift = np.uint64(starts[j]), shifts[j]
            _add_to_element(sums, column, np.uint64(parts_0[j]) >> shift, row_0, weighted)
            _add_to_element(sums, column, np.uint64(parts_1[j]) >> shift, row_1, weighted)
            _add_to_element(sums, column, np.uint64(parts_2[j]) >> shift, row_2, weighted)
            _add_to_element(sums, column, np.uint64(parts_3[j]) >> shift, row_3, weighted)
            column += step
    return in_stop - (in_stop - start) % 4


@lean_kernel
def _add_rows(parts, rows, columns, alike, sums, weighted, are_alike):
    """Add rows to the sums of columns; the loop is compiled for columns that are alike, and for others with and without weights.

    Parameters
    ----------
    parts : ndarray of uint16, shape (n_rows, k)
    rows : tuple
        The partition, the range of places, the shift and the centre of sizes, and the sign.
    columns : tuple
        The range of columns, their starts and shifts.
    alike : tuple of uint64
        If all columns have the same shift, and starts at the same distance: the first start, the shift, and the distance.
    """
    if are_alike:
        rest = _add_fours(parts, rows, columns, alike, sums, weighted, True)
    elif weighted:
        rest = _add_fours(parts, rows, columns, alike, sums, True, False)
    else:
        rest = _add_fours(parts, rows, columns, alike, sums, False, False)
    (partition, _, in_stop, scale, sign), (first, last, starts, shifts) = rows, columns
    for i in range(rest, in_stop):
        own, numbers = parts[np.uint64(partition.rows[i])], _numbers_of(partition, i, scale, sign)
        column, shift, step = alike
        for j in range(first, last):
            if not are_alike:
                column, shift = np.uint64(starts[j]), shifts[j]
            _add_to_element(sums, column, np.uint64(own[j]) >> shift, numbers, weighted)
            column += step


@lean_kernel
def add_rows(parts, partition, start, in_stop, first, last, starts, shifts, scale, sign, sums, width):
    """Add in-sample rows to the sums of the columns ``first`` to ``last``, or subtract them.

    Four rows at a time; unsigned indices spare the check for negative ones.

    Parameters
    ----------
    parts : ndarray of uint16, shape (n_rows, k)
    partition : RowPartition
    start, in_stop : int
    first, last : int
    starts : ndarray of int64
        Start of each column in ``sums``.
    shifts : ndarray of uint64
        Right shift of the parts of each column.
    scale : SCALE
    sign : int
        1 or -1.
    sums : ndarray of int64
        Elements of the columns, of ``width`` numbers.
    width : int
    """
    rows, n, step = (partition, start, in_stop, (scale.shift, scale.centre), sign), last - first, starts[first + 1] - starts[first]
    are_alike = starts[last] - starts[first] == n * step and shifts[first] == shifts[last - 1]  # columns of categories come first
    columns, alike = (np.uint64(first), np.uint64(last), starts, shifts), (np.uint64(starts[first]), shifts[first], np.uint64(step))
    _add_rows(parts, rows, columns, alike, sums, width == 3, are_alike)


@inlined_kernel
def are_joined(zone_map, n_rows):
    """Return whether a sum of ``n_rows`` rows uses joined columns."""
    joined = zone_map.joined
    return joined.elements.shape[1] > 0 and n_rows >= ROWS_PER_JOINED_SUM * joined.begins[joined.elements.shape[1]]


@separate_kernel(returns=types.none)
def include_joined(zone_map, partition, start, in_stop, starts, shifts, scale, sign, numbers, width):
    """Add in-sample rows to the sums of joined columns in a slot, or subtract them.

    Parameters
    ----------
    zone_map : ZoneMap
    partition : RowPartition
    start, in_stop : int
    starts, shifts : ndarray
        Start of each column in ``numbers``, and the shift of its parts.
    scale : SCALE
    sign : int
        1 or -1.
    numbers : ndarray of int64
        The slot, with a buffer for the sums by joined columns at its end.
    width : int
        Numbers of an element.
    """
    joined = zone_map.joined
    by_element = numbers[numbers.shape[0] - width * joined.begins[joined.elements.shape[1]] :]
    for i in range(by_element.shape[0]):
        by_element[i] = 0
    rows, zero = (partition, start, in_stop, (scale.shift, scale.centre), sign), np.uint64(0)
    columns = zero, np.uint64(joined.elements.shape[1]), starts, shifts
    _add_rows(joined.elements, rows, columns, (zero, zero, zero), by_element, width == 3, True)
    for j in range(joined.stride.shape[0]):
        table = joined.table_of[j]
        mine = by_element[width * joined.begins[table] : width * joined.begins[table + 1]]
        _add_by_code(mine, zone_map.n_zones[j] + 1, joined.stride[j] * width, width, numbers[starts[j] : starts[j + 1]])


@lean_kernel
def _add_by_code(joined, n_codes, step, width, numbers):
    """Add the sums of elements to those of the codes of one column, whose code changes every ``step`` numbers."""
    at = np.uint64(0)
    while at < np.uint64(joined.shape[0]):
        for code in range(np.uint64(n_codes)):
            place = code * np.uint64(width)
            for _ in range(0, step, width):
                for k in range(np.uint64(width)):
                    numbers[place + k] += joined[at + k]
                at += np.uint64(width)


#: Most rows for which sizes and counts can be packed.
MAX_PACKED_ROWS = 2**30
#: Bits of packed sizes, half of those available: the other half is for the added ones.
_SIZE_BITS = 30

#: How sizes are measured in a slot.
SCALE = np.dtype([("shift", np.int64), ("centre", np.int64), ("slope", np.float64)])
_CACHE_LINE = 64
#: The values of ``known`` and ``kept`` if nothing is stored.
NOTHING_KNOWN = np.empty((2, 0, 0), np.int64), np.empty((0, 0), np.uint64)


@by_reference
class Sums(NamedTuple):
    """The zone sums of nodes, each in a slot.

    Attributes
    ----------
    slots : ndarray of int64, shape (n_slots, capacity)
        The beginning of each slot is used: see :func:`element_of`. If columns are joined, a buffer for their elements follows at the
        end.
    grains : ndarray of int64, shape (n_slots,)
        The unit of the sums in each slot: zones divided into ``2**grain`` parts.
    scales : ndarray of SCALE, shape (n_slots,)
        The sizes in a slot are of ``g - centre * h``; no row has a size above ``slope * h``.
    first_scale : ndarray of SCALE, shape (1,)
        The scale of nodes without a parent's slot.
    starts : ndarray of int64, shape (fold + 1, k + 1)
        Start of each column in a slot of each grain, and the end of the last.
    shifts : ndarray of uint64, shape (fold + 1, k)
        Right shift of the parts of each column to get the elements of a slot of each grain.
    width : int
        Number of numbers of an element, 2 or 3.
    most_grain : int
        The grain of nodes of at least ``fine_rows`` rows; each halving of the rows reduces it by 1.
    fine_rows : int
    flagged : ndarray of int64, shape (2,)
        For nodes of at least ``fine_rows`` rows, in some columns: number of rows in zones that might have to be scanned if zones were
        not divided, and number of all rows. Summed by all threads while a tree is grown.
    place_of : ndarray of uint32, shape (n_rows,) or (0,)
        The place of each row, unless its node will not be searched, to pick rows from lists
        (:class:`~dtrees.split.table.zone_map.ZoneMap`).
    sides : ndarray of uint8, shape (n_slots, most codes)
        The categories that go left in the split of the node of each slot, by code.
    known : ndarray of int64, shape (2, k, most parts + 2) or (2, 0, 0)
        Bounds of the parts of large nodes from finer sums, and the parts with stored rows
        (:func:`~dtrees.split.zones.gather_rows.known_of`).
    kept : ndarray of uint64, shape (k, capacity)
        ``code << 32 | row`` for these rows.
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
    """Return the capacity, in elements, of a column of ``n`` zones or parts.

    One more than these, for missing values, and some padding, so that columns are not a multiple of 4 kB apart: otherwise the same zone
    of several columns, such as that of 0, would have the same place in the cache, and a sum would take ten times as long.
    """
    capacity = n + 1
    while capacity % 8 != 5 or (8 * width * capacity + _CACHE_LINE) % 2048 < 2 * _CACHE_LINE:
        capacity += 1
    return capacity


def lay_out_slots(zone_map: ZoneMap, width: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Return the starts of columns in slots whose elements have ``width`` numbers, and the shifts of their parts; see above.

    All numeric columns have the same capacity, that of the one with the most zones.
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
    """Return the elements of a column in a slot, shape (capacity of the column, width); the last one is for missing values."""
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
    """Return the number of elements of a column in a slot, without that of missing values."""
    return zone_map.n_zones[j] << (ZERO() if zone_map.by_category[j] else sums.grains[slot])


@kernel
def grain_for(most_grain, fine_rows, n_rows):
    """Return the grain for searching a node of ``n_rows`` rows."""
    grain = most_grain
    while grain > 0 and n_rows < fine_rows:
        grain -= 1
        fine_rows >>= 1
    return grain


@inner_kernel
def chunk_rows(zone_map, sums, slot):
    """Return the fewest rows of a chunk of a sum; the sums of all chunks have to be added."""
    return max(1, ROWS_TO_ADD * size_of(sums, slot) // max(1, _n_cells(zone_map, ZERO() + 1) * sums.width))


@kernel
def begin_slot(sums, slot, n_rows):
    """Set the grain and scale of a slot for a node of ``n_rows`` rows without a parent's slot."""
    sums.grains[slot] = grain_for(sums.most_grain, sums.fine_rows, n_rows)
    sums.scales[slot] = sums.first_scale[0]


@kernel
def follow_slot(sums, slot, other, n_rows):
    """Set the grain and scale of a slot that is added to or subtracted from another one, which then has ``n_rows`` rows."""
    sums.grains[slot] = min(sums.grains[other], grain_for(sums.most_grain, sums.fine_rows, n_rows))
    sums.scales[slot] = sums.scales[other]


@kernel
def note_places(place_of, rows, start, stop):
    """Store the current places of rows, if that is needed."""
    if place_of.shape[0] > 0:
        for place in range(start, stop):
            place_of[rows[place]] = place


@kernel
def size_shift(size):
    """Return the shift of sizes with the sum ``size`` such that they can be packed."""
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
    """Sum a node again in its own scale, about a centre if it may have one, if sizes in the scale of its slot are too coarse."""
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
    """Clear a slot, whose grain is set."""
    numbers_of(sums, slot, ZERO(), zone_map.which.shape[0])[:] = 0


@inner_kernel
def sum_rows(zone_map, partition, start, in_stop, sums, slot):
    """Sum in-sample rows by the zones of all columns, in the grain and scale of the slot."""
    clear(zone_map, sums, slot)
    include(zone_map, partition, start, in_stop, sums, slot, ZERO() + 1)


@inner_kernel
def include(zone_map, partition, start, in_stop, sums, slot, sign):
    """Add in-sample rows to a slot, or subtract them (``sign`` is -1)."""
    include_columns(zone_map, partition, start, in_stop, ZERO(), zone_map.which.shape[0], sums, slot, sign)


@optional
def n_parts(zone_map):
    """Return in how many parts, each of some columns, a slot may be summed."""
    return zone_map.which.shape[0]


@n_parts.of(SparseZones)
def _(zone_map):
    return ZERO() + 1


@optional
def include_columns(zone_map, partition, start, in_stop, first, last, sums, slot, sign):
    """Add in-sample rows to a slot in some columns, or subtract them; in all columns, if the table is sparse."""
    _include_columns(zone_map, partition, start, in_stop, first, last, sums, slot, sign)


@include_columns.of(SparseZones)
def _(zone_map, partition, start, in_stop, first, last, sums, slot, sign):
    _include_cells(zone_map, partition, start, in_stop, sums.scales[slot], sums.slots[slot], sums.width == 3, sign)


@separate_kernel(returns=types.none)
def _include_cells(zones, partition, start, in_stop, scale, numbers, weighted, sign):
    """Add the stored cells of in-sample rows to the elements of all columns, or subtract them."""
    begins, elements, final = zones.row_starts, zones.elements, in_stop - 1
    for i in range(start, in_stop):
        prefetch(elements, begins[partition.rows[min(i + 2, final)]])
        row, own = np.int64(partition.rows[i]), _numbers_of(partition, i, (scale.shift, scale.centre), sign)
        for cell in range(np.uint64(begins[row]), np.uint64(begins[row + 1])):
            _add_to_element(numbers, np.uint64(0), np.uint64(elements[cell]), own, weighted)


@separate_kernel
def _include_columns(zone_map, partition, start, in_stop, first, last, sums, slot, sign):
    """Add in-sample rows to a slot in some columns of a dense table, or subtract them."""
    grain, scale, numbers, width = sums.grains[slot], sums.scales[slot], sums.slots[slot], sums.width
    starts, shifts = sums.starts[grain], sums.shifts[grain]
    if last - first == zone_map.which.shape[0] and are_joined(zone_map, in_stop - start):
        include_joined(zone_map, partition, start, in_stop, starts, shifts, scale, sign, numbers, width)
        first = zone_map.joined.stride.shape[0]
    if first < last:
        add_rows(zone_map.part, partition, start, in_stop, first, last, starts, shifts, scale, sign, numbers, width)


@optional
def _n_cells(zone_map, n_rows):
    """Return the number of cells of some rows that are summed."""
    return n_rows * zone_map.which.shape[0]


@_n_cells.of(SparseZones)
def _(zone_map, n_rows):
    return n_rows * (zone_map.elements.shape[0] // (zone_map.row_starts.shape[0] - 1) + 1)


@inner_kernel
def are_few(zone_map, sums, slot, n_rows):
    """Return whether subtracting ``n_rows`` rows from a slot, one by one, is faster than summing them and subtracting the sums."""
    return NUMBERS_PER_CELL * _n_cells(zone_map, n_rows) < size_of(sums, slot)


@inner_kernel
def add(sums, slot, other, first, last):
    """Add some columns of one slot to those of another of the same grain."""
    _add(numbers_of(sums, slot, first, last), numbers_of(sums, other, first, last))


@lean_kernel
def _add(into, other):
    for i in range(into.shape[0]):
        into[i] += other[i]


@inner_kernel
def subtract(sums, slot, other, first, last):
    """Subtract some columns of one slot from those of another of the same grain."""
    _subtract(numbers_of(sums, slot, first, last), numbers_of(sums, other, first, last))


@lean_kernel
def _subtract(into, other):
    for i in range(into.shape[0]):
        into[i] -= other[i]


@kernel
def fold(zone_map, sums, slot, grain):
    """Add the sums of parts to coarser ones, in place: each write precedes all numbers that are still to be read."""
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
    """Add the elements of one column in pairs, and keep the last, for missing values."""
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
    """Copy numbers to a lower index; the ranges may overlap."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@inner_kernel
def fold_like(zone_map, sums, slot, other):
    """Fold a slot to the grain of another."""
    if sums.grains[slot] > sums.grains[other]:
        fold(zone_map, sums, slot, sums.grains[other])


@inlined_kernel
def get_ready(zone_map, partition, sums, place, node_sums, limits):
    """Fold the sums of a node to be searched, if it has few rows, and sharpen them, if necessary."""
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
    """Return the best score above the bar of a split at an edge of a zone in a range of columns, and the first column with it.

    If there is none, returns the bar and -1. Edges of parts within a zone are left to the search of zones that may be better.
    """
    start, in_stop, slot = place
    first, last = span
    node = Moments(node_sums[0], node_sums[1], in_stop - start)
    lead = NONE()
    for j in range(first, last):
        if is_categorical(limits.categories, zone_map.which[j]):
            continue  # edges between categories, ordered by number, are not splits
        if not begin_column(limits.criterion, node_sums, np.int64(column_ids[zone_map.which[j]])):
            continue
        n_zones = zone_map.n_zones[j]
        missing = zone_arrays(element_of(sums, slot, j), n_zones, sums.grains[slot], sums.scales[slot].shift, scratch.sums)
        edge = best_edge(limits, scratch.sums, n_zones, missing, node, bar, scratch.scores)
        if edge > bar:
            bar, lead = edge, j
    return bar, lead


@inner_kernel
def count_flagged(sums, place, j, n_flagged):
    """Count the flagged rows of a large node in a column before its zones are divided into parts; a few of the columns suffice."""
    start, in_stop, _ = place
    if in_stop - start >= sums.fine_rows and j % SAMPLED_COLUMNS == 0:
        increase(sums.flagged, ZERO(), n_flagged)
        increase(sums.flagged, ZERO() + 1, in_stop - start)
