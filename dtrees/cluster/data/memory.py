"""Memory of a table on workers, and memory that they have free: the estimates for placement, made before any column is loaded.

While trees grow, a worker with columns or rows needs memory for::

    its columns         4 bytes a cell for codes, 2 for zones, and the distinct values (4 bytes each if float32 is exact for all, else 8);
                        in a sparse table, 24 bytes for each stored cell; by rows, no distinct values if float32 is exact for all, and
                        4 more bytes a cell in categorical columns
    state of the rows   64 bytes a row for each tree in growth: row numbers, sums, gradients, predictions; with dropout, a byte for each
                        tree of the model
    target, weight      8 bytes a row each; for multi-output targets, 24 bytes a row for each target, with its predictions, and in forests
                        8 more for each tree in growth
    a row partition     of those from which columns are made; all of them for a sparse table; for rows whose cells are on disk, two for
                        each thread that encodes them, and of the cells one column or range of rows at a time
    flagged rows        by rows, those that workers send each other at a time (:data:`~dtrees.split.policy.FLAGGED_BYTES`)
    evaluation sets     boosting: some of their partitions, as numbers (4 or 8 bytes a cell), with targets, weights and predictions
    raw predictions     boosting of several quantiles or of more than two classes: 16 bytes a row for each
    draws               isolation forests by rows, whose workers each draw from all rows: 2 bytes for each row of the table, 64 by weight
    out-of-bag sums     forests: 8 bytes a row for each class, and 8 more, several times (:meth:`Sizes.oob_sums_in_all`)
    delegated cells     forests over shards: what is sent at a time for delegated small nodes, 20 bytes a cell
                        (:mod:`dtrees.engine.shard.tree`)
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dask
import numpy as np
from dask.utils import format_bytes
from distributed import Client

from dtrees.cluster.errors import NotEnoughMemory, WorkerLost
from dtrees.cluster.reliability.waiting import WorkerMonitor
from dtrees.cluster.transport.clients import ask, in_loop
from dtrees.ensemble.input.column import CATEGORICAL, NUMERIC, Column
from dtrees.ensemble.input.schema import Schema
from dtrees.split.policy import DISK_BYTES, SHARED_CELLS, flagged_bytes, most_zones

#: The error message if there are no workers.
NO_WORKERS = "The Dask cluster has no workers. Start some (dask worker ADDRESS), or scale the cluster up, and run the fit again."

#: Memory of a worker process that has imported all modules of a fit, without data: 298 MB measured.
_CODE_BYTES = 300_000_000
#: Bytes of an unfinished tree for each row.
STATE_BYTES = 64
#: Bytes of sorting a column for each row, in each sorting thread: keys, a buffer of the same size, and values.
SORTING_BYTES = 24

#: Bytes of picking rows, with placement by rows, for each row of a worker, in each thread: keys, and a buffer to sort them.
PICKING_BYTES = 16
#: Bytes of a column's zone sums for each zone, over all nodes of a level, with those in transfer: measured, 35 MB for 28 columns.
_ZONE_SUMS_BYTES = 5_000
#: Copies of the rows in flagged parts that are sent at a time: as picked, as received, joined, and merged (measured with two alternating
#: shards: 2.9 copies each), and rows that have arrived early.
_COPIES_OF_FLAGGED = 5
#: Further bytes of a forest for each of a worker's rows: its number of draws and where they begin, its leaf, and, if leaves are measured,
#: what is sent of it and sorted. Counted, not measured.
_FOREST_ROW_BYTES = 88
#: Copies of the targets and weights of all rows on the worker that computes scales: as received, joined, and converted.
_COPIES_OF_TARGETS = 3

#: Number of batches of trees for each thread if their results have out-of-bag sums, which stay in memory until the last batch is done.
BATCHES_PER_THREAD_OUT_OF_BAG = 2
#: Number of results that are added up in one task.
SUMMED_AT_ONCE = 4
#: Copies of the out-of-bag sums that the coordinator's worker, which may be any, has in the end, with the predictions.
_FINAL_OOB_SUMS = 3

#: Vectors for each output of an evaluation set: the sums of trees, the predictions, and a metric's intermediate result.
_PREDICTIONS = 3
#: Bytes of a cell that is sent for a delegated node.
_DELEGATED_BYTES = 20
#: Bytes of a cell of a column: of its code, and of its zone.
CODE_BYTES, ZONE_BYTES = 4, 2
#: Further bytes of a categorical cell: at least two columns, joined with each other, share a two-byte number.
_JOINED_BYTES = 1
#: Bytes of a stored cell of a sparse table: its row, column and, twice, code, and a distinct value; and further bytes while it is
#: presorted: twice its value, and its row, in the whole table, and its distinct value.
STORED_CELL_BYTES, PRESORTING_CELL_BYTES = 24, 32
#: Bytes of a column of a sparse table: where its cells and distinct values begin, the code of 0, and the index of 0 among the distinct
#: values.
_STORED_COLUMN_BYTES = 32
_VECTOR_BYTES = 8
#: Vectors for each multi-output target: itself, its predictions, and those at the beginning of a round.
_VECTORS_OF_A_TARGET = 3
#: Vectors for each further output of a single target: its predictions, and those at the beginning of a round.
_VECTORS_OF_AN_OUTPUT = 2
#: Bytes for each row of the table if rows are drawn at most once: two masks; by weight also its hash, its time, the order of times, and
#: intermediate results. Counted, not measured.
_DRAW_BYTES, _DRAW_BYTES_BY_WEIGHT = 2, 64
#: Vectors of each booster of a bag: how often it drew each row, and the resulting weights.
_VECTORS_OF_A_BOOSTER = 2
#: Interval of checks of workers that Dask has paused.
_SECONDS_BETWEEN_LOOKS = 0.5


@dataclass(frozen=True)
class Sizes:
    """Upper limits of the memory of a table.

    Attributes
    ----------
    n_rows : int
    columns : tuple of int
        Bytes of each presorted column.
    vectors : int
        Bytes of target and weight together; for multi-output targets, including their predictions.
    partition : int
        Bytes of the largest row partition.
    evaluation : tuple of int
        Bytes of each block of the evaluation sets.
    oob_sums : int
        Bytes of the out-of-bag sums of all rows; 0 without.
    amounts : int
        Bytes of each tree of a forest in growth for multi-output targets (summands of rows), of each booster of a bag (its weights), or of
        boosting with dropout (a byte for each tree and row); 0 otherwise.
    keyed : bool
        Whether float32 is exact for all values, so that rows are not sorted with placement by rows.
    n_categorical : int
        Number of categorical columns.
    n_sums : int
        Number of values of a zone sum, with placement by rows.
    draws : int
        Bytes that each worker needs to draw rows of a forest at most once, with placement by rows.
    """

    n_rows: int
    columns: tuple[int, ...]
    vectors: int
    partition: int
    evaluation: tuple[int, ...] = ()
    oob_sums: int = 0
    amounts: int = 0
    keyed: bool = field(default=False, repr=False)
    n_categorical: int = field(default=0, repr=False)
    n_sums: int = field(default=3, repr=False)
    draws: int = field(default=0, repr=False)

    @classmethod
    def of(
        cls,
        schema: Schema,
        n_rows: int,
        *,
        weighted: bool,
        partition: int,
        evaluation: Sequence[int] = (),
        n_classes: int = 0,
        out_of_bag: bool = False,
        n_targets: int = 1,
        n_outputs: int = 1,
        boosting: bool = False,
        bag: bool = False,
        distinct_draws: bool = False,
        remembered: int = 0,
    ) -> Sizes:
        """Return the sizes of a table with a schema; ``evaluation`` is as in :class:`Sizes`.

        ``remembered`` is the number of trees of each output whose node numbers are stored for all rows (boosting with dropout).

        Examples
        --------
        >>> schema = Schema.infer(np.empty((0, 2), np.float32))
        >>> Sizes.of(schema, 1000, weighted=False, partition=800)
        Sizes(n_rows=1000, columns=(10000, 10000), vectors=8000, partition=800, evaluation=(), oob_sums=0, amounts=0)
        """
        width = _width_of(schema)
        cell_bytes = [CODE_BYTES + ZONE_BYTES + _JOINED_BYTES * (column.kind == CATEGORICAL) for column in schema.columns]
        distinct = [min(n_rows, _most_distinct(column)) for column in schema.columns]
        columns = tuple(n_rows * each + width * n for each, n in zip(cell_bytes, distinct, strict=True))
        oob_sums = n_rows * (max(n_classes, n_targets) + 1) * _VECTOR_BYTES if out_of_bag else 0
        vectors = weighted + (_VECTORS_OF_A_TARGET * n_targets if n_targets > 1 else 1)
        if boosting and n_targets == 1:
            vectors += _VECTORS_OF_AN_OUTPUT * (_outputs(n_classes, n_targets, n_outputs) - 1)
        amounts = n_rows * _VECTOR_BYTES * n_targets if n_targets > 1 and not boosting else 0
        amounts += n_rows * _VECTOR_BYTES * _VECTORS_OF_A_BOOSTER if bag else 0
        amounts += n_rows * remembered * _outputs(n_classes, n_targets, n_outputs)
        n_categorical = sum(column.kind == CATEGORICAL for column in schema.columns)
        vector_bytes = n_rows * _VECTOR_BYTES * vectors
        n_sums = 3
        if not boosting and (n_classes > 2 or n_targets > 1):
            n_sums = n_classes + 1 if n_classes else 2 * n_targets + 2  # for numeric targets, sums and sizes
        draws = n_rows * distinct_draws * (_DRAW_BYTES_BY_WEIGHT if weighted else _DRAW_BYTES)
        return cls(n_rows, columns, vector_bytes, partition, tuple(evaluation), oob_sums, amounts, width == 4, n_categorical, n_sums, draws)

    def of_stored(self, cells: int) -> Sizes:
        """Return the sizes of a sparse table of the same schema with ``cells`` stored cells.

        Examples
        --------
        >>> Sizes(1000, (10000, 10000), 8000, 800).of_stored(100)
        Sizes(n_rows=1000, columns=(1232, 1232), vectors=8000, partition=4000, evaluation=(), oob_sums=0, amounts=0)
        """
        each = -(-(cells * STORED_CELL_BYTES) // len(self.columns)) + _STORED_COLUMN_BYTES
        return replace(self, columns=(each,) * len(self.columns), partition=self.partition + cells * PRESORTING_CELL_BYTES)

    @property
    def table(self) -> int:
        """Bytes of all presorted columns."""
        return sum(self.columns)

    def needed(self, columns: Sequence[int], trees: int = 1, threads: int = 1) -> int:
        """Return the memory that a worker needs for some columns, ``trees`` trees in growth and ``threads`` threads that sort columns."""
        return sum(self.columns[j] for j in columns) + self.besides(trees, min(threads, len(columns)))

    def besides(self, trees: int = 1, threads: int = 1) -> int:
        """Return the memory that a worker needs besides columns."""
        growing = (STATE_BYTES * self.n_rows + self.amounts) * trees
        return max(growing, SORTING_BYTES * threads * self.n_rows) + self.vectors + self.partition

    def needed_for_rows(self, n_rows: int, threads: int = 1, *, has_all_targets: bool = False, on_disk: bool = False) -> int:
        """Return the memory of a worker with ``n_rows`` rows, all their columns and ``threads`` threads.

        ``has_all_targets`` is set for the worker that computes scales from the targets and weights of all rows, before trees grow;
        ``on_disk`` if cells are on disk.
        """
        share, partitions = n_rows / self.n_rows, 1
        if on_disk:
            # Columns to be sorted are joined in memory, one column in each thread.
            cells, state = max(DISK_BYTES, CODE_BYTES * n_rows), STATE_BYTES
            if not self.keyed:
                state = max(state, (SORTING_BYTES + _VECTOR_BYTES) * threads)
            partitions = 2 * threads
        elif self.keyed:
            cells, state = n_rows * len(self.columns) * (CODE_BYTES + ZONE_BYTES), STATE_BYTES
        else:
            cells, state = math.ceil(share * self.table), max(STATE_BYTES, SORTING_BYTES * threads)
        if not on_disk:
            cells += n_rows * self.n_categorical * CODE_BYTES
        state += PICKING_BYTES * threads
        state += self.amounts // self.n_rows
        looked_at = _COPIES_OF_TARGETS * self.vectors if has_all_targets else 0
        sums = _ZONE_SUMS_BYTES * self.n_sums // 3 * most_zones(self.n_rows) * len(self.columns)
        n_cells = n_rows * len(self.columns)
        flagged = _COPIES_OF_FLAGGED * min(flagged_bytes(n_rows, len(self.columns)), _VECTOR_BYTES * (self.n_sums + 1) * n_cells)
        return int(cells + share * self.vectors + max(state * n_rows, looked_at)) + sums + flagged + partitions * self.partition

    def forest_by_rows(self, n_rows: int) -> int:
        """Return the further memory that a worker with ``n_rows`` rows needs for a forest."""
        oob_sums = int(n_rows / self.n_rows * self.oob_sums) + _FINAL_OOB_SUMS * self.oob_sums
        return _FOREST_ROW_BYTES * n_rows + oob_sums + self.delegated + self.draws

    @property
    def delegated(self) -> int:
        """Bytes of the cells that are sent at a time for delegated nodes: at the sender, in transfer, and at the receiver."""
        return _DELEGATED_BYTES * min(SHARED_CELLS, self.n_rows * len(self.columns))

    def oob_sums_in_all(self, batches: int) -> int:
        """Return the memory that a worker needs for out-of-bag sums.

        ``batches`` is the number of results that it holds until they are added up; 0 if trees grow over shards, each of which has the sums
        of all rows.
        """
        held = batches + SUMMED_AT_ONCE if batches else 1
        return (held + _FINAL_OOB_SUMS) * self.oob_sums


def block_bytes(
    schema: Schema,
    n_rows: int,
    *,
    weighted: bool,
    n_classes: int,
    n_targets: int = 1,
    n_outputs: int = 1,
    cells: float | None = None,
    started: bool = False,
) -> int:
    """Return the memory of a block of an evaluation set: its cells, target and weights, and its predictions during scoring.

    ``cells`` is the number of stored cells of a row, if the table is sparse. ``started`` blocks have raw scores to start from.

    Examples
    --------
    >>> schema = Schema.infer(np.empty((0, 2), np.float32))
    >>> block_bytes(schema, 1000, weighted=False, n_classes=0)
    40000
    """
    width = _width_of(schema)
    vectors = n_targets + weighted + (_PREDICTIONS + started) * _outputs(n_classes, n_targets, n_outputs)
    held = width * len(schema.columns) if cells is None else math.ceil(cells) * (width + _VECTOR_BYTES)
    return n_rows * (held + _VECTOR_BYTES * vectors)


def _outputs(n_classes: int, n_targets: int, n_outputs: int) -> int:
    """Return the number of raw predictions of a row in boosting: by target, by ``n_outputs`` of a numeric target, or by class."""
    return max(n_targets, n_classes if n_classes > 2 else n_outputs)


def _width_of(schema: Schema) -> int:
    """Return the bytes of a distinct value; columns of a block have values of one dtype."""
    return 4 if all(column.stored_dtype is np.float32 for column in schema.columns) else 8


def _most_distinct(column: Column) -> int:
    """Return an upper limit of the number of distinct values of a column, independent of its number of rows."""
    if column.kind == CATEGORICAL:
        return len(column.categories)
    if column.kind != NUMERIC:
        return 0
    dtype = np.dtype(column.dtype)
    return 2 if dtype.kind == "b" else int(2 ** (8 * dtype.itemsize))


@dataclass(frozen=True)
class WorkerCapacity:
    """Threads and memory of a worker.

    Attributes
    ----------
    threads : int
    limit : float
        Bytes that it may use in all, infinite if it has no limit. Dask stops assigning work to a worker before it reaches the limit set by
        the user (at the share ``distributed.worker.memory.pause``, by default 80%); that share counts.
    used : float
        Bytes in use.
    """

    threads: int
    limit: float = float("inf")
    used: float = 0.0

    @property
    def free(self) -> float:
        """Bytes that are left."""
        return max(0.0, self.limit - self.used)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> WorkerCapacity:
        """Return the capacity of a worker, given the scheduler's data about it.

        Examples
        --------
        >>> WorkerCapacity.of({"nthreads": 2, "memory_limit": 0, "metrics": {}}).free
        inf
        """
        limit = facts["memory_limit"] * _usable_share() if facts["memory_limit"] else float("inf")
        return cls(facts["nthreads"], limit, facts["metrics"].get("memory", 0))


def running(known: Mapping[str, Mapping[str, Any]]) -> dict[str, WorkerCapacity]:
    """Return the capacities of the running workers; ``known`` has the scheduler's data about all (:meth:`WorkerMonitor.look`)."""
    return {
        worker: WorkerCapacity.of(facts) for worker, facts in sorted(known.items()) if facts["nthreads"] and facts["status"] == "running"
    }


