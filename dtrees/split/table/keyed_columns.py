"""Columns of float32 whose codes follow from the values alone, without sorting.

If rows stay on their workers (:mod:`dtrees.engine.rows`), scans need codes in the order of the values, but not consecutive codes. The
bits of a float32, rearranged to be ordered, are such codes: a table is loaded by one pass over its cells.

Terms
-----
key
    the bits of a float32 as an integer in the order of the numbers, with -0.0 equal to 0.0.
keyed columns
    :class:`~dtrees.split.table.columns.Columns` whose codes are keys minus the lowest key of the column. A missing value has the code
    after the highest one. Of the distinct values of each column only the lowest is stored; ``offsets`` grow by the code of missing
    values.
part lists
    the rows of each column listed part by part (:mod:`dtrees.split.table.zone_map`), in two bytes a cell. The rows of a node in a few
    parts of a column are found either by comparing the codes of all rows of the node, or by reading all rows of the table in these parts
    and looking up their places. In large nodes the latter are far fewer. Rows are listed in blocks of ``2**16``; a block lists part
    after part, as distances from the first row of the block.

Use
---
>>> assembly = KeyedAssembly(4, 1)
>>> assembly.put(0, [np.array([2.0, np.nan, 1.0, -0.0])])
True
>>> columns = assembly.finished()
>>> columns.is_keyed, columns.codes[0]
(True, array([1073741824, 1073741825, 1065353216,          0], dtype=uint32))
>>> columns.values_of(0, columns.codes[0])
array([ 2., nan,  1.,  0.])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import claimed
from dtrees.split.numbers.ordered import float32_of_key
from dtrees.split.policy import CODES_FOR_LISTED, CODES_FOR_PICKED, DISK_BYTES
from dtrees.split.table.columns import MAX_ROWS, Assembly, Columns
from dtrees.split.table.mmap_arrays import Allocate, beside, forget, is_on_disk, mapped

#: Rows that are transposed at a time, from rows side by side to columns: they fit the processor's cache.
_BLOCK = 1024
#: Cells of a column that are turned into keys at a time, for the same reason.
_CELLS = 1 << 15
_SIGN = np.uint32(0x80000000)
#: Ranges of codes by which parts are looked up; and rows that are looked up in one column before the next.
_STRETCH_BITS, _ROWS_AT_A_TIME = 16, 4096


def arrange_rows(
    read: Callable[[int], Sequence[NDArray[Any]]],
    lengths: Sequence[int],
    n_columns: int,
    map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map,
    allocate: Allocate = mapped,
) -> Columns:
    """Return columns for rows that stay on their worker: keyed if float32 holds all values, otherwise sorted.

    Parameters
    ----------
    read : callable
        Returns the columns of a chunk, given its number; called again for each chunk if columns have to be sorted.
    lengths : sequence of int
        Rows of each chunk.
    n_columns : int
    map : callable, default=map
        See :func:`~dtrees.split.table.columns.presort`.
    allocate : callable, default=mapped
        Allocates the arrays, in memory or on disk (:mod:`dtrees.split.table.mmap_arrays`). On disk, columns are read and written one by
        one, and chunks may be on disk, too.
    """
    firsts = np.cumsum([0, *lengths]).tolist()
    keyed = _keyed(read, firsts, n_columns, map, allocate)
    if keyed is not None:
        return keyed.finished(map)
    chunks = [list(read(i)) for i in range(len(lengths))]
    assembly = Assembly(firsts[-1], n_columns, allocate)

    def sort(j: int) -> None:
        mine = [chunk[j] for chunk in chunks]
        assembly.sort(j, mine[0] if len(mine) == 1 else np.concatenate(mine))
        forget(*mine)
        for chunk in chunks:
            chunk[j] = None  # type: ignore[call-overload]

    list(map(sort, range(n_columns)))
    return assembly.finished()


def _keyed(read: Any, firsts: list[int], n_columns: int, map: Any, allocate: Allocate) -> KeyedAssembly | None:
    assembly = KeyedAssembly(firsts[-1], n_columns, allocate)
    are_small = map(lambda i: assembly.put(firsts[i], read(i)), range(len(firsts) - 1))
    return assembly if all(are_small) else None


class KeyedAssembly:
    """Builder of keyed columns, which are written to their final memory.

    Parameters
    ----------
    n_rows, n_columns : int
    allocate : callable, default=mapped
        See :func:`arrange_rows`.
    """

    def __init__(self, n_rows: int, n_columns: int, allocate: Allocate = mapped) -> None:
        if n_rows > MAX_ROWS:
            raise ValueError(f"X has {n_rows} rows; dtrees numbers rows with 32 bits and takes at most {MAX_ROWS}.")
        self._values = allocate(n_columns * n_rows, np.float32).reshape(n_columns, n_rows)

    def put(self, first: int, columns: Sequence[NDArray[Any]]) -> bool:
        """Store some rows, given by column; return whether float32 holds all their values."""
        n = len(columns[0])
        small = [np.can_cast(column.dtype, np.float32) for column in columns]
        with np.errstate(over="ignore"):
            for begin in range(0, n, _BLOCK):
                end = min(begin + _BLOCK, n)
                for j, column in enumerate(columns):
                    some, place = column[begin:end], self._values[j, first + begin : first + end]
                    place[:] = some
                    if not small[j] and not np.array_equal(some, place, equal_nan=some.dtype.kind == "f"):
                        return False
        forget(self._values, *columns)
        return True

    def finished(self, map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map) -> Columns:
        """Return the columns, after all rows have been stored; ``map`` is as in :func:`~dtrees.split.table.columns.presort`."""
        values = self._values
        del self._values

        def make(j: int) -> tuple[np.float32, int]:
            found = _to_codes(values[j])
            forget(values[j])
            return found

        made = list(map(make, range(values.shape[0])))
        offsets = np.zeros(len(made) + 1, np.int64)
        np.cumsum([n_codes for _, n_codes in made], out=offsets[1:])
        # One word for each column, and one more if these could be mistaken for all distinct values.
        words = np.zeros((len(made) + int(offsets[-1] == len(made)), 1), np.float32)
        words[: len(made), 0] = [low for low, _ in made]
        return Columns(values.view(np.uint32), words, offsets)


def _to_codes(values: NDArray[np.float32]) -> tuple[np.float32, int]:
    """Replace the values of a column by codes; return the lowest value and the code of missing ones."""
    none = np.uint32(0xFFFFFFFF)
    lowest, highest = none, np.uint32(0)
    for begin in range(0, values.shape[0], _CELLS):
        some = values[begin : begin + _CELLS]
        missing = np.isnan(some)
        with np.errstate(invalid="ignore"):
            some += np.float32(0.0)  # -0.0 and 0.0 are one value
        keys = some.view(np.uint32)
        keys ^= (keys.view(np.int32) >> 31).view(np.uint32) | _SIGN
        if missing.any():
            keys[missing] = 0
            highest = max(highest, keys.max())
            keys[missing] = none
        else:
            highest = max(highest, keys.max())
        lowest = min(lowest, keys.min())
    codes = values.view(np.uint32)
    if lowest == none:
        codes[:] = 0
        return np.float32(0.0), 0
    n_codes = int(highest) - int(lowest) + 1
    for begin in range(0, values.shape[0], _CELLS):
        some_codes = codes[begin : begin + _CELLS]
        some_codes -= lowest
        np.minimum(some_codes, np.uint32(n_codes), out=some_codes)
    return float32_of_key(np.array([lowest], np.uint32))[0], n_codes


def write_parts(
    columns: Columns,
    first_codes: NDArray[np.int64],
    n_parts: NDArray[np.int64],
    map: Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]] = map,
) -> NDArray[np.uint16]:
    """Return the part of each cell, of shape (n_rows, n_columns), on disk if the codes are.

    Parameters
    ----------
    columns : Columns
        May be keyed or not.
    first_codes : ndarray of int64, shape (n_columns, most parts + 1)
        The first code of each part, then that of missing values, which are in the part after the last.
    n_parts : ndarray of int64, shape (n_columns,)
    """
    n_rows, k = columns.n_rows, columns.n_columns
    n_codes = np.diff(columns.offsets)
    shifts = np.array([max(0, int(n).bit_length() - _STRETCH_BITS) for n in n_codes], np.int64)
    tables, steps = np.zeros((k, int((n_codes >> shifts).max(initial=0)) + 1), np.uint16), np.zeros(k, np.int64)
    for j in range(k):
        ranges = np.arange((int(n_codes[j]) >> int(shifts[j])) + 1) << shifts[j]
        table = np.searchsorted(first_codes[j, : n_parts[j] + 1], ranges, side="right") - 1
        tables[j, : table.shape[0]] = table
        steps[j] = int(np.diff(table, append=n_parts[j]).max()).bit_length()
    firsts = np.full((k, first_codes.shape[1] + (1 << int(steps.max(initial=0)))), 0xFFFFFFFF, np.uint32)
    for j in range(k):
        firsts[j, : n_parts[j] + 1] = first_codes[j, : n_parts[j] + 1]
    part = beside(columns.codes)(n_rows * k, np.uint16).reshape(n_rows, k)
    step = max(_ROWS_AT_A_TIME, -(-n_rows // 64))
    if is_on_disk(part):
        step = min(step, max(_ROWS_AT_A_TIME, DISK_BYTES // (6 * max(1, k))))

    def write(i: int) -> None:
        _write_parts(columns.codes, firsts, tables, shifts, steps, i, min(i + step, n_rows), part)
        forget(columns.codes, part)

    list(map(write, range(0, n_rows, step)))
    return part


def list_ends(part: NDArray[np.uint16], n_parts: NDArray[np.int64], most: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the rows in the first and the last parts of each column, up to ``most`` at either end, and which parts these are.

    These are ``listed`` and ``ends`` of :class:`~dtrees.split.table.zone_map.ZoneMap`.
    """
    k = part.shape[1]
    listed, ends = np.zeros((k, 2, most), np.uint32), np.zeros((k, 4), np.int64)
    counts = np.zeros((k, int(n_parts.max(initial=0)) + 1), np.int64)
    _count_parts(part, counts)
    for j, n in enumerate(n_parts.tolist()):
        below = np.cumsum(np.append(0, counts[j, :n]))
        low = int(np.searchsorted(below, most, side="right")) - 1
        high = max(low, int(np.searchsorted(below, below[-1] - most)))
        ends[j] = low, high, below[low], below[-1] - below[high]
    _list_ends(part, n_parts, ends, listed)
    return listed, ends


