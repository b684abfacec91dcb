"""Tables on a cluster: from row partitions to blocks of presorted columns, without a second copy of the table anywhere.

Whole columns
-------------
A block grows on the worker that is to have it, by a chain of tasks that pass on a :class:`~dtrees.split.table.columns.Assembly`. Each of
them sorts some more columns into their places, and the last one makes a block of it. All tasks of a chain work on the same arrays::

    encode    a partition: its columns as numbers, in chunks, one for each step of each chain; the partition is dropped
    split     a chunk of a partition
    presort   a step: the chunks of some columns, of all partitions, are fetched, joined and sorted, and then dropped
    columns   a step of putting sorted blocks side by side, where a worker is to have them all
    target    all partitions: class codes or values; weight alike

Sparse partitions are put together on the worker that is to have them, and presorted there in one task. A step waits for the one before it,
so that there is never more of the table in two places than the columns of a step.

Rows that stay where they are
-----------------------------
Each worker keeps the rows of the partitions that it has, all columns of them, presorted by itself. No cell of the table goes to another
worker, but for partitions that lie on few workers, or on none that takes part (:func:`~dtrees.cluster.data.placement.share_out`)::

    rows      a worker's partitions: columns to numbers, each sorted; target; weights   ->  a :class:`RowBlock`

Where the cells of blocks are to be on disk, a task before that encodes each partition, so that workers have some of these at a time only::

    encode    a partition   ->  a :class:`EncodedPartition`, whose numbers are on disk

Blocks of either kind are made again of the user's data where they are lost.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import getitem
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray
from scipy import sparse

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.memory import Sizes
from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.data.placement import Plan
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.waiting import Tasks, release, same
from dtrees.cluster.transport.clients import holders, threads_of_workers
from dtrees.cluster.transport.events import publish
from dtrees.engine.rows.all_rows import in_order
from dtrees.engine.threads import Threads
from dtrees.ensemble.backend import Placement, Table
from dtrees.ensemble.checkpoint import array_digest, column_digests, table_digest
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import check_target, check_weights, encode_target
from dtrees.split.table.columns import Assembly, Columns
from dtrees.split.table.keyed_columns import arrange_rows
from dtrees.split.table.mmap_arrays import Room, forget, is_on_disk, mapped, on_disk
from dtrees.split.table.sparse_columns import SparseColumns, presort_sparse

#: Steps of a chain: what is in two places at a time is this part of the columns of a worker.
_STEPS = 8
#: The most chunks that the partitions of a large cluster are cut into; the scheduler takes about a millisecond for each.
_MOST_CHUNKS = 20_000

RowRange = tuple[int, int]


@dataclass(frozen=True)
class Encoding:
    """How partitions become numbers, and whether those of cells are put on disk."""

    schema: Schema
    classes: Any
    estimator: str
    multi_output: bool
    is_on_disk: bool

    def target(self, y: Any) -> NDArray[Any]:
        """Return the numbers of a partition's target."""
        return encode_target(
            check_target(y, classify=self.classes is not None, name=self.estimator, multi_output=self.multi_output), self.classes
        )


@dataclass(frozen=True)
class ClusterTable:
    """A table on a cluster, in blocks: of columns, or of rows.

    Attributes
    ----------
    client : distributed.Client
    placement : Placement
    blocks : list of Future
    workers : list of str
        Where each block was made.
    n_rows : int
    schema : Schema
    sizes : Sizes
        What the table takes.
    spare : dict from str to float
        Bytes that workers have left beside blocks and what goes with them, but for evaluation sets.
    """

    client: Client
    placement: Placement
    blocks: list[Future]
    workers: list[str]
    n_rows: int
    schema: Schema
    sizes: Sizes
    spare: dict[str, float]

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return len(self.schema)

    def bring(self, i: int, worker: str) -> Future:
        """Return block ``i`` on another worker: moved there if it is in memory somewhere, else made again from the user's data.

        If left to Dask, it would be made again wherever it pleases, and fetched from there by the worker that needs it: two copies.
        """
        old = self.blocks[i]
        with Tasks(self.client) as tasks:
            having = set(holders(self.client, [old.key])[old.key]) - current_fit().heartbeats.silent.keys()
            if self._moves_from(having, worker):
                new = tasks.submit("moved", same, old, workers=[worker], allow_other_workers=True)
            else:
                new = self._made_again(tasks, i, worker)
            tasks.keep(new)
        self.blocks[i], self.workers[i] = new, worker
        current_fit().own(new)
        old.release()
        return new

    def _moves_from(self, having: set[str], worker: str) -> bool:
        """Return whether a block that some workers have moves from there."""
        return bool(having)

    @abstractmethod
    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        """Start making a block on a worker, of the user's data."""


