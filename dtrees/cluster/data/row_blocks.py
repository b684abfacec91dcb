"""Rows that stay where they are: each worker keeps the rows of the partitions that it has, all columns of them, presorted by itself.

No cell of the table goes to another worker, but for partitions that lie on few workers, or on none that takes part. The tasks::

    check     a partition: its schema, and the summary of its target and weights   ->  merged at the client, as for columns
    (here it is decided which worker keeps which partitions: :func:`share_out`)
    rows      a worker's partitions: columns to numbers, each sorted; target; weights   ->  a :class:`RowBlock`

Where the cells of blocks are to be on disk, a task before that encodes each partition, so that workers have some of these at a time only::

    encode    a partition   ->  a :class:`Piece`, whose numbers are on disk

Like columns, blocks are made again of the user's data where they are lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.column_blocks import ClusterTable
from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.data.placement import Plan
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.cluster.transport.clients import holders
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.threads import Threads
from dtrees.ensemble.backend import LoadOptions
from dtrees.ensemble.checkpoint import array_digest
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import check_target, check_weights, encode_target
from dtrees.split.table.columns import Columns
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.mmap_arrays import Room, forget, is_on_disk, mapped, on_disk

#: Partitions stay with the worker that has them, unless it has so many times its share of the rows without it, or nearly. To move one
#: takes no longer than it makes some trees take. Of eight partitions of a Parquet file, two workers had read five and three in three fits
#: of eight.
_MOST_SHARE = 1.05

Stretch = tuple[int, int]
#: The keys of the tasks for partitions of X, of y, and of weights or None.
Keys = tuple[list[str], list[str], list[str] | None]


@dataclass(frozen=True)
class RowBlock:
    """The rows of some partitions.

    Attributes
    ----------
    columns : Columns
        All columns of the table; codes are of these rows' values.
    stretches : list of (int, int)
        The number in the table of the first row of each partition, and the one after its last; ascending.
    target : ndarray, shape (n_rows,) or (n_rows, k)
    weight : ndarray of float64, shape (n_rows,), or None
    """

    columns: Columns
    stretches: list[Stretch]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays that are in memory."""
        arrays = [self.columns.codes, self.columns.words, self.target, self.weight]
        return sum(array.nbytes for array in arrays if array is not None and not is_on_disk(array))


