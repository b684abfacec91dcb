"""Compiled kernels for all workers of a cluster: compiled once for each kind of processor, and sent to the workers that lack them.

The scheduler keeps the files of compiled kernels (some megabytes). A worker that needs a kernel asks for it. The first to ask is told to
compile it and sends the result; others of the same kind, and workers that join later, are sent that. A worker that takes too long, or is
lost, is not waited for: the next one to ask compiles the kernel too. Nor is a kernel waited for that has come to lie on disk meanwhile, as
it does where processes share a folder: whoever compiled it may have nothing to send.
"""

from __future__ import annotations

import time
from typing import Any

from distributed import Client, Scheduler, SchedulerPlugin, get_worker

from dtrees.cluster.reliability.registry import FitRegistry
from dtrees.cluster.transport.clients import ask, own_client
from dtrees.cluster.transport.events import PROGRESS
from dtrees.split.compile.cache import cache_folder, exchange_with

#: Seconds that a worker is given to compile a kernel, until another one is told to.
_PATIENCE = 120.0
#: Seconds without a sign of life after which it is not waited for.
_SILENCE = 20.0
#: Seconds between two questions for a kernel that another worker compiles.
_PAUSE = 0.2


class KernelStore(SchedulerPlugin):
    """Compiled kernels, on the scheduler."""

    name = "dtrees-kernels"
    idempotent = True

    def __init__(self) -> None:
        self._scheduler: Any = None
        self._files: dict[tuple[str, str], bytes] = {}
        self._compiling: dict[tuple[str, str], tuple[str, float]] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Answer workers from now on."""
        self._scheduler = scheduler
        scheduler.handlers["dtrees_kernel"] = self.answer

    async def close(self) -> None:
        """Let go of the kernels."""
        self._files.clear()

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:
        """Wait no longer for a worker that is gone."""
        self._compiling = {key: (who, since) for key, (who, since) in self._compiling.items() if who != worker}
        self._tell()

    async def answer(self, version: str, kernel: str, worker: str, content: bytes | None = None) -> tuple[bytes | None, bool]:
        """Take a kernel that a worker has compiled, or answer one that needs it: the file, if there is one, and whether to wait for it."""
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
        """Have the fits know who compiles, and users who wait for one: it is what they may wait for."""
        compiling = {who for who, since in self._compiling.values() if time.monotonic() - since < _PATIENCE}
        fits = self._scheduler.plugins.get(FitRegistry.name)
        if fits is not None:
            fits.compiling.clear()
            fits.compiling.update(compiling)
        if compiling:
            self._scheduler.log_event(PROGRESS, {"compiling": sorted(compiling)})

    def _is_heard(self, worker: str) -> bool:
        """Tell whether a worker is there, and shows signs of life. Its last question may come when it is gone."""
        known = self._scheduler.workers.get(worker)
        return known is not None and time.time() - known.last_seen < _SILENCE


def share_kernels() -> None:
    """Have this worker ask for kernels before it compiles them; to be called in a task, or by an actor, before kernels are used."""
    global _sharing
    client = own_client()
    if _sharing is not client:
        ask(client, lambda: client.register_plugin(KernelStore()))
        exchange_with(_OfCluster(client, get_worker().address))
        _sharing = client


#: The client of the worker that shares kernels; there may be several workers in a process, of which one is enough.
_sharing: Client | None = None


class _OfCluster:
    """The kernels that the scheduler keeps, as :class:`~dtrees.split.compile.cache.Exchange`."""

    def __init__(self, client: Client, worker: str) -> None:
        self._client, self._worker = client, worker

    def fetch(self, version: str, name: str) -> bytes | None:
        """Return a kernel, which another worker may have yet to compile; None if it is to be compiled here."""
        on_disk = cache_folder() / name
        until = time.monotonic() + 2 * _PATIENCE
        while not on_disk.is_file():
            content, wait = self._ask(version, name)
            if not wait or time.monotonic() > until:
                return content
            time.sleep(_PAUSE)
        return None

    def offer(self, version: str, name: str, content: bytes) -> None:
        """Send a kernel."""
        self._ask(version, name, content)

    def _ask(self, version: str, name: str, content: bytes | None = None) -> tuple[bytes | None, bool]:
        """Ask the scheduler. One that keeps no kernels, or is gone, does no harm: the kernel is compiled then."""
        scheduler, worker = self._client.scheduler, self._worker
        try:
            found, wait = ask(self._client, lambda: scheduler.dtrees_kernel(version=version, kernel=name, worker=worker, content=content))
        except Exception:
            return None, False
        return found, wait
