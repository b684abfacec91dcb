"""All uses of Dask's private or undocumented parts.

The plugin :mod:`dtrees.cluster.reliability.registry` reads and changes the scheduler's state by the public methods and attributes of
:class:`distributed.Scheduler`. Requests to the scheduler use ``client.scheduler``.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import distributed
from dask.base import collections_to_expr, flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from distributed import Scheduler, SchedulerPlugin, Worker
from distributed.comm import Comm, CommClosedError
from distributed.comm.tcp import TCP
from distributed.core import ConnectionPool, Status, connect
from tornado.ioloop import IOLoop

from dtrees.engine.threads import dask_worker
from dtrees.version import pip_install

_LEAST = (2025, 12)
#: Largest message, in bytes, on a connection that is not plain TCP.
_CARRIED_BYTES = 1 << 20
#: The attributes used here and in :mod:`dtrees.cluster.reliability.registry`.
_NEEDED: dict[type, str] = {
    Worker: "status", ConnectionPool: "remove", TCP: "abort", SchedulerPlugin: "update_graph transition log_event restart",
    Scheduler: "client_desires_keys client_releases_keys remove_client request_acquire_replicas request_remove_replicas set_restrictions "
    "transitions worker_send",
}  # fmt: skip


def check_version(version: str = distributed.__version__) -> None:
    """Raise if Dask is older than the oldest supported version, or lacks a part that is used here.

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
    # A nanny kills a worker that takes more than some seconds to exit, and the last garbage collection, with the objects of all imported
    # packages, takes up to a second of processor time.
    atexit.register(gc.freeze)


def _is_ours(key: Any) -> bool:
    return str(key[0] if isinstance(key, tuple) else key).startswith("dtrees-")


def _is_logged(record: logging.LogRecord) -> bool:
    """Suppress the worker's traceback of a failed fit: the client that waits for the fit reports the error in one line."""
    ours = str(record.msg).startswith("Compute Failed") and isinstance(record.args, tuple) and _is_ours(record.args[0])
    return not ours or logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


logging.getLogger("distributed.worker").addFilter(_is_logged)


def partitions_together(collections: Sequence[Any]) -> list[list[Delayed]]:
    """Return the partitions of collections of one kind, in row-major order of blocks, optimized as one graph.

    ``to_delayed`` optimizes each collection separately, so that a partition shared by two of them would be computed twice.
    """
    expression = collections_to_expr(collections).optimize()
    layer = f"partitions-{uuid.uuid4().hex}"
    graph = HighLevelGraph.from_collections(layer, expression.__dask_graph__(), dependencies=())
    return [[Delayed(key, graph, layer=layer) for key in flatten(keys)] for keys in expression.__dask_keys__()]


def actor_on(worker: Worker, key: str) -> Any:
    """Return the actor object with a key on the current worker; None if there is no such actor."""
    return worker.state.actors.get(key)


def is_wanted(worker: Worker, key: str | None) -> bool:
    """Return whether a task on the current worker is neither cancelled nor released, and the worker is not closing."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name not in ("closing", "closed", "failed")


@contextlib.contextmanager
def waiting_thread() -> Iterator[None]:
    """Exclude this thread, which only waits, from the profiler of Dask's worker, if it runs one of the worker's tasks.

    The profiler samples every task a hundred times a second while holding the interpreter lock. For the deep stack of a fit, that is three
    per cent of a core.
    """
    if (worker := dask_worker()) is None:
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
    """Have the scheduler notify a worker that tasks are released, before they are.

    ``Scheduler.transitions`` would notify it at the release, and start the tasks on other workers in the same step. Messages sent to the
    worker after this call arrive after the notification.
    """
    if keys:
        scheduler.worker_send(address, {"op": "free-keys", "keys": list(keys), "stimulus_id": stimulus})


def close_connections(addresses: Sequence[str], dask_worker: Worker) -> None:
    """Close the connections of a worker to silent workers; runs on the worker (``client.run``).

    A worker waits indefinitely for data that it has begun to fetch. With the connection closed, it asks the scheduler for other workers
    with the data.
    """
    for address in addresses:
        dask_worker.rpc.remove(address)


class TakenConnection:
    """A Dask connection as a socket, for threads that wait for data without an event loop.

    A plain TCP connection is detached from the event loop. Another kind (encrypted, or in-process) stays there, and the loop copies bytes
    between it and a pair of sockets. When Dask closes the connection, for example because a worker ends, the socket is shut down.

    Attributes
    ----------
    socket : socket.socket
    """

    def __init__(self, comm: Comm) -> None:
        self._comm, self._loop = comm, IOLoop.current()
        self._when_closed: Callable[[], None] = lambda: None
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
        """Call ``act`` when Dask or the owner closes the connection, possibly twice."""
        self._when_closed = act

    def _shut_down(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._when_closed()

    def close(self) -> None:
        """Close the connection, from any thread."""
        self._shut_down()
        self.socket.close()
        with contextlib.suppress(RuntimeError):  # the loop may have ended
            self._loop.add_callback(self._comm.abort)

    async def wait_closed(self) -> None:
        """Wait until Dask's connection is no longer in use after it was closed."""
        self._comm.abort()
        if self._carrying is not None:
            await asyncio.wait({self._carrying})


async def _carry(comm: Comm, inner: socket.socket) -> None:
    """Copy bytes between a connection and a socket until either is closed."""
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
    """Open a separate connection to a worker.

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


#: Serves a connection to an actor, given by a weak reference so that connections do not keep it alive; calls the function to end it.
Serve = Callable[[Any, TakenConnection, Callable[[], None]], None]


def offer_connections(worker: Worker, operation: str, serve: Serve) -> None:
    """Have a worker accept connections to its actors (:func:`connect_to_worker`, with the key of the ``actor``).

    Parameters
    ----------
    worker : Worker
    operation : str
        The name of the operation; a second offer of the same operation has no effect.
    serve : callable
        Called in the worker's event loop; the connection lasts until any thread calls the function that ends it.
    """

    async def handle(comm: Comm, actor: str) -> Status:
        if (called := actor_on(worker, actor)) is None:
            await comm.write(f"no actor {actor}")
            return Status.dont_reply
        reference = weakref.ref(called)
        del called
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            with contextlib.suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(ended.set)

        await comm.write("OK")
        taken = TakenConnection(comm)  # before the loop can read anything
        try:
            serve(reference, taken, end)
            await ended.wait()
        finally:
            taken.close()
            await taken.wait_closed()
        return Status.dont_reply

    worker.handlers.setdefault(operation, handle)


class NoDashboard(RuntimeError):
    """Dask's dashboard cannot show a page; the message has the reason."""


def add_dashboard_page(scheduler: Scheduler, name: str, make: Callable[[Any], None]) -> None:
    """Add a page and its tab to the dashboard of a scheduler, which may be running already; no effect if the page exists.

    Dask creates its own pages when a scheduler starts. This page is served by a separate Bokeh application on the same HTTP server.

    Parameters
    ----------
    scheduler : Scheduler
    name : str
        The name of the page, its path and its tab.
    make : callable
        Called with a new Bokeh document each time the page is opened; adds the content.

    Raises
    ------
    NoDashboard
        If there is no dashboard, or its structure is unknown.
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
