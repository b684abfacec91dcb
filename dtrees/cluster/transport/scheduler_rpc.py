"""Questions to the scheduler, each with a deadline: Dask itself waits for an answer for as long as it takes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from typing import Any, TypeVar

from distributed import Client, Future, get_client

from dtrees.cluster.errors import SchedulerLost

T = TypeVar("T")

#: A scheduler has much to do where workers come and go; it is given at least so many seconds to answer.
SCHEDULER_PATIENCE = 20.0
#: What users are told to do.
RUN_AGAIN = "Nothing of this fit is left on the cluster; run it again"
#: What is said where there is no worker to begin with.
NO_WORKER_YET = (
    "waits for a first worker, of which the Dask cluster has none yet; Dask's setting distributed.scheduler.no-workers-timeout limits the "
    "wait, which has no limit by default"
)
_SLICE = 0.5
_SECONDS_TO_CONNECT = 0.01


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
