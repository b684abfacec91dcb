"""Lines to actors: connections that carry calls and replies, one after the other, without going through an event loop.

A call that goes Dask's way passes an event loop at either end, and a thread beside it: half a millisecond of Python for each actor, which
is what an exchange of short messages then takes. A line is a connection of Dask's, to the worker's own port, with Dask's handshake. But
once both sides have agreed on it, the actor waits for calls in a thread at one end, and who calls does so from his thread at the other.

Each call and each reply is its length in 8 bytes, then the pickled bytes of :mod:`dtrees.cluster.actors`. A call may be sent before the
reply to another has come: it waits at the other end, so that the actor is not kept waiting. Who gives up waiting for a reply closes the
line. Lines are for plain TCP; there are none where connections are encrypted, or of another kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from distributed import Worker
from distributed.comm.tcp import TCP
from distributed.core import Status, connect

T = TypeVar("T")

_LENGTH = struct.Struct("Q")
_OPERATION = "dtrees_line"


class LineBroken(OSError):
    """The other end is gone."""


class Line:
    """The caller's end of a line. Calls may follow each other before there are replies, which come in the same order."""

    def __init__(self, comm: TCP) -> None:
        self._comm = comm
        self._loop = comm.stream.io_loop
        self.socket = _taken_from(comm)
        self.socket.setblocking(False)
        self._to_send: deque[memoryview] = deque()
        self._head = b""
        self._reply: bytearray | None = None
        self._n_read = 0

    def call(self, call: bytes) -> None:
        """Send a call, as :func:`framed`, or what of it can be sent without waiting; raises as :meth:`send` does."""
        self._to_send.append(memoryview(call))
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
            If the line is broken.
        """
        with contextlib.suppress(BlockingIOError):
            while self._to_send:
                rest = self._to_send[0][self.socket.send(self._to_send[0]) :]
                if rest:
                    self._to_send[0] = rest
                else:
                    self._to_send.popleft()

    def receive(self) -> bytearray | None:
        """Take what has come of a reply; return the reply when it is complete, else None; raises as :meth:`send` does."""
        with contextlib.suppress(BlockingIOError):
            while self._reply is None:
                self._head += self._some(self.socket.recv(_LENGTH.size - len(self._head)))
                if len(self._head) == _LENGTH.size:
                    self._reply, self._n_read, self._head = bytearray(*_LENGTH.unpack(self._head)), 0, b""
            while self._n_read < len(self._reply):
                self._n_read += self._some(self.socket.recv_into(memoryview(self._reply)[self._n_read :]))
            reply, self._reply = self._reply, None
            return reply
        return None

    @staticmethod
    def _some(received: T) -> T:
        if not received:
            raise LineBroken("the connection was closed")
        return received

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._loop.add_callback(self._comm.abort)


def framed(call: bytes) -> bytes:
    """Return a call as it travels."""
    return _LENGTH.pack(len(call)) + call


async def open_line(address: str, key: str, connection_args: Mapping[str, Any]) -> Line | None:
    """Open a line to an actor of a worker; return None if connections to there are not plain TCP.

    Raises
    ------
    OSError
        If the worker cannot be reached, or has no such actor.
    """
    comm = await connect(address, **connection_args)
    try:
        if type(comm) is TCP:
            await comm.write({"op": _OPERATION, "actor": key})
            if await comm.read() != "OK":
                raise LineBroken(f"no actor {key} at {address}")
            return Line(comm)
    except BaseException:
        comm.abort()
        raise
    comm.abort()
    return None


class Answerer(Protocol):
    """An actor that lines lead to; see :class:`~dtrees.cluster.actors.Callee`."""

    context: contextvars.Context

    def answer(self, call: bytes | bytearray) -> bytes:
        """Return the reply to a call; runs in a copy of ``context``."""


def offer_lines(worker: Worker) -> None:
    """Have a worker let callers open lines to its actors, each of them an :class:`Answerer`."""

    async def take_calls(comm: Any, actor: str) -> Status:
        return await _take_calls(worker, comm, actor)

    worker.handlers.setdefault(_OPERATION, take_calls)


async def _take_calls(worker: Worker, comm: Any, actor: str) -> Status:
    """Carry a line of an actor, until the caller or Dask closes it."""
    callee = worker.state.actors.get(actor)
    if callee is None or type(comm) is not TCP:
        await comm.write("not here")
        return Status.dont_reply
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    await comm.write("OK")
    line = _taken_from(comm)  # before the loop can have read the first call
    line.setblocking(True)

    def serve() -> None:
        try:
            callee.context.copy().run(_serve, line, callee)
        finally:
            line.close()
            with contextlib.suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=serve, name="dtrees-line", daemon=True).start()
    await ended.wait()
    comm.abort()
    return Status.dont_reply


def _serve(line: socket.socket, callee: Answerer) -> None:
    """Answer calls, one after the other."""
    while True:
        try:
            head = _read(line, _LENGTH.size)
            call = _read(line, *_LENGTH.unpack(head))
        except OSError:
            return
        reply = callee.answer(call)
        del call
        try:
            line.sendall(framed(reply))
        except OSError:
            return


def _read(line: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    view, n = memoryview(buffer), 0
    while n < size:
        got = line.recv_into(view[n:])
        if not got:
            raise LineBroken("the caller is gone")
        n += got
    return buffer


def _taken_from(comm: TCP) -> socket.socket:
    """Take a connection away from its event loop. When Dask closes it, because a worker ends for example, it is closed here too."""
    stream = comm.stream
    mine: socket.socket = stream.socket.dup()

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            mine.shutdown(socket.SHUT_RDWR)

    stream.set_close_callback(hang_up)
    stream.io_loop.remove_handler(stream.fileno())
    return mine
