"""What carries messages to shards of rows, and parcels from one shard to another.

Shards of rows send each other sums and rows, which are too many to go by way of the coordinator, and too often to take turns with it.
How a shard carries out a message is a *program*: at each :class:`Step` it has parcels for other shards, and waits for those that it is
sent, until it comes to its reply. All that take part in an exchange run their programs at the same time. That the parcels of a step have
come is known from the steps of their receivers, so nobody acknowledges them.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

from dtrees.engine.protocol.messages import Message

Arrays = tuple[NDArray[Any], ...]


class Parcel(NamedTuple):
    """Arrays from one shard to another, of a step of the exchange with a serial number in an epoch of a fit."""

    fit: str
    epoch: int
    serial: int
    name: str
    sender: int
    arrays: Arrays

    @property
    def key(self) -> tuple[str, int, int, str, int]:
        """All but the arrays."""
        return self[:5]


class Step(NamedTuple):
    """A step of a program: ``parcels`` to shards by their numbers, and the ``senders`` of whom others are awaited.

    What comes of it is the arrays of each sender, of whom there may be none. But what a shard is sent in an exchange it awaits in that
    exchange, as nobody takes it in for a shard that has replied. All shards that take part in an exchange take the same steps. Where
    several programs take steps together, the name is made of theirs (:mod:`dtrees.engine.rows.between.side_by_side`).
    """

    fit: str
    epoch: int
    serial: int
    name: str
    parcels: Mapping[int, Parcel]
    senders: Sequence[int]

    @property
    def keys(self) -> list[tuple[str, int, int, str, int]]:
        """Those of the parcels awaited."""
        return [(self.fit, self.epoch, self.serial, self.name, sender) for sender in self.senders]


class Turn(NamedTuple):
    """Before it sends rows, of so many cells from all shards, a tree waits for its turn among those that grow beside it."""

    n_cells: int


#: Yields steps, is sent what came of them, and returns a reply.
Program = Generator[Step, Any, Any]


class Mailbox:
    """What other shards have sent to one: parcels of the fit and the epoch under way, and of later ones; any thread may put some in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fit: tuple[str, int] | None = None
        self._parcels: dict[tuple[str, int, int, str, int], Parcel] = {}

    def open(self, fit: str, epoch: int) -> None:
        """Begin an epoch: parcels of others are dropped."""
        with self._lock:
            self._fit = fit, epoch
            self._parcels = {key: parcel for key, parcel in self._parcels.items() if key[:2] == self._fit}

    def put(self, parcel: Parcel) -> None:
        """Keep a parcel; one of an earlier epoch is dropped."""
        with self._lock:
            if self._fit is None or self._fit[0] != parcel.fit or self._fit[1] <= parcel.epoch:
                self._parcels[parcel.key] = parcel

    def take(self, step: Step) -> list[Arrays] | None:
        """Take what a step awaits, in the order of its senders; return None if something is missing."""
        keys = step.keys
        with self._lock:
            parcels = self._parcels
            for key in keys:
                if key not in parcels:
                    return None
            return [parcels.pop(key).arrays for key in keys]

    def missing(self, step: Step) -> list[int]:
        """Return of whom nothing has come that a step awaits."""
        with self._lock:
            return [sender for sender, key in zip(step.senders, step.keys, strict=True) if key not in self._parcels]


class RowsExecutor(Protocol):
    """What the engine needs of an executor of shards of rows: :class:`~dtrees.engine.protocol.messages.Executor` without owners of columns.

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
        """Have some shards carry out messages together; return all replies.

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