@kernel
def _count_parts(part, counts):
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            counts[j, part[i, j]] += 1


@kernel
def _list_ends(part, n_parts, ends, listed):
    n = np.zeros((part.shape[1], 2), np.int64)
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            mine = np.int64(part[i, j])
            if mine < ends[j, 0] or ends[j, 1] <= mine < n_parts[j]:
                side = np.int64(mine >= ends[j, 0])
                listed[j, side, n[j, side]] = i
                n[j, side] += 1


@kernel
def _write_parts(codes, firsts, tables, shifts, steps, first, last, part):
    one = np.uint64(1)
    for block in range(first, last, _ROWS_AT_A_TIME):
        end = min(block + _ROWS_AT_A_TIME, last)
        for j in range(codes.shape[0]):
            mine, table, shift, n_steps = firsts[j], tables[j], np.uint32(shifts[j]), np.uint64(steps[j])
            for i in range(block, end):
                code = codes[j, i]
                low = np.uint64(table[np.uint64(code >> shift)])
                for k in range(n_steps):  # to the last part that begins at or before the code
                    further = one << (n_steps - one - np.uint64(k))
                    low += further * np.uint64(mine[low + further] <= code)
                part[i, j] = low


_BLOCK_BITS = 16
_PLACE = np.uint64(0xFFFFFFFF)


