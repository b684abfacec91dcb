"""Clusters for single tests, and processes of Dask's commands."""

import contextlib
import importlib
import os
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from distributed import Client, LocalCluster
from distributed.utils import get_mp_context


@contextlib.contextmanager
def cluster_of(n_workers: int, threads_per_worker: int = 1, **options: Any) -> Iterator[Client]:
    """A cluster for one test, and its current client."""
    with contextlib.ExitStack() as stack:
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=threads_per_worker, host="127.0.0.1", dashboard_address="127.0.0.1:0", **options
        )
        client = Client(stack.enter_context(cluster), set_as_default=False)
        stack.enter_context(stack.enter_context(client).as_current())
        yield client


@contextlib.contextmanager
def process(module: str, *options: str) -> Iterator[BaseProcess]:
    """A process of one of Dask's commands, killed at the end of the block."""
    arguments = ["--host", "127.0.0.1", "--no-dashboard", *options]
    if module == "dask_worker":  # importing dtrees takes seconds, in which a worker that is already registered would be silent
        arguments += ["--preload", "dtrees.cluster.growing.fits"]
    command = get_mp_context().Process(target=_run, args=(module, arguments))
    command.start()
    try:
        yield command
    finally:
        command.kill()
        command.join()


def _run(module: str, arguments: list[str]) -> None:
    """Run one of Dask's commands."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    importlib.import_module(f"distributed.cli.{module}").main(arguments)
