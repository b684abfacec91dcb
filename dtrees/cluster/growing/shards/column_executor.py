"""Trees over shards: the executor that carries the engine's messages to workers, each of which has some of the columns.

The executor lives where the coordinator does, in a task of the cluster. Lost shards are replaced as
:mod:`dtrees.cluster.growing.shards.worker_shards` says. Workers that join, where no two shards share one, are given columns of the others
(:mod:`dtrees.cluster.growing.shards.joining.columns`).
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import actor_on, threads_of
from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import STATE_BYTES
from dtrees.cluster.growing.actor import ActorBase, Failed
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.shards.joining.columns import ColumnNewcomers, hand_over
from dtrees.cluster.growing.shards.joining.newcomers import Handover
from dtrees.cluster.growing.shards.worker_shards import WorkerShards
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.events import tell
from dtrees.engine.protocol.messages import Calls, Executor
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import Columns

logger = logging.getLogger("dtrees.cluster")


class ShardActor(ActorBase):
    """A shard on a worker, using as many threads as the worker has.

    Parameters are those of :class:`~dtrees.engine.shard.shard.Shard`, but for ``predecessor``: the key of an actor on the same worker,
    whose place this one takes with other columns. The columns are not copied.
    """

    def __init__(
        self,
        columns: Columns,
        column_ids: NDArray[np.int32],
        n_columns: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        predecessor: str | None = None,
    ) -> None:
        super().__init__()
        share_kernels()
        before = None if predecessor is None else actor_on(get_worker(), predecessor)
        self._shard = (
            before._shard.with_columns(columns, column_ids)
            if before is not None
            else Shard(columns, column_ids, n_columns, target, weight, threads_of(get_worker()))
        )

    def handle(self, message: Calls) -> tuple[dict[int, Any], float] | Failed:
        """Carry out a message; see :meth:`dtrees.engine.shard.shard.Shard.handle`. With the reply come the seconds it took."""
        began = time.perf_counter()
        try:
            return self._shard.handle(message), time.perf_counter() - began
        except Exception as error:
            error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks do not travel
            return Failed(error)

    def close(self) -> None:
        """End the shard's threads, when it is done with what it does."""
        with self.turn:
            self._shard.close()


class DaskExecutor(WorkerShards, Executor):
    """Shards that have columns; see :class:`dtrees.cluster.growing.shards.worker_shards.WorkerShards`.

    Parameters
    ----------
    columns : ClusterColumns
    target : Future of ndarray, shape (n_rows,)
    weight : Future of ndarray, shape (n_rows,), or None
    """

    whole_threads = 0  # what one worker grows by itself is a task there, without shards
    _pieces = "columns"
    _newcomers: ColumnNewcomers

    def __init__(self, columns: ClusterColumns, target: Future, weight: Future | None) -> None:
        self._sizes = _sizes_of(columns)
        super().__init__(columns.client, ShardActor, ColumnNewcomers(self._sizes.tolist(), columns.n_rows))
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self._columns = columns
        self._note_columns()
        self._rows = target, weight
        self._make_all(columns.workers)
        logger.info("%d columns in %d shards on %s", self.n_columns, self.n_shards, ", ".join(self._actors.workers))

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""
        return self._owner[columns]

    def _plan_handover(self, workers: Mapping[str, Mapping[str, Any]], n_left: int) -> Handover | None:
        return self._newcomers.plan(self._columns, workers, n_left, self.timings.scan)

    def _hand_over(self, handover: Handover) -> list[int] | None:
        gave = hand_over(self._columns, handover)
        if gave is not None:
            self._note_columns()
        return gave

    def _heritage(self, shard: int) -> tuple[str]:
        return (self._actors.key(shard),)

    def _tell_spread(self, handover: Handover, seconds: float) -> None:
        told = {"to": list(handover.given), "columns": handover.n_pieces, "bytes": handover.moved, "seconds": seconds}
        tell(self._fit.name, "columns spread", **told)

    def _note_columns(self) -> None:
        """Take in which shard has which columns."""
        self.n_shards = len(self._columns.blocks)
        self._ids = [np.array(ids, np.int32) for ids in self._columns.ids]
        self._owner = np.zeros(self.n_columns, np.int64)
        for shard, ids in enumerate(self._ids):
            self._owner[ids] = shard
        self._bytes = [int(self._sizes[ids].sum()) + STATE_BYTES * self.n_rows for ids in self._ids]

    def _tell_holding(self) -> None:
        """Tell which worker has how many columns, and what they take."""
        held: dict[str, tuple[int, int]] = {}
        for worker, ids, n_bytes in zip(self._actors.workers, self._ids, self._bytes, strict=True):
            columns, before = held.get(worker, (0, 0))
            held[worker] = columns + len(ids), before + n_bytes
        tell(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=held)

    def _bring(self, shard: int, worker: str) -> None:
        self._columns.bring(shard, worker)

    def _arguments(self, shard: int) -> tuple[Any, ...]:
        return self._columns.blocks[shard], self._ids[shard], self.n_columns, *self._rows

    def _describe(self, shard: int) -> str:
        return f"{len(self._ids[shard])} of {self.n_columns} columns, {self._bytes[shard] / 1e6:,.0f} MB"


def _sizes_of(columns: ClusterColumns) -> NDArray[np.int64]:
    """Return the bytes of each column."""
    with Tasks(columns.client) as tasks:
        found = tasks.waiter.gather(tasks.map("size", _sizes, columns.blocks))
    sizes = np.empty(columns.n_columns, np.int64)
    for ids, by_column in zip(columns.ids, found, strict=True):
        sizes[ids] = by_column
    return sizes


def _sizes(block: Columns) -> list[int]:
    """Return the bytes of each column of a block."""
    return [block.codes[j].nbytes + block.distinct(j).nbytes for j in range(block.n_columns)]
