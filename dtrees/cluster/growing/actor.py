"""An actor: an object that lives on a worker and answers calls, one after the other (:mod:`dtrees.cluster.growing.actors` makes them)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from dataclasses import dataclass

from distributed import get_worker
from distributed.protocol.pickle import dumps, loads

from dtrees.cluster.transport.direct_channel import offer_channels


@dataclass(frozen=True)
class Failed:
    """What a method returns instead of raising, so that its errors cannot be taken for those of the connection."""

    error: BaseException


class ActorBase:
    """What an actor is; its methods return a :class:`Failed` where they would raise.

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
        offer_channels(get_worker())

    def answer(self, call: bytes | bytearray | memoryview) -> bytes:
        """Call a method, which is given pickled with its arguments, and return its result, pickled. One call after the other."""
        method, arguments = loads(call)
        with contextlib.nullcontext() if method in self.AT_ONCE else self.turn:
            return bytes(dumps(getattr(self, method)(*arguments)))

    async def answer_aside(self, call: bytes | bytearray) -> bytes:
        """Answer a call that comes Dask's way, in a thread of its own: Dask has one for all actors of a worker."""
        return await asyncio.get_running_loop().run_in_executor(None, self.context.copy().run, self.answer, call)

    def close(self) -> None:
        """End what it has under way."""
