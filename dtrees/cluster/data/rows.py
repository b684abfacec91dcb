"""Tables by rows on a cluster: the rows of partitions, presorted on their workers.

Each worker keeps the rows of its partitions, with all columns, and presorts them itself. No cell of the table is sent to another worker,
except partitions on few workers or on workers that do not take part (:func:`~dtrees.cluster.data.placement.share_out`)::

    rows      a worker's partitions: columns to numbers, each sorted; target; weights   ->  a :class:`RowBlock`

If cells are stored on disk, a preceding task encodes each partition, so that workers hold only some partitions at a time::

    encode    a partition   ->  an :class:`EncodedPartition`, whose numbers are on disk
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Self

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.data.placement import Plan
from dtrees.cluster.data.tables import ClusterTable, Encoding, join_targets, join_weights
from dtrees.cluster.reliability.waiting import Tasks, release
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.threads import Threads, available_cores
from dtrees.ensemble.checkpoint import array_digest
from dtrees.ensemble.input.schema import Schema
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.mmap_arrays import Allocate, forget, is_on_disk, mapped, on_disk

RowRange = tuple[int, int]


@dataclass(frozen=True)
class RowBlock:
    """The rows of some partitions.

    Attributes
    ----------
    columns : Columns
        All columns of the table; codes refer to the distinct values of these rows.
    ranges : list of (int, int)
        The table's row number of the first row of each partition, and the number after its last; ascending.
    target : ndarray, shape (n_rows,) or (n_rows, k)
    weight : ndarray of float64, shape (n_rows,), or None
    """

    columns: Columns
    ranges: list[RowRange]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays in memory."""
        arrays = [self.columns.codes, self.columns.words, self.target, self.weight]
        return sum(array.nbytes for array in arrays if array is not None and not is_on_disk(array))


class WeightedBlock(RowBlock):
    """A block that shares the arrays of another one, except its weights."""

    @classmethod
    def of(cls, block: RowBlock, chunks: list[NDArray[np.float64]]) -> WeightedBlock:
        """Return a block with the given weights."""
        return cls(block.columns, block.ranges, block.target, np.concatenate(chunks))

    def __sizeof__(self) -> int:
        """Return the bytes of the weights."""
        return 0 if self.weight is None else self.weight.nbytes