class Piece:
    """The columns of a partition as numbers, on the disk of the worker that has made them.

    Where one is sent to another worker, it is in memory there: Dask reads what comes outside of tasks, where no worker's folder is known.

    Parameters
    ----------
    columns : sequence of ndarray, shape (n_rows,)
    """

    def __init__(self, columns: Sequence[NDArray[Any]]) -> None:
        sizes = np.array([column.nbytes for column in columns], np.int64)
        begins = np.concatenate([[0], np.cumsum(sizes + -sizes % 8)])  # of numbers of 8 bytes or less
        whole = _room(is_on_disk=True)(int(begins[-1]), np.uint8)
        self.columns = [
            whole[begin : begin + column.nbytes].view(column.dtype) for begin, column in zip(begins[:-1].tolist(), columns, strict=True)
        ]
        for own, column in zip(self.columns, columns, strict=True):
            own[:] = column
        forget(whole)

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays that are in memory."""
        return sum(column.nbytes for column in self.columns if not is_on_disk(column))


@dataclass(frozen=True)
class RowEncoding:
    """How partitions become numbers, and whether those of cells are put on disk."""

    schema: Schema
    classes: Any
    estimator: str
    several: bool
    is_on_disk: bool


@dataclass(frozen=True)
class ClusterRows(ClusterTable):
    """The rows of a table, on a cluster; each block is a :class:`RowBlock`, for a shard.

    Attributes
    ----------
    stretches : list of list of (int, int)
        Of each block.
    parts : list of Keys
        Of the partitions of each block. What they stand for is not kept; Dask knows how to make it again.
    encoding : RowEncoding
    """

    stretches: list[list[Stretch]]
    parts: list[Keys]
    encoding: RowEncoding

    def rows_of(self, i: int) -> int:
        """Return the number of rows of a block."""
        return sum(last - first for first, last in self.stretches[i])

    def _moves_from(self, having: set[str], worker: str) -> bool:
        """One whose cells are on disk is always made again: what moves takes memory."""
        return worker in having if self.encoding.is_on_disk else bool(having)

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        X, y, weight = self.parts[i]
        found = None if weight is None else tasks.find(weight)
        return _make_block(tasks, tasks.find(X), tasks.find(y), found, self.stretches[i], self.encoding, worker)


def share_out(lengths: Sequence[int], there: Sequence[Collection[str]], threads: Mapping[str, int]) -> dict[str, list[int]]:
    """Return which partitions each worker keeps, ascending; workers without any are left out.

    Parameters
    ----------
    lengths : sequence of int
        Rows of each partition.
    there : sequence of collection of str
        The workers that have it already.
    threads : mapping from str to int
        The workers to choose from, with their shares of the work.

    Examples
    --------
    >>> share_out([10, 10, 10, 1], [["a"], ["a", "b"], ["b"], ["c"]], {"a": 1, "b": 1})
    {'a': [0, 3], 'b': [1, 2]}
    >>> share_out([10, 10], [["a"], ["a"]], {"a": 1, "b": 1})  # one worker is not left with all of them
    {'a': [0], 'b': [1]}
    >>> share_out([10] * 8, [["a"]] * 5 + [["b"]] * 3, {"a": 1, "b": 1})  # nor with a quarter more than its share
    {'a': [0, 1, 2, 3], 'b': [4, 5, 6, 7]}
    >>> share_out([10] * 5, [["a"]] * 2 + [["b"]] * 3, {"a": 1, "b": 1})  # none is moved where one has to have more than the other
    {'a': [0, 1], 'b': [2, 3, 4]}
    """
    share = {worker: sum(lengths) * n / sum(threads.values()) for worker, n in threads.items()}
    load = dict.fromkeys(sorted(threads), 0)
    kept: dict[str, list[int]] = {}

    def filled(worker: str) -> tuple[float, bool, str]:
        return load[worker] / threads[worker], worker not in there[i], worker

    def stays(worker: str) -> bool:
        return load[worker] + lengths[i] <= _MOST_SHARE * share[worker] or _MOST_SHARE * load[worker] < share[worker]

    # Those that lie on few workers first: the others can do with what is left.
    for i in sorted(range(len(lengths)), key=lambda i: (len(there[i]) or len(threads), -lengths[i], i)):
        having = [worker for worker in there[i] if worker in load and stays(worker)]
        worker = min(having or load, key=filled)
        load[worker] += lengths[i]
        kept.setdefault(worker, []).append(i)
    return {worker: sorted(kept[worker]) for worker in sorted(kept)}


def partition_holders(client: Client, parts: Sequence[Future]) -> list[list[str]]:
    """Return the workers that have each partition, without those that are silent."""
    having = holders(client, [part.key for part in parts])
    silent = current_fit().heartbeats.silent
    return [[worker for worker in having[part.key] if worker not in silent] for part in parts]


def load_rows(
    tasks: Tasks, parts: Partitions, plan: Plan, shares: Mapping[str, Sequence[int]], schema: Schema, classes: Any, options: LoadOptions
) -> ClusterRows:
    """Have each worker take over the rows of the partitions that are its share."""
    encoding = RowEncoding(schema, classes, options.estimator_name, options.several, plan.placement.storage == "disk")
    ends = np.cumsum(parts.lengths).tolist()
    blocks, stretches, keys = [], [], []
    for worker, own in shares.items():
        stretches.append([(ends[i] - parts.lengths[i], ends[i]) for i in own])
        X, y = [parts.X[i] for i in own], [parts.y[i] for i in own]
        weight = None if parts.weight is None else [parts.weight[i] for i in own]
        blocks.append(_make_block(tasks, X, y, weight, stretches[-1], encoding, worker))
        keys.append(([part.key for part in X], [part.key for part in y], None if weight is None else [part.key for part in weight]))
    release([*parts.X, *parts.y, *(parts.weight or ())])
    tasks.waiter.wait(blocks)
    tasks.keep(*blocks)
    return ClusterRows(
        tasks.client, plan.placement, blocks, list(shares), ends[-1], schema, plan.sizes, plan.spare, stretches, keys, encoding
    )


def _make_block(
    tasks: Tasks,
    X: list[Future],
    y: list[Future],
    weight: list[Future] | None,
    stretches: list[Stretch],
    encoding: RowEncoding,
    worker: str,
) -> Future:
    """Start making a block on a worker."""
    there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
    if encoding.is_on_disk:
        X = tasks.map("encode", _encode, X, schema=encoding.schema, **there)
    return tasks.submit("rows", _load, X, y, weight, stretches, encoding, **there)


def _room(is_on_disk: bool) -> Room:
    """Return what makes arrays on the worker that this runs on, in memory or in its local directory."""
    return partial(on_disk, get_worker().local_directory) if is_on_disk else mapped


def _encode(X: Any, schema: Schema) -> Piece:
    return Piece(schema.encode(X))


def _load(X: list[Any], y: list[Any], weight: list[Any] | None, stretches: list[Stretch], encoding: RowEncoding) -> RowBlock:
    """Put the rows of some partitions in order; those that are on disk are encoded already."""
    schema = encoding.schema
    lengths = [last - first for first, last in stretches]
    with Threads(threads_of(get_worker())) as threads:
        columns = arrange_rows(
            lambda i: X[i].columns if encoding.is_on_disk else schema.encode(X[i]),
            lengths,
            len(schema),
            threads.map,
            _room(encoding.is_on_disk),
        )
    classify = encoding.classes is not None
    targets = [
        encode_target(check_target(part, classify=classify, name=encoding.estimator, several=encoding.several), encoding.classes)
        for part in y
    ]
    weights = None if weight is None else [check_weights(part, len(part)) for part in weight]
    return RowBlock(
        columns,
        stretches,
        np.asarray(np.concatenate(targets), order="F"),
        None if weights is None else np.concatenate([one for one in weights if one is not None]),
    )


def digests(tasks: Tasks, rows: ClusterRows) -> tuple[list[str], str, str | None]:
    """Return the digest of each column, of the target and of weights: those of a table that is placed otherwise.

    A column at a time is put together by a task.
    """
    blocks, n = rows.blocks, rows.n_rows
    columns = []
    for j in range(rows.n_columns):
        distinct = tasks.submit("digest", _merged, tasks.map("digest", _distinct, blocks, column=j))
        codes = tasks.map("digest", _codes, blocks, [distinct] * len(blocks), column=j)
        columns.append(tasks.submit("digest", _digest, codes, rows.stretches, n, distinct))
        tasks.waiter.wait([columns[-1]])
    names = ["target", *(["weight"] if rows.parts[0][2] is not None else [])]
    vectors = [
        tasks.submit("digest", _digest, tasks.map("digest", getattr, blocks, [name] * len(blocks)), rows.stretches, n) for name in names
    ]
    target, weight = (*tasks.waiter.gather(vectors), None)[:2]
    return tasks.waiter.gather(columns), target, weight


def _distinct(block: RowBlock, column: int) -> NDArray[np.float64]:
    codes = np.unique(block.columns.codes[column])
    forget(block.columns.codes[column])
    return block.columns.values_of(column, codes[codes < block.columns.missing(column)])


def _merged(distinct: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.unique(np.concatenate(distinct))


def _codes(block: RowBlock, distinct: NDArray[np.float64], column: int) -> NDArray[np.uint32]:
    """Return the codes of a block's rows among the distinct values of all."""
    codes, which = np.unique(block.columns.codes[column], return_inverse=True)
    forget(block.columns.codes[column])
    mine = block.columns.values_of(column, codes)
    return np.where(np.isnan(mine), len(distinct), np.searchsorted(distinct, mine)).astype(np.uint32)[which]


def whole(tasks: Tasks, rows: ClusterRows, name: str) -> NDArray[Any]:
    """Fetch the "target" or "weight" of all rows, in their order; of several targets, each one's rows are side by side."""
    pieces = tasks.waiter.gather(tasks.map(name, getattr, rows.blocks, [name] * len(rows.blocks)))
    return np.asarray(in_order(pieces, rows.stretches, rows.n_rows), order="F")


def _digest(pieces: list[NDArray[Any]], stretches: Sequence[Sequence[Stretch]], n_rows: int, *others: NDArray[Any]) -> str:
    """Return the digest of values of all rows, given by block, in their order."""
    return array_digest(in_order(pieces, stretches, n_rows), *others)