@dataclass(frozen=True)
class ClusterColumns(ClusterTable):
    """The presorted columns of a table, on a cluster.

    Each block is a :class:`~dtrees.split.table.columns.Columns`: where columns are sharded, one for each shard; else there is one block of
    all of them, which is a :class:`~dtrees.split.table.sparse_columns.SparseColumns` if the table is sparse.

    Attributes
    ----------
    ids : list of list of int
        The columns of each block, ascending.
    partitions : list of str
        The keys of the tasks for X, in row order. Their results are not stored; Dask knows how to make them again.
    cells : int or None
        Stored cells, if the table is sparse.
    """

    ids: list[list[int]]
    partitions: list[str]
    cells: int | None = None

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        return presort_blocks(tasks, tasks.find(self.partitions), self.schema, self.n_rows, {worker: self.ids[i]})[0]


def load_columns(tasks: Tasks, parts: Partitions, plan: Plan, n_rows: int, encoding: Encoding) -> tuple[ClusterColumns, Future, Any]:
    """Have whole columns presorted; return them, the target and the weights."""
    workers, ids, schema = list(plan.columns), list(plan.columns.values()), encoding.schema
    if parts.cells is not None:
        blocks = [presort_stored(tasks, parts.X, schema, n_rows, workers[0])]
    else:
        blocks = presort_blocks(tasks, parts.X, schema, n_rows, plan.columns)
        if plan.placement.kind == "replicated" and len(blocks) > 1:
            blocks = [side_by_side(tasks, blocks, ids, n_rows, workers[0])]
    if plan.placement.kind != "sharded":
        ids, workers = [list(range(len(schema)))], workers[:1]
    codes = tasks.map("encode", _target, parts.y, encoding=encoding)
    target = tasks.submit("target", _join_targets, codes)
    weight = None if parts.weight is None else tasks.submit("weight", _join_weights, parts.weight)
    release([*parts.futures, *codes])  # each goes when the tasks that need it are done
    made = [future for future in (*blocks, target, weight) if future is not None]
    tasks.waiter.wait(made)
    tasks.keep(*made)
    if plan.placement.kind != "sharded":  # shards tell for themselves
        held = {worker: (len(schema), int(plan.needs[worker])) for worker in plan.placement.workers}
        publish(current_fit().name, "holding", rows=n_rows, columns=len(schema), workers=held)
    keys = [future.key for future in parts.X]
    about = (tasks.client, plan.placement, blocks, workers, n_rows, schema, plan.sizes, plan.spare)
    return ClusterColumns(*about, ids, keys, parts.cells), target, weight


def _target(y: Any, encoding: Encoding) -> NDArray[Any]:
    return encoding.target(y)


