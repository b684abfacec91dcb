"""Shards of rows in this process: the reference for other executors, and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.exchange import Parcel, RowsExecutor
from dtrees.engine.rows.row_shard import RowShard
from dtrees.split.table.columns import presort


class LocalRowsExecutor(RowsExecutor):
    """Carries messages to shards of rows in this process, one after the other.

    Parameters
    ----------
    shards : sequence of RowShard
    n_rows, n_columns : int
        Of the whole table.
    """

    places_rows: Literal[True] = True

    def __init__(self, shards: Sequence[RowShard], n_rows: int, n_columns: int) -> None:
        self.shards = list(shards)
        self.n_shards, self.n_rows, self.n_columns = len(shards), n_rows, n_columns

    @classmethod
    def of(
        cls,
        table: Sequence[NDArray[Any]],
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        cuts: Sequence[Sequence[tuple[int, int]]],
        n_threads: int = 1,
    ) -> LocalRowsExecutor:
        """Return an executor of shards that have some stretches of rows each: the first row, and the one after the last."""
        shards = []
        for stretches in cuts:
            rows = np.concatenate([np.empty(0, np.int64), *(np.arange(first, last) for first, last in stretches)])
            columns = presort([column[rows] for column in table])
            shards.append(RowShard(columns, stretches, target.shape[0], target[rows], None if weight is None else weight[rows], n_threads))
        return cls(shards, target.shape[0], len(table))

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Have shards carry out messages, and hand over their parcels."""
        replies: dict[int, Any] = {}
        parcels: list[tuple[int, Parcel]] = []
        for shard, message in messages.items():
            replies[shard], sent = self.shards[shard].handle(message)
            parcels.extend(sent.items())
        for shard, parcel in parcels:
            self.shards[shard].receive(parcel)
        return replies

    def wants_repair(self, n_left: int) -> bool:
        """Return False: shards are here, for as long as this process is."""
        return False

    def repair(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End the threads of all shards."""
        for shard in self.shards:
            shard.close()
