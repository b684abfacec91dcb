"""Shards on the workers of a cluster, whatever they have of the table: calls to them, and new ones in place of those that are lost.

What shards have is made again from the user's data, on a worker that has no shard yet where there is one, else beside another shard. When
such a worker turns up later, one of two that share a worker moves there between two trees. Workers that join where no two shards share one
take over some of what the others have (:mod:`dtrees.cluster.growing.shards.joining`). :mod:`dtrees.engine.run.recovery`, or
:mod:`dtrees.engine.rows` where shards have rows, brings new ones up to date.
"""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from distributed import Client

from dtrees.cluster.data.memory import WorkerCapacity
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.errors import WorkerLost
from dtrees.cluster.growing.actor import ActorBase
from dtrees.cluster.growing.actors import Actors, ActorsLost
from dtrees.cluster.growing.shards.joining.newcomers import Handover, Newcomers
from dtrees.cluster.growing.timings import Timings
from dtrees.cluster.reliability.fit_context import current_fit
from dtrees.cluster.transport.events import Exchanges, tell
from dtrees.engine.protocol.messages import Message, ShardsLost

logger = logging.getLogger("dtrees.cluster")

_SECONDS_BETWEEN_CENSUSES = 5.0
_SECONDS_BETWEEN_TRIES = 0.5


class _Posted(NamedTuple):
    """An exchange under way: the message, when it began, and the bytes sent."""

    kind: str
    began: float
    sent: int


