"""Actors on workers, which are called together, monitored during calls, and replaced if they are lost.

A round trip to the actors of 4 workers takes about 2 ms; with tasks pinned to workers it takes 17 ms, and a task pinned to a worker that
died never ends. An actor may compute for any time; if its worker dies, becomes silent or cannot be reached, it is lost.

Dask would split every message, with a frame for each array in it, for each of the actors to which it is sent. Messages are therefore
pickled here, once for all actors, and sent as bytes over channels (:mod:`dtrees.cluster.transport.direct_channel`), which bypass the event
loops at both ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import selectors
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dask
from distributed import Client, Future, KilledWorker
from distributed.protocol.pickle import dumps, loads

from dtrees.cluster.compat import waiting_thread
from dtrees.cluster.data.memory import running
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.registry import belonging
from dtrees.cluster.reliability.waiting import WorkerMonitor, killed_worker_error, task_keys
from dtrees.cluster.transport.clients import give_up, in_loop
from dtrees.cluster.transport.direct_channel import ActorBase, DirectChannel, Failed, framed, open_channel
from dtrees.engine.threads import dask_worker

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

#: Time, in seconds, in which the scheduler may report the loss of a worker after a broken connection.
_SECONDS_TO_EXPLAIN = 5.0
_SLICE = 0.5
_SECONDS_BETWEEN_TRIES = 0.5
#: Not the fastest for many persistent connections, but the fastest to create for a few.
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class ActorsLost(RuntimeError):
    """Some actors are lost; :attr:`Actors.lost` has their numbers."""


#: Placeholder for a reply that has not arrived yet.
_AWAITED: Any = object()


class Actors:
    """Actors on workers, numbered from 0.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        Used in the names of tasks.
    make : callable
        Creates an actor (:class:`ActorBase`).

    Attributes
    ----------
    workers : list of str
        The address of each actor's worker.
    lost : set of int
        The actors that are lost.
    sent, received : collections.Counter
        Bytes of all calls so far to each worker, and of its replies.
    """

    def __init__(self, client: Client, stage: str, make: Callable[..., ActorBase]) -> None:
        self._client = client
        self._stage = stage
        self._make = make
        self._monitor = WorkerMonitor(client)
        self._futures: list[Future] = []
        self._replaced: list[Future] = []
        self._unmade: set[int] = set()
        self._channels: dict[int, DirectChannel] = {}
        self.workers: list[str] = []
        self.lost: set[int] = set()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def add(self, worker: str, arguments: Sequence[Any]) -> None:
        """Start creating another actor from ``arguments``, of which futures are replaced by their results."""
        self._unmade.add(len(self.workers))
        self._futures.append(self._submit(worker, arguments))
        self.workers.append(worker)

    def replace(self, i: int, worker: str, arguments: Sequence[Any]) -> None:
        """Start creating an actor in place of another, which is released when all are created."""
        self._replaced.append(self._futures[i])
        self._futures[i] = self._submit(worker, arguments)
        self._unmade.add(i)
        self._close_channels([i])
        self.workers[i] = worker
        self.lost.discard(i)

    @property
    def where(self) -> list[tuple[str, str]]:
        """The worker address and the key of each actor."""
        return [(worker, self.key(i)) for i, worker in enumerate(self.workers)]

    def key(self, i: int) -> str:
        """Return the key by which an actor's worker identifies it."""
        return str(self._futures[i].key)

    def wait_until_made(self) -> None:
        """Wait until all actors are created.

        Raises
        ------
        ActorsLost, FitCancelled, SchedulerLost
            If some cannot be created.
        Exception
            The error raised by the creation of an actor.
        """
        self._monitor.check()
        self._await(self._made_by, sorted(self._unmade), tasks=True)
        self._unmade.clear()
        replaced, self._replaced = self._replaced, []
        give_up(self._client, replaced)

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Call a method of some actors, and wait for all replies, or until one fails: others may wait for its payloads.

        Parameters
        ----------
        method : str
        arguments : mapping from int to sequence
            The arguments of the method for each actor to call.

        Raises
        ------
        ActorsLost, FitCancelled, SchedulerLost
            If replies can no longer arrive.
        Exception
            The error raised by the method.
        """
        calls = _pickled(method, arguments)
        replies = dict.fromkeys(calls, _AWAITED)
        try:
            self._monitor.check()
            lacking = [i for i in calls if i not in self._channels]
            self._await(self._open_channel, lacking)
            for i in self._nearest_last(calls):
                with self._channel_to(i) as channel:
                    channel.call(*calls[i])
                self.sent[self.workers[i]] += sum(map(len, calls[i]))
            with waiting_thread():
                self._take_replies(replies)
        except BaseException:
            # A late reply must not be taken for the reply to a later call.
            self._close_channels([i for i, reply in replies.items() if reply is _AWAITED])
            raise
        return replies

    def _nearest_last(self, actors: Iterable[int]) -> list[int]:
        """Return actors in calling order: those of this process last, as they use the interpreter once they are called."""
        here = dask_worker()
        return sorted(actors, key=lambda i: here is not None and self.workers[i] == here.address)

    def look(self) -> dict[str, dict[str, Any]]:
        """Return the scheduler's data about its workers, and record which actors are lost."""
        return in_loop(self._client, self._look)

    def close(self) -> None:
        """Release the actors."""
        self._close_channels(list(self._channels))
        futures, self._futures, self._replaced = [*self._futures, *self._replaced], [], []
        if not futures or self._client.status != "running":
            return
        # Cancelled, not only released: proxies of an actor, for example in an error's traceback, count as users of it.
        with contextlib.suppress(SchedulerLost):
            give_up(self._client, futures)

    def _submit(self, worker: str, arguments: Sequence[Any]) -> Future:
        (key,) = task_keys(self._stage, 1)
        fit = current_fit()
        with dask.annotate(**belonging(fit.name, fit.turn)):
            return self._client.submit(self._make, *arguments, key=key, actor=True, workers=[worker], allow_other_workers=False)

    async def _made_by(self, i: int) -> None:
        await self._futures[i]

    async def _open_channel(self, i: int) -> None:
        self._channels[i] = await open_channel(self.workers[i], self.key(i), self._client.connection_args)

    def _close_channels(self, actors: Iterable[int]) -> None:
        for i in actors:
            if i in self._channels:
                self._channels.pop(i).close()

    @contextlib.contextmanager
    def _channel_to(self, i: int) -> Iterator[DirectChannel]:
        """Yield the channel of an actor; if it breaks, raise the cause."""
        try:
            yield self._channels[i]
        except OSError as error:
            in_loop(self._client, self._raise_failure, i, error)

    def _take_replies(self, exchange: dict[int, Any]) -> None:
        """Receive the replies of an exchange, send remaining data, and monitor the actors meanwhile."""
        next_look = self._next_look()
        while awaited := {i for i, reply in exchange.items() if reply is _AWAITED}:
            with _Selector() as selector:
                for i, channel in self._channels.items():
                    events = (selectors.EVENT_READ if i in awaited else 0) | (selectors.EVENT_WRITE if channel.has_to_send else 0)
                    if events:
                        selector.register(channel.socket, events, i)
                ready = selector.select(_SLICE)
            for key, events in ready:
                with self._channel_to(key.data) as channel:
                    if events & selectors.EVENT_WRITE:
                        channel.send()
                    reply = channel.receive() if events & selectors.EVENT_READ else None
                if reply is None:
                    continue
                self.received[self.workers[key.data]] += len(reply)
                exchange[key.data] = loads(reply)
                if isinstance(exchange[key.data], Failed):
                    raise exchange[key.data].error
            next_look = self._attend(next_look, exchange)

    def _await(self, act: Callable[[int], Coroutine[Any, Any, None]], actors: Iterable[int], *, tasks: bool = False) -> None:
        """Await a coroutine for each actor in the client's event loop, or ``tasks`` that create them, and monitor the actors meanwhile."""
        calls = {i: asyncio.run_coroutine_threadsafe(act(i), self._client.loop.asyncio_loop) for i in actors}
        pending, next_look = set(calls.values()), self._next_look()
        try:
            while pending:
                _, pending = concurrent.futures.wait(pending, _SLICE, concurrent.futures.FIRST_EXCEPTION)
                for i, call in calls.items():
                    error = call.exception() if call.done() else None
                    if error is not None:
                        in_loop(self._client, self._raise_failure, i, error)
                left = [i for i, call in calls.items() if not call.done()]
                looked, next_look = next_look, self._attend(next_look, left if tasks else calls)
                if tasks and next_look != looked:
                    self._monitor.check_pauses(left, {self.workers[i] for i in left})
        finally:
            for call in calls.values():
                call.cancel()

    def _next_look(self) -> float:
        return time.monotonic() + self._monitor.heartbeats.seconds_between_looks

    def _attend(self, next_look: float, needed: Iterable[int]) -> float:
        """Raise if waiting for some actors is pointless; look at the cluster when it is time, and return the time of the next look.

        An actor that has replied to a call is still needed, as others may wait for its payloads.
        """
        self._monitor.check()
        if time.monotonic() <= next_look:
            return next_look
        self.look()
        gone = self.lost.intersection(needed)
        if gone:
            raise ActorsLost(f"lost {', '.join(self.workers[i] for i in sorted(gone))}")
        return self._next_look()

    async def _look(self) -> dict[str, dict[str, Any]]:
        known = await self._monitor.look()
        missing = [i for i, future in enumerate(self._futures) if future.status == "pending"]
        unknown = await self._monitor.unknown([self._futures[i] for i in missing])
        self.lost.update(i for i in missing if self._futures[i] in unknown)
        for i, worker in enumerate(self.workers):
            if worker not in known or await self._is_lost(i):
                self.lost.add(i)
        return known

    async def _raise_failure(self, i: int, error: BaseException) -> None:
        """Raise the failure of an actor: the error raised by its creation, or its loss."""
        if i in self._unmade and await self._has_failed(i):
            raise killed_worker_error(error) if isinstance(error, KilledWorker) else error
        # The connection broke. The scheduler may notice the worker's end a moment later.
        deadline = time.monotonic() + _SECONDS_TO_EXPLAIN
        while not await self._is_lost(i) and time.monotonic() < deadline:
            self._monitor.check()
            await asyncio.sleep(0.1)
        await self._look()
        self.lost.add(i)
        raise ActorsLost(f"lost {self.workers[i]}: {error}") from error

    async def _is_lost(self, i: int) -> bool:
        """Return whether the scheduler considers an actor lost, as opposed to an error in its creation."""
        status = self._futures[i].status
        return status in ("cancelled", "lost") or (status == "error" and not await self._has_failed(i))

    async def _has_failed(self, i: int) -> bool:
        """Return whether the creation of an actor has raised an error, or has killed too many workers.

        The future of an actor that was created, and then lost with its worker, has an error too. That error comes from the scheduler and
        has no traceback, as no code has raised it.
        """
        future = self._futures[i]
        if future.status != "error":
            return False
        return await future.traceback() is not None or isinstance(await future.exception(), KilledWorker)


