"""A Dask cluster at hand: one started on this machine, or one that is already running.

Both give a :class:`distributed.Client` as a context manager, so that whatever follows is the same code for a laptop and
for a cluster::

    with local_client(n_workers=2) as client:       # embedded: stops with the block
        ...
    with connect("tcp://10.0.0.5:8786") as client:  # somebody's cluster: only the connection is closed
        ...

Terms
-----
embedded cluster
    a scheduler and workers on this machine, reachable from this machine only (they listen on 127.0.0.1).
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from distributed import Client, LocalCluster
from distributed.comm import get_address_host_port, normalize_address

from dtrees.cluster.transport.scheduler_rpc import NO_WORKER_YET

logger = logging.getLogger("dtrees.cluster")

_LOOPBACK = "127.0.0.1"
_DASHBOARD_PORT = 8787


@contextlib.contextmanager
def local_client(n_workers: int | None = None, threads_per_worker: int | None = None, processes: bool = True) -> Iterator[Client]:
    """Start a cluster on this machine and give a client of it; both end with the block.

    Parameters
    ----------
    n_workers : int, optional
        Worker processes. None takes as many as the cores allow with ``threads_per_worker`` threads each; where that is None too,
        Dask's choice (about the square root of the number of cores).
    threads_per_worker : int, optional
        Threads of each worker. None shares out the cores.
    processes : bool
        Whether workers are processes of their own. Otherwise they are threads of this one, which is there sooner: nothing is imported
        twice.

    Yields
    ------
    distributed.Client
        Its ``dashboard_link`` is the address of Dask's dashboard, at port 8787 or, where that is taken, any free one.

    Raises
    ------
    ValueError
        If a number is below one.
    RuntimeError
        If the cluster does not start, for example because this machine allows no local sockets.

    Examples
    --------
    >>> with local_client(n_workers=1, threads_per_worker=2) as client:  # doctest: +SKIP
    ...     print(client.dashboard_link)
    http://127.0.0.1:8787/status
    """
    for name, number in (("n_workers", n_workers), ("threads_per_worker", threads_per_worker)):
        if number is not None and number < 1:
            raise ValueError(f"{name} is {number}; give at least 1, or leave it out to use all cores.")
    with contextlib.ExitStack() as stack:
        with warnings.catch_warnings():
            # That the usual port is taken matters to nobody: the link that is shown is the one in use.
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            try:
                cluster = LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=threads_per_worker,
                    processes=processes,
                    protocol="tcp://",  # not memory shared within the process, so that workers own what they are sent, as anywhere
                    host=_LOOPBACK,
                    dashboard_address=f"{_LOOPBACK}:{_DASHBOARD_PORT}",
                    silence_logs=logging.ERROR,
                )
            except (OSError, RuntimeError, TimeoutError) as error:
                raise RuntimeError(f"The local Dask cluster did not start: {_first_line(error)}") from error
        stack.enter_context(cluster)
        yield stack.enter_context(Client(cluster))


@contextlib.contextmanager
def connect(address: str, timeout: float = 10.0) -> Iterator[Client]:
    """Connect to a running scheduler; the connection is closed with the block, the cluster is left alone.

    Parameters
    ----------
    address : str
        As the scheduler prints it, for example ``"tcp://10.0.0.5:8786"`` or ``"10.0.0.5:8786"``.
    timeout : float
        Seconds to wait for the scheduler to answer.

    Yields
    ------
    distributed.Client

    Raises
    ------
    ConnectionError
        In one line, if nothing answers there, or if what answers is no Dask scheduler of a version that this one understands.

    Examples
    --------
    >>> with connect("127.0.0.1:1", timeout=0.5) as client:
    ...     pass
    Traceback (most recent call last):
    ...
    ConnectionError: No Dask scheduler answers at '127.0.0.1:1' (waited 0.5 s). Check the address and that the scheduler is running.
    """
    client, reason = _open(address, timeout)
    if client is None:
        raise ConnectionError(reason)
    with client:
        if not client.scheduler_info(n_workers=1)["workers"]:
            logger.warning("dtrees %s", NO_WORKER_YET)
        yield client


def _open(address: str, timeout: float) -> tuple[Client | None, str]:
    """A client of the scheduler there, or None and why not.

    The error is put into words, not chained: its traceback would keep the half-made client alive, which then closes itself, noisily
    and after a long wait, when the garbage is collected.
    """
    try:
        get_address_host_port(normalize_address(address))
    except ValueError as error:
        return None, f"{address!r} is not a scheduler's address ({_first_line(error)}). Give HOST:PORT or tcp://HOST:PORT."
    try:
        return Client(address, timeout=timeout), ""
    except (OSError, TimeoutError):
        hint = "Check the address and that the scheduler is running."
        return None, f"No Dask scheduler answers at {address!r} (waited {timeout:g} s). {hint}"


def _first_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its class where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
