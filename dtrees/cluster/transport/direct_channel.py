"""Channels to actors: connections that carry calls and replies, one after the other, without going through an event loop.

A call that goes Dask's way passes an event loop at either end, and a thread beside it: half a millisecond of Python for each actor, which
is what an exchange of short messages then takes. A channel is a connection of Dask's, to the worker's own port, with Dask's handshake. But
once both sides have agreed on it, the actor waits for calls in a thread at one end, and the caller uses its own thread at the other. Only
where connections are not plain TCP (they are encrypted, say), event loops carry the bytes.

Each call and each reply is its length in 8 bytes, then the pickled bytes of :mod:`dtrees.cluster.growing.actors`, or, between actors, the
chunks of :func:`pack_named`. A call may be sent before the reply to another has come: it waits at the other end, so
that the actor is not kept waiting. Who gives up waiting for a reply closes the channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import math
import pickle
import socket
import struct
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, TypeVar

import numpy as np
from distributed import get_worker
from distributed.protocol.pickle import dumps, loads
from numpy.typing import NDArray

from dtrees.cluster.compat import TakenConnection, connect_to_worker, offer_connections
from dtrees.cluster.transport.clients import answer
from dtrees.split.policy import MAPPED_BYTES
from dtrees.split.table.mmap_arrays import mapped

T = TypeVar("T")

_LENGTH = struct.Struct("Q")
#: What a worker offers (:func:`~dtrees.cluster.compat.offer_connections`): its actors answer calls.
CALLS = "dtrees_channel"
#: Chunks that the system takes at once; not on Windows.
_AT_ONCE, _SENDS_MANY = 64, hasattr(socket.socket, "sendmsg")
#: Buffers for replies of up to so many bytes are kept for the next ones.
_MOST_KEPT = 4 << 20
#: A worker that shows signs of life answers within this time.
_SECONDS_TO_OPEN = 30.0
#: Arrays begin at multiples of so many bytes, as kernels expect of them.
_ALIGNED = 64
#: Up to so many bytes are one chunk: to copy them takes less time than to give the system several.
_ONE_CHUNK = 1 << 15
#: Kinds of arrays of numbers.
_NUMBERS = "iufb"


class DirectChannel:
    """The caller's end of a channel. Calls may follow each other before there are replies, which come in the same order."""

    def __init__(self, connection: TakenConnection) -> None:
        self._connection = connection
        self.socket = connection.socket
        self.socket.setblocking(False)
        self._to_send: deque[memoryview] = deque()
        self._head = b""
        self._reply: memoryview | None = None
        self._n_read = 0
        self._buffer = mapped(0, np.uint8)
        self._n_references = getrefcount(self._buffer)

    def call(self, *call: Any) -> None:
        """Send a call, as :func:`framed`, in a chunk or several, or what of it can be sent without waiting; raises as :meth:`send` does."""
        if len(call) == 1 and not self._to_send:
            with contextlib.suppress(BlockingIOError):
                n = self.socket.send(call[0])
                if n == len(call[0]):
                    return
                call = (memoryview(call[0])[n:],)
        self._to_send.extend(memoryview(chunk).cast("B") for chunk in call)
        self.send()

    @property
    def has_to_send(self) -> bool:
        """Whether there is something left to be sent."""
        return bool(self._to_send)

    def send(self) -> None:
        """Send what can be sent without waiting.

        Raises
        ------
        OSError
            If the channel is broken.
        """
        to_send = self._to_send
        with contextlib.suppress(BlockingIOError):
            while to_send:
                # At once: each call of the system may wake the other end.
                n = self.socket.sendmsg(itertools.islice(to_send, _AT_ONCE)) if _SENDS_MANY else self.socket.send(to_send[0])
                while to_send and n >= to_send[0].nbytes:
                    n -= to_send.popleft().nbytes
                if n:
                    to_send[0] = to_send[0][n:]

    def receive(self) -> memoryview | None:
        """Take what has come of a reply; return the reply when it is complete, else None; raises as :meth:`send` does."""
        with contextlib.suppress(BlockingIOError):
            while self._reply is None:
                self._head += self._some(self.socket.recv(_LENGTH.size - len(self._head)))
                if len(self._head) == _LENGTH.size:
                    (size,) = _LENGTH.unpack(self._head)
                    self._reply, self._n_read, self._head = self._buffer_for(size), 0, b""
            while self._n_read < len(self._reply):
                self._n_read += self._some(self.socket.recv_into(self._reply[self._n_read :]))
            reply, self._reply = self._reply, None
            return reply
        return None

    def _buffer_for(self, size: int) -> memoryview:
        """Return a buffer for a reply: an earlier one, if nobody has anything in it any more. New memory costs more than what it takes.

        (To copy 400 kB takes 5 us into memory that was used before, and 220 into pages that the system has yet to give.)
        """
        if not MAPPED_BYTES <= size <= _MOST_KEPT:
            return mapped(size, np.uint8).data
        if self._buffer.shape[0] < size or getrefcount(self._buffer) > self._n_references:
            self._buffer = mapped(size, np.uint8)
        return self._buffer[:size].data

    @staticmethod
    def _some(received: T) -> T:
        if not received:
            raise ConnectionError("the connection was closed")
        return received

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def framed(call: bytes) -> bytes:
    """Return a call as it travels."""
    return _LENGTH.pack(len(call)) + call


def framed_chunks(chunks: Sequence[Any]) -> list[Any]:
    """Return the chunks of a call as they travel; where they are several, none of them is copied."""
    if len(chunks) == 1 and isinstance(chunks[0], bytes):  # which is short
        return [framed(chunks[0])]
    return [_LENGTH.pack(sum(memoryview(chunk).nbytes for chunk in chunks)), *chunks]


