"""Faults by a script: workers that are killed, stand still, or are cut off from everybody, at a certain message.

Signals are for workers that are processes. Workers that are threads of the tests' own process are cut off instead: if all their connections
break at once, that is a death to everybody else.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from distributed import Client, Worker, get_worker

from dtrees.cluster.growing.shards import ShardActor
from dtrees.cluster.transport.direct_channel import Failed
from dtrees.engine.protocol.exchange import Step

#: What carries out messages, and sends payloads: a message, or a step with these, is the last argument.
_PLACES: tuple[tuple[Any, str], ...] = ((ShardActor, "handle"), (ShardActor, "hand_over"))


@dataclass(frozen=True)
class Fault:
    """A shard's process gets a signal before it carries out the ``at``-th message of a kind or sends the payloads of a step of that name.

    The first ``times`` processes to come so far get it; ``own`` asks for the coordinator's process, or for others.
    """

    folder: Path
    kind: str
    at: int = 1
    number: signal.Signals = signal.SIGKILL
    own: bool = False
    times: int = 1


def install(client: Client, *faults: Fault, workers: list[str] | None = None) -> None:
    """Have the processes of all workers, or of some, follow a script."""
    client.run(_install, faults, workers=workers)


def uninstall(client: Client) -> None:
    """Have the processes that are left behave."""
    client.run(_uninstall, on_error="ignore")  # some may be on their way out


def stopped(*faults: Fault) -> list[int]:
    """Return the processes that got their signal."""
    return [int(path.name.rpartition("-")[2]) for fault in faults for path in fault.folder.glob(f"{fault.kind}-*")]


def _install(faults: tuple[Fault, ...]) -> None:
    _uninstall()
    counts: dict[str, int] = {}
    for actor, name in _PLACES:
        setattr(actor, name, _following(faults, getattr(actor, name), counts))


def _following(faults: tuple[Fault, ...], original: Callable[..., Any], counts: dict[str, int]) -> Callable[..., Any]:
    """Return a method with signals by a script."""

    def handle(self: Any, *call: Any) -> Any:
        kinds = _kinds(call[-1])
        for kind in kinds:
            counts[kind] = counts.get(kind, 0) + 1
        for fault in faults:
            if fault.kind in kinds and fault.at == counts[fault.kind] and fault.own == _coordinates() and _take_place(fault):
                os.kill(os.getpid(), fault.number)
        return original(self, *call)

    handle.original = original  # type: ignore[attr-defined]
    return handle


def _uninstall() -> None:
    for actor, name in _PLACES:
        setattr(actor, name, getattr(getattr(actor, name), "original", getattr(actor, name)))


def _coordinates() -> bool:
    return any(str(key).startswith("dtrees-fit-") for key in get_worker().state.tasks)


def _take_place(fault: Fault) -> bool:
    """Take one of the places for processes to get the signal; files make sure that no place is taken twice."""
    for place in range(fault.times):
        try:
            os.close(os.open(fault.folder / f"place-{fault.kind}-{place}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        (fault.folder / f"{fault.kind}-{os.getpid()}").touch()
        return True
    return False


@dataclass(frozen=True)
class Cut:
    """What becomes of the worker of the shard that gets the ``at``-th message of a kind, or is to send the payloads of a step of that name.

    It is "killed" before it carries the message out, or it does so "unheard": the connections that others have to it break before its
    reply, and it lives on. Never is it the coordinator's worker, whose thread could not be ended, and whose shard is called without a
    connection; then it is the next one's turn.
    """

    kind: str
    at: int = 1
    how: Literal["killed", "unheard"] = "killed"


@contextmanager
def cut_off(*cuts: Cut) -> Iterator[list[Cut]]:
    """Have workers in this process be cut off by a script, one after the other; yield what came about of it so far."""
    originals = [getattr(actor, name) for actor, name in _PLACES]
    done: list[Cut] = []
    seen = 0
    lock = threading.Lock()

    def is_up(message: Any) -> Cut | None:
        """Return the cut whose turn it is, None if it is nobody's."""
        nonlocal seen
        with lock:
            cut = cuts[len(done)] if len(done) < len(cuts) else None
            if cut is None or cut.kind not in _kinds(message):
                return None
            seen += 1
            if seen < cut.at or _coordinates():
                return None
            done.append(cut)
            seen = 0
            return cut

    def cutting(original: Callable[..., Any]) -> Callable[..., Any]:
        def handle(self: Any, *call: Any) -> Any:
            cut = is_up(call[-1])
            if cut is None:
                return original(self, *call)
            if cut.how == "unheard":
                original(self, *call)
            broken = threading.Event()
            worker = get_worker()
            worker.loop.add_callback(_break_connections, worker, cut.how, broken)
            assert broken.wait(30)
            unheard = AssertionError("nobody is to hear of this")
            if isinstance(call[-1], Step):
                raise unheard
            return Failed(unheard)

        return handle

    for (actor, name), original in zip(_PLACES, originals, strict=True):
        setattr(actor, name, cutting(original))
    try:
        yield done
    finally:
        for (actor, name), original in zip(_PLACES, originals, strict=True):
            setattr(actor, name, original)


def _kinds(message: Any) -> set[str]:
    """Return the name of a step and of those that it is made of, or of a message's type."""
    if isinstance(message, Step):
        return {message.name, *message.name.rpartition(": ")[2].split(", ")}
    return {type(message).__name__}


def _break_connections(worker: Worker, how: str, broken: threading.Event) -> None:
    if how == "killed":
        worker.batched_stream.abort()
    for comm in list(worker._comms):
        comm.abort()
    worker.loop.add_callback(broken.set)  # after what is to be done when a connection is closed
