"""Kernels are compiled on one worker and sent to the others, which share no folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from dtrees.cluster.growing.kernel_shipping import share_kernels


def _call_kernel(folder: str) -> tuple[int, int]:
    """Call a kernel, in a process with a folder of its own; return how many kernels it compiled, and how many it found."""
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
