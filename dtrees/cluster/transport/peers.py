"""Calls from an actor to others, on other workers: what is of any size goes this way, and not by the coordinator or the scheduler.

Calls go by channels (:mod:`dtrees.cluster.transport.direct_channel`) where connections are plain TCP, else by Dask's own way, which passes
the event loops at both ends. They are made all at once, and nobody waits for what they return. Whoever waits for a connection that holds
no more is not to wait for ever: one that breaks, an interruption by the coordinator, which knows who is lost, and two minutes without a
sign of life end it.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Worker
from distributed.utils import sync

from dtrees.cluster.compat import actor_on, call_actor
from dtrees.cluster.transport.direct_channel import DirectChannel, framed_pieces, open_channel

#: The method of an actor that takes a call Dask's way.
ASIDE = "answer_aside"
_SLICE = 0.1
#: One that lives takes a call at once, whatever else it does.
_SECONDS_WITHOUT_PROGRESS = 120.0
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


class PeerLost(RuntimeError):
    """Another actor cannot be reached, or does not answer, or the wait for it was given up."""


class Peers:
    """The other actors of a group, as one of them reaches them.

    Parameters
    ----------
    worker : distributed.Worker
        That this one is on.
    number : int
        Of this one in the group.

    Attributes
    ----------
    sent : int
        Bytes of all calls so far.
    """

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker, self._number = worker, number
        self._where: Sequence[tuple[str, str]] = ()
        self._channels: dict[int, DirectChannel] = {}
        self._uses_channels = True
        self._interrupted = threading.Event()
        self.sent = 0

    def meet(self, where: Sequence[tuple[str, str]]) -> None:
        """Take in the address and the key of each actor of the group, and end what was left of calls to those before."""
        self.close()
        self._where = where
        self._interrupted.clear()

    def interrupt(self) -> None:
        """Have a call under way raise :class:`PeerLost` soon, and those that follow, until :meth:`meet`; called by another thread."""
        self._interrupted.set()

    def send(self, calls: Mapping[int, Sequence[Any]]) -> None:
        """Call actors by their numbers, with a method and its arguments packed, and go on when all is on its way.

        Raises
        ------
        PeerLost
            If one cannot be reached any more. Those reached take their calls.
        """
        if not calls:
            return
        if self._uses_channels:
            lacking = [i for i in calls if i not in self._channels]
            if lacking:
                self._run(self._open(lacking))
        try:
            if self._uses_channels:
                self._by_channels(calls)
            else:
                self._run(self._by_dask(calls))
        except BaseException:
            self.close()
            raise
        self.sent += sum(memoryview(piece).nbytes for pieces in calls.values() for piece in pieces)

    def check(self) -> None:
        """Raise :class:`PeerLost` if nobody is to wait for others any more."""
        if self._interrupted.is_set():
            raise PeerLost("the wait for other workers was given up")
        if self._where and actor_on(self._worker, self._where[self._number][1]) is None:
            raise PeerLost("nobody wants what is waited for any more")

    def close(self) -> None:
        """Close all connections of its own."""
        while self._channels:
            self._channels.popitem()[1].close()

    def _by_channels(self, calls: Mapping[int, Sequence[Any]]) -> None:
        for i, call in calls.items():
            with self._named(i):
                while self._channels[i].receive() is not None:  # what earlier calls have returned
                    pass
                self._channels[i].call(*framed_pieces(call))
        heard = time.monotonic()
        while unsent := [i for i in calls if self._channels[i].has_to_send]:
            with _Selector() as selector:
                for i in unsent:
                    selector.register(self._channels[i].socket, selectors.EVENT_WRITE, i)
                ready = selector.select(_SLICE)
            for key, _ in ready:
                with self._named(key.data):
                    self._channels[key.data].send()
            heard = time.monotonic() if ready else heard
            self._check(heard, unsent)

    async def _by_dask(self, calls: Mapping[int, Sequence[Any]]) -> None:
        async def one(i: int, call: Sequence[Any]) -> None:
            with self._named(i):
                await call_actor(self._worker, *self._where[i], ASIDE, b"".join(call))

        await asyncio.gather(*(one(i, call) for i, call in calls.items()))

    async def _open(self, peers: Sequence[int]) -> None:
        async def one(i: int) -> None:
            with self._named(i):
                opened = await open_channel(*self._where[i], self._worker.connection_args)
            if opened is None:
                self._uses_channels = False
            else:
                self._channels[i] = opened

        await asyncio.gather(*(one(i) for i in peers))
        if not self._uses_channels:
            self.close()

    def _run(self, coroutine: Any) -> None:
        """Run a coroutine in the worker's event loop, and wait for it."""

        async def within_time() -> None:
            task, began = asyncio.ensure_future(coroutine), time.monotonic()
            try:
                while not (await asyncio.wait({task}, timeout=_SLICE))[0]:
                    self._check(began, self._where)
                task.result()
            finally:
                task.cancel()

        sync(self._worker.loop, within_time)

    def _check(self, heard: float, awaited: Any) -> None:
        self.check()
        if awaited and time.monotonic() - heard > _SECONDS_WITHOUT_PROGRESS:
            raise PeerLost(f"other workers have taken nothing for {_SECONDS_WITHOUT_PROGRESS:.0f} s")

    @contextlib.contextmanager
    def _named(self, i: int) -> Any:
        """Say which actor it is that cannot be reached."""
        try:
            yield
        except OSError as error:
            raise PeerLost(f"{self._where[i][0]} cannot be reached: {error}") from error
