"""Executors carry messages to shards. They know nothing of what the messages say.

One engine, several executors: :class:`LocalExecutor` calls a shard in this process; the one on Dask is in :mod:`dtrees.cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.messages import Message, Reply
from dtrees.engine.shard import Shard
from dtrees.split.columns import Columns


class ShardsLost(RuntimeError):
    """Shards are gone, and so is the tree under way; :meth:`Executor.repair` replaces them."""


class Executor(Protocol):
    """What the engine needs of one.

    Attributes
    ----------
    n_shards : int
    n_rows, n_columns : int
        Of the whole table.
    whole_threads : int
        Threads of the one shard that has all columns; 0 where columns are spread.
    """

    n_shards: int
    n_rows: int
    n_columns: int
    whole_threads: int

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""

    def broadcast(self, message: Message) -> list[Reply]:
        """Send one message to every shard and wait for all replies, in the order of the shards.

        Raises
        ------
        ShardsLost
            If replies cannot come any more.
        """

    def send(self, messages: Mapping[int, Message]) -> dict[int, Reply]:
        """Send messages to some shards and wait for all replies; raises as :meth:`broadcast` does."""

    def wants_repair(self, n_left: int) -> bool:
        """Tell whether shards had better be replaced before the next tree, if ``n_left`` are left to grow."""

    def repair(self) -> None:
        """Replace shards that are gone by new ones with the same columns, which know nothing of the fit yet.

        If none are gone, columns may be spread anew: over more shards, some of which know nothing of the fit yet.

        Raises
        ------
        ShardsLost
            If further ones went meanwhile.
        """

    def close(self) -> None:
        """Release what the executor holds."""


class LocalExecutor:
    """One shard with all columns, in this process.

    Parameters
    ----------
    columns, target, weight
        See :class:`~dtrees.engine.shard.Shard`.
    n_threads : int
    """

    n_shards = 1

    def __init__(self, columns: Columns, target: NDArray[Any], weight: NDArray[np.float64] | None, n_threads: int) -> None:
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self.shard = Shard(columns, np.arange(self.n_columns, dtype=np.int32), self.n_columns, target, weight, n_threads)
        self.whole_threads = self.shard.n_threads

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the one shard for every column."""
        return np.zeros(columns.shape[0], np.int64)

    def broadcast(self, message: Message) -> list[Reply]:
        """Have the shard carry out a message."""
        return [self.shard.handle(message)]

    def send(self, messages: Mapping[int, Message]) -> dict[int, Reply]:
        """Have the shard carry out messages."""
        return {shard: self.shard.handle(message) for shard, message in messages.items()}

    def wants_repair(self, n_left: int) -> bool:
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
