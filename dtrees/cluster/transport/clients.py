"""Dask clients: of a cluster started here or somewhere else, of a task's worker, and what is asked of a scheduler by them.

Each question has a deadline: Dask itself waits for an answer for as long as it takes. Clusters, here or elsewhere, are clients as context
managers, so that whatever follows is the same code for a laptop and for a cluster::

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

from dtrees.cluster.compat import own_worker
from dtrees.cluster.errors import ClusterError, SchedulerLost

logger = logging.getLogger("dtrees.cluster")

T = TypeVar("T")

#: A scheduler has much to do where workers come and go; it is given at least so many seconds to answer.
SCHEDULER_PATIENCE = 20.0
#: Advice to users.
RUN_AGAIN = "Nothing of this fit is left on the cluster; run it again"
#: What is said where there is no worker to begin with.
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
                raise RuntimeError(f"The local Dask cluster did not start: {first_line(error)}") from error
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
        return None, f"{address!r} is not a scheduler's address ({first_line(error)}). Give HOST:PORT or tcp://HOST:PORT."
    try:
        return Client(address, timeout=timeout), ""
    except (OSError, TimeoutError):
        hint = "Check the address and that the scheduler is running."
        return None, f"No Dask scheduler answers at {address!r} (waited {timeout:g} s). {hint}"


def first_line(error: object) -> str:
    """Return the first line of a text, or of an error's message; the name of its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def current_client() -> Iterator[Client | None]:
    """Give the client that Dask collections are computed with by default, or None where there is none.

    Inside a task, the thread is :func:`out_of_the_way`.

    Raises
    ------
    ClusterError
        If the client is asynchronous: then nothing here could wait.
    """
    if in_task():
        with worker_client() as client:
            yield connected(client)
    else:
        yield default_client()


@contextlib.contextmanager
def out_of_the_way() -> Iterator[None]:
    """Inside a task, leave the worker's pool for as long as the block lasts: tasks that it waits for may need the thread."""
    if in_task():
        with worker_client():
            yield
    else:
        yield


def in_task() -> bool:
    """Return whether this is a thread of a worker."""
    return own_worker() is not None


def default_client() -> Client | None:
    """Return the client that Dask collections are computed with by default, or None where there is none.

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


def checked_client(client: Any) -> Client:
    """Return a client that fit can wait with.

    Raises
    ------
    ClusterError
        If it is asynchronous.
    TypeError
        If it is none.
    """
    if not isinstance(client, Client):
        raise TypeError(f"client is {client!r}; wants a distributed.Client, or None for the current one")
    if client.asynchronous:
        raise ClusterError(
            "The current Dask client is asynchronous, and fit waits for its result; "
            "use model = await dtrees.submit(model, X, y), or a Client without asynchronous=True."
        )
    return client


def client_given(given: Any) -> Client:
    """Return the client that was given, or the current one."""
    if isinstance(given, Client):
        return given
    if given is not None:
        raise TypeError(f"client is {given!r}; wants a distributed.Client, or None for the current one")
    try:
        return Client.current()
    except ValueError as error:
        raise ValueError("client is None, and there is no current Dask client; make one, or pass it") from error


def connected(client: Client) -> Client:
    """Return a client once it is connected: that of a worker, which its tasks share, is found by all while one of them still makes it."""
    deadline = time.monotonic() + SCHEDULER_PATIENCE
    while client.status in ("newly-created", "connecting") and time.monotonic() < deadline:
        time.sleep(_SECONDS_TO_CONNECT)
    return client


def own_client() -> Client:
    """Return the client of the worker that this task runs on, connected."""
    return connected(get_client())


def ask(client: Client, question: Callable[[], Awaitable[T]]) -> T:
    """Return the scheduler's answer to a question, a coroutine function of its client's; a scheduler that stands still has a deadline.

    Raises
    ------
    SchedulerLost
        If there is no answer.
    """

    async def within_time() -> T:
        with explained():
            return await answer(question(), SCHEDULER_PATIENCE)

    return in_loop(client, within_time)


def in_loop(client: Client, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """Return what a coroutine function returns in the event loop of a client; it ends with the loop, where ``Client.sync`` waits on.

    Raises
    ------
    SchedulerLost
        If the loop has ended, as that of a process does which exits.
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
    coroutine.close()  # nobody runs it any more
    raise SchedulerLost(f"The connection to the Dask scheduler was closed. {RUN_AGAIN}.")


def states(client: Client, keys: Sequence[str]) -> dict[str, str | None]:
    """Return the state of each task on the scheduler; None for those that it does not know. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.get_task_status(keys=list(keys)))


def holders(client: Client, keys: Sequence[str]) -> dict[str, list[str]]:
    """Return the workers that have the result of each task. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.who_has(keys=list(keys)))


def bytes_of_results(client: Client, futures: Sequence[Future]) -> dict[str, int]:
    """Return the bytes of the result of each task, by key. Raises as :func:`ask` does."""
    return ask(client, lambda: client.scheduler.nbytes(keys=[future.key for future in futures], summary=False))


def threads_of_workers(client: Client) -> dict[str, int]:
    """Return the threads of each worker. Raises as :func:`ask` does."""
    return ask(client, client.scheduler.ncores)


def give_up(client: Client, futures: Sequence[Future]) -> None:
    """Cancel futures, whoever else wants them. Raises as :func:`ask` does."""
    ask(client, lambda: client.cancel(list(futures), asynchronous=True, force=True))


async def answer(question: Awaitable[T], patience: float) -> T:
    """Wait for an answer, and count the seconds waited only while this process runs: it may have been stopped itself."""
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
    """Put Dask's errors about its connections into words that say what to do."""
    try:
        yield
    except CancelledError as error:
        raise SchedulerLost(f"The fit's tasks on the Dask cluster were cancelled ({error}). {RUN_AGAIN}.") from error
    except OSError as error:
        raise SchedulerLost(f"The Dask scheduler does not answer ({error}). {RUN_AGAIN} once it is back.") from error
