"""Tables by columns on a cluster: from row partitions to blocks of presorted columns.

A block is built on its worker by a chain of tasks that pass on a :class:`~dtrees.split.table.columns.Assembly`. Each task sorts some more
columns into it, and the last one creates the block. All tasks of a chain work on the same arrays::

    encode    a partition: its columns as numbers, in chunks, one for each step of each chain; the partition is dropped
    split     a chunk of a partition
    presort   a step: some columns of all partitions are fetched, joined, sorted, and then dropped
    columns   a step of joining sorted blocks, if a worker needs all columns
    target    all partitions: class codes or values; likewise the weights

Sparse partitions are joined on the target worker, and presorted there in one task. A step waits for the previous one, so that at most the
columns of one step are stored twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import getitem
from typing import Any, Self

import numpy as np
from distributed import Future
from numpy.typing import NDArray
from scipy import sparse

from dtrees.cluster.data.memory import STATE_BYTES
from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.data.placement import Plan
from dtrees.cluster.data.tables import ClusterTable, Encoding, join_targets, join_weights
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.waiting import Tasks, release
from dtrees.cluster.transport.clients import bytes_of_results, threads_of_workers
from dtrees.cluster.transport.events import publish
from dtrees.engine.threads import Threads, available_cores
from dtrees.ensemble.checkpoint import column_digests
from dtrees.ensemble.input.schema import Schema
from dtrees.split.table.columns import Assembly, Columns
from dtrees.split.table.sparse_columns import SparseColumns, presort_sparse

#: Number of steps of a chain: this share of a worker's columns is stored twice at a time.
_STEPS = 8
#: Largest number of chunks of the partitions on a large cluster; the scheduler takes about a millisecond for each.
_MOST_CHUNKS = 20_000


@dataclass(frozen=True)
class ClusterColumns(ClusterTable):
    """The presorted columns of a table on a cluster.

    Each block is a :class:`~dtrees.split.table.columns.Columns`: one for each shard if columns are sharded; otherwise a single block of all
    columns, which is a :class:`~dtrees.split.table.sparse_columns.SparseColumns` if the table is sparse.

    Attributes
    ----------
    target : Future of ndarray, shape (n_rows,) or (n_rows, k)
    weight : Future of ndarray, shape (n_rows,), or None
    ids : list of list of int
        The columns of each block, ascending.
    n_bytes : list of int
        The size of each block, if columns are sharded.
    partitions : list of str
        The keys of the tasks for X, in row order. Their results are not stored; Dask can compute them again.
    cells : int or None
        Number of stored cells, if the table is sparse.
    """

    target: Future
    weight: Future | None
    ids: list[list[int]]
    n_bytes: list[int]
    partitions: list[str]
    cells: int | None = None
    places_rows = False

    def shard(self, i: int) -> tuple[Any, ...]:
        """Return a block, the numbers of its columns and of all, and the target and weights."""
        return self.blocks[i], np.array(self.ids[i], np.int32), self.n_columns, self.target, self.weight

    def share(self, i: int) -> tuple[int, int]:
        """Return the number of columns and of rows of a block."""
        return len(self.ids[i]), self.n_rows

    def needed(self, i: int) -> int:
        """Return the bytes of a block, and of the state of all rows."""
        return self.n_bytes[i] + STATE_BYTES * self.n_rows

    def weighted(self, tasks: Tasks, weight: NDArray[np.float64]) -> tuple[Self, list[Future]]:
        """Return the columns with other weights, and their future."""
        sent = tasks.send("weight", weight, self.workers[0])
        return replace(self, weight=sent), [sent]

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        return presort_blocks(tasks, tasks.find(self.partitions), self.encoding.schema, self.n_rows, {worker: self.ids[i]})[0]

    def _vector(self, tasks: Tasks, name: str) -> Future:
        found: Future = getattr(self, name)
        return found

    def _column_digests(self) -> list[str]:
        with Tasks(self.client) as tasks:
            by_block = tasks.waiter.gather(tasks.map("digest", column_digests, self.blocks))
        by_column = dict(zip(chain(*self.ids), chain(*by_block), strict=False))
        return [by_column[j] for j in sorted(by_column)]


def load_columns(tasks: Tasks, parts: Partitions, plan: Plan, n_rows: int, encoding: Encoding) -> ClusterColumns:
    """Presort whole columns."""
    workers, ids, schema = list(plan.columns), list(plan.columns.values()), encoding.schema
    if parts.cells is not None:
        blocks = [presort_stored(tasks, parts.X, schema, n_rows, workers[0])]
    else:
        blocks = presort_blocks(tasks, parts.X, schema, n_rows, plan.columns)
        if plan.placement.kind == "replicated" and len(blocks) > 1:
            blocks = [side_by_side(tasks, blocks, ids, n_rows, workers[0])]
    if plan.placement.kind != "sharded":
        ids, workers = [list(range(len(schema)))], workers[:1]
    codes = tasks.map("encode", encoding.target, parts.y)
    target = tasks.submit("target", join_targets, codes)
    weight = None if parts.weight is None else tasks.submit("weight", join_weights, parts.weight)
    release([*parts.futures, *codes])  # each is released when the tasks that need it are done
    made = [future for future in (*blocks, target, weight) if future is not None]
    tasks.waiter.wait(made)
    tasks.keep(*made)
    n_bytes: list[int] = []
    if plan.placement.kind == "sharded":  # shards report themselves, and what they need
        sizes = bytes_of_results(tasks.client, blocks)
        n_bytes = [sizes[block.key] for block in blocks]
    else:
        held = {worker: (len(schema), int(plan.needs[worker])) for worker in plan.placement.workers}
        publish(current_fit().name, "holding", rows=n_rows, columns=len(schema), workers=held)
    keys = [future.key for future in parts.X]
    return ClusterColumns(tasks.client, plan, encoding, n_rows, blocks, workers, target, weight, ids, n_bytes, keys, parts.cells)


def presort_blocks(tasks: Tasks, X: Sequence[Future], schema: Schema, n_rows: int, columns: dict[str, list[int]]) -> list[Future]:
    """Start presorting a block for each worker.

    Parameters
    ----------
    tasks : Tasks
    X : sequence of Future
        Partitions in row order.
    schema : Schema
    n_rows : int
    columns : dict from str to list of int
        The columns of each worker.
    """
    most = max(1, min(_STEPS, _MOST_CHUNKS // (len(X) * len(columns))))
    threads = threads_of_workers(tasks.client)
    steps = {worker: _cut(own, most, threads.get(worker, 1)) for worker, own in columns.items()}
    encoded = tasks.map("encode", _encode_steps, X, schema=schema, steps=[step for own in steps.values() for step in own])
    n_steps = 0
    on_the_way, blocks = list(encoded), []
    for worker, own in steps.items():
        assembly = tasks.submit("presort", Assembly, n_rows, len(columns[worker]), on=worker)
        first = 0
        for step in own:
            chunks = tasks.map("split", getitem, encoded, [n_steps] * len(encoded))
            on_the_way += [assembly, *chunks]
            assembly = tasks.submit("presort", _sort, assembly, first, chunks, on=worker)
            n_steps += 1
            first += len(step)
        on_the_way.append(assembly)
        blocks.append(tasks.submit("presort", Assembly.finished, assembly, on=worker))
    release(on_the_way)  # each is released when the tasks that need it are done
    return blocks


def side_by_side(tasks: Tasks, blocks: Sequence[Future], ids: Sequence[Sequence[int]], n_rows: int, worker: str) -> Future:
    """Join blocks on a worker, with the columns in the order of the table; the blocks are released one after the other."""
    assembly = tasks.submit("columns", Assembly, n_rows, sum(map(len, ids)), on=worker)
    on_the_way = list(blocks)
    for block, places in zip(blocks, ids, strict=True):
        on_the_way.append(assembly)
        assembly = tasks.submit("columns", _take, assembly, places, block, on=worker)
    on_the_way.append(assembly)
    whole = tasks.submit("columns", Assembly.finished, assembly, on=worker)
    release(on_the_way)
    return whole


def presort_stored(tasks: Tasks, X: Sequence[Future], schema: Schema, n_rows: int, worker: str) -> Future:
    """Start presorting a sparse table as one block on a worker; its partitions are joined there and never made dense."""
    cells = tasks.map("encode", _cells, X, schema=schema)
    block = tasks.submit("presort", _presort_cells, cells, n_rows, on=worker)
    release(cells)
    return block


def _cells(X: Any, schema: Schema) -> Any:
    """Return a sparse partition with its cells ordered by row, in which form partitions are joined quickly."""
    return schema.cells(X).tocsr()


def _presort_cells(chunks: list[Any], n_rows: int) -> SparseColumns:
    table = sparse.vstack(chunks, format="csr").tocsc()
    return presort_sparse(table.data, table.indices, table.indptr, n_rows)


def _cut(columns: Sequence[int], most: int, threads: int = 1) -> list[Sequence[int]]:
    """Divide columns into at most ``most`` steps, each with a column for each thread if there are enough.

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
    """Copy a column: a view would hold a whole partition in memory."""
    return column if column.base is None and column.flags.c_contiguous else column.copy()


def _sort(assembly: Assembly, first: int, chunks: list[list[NDArray[Any]]]) -> Assembly:
    """Sort the columns of a step into the assembly, from ``first`` on."""

    def sort(k: int) -> None:
        assembly.sort(first + k, np.concatenate([chunk[k] for chunk in chunks]))

    with Threads(available_cores()) as threads:
        threads.map(sort, range(len(chunks[0])))
    assembly.rest()
    return assembly


def _take(assembly: Assembly, places: Sequence[int], block: Columns) -> Assembly:
    assembly.take(places, block)
    return assembly