class EncodedPartition:
    """The columns of a partition as numbers, on the disk of the worker that encoded them.

    If it is sent to another worker, it is in memory there: Dask deserializes outside of tasks, where the worker's folder is unknown.

    Parameters
    ----------
    columns : sequence of ndarray, shape (n_rows,)
    """

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        sizes = np.array([column.nbytes for column in columns], np.int64)
        begins = np.concatenate([[0], np.cumsum(sizes + -sizes % 8)])  # of numbers of at most 8 bytes
        whole = _allocator(is_on_disk=True)(int(begins[-1]), np.uint8)
        self.columns = [
            whole[begin : begin + column.nbytes].view(column.dtype) for begin, column in zip(begins[:-1].tolist(), columns, strict=True)
        ]
        for own, column in zip(self.columns, columns, strict=True):
            own[:] = column
        forget(whole)

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays in memory."""
        return sum(column.nbytes for column in self.columns if not is_on_disk(column))


@dataclass(frozen=True)
class ClusterRows(ClusterTable):
    """The rows of a table on a cluster; each block is a :class:`RowBlock` of a shard.

    Attributes
    ----------
    ranges : list of list of (int, int)
        The row ranges of each block.
    parts : list of list of list of str, or None
        For each block, the keys of the tasks for partitions of X, of y, and of weights. Their results are not stored; Dask can compute them
        again.
    """

    ranges: list[list[RowRange]]
    parts: list[list[list[str] | None]]
    places_rows = True

    def shard(self, i: int) -> tuple[Any, ...]:
        """Return a block, and the number of all rows."""
        return self.blocks[i], self.n_rows

    def share(self, i: int) -> tuple[int, int]:
        """Return the number of columns and of rows of a block."""
        return self.n_columns, sum(last - first for first, last in self.ranges[i])

    def needed(self, i: int) -> int:
        """Return the bytes that a worker needs for the rows of a block."""
        return self.plan.sizes.needed_for_rows(self.share(i)[1], on_disk=self.encoding.is_on_disk)

    def weighted(self, tasks: Tasks, weight: NDArray[np.float64]) -> tuple[Self, list[Future]]:
        """Return the rows with other weights, and the futures created for these."""
        sent: list[Future] = []
        blocks, parts = [], []
        for block, worker, ranges, (X, y, _) in zip(self.blocks, self.workers, self.ranges, self.parts, strict=True):
            chunks = [tasks.send("weight", weight[first:last], worker) for first, last in ranges]
            blocks.append(tasks.submit("weight", WeightedBlock.of, block, chunks, on=worker))
            parts.append([X, y, [chunk.key for chunk in chunks]])
            sent += [*chunks, blocks[-1]]
        return replace(self, blocks=blocks, parts=parts, workers=list(self.workers)), sent

    def _moves_from(self, having: set[str], worker: str) -> bool:
        """A block with cells on disk is made again instead of moved, as the moved one would be in memory."""
        return worker in having if self.encoding.is_on_disk else bool(having)

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        given = [None if keys is None else tasks.find(keys) for keys in self.parts[i]]
        return _make_block(tasks, given, self.ranges[i], self.encoding, worker)

    def _vector(self, tasks: Tasks, name: str) -> Future:
        chunks = tasks.map(name, getattr, self.blocks, [name] * len(self.blocks))
        return tasks.submit(name, in_order, chunks, self.ranges, self.n_rows)

    def _column_digests(self) -> list[str]:
        """Return the digest of each whole column. A task combines one column at a time."""
        return [self._column_digest(j) for j in range(self.n_columns)]

    def _column_digest(self, column: int) -> str:
        with Tasks(self.client) as tasks:
            distinct = tasks.submit("digest", _merged, tasks.map("digest", _distinct, self.blocks, column=column))
            chunks = tasks.map("digest", _codes, self.blocks, [distinct] * len(self.blocks), column=column)
            codes = tasks.submit("digest", in_order, chunks, self.ranges, self.n_rows)
            return str(tasks.waiter.gather([tasks.submit("digest", array_digest, codes, distinct)])[0])


def load_rows(
    tasks: Tasks, parts: Partitions, plan: Plan, n_rows: int, encoding: Encoding, shares: Mapping[str, Sequence[int]]
) -> ClusterRows:
    """Have each worker load the rows of its share of partitions."""
    ends = np.cumsum(parts.lengths).tolist()
    blocks, ranges, keys = [], [], []
    for worker, own in shares.items():
        ranges.append([(ends[i] - parts.lengths[i], ends[i]) for i in own])
        given = [None if of is None else [of[i] for i in own] for of in (parts.X, parts.y, parts.weight)]
        blocks.append(_make_block(tasks, given, ranges[-1], encoding, worker))
        keys.append([None if of is None else [part.key for part in of] for of in given])
    release(parts.futures)
    tasks.waiter.wait(blocks)
    tasks.keep(*blocks)
    return ClusterRows(tasks.client, plan, encoding, n_rows, blocks, list(shares), ranges, keys)


def _make_block(tasks: Tasks, given: Sequence[Any], ranges: list[RowRange], encoding: Encoding, worker: str) -> Future:
    """Start making a block on a worker from partitions of X, y and weights."""
    X, y, weight = given
    if encoding.is_on_disk:
        X = tasks.map("encode", _encode, X, schema=encoding.schema, on=worker)
    return tasks.submit("rows", _load, X, y, weight, ranges, encoding, on=worker)


def _allocator(is_on_disk: bool) -> Allocate:
    """Return the function that allocates arrays on the current worker, in memory or in its local directory."""
    return partial(on_disk, get_worker().local_directory) if is_on_disk else mapped


def _encode(X: Any, schema: Schema) -> EncodedPartition:
    return EncodedPartition(schema.encode(X))


def _load(X: list[Any], y: list[Any], weight: list[Any] | None, ranges: list[RowRange], encoding: Encoding) -> RowBlock:
    """Combine the rows of partitions, which are already encoded if they are on disk."""
    schema, is_on_disk = encoding.schema, encoding.is_on_disk
    lengths = [last - first for first, last in ranges]
    encode = attrgetter("columns") if is_on_disk else schema.encode
    with Threads(available_cores()) as threads:
        columns = arrange_rows(lambda i: encode(X[i]), lengths, len(schema), threads.map, _allocator(is_on_disk))
    target = join_targets([encoding.target(part) for part in y])
    return RowBlock(columns, ranges, target, None if weight is None else join_weights(weight))


def _distinct(block: RowBlock, column: int) -> NDArray[np.float64]:
    codes = np.unique(block.columns.codes[column])
    forget(block.columns.codes[column])
    return block.columns.values_of(column, codes[codes < block.columns.missing(column)])


def _merged(distinct: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.unique(np.concatenate(distinct))


def _codes(block: RowBlock, distinct: NDArray[np.float64], column: int) -> NDArray[np.uint32]:
    """Return the codes of a block's rows among the distinct values of all rows."""
    codes, which = np.unique(block.columns.codes[column], return_inverse=True)
    forget(block.columns.codes[column])
    mine = block.columns.values_of(column, codes)
    return np.where(np.isnan(mine), len(distinct), np.searchsorted(distinct, mine)).astype(np.uint32)[which]
