"""Faults by a script: workers that are killed, or stand still, at a certain message."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, get_worker

from dtrees.cluster.executor import ShardActor


@dataclass(frozen=True)
class Fault:
    """A shard's process gets a signal before it carries out the ``at``-th message of a kind.

    The first ``times`` processes to come so far get it; ``own`` asks for the coordinator's process, or for others.
    """

    folder: Path
    kind: str
    at: int = 1
    number: signal.Signals = signal.SIGKILL
    own: bool = False
    times: int = 1


def install(client: Client, *faults: Fault) -> None:
    """Have the processes of all workers follow a script."""
    client.run(_install, faults)


def uninstall(client: Client) -> None:
    """Have the processes that are left behave."""
    client.run(_uninstall, on_error="ignore")  # some may be on their way out


def stopped(*faults: Fault) -> list[int]:
    """Return the processes that got their signal."""
    return [int(path.name.rpartition("-")[2]) for fault in faults for path in fault.folder.glob(f"{fault.kind}-*")]


def _install(faults: tuple[Fault, ...]) -> None:
    _uninstall()
    original: Callable[..., Any] = ShardActor.handle
    counts: dict[str, int] = {}

    def handle(self: ShardActor, message: Any) -> Any:
        kind = type(message).__name__
        counts[kind] = counts.get(kind, 0) + 1
        for fault in faults:
            if fault.kind == kind and fault.at == counts[kind] and fault.own == _coordinates() and _take_place(fault):
                os.kill(os.getpid(), fault.number)
        return original(self, message)

    handle.original = original  # type: ignore[attr-defined]
    ShardActor.handle = handle  # type: ignore[method-assign]


def _uninstall() -> None:
    ShardActor.handle = getattr(ShardActor.handle, "original", ShardActor.handle)  # type: ignore[method-assign]


def _coordinates() -> bool:
    return any(str(key).startswith("dtrees-fit-") for key in get_worker().state.tasks)


def _take_place(fault: Fault) -> bool:
    """Take one of the places for processes to get the signal; files make sure that no place is taken twice."""
    for place in range(fault.times):
        try:
            os.close(os.open(fault.folder / f"{fault.kind.lower()}-{place}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        (fault.folder / f"{fault.kind}-{os.getpid()}").touch()
        return True
    return False