def worker_capacities(client: Client) -> dict[str, WorkerCapacity]:
    """Return the capacities of the running workers, as reported by the scheduler.

    Raises
    ------
    WorkerLost
        If there are none.
    NotEnoughMemory
        If Dask has paused all workers, and they do not resume.
    """
    monitor = WorkerMonitor(client)
    while not (found := running(in_loop(client, monitor.look))) and any(facts["status"] == "paused" for facts in monitor.workers.values()):
        monitor.check_pauses("a worker")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if not found:
        raise WorkerLost(NO_WORKERS)
    return found


def check_processes(client: Client) -> None:
    """Raise if workers have less memory than the code needs: a fit would kill them one after the other.

    Raises
    ------
    NotEnoughMemory
        If all existing workers are too small. Without workers, some may still join.
    """
    workers = ask(client, lambda: client.scheduler.identity(n_workers=-1))["workers"]
    limits = {worker: WorkerCapacity.of(facts).limit for worker, facts in workers.items()}
    if limits and max(limits.values()) < _CODE_BYTES:
        worker = max(limits, key=lambda worker: limits[worker])
        raise NotEnoughMemory(
            f"The workers of the Dask cluster are too small: {worker} may use {format_bytes(int(limits[worker]))} "
            f"(of a limit of {format_bytes(workers[worker]['memory_limit'])}), and Python with dtrees and Dask alone takes "
            f"{format_bytes(_CODE_BYTES)}. Give them more memory (dask worker --memory-limit), or have fewer and larger ones."
        )


