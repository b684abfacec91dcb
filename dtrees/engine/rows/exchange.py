"""What carries messages to shards of rows, and parcels from one shard to another.

Shards of rows send each other sums and rows, which are too many to go by way of the coordinator. What a shard has for others, it leaves
with its reply, as *parcels*; the executor hands them over. The rule: when :meth:`~dtrees.engine.protocol.executor.Executor.collect` returns
the replies of an exchange, every parcel that its messages led to has been received.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message


class Parcel(NamedTuple):
    """Arrays from one shard to another, of the exchange with a serial number in an epoch of a fit."""

    fit: str
    epoch: int
    sender: int
    serial: int
    arrays: tuple[NDArray[Any], ...]


#: What a shard replies, and the parcels that it has for shards.
Answer = tuple[Any, Mapping[int, Parcel]]


class RowsExecutor(Protocol):
    """What the engine needs of an executor of shards of rows: :class:`~dtrees.engine.protocol.executor.Executor` without owners of columns.

    Attributes
    ----------
    places_rows : bool
        True.
    n_shards, n_rows, n_columns : int
    """

    places_rows: Literal[True]
    n_shards: int
    n_rows: int
    n_columns: int

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards; return all replies when all parcels have been received.

        Raises
        ------
        ShardsLost
        """

    def wants_repair(self, n_left: int) -> bool:
        """Tell whether shards are to be replaced before the next tree, if ``n_left`` are left to grow."""

    def repair(self) -> None:
        """Replace shards that are gone by new ones with the same rows, which know nothing of the fit yet; raises as :meth:`send` does."""

    def close(self) -> None:
        """Release what the executor holds."""
