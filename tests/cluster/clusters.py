"""Clusters of a test's own, and processes of Dask's commands."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from distributed import Client, LocalCluster


@contextlib.contextmanager
def cluster_of(n_workers: int, threads_per_worker: int = 1, **options: Any) -> Iterator[Client]:
    """A cluster of its own for a test, and the current client of it."""
    with contextlib.ExitStack() as stack:
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=threads_per_worker, host="127.0.0.1", dashboard_address="127.0.0.1:0", **options
        )
        client = Client(stack.enter_context(cluster), set_as_default=False)
        stack.enter_context(stack.enter_context(client).as_current())
        yield client


@contextlib.contextmanager
def process(module: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Dask's commands, killed at the end of the block."""
    path = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-m", f"distributed.cli.{module}", "--host", "127.0.0.1", "--no-dashboard", *options]
    if module == "dask_worker":  # to import dtrees takes seconds, in which a worker that is known already would be silent
        arguments += ["--preload", "dtrees.cluster.forest"]
    command = subprocess.Popen(arguments, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
    try:
        yield command
    finally:
        command.kill()
        command.wait()