def _usable_share() -> float:
    for key in ("pause", "terminate"):
        share = dask.config.get(f"distributed.worker.memory.{key}", False)
        if share:
            return float(share)
    return 1.0


#: Costs in nanoseconds of a processor, for the choice of a placement. By columns: of a cell, of a row on a worker with all columns, and of
#: a row on a worker with some. The first and the last were measured; the second is an earlier figure that agrees with the time of a whole
#: fit on one worker.
CELL, ROW_ALONE, ROW_TOGETHER = 3.6, 35.0, 43.0
#: The exchanges of a tree by columns, for six levels: fixed cost, and cost for each worker.
EXCHANGES, EXCHANGES_WORKER = 6 * 1.84e6, 6 * 1.07e6
#: By rows: a row and a cell on their worker, and the sums of a column, for a worker that computes and sends, or receives and searches them.
#: Fitted to the processor time of the slowest shards of each step, with all shards in one process: medians of 60 trees of 100,000 to a
#: million rows, 28 or 84 columns and 2, 4 or 8 shards, which these costs predict within 8 %.
ROWS_ROW, ROWS_CELL, ROWS_COLUMN = 64.0, 4.4, 0.27e6
#: Fixed cost of a tree: 7.0e6 on a shard, from the same fit; 5.3e6 for the 47 steps in which shards wait for one another, measured with
#: shards in separate processes (20,000 and 100,000 x 28; 2, 4 and 8 workers); and 3.4e6 for deciding on splits, which each shard does.
ROWS_TREE = 15.7e6
#: For each worker: 0.12e6 for the coordinator's message and the reply, measured in the same way, and the time in which each shard reads the
#: replies of another, 35 us for each of eight.
ROWS_WORKER = 0.4e6
#: For each pair of workers, with 47 exchanges a tree: 1.6e6 for sending and receiving, measured in the same way, and 1.4e6 for reading the
#: data and for waiting for the slowest of more workers, from the fit with all shards in one process.
ROWS_PEER = 3.0e6


