"""Channels to actors: connections for sequential calls and replies that bypass event loops.

A Dask call passes an event loop and a thread at either end: half a millisecond of Python for each actor, which dominates an exchange of
short messages. A channel is a Dask connection to the worker's own port, with Dask's handshake. Once both sides have agreed on it, the actor
waits for calls in a thread at one end, and the caller uses its own thread at the other. Only if connections are not plain TCP (for example
encrypted), event loops carry the bytes.

Each call and each reply is its length in 8 bytes, followed by the pickled bytes of :mod:`dtrees.cluster.growing.actors` or, between actors,
the chunks of :func:`pack_named`. A call may be sent before the reply to another has arrived: it waits at the other end, so that the actor
is not idle. A caller that stops waiting for a reply closes the channel.
"""

from __future__ import annotations

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
#: The operation that a worker offers (:func:`~dtrees.cluster.compat.offer_connections`): calls to its actors.
CALLS = "dtrees_channel"
#: Number of chunks per system call; not on Windows.
_AT_ONCE, _SENDS_MANY = 64, hasattr(socket.socket, "sendmsg")
#: Buffers for replies of up to this many bytes are reused.
_MOST_KEPT = 4 << 20
#: A running worker answers within this time.
_SECONDS_TO_OPEN = 30.0
#: Arrays begin at multiples of this many bytes, as kernels require.
_ALIGNED = 64
#: Up to this many bytes are copied to one chunk, which takes less time than passing several to the system.
_ONE_CHUNK = 1 << 15
#: Kinds of arrays of numbers.
_NUMBERS = "iufb"


class DirectChannel:
    """An end of a channel. Several calls may be sent before replies arrive, which come in the same order.

    The caller's end does not block. At the other end, where calls are received and replies are sent, the socket is set to block.
    """

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
        """Send a call, :func:`framed`, in one or more chunks, or the part that can be sent without waiting; raises as :meth:`send` does."""
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
        """Whether some data remain to be sent."""
        return bool(self._to_send)

    def send(self) -> None:
        """Send the data that can be sent without waiting.

        Raises
        ------
        OSError
            If the channel is broken.
        """
        to_send = self._to_send
        with contextlib.suppress(BlockingIOError):
            while to_send:
                # In one system call, as each may wake the other end.
                n = self.socket.sendmsg(itertools.islice(to_send, _AT_ONCE)) if _SENDS_MANY else self.socket.send(to_send[0])
                while to_send and n >= to_send[0].nbytes:
                    n -= to_send.popleft().nbytes
                if n:
                    to_send[0] = to_send[0][n:]

    def receive(self) -> memoryview | None:
        """Receive available data; return the reply when it is complete, otherwise None; raises as :meth:`send` does."""
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
        """Return a buffer for a reply: an earlier one, if it is no longer referenced, as new memory costs more than the data.

        Copying 400 kB takes 5 us into memory that was used before, and 220 us into new pages.
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


def framed(*chunks: Any) -> list[Any]:
    """Return the chunks of a call or reply in the form in which they are sent; several chunks are not copied."""
    length = _LENGTH.pack(sum(memoryview(chunk).nbytes for chunk in chunks))
    return [length + chunks[0]] if len(chunks) == 1 and isinstance(chunks[0], bytes) else [length, *chunks]


async def open_channel(address: str, key: str, connection_args: Mapping[str, Any], operation: str = CALLS) -> DirectChannel:
    """Open a channel to an actor of a worker, by the offered ``operation``.

    Raises
    ------
    OSError
        If the worker cannot be reached, has no such actor, or does not answer in time.
    """
    return DirectChannel(await answer(connect_to_worker(address, connection_args, operation, actor=key), _SECONDS_TO_OPEN))


@dataclass(frozen=True)
class Failed:
    """The reply of a method that raised, which distinguishes its errors from those of the connection."""

    error: BaseException


class ActorBase:
    """An object on a worker that answers sequential calls; created by :mod:`dtrees.cluster.growing.actors`.

    Attributes
    ----------
    context : contextvars.Context
        The context of calls in any thread, with the current worker.
    turn : threading.Lock
        Held while a call is answered. A caller that stopped waiting may call again earlier.
    AT_ONCE : frozenset of str
        Methods that may be called at any time, also during another call.
    """

    AT_ONCE: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.turn = threading.Lock()
        offer_connections(get_worker(), CALLS, _take_calls)

    def when_gone(self, act: Callable[[], None]) -> None:
        """Call ``act``, which must not refer to the actor, when Dask has released the actor; not when the process ends."""
        weakref.finalize(self, act).atexit = False

    def answer(self, call: bytes | bytearray | memoryview) -> bytes:
        """Call a method, given pickled with its arguments, and return its pickled result. One call at a time."""
        method, arguments = loads(call)
        with contextlib.nullcontext() if method in self.AT_ONCE else self.turn:
            try:
                result = getattr(self, method)(*arguments)
            except Exception as error:
                error.add_note(f"On worker {get_worker().address}:\n{traceback.format_exc()}")  # tracebacks are not sent
                result = Failed(error)
            return bytes(dumps(result))


def _take_calls(called: weakref.ref[ActorBase], connection: TakenConnection, end: Callable[[], None]) -> None:
    """Serve a channel of an actor, in a thread that answers, until the caller or Dask closes it."""
    channel = DirectChannel(connection)
    channel.socket.setblocking(True)

    def serve() -> None:
        try:
            if (actor := called()) is not None:
                context = actor.context.copy()
                del actor
                context.run(_serve, channel, called)
        finally:
            end()

    threading.Thread(target=serve, name="dtrees-channel", daemon=True).start()


def _serve(channel: DirectChannel, called: weakref.ref[ActorBase]) -> None:
    """Answer calls sequentially, until the connection or the actor is gone."""
    with contextlib.suppress(OSError):
        while (call := channel.receive()) is not None and (actor := called()) is not None:
            reply = actor.answer(call)
            del call, actor
            channel.call(*framed(reply))


def pack_named(name: tuple[Any, ...], things: tuple[Any, ...]) -> list[Any]:
    """Pack a name and some objects as a sequence of bytes-like chunks.

    The chunks are the length of a header, the header, and the arrays. For a name with arrays of numbers, as sent many times for each tree,
    no other objects are searched. In other cases Python's pickle finds the arrays, which takes several times as long if they are small.

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
    """Return the name and the objects packed in some bytes; arrays share their memory, or a copy if it is read-only."""
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