async def open_channel(address: str, key: str, connection_args: Mapping[str, Any], operation: str = CALLS) -> DirectChannel:
    """Open a channel to an actor of a worker; ``operation`` is what is offered.

    Raises
    ------
    OSError
        If the worker cannot be reached, has no such actor, or does not answer in time.
    """
    return DirectChannel(await answer(connect_to_worker(address, connection_args, operation, actor=key), _SECONDS_TO_OPEN))


@dataclass(frozen=True)
class Failed:
    """What comes in place of the result of a method that raised, so that its errors cannot be taken for those of the connection."""

    error: BaseException


class ActorBase:
    """An object that lives on a worker and answers calls, one after the other (:mod:`dtrees.cluster.growing.actors` makes such).

    Attributes
    ----------
    context : contextvars.Context
        What calls are answered in, whichever thread does it: it knows which worker this is.
    turn : threading.Lock
        Held while a call is answered. A caller that gave up waiting may call again before that.
    AT_ONCE : frozenset of str
        Methods that are called whatever else is under way.
    """

    AT_ONCE: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.turn = threading.Lock()
        offer_connections(get_worker(), CALLS, _take_calls)

    def when_gone(self, act: Callable[[], None]) -> None:
        """Have something done, which does not refer to the actor, when Dask has let go of it; not when the process ends."""
        weakref.finalize(self, act).atexit = False

    def answer(self, call: bytes | bytearray | memoryview) -> bytes:
        """Call a method, which is given pickled with its arguments, and return its result, pickled. One call after the other."""
        method, arguments = loads(call)
        with contextlib.nullcontext() if method in self.AT_ONCE else self.turn:
            try:
                result = getattr(self, method)(*arguments)
            except Exception as error:
                error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks do not travel
                result = Failed(error)
            return bytes(dumps(result))


async def _take_calls(called: weakref.ref[ActorBase], connection: TakenConnection) -> None:
    """Carry a channel of an actor, until the caller or Dask closes it, by a thread that answers."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    connection.socket.setblocking(True)

    def serve() -> None:
        try:
            if (actor := called()) is not None:
                context = actor.context.copy()
                del actor
                context.run(_serve, connection.socket, called)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=serve, name="dtrees-channel", daemon=True).start()
    await ended.wait()


def _serve(channel: socket.socket, called: weakref.ref[ActorBase]) -> None:
    """Answer calls, one after the other."""
    while True:
        try:
            head = _read(channel, _LENGTH.size)
            call = _read(channel, *_LENGTH.unpack(head))
        except OSError:
            return
        actor = called()
        if actor is None:
            return
        reply = actor.answer(call)
        del call, actor
        try:
            channel.sendall(framed(reply))
        except OSError:
            return


def _read(channel: socket.socket, size: int) -> memoryview:
    view, n = mapped(size, np.uint8).data, 0
    while n < size:
        got = channel.recv_into(view[n:])
        if not got:
            raise ConnectionError("the caller is gone")
        n += got
    return view


def pack_named(name: tuple[Any, ...], things: tuple[Any, ...]) -> list[Any]:
    """Return bytes-like chunks that, one after the other, are a name and some things.

    These are the length of a head, the head, and the arrays. What is sent many times for each tree is a name and arrays of numbers: then
    nothing else is looked for. For anything else Python's pickle finds the arrays, which takes several times as long where they are small.

    Examples
    --------
    >>> unpack(b"".join(pack_named(("sums", 7), (np.arange(3), np.eye(1)))))
    (('sums', 7), (array([0, 1, 2]), array([[1.]])))
    >>> unpack(b"".join(pack_named(("found", 8), ({"best": np.arange(2)},))))
    (('found', 8), ({'best': array([0, 1])},))
    """
    arrays: Sequence[NDArray[Any]] = things
    about: list[tuple[Any, tuple[int, ...]]] = []
    for array in things:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in _NUMBERS:
            break
        about.append((array.dtype.str, array.shape))
    if len(about) == len(things):
        head = pickle.dumps((name, None, about), protocol=5)
    else:
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(things, protocol=5, buffer_callback=buffers.append)
        arrays = [np.asarray(buffer.raw()) for buffer in buffers]
        head = pickle.dumps((name, pickled, [("|u1", array.shape) for array in arrays]), protocol=5)
    chunks: list[Any] = [_LENGTH.pack(len(head)), head]
    end = _LENGTH.size + len(head)
    for array in arrays:
        if n := array.nbytes:
            if gap := -end % _ALIGNED:
                chunks.append(bytes(gap))
            chunks.append(np.ascontiguousarray(array).data.cast("B"))
            end += gap + n
    return [b"".join(chunks)] if end <= _ONE_CHUNK else chunks


def unpack(packed: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the name and the things that some bytes are; arrays lie in these bytes, or, where they cannot be written to, in a copy."""
    view = memoryview(packed).cast("B")
    if view.readonly:
        view = np.frombuffer(view, np.uint8).copy().data
    (size,) = _LENGTH.unpack_from(view)
    end = _LENGTH.size + size
    name, pickled, about = pickle.loads(view[_LENGTH.size : end])
    arrays = []
    for dtype, shape in about:
        n = math.prod(shape)
        if n:
            end += -end % _ALIGNED
            array = np.frombuffer(view, dtype, n, end)
            end += array.nbytes
            arrays.append(array if len(shape) == 1 else array.reshape(shape))
        else:
            arrays.append(np.empty(shape, dtype))
    return name, tuple(arrays) if pickled is None else pickle.loads(pickled, buffers=arrays)