@by_reference
class PartLists(NamedTuple):
    """The rows of columns, listed part by part.

    Attributes
    ----------
    rows : ndarray of uint16, shape (n_columns, n_rows)
        Rows relative to their blocks. Empty if there are no lists.
    firsts : ndarray of uint32, shape (n_columns, n_blocks, most parts + 2)
        Start of the rows of each part of a block in ``rows``, then of the missing values, and their stop.
    place_of : ndarray of uint32, shape (n_rows,)
        The place of each row (:class:`~dtrees.split.node.partition.RowPartition`); a number beyond all places for other rows.
    """

    rows: NDArray[np.uint16]
    firsts: NDArray[np.uint32]
    place_of: NDArray[np.uint32]


NO_LISTS = PartLists(np.empty((0, 0), np.uint16), np.empty((0, 0, 0), np.uint32), np.empty(0, np.uint32))


def list_parts(part: NDArray[np.uint16], n_parts: NDArray[np.int64], share: Callable[..., Any]) -> PartLists:
    """List the rows of all columns, part by part.

    Parameters
    ----------
    part : ndarray of uint16, shape (n_rows, n_columns)
        The part of each cell; missing values are in the part after the last.
    n_parts : ndarray of int64, shape (n_columns,)
    share : callable
        :meth:`dtrees.engine.threads.Threads.share`, or a function with the same parameters.
    """
    n_rows, k = part.shape
    n_blocks = -(-n_rows // (1 << _BLOCK_BITS))
    firsts = np.zeros((k, n_blocks, int(n_parts.max(initial=0)) + 2), np.uint32)
    rows = mapped(k * n_rows, np.uint16).reshape(k, n_rows)
    share(k, lambda queue, _: _list_columns(queue, part, n_parts, firsts, rows))
    return PartLists(rows, firsts, np.empty(n_rows, np.uint32))


@kernel
def _list_columns(queue, part, n_parts, firsts, rows):
    n_rows = part.shape[0]
    for j in claimed(queue, part.shape[1]):
        n = n_parts[j]
        for block in range(firsts.shape[1]):
            first, begin = firsts[j, block], block << _BLOCK_BITS
            end = min(n_rows, begin + (1 << _BLOCK_BITS))
            for i in range(begin, end):
                first[part[i, j] + 1] += np.uint32(1)
            at = begin
            for p in range(n + 1):  # the start of each part, one element after its own
                size = first[p + 1]
                first[p + 1] = at
                at += size
            for i in range(begin, end):
                place = np.int64(first[part[i, j] + 1])
                rows[j, place] = i - begin
                first[part[i, j] + 1] = place + 1
            first[0] = begin  # each other part starts where the one before stops


@lean_kernel
def are_listed(lists, column, shift, parts, n_rows):
    """Return whether reading all listed rows in parts of a column is faster than reading the ``n_rows`` rows of a node."""
    if lists.rows.shape[0] == 0:
        return False
    n_listed, n_all = ZERO(), lists.place_of.shape[0]
    for part in parts:
        for block in range(lists.firsts.shape[1]):
            first = lists.firsts[column, block]
            n_listed += np.int64(first[(part + 1) << shift]) - np.int64(first[part << shift])
    return float(n_listed) * (CODES_FOR_LISTED - CODES_FOR_PICKED * float(n_rows) / float(n_all)) < float(n_rows)


@lean_kernel
def take_listed(lists, column, shift, parts, start, stop, keys, ends):
    """Write ``row << 32 | place`` for a node's rows in parts of a column to ``keys``, part after part, with places from 0.

    ``ends[p]`` becomes the number of keys up to the end of part p. Returns the number of keys.
    """
    at, size, begin, place_of = np.uint64(0), np.uint64(stop - start), np.uint64(start), lists.place_of
    listed = lists.rows[column]
    for p in range(parts.shape[0]):
        low, high = parts[p] << shift, (parts[p] + 1) << shift
        for block in range(lists.firsts.shape[1]):
            first, base = lists.firsts[column, block], np.uint64(block) << np.uint64(_BLOCK_BITS)
            for i in range(np.uint64(first[low]), np.uint64(first[high])):
                row = base + np.uint64(listed[i])
                place = np.uint64(place_of[row]) - begin
                keys[at] = row << np.uint64(32) | (place & _PLACE)
                at += np.uint64(place < size)
        ends[p] = at
    return np.int64(at)
