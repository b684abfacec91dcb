"""Actors on workers, called all at once, looked after meanwhile, and replaced when they are lost.

(A round trip to the actors of 4 workers takes some 2 ms; with tasks
pinned to workers it takes 17, and a task pinned to a worker that died waits forever.) An actor may compute for as long as it needs; if its
worker dies, falls silent or cannot be reached any more, it is lost.

Dask would split every message, with a frame for each array in it, for each of the actors it goes to. So messages are pickled here, once
however many actors they go to, and travel as bytes, by channels (:mod:`dtrees.cluster.transport.direct_channel`), which spares both ends
their event loops.
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

from dtrees.cluster.compat import own_worker, waiting_thread
from dtrees.cluster.data.memory import running
from dtrees.cluster.data.placement import nthreads
from dtrees.cluster.errors import SchedulerLost, WorkerLost
from dtrees.cluster.reliability.fit import current_fit
from dtrees.cluster.reliability.registry import belonging
from dtrees.cluster.reliability.waiting import WorkerMonitor, died_too_often, task_keys
from dtrees.cluster.transport.clients import give_up, in_loop
from dtrees.cluster.transport.direct_channel import ActorBase, DirectChannel, Failed, framed, open_channel

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

#: After a connection broke, the scheduler is given so long to say what it knows of the worker.
_SECONDS_TO_EXPLAIN = 5.0
_SLICE = 0.5
_SECONDS_BETWEEN_TRIES = 0.5
#: Not the fastest for many connections that are kept, but the fastest to make for a few.
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class ActorsLost(RuntimeError):
    """Some actors are gone; :attr:`Actors.lost` says which."""


#: In place of a reply that has not come yet.
_AWAITED: Any = object()


class Actors:
    """Actors on workers, numbered from 0.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        For the names of tasks.
    make : callable
        Makes an actor (:class:`ActorBase`).
    ends_at_failure : bool
        Whether calls made together are over when one fails, as actors wait for one another. Otherwise all replies are awaited.

    Attributes
    ----------
    workers : list of str
        The address of each actor's worker.
    lost : set of int
        The actors that are gone.
    sent, received : collections.Counter
        Bytes of all calls so far to each worker, and of its replies.
    """

    def __init__(self, client: Client, stage: str, make: Callable[..., ActorBase], ends_at_failure: bool = False) -> None:
        self._client = client
        self._stage = stage
        self._make = make
        self._ends_at_failure = ends_at_failure
        self._monitor = WorkerMonitor(client)
        self._futures: list[Future] = []
        self._replaced: list[Future] = []
        self._unmade: set[int] = set()
        self._channels: dict[int, DirectChannel] = {}
        self.workers: list[str] = []
        self.lost: set[int] = set()
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.workers)

    def add(self, worker: str, arguments: Sequence[Any]) -> None:
        """Start making a further actor; ``arguments`` is what it is made of there; futures become their results."""
        self._unmade.add(len(self))
        self._futures.append(self._submit(worker, arguments))
        self.workers.append(worker)

    def replace(self, i: int, worker: str, arguments: Sequence[Any]) -> None:
        """Start making an actor in place of another, which goes when all are made."""
        self._replaced.append(self._futures[i])
        self._futures[i] = self._submit(worker, arguments)
        self._unmade.add(i)
        self._close_channels([i])
        self.workers[i] = worker
        self.lost.discard(i)

    @property
    def where(self) -> list[tuple[str, str]]:
        """The address of each actor's worker, and its key."""
        return [(worker, self.key(i)) for i, worker in enumerate(self.workers)]

    def key(self, i: int) -> str:
        """Return the key of an actor: where it is, its worker knows it by that."""
        return str(self._futures[i].key)

    def wait_until_made(self) -> None:
        """Wait until all actors are there.

        Raises
        ------
        ActorsLost, FitCancelled, SchedulerLost
            If some cannot be made any more.
        Exception
            What making one raised.
        """
        self._monitor.check()
        self._finish({i: self._start(_result_of(self._futures[i])) for i in sorted(self._unmade)}, tasks=True)
        self._unmade.clear()
        replaced, self._replaced = self._replaced, []
        give_up(self._client, replaced)

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Call a method of some actors, and wait for all replies.

        Parameters
        ----------
        method : str
        arguments : mapping from int to sequence
            For each actor to call, what the method is given.

        Raises
        ------
        ActorsLost, FitCancelled, SchedulerLost
            If replies cannot come any more.
        Exception
            What the method raised.
        """
        calls = _pickled(method, arguments)
        replies = dict.fromkeys(calls, _AWAITED)
        try:
            self._monitor.check()
            lacking = [i for i in calls if i not in self._channels]
            if lacking:
                self._open_channels(lacking)
            for i in self._nearest_last(calls):
                with self._channel_to(i) as channel:
                    channel.call(calls[i])
                self.sent[self.workers[i]] += len(calls[i])
            with waiting_thread():
                self._take_replies(replies)
        except BaseException:
            # One that nobody waits for must not be taken for that to a later call.
            self._close_channels([i for i, reply in replies.items() if reply is _AWAITED])
            raise
        for reply in replies.values():
            if isinstance(reply, Failed):
                raise reply.error
        return replies

    def _nearest_last(self, actors: Iterable[int]) -> list[int]:
        """Return actors in the order to call them in: those of this process last, as they take the interpreter once they are called."""
        here = own_worker()
        return sorted(actors, key=lambda i: here is not None and self.workers[i] == here.address)

    def look(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows of its workers, and note which actors are lost."""
        return in_loop(self._client, self._look)

    def close(self) -> None:
        """Free the actors."""
        self._close_channels(list(self._channels))
        futures, self._futures, self._replaced = [*self._futures, *self._replaced], [], []
        if not futures or self._client.status != "running":
            return
        # Not merely released: proxies of an actor, which an error's traceback may hold, count as users of it.
        with contextlib.suppress(SchedulerLost):
            give_up(self._client, futures)

    def _submit(self, worker: str, arguments: Sequence[Any]) -> Future:
        (key,) = task_keys(self._stage, 1)
        fit = current_fit()
        with dask.annotate(**belonging(fit.name, fit.turn)):
            return self._client.submit(self._make, *arguments, key=key, actor=True, workers=[worker], allow_other_workers=False)

    def _open_channels(self, actors: list[int]) -> None:
        args = self._client.connection_args
        opening = {i: self._start(open_channel(self.workers[i], self.key(i), args)) for i in actors}
        try:
            opened = self._finish(opening)
        except BaseException:
            for task in opening.values():
                if task.done() and not task.cancelled() and not task.exception():
                    task.result().close()
            raise
        self._channels.update(opened)

    def _close_channels(self, actors: Iterable[int]) -> None:
        for i in actors:
            if i in self._channels:
                self._channels.pop(i).close()

    @contextlib.contextmanager
    def _channel_to(self, i: int) -> Iterator[DirectChannel]:
        """Give the channel of an actor, and see to it if it breaks."""
        try:
            yield self._channels[i]
        except OSError as error:
            in_loop(self._client, self._raise_failure, i, error)

    def _take_replies(self, exchange: dict[int, Any]) -> None:
        """Take the replies of an exchange as they come, send what was left to be sent, and look after the actors meanwhile."""
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
                if self._ends_at_failure and isinstance(exchange[key.data], Failed):
                    raise exchange[key.data].error
            next_look = self._attend(next_look, exchange if self._ends_at_failure else awaited)

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)

    def _finish(self, calls: Mapping[int, concurrent.futures.Future[T]], *, tasks: bool = False) -> dict[int, T]:
        """Wait for calls, or ``tasks`` that make actors, and look after their actors meanwhile."""
        pending, next_look = set(calls.values()), self._next_look()
        try:
            while pending:
                _, pending = concurrent.futures.wait(pending, _SLICE, concurrent.futures.FIRST_EXCEPTION)
                for i, call in calls.items():
                    error = call.exception() if call.done() else None
                    if error is not None:
                        in_loop(self._client, self._raise_failure, i, error)
                if not pending:
                    break
                left = [i for i, call in calls.items() if not call.done()]
                looked = next_look
                next_look = self._attend(next_look, calls if self._ends_at_failure and not tasks else left)
                if tasks and next_look != looked:
                    self._monitor.check_pauses(left, {self.workers[i] for i in left})
            return {i: call.result() for i, call in calls.items()}
        finally:
            for call in calls.values():
                call.cancel()

    def _next_look(self) -> float:
        return time.monotonic() + self._monitor.heartbeats.seconds_between_looks

    def _attend(self, next_look: float, needed: Iterable[int]) -> float:
        """Raise if there is no point in waiting for some actors any more; look at the cluster when it is time, and return when it is again.

        Where calls end at a failure, an actor is needed that has replied, too: others may wait for what it sent them.
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
        """Raise what became of an actor: the error that making it raised, or its loss."""
        if i in self._unmade and await self._has_failed(i):
            raise died_too_often(error) if isinstance(error, KilledWorker) else error
        # The connection broke. The scheduler may hear of the worker's end a moment later than we do.
        deadline = time.monotonic() + _SECONDS_TO_EXPLAIN
        while not await self._is_lost(i) and time.monotonic() < deadline:
            self._monitor.check()
            await asyncio.sleep(0.1)
        await self._look()
        self.lost.add(i)
        raise ActorsLost(f"lost {self.workers[i]}: {error}") from error

    async def _is_lost(self, i: int) -> bool:
        """Return whether the scheduler has given up an actor for lost; making it may also have failed, which is another matter."""
        status = self._futures[i].status
        return status in ("cancelled", "lost") or (status == "error" and not await self._has_failed(i))

    async def _has_failed(self, i: int) -> bool:
        """Return whether making an actor has raised an error, or has killed too many workers.

        The future of an actor that was made, and then lost with its worker, has an error too. The scheduler makes that one, which has no
        traceback: no code has raised it.
        """
        future = self._futures[i]
        if future.status != "error":
            return False
        return await future.traceback() is not None or isinstance(await future.exception(), KilledWorker)


async def _result_of(future: Future) -> Any:
    return await future


def _pickled(method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, bytes]:
    """Pickle what each actor is given, as it travels; what is given to several, once."""
    once = {tuple(map(id, given)): given for given in arguments.values()}
    pickled = {which: framed(dumps((method, tuple(given)))) for which, given in once.items()}
    return {i: pickled[tuple(map(id, given))] for i, given in arguments.items()}


class LastingActors(ABC):
    """Actors of a fit, each for a share of something: lost ones are made again of the same, on workers that have the memory; close them.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        For the names of tasks.
    make : callable
        Makes an actor on a worker.
    ends_at_failure : bool
        Whether actors wait for one another, so that calls made together are over when one fails.
    """

    def __init__(self, client: Client, stage: str, make: Callable[..., ActorBase], ends_at_failure: bool = False) -> None:
        self._client = client
        self._fit = current_fit()
        self._actors = Actors(client, stage, make, ends_at_failure)
        self._n_restarts = 0

    def close(self) -> None:
        """Free the actors."""
        self._actors.close()

    @abstractmethod
    def _arguments(self, i: int) -> tuple[Any, ...]:
        """Return what an actor is made of."""

    @abstractmethod
    def _describe(self, i: int) -> str:
        """Say what an actor holds."""

    def _needed(self, i: int) -> int:
        """Return the bytes that an actor needs."""
        return 0

    def _bring(self, i: int, worker: str) -> None:
        """Have what an actor is made of on another worker."""
        logger.info("%s: %s, lost or moved, will be on %s", self._fit.name, self._describe(i), worker)

    def _make_all(self, workers: Sequence[str]) -> None:
        """Make the actors, each on its worker; those whose workers are lost by now are made elsewhere."""
        there = nthreads(self._client)
        try:
            for i, worker in enumerate(workers):
                if worker not in there:
                    worker = min(there, key=lambda other: (workers.count(other), other))
                    self._bring(i, worker)
                self._actors.add(worker, self._arguments(i))
            self._await_made()
        except BaseException:
            self.close()
            raise

    def _await_made(self) -> None:
        while True:
            try:
                return self._actors.wait_until_made()
            except ActorsLost:
                self._note_loss()
                self._replace_lost()

    def _replace_lost(self) -> None:
        """Start making new actors in the place of those that are lost."""
        for i in sorted(self._actors.lost):
            worker = self._place_for(i)
            self._bring(i, worker)
            self._actors.replace(i, worker, self._arguments(i))

    def _note_loss(self) -> None:
        """Take in that actors are lost.

        Raises
        ------
        WorkerLost
            If that has happened too often.
        """
        self._actors.look()
        lost = ", ".join(f"{self._actors.workers[i]} (which held {self._describe(i)})" for i in sorted(self._actors.lost))
        logger.warning("lost %s", lost)
        self._n_restarts += 1
        if self._n_restarts > self._fit.settings.max_restarts:
            raise WorkerLost(
                f"Lost {lost}. Workers had been replaced {self._fit.settings.max_restarts} times already in this fit, "
                "which is max_restarts. If they run out of memory, give them more; the workers' logs say more. Then run it again."
            )

    def _place_for(self, i: int) -> str:
        """Return the worker to make an actor on, waiting for one with the memory for it if there is none."""
        patience = self._fit.settings.patience
        deadline = time.monotonic() + patience
        while True:
            capacities = running(self._actors.look())
            load = dict.fromkeys(capacities, (0.0, 0))
            for other, worker in enumerate(self._actors.workers):
                if other not in self._actors.lost and worker in load:
                    held, n = load[worker]
                    load[worker] = held + self._needed(other) / capacities[worker].threads, n + 1
            able = [worker for worker, capacity in capacities.items() if capacity.free >= self._needed(i)]
            if able:
                return min(able, key=lambda worker: (load[worker], worker))
            if time.monotonic() > deadline:
                raise WorkerLost(
                    f"Lost {self._actors.workers[i]}, which held {self._describe(i)}, and none of the {len(capacities)} workers left "
                    f"has the memory for that (waited {patience:g} s). Add workers, or give them more memory, and run it again."
                )
            time.sleep(_SECONDS_BETWEEN_TRIES)
