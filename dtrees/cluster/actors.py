"""Actors on workers, called all at once, watched while their replies are awaited, and replaced when they are lost.

An actor is an object that lives on a worker, and is called from here. (A round trip to the actors of 4 workers takes some 2 ms; with tasks
pinned to workers it takes 17, and a task pinned to a worker that died waits forever.) An actor may compute for as long as it needs; if its
worker dies, falls silent or cannot be reached any more, it is lost.

Dask would take every message to pieces, one for each array in it, for each of the actors it goes to. So messages are pickled here, once
however many actors they go to, and travel as bytes. They do so by lines (:mod:`dtrees.cluster.lines`) where there are any, which spares
both ends their event loops; the actor on the caller's own worker is called by the caller itself, while the others are at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import selectors
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future, Worker, get_worker
from distributed.protocol import Serialize, to_serialize
from distributed.protocol.pickle import dumps, loads

from dtrees.cluster.errors import SchedulerLost
from dtrees.cluster.lines import Line, framed, offer_lines, open_line
from dtrees.cluster.questions import give_up
from dtrees.cluster.tasks import task_keys
from dtrees.cluster.watch import Lookout

#: After a connection broke, the scheduler is given so long to say what it knows of the worker.
_SECONDS_TO_EXPLAIN = 5.0
#: Ending what an actor has under way is a courtesy; nobody waits long for it.
_SECONDS_TO_CLOSE = 2.0
_SLICE = 0.5
#: Bytes that Dask copies into a message of its own; beyond, it sends them beside it.
_COPIED = 1_000_000
#: Not the fastest for many connections that are kept, but the fastest to make for a few.
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class ActorsLost(RuntimeError):
    """Some actors are gone; :attr:`Actors.lost` says which."""


@dataclass(frozen=True)
class Failed:
    """What a method returns instead of raising, so that its errors cannot be taken for those of the connection."""

    error: BaseException


class Callee:
    """What an actor is; its methods return a :class:`Failed` where they would raise.

    Attributes
    ----------
    context : contextvars.Context
        What calls are answered in, whichever thread does it: it knows which worker this is.
    turn : threading.Lock
        Held while a call is answered. A caller that gave up waiting may call again before that.
    """

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.turn = threading.Lock()
        offer_lines(get_worker())

    def answer(self, call: bytes | bytearray) -> bytes:
        """Call a method, which is given pickled with its arguments, and return its result, pickled. One call after the other."""
        with self.turn:
            method, arguments = loads(call)
            return bytes(dumps(getattr(self, method)(*arguments)))

    def close(self) -> None:
        """End what it has under way."""


class Actors:
    """Actors on workers, numbered from 0.

    Parameters
    ----------
    client : distributed.Client
    stage : str
        For the names of tasks.
    make : callable
        Makes an actor (:class:`Callee`).

    Attributes
    ----------
    workers : list of str
        The address of each actor's worker.
    lost : set of int
        The actors that are gone.
    sent, received : int
        Bytes of all calls so far, and of their replies, without the few hundred of Dask's own around each.
    """

    def __init__(self, client: Client, stage: str, make: Callable[..., Callee]) -> None:
        self._client = client
        self._stage = stage
        self._make = make
        self._lookout = Lookout(client)
        self._here = _worker_of(client)
        self._futures: list[Future] = []
        self._replaced: list[Future] = []
        self._actors: list[Any] = []
        self._lines: dict[int, Line] = {}
        self._have_lines = True
        self.workers: list[str] = []
        self.lost: set[int] = set()
        self.sent = 0
        self.received = 0

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self.workers)

    def add(self, worker: str, arguments: Sequence[Any]) -> None:
        """Start making a further actor; ``arguments`` is what it is made of there; futures become their results."""
        self._futures.append(self._submit(worker, arguments))
        self._actors.append(None)
        self.workers.append(worker)

    def replace(self, i: int, worker: str, arguments: Sequence[Any]) -> None:
        """Start making an actor in place of another, which goes when all are made."""
        self._replaced.append(self._futures[i])
        self._futures[i] = self._submit(worker, arguments)
        self._actors[i] = None
        self._hang_up([i])
        self.workers[i] = worker
        self.lost.discard(i)

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
        self._client.sync(self._await_actors)
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
            If a reply cannot come any more.
        Exception
            What the method raised.
        """
        calls = _pickled(method, arguments)
        lacking = [i for i in calls if i not in self._lines and not self._is_here(i)]
        if lacking and self._have_lines:
            self._client.sync(self._open_lines, lacking)
        answers = self._by_lines(calls) if self._have_lines else self._client.sync(self._call, calls)
        self.sent += sum(map(len, calls.values()))
        self.received += sum(map(len, answers.values()))
        replies = {i: loads(answer) for i, answer in answers.items()}
        for reply in replies.values():
            if isinstance(reply, Failed):
                raise reply.error
        return replies

    def look(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows of its workers, and note which actors are lost."""
        return dict(self._client.sync(self._look))

    def close(self) -> None:
        """Free the actors."""
        self._hang_up(list(self._lines))
        actors, self._actors = self._actors, []
        futures, self._futures, self._replaced = [*self._futures, *self._replaced], [], []
        if not futures or self._client.status != "running":
            return
        here = [actor for i, actor in enumerate(actors) if actor is not None and i not in self.lost]
        with contextlib.suppress(OSError, RuntimeError):
            self._client.sync(asyncio.wait_for, _close_all(here), _SECONDS_TO_CLOSE)
        # Not merely released: proxies of an actor, which an error's traceback may hold, count as users of it.
        with contextlib.suppress(SchedulerLost):
            give_up(self._client, futures)

    def _submit(self, worker: str, arguments: Sequence[Any]) -> Future:
        (key,) = task_keys(self._stage, 1)
        return self._client.submit(self._make, *arguments, key=key, actor=True, workers=[worker], allow_other_workers=False)

    async def _await_actors(self) -> None:
        missing = [i for i, actor in enumerate(self._actors) if actor is None]
        made = await self._finish({i: asyncio.ensure_future(_result_of(self._futures[i])) for i in missing})
        for i, actor in made.items():
            self._actors[i] = actor

    def _is_here(self, i: int) -> bool:
        """Tell whether an actor is on the caller's own worker."""
        return self._here is not None and self._here.address == self._actors[i]._address

    async def _open_lines(self, actors: list[int]) -> None:
        self._lookout.check()
        args = self._client.connection_args
        opening = {i: asyncio.ensure_future(open_line(self._actors[i]._address, self._actors[i].key, args)) for i in actors}
        try:
            opened = await self._finish(opening)
        except BaseException:
            for task in opening.values():
                if task.done() and not task.cancelled() and not task.exception() and (line := task.result()) is not None:
                    line.close()
            raise
        self._have_lines = all(line is not None for line in opened.values())
        self._lines.update((i, line) for i, line in opened.items() if line is not None)

    def _hang_up(self, actors: Iterable[int]) -> None:
        for i in actors:
            if i in self._lines:
                self._lines.pop(i).close()

    def _by_lines(self, calls: Mapping[int, bytes]) -> dict[int, bytes | bytearray]:
        """Call actors, those here last of all, and return their replies."""
        self._lookout.check()
        framed_calls = {id(call): framed(call) for call in calls.values()}
        waiting = {i: self._lines[i] for i in calls if not self._is_here(i)}
        replies: dict[int, bytes | bytearray] = {}
        unsent = {}
        try:
            for i, line in waiting.items():
                line.begin(framed_calls[id(calls[i])])
                unsent[i] = line
            self._go_on(unsent, selectors.EVENT_WRITE, lambda _, line: line.send())
            for i in calls:
                if self._here is not None and i not in waiting:
                    actor = self._here.state.actors[self._actors[i].key]
                    replies[i] = actor.context.copy().run(actor.answer, calls[i])

            def has_replied(i: int, line: Line) -> bool:
                reply = line.receive()
                if reply is not None:
                    replies[i] = reply
                return reply is not None

            self._go_on(dict(waiting), selectors.EVENT_READ, has_replied)
        except BaseException:
            # A reply that nobody waits for must not be taken for that to a later call.
            self._hang_up(i for i in waiting if i not in replies)
            raise
        return replies

    def _go_on(self, pending: dict[int, Line], event: int, step: Callable[[int, Line], bool]) -> None:
        """Do a step on each line whenever it can be done, until it says that that was the last, and look after the actors meanwhile."""
        between_looks = self._lookout.heartbeats.seconds_between_looks
        next_look = time.monotonic() + between_looks
        with _Selector() as selector:
            for i, line in pending.items():
                selector.register(line.socket, event, i)
            while pending:
                for key, _ in selector.select(_SLICE):
                    try:
                        done = step(key.data, pending[key.data])
                    except OSError as error:
                        self._client.sync(self._raise_failure, key.data, error)
                    if done:
                        selector.unregister(key.fileobj)
                        del pending[key.data]
                self._lookout.check()
                if pending and time.monotonic() > next_look:
                    self._client.sync(self._look)
                    next_look = time.monotonic() + between_looks
                    self._raise_if_lost(pending)

    async def _call(self, calls: Mapping[int, bytes]) -> dict[int, Any]:
        self._lookout.check()
        return await self._finish({i: asyncio.ensure_future(self._reply_of(i, call)) for i, call in calls.items()})

    async def _reply_of(self, i: int, call: bytes) -> Any:
        """Call an actor as its own proxy would, which would wrap the call, however short it is, for each one anew."""
        actor = self._actors[i]
        if self._here is not None and self._is_here(i):
            reply = await self._here.actor_execute(function="answer", actor=actor.key, args=[call], kwargs={})
        else:
            sent = call if len(call) < _COPIED else to_serialize(call)
            reply = await actor._worker_rpc.actor_execute(function="answer", actor=actor.key, args=[sent], kwargs={})
        result = reply["exception" if reply["status"] != "OK" else "result"]
        result = result.data if isinstance(result, Serialize) else result
        if reply["status"] != "OK":
            raise result
        return result

    async def _finish(self, calls: Mapping[int, asyncio.Future[Any]]) -> dict[int, Any]:
        """Wait for calls, and look after their actors meanwhile."""
        pending = set(calls.values())
        between_looks = self._lookout.heartbeats.seconds_between_looks
        next_look = time.monotonic() + between_looks
        try:
            while pending:
                _, pending = await asyncio.wait(pending, timeout=_SLICE, return_when=asyncio.FIRST_EXCEPTION)
                for i, call in calls.items():
                    error = call.exception() if call.done() else None
                    if error is not None:
                        await self._raise_failure(i, error)
                self._lookout.check()
                if pending and time.monotonic() > next_look:
                    await self._look()
                    next_look = time.monotonic() + between_looks
                    self._raise_if_lost(i for i, call in calls.items() if not call.done())
            return {i: call.result() for i, call in calls.items()}
        finally:
            for call in calls.values():
                call.cancel()

    async def _look(self) -> dict[str, dict[str, Any]]:
        known = await self._lookout.look()
        self.lost.update(i for i, worker in enumerate(self.workers) if worker not in known or self._is_lost(i))
        return known

    def _raise_if_lost(self, actors: Iterable[int]) -> None:
        gone = self.lost.intersection(actors)
        if gone:
            raise ActorsLost(f"lost {', '.join(self.workers[i] for i in sorted(gone))}")

    async def _raise_failure(self, i: int, error: BaseException) -> None:
        """Raise what became of an actor: the error that making it raised, or its loss."""
        if self._actors[i] is None and self._futures[i].status == "error":
            raise error
        # The connection broke. The scheduler may hear of the worker's end a moment later than we do.
        deadline = time.monotonic() + _SECONDS_TO_EXPLAIN
        while not self._is_lost(i) and time.monotonic() < deadline:
            self._lookout.check()
            await asyncio.sleep(0.1)
        await self._look()
        self.lost.add(i)
        raise ActorsLost(f"lost {self.workers[i]}: {error}") from error

    def _is_lost(self, i: int) -> bool:
        """Whether the scheduler has given up an actor for lost; making it may also have failed, which is another matter."""
        status = self._futures[i].status
        return status in ("cancelled", "lost") or (status == "error" and self._actors[i] is not None)


async def _result_of(future: Future) -> Any:
    return await future


def _pickled(method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, bytes]:
    """Pickle what each actor is given; what is given to several, once."""
    once = {tuple(map(id, given)): given for given in arguments.values()}
    pickled = {which: dumps((method, tuple(given))) for which, given in once.items()}
    return {i: pickled[tuple(map(id, given))] for i, given in arguments.items()}


def _worker_of(client: Client) -> Worker | None:
    """Return the worker whose thread this is, if the client shares its loop."""
    try:
        worker = get_worker()
    except ValueError:
        return None
    return worker if worker.loop is client.loop else None


async def _close_all(actors: list[Any]) -> None:
    await asyncio.gather(*(actor.close() for actor in actors), return_exceptions=True)
