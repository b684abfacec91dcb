"""The executor over shards on workers, each with some of the columns or of the rows; it carries the engine's messages.

The executor runs with the coordinator, in a task of the cluster. The data of a lost shard are brought, or made again from the user's data,
on a worker without a shard if there is one, otherwise beside another shard. When a worker without a shard joins later, one of two shards on
the same worker moves there between two trees. :mod:`dtrees.engine.run.lasting` brings new shards up to date.

Payloads between shards (:mod:`dtrees.engine.protocol.exchange`) are sent from worker to worker (:mod:`dtrees.cluster.transport.peers`), and
awaited there. Every wait ends: if a shard is lost, or fails because it cannot reach another, the coordinator interrupts all others. A shard
whose worker has released it stops as well.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from distributed import get_worker

from dtrees.cluster.data.memory import running
from dtrees.cluster.data.rows import RowBlock
from dtrees.cluster.data.tables import ClusterTable
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actors import ActorsLost, LastingActors
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.transport.direct_channel import ActorBase, pack_named
from dtrees.cluster.transport.events import Account, Exchanges, Timings, publish
from dtrees.cluster.transport.peers import PeerLost, Peers
from dtrees.engine.protocol.exchange import Payload, Step
from dtrees.engine.protocol.messages import Executor, Message, ShardsLost
from dtrees.engine.rows.row_shard import RowShard
from dtrees.engine.shard.shard import Shard
from dtrees.engine.threads import available_cores

logger = logging.getLogger("dtrees.cluster")

_SECONDS_BETWEEN_CENSUSES = 5.0
#: The coordinator finds lost shards much earlier. This limit is for a lost coordinator, whose shards are then forgotten.
_SECONDS_TO_WAIT = 3600.0


class ShardActor(ActorBase):
    """A shard on a worker, with all threads of the worker."""

    AT_ONCE = frozenset({"interrupt"})

    def __init__(self, number: int, make: Callable[..., Shard | RowShard], *parts: Any) -> None:
        super().__init__()
        share_kernels()
        worker = get_worker()
        self._shard = make(*parts, available_cores())
        self._number, put = number, self._shard.mailbox.put
        self.peers = Peers(worker, number, lambda sent: put(Payload._make((*sent[0], sent[1]))))
        self.meet, self.interrupt = self.peers.meet, self.peers.interrupt  # for the coordinator
        self.when_gone(self._shard.close)

    def handle(self, message: Message) -> tuple[Any, Account]:
        """Carry out a message; return the reply and an account of its time."""
        began, before = time.perf_counter(), self.peers.sent
        sending = waiting = 0.0
        program, sent = self._shard.program(message), None
        while True:
            try:
                step = program.send(sent)
            except StopIteration as end:
                worked = time.perf_counter() - began - sending - waiting
                return end.value, Account(worked, waiting, self.peers.sent - before)
            stepped = time.perf_counter()
            self.hand_over(step)
            handed_over = time.perf_counter()
            sent = self.wait_for(step)
            sending, waiting = sending + handed_over - stepped, waiting + time.perf_counter() - handed_over

    def hand_over(self, step: Step) -> None:
        """Send the payloads of a step to other shards."""
        once: dict[int, list[Any]] = {}
        things = {}
        for shard, payload in step.payloads.items():
            if shard == self._number:
                self._shard.mailbox.put(payload)
            else:
                if id(payload) not in once:
                    once[id(payload)] = pack_named(payload.key, payload.arrays)
                things[shard] = once[id(payload)]
        self.peers.send(things)

    def wait_for(self, step: Step) -> list[Any]:
        """Wait for the payloads of other shards."""
        return self.peers.wait(lambda: self._shard.mailbox.take(step), _SECONDS_TO_WAIT, step.name)


def _row_shard(block: RowBlock, n_rows: int, n_threads: int) -> RowShard:
    return RowShard(block.columns, block.ranges, n_rows, block.target, block.weight, n_threads)


class WorkerShards(LastingActors, Executor):
    """Shards on the workers of a cluster.

    Parameters
    ----------
    table : ClusterTable
        Its blocks, one for each shard.

    Attributes
    ----------
    places_rows, n_shards, n_rows, n_columns
        See :class:`~dtrees.engine.protocol.messages.Executor`.
    timings : Timings
    """

    def __init__(self, table: ClusterTable) -> None:
        super().__init__(table.client, "shard", ShardActor)
        self.places_rows, self.n_shards = table.places_rows, len(table.blocks)
        self.n_rows, self.n_columns = table.n_rows, table.n_columns
        self.timings = Timings(sent=self.sent, received=self.received)
        self._table = table
        self._exchanges = Exchanges(self._fit.name)
        self._next_census = 0.0
        self._n_broken = 0
        self._have_met = False
        self._make_all(table.workers)
        self._tell_holding()
        logger.info("%d rows, %d columns in %d shards on %s", self.n_rows, self.n_columns, self.n_shards, ", ".join(self.workers))

    def close(self) -> None:
        """Release the shards."""
        self._exchanges.publish()
        super().close()

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Have some shards carry out messages together; return their replies.

        Raises
        ------
        ShardsLost
            If a reply can no longer arrive.
        FitCancelled, SchedulerLost
            If the fit is no longer wanted, or the connection to the cluster is lost.
        Exception
            The error raised by a shard.
        """
        sent, received, began = self.sent.total(), self.received.total(), time.perf_counter()
        with self._losses():
            if not self._have_met:
                self.call("meet", dict.fromkeys(range(self.n_shards), (self.where,)))
                self._have_met = True
            replies = self.call("handle", {shard: (message,) for shard, message in messages.items()})
        seconds, accounts = time.perf_counter() - began, [account for _, account in replies.values()]
        self.timings.add(seconds, [(self.workers[shard], account) for shard, account in zip(replies, accounts, strict=True)])
        kind, slowest = type(next(iter(messages.values()))).__name__, max(account.worked for account in accounts)
        n_bytes = {"sent": self.sent.total() - sent, "received": self.received.total() - received}
        self._exchanges.note(message=kind, n_shards=len(replies), seconds=seconds, slowest=slowest, **n_bytes)
        return {shard: reply for shard, (reply, _) in replies.items()}

    def wants_repair(self) -> bool:
        """Return whether shards should be replaced or moved."""
        if time.monotonic() < self._next_census:
            return False
        self._next_census = time.monotonic() + _SECONDS_BETWEEN_CENSUSES
        workers = self.look()
        return bool(self.lost) or self._to_move(workers) is not None

    def repair(self) -> None:
        """Replace lost shards, or move one; see :meth:`dtrees.engine.protocol.messages.Executor.repair`.

        Raises
        ------
        WorkerLost
            If there were too many losses, or no worker can take a shard.
        """
        with self._losses():
            workers = self.look()
            if self._have_met:  # and may wait for lost ones
                self.call("interrupt", {shard: () for shard in range(self.n_shards) if shard not in self.lost})
                self._have_met = False
        if self.lost:
            self._note_loss()
        elif (moved := self._to_move(workers)) is not None:
            self.lost.add(moved)
        self._replace_lost()
        self._await_made()
        self._tell_holding()

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """Convert losses of actors to the engine's ShardsLost."""
        try:
            yield
        except PeerLost as error:
            self._note_broken(error)
            raise ShardsLost(str(error)) from error
        except ActorsLost as error:
            raise ShardsLost(str(error)) from error

    def _note_broken(self, error: PeerLost) -> None:
        """Raise if workers repeatedly fail to reach each other although both are running."""
        self._n_broken += 1
        logger.warning("workers cannot reach one another: %s", error)
        publish(self._fit.name, "shards lost", shards=[], workers=[])
        if self._n_broken > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Workers could not reach one another {self._n_broken} times in this fit, more often than max_restarts; the last time: "
                f"{error}. Where a table is spread over workers, each must be able to connect to every other; or use another placement."
            ) from error

    def _arguments(self, i: int) -> tuple[Any, ...]:
        return i, _row_shard if self.places_rows else Shard, *self._table.shard(i)

    def _needed(self, i: int) -> int:
        return self._table.needed(i)

    def _describe(self, i: int) -> str:
        columns, rows = self._table.share(i)
        what = f"{rows:,} of {self.n_rows:,} rows" if self.places_rows else f"{columns} of {self.n_columns} columns"
        return f"{what}, {self._needed(i) / 1e6:,.0f} MB"

    def _bring(self, i: int, worker: str) -> None:
        super()._bring(i, worker)
        self._table.bring(i, worker)
        publish(self._fit.name, "shard moved", shard=i, to=worker)

    def _note_loss(self) -> None:
        super()._note_loss()
        lost = sorted(self.lost)
        publish(self._fit.name, "shards lost", shards=lost, workers=[self.workers[i] for i in lost])

    def _to_move(self, workers: Mapping[str, Mapping[str, Any]]) -> int | None:
        """Return a shard to be moved: its worker is retiring, or has another shard while some worker has none."""
        mine = self.workers
        for shard, worker in enumerate(mine):
            if workers.get(worker, {}).get("status") == "closing_gracefully":
                return shard
        doubled = [shard for shard, worker in enumerate(mine) if worker in mine[:shard]]
        spare = [capacity.free for worker, capacity in running(workers).items() if worker not in mine]
        return next((shard for shard in doubled if any(free >= self._needed(shard) for free in spare)), None)

    def _tell_holding(self) -> None:
        """Publish the data that each worker holds."""
        workers: dict[str, tuple[int, int]] = {}
        rows_of: dict[str, int] = {}
        for shard, worker in enumerate(self.workers):
            (columns, rows), (before, n_bytes) = self._table.share(shard), workers.get(worker, (0, 0))
            workers[worker] = min(before + columns, self.n_columns), n_bytes + self._needed(shard)
            rows_of[worker] = min(rows_of.get(worker, 0) + rows, self.n_rows)
        publish(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=workers, rows_of=rows_of)
