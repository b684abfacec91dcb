"""Row partitions to blocks of presorted columns, each on the worker that is to have it, without a second copy of the table anywhere.

A block grows on its worker, by a chain of tasks that pass on an assembly (:class:`~dtrees.split.table.columns.Assembly`). Each of them
sorts some more columns into their places, and the last one makes a block of it. All tasks of a chain work on the same arrays::

    encode    a partition: its columns as numbers, in pieces, one for each step of each chain; the partition is dropped
    split     a piece of a partition
    presort   a step: the pieces of some columns, of all partitions, are fetched, joined and sorted, and then dropped
    columns   a step of putting sorted blocks side by side, where a worker is to have them all
    target    all partitions: class codes or values; weight alike

Sparse partitions are put together on the worker that is to have them, and presorted there in one task.

A step waits for the one before it, so that there is never more of the table in two places than the columns of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from numpy.typing import NDArray
from scipy import sparse

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.memory import Sizes
from dtrees.cluster.data.partitions import Partitions
from dtrees.cluster.data.placement import Plan
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks, release, same
from dtrees.cluster.transport.clients import holders, threads_of_workers
from dtrees.cluster.transport.events import tell
from dtrees.engine.threads import Threads
from dtrees.ensemble.backend import LoadOptions, Placement
from dtrees.ensemble.input.schema import Schema
from dtrees.ensemble.input.target import TargetSummary, check_target, check_weights, encode_target
from dtrees.split.table.columns import Assembly, Columns
from dtrees.split.table.sparse_columns import SparseColumns, presort_sparse

#: Steps of a chain: what is in two places at a time is this part of the columns of a worker.
_STEPS = 8
#: The most pieces that the partitions of a large cluster are cut into; the scheduler takes about a millisecond for each.
_PIECES = 20_000

Piece = list[NDArray[Any]]


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
        The keys of the tasks for X, in row order. What they stand for is not kept; Dask knows how to make it again.
    cells : int or None
        Stored cells, if the table is sparse.
    """

    ids: list[list[int]]
    partitions: list[str]
    cells: int | None = None

    def _made_again(self, tasks: Tasks, i: int, worker: str) -> Future:
        return presort_blocks(tasks, tasks.find(self.partitions), self.schema, self.n_rows, {worker: self.ids[i]})[0]


def load_columns(
    tasks: Tasks, parts: Partitions, plan: Plan, schema: Schema, summary: TargetSummary, options: LoadOptions
) -> tuple[ClusterColumns, Future, Future | None]:
    """Have whole columns presorted; return them, the target and the weights."""
    workers, ids, n_rows = list(plan.columns), list(plan.columns.values()), summary.n_rows
    if parts.cells is not None:
        blocks = [presort_stored(tasks, parts.X, schema, n_rows, workers[0])]
    else:
        blocks = presort_blocks(tasks, parts.X, schema, n_rows, plan.columns)
        if plan.placement.kind == "replicated" and len(blocks) > 1:
            blocks = [side_by_side(tasks, blocks, ids, n_rows, workers[0])]
    if plan.placement.kind != "sharded":
        ids, workers = [list(range(len(schema)))], workers[:1]
    codes = tasks.map("encode", _encode_target, parts.y, classes=summary.classes, name=options.estimator_name, several=options.several)
    target = tasks.submit("target", _join_targets, codes)
    weight = None if parts.weight is None else tasks.submit("weight", _join_weights, parts.weight)
    release([*parts.X, *parts.y, *(parts.weight or ()), *codes])  # each goes when the tasks that need it are done
    made = [future for future in (*blocks, target, weight) if future is not None]
    tasks.waiter.wait(made)
    tasks.keep(*made)
    if plan.placement.kind != "sharded":  # shards tell for themselves
        held = {worker: (len(schema), int(plan.needs[worker])) for worker in plan.placement.workers}
        tell(current_fit().name, "holding", rows=n_rows, columns=len(schema), workers=held)
    keys = [future.key for future in parts.X]
    columns = ClusterColumns(
        tasks.client, plan.placement, blocks, workers, n_rows, schema, plan.sizes, plan.spare, ids, keys, parts.cells
    )  # fmt: skip
    return columns, target, weight


def _encode_target(y: Any, classes: NDArray[Any] | list[NDArray[Any]] | None, name: str, several: bool) -> NDArray[Any]:
    return encode_target(check_target(y, classify=classes is not None, name=name, several=several), classes)


def _join_targets(pieces: list[NDArray[Any]]) -> NDArray[Any]:
    return np.asarray(np.concatenate(pieces), order="F")  # of several targets, each one's rows are side by side


def _join_weights(pieces: list[Any]) -> NDArray[np.float64]:
    return np.concatenate([weight for piece in pieces if (weight := check_weights(piece, len(piece))) is not None])


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
    most = max(1, min(_STEPS, _PIECES // (len(X) * len(columns))))
    threads = threads_of_workers(tasks.client)
    steps = {worker: _cut(own, most, threads.get(worker, 1)) for worker, own in columns.items()}
    encoded = tasks.map("encode", _encode, X, schema=schema, steps=[step for own in steps.values() for step in own])
    n_steps = 0
    on_the_way, blocks = list(encoded), []
    for worker, own in steps.items():
        there: dict[str, Any] = {"workers": [worker], "allow_other_workers": True}
        assembly = tasks.submit("presort", Assembly, n_rows, len(columns[worker]), **there)
        first = 0
        for step in own:
            pieces = tasks.map("split", _piece, encoded, step=n_steps)
            on_the_way += [assembly, *pieces]
            assembly = tasks.submit("presort", _sort, assembly, first, pieces, **there)
            n_steps += 1
            first += len(step)
        on_the_way.append(assembly)
        blocks.append(tasks.submit("presort", _finished, assembly, **there))
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
    whole = tasks.submit("columns", _finished, assembly, **there)
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


def _presort_cells(pieces: list[Any], n_rows: int) -> SparseColumns:
    table = sparse.vstack(pieces, format="csr").tocsc()
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


def _encode(X: Any, schema: Schema, steps: Sequence[Sequence[int]]) -> list[Piece]:
    """Return the columns of a partition as numbers, a piece for each step."""
    columns = schema.encode(X)
    return [[_own(columns[j]) for j in step] for step in steps]


def _own(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column in memory of its own: a view would keep a whole partition in memory."""
    return column if column.base is None and column.flags.c_contiguous else column.copy()


def _piece(encoded: list[Piece], step: int) -> Piece:
    return encoded[step]


def _sort(assembly: Assembly, first: int, pieces: list[Piece]) -> Assembly:
    """Sort the columns of a step into their places, from ``first`` on."""

    def sort(k: int) -> None:
        assembly.sort(first + k, np.concatenate([piece[k] for piece in pieces]))

    with Threads(threads_of(get_worker())) as threads:
        threads.map(sort, range(len(pieces[0])))
    assembly.rest()
    return assembly


def _take(assembly: Assembly, places: Sequence[int], block: Columns) -> Assembly:
    assembly.take(places, block)
    return assembly


def _finished(assembly: Assembly) -> Columns:
    return assembly.finished()
