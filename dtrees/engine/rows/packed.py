"""Packed sums, in which shards send sums to each other (:mod:`dtrees.split.numbers.packed`): small numbers take few bytes.

Packed sums are one self-describing array of bytes: the number of values of an element, the number of chunks, the first byte and the first
number of each chunk, then the data. Sums that a shard does not send are not packed.

>>> one, other = np.array([5, -3, 0, 1 << 40]), np.array([1, 1, 1, 1])
>>> packed = pack(one, 2)
>>> packed.dtype, add_up([packed, other]).tolist()
(dtype('uint8'), [6, -2, 1, 1099511627777])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.shard.targets.places import as_columns, bounds_of
from dtrees.engine.threads import Threads
from dtrees.split.numbers.packed import SPARE, packed_size
from dtrees.split.table.mmap_arrays import mapped
from dtrees.split.zones.over_shards.node_sums import add_numbers, add_packed, pack_numbers, pack_sums
from dtrees.split.zones.sums import Sums

_ALONE = Threads(1)


class PackedSumsMismatch(RuntimeError):
    """The sums received from a shard do not match those that were requested."""


class _Head(NamedTuple):
    """The header of packed sums; both arrays have shape (n_chunks + 1,)."""

    width: int
    bytes: NDArray[np.int64]
    numbers: NDArray[np.int64]


def _head_of(packed: NDArray[np.uint8]) -> _Head:
    width, n = packed[:16].view(np.int64).tolist()
    begins = packed[16 : 16 * (n + 2)].view(np.int64).reshape(2, n + 1)
    return _Head(width, begins[0], begins[1])


def _write_head(packed: NDArray[np.uint8], head: _Head) -> None:
    n = head.bytes.shape[0] - 1
    numbers = packed[: 16 * (n + 2)].view(np.int64)
    numbers[0], numbers[1], numbers[2 : n + 3], numbers[n + 3 :] = head.width, n, head.bytes, head.numbers


def _head_bytes(n_chunks: int) -> int:
    return 16 * (n_chunks + 2)


def pack(numbers: NDArray[np.int64], width: int, begins: NDArray[np.int64] | None = None) -> NDArray[np.uint8]:
    """Return packed sums with elements of ``width`` numbers; ``begins`` has the bounds of the chunks."""
    begins = np.array([0, numbers.shape[0]]) if begins is None else begins
    n = begins.shape[0] - 1
    packed = np.empty(_head_bytes(n) + packed_size(numbers.shape[0], width, n), np.uint8)
    ends = [_head_bytes(n)]
    for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        ends.append(pack_numbers(numbers[first:last], width, packed, ends[-1]))
    _write_head(packed, _Head(width, np.array(ends), begins))
    return packed[: ends[-1] + SPARE]


def add_up(
    sent: Sequence[NDArray[Any]],
    out: NDArray[np.int64] | None = None,
    places: NDArray[np.int64] | None = None,
    sizes: NDArray[np.int64] | None = None,
    threads: Threads = _ALONE,
) -> NDArray[np.int64]:
    """Add up the sums of several shards.

    Parameters
    ----------
    sent : sequence of ndarray
        Packed sums, all with the same chunks, or unpacked numbers.
    out : ndarray of int64, optional
        Array for the sums; written.
    places, sizes : ndarray of int64, shape (n_chunks,), optional
        The first place of each chunk in ``out``, and its number of values.
    threads : Threads, optional

    Raises
    ------
    PackedSumsMismatch
    """
    packed, numbers = [one for one in sent if one.dtype == np.uint8], [one for one in sent if one.dtype != np.uint8]
    heads = [_head_of(one) for one in packed]
    if sizes is None:
        begins = heads[0].numbers if packed else np.array([0, numbers[0].shape[0]])
        sizes = begins[1:] - begins[:-1]
    first = bounds_of(sizes)
    n_numbers, first = int(first[-1]), first[:-1]
    places = first if places is None else places
    out = np.empty(n_numbers, np.int64) if out is None else out
    failed, before = np.zeros(1, np.int64), out
    if packed and numbers:
        before, numbers = numbers[0], numbers[1:]
    elif packed:
        for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
            out[place : place + size] = 0
    for one, head in zip(packed, heads, strict=True):
        if not np.array_equal(head.numbers[1:] - head.numbers[:-1], sizes):
            raise PackedSumsMismatch("a shard sent sums of other nodes than requested")
        tasks = as_columns(head.bytes[:-1], places if before is out else first, places, sizes)
        _share(threads, add_packed, tasks, one, head.width, before, out, failed)
        before = out
    for i, one in enumerate(numbers):
        _share(threads, add_numbers, as_columns(first, first, places, sizes), one, out, bool(packed) or i > 0)
    if failed[0]:
        raise PackedSumsMismatch("packed sums do not match their header")
    return out


def _share(threads: Threads, kernel: Callable[..., Any], tasks: NDArray[np.int64], *arguments: Any) -> None:
    threads.share(tasks.shape[0], lambda queue, _: kernel(queue, tasks, *arguments))


class SumsToSend:
    """A shard's sums of nodes for all searchers, packed into a buffer that is reused.

    Parameters
    ----------
    shard : int
        The number of the shard, whose own columns are not packed.
    threads : Threads
    """

    def __init__(self, shard: int, threads: Threads) -> None:
        self._shard, self._threads = shard, threads
        self._numbers, self._bytes = mapped(0, np.int64), mapped(0, np.uint8)

    def pack(self, sums: Sums, columns: Sequence[NDArray[np.int64]]) -> list[NDArray[Any]]:
        """Return the sums in the columns of each searcher, node by node; invalidates the arrays returned before.

        Parameters
        ----------
        sums : Sums
            The sums of a node in each slot.
        columns : sequence of ndarray of int64
            The columns of each searcher.
        """
        n, width = sums.grains.shape[0], sums.width
        sizes = (sums.starts[:, 1:] - sums.starts[:, :-1])[sums.grains]
        begins = [bounds_of(sizes[:, mine].sum(axis=1)) for mine in columns]  # in numbers
        n_chunks = max(1, min(self._threads.n_threads, n))
        bounds = [n * i // n_chunks for i in range(n_chunks + 1)]  # each thread packs a chunk of slots
        tasks, places, at, first_column = [], [], 0, 0
        starts: list[list[int]] = [[] for _ in columns]
        for searcher, mine in enumerate(columns):
            last_column = first_column + mine.shape[0]
            places.append(at)
            if searcher == self._shard:
                tasks.append((0, n, first_column, last_column, -1, 0))
            else:
                at += _head_bytes(n)
                for first, last in pairwise(bounds):
                    starts[searcher].append(at - places[searcher])
                    tasks.append((first, last, first_column, last_column, at, searcher * n + first))
                    n_numbers = int(begins[searcher][last] - begins[searcher][first])
                    at += -(-packed_size(n_numbers, width, (last - first) * mine.shape[0]) // 64) * 64
            first_column = last_column
        if self._bytes.shape[0] < at:
            self._bytes = mapped(at, np.uint8, large_pages=False)  # twice the size of the packed sums
        n_unpacked = int(begins[self._shard][-1])
        if self._numbers.shape[0] < n_unpacked:
            self._numbers = mapped(n_unpacked, np.int64)
        out, unpacked, ends = self._bytes, self._numbers[:n_unpacked], np.empty(len(columns) * n, np.int64)
        _share(self._threads, pack_sums, np.array(tasks, np.int64), sums, np.concatenate(columns), unpacked, out, ends)
        sent: list[NDArray[Any]] = []
        for searcher, own_ends in enumerate(ends.reshape(-1, n)):
            if searcher == self._shard:
                sent.append(unpacked)
                continue
            packed, end = out[places[searcher] :], _head_bytes(n)
            own_ends -= places[searcher]
            for start, (first, last) in zip(starts[searcher], pairwise(bounds), strict=True):
                size, by = int(own_ends[last - 1]) - start, start - end
                if by:
                    packed[end : end + size] = packed[start : start + size]
                    own_ends[first:last] -= by
                end += size
            _write_head(packed, _Head(width, np.concatenate([[_head_bytes(n)], own_ends]), begins[searcher]))
            sent.append(packed[: end + SPARE])
        return sent