class WorkerShards(ABC):
    """Shards on the workers of a cluster: what executors of the engine have in common, whatever shards have.

    Close it, or use it as a context manager, to free the shards.

    Parameters
    ----------
    client : distributed.Client
    make : callable
        Makes a shard on a worker.
    newcomers : Newcomers
        Workers that join.
    ends_at_failure : bool
        Whether shards wait for one another, so that an exchange is over when one fails.

    Attributes
    ----------
    n_shards, n_rows, n_columns : int
        See :class:`~dtrees.engine.protocol.messages.Executor`.
    timings : Timings
    """

    n_shards: int
    n_rows: int
    n_columns: int
    #: What shards have.
    _pieces: str

    def __init__(self, client: Client, make: Callable[..., ActorBase], newcomers: Newcomers[Any], ends_at_failure: bool = False) -> None:
        self.timings = Timings()
        self._fit = current_fit()
        self._exchanges = Exchanges(self._fit.name)
        self._n_restarts = 0
        self._next_census = 0.0
        self._posted: deque[_Posted] = deque()
        self._ended = 0.0
        self._client = client
        self._newcomers = newcomers
        self._handover: Handover | None = None
        self._n_left = 0
        self._bytes: list[int] = []  # that each shard needs
        self._actors = Actors(client, "shard", make, ends_at_failure)
        self.timings.sent, self.timings.received = self._actors.sent_to, self._actors.received_from

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the shards."""
        self._exchanges.tell()
        self._actors.close()

    def send(self, messages: Mapping[int, Message]) -> dict[int, Any]:
        """Send messages to some shards and wait for all replies, while nothing else is under way."""
        self.post(messages)
        return self.collect()

    def wants_repair(self, n_left: int) -> bool:
        """Tell whether shards are to be made anew or moved, or to be given something else."""
        if time.monotonic() < self._next_census:
            return False
        self._next_census = time.monotonic() + _SECONDS_BETWEEN_CENSUSES
        workers = self._actors.look()
        return bool(self._actors.lost) or self._to_move(workers) is not None or self._pays(workers, n_left)

    def repair(self) -> None:
        """Put new shards in the place of those that are lost, or give workers that joined something.

        See :meth:`dtrees.engine.protocol.messages.Executor.repair`.

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
            self._bring(shard, worker)
            self._actors.replace(shard, worker, self._arguments(shard))
            logger.info("shard %d is made anew on %s", shard, worker)
            tell(self._fit.name, "shard moved", shard=shard, to=worker)
        self._tell_holding()
        try:
            self._actors.wait_until_made()
        except ActorsLost as error:
            raise ShardsLost(str(error)) from error

    def _pays(self, workers: Mapping[str, Mapping[str, Any]], n_left: int) -> bool:
        """Tell whether it pays to give workers that joined something before the next of ``n_left`` trees."""
        there = {worker: facts for worker, facts in workers.items() if facts["status"] == "running" and facts["nthreads"]}
        idle = there.keys() - set(self._actors.workers)
        self._n_left, self._handover = n_left, None
        if self._newcomers.have_settled(idle, n_left, self.timings.scan):
            self._handover = self._plan_handover(there, n_left)
        return self._handover is not None

    def _spread(self, handover: Handover) -> None:
        """Have workers that joined take something over, and start making the shards that this takes."""
        began = time.monotonic()
        n_before = self.n_shards
        gave = self._hand_over(handover)
        seconds = time.monotonic() - began
        self._newcomers.note_handover(seconds, self._n_left)
        if gave is None:
            logger.info("%s stay where they are, since a worker was lost while they were to be spread anew", self._pieces)
            return
        workers = list(handover.given)
        for shard in gave:
            self._actors.replace(shard, self._actors.workers[shard], (*self._arguments(shard), *self._heritage(shard)))
        for shard, worker in enumerate(workers, n_before):
            self._actors.add(worker, self._arguments(shard))
        logger.info("%d %s moved to %s, which joined, in %.1f s", handover.n_pieces, self._pieces, ", ".join(workers), seconds)
        self._tell_spread(handover, seconds)

    def _take_account(self, shard: int, account: Any) -> tuple[float, float | None]:
        """Take in what a shard tells of its work beside a reply; return the seconds that took, and those that it waited, if it knows."""
        return float(account), None

    @abstractmethod
    def _plan_handover(self, workers: Mapping[str, Mapping[str, Any]], n_left: int) -> Handover | None:
        """Say what newcomers had best be given before the next of ``n_left`` trees; None if nothing."""

    @abstractmethod
    def _hand_over(self, handover: Handover) -> list[int] | None:
        """Have it done: shards of newcomers come after the others; return those that gave something, None if all is as it was."""

    @abstractmethod
    def _tell_spread(self, handover: Handover, seconds: float) -> None:
        """Tell that it was done."""

    def _heritage(self, shard: int) -> tuple[Any, ...]:
        """Return what a shard is made of, besides, that takes the place of one on the same worker."""
        return ()

    @abstractmethod
    def _arguments(self, shard: int) -> tuple[Any, ...]:
        """Return what a shard is made of."""

    @abstractmethod
    def _bring(self, shard: int, worker: str) -> None:
        """Have what a shard is made of on another worker."""

    @abstractmethod
    def _describe(self, shard: int) -> str:
        """Say what a shard has."""

    @abstractmethod
    def _tell_holding(self) -> None:
        """Tell what each worker holds."""

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
        spent = [self._take_account(shard, account) for shard, (_, account) in replies.items()]
        waited = [idle for _, idle in spent if idle is not None]
        own = [(self._actors.workers[shard], seconds) for shard, (seconds, _) in zip(replies, spent, strict=True)]
        self.timings.add(seconds, own, waited or None)
        slowest, received = max(seconds for seconds, _ in spent), self._actors.received - before
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

    def _make_all(self, workers: Sequence[str]) -> None:
        """Make the first shards, each on its worker, replacing those whose workers are lost meanwhile."""
        there = nthreads(self._client)
        try:
            for shard, worker in enumerate(workers):
                if worker not in there:  # lost since its part was loaded
                    worker = min(there, key=lambda other: (workers.count(other), other))
                    self._bring(shard, worker)
                self._actors.add(worker, self._arguments(shard))
            self._await_first()
        except BaseException:
            self.close()
            raise
        self._tell_holding()

    def _await_first(self) -> None:
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
