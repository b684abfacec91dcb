"""The rows of a node in the flagged zones of a column (:mod:`dtrees.split.zones.scan`).

They are few, and finding them takes the code of each row of the node. So codes are compared with a few intervals that cover the flagged
zones, many at a time; only rows in an interval are checked exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from dtrees.split.compile.kernels import ZERO, inner_kernel, lean_kernel, pointer_to, separate_kernel
from dtrees.split.compile.memory import lowest_bit, prefetch
from dtrees.split.criteria.statistics import SIZE
from dtrees.split.policy import AHEAD, COMPARED_ROWS, COVERED_SHARE, FAR_AHEAD, ROWS_TO_FIND
from dtrees.split.table.sorting import lower_bound

#: Intervals that cover flagged zones: the two ends of a column, the neighbourhood of its best split, and one more.
_INTERVALS = 4
#: Places that are compared at a time.
_WINDOW = 32
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ROW = np.uint64(0xFFFFFFFF)


@intrinsic
def _bits(typing_context: Any, flags: Any, at: Any) -> Any:
    """Return a word with a bit for each of the 64 bytes from ``flags[at]`` on, set if the byte is not zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], [arguments[1]])
        lanes = ir.VectorType(ir.IntType(8), 64)
        numbers = builder.load(builder.bitcast(pointer, lanes.as_pointer()), align=1)
        return builder.bitcast(builder.icmp_unsigned("!=", numbers, ir.Constant(lanes, None)), ir.IntType(64))

    return types.uint64(flags, types.uint64), generate


