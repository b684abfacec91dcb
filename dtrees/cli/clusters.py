"""The Dask cluster of a command: one of its own, or the one given by ``--scheduler``."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import click

import dtrees
from dtrees.cli.display import Display, plural
from dtrees.cli.errors import TRACEBACK_VARIABLE, CommandError


@contextlib.contextmanager
def cluster(display: Display, scheduler: str | None, n_workers: int | None = None, threads_per_worker: int | None = None) -> Iterator[Any]:
    """Yield a client of the cluster and print the address of its dashboard; an embedded cluster ends with the block.

    Parameters
    ----------
    display : Display
    scheduler : str or None
        Address of a running scheduler; None starts a cluster on this machine.
    n_workers, threads_per_worker : int or None
        Size of the embedded cluster. Without ``n_workers`` there is one worker with all cores, inside this process: kernels run without
        the interpreter lock, so more processes would only repeat the imports and copy the data.

    Raises
    ------
    CommandError
        If the workers have no dtrees.
    click.UsageError
        If options contradict each other.
    ConnectionError, RuntimeError
        If the cluster cannot be reached or started.
    """
    if scheduler is not None and (n_workers or threads_per_worker):
        raise click.UsageError("--n-workers and --threads-per-worker are for the embedded cluster; leave them out with --scheduler")
    from dtrees.cluster.transport.clients import connect, local_client
    from dtrees.engine.run.local_executor import note_compilation

    with display.warnings(), contextlib.ExitStack() as stack:
        if scheduler is None:
            stack.callback(logging.disable, logging.root.manager.disable)
            if n_workers is None:
                note_compilation()
            with display.stage("Starting a Dask cluster on this machine"):
                client = stack.enter_context(local_client(n_workers or 1, threads_per_worker, processes=n_workers is not None))
                if not os.environ.get(TRACEBACK_VARIABLE):
                    client.run(_silence_worker)
                    logging.getLogger("distributed.batched").setLevel(logging.ERROR)  # about connections that a cluster closes as it ends
                    stack.push(_silence_the_end)
        else:
            client = stack.enter_context(connect(scheduler))
            _check_workers(client, display)
        threads = client.nthreads().values()
        display.note(f"Dask: {plural(len(threads), 'worker')}, {plural(sum(threads), 'thread')}. Dashboard: {client.dashboard_link}")
        yield client


def _check_workers(client: Any, display: Display) -> None:
    """Refuse workers without dtrees, whose errors would be obscure; report those with another version."""

    def version() -> str:  # nested, so that it is pickled by value: the workers may have no dtrees
        import dtrees

        return dtrees.__version__

    try:
        versions = set(client.run(version).values())
    except ImportError as error:
        raise CommandError(f"The cluster's workers cannot import dtrees ({error}); install dtrees {dtrees.__version__} on them.") from None
    if versions != {dtrees.__version__}:
        display.warn(f"the workers run dtrees {', '.join(sorted(versions))}, this is {dtrees.__version__}; install the same everywhere.")


def _silence_the_end(kind: type[BaseException] | None, *_: object) -> None:
    """Keep a cluster that ends during its work, because of an error or a signal, from logging each broken connection."""
    if kind is not None:
        logging.disable(logging.CRITICAL)


def _silence_worker() -> None:
    """Keep a worker of the embedded cluster from printing tracebacks, as errors are printed here in one line."""
    logging.getLogger("distributed.worker").setLevel(logging.CRITICAL)
