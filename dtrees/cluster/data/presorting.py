"""Row partitions to blocks of presorted columns, each on the worker that is to have it, without a second copy of the table anywhere.

A block grows on its worker, by a chain of tasks that pass on an assembly (:class:`~dtrees.split.table.columns.Assembly`). Each of them
sorts some more columns into their places, and the last one makes a block of it. All tasks of a chain work on the same arrays::

    encode    a partition: its columns as numbers, in pieces, one for each step of each chain; the partition is dropped
    split     a piece of a partition
    presort   a step: the pieces of some columns, of all partitions, are fetched, joined and sorted, and then dropped
    columns   a step of putting sorted blocks side by side, where a worker is to have them all

Sparse partitions are put together on the worker that is to have them, and presorted there in one task.

A step waits for the one before it, so that there is never more of the table in two places than the columns of a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray
from scipy import sparse

from dtrees.cluster.compat import threads_of
from dtrees.cluster.reliability.tasks import Tasks, release
from dtrees.cluster.transport.scheduler_rpc import threads_of_workers
from dtrees.engine.threads import Threads
from dtrees.ensemble.input.schema import Schema
from dtrees.split.table.columns import Assembly, Columns
from dtrees.split.table.sparse_columns import SparseColumns, presort_sparse

#: Steps of a chain: what is in two places at a time is this part of the columns of a worker.
_STEPS = 8
#: The most pieces that the partitions of a large cluster are cut into; the scheduler takes about a millisecond for each.
_PIECES = 20_000

Piece = list[NDArray[Any]]


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
    steps = {worker: cut(own, most, threads.get(worker, 1)) for worker, own in columns.items()}
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


def cut(columns: Sequence[int], most: int, threads: int = 1) -> list[Sequence[int]]:
    """Cut columns into at most so many steps, each with a column for each thread where there are enough.

    Examples
    --------
    >>> cut([0, 3, 5, 7, 8], 3)
    [[0, 3], [5, 7], [8]]
    >>> cut([0, 3, 5, 7, 8], 5, threads=4)
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
