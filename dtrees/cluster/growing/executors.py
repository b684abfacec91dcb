"""Trees over shards on workers, each with some of the columns or of the rows: the executors that carry the engine's messages to them.

An executor lives where the coordinator does, in a task of the cluster. Lost shards are replaced as
:mod:`dtrees.cluster.growing.worker_shards` says: their columns are brought or presorted again, their partitions loaded again, on another
worker.

What shards of rows send one another (:mod:`dtrees.engine.rows`) goes from worker to worker (:mod:`dtrees.cluster.transport.peers`), and is
awaited there. Nobody waits for ever: when a shard is lost, or fails as it cannot reach another, the coordinator interrupts all. A shard
that its worker has been told to forget gives up as well.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.column_blocks import ClusterColumns
from dtrees.cluster.data.memory import STATE_BYTES
from dtrees.cluster.data.row_blocks import ClusterRows, RowBlock
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actors import ActorsLost
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.reporting import Account
from dtrees.cluster.growing.worker_shards import WorkerShards
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.direct_channel import ActorBase, pack_named
from dtrees.cluster.transport.events import tell
from dtrees.cluster.transport.peers import PeerLost, Peers
from dtrees.engine.protocol.messages import Calls, Executor, Message
from dtrees.engine.rows.exchange import Arrays, Parcel, RowsExecutor, Step
from dtrees.engine.rows.row_shard import RowShard
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import Columns

logger = logging.getLogger("dtrees.cluster")

#: Who is lost, the coordinator finds out much earlier. It may be lost itself; then the shards are forgotten.
_SECONDS_TO_WAIT = 3600.0


class ShardActor(ActorBase):
    """A :class:`~dtrees.engine.shard.shard.Shard` on a worker, using as many threads as the worker has."""

    def __init__(
        self, columns: Columns, column_ids: NDArray[np.int32], n_columns: int, target: NDArray[Any], weight: NDArray[np.float64] | None
    ) -> None:
        super().__init__()
        share_kernels()
        self._shard = Shard(columns, column_ids, n_columns, target, weight, threads_of(get_worker()))

    def handle(self, message: Calls) -> tuple[dict[int, Any], Account]:
        """Carry out a message; see :meth:`dtrees.engine.shard.shard.Shard.handle`. With the reply comes an account of it."""
        began = time.perf_counter()
        return self._shard.handle(message), Account(time.perf_counter() - began)

    def close(self) -> None:
        """End the shard's threads, when it is done with what it does."""
        with self.turn:
            self._shard.close()


class DaskExecutor(WorkerShards, Executor):
    """Shards that have columns; see :class:`dtrees.cluster.growing.worker_shards.WorkerShards`.

    Parameters
    ----------
    columns : ClusterColumns
    target : Future of ndarray, shape (n_rows,)
    weight : Future of ndarray, shape (n_rows,), or None
    """

    whole_threads = 0  # what one worker grows by itself is a task there, without shards

    def __init__(self, columns: ClusterColumns, target: Future, weight: Future | None) -> None:
        self._ids = [np.array(ids, np.int32) for ids in columns.ids]
        self._owner = np.zeros(columns.n_columns, np.int64)
        for shard, ids in enumerate(self._ids):
            self._owner[ids] = shard
        with Tasks(columns.client) as tasks:
            self._sizes = tasks.waiter.gather(tasks.map("size", _size, columns.blocks))
        self._rows = target, weight
        super().__init__(columns, ShardActor)

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""
        return self._owner[columns]

    def _arguments(self, i: int) -> tuple[Any, ...]:
        return self._table.blocks[i], self._ids[i], self.n_columns, *self._rows

    def _needed(self, i: int) -> int:
        return self._sizes[i] + STATE_BYTES * self.n_rows

    def _share(self, shard: int) -> tuple[int, int]:
        return len(self._ids[shard]), self.n_rows

    def _describe(self, i: int) -> str:
        return f"{len(self._ids[i])} of {self.n_columns} columns, {self._needed(i) / 1e6:,.0f} MB"


def _size(block: Columns) -> int:
    """Return the bytes of the columns of a block."""
    return int(block.codes.nbytes + sum(block.distinct(j).nbytes for j in range(block.n_columns)))


class RowShardActor(ActorBase):
    """A :class:`~dtrees.engine.rows.row_shard.RowShard` on a worker, using as many threads as the worker has."""

    AT_ONCE = frozenset({"interrupt"})

    def __init__(self, block: RowBlock, n_rows: int, number: int) -> None:
        super().__init__()
        share_kernels()
        worker = get_worker()
        self._shard = RowShard(block.columns, block.stretches, n_rows, block.target, block.weight, threads_of(worker))
        self._number = number
        self.peers = Peers(worker, number, self._take)

    def meet(self, where: Sequence[tuple[str, str]]) -> None:
        """Take in where all shards are, this one among them."""
        self.peers.meet(where)

    def interrupt(self) -> None:
        """Have it wait for other shards no longer, until it is told where they are."""
        self.peers.interrupt()

    async def take_aside(self, packed: Any) -> None:
        """Take what another shard sends, while it does something else."""
        self.peers.take_aside(packed)

    def _take(self, sent: tuple[tuple[str, int, int, str, int], Arrays]) -> None:
        key, arrays = sent
        self._shard.mailbox.put(Parcel(*key, arrays))

    def handle(self, message: Message) -> tuple[Any, Account]:
        """Carry out a message; with the reply comes an account of it."""
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
        """Send other shards the parcels that a step has for them."""
        once: dict[int, list[Any]] = {}
        things = {}
        for shard, parcel in step.parcels.items():
            if shard == self._number:
                self._shard.mailbox.put(parcel)
            else:
                if id(parcel) not in once:
                    once[id(parcel)] = pack_named(parcel.key, parcel.arrays)
                things[shard] = once[id(parcel)]
        self.peers.send(things)

    def wait_for(self, step: Step) -> list[Arrays]:
        """Wait for what other shards are to send."""
        return self.peers.wait(lambda: self._shard.mailbox.take(step), _SECONDS_TO_WAIT, step.name)

    def close(self) -> None:
        """End the shard's threads and connections, when it is done with what it does."""
        self.interrupt()
        with self.turn:
            self.peers.close()
            self._shard.close()


class DaskRowsExecutor(WorkerShards, RowsExecutor):
    """Shards that have rows; see :class:`dtrees.cluster.growing.worker_shards.WorkerShards`."""

    places_rows = True

    def __init__(self, rows: ClusterRows) -> None:
        self._rows = rows
        self._n_broken = 0
        self._have_met = self._may_wait = False
        super().__init__(rows, RowShardActor, ends_at_failure=True)

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange, while no other is under way."""
        with self._losses():
            if not self._have_met:
                self._actors.call("meet", dict.fromkeys(range(self.n_shards), (self._actors.where,)))
                self._have_met = self._may_wait = True
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

    def _arguments(self, i: int) -> tuple[Any, ...]:
        return self._rows.blocks[i], self.n_rows, i

    def _needed(self, i: int) -> int:
        return self._rows.sizes.needed_for_rows(self._rows.rows_of(i), on_disk=self._rows.encoding.is_on_disk)

    def _share(self, shard: int) -> tuple[int, int]:
        return self.n_columns, self._rows.rows_of(shard)

    def _describe(self, i: int) -> str:
        return f"{self._rows.rows_of(i):,} of {self.n_rows:,} rows, {self._needed(i) / 1e6:,.0f} MB"
