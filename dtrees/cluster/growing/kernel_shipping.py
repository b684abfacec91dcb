"""Sharing of compiled kernels in a cluster: compiled once for each kind of processor, and sent to the workers that lack them.

The scheduler stores the files of compiled kernels (some megabytes). A worker that needs a kernel requests it. The first one is told to
compile it and sends the result; other workers of the same kind, and workers that join later, receive that file. If the worker takes too
long or is lost, the next one that requests the kernel compiles it too. Waiting also ends when the kernel appears on disk, as happens if
processes share a folder, since whoever compiled it may have nothing to send.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin, get_worker

from dtrees.cluster.reliability.registry import FitRegistry
from dtrees.cluster.transport.clients import ask, own_client
from dtrees.cluster.transport.events import PROGRESS
from dtrees.split.compile.cache import cache_folder, exchange_with

#: Seconds that a worker has to compile a kernel before another one is told to.
_PATIENCE = 120.0
#: Seconds without a sign of life after which a compiling worker is no longer waited for.
_SILENCE = 20.0
#: Seconds between two requests for a kernel that another worker compiles.
_PAUSE = 0.2


class KernelStore(SchedulerPlugin):
    """Storage of compiled kernels, on the scheduler."""

    name = "dtrees-kernels"
    idempotent = True

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._files: dict[tuple[str, str], bytes] = {}
        self._compiling: dict[tuple[str, str], tuple[str, float]] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Start answering workers."""
        self._scheduler = scheduler
        scheduler.handlers["dtrees_kernel"] = self.answer

    async def close(self) -> None:
        """Discard the kernels."""
        self._files.clear()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Stop waiting for a worker that is lost."""
        self._compiling = {key: (who, since) for key, (who, since) in self._compiling.items() if who != worker}
        self._tell()

    async def answer(self, version: str, kernel: str, worker: str, content: bytes | None = None) -> tuple[bytes | None, bool]:
        """Store a kernel compiled by a worker, or answer a request: the file, if available, and whether to wait for it."""
        key = version, kernel
        if content is not None:
            self._files[key] = content
            self._compiling.pop(key, None)
            self._tell()
        elif key not in self._files:
            who, since = self._compiling.get(key, (worker, 0.0))
            if who != worker and time.monotonic() - since < _PATIENCE and self._is_heard(who):
                return None, True
            self._compiling[key] = worker, time.monotonic()
            self._tell()
            return None, False
        return self._files[key], False

    def _tell(self) -> None:
        """Notify the fits, and users who wait for one, which workers compile, as the fits may be waiting for that."""
        compiling = {who for who, since in self._compiling.values() if time.monotonic() - since < _PATIENCE}
        fits = self._scheduler.plugins.get(FitRegistry.name)
        if fits is not None:
            fits.compiling.clear()
            fits.compiling.update(compiling)
        if compiling:
            self._scheduler.log_event(PROGRESS, {"compiling": sorted(compiling)})

    def _is_heard(self, worker: str) -> bool:
        """Return whether a worker exists and shows signs of life. Its last request may arrive after it is lost."""
        known = self._scheduler.workers.get(worker)
        return known is not None and time.time() - known.last_seen < _SILENCE


def share_kernels() -> None:
    """Have this worker request kernels before it compiles them; called in a task or an actor before kernels are used."""
    global _sharing
    client = own_client()
    if _sharing is not client:
        ask(client, lambda: client.register_plugin(KernelStore()))
        exchange_with(partial(_ask_scheduler, client, get_worker().address))
        _sharing = client


#: The client of the worker that shares kernels; with several workers in a process, one is sufficient.
_sharing: Client | None = None


def _ask_scheduler(client: Client, worker: str, version: str, name: str, content: bytes | None) -> bytes | None:
    """Send the scheduler a kernel, or return one, possibly after another worker has compiled it; None if it must be compiled here.

    If the scheduler stores no kernels, or is lost, the kernel is compiled here.
    """
    on_disk, until = cache_folder() / name, time.monotonic() + 2 * _PATIENCE
    while content is not None or not on_disk.is_file():
        try:
            found, wait = ask(client, lambda: client.scheduler.dtrees_kernel(version=version, kernel=name, worker=worker, content=content))
        except Exception:
            return None
        if content is not None or not wait or time.monotonic() > until:
            return found
        time.sleep(_PAUSE)
    return None