def seconds_alone(n_rows: int, n_columns: int, threads: int) -> float:
    """Return the seconds of a tree on a worker with all columns.

    Examples
    --------
    >>> round(seconds_alone(1_000_000, 28, threads=1), 4)
    0.1358
    """
    return 1e-9 * n_rows * (ROW_ALONE + CELL * n_columns) / threads


def seconds_by_columns(n_rows: int, n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree if each worker has some columns; ``threads`` has the number of threads of each worker.

    Examples
    --------
    >>> round(seconds_by_columns(1_000_000, 28, {"a": 1, "b": 1}), 4)
    0.1173
    """
    exchanges = EXCHANGES + EXCHANGES_WORKER * min(len(threads), n_columns)
    return 1e-9 * (n_rows * (ROW_TOGETHER / min(threads.values()) + CELL * n_columns / sum(threads.values())) + exchanges)


def seconds_by_rows(rows: Mapping[str, int], n_columns: int, threads: Mapping[str, int]) -> float:
    """Return the seconds of a tree if each worker has the given number of rows.

    Examples
    --------
    >>> round(seconds_by_rows({"a": 500_000, "b": 500_000}, 28, {"a": 1, "b": 1}), 4)
    0.1207
    """
    n_workers = len(rows)
    own = max(n * (ROWS_ROW + ROWS_CELL * n_columns) / threads[worker] for worker, n in rows.items())
    received = n_workers * -(-n_columns // min(n_workers, n_columns))  # the largest number of column sums, including the worker's own
    search = ROWS_COLUMN * (n_columns + received) / 2 / min(threads[worker] for worker in rows)
    return 1e-9 * (own + search + ROWS_TREE + ROWS_WORKER * n_workers + ROWS_PEER * (n_workers - 1))
