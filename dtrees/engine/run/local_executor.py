"""The executor for a table in this process: one shard, which has all columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.executor import Executor
from dtrees.engine.protocol.messages import Message, Reply
from dtrees.engine.shard.shard import Shard
from dtrees.engine.shard.shard_columns import SharedZoneMap
from dtrees.split.table.sparse_columns import AnyColumns, SparseColumns


class LocalExecutor(Executor):
    """One shard with all columns, in this process. It carries out a message when its reply is asked for.

    Parameters
    ----------
    columns, target, weight
        See :class:`~dtrees.engine.shard.shard.Shard`.
    n_threads : int
    zones : SharedZoneMap, optional
        Of the columns, where several executors share it.
    """

    n_shards = 1

    def __init__(
        self,
        columns: AnyColumns,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        n_threads: int,
        zones: SharedZoneMap | None = None,
    ) -> None:
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self.shard = Shard(columns, np.arange(self.n_columns, dtype=np.int32), self.n_columns, target, weight, n_threads, zones)
        # A tree of a sparse table is grown whole, by one thread.
        self.whole_threads = 1 if isinstance(columns, SparseColumns) else self.shard.n_threads
        self._posted: deque[Mapping[int, Message]] = deque()

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the one shard for every column."""
        return np.zeros(columns.shape[0], np.int64)

    def post(self, messages: Mapping[int, Message]) -> None:
        """Note a message to the shard."""
        self._posted.append(messages)

    def collect(self) -> dict[int, Reply]:
        """Have the shard carry out a message."""
        return {shard: self.shard.handle(message) for shard, message in self._posted.popleft().items()}

    def broadcast(self, message: Message) -> list[Reply]:
        """Have the shard carry out a message at once: nothing else is under way."""
        return [self.shard.handle(message)]

    def wants_repair(self) -> bool:
        """Return False: the shard is here, for as long as this process is."""
        return False

    def repair(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the shard's threads."""
        self.shard.close()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
