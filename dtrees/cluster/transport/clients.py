"""Dask clients of local clusters, existing clusters and a task's worker, and requests to the scheduler through them.

Each request has a deadline, while Dask itself waits for an answer without limit. Local and existing clusters are both clients as context
managers, so that the code that follows is the same for a laptop and for a cluster::
    with local_client(n_workers=2) as client:       # embedded: stops with the block
        ...
    with connect("tcp://10.0.0.5:8786") as client:  # an existing cluster: only the connection is closed
        ...

Terms
-----
embedded cluster
    a scheduler and workers on this machine, reachable from this machine only (they listen on 127.0.0.1).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from typing import Any, TypeVar

from distributed import Client, Future, LocalCluster, get_client, worker_client
from distributed.comm import get_address_host_port, normalize_address

from dtrees.cluster.errors import ClusterError, SchedulerLost
from dtrees.engine.threads import dask_worker

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

#: Smallest time, in seconds, that the scheduler has to answer; it is busy when workers join and leave.
SCHEDULER_PATIENCE = 20.0
#: Advice to users.
RUN_AGAIN = "Nothing of this fit is left on the cluster; run it again"
#: The message if there is no worker at the start.
NO_WORKER_YET = (
    "waits for a first worker, of which the Dask cluster has none yet; Dask's setting distributed.scheduler.no-workers-timeout limits the "
    "wait, which has no limit by default"
)
_SLICE = 0.5
_SECONDS_TO_CONNECT = 0.01
_LOOPBACK = "127.0.0.1"
_DASHBOARD_PORT = 8787


@contextlib.contextmanager
def local_client(n_workers: int | None = None, threads_per_worker: int | None = None, processes: bool = True) -> Iterator[Client]:
    """Start a cluster on this machine and give a client of it; both end with the block.

    Parameters
    ----------
    n_workers : int, optional
        Number of worker processes. None uses as many as the cores allow with ``threads_per_worker`` threads each; if that is also None,
        Dask's choice (about the square root of the number of cores).
    threads_per_worker : int, optional
        Threads of each worker. None divides the cores among the workers.
    processes : bool
        Whether workers are separate processes. Otherwise they are threads of this process, which start faster, as nothing is imported
        twice.

    Yields
    ------
    distributed.Client
        Its ``dashboard_link`` is the address of Dask's dashboard, at port 8787 or, if that is in use, at any free one.

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
            # A warning about the usual port is irrelevant, as the displayed link is the one in use.
            warnings.filterwarnings("ignore", message="Port .* is already in use")
            try:
                cluster = LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=threads_per_worker,
                    processes=processes,
                    protocol="tcp://",  # not in-process memory, so that workers own what they receive, as on other clusters
                    host=_LOOPBACK,
                    dashboard_address=f"{_LOOPBACK}:{_DASHBOARD_PORT}",
                    silence_logs=logging.ERROR,
                )
            except (OSError, RuntimeError, TimeoutError) as error:
                raise RuntimeError(f"The local Dask cluster did not start: {first_line(error)}") from error
        stack.enter_context(cluster)
        yield stack.enter_context(Client(cluster))


@contextlib.contextmanager
def connect(address: str, timeout: float = 10.0) -> Iterator[Client]:
    """Connect to a running scheduler; the block closes the connection, and the cluster continues.

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
        In one line, if nothing answers there, or if the answer is not from a Dask scheduler of a compatible version.

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
    """Return a client of the scheduler at an address, or None and the reason why there is none.

    The error is described, not chained: its traceback would keep the unfinished client alive, which would close itself with messages, and
    after a long wait, in garbage collection.
    """
    try:
        get_address_host_port(normalize_address(address))
    except ValueError as error:
        return None, f"{address!r} is not a scheduler's address ({first_line(error)}). Give HOST:PORT or tcp://HOST:PORT."
    try:
        return Client(address, timeout=timeout), ""
    except (OSError, TimeoutError):
        hint = "Check the address and that the scheduler is running."
        return None, f"No Dask scheduler answers at {address!r} (waited {timeout:g} s). {hint}"


def first_line(error: object) -> str:
    """Return the first line of a text or of an error's message; the name of its class if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def out_of_the_way() -> Iterator[None]:
    """Inside a task, leave the worker's thread pool within the block: tasks that it waits for may need the thread."""
    if in_task():
        with worker_client():
            yield
    else:
        yield


def in_task() -> bool:
    """Return whether this is a thread of a worker."""
    return dask_worker() is not None


