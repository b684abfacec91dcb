"""The rows of each column listed part by part (:mod:`dtrees.split.table.zone_map`), in two bytes a cell.

To find a node's rows in a few parts of a column, one compares the codes of all of them, or looks at all rows of the table in these parts,
and asks where each is now. In large nodes the latter are far fewer.

Rows are listed by blocks of ``2**16``, of each block part after part, as their distances from the first row of the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.split.compile.by_reference import by_reference
from dtrees.split.compile.kernels import ZERO, kernel, lean_kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.policy import CODES_FOR_LISTED, CODES_FOR_PICKED
from dtrees.split.table.mmap_arrays import mapped

_BLOCK_BITS = 16
_PLACE = np.uint64(0xFFFFFFFF)


@by_reference
class PartLists(NamedTuple):
    """Rows of columns, listed part by part.

    Attributes
    ----------
    rows : ndarray of uint16, shape (n_columns, n_rows)
        Rows within their blocks. Empty where there are no lists.
    firsts : ndarray of uint32, shape (n_columns, n_blocks, most parts + 2)
        Where the rows of each part of a block begin in ``rows``, then those of missing values, and where these end.
    place_of : ndarray of uint32, shape (n_rows,)
        The place of each row (:class:`~dtrees.split.node.partition.RowPartition`); of a row that has none, more than there are.
    """

    rows: NDArray[np.uint16]
    firsts: NDArray[np.uint32]
    place_of: NDArray[np.uint32]


NO_LISTS = PartLists(np.empty((0, 0), np.uint16), np.empty((0, 0, 0), np.uint32), np.empty(0, np.uint32))


def list_parts(part: NDArray[np.uint16], n_parts: NDArray[np.int64], share: Callable[..., Any]) -> PartLists:
    """List the rows of all columns.

    Parameters
    ----------
    part : ndarray of uint16, shape (n_rows, n_columns)
        That of each cell; missing ones are in a part after the last.
    n_parts : ndarray of int64, shape (n_columns,)
    share : callable
        :meth:`dtrees.engine.threads.Threads.share`, or what takes its arguments.
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
    while True:
        j = claim(queue)
        if j >= part.shape[1]:
            return
        n = n_parts[j]
        for block in range(firsts.shape[1]):
            first, begin = firsts[j, block], block << _BLOCK_BITS
            end = min(n_rows, begin + (1 << _BLOCK_BITS))
            for i in range(begin, end):
                first[part[i, j] + 1] += np.uint32(1)
            at = begin
            for p in range(n + 1):  # where each part begins, one place further than it is to be noted
                size = first[p + 1]
                first[p + 1] = at
                at += size
            for i in range(begin, end):
                place = np.int64(first[part[i, j] + 1])
                rows[j, place] = i - begin
                first[part[i, j] + 1] = place + 1
            first[0] = begin  # and the others where the one before ends
        finish(queue)


@lean_kernel
def are_listed(lists, column, shift, parts, n_rows):
    """Tell whether to look at all listed rows in parts of a column is faster than at a node's rows, of which there are so many."""
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
    """Write ``row << 32 | place`` of a node's rows in parts of a column to ``keys``, part after part, places from 0.

    ``ends`` is written for each part: how many keys there are up to its last one. Returns how many there are.
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
