"""Executors carry messages to shards. They know nothing of what the messages say.

One engine, several executors: :class:`LocalExecutor` calls a shard in this process; the one on Dask is in :mod:`dtrees.cluster`.

Terms
-----
exchange
    messages to some shards, and their replies. One may begin while others are under way: each shard carries out its messages in the order
    in which exchanges began, and replies are taken in that order too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message, Reply


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
    places_rows : bool
        False: shards have columns of the table, not rows of it (:class:`dtrees.engine.rows.exchange.RowsExecutor`).
    """

    places_rows: Literal[False] = False

    n_shards: int
    n_rows: int
    n_columns: int
    whole_threads: int

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange: send messages to some shards.

        Raises
        ------
        ShardsLost
            If some cannot be reached any more. Then no exchange is under way.
        """

    def collect(self) -> dict[int, Reply]:
        """Wait for all replies of the exchange that began first of those under way; raises as :meth:`post` does."""

    def send(self, messages: Mapping[int, Message]) -> dict[int, Reply]:
        """Send messages to some shards and wait for all replies, while nothing else is under way; raises as :meth:`post` does."""
        self.post(messages)
        return self.collect()

    def broadcast(self, message: Message) -> list[Reply]:
        """Send one message to every shard and wait for all replies, which come in the order of the shards; raises as :meth:`post` does."""
        replies = self.send(dict.fromkeys(range(self.n_shards), message))
        return [replies[shard] for shard in range(self.n_shards)]

    def wants_repair(self) -> bool:
        """Tell whether shards are to be replaced before the next tree."""

    def repair(self) -> None:
        """Replace shards that are gone by new ones with the same columns, which know nothing of the fit yet.

        Raises
        ------
        ShardsLost
            If further ones went meanwhile.
        """

    def close(self) -> None:
        """Release what the executor holds."""