def default_client() -> Client | None:
    """Return the client by which Dask collections are computed by default, or None if there is none.

    Raises
    ------
    ClusterError
        If it is asynchronous.
    """
    try:
        client = Client.current()
    except ValueError:
        return None
    return checked_client(client)


def checked_client(client: Client) -> Client:
    """Return a client after checking that ``fit`` can wait with it.

    Raises
    ------
    ClusterError
        If it is asynchronous.
    """
    if client.asynchronous:
        raise ClusterError(
            "The current Dask client is asynchronous, and fit waits for its result; "
            "use model = await dtrees.submit(model, X, y), or a Client without asynchronous=True."
        )
    return client


def client_given(given: Any) -> Client:
    """Return the client that was given, or the current one."""
    try:
        client = Client.current() if given is None else given
    except ValueError as error:
        raise ValueError("client is None, and there is no current Dask client; make one, or pass it") from error
    if not isinstance(client, Client):
        raise TypeError(f"client is {client!r}; wants a distributed.Client, or None for the current one")
    return client


def connected(client: Client) -> Client:
    """Return a client once it is connected: tasks share the client of a worker, and find it while one of them still connects it."""
    deadline = time.monotonic() + SCHEDULER_PATIENCE
    while client.status in ("newly-created", "connecting") and time.monotonic() < deadline:
        time.sleep(_SECONDS_TO_CONNECT)
    return client


def own_client() -> Client:
    """Return the connected client of the current task's worker."""
    return connected(get_client())


def ask(client: Client, question: Callable[[], Awaitable[T]]) -> T:
    """Return the scheduler's answer to a request, a coroutine function of its client; raises as :func:`asked` does."""
    return in_loop(client, asked, question)


async def asked(question: Callable[[], Awaitable[T]], patience: float = 0.0) -> T:
    """Return the scheduler's answer to a request, in the event loop of a client; a suspended scheduler has a deadline.

    Raises
    ------
    SchedulerLost
        If there is no answer.
    """
    with explained():
        return await answer(question(), max(patience, SCHEDULER_PATIENCE))


def in_loop(client: Client, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """Return the result of a coroutine function in the event loop of a client; ends with the loop, unlike ``Client.sync``.

    Raises
    ------
    SchedulerLost
        If the loop has ended, as in a process that exits.
    RuntimeError
        If this is the loop's own thread, which cannot wait for it.
    """
    loop = client.loop.asyncio_loop
    if client.asynchronous:
        raise RuntimeError("this waits for a client's event loop; wants another thread than that of the loop")
    coroutine = function(*args)
    if loop.is_running():
        waiting = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            while loop.is_running() or waiting.done():
                if wait([waiting], timeout=_SLICE).done:
                    return waiting.result()
        finally:
            waiting.cancel()
    coroutine.close()  # the loop does not run it
    raise SchedulerLost(f"The connection to the Dask scheduler was closed. {RUN_AGAIN}.")


def states(client: Client, keys: Sequence[str]) -> dict[str, str | None]:
    """Return the state of each task on the scheduler; None for unknown tasks. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.get_task_status(keys=list(keys)))


def holders(client: Client, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the workers that have the result of each task. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.who_has(keys=list(keys)))


def bytes_of_results(client: Client, futures: Sequence[Future]) -> dict[str, int]:
    """Return the bytes of the result of each task, by key. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.nbytes(keys=[future.key for future in futures], summary=False))


def threads_of_workers(client: Client) -> dict[str, int]:
    """Return the number of threads of each worker. Raises as :func:`ask` does."""
    return ask(client, client.scheduler.ncores)


def give_up(client: Client, futures: Sequence[Future]) -> None:
    """Cancel futures, even if other clients want them. Raises as :func:`ask` does."""
    ask(client, lambda: client.cancel(list(futures), asynchronous=True, force=True))


async def answer(question: Awaitable[T], patience: float) -> T:
    """Wait for an answer; only time during which this process runs counts, as it may have been suspended."""
    asking = asyncio.ensure_future(question)
    try:
        for _ in range(math.ceil(patience / _SLICE)):
            if (await asyncio.wait({asking}, timeout=_SLICE))[0]:
                return asking.result()
        raise TimeoutError(f"waited {patience:.0f} s")
    finally:
        asking.cancel()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Convert Dask's connection errors to errors that state what to do."""
    try:
        yield
    except CancelledError as error:
        raise SchedulerLost(f"The fit's tasks on the Dask cluster were cancelled ({error}). {RUN_AGAIN}.") from error
    except OSError as error:
        raise SchedulerLost(f"The Dask scheduler does not answer ({error}). {RUN_AGAIN} once it is back.") from error
