"""The parts of Dask that are not public, or hardly documented: each is used here, and nowhere else.

What of the scheduler's state the plugin :mod:`dtrees.cluster.reliability.registry` reads and changes, it does by the public methods and
attributes of :class:`distributed.Scheduler`; questions to the scheduler go by ``client.scheduler``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import logging
import multiprocessing
import socket
import threading
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import distributed
from dask.base import collections_to_expr, flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Scheduler, SchedulerPlugin, Worker, get_worker
from distributed.comm import Comm, CommClosedError
from distributed.comm.tcp import TCP
from distributed.core import ConnectionPool, Status, connect
from tornado.ioloop import IOLoop

from dtrees.version import pip_install

_LEAST = (2025, 12)
#: Bytes of a message of a connection that is not plain TCP.
_CARRIED_BYTES = 1 << 20
#: What is used here, and what :mod:`dtrees.cluster.reliability.registry` calls.
_NEEDED: dict[type, str] = {
    Worker: "status", ConnectionPool: "remove", TCP: "abort", SchedulerPlugin: "update_graph transition log_event restart",
    Scheduler: "client_desires_keys client_releases_keys remove_client request_acquire_replicas request_remove_replicas set_restrictions "
    "transitions worker_send",
}  # fmt: skip


def check_version(version: str = distributed.__version__) -> None:
    """Raise if Dask is older than what this is made for, or lacks a part that is used here.

    Raises
    ------
    ImportError

    Examples
    --------
    >>> check_version("2025.1.0")
    Traceback (most recent call last):
    ...
    ImportError: distributed is of version 2025.1.0; dtrees wants 2025.12 or later: pip install "distributed>=2025.12"
    """
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    least = ".".join(map(str, _LEAST))
    if found < _LEAST:
        raise ImportError(f'distributed is of version {version}; dtrees wants {least} or later: pip install "distributed>={least}"')
    lacking = [f"{owner.__name__}.{name}" for owner, names in _NEEDED.items() for name in names.split() if not hasattr(owner, name)]
    if lacking:
        raise ImportError(
            f"distributed is of version {version}, later than any that dtrees was made for, and lacks {', '.join(lacking)}; "
            f"install the versions that dtrees asks for: {pip_install()}"
        )


check_version()

if multiprocessing.current_process().name.startswith("Dask Worker process"):
    # A nanny kills a worker that takes more than some seconds to end, and the last collection of garbage, among all the objects of imported
    # packages, takes up to a second of processor.
    atexit.register(gc.freeze)


def _is_ours(key: Any) -> bool:
    return str(key[0] if isinstance(key, tuple) else key).startswith("dtrees-")


class _WithoutTracebacks(logging.Filter):
    """Has a worker not log the traceback of a failed task of ours: who waits for the fit gets the error, in one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        ours = str(record.msg).startswith("Compute Failed") and isinstance(record.args, tuple) and _is_ours(record.args[0])
        return not ours or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


logging.getLogger("distributed.worker").addFilter(_WithoutTracebacks())


def partitions_together(collections: Sequence[Any]) -> list[list[Delayed]]:
    """Return the partitions of collections of one kind, row by row of blocks, of one graph: they are optimized together.

    ``to_delayed`` optimizes each collection by itself, so that a partition that two of them are made of is computed twice.
    """
    expression = collections_to_expr(collections).optimize()
    layer = f"partitions-{uuid.uuid4().hex}"
    graph = HighLevelGraph.from_collections(layer, expression.__dask_graph__(), dependencies=())
    return [[Delayed(key, graph, layer=layer) for key in flatten(keys)] for keys in expression.__dask_keys__()]


def own_worker() -> Worker | None:
    """Return the worker that this runs on; None elsewhere."""
    try:
        return get_worker()
    except ValueError:
        return None


def threads_of(worker: Worker) -> int:
    """Return the threads of the worker that this runs on."""
    return int(worker.state.nthreads)


def actor_on(worker: Worker, key: str) -> Any:
    """Return the object that is an actor of the worker that this runs on; None if it has no such actor."""
    return worker.state.actors.get(key)


def is_wanted(worker: Worker, key: str | None) -> bool:
    """Return whether a task of the worker that this runs on is neither cancelled nor released, and the worker not about to end."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name not in ("closing", "closed", "failed")


@contextlib.contextmanager
def waiting_thread() -> Iterator[None]:
    """Have the profiler of Dask's worker leave this thread out, which only waits, if it runs one of the worker's tasks.

    It looks at every task a hundred times a second, holding the interpreter: three per cent of a core, for a stack as deep as a fit's.
    """
    if (worker := own_worker()) is None:
        yield
        return
    thread = threading.get_ident()
    with worker.active_threads_lock:
        key = worker.active_threads.pop(thread, None)
    try:
        yield
    finally:
        if key is not None:
            with worker.active_threads_lock:
                worker.active_threads[thread] = key


def tell_released(scheduler: Scheduler, address: str, keys: Sequence[Any], stimulus: str) -> None:
    """Have the scheduler tell a worker to give up tasks, before they are released.

    ``Scheduler.transitions`` tells it when they are, and in the same step has other workers run them. What the worker is to hear in between
    is sent after this: it hears all in this order.
    """
    if keys:
        scheduler.worker_send(address, {"op": "free-keys", "keys": list(keys), "stimulus_id": stimulus})


def close_connections(addresses: Sequence[str], dask_worker: Worker) -> None:
    """Close the connections that a worker has to others which are silent; runs on the worker (``client.run``).

    A worker waits without end for data that it has begun to fetch. This makes it ask the scheduler who else has them.
    """
    for address in addresses:
        dask_worker.rpc.remove(address)


class TakenConnection:
    """A connection of Dask's as a socket, for threads that wait for what comes without an event loop.

    One of plain TCP is taken away from the event loop. One of another kind (encrypted, or within a process) stays there: the loop carries
    bytes between it and a pair of sockets. When Dask closes the connection, because a worker ends for example, the socket is shut down.

    Attributes
    ----------
    socket : socket.socket
    """

    def __init__(self, comm: Comm) -> None:
        self._comm, self._loop = comm, IOLoop.current()
        self._when_closed: Callable[[], None] = _do_nothing
        self._carrying: asyncio.Future[None] | None = None
        if type(comm) is TCP:
            self.socket: socket.socket = comm.stream.socket.dup()
            comm.stream.set_close_callback(self._shut_down)
            self._loop.remove_handler(comm.stream.fileno())
        else:
            self.socket, inner = socket.socketpair()
            self._carrying = asyncio.ensure_future(_carry(comm, inner))
            self._carrying.add_done_callback(lambda _: self._shut_down())

    def when_closed(self, act: Callable[[], None]) -> None:
        """Have something done when Dask closes it, or who has it; it may be done twice."""
        self._when_closed = act

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._when_closed()

    def close(self) -> None:
        """Close it, from any thread."""
        self._shut_down()
        self.socket.close()
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            self._loop.add_callback(self._comm.abort)

    async def wait_closed(self) -> None:
        """Wait until nobody uses Dask's connection any more, once it is closed."""
        self._comm.abort()
        if self._carrying is not None:
            await asyncio.wait({self._carrying})


