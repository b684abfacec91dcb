"""Sums of nodes as they travel: packed by the shard that has made them, added up by the one that searches their columns."""

from __future__ import annotations

import numpy as np

from dtrees.split.compile.kernels import kernel
from dtrees.split.compile.work_queue import claim, finish
from dtrees.split.numbers.packed import BLOCK, add_bytes, pack_bytes
from dtrees.split.zones.sums import numbers_of


@kernel
def pack_sums(queue, tasks, sums, columns, kept, out, ends):
    """Pack the sums of nodes in the columns of other searchers, and copy those in a shard's own, by several threads.

    Parameters
    ----------
    queue : ndarray of int64
    tasks : ndarray of int64, shape (n, 6)
        First and last slot; which of ``columns``, from the first to the last; where to begin in ``out``, -1 to copy; where in ``kept``, or
        in ``ends``.
    sums : Sums
    columns : ndarray of int64
        Places among the columns of the slots.
    kept : ndarray of int64
        Written: copies, slot by slot.
    out : ndarray of uint8
        Written: packed sums; of each task there must be room for them.
    ends : ndarray of int64
        Written: where those of each slot end in ``out``.
    """
    block = np.empty((sums.width, BLOCK + 1), np.int64)
    while True:
        t = claim(queue)
        if t >= tasks.shape[0]:
            return
        first, last, first_column, last_column, at, place = tasks[t]
        for slot in range(first, last):
            for j in columns[first_column:last_column]:
                numbers = numbers_of(sums, slot, j, j + 1)
                if at < 0:
                    kept[place : place + numbers.shape[0]] = numbers
                    place += numbers.shape[0]
                else:
                    at = pack_bytes(numbers, sums.width, out, at, block)
            if at >= 0:
                ends[place + slot - first] = at
        finish(queue)


@kernel
def pack_numbers(numbers, width, out, at):
    """Write numbers to ``out``, packed, from place ``at`` on; return where they end."""
    return pack_bytes(numbers, width, out, at, np.empty((width, BLOCK + 1), np.int64))


@kernel
def add_packed(queue, tasks, packed, width, numbers, out, failed):
    """Add packed sums to others, by several threads.

    Parameters
    ----------
    tasks : ndarray of int64, shape (n, 4)
        Where they begin in ``packed``, where those that they are added to begin in ``numbers``, where to write the sums in ``out``, and how
        many numbers they are.
    packed : ndarray of uint8
    width : int
    numbers, out : ndarray of int64
        They may be the same.
    failed : ndarray of int64, shape (1,)
        Set to 1 where they are not so many.
    """
    while True:
        t = claim(queue)
        if t >= tasks.shape[0]:
            return
        at, first, place, n = tasks[t]
        if not add_bytes(packed, at, width, numbers[first : first + n], out[place : place + n]):
            failed[0] = 1
        finish(queue)


@kernel
def add_numbers(queue, tasks, numbers, out, adds):
    """Write numbers that are not packed to ``out``, or add them, by several threads; ``tasks`` are those of :func:`add_packed`."""
    while True:
        t = claim(queue)
        if t >= tasks.shape[0]:
            return
        _, first, place, n = tasks[t]
        if adds:
            for i in range(n):
                out[place + i] += numbers[first + i]
        else:
            out[place : place + n] = numbers[first : first + n]
        finish(queue)
