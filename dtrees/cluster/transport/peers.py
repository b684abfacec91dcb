"""Data between actors, from worker to worker; large data are sent in this way, and not by the coordinator or the scheduler.

They are sent over *links*: one-way channels (:mod:`dtrees.cluster.transport.direct_channel`). There are no replies, and no thread waits at
the other end: an actor that sends or waits receives the data of others in the meantime. Two actors that send each other more than
connections hold therefore do not block each other.

Every wait ends: by a broken connection, by an interruption from the coordinator, which knows which shards are lost, or after two minutes in
which others receive nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from distributed import Worker
from distributed.utils import sync

from dtrees.cluster.compat import TakenConnection, actor_on, offer_connections
from dtrees.cluster.transport.direct_channel import DirectChannel, framed, open_channel, unpack

T = TypeVar("T")

_OPERATION = "dtrees_link"
_SLICE = 0.1
#: Time of busy waiting, in seconds, if each actor of a machine has a core: most data arrive in that time, and waking a thread takes longer.
#: Two workers of one thread boost 1M x 28 in 0.94 to 0.95 of the time.
_SECONDS_AWAKE = 0.0005
#: A running actor receives its data within this time, whatever it does before.
_SECONDS_WITHOUT_PROGRESS = 120.0


class PeerLost(RuntimeError):
    """Another actor cannot be reached or does not receive its data, or the wait for it was interrupted."""


class Peers:
    """The other actors of a group, as reached by one of them (its attribute ``peers``).

    Parameters
    ----------
    worker : distributed.Worker
        The worker of this actor.
    number : int
        The number of this actor in the group.
    take : callable
        Called with each object that others have sent, while this actor sends or waits. Must not refer to the actor.

    Attributes
    ----------
    sent : int
        Bytes sent so far.
    """

    def __init__(self, worker: Worker, number: int, take: Callable[[Any], None]) -> None:
        self._worker, self._number, self._take = worker, number, take
        self._where: Sequence[tuple[str, str]] = ()
        self._seconds_awake = 0.0
        self._links: dict[int, DirectChannel] = {}
        self._came: deque[DirectChannel] = deque()
        self._incoming: set[DirectChannel] = set()
        self._selector = selectors.DefaultSelector()
        self._bell, self._to_ring = socket.socketpair()
        for end in (self._bell, self._to_ring):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._interrupted, self._ended = threading.Event(), False
        self.sent = 0
        offer_connections(worker, _OPERATION, _carry_link)

    def meet(self, where: Sequence[tuple[str, str]]) -> None:
        """Receive the address and the key of each actor of the group, and drop data that remain to be sent to earlier ones."""
        self._hang_up()
        self._where, hosts = where, [address.rpartition(":")[0] for address, _ in where]
        self._seconds_awake = _SECONDS_AWAKE if hosts.count(hosts[self._number]) <= (os.cpu_count() or 1) else 0.0
        self._interrupted.clear()

    def interrupt(self) -> None:
        """Have :meth:`send` and :meth:`wait` raise :class:`PeerLost` soon, until :meth:`meet`; called by another thread."""
        self._interrupted.set()
        self._ring()

    def send(self, things: Mapping[int, Sequence[Any]]) -> None:
        """Send objects, packed, to actors by number, and return when all data are on their way.

        Raises
        ------
        PeerLost
            If an actor can no longer be reached. The others receive their data.
        """
        if not things:
            return
        lacking = [i for i in things if i not in self._links]
        try:
            if lacking:
                self._open(lacking)
            self._by_links(things)
        except BaseException:
            self._hang_up()
            raise
        self.sent += sum(memoryview(chunk).nbytes for chunks in things.values() for chunk in chunks)

    def wait(self, look: Callable[[], T | None], seconds: float, name: str) -> T:
        """Receive data of others until ``look`` returns a result, and return it; ``name`` describes the wait for errors.

        Raises
        ------
        PeerLost
            If the wait takes too long, or has become pointless.
        """
        checked = began = time.monotonic()
        while (found := look()) is None:
            self._turn()
            now = time.monotonic()
            if now - checked >= _SLICE / 2 or self._interrupted.is_set():  # not each time that data arrive
                checked = now
                self._check()
                if now - began > seconds:
                    raise PeerLost(f"other workers have not sent their {name} for {seconds:.0f} s")
        return found

    def take_link(self, link: DirectChannel) -> bool:
        """Accept a link from another actor, in any thread; return False if this one has ended."""
        if self._ended:
            return False
        self._came.append(link)
        self._ring()
        return True

    def close(self) -> None:
        """Close all connections."""
        self._ended = True
        self._hang_up()
        for link in (*self._incoming, *self._came):
            link.close()
        self._incoming.clear()
        self._selector.close()
        self._bell.close()
        self._to_ring.close()

    def __del__(self) -> None:
        if not self._ended:
            self.close()

    def _hang_up(self) -> None:
        while self._links:
            link = self._links.popitem()[1]
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(link.socket)
            link.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it has ended, or is already notified
            self._to_ring.send(b"\0")

    def _by_links(self, things: Mapping[int, Sequence[Any]]) -> None:
        unsent: set[int] = set()
        for i, thing in things.items():
            link = self._links[i]
            with self._named(i):
                link.call(*framed(*thing))
            if link.has_to_send:
                self._selector.register(link.socket, selectors.EVENT_WRITE, i)
                unsent.add(i)
        heard = time.monotonic()
        while unsent:
            sent = self._turn()
            heard = time.monotonic() if sent else heard
            for i in sent:
                if not self._links[i].has_to_send:
                    self._selector.unregister(self._links[i].socket)
                    unsent.remove(i)
            self._check(heard, unsent)

    def _turn(self) -> list[int]:
        """Receive available data, or wait a little; send what can be sent, and return the actors to which data were sent."""
        sent = []
        for key, _ in self._ready():
            if key.fileobj is self._bell:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)
                while self._came:
                    link = self._came.popleft()
                    self._incoming.add(link)
                    self._selector.register(link.socket, selectors.EVENT_READ, link)
            elif isinstance(key.data, DirectChannel):
                self._receive(key.data)
            else:
                with self._named(key.data):
                    self._links[key.data].send()
                sent.append(key.data)
        return sent

    def _ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the sockets that can be read or written, immediately or after a short wait."""
        until = time.monotonic() + self._seconds_awake
        while time.monotonic() < until:
            if ready := self._selector.select(0.0):
                return ready
        return self._selector.select(_SLICE)

    def _receive(self, link: DirectChannel) -> None:
        try:
            packed = link.receive()
        except OSError:  # an actor that needs more of this data learns from the coordinator
            self._selector.unregister(link.socket)
            self._incoming.discard(link)
            link.close()
            return
        if packed is not None:
            self._take(unpack(packed))

    def _open(self, peers: Sequence[int]) -> None:
        """Open links in the worker's event loop, and wait for them."""

        async def one(i: int) -> None:
            with self._named(i):
                self._links[i] = await open_channel(*self._where[i], self._worker.connection_args, _OPERATION)

        async def within_time() -> None:
            opening, began = asyncio.gather(*map(one, peers)), time.monotonic()
            try:
                while not (await asyncio.wait({opening}, timeout=_SLICE))[0]:
                    self._check(began, self._where)
                opening.result()
            finally:
                opening.cancel()

        sync(self._worker.loop, within_time)

    def _check(self, heard: float = 0.0, awaited: Any = ()) -> None:
        """Raise :class:`PeerLost` if waiting for others is pointless."""
        if self._interrupted.is_set():
            raise PeerLost("the wait for other workers was given up")
        if self._where and actor_on(self._worker, self._where[self._number][1]) is None:
            raise PeerLost("nobody wants what is waited for any more")
        if awaited and time.monotonic() - heard > _SECONDS_WITHOUT_PROGRESS:
            raise PeerLost(f"other workers have taken nothing for {_SECONDS_WITHOUT_PROGRESS:.0f} s")

    @contextlib.contextmanager
    def _named(self, i: int) -> Any:
        """Return a description of an actor that cannot be reached."""
        try:
            yield
        except OSError as error:
            raise PeerLost(f"{self._where[i][0]} cannot be reached: {error}") from error


def _carry_link(called: weakref.ref[Any], connection: TakenConnection, end: Callable[[], None]) -> None:
    """Pass a link to an actor, until either end or Dask closes it, or the actor is gone."""
    connection.when_closed(end)
    if (actor := called()) is not None and actor.peers.take_link(DirectChannel(connection)):
        actor.when_gone(end)
    else:
        end()
