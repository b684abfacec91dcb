"""Shards on the workers of a cluster, whatever they have of the table: calls to them, and new ones in place of those that are lost.

What shards have is made again from the user's data, on a worker that has no shard yet where there is one, else beside another shard. When
a worker without a shard turns up later, one of two that share a worker moves there between two trees.
:mod:`dtrees.engine.run.lasting` brings new ones up to date.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dtrees.cluster.data.column_blocks import ClusterTable
from dtrees.cluster.data.memory import running
from dtrees.cluster.growing.actors import ActorsLost
from dtrees.cluster.growing.lasting_actors import LastingActors
from dtrees.cluster.growing.reporting import Account, Timings
from dtrees.cluster.transport.direct_channel import ActorBase
from dtrees.cluster.transport.events import Exchanges, tell
from dtrees.engine.protocol.messages import Message, ShardsLost

logger = logging.getLogger("dtrees.cluster")

_SECONDS_BETWEEN_CENSUSES = 5.0


class _Posted(NamedTuple):
    """An exchange under way: the message, when it began, and the bytes sent."""

    kind: str
    began: float
    sent: int


class WorkerShards(LastingActors):
    """Shards on the workers of a cluster: what executors of the engine have in common, whatever shards have.

    Parameters
    ----------
    table : ClusterTable
        Each of its blocks is of a shard.
    make : callable
        Makes a shard on a worker.
    ends_at_failure : bool
        Whether shards wait for one another, so that an exchange is over when one fails.

    Attributes
    ----------
    n_shards, n_rows, n_columns : int
        See :class:`~dtrees.engine.protocol.messages.Executor`.
    timings : Timings
    """

    def __init__(self, table: ClusterTable, make: Callable[..., ActorBase], ends_at_failure: bool = False) -> None:
        super().__init__(table.client, "shard", make, ends_at_failure)
        self.n_shards, self.n_rows, self.n_columns = len(table.blocks), table.n_rows, table.n_columns
        self.timings = Timings(sent=self._actors.sent_to, received=self._actors.received_from)
        self._table = table
        self._exchanges = Exchanges(self._fit.name)
        self._next_census = 0.0
        self._posted: deque[_Posted] = deque()
        self._ended = 0.0
        self._make_all(table.workers)
        self._tell_holding()
        logger.info("%d rows, %d columns in %d shards on %s", self.n_rows, self.n_columns, self.n_shards, ", ".join(self._actors.workers))

    def close(self) -> None:
        """Free the shards."""
        self._exchanges.tell()
        super().close()

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards and wait for all replies, while nothing else is under way."""
        self.post(messages)
        return self.collect()

    def wants_repair(self) -> bool:
        """Tell whether shards are to be made anew or moved."""
        if time.monotonic() < self._next_census:
            return False
        self._next_census = time.monotonic() + _SECONDS_BETWEEN_CENSUSES
        workers = self._actors.look()
        return bool(self._actors.lost) or self._to_move(workers) is not None

    def repair(self) -> None:
        """Put new shards in the place of those that are lost, or move one; see :meth:`dtrees.engine.protocol.messages.Executor.repair`.

        Raises
        ------
        WorkerLost
            If shards were lost too often, or no worker can take one.
        """
        workers = self._actors.look()
        if self._actors.lost:
            self._note_loss()
        elif (moved := self._to_move(workers)) is not None:
            self._actors.lost.add(moved)
        self._replace_lost()
        self._await_made()
        self._tell_holding()

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange; see :meth:`dtrees.engine.protocol.messages.Executor.post`."""
        before, began = self._actors.sent, time.perf_counter()
        with self._losses():
            self._actors.post("handle", {shard: (message,) for shard, message in messages.items()})
        kind = next(iter(messages.values())).kind
        self._posted.append(_Posted(kind, began, self._actors.sent - before))

    def collect(self) -> dict[int, Any]:
        """Wait for all replies of the exchange that began first of those under way.

        Raises
        ------
        ShardsLost
            If a reply cannot come any more.
        FitCancelled, SchedulerLost
            If nobody waits for the fit, or the way to the cluster is lost.
        Exception
            What a shard raised.
        """
        before = self._actors.received
        with self._losses():
            replies = self._actors.collect()
        posted, ended = self._posted.popleft(), time.perf_counter()
        seconds = ended - max(posted.began, self._ended)  # what of it passed before is counted with another exchange
        self._ended = ended
        accounts: list[Account] = [account for _, account in replies.values()]
        self.timings.add(seconds, [(self._actors.workers[shard], account) for shard, account in zip(replies, accounts, strict=True)])
        slowest, received = max(account.worked for account in accounts), self._actors.received - before
        self._exchanges.note(
            message=posted.kind, n_shards=len(replies), seconds=seconds, slowest=slowest, sent=posted.sent, received=received
        )
        return {shard: reply for shard, (reply, _) in replies.items()}

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """Tell the engine of actors that are lost, in its own terms."""
        try:
            yield
        except BaseException as error:
            self._posted.clear()
            if isinstance(error, ActorsLost):
                raise ShardsLost(str(error)) from error
            raise

    @abstractmethod
    def _share(self, shard: int) -> tuple[int, int]:
        """Return how many columns and rows a shard has."""

    def _bring(self, i: int, worker: str) -> None:
        super()._bring(i, worker)
        self._table.bring(i, worker)
        tell(self._fit.name, "shard moved", shard=i, to=worker)

    def _note_loss(self) -> None:
        super()._note_loss()
        lost = sorted(self._actors.lost)
        tell(self._fit.name, "shards lost", shards=lost, workers=[self._actors.workers[i] for i in lost])

    def _to_move(self, workers: Mapping[str, Mapping[str, Any]]) -> int | None:
        """Return a shard that had better be elsewhere: its worker is about to go, or has another shard where some worker has none."""
        mine = self._actors.workers
        for shard, worker in enumerate(mine):
            if workers.get(worker, {}).get("status") == "closing_gracefully":
                return shard
        doubled = [shard for shard, worker in enumerate(mine) if worker in mine[:shard]]
        spare = [capacity.free for worker, capacity in running(workers).items() if worker not in mine]
        return next((shard for shard in doubled if any(free >= self._needed(shard) for free in spare)), None)

    def _tell_holding(self) -> None:
        """Tell what each worker holds."""
        workers: dict[str, tuple[int, int]] = {}
        rows_of: dict[str, int] = {}
        for shard, worker in enumerate(self._actors.workers):
            (columns, rows), (before, n_bytes) = self._share(shard), workers.get(worker, (0, 0))
            workers[worker] = min(before + columns, self.n_columns), n_bytes + self._needed(shard)
            rows_of[worker] = min(rows_of.get(worker, 0) + rows, self.n_rows)
        tell(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=workers, rows_of=rows_of)