@intrinsic
def _count_below(typing_context: Any, numbers: Any, at: Any, bound: Any) -> Any:
    """Return how many of the _WINDOW numbers from ``numbers[at]`` on are below a bound."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = pointer_to(context, builder, signature.args[0], arguments[0], [arguments[1]])
        lanes = ir.VectorType(ir.IntType(32), _WINDOW)
        some = builder.load(builder.bitcast(pointer, lanes.as_pointer()), align=4)
        bound = builder.insert_element(ir.Constant(lanes, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        bound = builder.shuffle_vector(bound, ir.Constant(lanes, ir.Undefined), ir.Constant(lanes, None))
        mask = builder.bitcast(builder.icmp_unsigned("<", some, bound), ir.IntType(_WINDOW))
        return builder.zext(builder.ctpop(mask), ir.IntType(64))

    return types.int64(numbers, types.uint64, types.uint32), generate


@lean_kernel
def pick(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, scratch):
    """Write ``code << 32 | place`` for the rows of a node in flagged zones of a column, with places from 0.

    Among rows of equal code, places ascend. The zones are those of ``scratch.zones``, their parts ``numbers << shift``. Returns the
    number of rows.
    """
    if _are_listed(zone_map.ends[j], shift, numbers, rows.shape[0]):
        flags = scratch.flags[: (zone_map.n_zones[j] << zone_map.fold) >> shift]
        flags[:] = 0
        for z in numbers:
            flags[z] = 1
        return _pick_listed(codes, zone_map.part, zone_map.listed[j], zone_map.ends[j], j, shift, rows, flags, keys)
    cell_shift = zone_map.shift[j]
    used = scratch.marks[: (n_distinct >> cell_shift) // 64 + 1]  # the code of missing values is looked up, too
    _mark(zone_map.first_codes[j], shift, numbers, cell_shift, used)
    if _cover(zone_map.first_codes[j], shift, numbers, scratch) * COVERED_SHARE > rows.shape[0]:
        return _pick_marked(codes, n_distinct, cell_shift, used, rows, keys)
    return _pick_covered(codes, cell_shift, used, rows, keys, scratch)


@lean_kernel
def _mark(first_codes, shift, numbers, cell_shift, marks):
    """Set the bit of every shifted code in the flagged zones, none of which is empty."""
    marks[:] = np.uint64(0)
    for z in numbers:
        first, last = first_codes[z << shift] >> cell_shift, (first_codes[(z + 1) << shift] - 1) >> cell_shift
        word = first >> 6
        while word <= last >> 6:
            low, high = max(first - 64 * word, 0), min(last - 64 * word, 63)
            marks[word] |= (_ALL >> np.uint64(63 - (high - low))) << np.uint64(low)
            word += 1


@lean_kernel
def _cover(first_codes, shift, numbers, scratch):
    """Write intervals that cover the flagged zones without the widest gaps to ``scratch.cuts``; return the number of their rows."""
    zones, begins, bounds = scratch.zones, scratch.flags, scratch.cuts[1]
    n = numbers.shape[0]
    n_rows = zones[n - 1].n_before + zones[n - 1].n - zones[0].n_before
    begins[:n] = 0
    for _ in range(_INTERVALS - 1):
        widest, width = ZERO(), ZERO()
        for k in range(1, n):
            gap = zones[k].n_before - zones[k - 1].n_before - zones[k - 1].n
            if gap > width and not begins[k]:
                widest, width = k, gap
        begins[widest] = 1
        n_rows -= width
    begins[0] = 1
    bounds[: 2 * _INTERVALS] = 0
    at = ZERO()
    for k in range(n):
        if begins[k]:
            bounds[at] = first_codes[numbers[k] << shift]
            at += 2
        bounds[at - 1] = first_codes[(numbers[k] + 1) << shift]
    return n_rows


@lean_kernel
def _pick_marked(codes, n_distinct, shift, marks, rows, keys):
    n_distinct, shift, at, n = np.uint64(n_distinct), np.uint64(shift), np.uint64(0), np.uint64(rows.shape[0])
    for i in range(n):
        prefetch(codes, rows[min(i + np.uint64(AHEAD), n - np.uint64(1))])
        code = np.uint64(codes[rows[i]])
        cell = code >> shift
        keys[at] = code << np.uint64(32) | i
        marked = (marks[cell >> np.uint64(6)] >> (cell & np.uint64(63))) & np.uint64(1)
        at += marked & np.uint64(code < n_distinct)
    return np.int64(at)


@lean_kernel
def _pick_covered(codes, shift, marks, rows, keys, scratch):
    bounds = scratch.cuts[1]
    low_0, low_1, low_2, low_3 = np.uint32(bounds[0]), np.uint32(bounds[2]), np.uint32(bounds[4]), np.uint32(bounds[6])
    width_0, width_1 = np.uint32(bounds[1] - bounds[0]), np.uint32(bounds[3] - bounds[2])
    width_2, width_3 = np.uint32(bounds[5] - bounds[4]), np.uint32(bounds[7] - bounds[6])
    buffer = scratch.part_of.view(np.uint32)
    some, listed, flags = buffer[:COMPARED_ROWS], buffer[COMPARED_ROWS : 2 * COMPARED_ROWS + 2], scratch.flags[:COMPARED_ROWS]
    n, lowest = rows.shape[0], np.int64(rows[0])
    span = np.int64(rows[n - 1]) - lowest + 1
    in_order, is_near = n >= _WINDOW and 4 * span < 5 * n, span < 3 * n
    at, last_place, one, shift = np.uint64(0), ZERO(), np.uint64(1), np.uint64(shift)
    total, density, final = span if in_order else n, (n - 1) / span, np.uint64(n - 1)
    for first in range(0, total, COMPARED_ROWS):
        m = min(COMPARED_ROWS, total - first)
        base = np.uint64(first)
        # A row's place is searched near its interpolated position.
        at_first, origin = at, last_place - density * np.int64(rows[last_place])
        if in_order:
            some = codes[lowest + first : lowest + first + m]
        elif is_near:
            for i in range(np.uint64(m)):
                some[i] = codes[np.uint64(rows[base + i])]
        else:
            for i in range(np.uint64(m)):
                prefetch(codes, np.uint64(rows[min(base + i + np.uint64(FAR_AHEAD), final)]))
                some[i] = codes[np.uint64(rows[base + i])]
        for i in range(m):
            code = some[i]
            # Below a low bound, the difference wraps around to a high number.
            flags[i] = (
                (np.uint32(code - low_0) < width_0)
                | (np.uint32(code - low_1) < width_1)
                | (np.uint32(code - low_2) < width_2)
                | (np.uint32(code - low_3) < width_3)
            )
        flags[m:] = 0
        for k in range(_list_flagged(flags, np.uint64(m), listed)):
            code = np.uint64(some[np.uint64(listed[k])])
            cell = code >> shift
            wanted = (marks[cell >> np.uint64(6)] >> (cell & np.uint64(63))) & one
            place = first + np.int64(listed[k])
            if in_order:  # the row first; its place is searched after the memory nearby has been prefetched
                place += lowest
                prefetch(rows, np.int64(origin + density * place))
            keys[at] = code << np.uint64(32) | np.uint64(place)
            at += wanted
        if in_order:
            at, last_place = _find_places(keys, at_first, at, rows, last_place, origin, density)
    return np.int64(at)


@lean_kernel
def _list_flagged(flags, m, listed):
    """Write the indices of up to ``m`` flags that are not zero; return their number.

    Of 64, two are written unconditionally: if about one in 64 is flagged, mispredicted branches take longer.
    """
    at, one, none = np.uint64(0), np.uint64(1), np.uint64(0)
    for base in range(np.uint64(0), m, np.uint64(64)):
        mask = _bits(flags, base)
        for _ in range(2):
            listed[at] = base + lowest_bit(mask)
            at += np.uint64(mask != none)
            mask &= mask - one
        while mask != none:
            listed[at] = base + lowest_bit(mask)
            at += one
            mask &= mask - one
    return at


@lean_kernel
def _find_places(keys, first, last, rows, place, origin, density):
    """Replace the row in some keys by its place, and drop rows outside the node; return the new end of keys, and the last place.

    Rows of keys ascend, and those of the node, at least ``_WINDOW``, too. A place is searched around ``origin + density * row``, in a
    window, and beside it if it is not there; then the origin moves to it. The origin stays as long as possible: if each search depends
    on the one before, it takes twice as long.
    """
    at, n = first, rows.shape[0]
    for k in range(first, last):
        row = np.uint32(keys[k] & _ROW)
        window = max(0, min(np.int64(origin + density * np.int64(row)) - _WINDOW // 2, n - _WINDOW))
        while window > 0 and rows[window] > row:
            window = max(0, window - _WINDOW)
            origin = window + _WINDOW // 2 - density * np.int64(row)
        while window < n - _WINDOW and rows[window + _WINDOW - 1] < row:
            window = min(window + _WINDOW, n - _WINDOW)
            origin = window + _WINDOW // 2 - density * np.int64(row)
        place = min(window + _count_below(rows, np.uint64(window), row), n - 1)
        keys[at] = keys[k] & ~_ROW | np.uint64(place)
        at += np.uint64(rows[place] == row)
    return at, place


@inner_kernel
def known_of(zone_map, sums, slot, n_rows, j):
    """Return stored data of a column's parts if a node has more than half of the table's rows; otherwise empty arrays.

    Each such node is a descendant of all that were searched before. The first array has the sizes of parts (:func:`note_sizes`), the
    second which parts have stored rows (:func:`_keep`), and the number of these rows. The last element of each identifies the scale and
    grain of its data.
    """
    scale, grain = sums.scales[slot], sums.grains[slot]
    if sums.kept.shape[1] == 0 or 2 * n_rows <= zone_map.part.shape[0] or scale.centre != 0:
        return sums.known[:0].reshape(-1), sums.known[:0].reshape(-1)
    sizes, is_kept = sums.known[0, j], sums.known[1, j]
    for known, what in ((sizes, 32 * scale.shift + grain), (is_kept, grain)):
        if known[-1] != what:
            known[:] = 0
            known[-1] = what
    return sizes, is_kept


@lean_kernel
def note_sizes(sizes, element, size_shift, zones, numbers):
    """Store the sizes of flagged parts, as bounded by finer sums.

    A part's *size* is an upper bound of the sum of how far its running sum goes above, and below, both of its ends: the sum of its rows'
    sizes is one. Removing rows changes that by at most the sum of their sizes. So the sum of sizes is added to the stored size: if that
    of a later node is subtracted, the result is an upper bound.
    """
    if sizes.shape[0] > 0:
        for k in range(numbers.shape[0]):
            z = numbers[k]
            size = (element[z, 1] >> 32) + ((zones[k].abs_g - 1) >> size_shift) + 1
            sizes[z] = min(sizes[z], size) if sizes[z] > 0 else size


@lean_kernel
def lower_sizes(sizes, element, size_shift, numbers, n, sums):
    """Lower the sizes of parts to their stored bounds."""
    if sizes.shape[0] > 0:
        for k in range(n):
            z = numbers[k]
            if sizes[z] > 0:
                size = element[z, 1] >> 32
                sums[SIZE, k] = min(size, sizes[z] - size) << size_shift


@separate_kernel
def pick_known(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, is_kept, kept, scratch):
    """Do the same as :func:`pick`, in any order, from stored rows if all flagged zones have them."""
    marks = scratch.marks[: (n_distinct >> zone_map.shift[j]) // 64 + 1]
    if _are_all_kept(is_kept, numbers):
        _mark(zone_map.first_codes[j], shift, numbers, zone_map.shift[j], marks)
        _pick_kept(kept[: is_kept[-2]], zone_map.shift[j], marks, rows, keys)
        return
    n = pick(codes, n_distinct, zone_map, j, shift, numbers, rows, keys, scratch)
    if is_kept.shape[0] > 0 and rows.shape[0] == codes.shape[0]:  # for a node of all rows, places are row numbers
        _keep(zone_map, j, shift, numbers, keys[:n], marks, is_kept, kept, scratch)


@lean_kernel
def _keep(zone_map, j, shift, numbers, keys, marks, is_kept, kept, scratch):
    """Store the rows of flagged parts of the whole table; if the buffer is full, all other rows are dropped.

    Late trees are similar and mostly flag the same parts.
    """
    zones, added, n, n_wanted = scratch.zones, scratch.cuts[0], ZERO(), ZERO()
    for k in range(numbers.shape[0]):
        n_wanted += 0 if is_kept[numbers[k]] else zones[k].n
    if is_kept[-2] + n_wanted > kept.shape[0]:
        is_kept[:-1] = 0
    at, n_kept = np.uint64(is_kept[-2]), is_kept[-2]
    for k in range(numbers.shape[0]):
        z = numbers[k]
        if not is_kept[z] and n_kept + zones[k].n <= kept.shape[0]:
            is_kept[z], added[n] = 1, z
            n, n_kept = n + 1, n_kept + zones[k].n
    _mark(zone_map.first_codes[j], shift, added[:n], zone_map.shift[j], marks)
    for key in keys:
        cell = key >> np.uint64(32 + zone_map.shift[j])
        if (marks[cell >> np.uint64(6)] >> (cell & np.uint64(63))) & np.uint64(1):
            kept[at] = key
            at += np.uint64(1)
    is_kept[-2] = n_kept


@lean_kernel
def _are_all_kept(is_kept, numbers):
    if is_kept.shape[0] == 0:
        return False
    for z in numbers:  # noqa: SIM110
        if not is_kept[z]:
            return False
    return True


@lean_kernel
def _pick_kept(kept, shift, marks, rows, keys):
    """Pick rows of a node from the stored rows."""
    at, n = np.uint64(0), rows.shape[0]
    for key in kept:
        keys[at] = key
        cell = key >> np.uint64(32 + shift)
        at += (marks[cell >> np.uint64(6)] >> (cell & np.uint64(63))) & np.uint64(1)
    density = (n - 1) / (np.int64(rows[n - 1]) - np.int64(rows[0]) + 1)
    _find_places(keys, np.uint64(0), at, rows, ZERO(), -density * np.int64(rows[0]), density)


@lean_kernel
def _are_listed(ends, shift, numbers, n_rows):
    """Return whether the rows of all flagged zones are listed, and so few that looking them up is faster than reading all rows."""
    if n_rows < ROWS_TO_FIND * (ends[2] + ends[3]):
        return False
    low, high = ends[0] >> shift, -(-ends[1] >> shift)
    for z in numbers:  # noqa: SIM110
        if low <= z < high:
            return False
    return True


@lean_kernel
def _pick_listed(codes, parts, listed, ends, j, shift, rows, flags, keys):
    """Pick rows of one column whose flagged zones have listed rows only."""
    at = ZERO()
    for side in range(2):
        low = ZERO()
        for k in range(ends[2 + side]):
            row = listed[side, k]
            if not flags[np.uint64(parts[row, j]) >> np.uint64(shift)]:
                continue
            low = lower_bound(rows, low, rows.shape[0], row)  # the rows of a node ascend, and so do the listed rows
            if low < rows.shape[0] and rows[low] == row:
                keys[at] = np.uint64(codes[row]) << np.uint64(32) | np.uint64(low)
                at += 1
    return at
