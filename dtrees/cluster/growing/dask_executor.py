"""Trees over shards: the executor that carries the engine's messages to workers, each of which has some of the columns.

The executor lives where the coordinator does, in a task of the cluster. It replaces shards that are lost, and
:mod:`dtrees.engine.run.recovery` brings the new ones up to date. Their columns are made again from the user's data, on a worker that has no
shard yet where there is one, else beside another shard. When such a worker turns up later, one of two that share a worker moves
there between two trees; and where none share one, it is given columns of the others (:mod:`dtrees.cluster.growing.rebalancing`).
"""

from __future__ import annotations

import contextlib
import logging
import time
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from distributed import Future, get_worker
from numpy.typing import NDArray

from dtrees.cluster.compat import actor_on, threads_of
from dtrees.cluster.data.loading import ClusterColumns
from dtrees.cluster.data.memory import STATE_BYTES, WorkerCapacity
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actors import ActorBase, Actors, ActorsLost, Failed
from dtrees.cluster.growing.kernel_shipping import share_kernels
from dtrees.cluster.growing.rebalancing import Handover, Newcomers, hand_over
from dtrees.cluster.growing.timings import Timings
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.reliability.tasks import Tasks
from dtrees.cluster.transport.events import Exchanges, tell
from dtrees.engine.protocol.executor import Executor, ShardsLost
from dtrees.engine.protocol.messages import Message, Reply
from dtrees.engine.shard.shard import Shard
from dtrees.split.table.columns import Columns

logger = logging.getLogger("dtrees.cluster")

_SECONDS_BETWEEN_CENSUSES = 5.0
_SECONDS_BETWEEN_TRIES = 0.5


class ShardActor(ActorBase):
    """A shard on a worker, using as many threads as the worker has.

    Parameters are those of :class:`~dtrees.engine.shard.shard.Shard`, but for ``predecessor``: the key of an actor on the same worker,
    whose place this one takes with other columns. The columns are not copied.
    """

    def __init__(
        self,
        columns: Columns,
        column_ids: NDArray[np.int32],
        n_columns: int,
        target: NDArray[Any],
        weight: NDArray[np.float64] | None,
        predecessor: str | None = None,
    ) -> None:
        super().__init__()
        share_kernels()
        before = None if predecessor is None else actor_on(get_worker(), predecessor)
        self._shard = (
            before._shard.with_columns(columns, column_ids)
            if before is not None
            else Shard(columns, column_ids, n_columns, target, weight, threads_of(get_worker()))
        )

    def handle(self, message: Message) -> tuple[Reply, float] | Failed:
        """Carry out a message; see :meth:`dtrees.engine.shard.shard.Shard.handle`. With the reply come the seconds it took."""
        began = time.perf_counter()
        try:
            return self._shard.handle(message), time.perf_counter() - began
        except Exception as error:
            error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks do not travel
            return Failed(error)

    def close(self) -> None:
        """End the shard's threads, when it is done with what it does."""
        with self.turn:
            self._shard.close()


class _Posted(NamedTuple):
    """An exchange under way: the message, when it began, and the bytes sent."""

    kind: str
    began: float
    sent: int