def _do_nothing() -> None:
    pass


async def _carry(comm: Comm, inner: socket.socket) -> None:
    """Carry bytes between a connection and a socket, until either is closed."""
    loop = asyncio.get_running_loop()
    inner.setblocking(False)

    async def there() -> None:
        while sent := await loop.sock_recv(inner, _CARRIED_BYTES):
            await comm.write(sent)

    async def back() -> None:
        while True:
            await loop.sock_sendall(inner, await comm.read())

    ways = [asyncio.ensure_future(way()) for way in (there, back)]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        inner.close()
        comm.abort()


async def connect_to_worker(address: str, connection_args: Mapping[str, Any], operation: str, **options: Any) -> TakenConnection:
    """Ask a worker for a connection by itself.

    Raises
    ------
    OSError
        If the worker cannot be reached, or refuses.
    """
    comm = await connect(address, **connection_args)
    try:
        await comm.write({"op": operation, **options})
        if (said := await comm.read()) != "OK":
            raise CommClosedError(f"{said} at {address}")
        return TakenConnection(comm)
    except BaseException:
        comm.abort()
        raise


def offer_connections(worker: Worker, operation: str, serve: Callable[[Any, TakenConnection], Awaitable[None]]) -> None:
    """Have a worker give connections to its actors to those who ask for them (:func:`connect_to_worker`, with the key of the ``actor``).

    Parameters
    ----------
    worker : Worker
    operation : str
        What they ask for. It is offered once, whoever else offers the same later.
    serve : callable
        A coroutine function, given a weak reference to the actor, and the connection: an actor is not kept for its connections.
    """

    async def handle(comm: Comm, actor: str) -> Status:
        if (called := actor_on(worker, actor)) is None:
            await comm.write(f"no actor {actor}")
            return Status.dont_reply
        reference = weakref.ref(called)
        del called
        await comm.write("OK")
        taken = TakenConnection(comm)  # before the loop can have read anything
        try:
            await serve(reference, taken)
        finally:
            taken.close()
            await taken.wait_closed()
        return Status.dont_reply

    worker.handlers.setdefault(operation, handle)


class NoDashboard(RuntimeError):
    """Dask's dashboard cannot take a page; the message says why."""


def add_dashboard_page(scheduler: Scheduler, name: str, make: Callable[[Any], None]) -> None:
    """Add a page to the dashboard of a scheduler, which may run already, and a tab for it; nothing changes if it is there.

    Dask has its pages made when a scheduler starts. This one is served by a Bokeh application of its own, on the same HTTP server.

    Parameters
    ----------
    scheduler : Scheduler
    name : str
        Of the page, which is at this path, and of its tab.
    make : callable
        Given a Bokeh document whenever somebody opens the page, fills it.

    Raises
    ------
    NoDashboard
        If there is no dashboard, or it is another than is known here.
    """
    routes = getattr(scheduler, "http_application", None)
    served = [app for app in getattr(routes, "applications", ()) if hasattr(app, "app_paths")]
    if routes is None or not served:
        raise NoDashboard("the scheduler has no dashboard: it was switched off, or the scheduler's environment has no bokeh")
    if any(f"/{name}" in path for app in served for path in app.app_paths):
        return
    try:
        from distributed.dashboard.components.scheduler import BOKEH_THEME, env
        from distributed.dashboard.core import BokehApplication
        from distributed.dashboard.scheduler import template_variables

        template = env.get_template("simple.html")
        variables = template_variables(scheduler)

        def open_page(scheduler: Scheduler, extra: Mapping[str, Any], document: Any) -> None:
            make(document)
            document.template = template
            document.template_variables.update(extra)
            document.theme = BOKEH_THEME

        app = BokehApplication({f"/{name}": open_page}, scheduler, prefix=served[0].prefix, template_variables=variables)
        routes.add_application(app)
        app.initialize(IOLoop.current())
        app.start()
        if name not in variables["pages"]:  # one list for all pages of the dashboard
            variables["pages"].append(name)
    except Exception as error:
        raise NoDashboard(f"the dashboard of distributed {distributed.__version__} does not take it ({error!r})") from error
