"""Boosting over shards: the executor that carries the engine's messages to workers, each of which has some of the columns.

The executor lives where the coordinator does: in the fitting process, or in any task that has a client.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.actors import Actors
from dtrees.cluster.loading import ClusterColumns, join_blocks
from dtrees.cluster.placement import nthreads, spread
from dtrees.cluster.tasks import Tasks
from dtrees.cluster.watch import PATIENCE
from dtrees.engine.messages import Message, Reply
from dtrees.engine.shard import Shard
from dtrees.split.columns import Columns

logger = logging.getLogger("dtrees.cluster")


class ShardActor:
    """A shard on a worker, using as many threads as the worker has.

    Parameters are those of :class:`~dtrees.engine.shard.Shard`, but for the columns, which come in blocks.
    """

    def __init__(
        self,
        blocks: list[Columns],
        column_ids: NDArray[np.int32],
        n_columns: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
    ) -> None:
        self._shard = Shard(join_blocks(blocks), column_ids, n_columns, target, weight, get_worker().state.nthreads)

    def handle(self, message: Message) -> Reply:
        """Carry out a message; see :meth:`dtrees.engine.shard.Shard.handle`."""
        return self._shard.handle(message)

    def close(self) -> None:
        """End the shard's threads."""
        self._shard.close()


class DaskExecutor:
    """Shards on the workers of a cluster; see :class:`dtrees.engine.executor.Executor`.

    Close it, or use it as a context manager, to free the shards.

    Parameters
    ----------
    columns : ClusterColumns
    target : Future of ndarray, shape (n_rows,)
    weight : Future of ndarray, shape (n_rows,), or None
    patience : float
        Seconds of silence until a worker counts as lost.

    Attributes
    ----------
    n_shards, n_rows, n_columns, whole_threads : int
        See :class:`~dtrees.engine.executor.Executor`.
    """

    whole_threads = 0  # a table that one worker grows by itself is boosted there (one_worker)

    def __init__(self, columns: ClusterColumns, target: Future, weight: Future | None, patience: float = PATIENCE) -> None:
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        with Tasks(columns.client) as tasks:
            sizes = tasks.watch.gather(tasks.map("size", _size, columns.blocks))
        placed = spread(sizes, nthreads(columns.client))
        self.n_shards = len(placed)
        self._owner = np.zeros(self.n_columns, np.int64)
        arguments = {}
        for shard, (worker, blocks) in enumerate(placed.items()):
            ids = np.concatenate([np.arange(columns.bounds[i], columns.bounds[i + 1], dtype=np.int32) for i in blocks])
            self._owner[ids] = shard
            arguments[worker] = ([columns.blocks[i] for i in blocks], ids, self.n_columns, target, weight)
        self._actors = Actors(columns.client, "shard", ShardActor, arguments, patience)
        logger.info("boosting with %d columns in %d shards on %s", self.n_columns, self.n_shards, ", ".join(placed))

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""
        return self._owner[columns]

    def broadcast(self, message: Message) -> list[Reply]:
        """Send one message to every shard and wait for all replies, in the order of the shards."""
        replies = self.send(dict.fromkeys(range(self.n_shards), message))
        return [replies[shard] for shard in range(self.n_shards)]

    def send(self, messages: Mapping[int, Message]) -> dict[int, Reply]:
        """Send messages to some shards and wait for all replies.

        Raises
        ------
        WorkerLost, SchedulerLost
            If a reply cannot come any more.
        Exception
            What a shard raised.
        """
        return self._actors.call("handle", {shard: (message,) for shard, message in messages.items()})

    def close(self) -> None:
        """Free the shards."""
        self._actors.close()


def _size(block: Columns) -> int:
    return sum(array.nbytes for array in block)
