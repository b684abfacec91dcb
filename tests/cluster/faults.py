"""Scripted faults: workers that are killed, stopped, or cut off from all others, at a certain message.

Signals are for workers that are processes. Workers that are threads of the tests' own process are cut off instead: if all their
connections break at once, the others consider them dead.
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

#: Functions that carry out messages and send payloads: a message, or a step with payloads, is the last argument.
_PLACES: tuple[tuple[Any, str], ...] = ((ShardActor, "handle"), (ShardActor, "hand_over"))


@dataclass(frozen=True)
class Fault:
    """A signal to a shard's process before it carries out the ``at``-th message of a kind, or sends the payloads of a step of that name.

    The first ``times`` processes to get there receive it; ``own`` selects the coordinator's process, or others.
    """

    folder: Path
    kind: str
    at: int = 1
    number: signal.Signals = signal.SIGKILL
    own: bool = False
    times: int = 1


def install(client: Client, *faults: Fault, workers: list[str] | None = None) -> None:
    """Make the processes of all workers, or of some, follow a script."""
    client.run(_install, faults, workers=workers)


def uninstall(client: Client) -> None:
    """Restore normal behaviour of the remaining processes."""
    client.run(_uninstall, on_error="ignore")  # some may be about to end


def stopped(*faults: Fault) -> list[int]:
    """Return the processes that received their signal."""
    return [int(path.name.rpartition("-")[2]) for fault in faults for path in fault.folder.glob(f"{fault.kind}-*")]


def _install(faults: tuple[Fault, ...]) -> None:
    _uninstall()
    counts: dict[str, int] = {}
    for actor, name in _PLACES:
        setattr(actor, name, _following(faults, getattr(actor, name), counts))


def _following(faults: tuple[Fault, ...], original: Callable[..., Any], counts: dict[str, int]) -> Callable[..., Any]:
    """Return a method that sends signals by a script."""

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
    """Claim one of the ``times`` signals; files ensure that none is claimed twice."""
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
    """A fault of the worker whose shard gets the ``at``-th message of a kind, or is about to send the payloads of a step of that name.

    It is "killed" before it carries the message out, or does so "unheard": the connections from others to it break before its reply, and
    it lives on. It is never the coordinator's worker, whose thread could not be ended and whose shard is called without a connection;
    then the next worker is chosen.
    """

    kind: str
    at: int = 1
    how: Literal["killed", "unheard"] = "killed"


@contextmanager
def cut_off(*cuts: Cut) -> Iterator[list[Cut]]:
    """Cut workers of this process off by a script, one after the other; yield the cuts so far."""
    originals = [getattr(actor, name) for actor, name in _PLACES]
    done: list[Cut] = []
    seen = 0
    lock = threading.Lock()

    def is_up(message: Any) -> Cut | None:
        """Return the cut that is due, None if none is."""
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
    """Return the name of a step and of its parts, or of a message's type."""
    if isinstance(message, Step):
        return {message.name, *message.name.rpartition(": ")[2].split(", ")}
    return {type(message).__name__}


def _break_connections(worker: Worker, how: str, broken: threading.Event) -> None:
    if how == "killed":
        worker.batched_stream.abort()
    for comm in list(worker._comms):
        comm.abort()
    worker.loop.add_callback(broken.set)  # after the handlers of a closed connection
