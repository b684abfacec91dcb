"""Kernels are compiled on one worker and sent to the others, which share no folder."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from dtrees.cluster.growing.kernel_shipping import KernelStore, _ask_scheduler, share_kernels
from dtrees.cluster.reliability.registry import FitRegistry
from dtrees.split.compile.cache import cache_folder


def _call_kernel(folder: str) -> tuple[int, int]:
    """Call a kernel, in a process with its own folder; return the numbers of kernels compiled and found."""
    import numpy as np
    from numba.core import config

    from dtrees.split.compile import cache
    from dtrees.split.table.columns import presort

    config.CACHE_DIR = folder
    cache.cache_folder.cache_clear()
    compiled: list[Any] = []
    save = cache.KernelCache.save_overload
    cache.KernelCache.save_overload = lambda self, sig, data: (compiled.append(sig), save(self, sig, data))  # type: ignore[method-assign]
    share_kernels()
    presort([np.arange(10.0)])
    return len(compiled), len(list(Path(cache.cache_folder()).glob("*.kernel")))


@pytest.fixture
def store() -> tuple[KernelStore, dict[str, Any]]:
    """A store, and the workers of its scheduler, whose plugins may keep events."""
    store, workers = KernelStore(), {name: SimpleNamespace(last_seen=time.time()) for name in ("a", "b")}
    scheduler = SimpleNamespace(handlers={}, workers=workers, plugins={}, events=[])
    scheduler.log_event = lambda topic, facts: scheduler.events.append((topic, facts))
    asyncio.run(store.start(scheduler))  # type: ignore[arg-type]
    return store, workers


def answer(store: KernelStore, worker: str, content: bytes | None = None) -> tuple[bytes | None, bool]:
    return asyncio.run(store.answer("version", "kernel", worker, content))


COMPILE, WAIT = (None, False), (None, True)


def test_the_first_to_ask_compiles(store: tuple[KernelStore, dict[str, Any]]) -> None:
    kernels, _ = store
    assert answer(kernels, "a") == COMPILE
    assert answer(kernels, "b") == WAIT
    assert answer(kernels, "a", b"code") == (b"code", False)
    assert answer(kernels, "b") == (b"code", False)


def test_fits_know_who_compiles(store: tuple[KernelStore, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, _ = store
    fits = FitRegistry()
    kernels._scheduler.plugins[FitRegistry.name] = fits
    answer(kernels, "a")
    answer(kernels, "b")  # it waits
    asyncio.run(kernels.answer("version", "another", "b"))
    assert fits.compiling == {"a", "b"}
    answer(kernels, "a", b"code")
    assert fits.compiling == {"b"}
    kernels.remove_worker(None, "b")  # type: ignore[arg-type]
    assert fits.compiling == set()
    answer(kernels, "a")
    asyncio.run(kernels.answer("version", "one that fails", "a"))
    monkeypatch.setattr("dtrees.cluster.growing.kernel_shipping._PATIENCE", 0.0)
    asyncio.run(kernels.answer("version", "another", "b", b"code"))
    assert fits.compiling == set()


def test_users_are_told_that_workers_compile(store: tuple[KernelStore, dict[str, Any]]) -> None:
    kernels, _ = store
    answer(kernels, "a")
    answer(kernels, "b")  # it waits
    answer(kernels, "a", b"code")  # there is nothing left to send
    answer(kernels, "b")
    assert kernels._scheduler.events == [("dtrees-progress", {"compiling": ["a"]})]


def test_a_worker_that_is_lost_is_not_waited_for(store: tuple[KernelStore, dict[str, Any]]) -> None:
    kernels, workers = store
    assert answer(kernels, "a") == COMPILE
    kernels.remove_worker(None, "a")  # type: ignore[arg-type]
    assert answer(kernels, "b") == COMPILE
    assert answer(kernels, "a") == WAIT
    del workers["b"]
    assert answer(kernels, "a") == COMPILE


def test_a_worker_whose_question_comes_when_it_is_gone_is_not_waited_for(store: tuple[KernelStore, dict[str, Any]]) -> None:
    kernels, _ = store
    assert answer(kernels, "gone") == COMPILE
    assert answer(kernels, "b") == COMPILE


def test_a_silent_worker_is_not_waited_for(store: tuple[KernelStore, dict[str, Any]]) -> None:
    kernels, workers = store
    assert answer(kernels, "a") == COMPILE
    workers["a"].last_seen -= 100.0
    assert answer(kernels, "b") == COMPILE


def test_what_comes_to_lie_on_disk_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have compiled it without sending it."""
    here = cache_folder() / "dtrees.no.such-kernel"
    asked = []

    def told_to_wait(*question: Any) -> tuple[bytes | None, bool]:
        asked.append(question)
        here.touch()
        return WAIT

    monkeypatch.setattr("dtrees.cluster.growing.kernel_shipping.ask", told_to_wait)
    monkeypatch.setattr("dtrees.cluster.growing.kernel_shipping._PATIENCE", 5.0)
    try:
        for _ in range(2):
            assert _ask_scheduler(None, "a", "version", here.name, None) is None  # type: ignore[arg-type]
        assert len(asked) == 1
    finally:
        here.unlink()


@pytest.mark.slow
def test_one_worker_compiles_for_all(tmp_path: Path) -> None:
    spawned = dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})  # with no kernel in memory
    with (
        spawned,
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        futures = [client.submit(_call_kernel, str(tmp_path / str(i)), workers=[worker], pure=False) for i, worker in enumerate(workers)]
        results = client.gather(futures)
        n_kernels = results[0][1]
        assert n_kernels > 0
        assert [found for _, found in results] == [n_kernels] * 2
        assert sum(compiled for compiled, _ in results) == n_kernels
        cluster.scale(3)
        client.wait_for_workers(3)
        (joined,) = set(client.scheduler_info(n_workers=-1)["workers"]) - set(workers)
        assert client.submit(_call_kernel, str(tmp_path / "joined"), workers=[joined], pure=False).result() == (0, n_kernels)