class DaskExecutor(Executor):
    """Shards on the workers of a cluster; see :class:`dtrees.engine.protocol.executor.Executor`.

    Close it, or use it as a context manager, to free the shards.

    Parameters
    ----------
    columns : ClusterColumns
    target : Future of ndarray, shape (n_rows,)
    weight : Future of ndarray, shape (n_rows,), or None

    Attributes
    ----------
    n_shards, n_rows, n_columns, whole_threads : int
        See :class:`~dtrees.engine.protocol.executor.Executor`.
    timings : Timings
    """

    whole_threads = 0  # what one worker grows by itself is a task there, without shards

    def __init__(self, columns: ClusterColumns, target: Future, weight: Future | None) -> None:
        self.n_rows, self.n_columns = columns.n_rows, columns.n_columns
        self.timings = Timings()
        self._fit = current_fit()
        self._exchanges = Exchanges(self._fit.name)
        self._n_restarts = 0
        self._next_census = 0.0
        self._posted: deque[_Posted] = deque()
        self._ended = 0.0
        with Tasks(columns.client) as tasks:
            sizes = tasks.waiter.gather(tasks.map("size", _sizes, columns.blocks))
        self._sizes = np.empty(self.n_columns, np.int64)
        for ids, by_column in zip(columns.ids, sizes, strict=True):
            self._sizes[ids] = by_column
        self._columns = columns
        self._note_columns()
        self._newcomers = Newcomers(self._sizes.tolist(), self.n_rows)
        self._handover: Handover | None = None
        self._n_left = 0
        self._rows = target, weight
        self._actors = Actors(columns.client, "shard", ShardActor)
        self.timings.sent, self.timings.received = self._actors.sent_to, self._actors.received_from
        there = nthreads(columns.client)
        for shard, worker in enumerate(columns.workers):
            if worker not in there:  # lost since its columns were loaded
                columns.bring(shard, min(there, key=lambda worker: (columns.workers.count(worker), worker)))
            self._actors.add(columns.workers[shard], self._arguments(shard))
        try:
            self._make_all()
        except BaseException:
            self.close()
            raise
        self._tell_holding()
        logger.info("%d columns in %d shards on %s", self.n_columns, self.n_shards, ", ".join(self._actors.workers))

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def owner(self, columns: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the shard that has each of some columns."""
        return self._owner[columns]

    def post(self, messages: Mapping[int, Message]) -> None:
        """Begin an exchange; see :meth:`dtrees.engine.protocol.executor.Executor.post`."""
        before, began = self._actors.sent, time.perf_counter()
        with self._losses():
            self._actors.post("handle", {shard: (message,) for shard, message in messages.items()})
        kind = type(next(iter(messages.values()))).__name__
        self._posted.append(_Posted(kind, began, self._actors.sent - before))

    def collect(self) -> dict[int, Reply]:
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
        self.timings.add(seconds, [(self._actors.workers[shard], spent) for shard, (_, spent) in replies.items()])
        slowest, received = max(spent for _, spent in replies.values()), self._actors.received - before
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

    def wants_repair(self, n_left: int) -> bool:
        """Tell whether shards are to be made anew or moved, or columns to be spread over workers that have joined."""
        if time.monotonic() < self._next_census:
            return False
        self._next_census = time.monotonic() + _SECONDS_BETWEEN_CENSUSES
        workers = self._actors.look()
        if self._actors.lost or self._to_move(workers) is not None:
            return True
        there = {worker: facts for worker, facts in workers.items() if facts["status"] == "running" and facts["nthreads"]}
        idle = there.keys() - set(self._actors.workers)
        self._n_left, self._handover = n_left, None
        if self._newcomers.have_settled(idle, n_left, self.timings.scan):
            self._handover = self._newcomers.plan(self._columns, there, n_left, self.timings.scan)
        return self._handover is not None

    def repair(self) -> None:
        """Put new shards in the place of those that are lost; see :meth:`dtrees.engine.protocol.executor.Executor.repair`.

        Raises
        ------
        ShardsLost
            If further ones went meanwhile.
        WorkerLost
            If shards were lost too often, or no worker can take one.
        """
        workers = self._actors.look()
        if self._actors.lost:
            self._note_loss()
        elif (moved := self._to_move(workers)) is not None:
            self._actors.lost.add(moved)
        elif self._handover is not None:
            self._spread(self._handover)
        self._handover = None
        for shard in sorted(self._actors.lost):
            worker = self._place_for(shard)
            self._columns.bring(shard, worker)
            self._actors.replace(shard, worker, self._arguments(shard))
            logger.info("shard %d is made anew on %s", shard, worker)
            tell(self._fit.name, "shard moved", shard=shard, to=worker)
        self._tell_holding()
        try:
            self._actors.wait_until_made()
        except ActorsLost as error:
            raise ShardsLost(str(error)) from error

    def close(self) -> None:
        """Free the shards."""
        self._exchanges.tell()
        self._actors.close()

    def _spread(self, handover: Handover) -> None:
        """Have workers that joined take over columns, and start making the shards that this takes."""
        began = time.monotonic()
        n_before = self.n_shards
        gave = hand_over(self._columns, handover)
        seconds = time.monotonic() - began
        self._newcomers.note_handover(seconds, self._n_left)
        if gave is None:
            logger.info("columns stay where they are, since a worker was lost while they were to be spread anew")
            return
        self._note_columns()
        for shard in gave:
            self._actors.replace(shard, self._columns.workers[shard], (*self._arguments(shard), self._actors.key(shard)))
        for shard in range(n_before, self.n_shards):
            self._actors.add(self._columns.workers[shard], self._arguments(shard))
        workers = self._columns.workers[n_before:]
        logger.info("%d columns moved to %s, which joined, in %.1f s", handover.n_columns, ", ".join(workers), seconds)
        tell(self._fit.name, "columns spread", to=workers, columns=handover.n_columns, bytes=handover.n_bytes, seconds=seconds)

    def _note_columns(self) -> None:
        """Take in which shard has which columns."""
        self.n_shards = len(self._columns.blocks)
        self._ids = [np.array(ids, np.int32) for ids in self._columns.ids]
        self._owner = np.zeros(self.n_columns, np.int64)
        for shard, ids in enumerate(self._ids):
            self._owner[ids] = shard
        self._bytes = [int(self._sizes[ids].sum()) + STATE_BYTES * self.n_rows for ids in self._ids]

    def _tell_holding(self) -> None:
        """Tell which worker has how many columns, and what they take."""
        held: dict[str, tuple[int, int]] = {}
        for worker, ids, n_bytes in zip(self._actors.workers, self._ids, self._bytes, strict=True):
            columns, before = held.get(worker, (0, 0))
            held[worker] = columns + len(ids), before + n_bytes
        tell(self._fit.name, "holding", rows=self.n_rows, columns=self.n_columns, workers=held)

    def _arguments(self, shard: int) -> tuple[Any, ...]:
        return self._columns.blocks[shard], self._ids[shard], self.n_columns, *self._rows

    def _make_all(self) -> None:
        """Wait for the first shards, replacing those whose workers are lost meanwhile."""
        try:
            self._actors.wait_until_made()
        except ActorsLost:
            while True:
                try:
                    return self.repair()
                except ShardsLost:
                    continue

    def _place_for(self, shard: int) -> str:
        """Return the worker to make a shard on, waiting for one with the memory for it if there is none."""
        patience = self._fit.settings.patience
        deadline = time.monotonic() + patience
        while True:
            workers = {worker: facts for worker, facts in self._actors.look().items() if facts["status"] == "running" and facts["nthreads"]}
            load = dict.fromkeys(workers, 0.0)
            for i, worker in enumerate(self._actors.workers):
                if i not in self._actors.lost and worker in load:
                    load[worker] += self._bytes[i] / workers[worker]["nthreads"]
            able = [worker for worker, facts in workers.items() if WorkerCapacity.of(facts).free >= self._bytes[shard]]
            if able:
                return min(able, key=lambda worker: (load[worker], worker))
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"Lost {self._actors.workers[shard]}, which held {self._describe(shard)}, and none of the {len(workers)} workers left "
                    f"has the memory for that (waited {patience:g} s). Add workers, or give them more memory, and run it again."
                )
            time.sleep(_SECONDS_BETWEEN_TRIES)

    def _to_move(self, workers: Mapping[str, Mapping[str, Any]]) -> int | None:
        """Return a shard that had better be elsewhere: its worker is about to go, or has another shard where some worker has none."""
        mine = self._actors.workers
        for shard, worker in enumerate(mine):
            if workers.get(worker, {}).get("status") == "closing_gracefully":
                return shard
        doubled = [shard for shard, worker in enumerate(mine) if worker in mine[:shard]]
        spare = [facts for worker, facts in workers.items() if worker not in mine and facts["status"] == "running" and facts["nthreads"]]
        return next((shard for shard in doubled for facts in spare if WorkerCapacity.of(facts).free >= self._bytes[shard]), None)

    def _note_loss(self) -> None:
        lost = [f"{self._actors.workers[shard]} (which held {self._describe(shard)})" for shard in sorted(self._actors.lost)]
        self._n_restarts += 1
        logger.warning("lost %s", ", ".join(lost))
        tell(self._fit.name, "shards lost", shards=sorted(self._actors.lost), workers=[self._actors.workers[i] for i in self._actors.lost])
        if self._n_restarts > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Lost {', '.join(lost)}. Workers had been replaced {self._fit.settings.max_restarts} times already in this fit, "
                "which is max_restarts. If they run out of memory, give them more; the workers' logs say more. Then run it again."
            )

    def _describe(self, shard: int) -> str:
        return f"{len(self._ids[shard])} of {self.n_columns} columns, {self._bytes[shard] / 1e6:,.0f} MB"


def _sizes(block: Columns) -> list[int]:
    """Return the bytes of each column of a block."""
    return [block.codes[j].nbytes + block.distinct(j).nbytes for j in range(block.n_columns)]