def _pickled(method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, list[bytes]]:
    """Pickle the arguments of each actor for sending; arguments shared by several actors are pickled once."""
    once = {tuple(map(id, given)): given for given in arguments.values()}
    pickled = {which: framed(dumps((method, tuple(given)))) for which, given in once.items()}
    return {i: pickled[tuple(map(id, given))] for i, given in arguments.items()}


class LastingActors(Actors, ABC):
    """Actors of a fit, each for a share of some data; lost ones are created again on workers with sufficient memory. Must be closed."""

    def __init__(self, client: Client, stage: str, make: Callable[..., ActorBase]) -> None:
        super().__init__(client, stage, make)
        self._fit = current_fit()
        self._n_restarts = 0

    @abstractmethod
    def _arguments(self, i: int) -> tuple[Any, ...]:
        """Return the arguments from which an actor is created."""

    @abstractmethod
    def _describe(self, i: int) -> str:
        """Return a description of an actor's data."""

    def _needed(self, i: int) -> int:
        """Return the bytes that an actor needs."""
        return 0

    def _bring(self, i: int, worker: str) -> None:
        """Bring the data of an actor to another worker."""
        logger.info("%s: %s, lost or moved, will be on %s", self._fit.name, self._describe(i), worker)

    def _make_all(self, workers: Sequence[str]) -> None:
        """Create the actors, each on its worker, or elsewhere if the worker is lost by now."""
        there = nthreads(self._client)
        try:
            for i, worker in enumerate(workers):
                if worker not in there:
                    worker = min(there, key=lambda other: (workers.count(other), other))
                    self._bring(i, worker)
                self.add(worker, self._arguments(i))
            self._await_made()
        except BaseException:
            self.close()
            raise

    def _await_made(self) -> None:
        while True:
            try:
                return self.wait_until_made()
            except ActorsLost:
                self._note_loss()
                self._replace_lost()

    def _replace_lost(self) -> None:
        """Start creating new actors in place of lost ones."""
        for i in sorted(self.lost):
            worker = self._place_for(i)
            self._bring(i, worker)
            self.replace(i, worker, self._arguments(i))

    def _note_loss(self) -> None:
        """Record a loss of actors.

        Raises
        ------
        WorkerLost
            If there were too many losses.
        """
        self.look()
        lost = ", ".join(f"{self.workers[i]} (which held {self._describe(i)})" for i in sorted(self.lost))
        logger.warning("lost %s", lost)
        self._n_restarts += 1
        if self._n_restarts > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Lost {lost}. Workers had been replaced {self._fit.settings.max_restarts} times already in this fit, "
                "which is max_restarts. If they run out of memory, give them more; the workers' logs say more. Then run it again."
            )

    def _place_for(self, i: int) -> str:
        """Return the worker on which to create an actor; wait if no worker has the memory for it."""
        patience = self._fit.settings.patience
        deadline = time.monotonic() + patience
        while True:
            capacities = running(self.look())
            load = dict.fromkeys(capacities, (0.0, 0))
            for other, worker in enumerate(self.workers):
                if other not in self.lost and worker in load:
                    held, n = load[worker]
                    load[worker] = held + self._needed(other) / capacities[worker].threads, n + 1
            able = [worker for worker, capacity in capacities.items() if capacity.free >= self._needed(i)]
            if able:
                return min(able, key=lambda worker: (load[worker], worker))
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"Lost {self.workers[i]}, which held {self._describe(i)}, and none of the {len(capacities)} workers left "
                    f"has the memory for that (waited {patience:g} s). Add workers, or give them more memory, and run it again."
                )
            time.sleep(_SECONDS_BETWEEN_TRIES)
