"""Trees over rows that stay where they are: shards on workers, each with rows of its own, which send one another sums and rows.

What shards send one another (:mod:`dtrees.engine.rows`) goes from worker to worker (:mod:`dtrees.cluster.transport.peers`), and is awaited
there. Nobody waits for ever: when a shard is lost, or fails as it cannot reach another, the coordinator interrupts all. A shard that its
worker has been told to forget gives up as well.

Lost shards are replaced as :mod:`dtrees.cluster.growing.shards.worker_shards` says: their partitions are loaded again, on another worker.
Workers that join take partitions over from the others (:mod:`dtrees.cluster.growing.shards.joining.rows`).
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from distributed import get_worker

from dtrees.cluster.compat import threads_of
from dtrees.cluster.data.row_blocks import ClusterRows, RowBlock
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actor import ActorBase, Failed
from dtrees.cluster.growing.actors import ActorsLost
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.shards.joining.newcomers import Handover
from dtrees.cluster.growing.shards.joining.rows import RowNewcomers, hand_over
from dtrees.cluster.growing.shards.worker_shards import WorkerShards
from dtrees.cluster.transport.events import tell
from dtrees.cluster.transport.packing import pack_named
from dtrees.cluster.transport.peers import PeerLost, Peers
from dtrees.engine.protocol.messages import Message
from dtrees.engine.rows.exchange import Arrays, Parcel, RowsExecutor, Step
from dtrees.engine.rows.row_shard import RowShard

logger = logging.getLogger("dtrees.cluster")


#: Who is lost, the coordinator finds out much earlier. It may be lost itself; then the shards are forgotten.
_SECONDS_TO_WAIT = 3600.0


class Account(NamedTuple):
    """Seconds that a shard worked on a message, and waited for parcels of others; and bytes that it sent to these."""

    worked: float
    waiting: float
    sent: int


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

    def handle(self, message: Message) -> tuple[Any, Account] | Failed:
        """Carry out a message; with the reply comes an account of it."""
        began, before = time.perf_counter(), self.peers.sent
        sending = waiting = 0.0
        try:
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
        except Exception as error:
            error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks do not travel
            return Failed(error)

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
    """Shards that have rows; see :class:`dtrees.cluster.growing.shards.worker_shards.WorkerShards`.

    Parameters
    ----------
    rows : ClusterRows
    n_trees : int
        That the fit is to have in all.
    replays : bool, default=True
        Whether finished trees are replayed on shards that are new.
    """

    places_rows = True
    _pieces = "partitions"
    _newcomers: RowNewcomers

    def __init__(self, rows: ClusterRows, n_trees: int, *, replays: bool = True) -> None:
        super().__init__(rows.client, RowShardActor, RowNewcomers(n_trees, replays=replays), ends_at_failure=True)
        self.n_rows, self.n_columns = rows.n_rows, rows.n_columns
        self._rows = rows
        self._note_rows()
        self._n_broken = 0
        self._have_met = self._may_wait = False
        self._make_all(rows.workers)
        logger.info("%d rows in %d shards on %s", self.n_rows, self.n_shards, ", ".join(self._actors.workers))

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

    def _take_account(self, shard: int, account: Account) -> tuple[float, float | None]:
        worker = self._actors.workers[shard]
        self.timings.exchanged[worker] = self.timings.exchanged.get(worker, 0) + account.sent
        return account.worked, account.waiting

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

    def _plan_handover(self, workers: Mapping[str, Mapping[str, Any]], n_left: int) -> Handover | None:
        return self._newcomers.plan(self._rows, workers, n_left, self.timings.scan)

    def _hand_over(self, handover: Handover) -> list[int] | None:
        gave = hand_over(self._rows, handover)
        if gave is not None:
            self._note_rows()
        return gave

    def _tell_spread(self, handover: Handover, seconds: float) -> None:
        told = {"to": list(handover.given), "partitions": handover.n_pieces, "rows": handover.moved, "seconds": seconds}
        tell(self._fit.name, "rows spread", **told)

    def _note_rows(self) -> None:
        """Take in which shard has which rows."""
        self.n_shards = len(self._rows.blocks)
        on_disk = self._rows.encoding.is_on_disk
        self._bytes = [self._rows.sizes.needed_for_rows(self._rows.rows_of(shard), on_disk=on_disk) for shard in range(self.n_shards)]

    def _bring(self, shard: int, worker: str) -> None:
        self._rows.bring(shard, worker)

    def _arguments(self, shard: int) -> tuple[Any, ...]:
        return self._rows.blocks[shard], self.n_rows, shard

    def _describe(self, shard: int) -> str:
        return f"{self._rows.rows_of(shard):,} of {self.n_rows:,} rows, {self._bytes[shard] / 1e6:,.0f} MB"

    def _tell_holding(self) -> None:
        """Tell what the rows of each worker take."""
        held: dict[str, tuple[int, int]] = {}
        rows_of: dict[str, int] = {}
        for shard, (worker, n_bytes) in enumerate(zip(self._actors.workers, self._bytes, strict=True)):
            held[worker] = self.n_columns, held.get(worker, (0, 0))[1] + n_bytes
            rows_of[worker] = rows_of.get(worker, 0) + self._rows.rows_of(shard)
        tell(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=held, rows_of=rows_of)
