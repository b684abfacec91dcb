"""Trees over rows that stay where they are: shards on workers, each with rows of its own, which send one another sums and rows.

What shards send one another (:mod:`dtrees.engine.rows`) goes from worker to worker (:mod:`dtrees.cluster.transport.peers`). A shard has
sent all that is due to a message before it replies, so that nothing is under way when an exchange is over. What it was sent, it is given
before its next message, by the thread that carries that out.

Lost shards are replaced as :mod:`dtrees.cluster.growing.worker_shards` says: their partitions are loaded again, on another worker.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distributed import get_worker

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.row_blocks import ClusterRows, RowBlock
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actors import ActorBase, ActorsLost, Failed
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.worker_shards import WorkerShards
from dtrees.cluster.transport.events import tell
from dtrees.cluster.transport.packing import pack
from dtrees.cluster.transport.peers import PeerLost, Peers
from dtrees.engine.protocol.messages import Message, Reply
from dtrees.engine.rows.exchange import Parcel, RowsExecutor
from dtrees.engine.rows.row_shard import RowShard

logger = logging.getLogger("dtrees.cluster")


class RowShardActor(ActorBase):
    """A :class:`~dtrees.engine.rows.row_shard.RowShard` on a worker, using as many threads as the worker has."""

    AT_ONCE = frozenset({"keep", "interrupt"})

    def __init__(self, block: RowBlock, n_rows: int, number: int) -> None:
        super().__init__()
        share_kernels()
        worker = get_worker()
        self._shard = RowShard(block.columns, block.stretches, n_rows, block.target, block.weight, threads_of(worker))
        self._number = number
        self._peers = Peers(worker)
        self._kept: list[tuple[int, int, Parcel]] = []
        self._lock = threading.Lock()

    def meet(self, where: Sequence[tuple[str, str]]) -> None:
        """Take in where all shards are, this one among them."""
        self._peers.meet(where)

    def interrupt(self) -> None:
        """Have it wait for other shards no longer, until it is told where they are."""
        self._peers.interrupt()

    def keep(self, exchange: int, sender: int, parcel: Parcel) -> None:
        """Take what another shard sends in an exchange, while it does something else."""
        with self._lock:
            self._kept.append((exchange, sender, parcel))

    def handle(self, exchange: int, message: Message) -> tuple[Reply, tuple[float, float, int]] | Failed:
        """Carry out a message; with the reply come the seconds it took, and what was sent to other shards: seconds and bytes."""
        began, before = time.perf_counter(), self._peers.sent
        try:
            self._hand_over(exchange)
            reply, parcels = self._shard.handle(message)
            if self._number in parcels:
                self.keep(exchange, self._number, parcels[self._number])
            worked = time.perf_counter()
            once = {id(parcel): pack(("keep", (exchange, self._number, parcel))) for parcel in parcels.values()}
            self._peers.call({shard: once[id(parcel)] for shard, parcel in parcels.items() if shard != self._number})
            return reply, (worked - began, time.perf_counter() - worked, self._peers.sent - before)
        except Exception as error:
            error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks do not travel
            return Failed(error)

    def _hand_over(self, exchange: int) -> None:
        """Give the shard what it was sent in earlier exchanges."""
        with self._lock:
            due = sorted((one for one in self._kept if one[0] < exchange), key=lambda one: one[:2])
            self._kept = [one for one in self._kept if one[0] >= exchange]
        for _, _, parcel in due:
            self._shard.receive(parcel)

    def close(self) -> None:
        """End the shard's threads and connections, when it is done with what it does."""
        self.interrupt()
        with self.turn:
            self._peers.close()
            self._shard.close()


class DaskRowsExecutor(WorkerShards, RowsExecutor):
    """Shards that have rows; see :class:`dtrees.cluster.growing.worker_shards.WorkerShards`.

    Parameters
    ----------
    rows : ClusterRows
    """

    places_rows = True

    def __init__(self, rows: ClusterRows) -> None:
        super().__init__(rows.client, RowShardActor)
        self.n_shards, self.n_rows, self.n_columns = len(rows.blocks), rows.n_rows, rows.n_columns
        self._rows = rows
        self._bytes = [rows.sizes.needed_for_rows(rows.rows_of(shard)) for shard in range(self.n_shards)]
        self._n_exchanges = self._n_broken = 0
        self._have_met = self._may_wait = False
        self._make_all(rows.workers)
        logger.info("%d rows in %d shards on %s", self.n_rows, self.n_shards, ", ".join(self._actors.workers))

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange, while no other is under way."""
        with self._losses():
            if not self._have_met:
                self._actors.call("meet", dict.fromkeys(range(self.n_shards), (self._actors.where,)))
                self._have_met = self._may_wait = True
        self._n_exchanges += 1
        super().post(messages)

    def repair(self) -> None:
        """Put new shards in the place of those that are lost; see :meth:`WorkerShards.repair`."""
        self._have_met = False
        with self._losses():
            self._actors.look()
            if self._may_wait:  # for those that are lost
                self._actors.call("interrupt", {shard: () for shard in range(self.n_shards) if shard not in self._actors.lost})
                self._may_wait = False
        super().repair()

    def _call(self, message: Message) -> tuple[Any, ...]:
        return self._n_exchanges, message

    def _take_account(self, shard: int, account: tuple[float, float, int]) -> float:
        worked, _, sent = account
        worker = self._actors.workers[shard]
        self.timings.exchanged[worker] = self.timings.exchanged.get(worker, 0) + sent
        return worked

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        with super()._losses():
            try:
                yield
            except PeerLost as error:
                self._note_broken(error)
                raise ActorsLost(str(error)) from error

    def _note_broken(self, error: PeerLost) -> None:
        """Give up where workers fail again and again to reach one another, though both are there."""
        self._n_broken += 1
        logger.warning("workers cannot reach one another: %s", error)
        tell(self._fit.name, "shards lost", shards=[], workers=[])
        if self._n_broken > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Workers could not reach one another {self._n_broken} times in this fit, more often than max_restarts; the last time: "
                f"{error}. With placement='rows', each worker must be able to connect to every other; or use another placement."
            ) from error

    def _bring(self, shard: int, worker: str) -> None:
        self._rows.bring(shard, worker)

    def _arguments(self, shard: int) -> tuple[Any, ...]:
        return self._rows.blocks[shard], self.n_rows, shard

    def _describe(self, shard: int) -> str:
        return f"{self._rows.rows_of(shard):,} of {self.n_rows:,} rows, {self._bytes[shard] / 1e6:,.0f} MB"

    def _tell_holding(self) -> None:
        """Tell what the rows of each worker take."""
        held: dict[str, tuple[int, int]] = {}
        for worker, n_bytes in zip(self._actors.workers, self._bytes, strict=True):
            held[worker] = self.n_columns, held.get(worker, (0, 0))[1] + n_bytes
        tell(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=held)