def _join_targets(chunks: list[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(np.concatenate(chunks), order="F")  # of several targets, each one's rows are side by side


def _join_weights(chunks: list[Any]) -> NDArray[np.float64]:
    return np.concatenate([weight for chunk in chunks if (weight := check_weights(chunk, len(chunk))) is not None])


def presort_blocks(tasks: Tasks, X: Sequence[Future], schema: Schema, n_rows: int, columns: dict[str, list[int]]) -> list[Future]:
    """Return a block for each worker.

    Parameters
    ----------
    tasks : Tasks
    X : sequence of Future
        Partitions in row order.
    schema : Schema
    n_rows : int
    columns : dict from str to list of int
        The columns that each worker is to have.
    """
    most = max(1, min(_STEPS, _MOST_CHUNKS // (len(X) * len(columns))))
    threads = threads_of_workers(tasks.client)
    steps = {worker: _cut(own, most, threads.get(worker, 1)) for worker, own in columns.items()}
    encoded = tasks.map("encode", _encode_steps, X, schema=schema, steps=[step for own in steps.values() for step in own])
    n_steps = 0
    on_the_way, blocks = list(encoded), []
    for worker, own in steps.items():
        there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
        assembly = tasks.submit("presort", Assembly, n_rows, len(columns[worker]), **there)
        first = 0
        for step in own:
            chunks = tasks.map("split", getitem, encoded, [n_steps] * len(encoded))
            on_the_way += [assembly, *chunks]
            assembly = tasks.submit("presort", _sort, assembly, first, chunks, **there)
            n_steps += 1
            first += len(step)
        on_the_way.append(assembly)
        blocks.append(tasks.submit("presort", Assembly.finished, assembly, **there))
    release(on_the_way)  # each goes when the tasks that need it are done
    return blocks


def side_by_side(tasks: Tasks, blocks: Sequence[Future], ids: Sequence[Sequence[int]], n_rows: int, worker: str) -> Future:
    """Return blocks as one, on a worker, its columns in the order of the table; the blocks are released one after the other."""
    there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
    assembly = tasks.submit("columns", Assembly, n_rows, sum(map(len, ids)), **there)
    on_the_way = list(blocks)
    for block, places in zip(blocks, ids, strict=True):
        on_the_way.append(assembly)
        assembly = tasks.submit("columns", _take, assembly, places, block, **there)
    on_the_way.append(assembly)
    whole = tasks.submit("columns", Assembly.finished, assembly, **there)
    release(on_the_way)
    return whole


def presort_stored(tasks: Tasks, X: Sequence[Future], schema: Schema, n_rows: int, worker: str) -> Future:
    """Return the block of all columns of a sparse table, on a worker; its partitions are put together there, and never made dense."""
    cells = tasks.map("encode", _cells, X, schema=schema)
    block = tasks.submit("presort", _presort_cells, cells, n_rows, workers=[worker], allow_other_workers=True)
    release(cells)
    return block


def _cells(X: Any, schema: Schema) -> Any:
    """Return a sparse partition with its cells in order, row by row, which is how partitions are put together in little time."""
    return schema.cells(X).tocsr()


def _presort_cells(chunks: list[Any], n_rows: int) -> SparseColumns:
    table = sparse.vstack(chunks, format="csr").tocsc()
    return presort_sparse(table.data, table.indices, table.indptr, n_rows)


def _cut(columns: Sequence[int], most: int, threads: int = 1) -> list[Sequence[int]]:
    """Cut columns into at most so many steps, each with a column for each thread where there are enough.

    Examples
    --------
    >>> _cut([0, 3, 5, 7, 8], 3)
    [[0, 3], [5, 7], [8]]
    >>> _cut([0, 3, 5, 7, 8], 5, threads=4)
    [[0, 3, 5, 7], [8]]
    """
    size = max(threads, -(-len(columns) // most))
    return [columns[i : i + size] for i in range(0, len(columns), size)]


def _encode_steps(X: Any, schema: Schema, steps: Sequence[Sequence[int]]) -> list[list[NDArray[Any]]]:
    """Return the columns of a partition as numbers, a chunk for each step."""
    columns = schema.encode(X)
    return [[_own(columns[j]) for j in step] for step in steps]


def _own(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column in memory of its own: a view would keep a whole partition in memory."""
    return column if column.base is None and column.flags.c_contiguous else column.copy()


def _sort(assembly: Assembly, first: int, chunks: list[list[NDArray[Any]]]) -> Assembly:
    """Sort the columns of a step into their places, from ``first`` on."""

    def sort(k: int) -> None:
        assembly.sort(first + k, np.concatenate([chunk[k] for chunk in chunks]))

    with Threads(threads_of(get_worker())) as threads:
        threads.map(sort, range(len(chunks[0])))
    assembly.rest()
    return assembly


def _take(assembly: Assembly, places: Sequence[int], block: Columns) -> Assembly:
    assembly.take(places, block)
    return assembly


@dataclass(frozen=True)
class RowBlock:
    """The rows of some partitions.

    Attributes
    ----------
    columns : Columns
        All columns of the table; codes are of these rows' values.
    ranges : list of (int, int)
        The number in the table of the first row of each partition, and the one after its last; ascending.
    target : ndarray, shape (n_rows,) or (n_rows, k)
    weight : ndarray of float64, shape (n_rows,), or None
    """

    columns: Columns
    ranges: list[RowRange]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None

    def __sizeof__(self) -> int:
        """Return the bytes of its arrays that are in memory."""
        arrays = [self.columns.codes, self.columns.words, self.target, self.weight]
        return sum(array.nbytes for array in arrays if array is not None and not is_on_disk(array))


class EncodedPartition:
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
class ClusterRows(ClusterTable):
    """The rows of a table, on a cluster; each block is a :class:`RowBlock`, for a shard.

    Attributes
    ----------
    ranges : list of list of (int, int)
        Of each block.
    parts : list of list of list of str, or None
        Of each block, the keys of the tasks for partitions of X, of y, and of weights. Their results are not stored; Dask knows how to
        make it again.
    encoding : Encoding
    """

    ranges: list[list[RowRange]]
    parts: list[list[list[str] | None]]
    encoding: Encoding

    def rows_of(self, i: int) -> int:
        """Return the number of rows of a block."""
        return sum(last - first for first, last in self.ranges[i])

    def _moves_from(self, having: set[str], worker: str) -> bool:
        """One whose cells are on disk is always made again: what moves takes memory."""
        return worker in having if self.encoding.is_on_disk else bool(having)

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        given = [None if keys is None else tasks.find(keys) for keys in self.parts[i]]
        return _make_block(tasks, given, self.ranges[i], self.encoding, worker)


def load_rows(
    tasks: Tasks, parts: Partitions, plan: Plan, n_rows: int, encoding: Encoding, shares: Mapping[str, Sequence[int]]
) -> ClusterRows:
    """Have each worker take over the rows of the partitions that are its share."""
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
    about = (tasks.client, plan.placement, blocks, list(shares), n_rows, encoding.schema, plan.sizes, plan.spare)
    return ClusterRows(*about, ranges, keys, encoding)


def _make_block(tasks: Tasks, given: Sequence[Any], ranges: list[RowRange], encoding: Encoding, worker: str) -> Future:
    """Start making a block on a worker of partitions of X, y and weights."""
    X, y, weight = given
    there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
    if encoding.is_on_disk:
        X = tasks.map("encode", _encode, X, schema=encoding.schema, **there)
    return tasks.submit("rows", _load, X, y, weight, ranges, encoding, **there)


def _room(is_on_disk: bool) -> Room:
    """Return what makes arrays on the worker that this runs on, in memory or in its local directory."""
    return partial(on_disk, get_worker().local_directory) if is_on_disk else mapped


def _encode(X: Any, schema: Schema) -> EncodedPartition:
    return EncodedPartition(schema.encode(X))


def _load(X: list[Any], y: list[Any], weight: list[Any] | None, ranges: list[RowRange], encoding: Encoding) -> RowBlock:
    """Put the rows of some partitions in order; those that are on disk are encoded already."""
    schema = encoding.schema
    lengths = [last - first for first, last in ranges]
    with Threads(threads_of(get_worker())) as threads:
        columns = arrange_rows(
            lambda i: X[i].columns if encoding.is_on_disk else schema.encode(X[i]),
            lengths,
            len(schema),
            threads.map,
            _room(encoding.is_on_disk),
        )
    target = _join_targets([encoding.target(part) for part in y])
    return RowBlock(columns, ranges, target, None if weight is None else _join_weights(weight))


def target(table: Table) -> NDArray[Any]:
    """Fetch the target of all rows."""
    return _fetch(table, "target")


def weight(table: Table) -> NDArray[np.float64]:
    """Fetch the weights of all rows."""
    return _fetch(table, "weight")


def _fetch(table: Table, name: str) -> NDArray[Any]:
    """Fetch the "target" or "weight" of all rows, in their order; of several targets, each one's rows are side by side."""
    rows = table.columns
    with Tasks(rows.client) as tasks:
        if not isinstance(rows, ClusterRows):
            return np.asarray(tasks.waiter.gather([getattr(table, name)])[0])
        chunks = tasks.waiter.gather(tasks.map(name, getattr, rows.blocks, [name] * len(rows.blocks)))
        return np.asarray(in_order(chunks, rows.ranges, rows.n_rows), order="F")


def fingerprint(table: Table) -> str:
    """Return a digest of the training set, however it is placed; see :meth:`dtrees.ensemble.backend.Backend.fingerprint`."""
    of, names = table.columns, ["target", "weight"] if table.weight is not None else ["target"]
    with Tasks(of.client) as tasks:
        if isinstance(of, ClusterRows):
            columns = _column_digests(tasks, of)
            chunks = [tasks.map("digest", getattr, of.blocks, [name] * len(of.blocks)) for name in names]
            vectors = [tasks.submit("digest", _digest, each, of.ranges, of.n_rows) for each in chunks]
        else:
            by_block = tasks.waiter.gather(tasks.map("digest", column_digests, of.blocks))
            # Those of a sparse table have one digest.
            by_column = dict(zip(chain(*of.ids), chain(*by_block), strict=False))
            columns = [by_column[j] for j in sorted(by_column)]
            vectors = [tasks.submit("digest", array_digest, getattr(table, name)) for name in names]
        return table_digest(table, columns, *(*tasks.waiter.gather(vectors), None)[:2])


def _column_digests(tasks: Tasks, rows: ClusterRows) -> list[str]:
    """Return the digest of each column, that of whole columns. One at a time is put together by a task."""
    columns = []
    for j in range(rows.n_columns):
        distinct = tasks.submit("digest", _merged, tasks.map("digest", _distinct, rows.blocks, column=j))
        codes = tasks.map("digest", _codes, rows.blocks, [distinct] * len(rows.blocks), column=j)
        columns.append(tasks.submit("digest", _digest, codes, rows.ranges, rows.n_rows, distinct))
        tasks.waiter.wait([columns[-1]])
    return tasks.waiter.gather(columns)


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


def _digest(chunks: list[NDArray[Any]], ranges: Sequence[Sequence[RowRange]], n_rows: int, *others: NDArray[Any]) -> str:
    """Return the digest of values of all rows, given by block, in their order."""
    return array_digest(in_order(chunks, ranges, n_rows), *others)
